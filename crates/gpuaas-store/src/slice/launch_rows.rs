//! Rows of `slice_run` and `slice_proof`.

use gpuaas_core::slice_run::SliceLaunchSpec;
use gpuaas_types::agent::TaskResult;
use gpuaas_types::slice::{RecordedProof, SliceProof, SliceRun};
use gpuaas_types::{ClaimId, TaskId, Timestamp};

use crate::database::{Conn, Val, args};
use crate::error::StoreError;
use crate::identity::secret::rows::delete_secret;
use crate::slice::claim_rows::{self, SlotClaim, USER_DATA};

/// What came of the task that the agent of a slice's host was given last.
#[derive(Debug, Clone, PartialEq)]
pub struct SliceTaskState {
    /// Result of the agent; none: not yet.
    pub result: Option<TaskResult>,
}

/// A launch or a release as it stands.
#[derive(Debug, Clone, PartialEq)]
pub struct StoredSliceRun {
    /// The claim.
    pub claim: SlotClaim,
    /// How the launch, or the release, stands.
    pub run: SliceRun,
    /// What the launch was made with.
    pub spec: SliceLaunchSpec,
    /// Number of the last write.
    pub revision: i64,
    /// What was proven, oldest first.
    pub proofs: Vec<RecordedProof>,
    /// What came of the run's last attempt; none: there is no attempt, or its task is gone.
    pub task: Option<SliceTaskState>,
}

/// The launch or release of a claim, as a transaction sees it; none: the claim was not launched.
pub(crate) async fn read(
    conn: &mut Conn,
    id: ClaimId,
) -> Result<Option<StoredSliceRun>, StoreError> {
    let sql = "SELECT run, spec, revision FROM slice_run WHERE claim_id = $1";
    let Some(row) = conn.first(sql, args![id.0]).await? else { return Ok(None) };
    let mut cols = row.cols();
    let (run, spec, revision) = (cols.json::<SliceRun>()?, cols.json()?, cols.next()?);
    let proofs = proofs_of(conn, id).await?;
    let task = match &run.attempt {
        Some(attempt) => read_task(conn, attempt.task_id).await?,
        None => None,
    };
    let claim = claim_rows::read_one(conn, id).await?;
    Ok(Some(StoredSliceRun { claim, run, spec, revision, proofs, task }))
}

/// What was proven of the release of a claim, oldest first.
pub(crate) async fn proofs_of(
    conn: &mut Conn,
    id: ClaimId,
) -> Result<Vec<RecordedProof>, StoreError> {
    let sql = "SELECT at, proof FROM slice_proof WHERE claim_id = $1 ORDER BY number";
    let mut proofs = Vec::new();
    for row in conn.all(sql, args![id.0]).await? {
        let mut cols = row.cols();
        proofs.push(RecordedProof { at: cols.at()?, proof: cols.json()? });
    }
    Ok(proofs)
}

async fn read_task(conn: &mut Conn, id: TaskId) -> Result<Option<SliceTaskState>, StoreError> {
    let sql = "SELECT result FROM node_task WHERE id = $1 AND claim_id IS NOT NULL";
    let Some(row) = conn.first(sql, args![id.0]).await? else { return Ok(None) };
    Ok(Some(SliceTaskState { result: row.cols().opt_json()? }))
}

/// Puts a new row.
pub(crate) async fn insert(
    conn: &mut Conn,
    now: Timestamp,
    claim: &SlotClaim,
    run: &SliceRun,
    spec: &SliceLaunchSpec,
) -> Result<(), StoreError> {
    let values = vec![
        claim.id.0.into(),
        claim.node_id.0.into(),
        run.status.as_str().into(),
        Val::json(run)?,
        Val::json(spec)?,
        now.into(),
    ];
    let sql = "INSERT INTO slice_run (claim_id, node_id, status, run, spec, revision, due_at) \
               VALUES ($1, $2, $3, $4, $5, 1, $6)";
    conn.execute(sql, values).await.map(drop)
}

/// Replaces the run of a row; answers whether `revision` was the number of its last write.
pub(crate) async fn replace(
    conn: &mut Conn,
    id: ClaimId,
    revision: i64,
    run: &SliceRun,
    due_at: Timestamp,
) -> Result<bool, StoreError> {
    let values = vec![
        id.0.into(),
        revision.into(),
        run.status.as_str().into(),
        Val::json(run)?,
        due_at.into(),
    ];
    let sql = "UPDATE slice_run SET status = $3, run = $4, due_at = $5, revision = revision + 1 \
               WHERE claim_id = $1 AND revision = $2";
    Ok(conn.execute(sql, values).await? == 1)
}

/// Deletes the user-data of a claim's guest: the guest has it, or never will. What a launch of an earlier
/// version left in the run and its tasks is emptied.
pub(crate) async fn delete_user_data(conn: &mut Conn, claim: &SlotClaim) -> Result<(), StoreError> {
    if delete_secret(conn, claim.id.0, USER_DATA).await? {
        return Ok(());
    }
    let (of_run, of_tasks) = if conn.is_postgres() {
        (
            "UPDATE slice_run SET spec = jsonb_set(spec, '{seed,user_data}', '\"\"') \
             WHERE claim_id = $1 AND spec #>> '{seed,user_data}' <> ''",
            "UPDATE node_task SET spec = jsonb_set(spec, '{slice,seed,user_data}', '\"\"') \
             WHERE node_id = $1 AND claim_id = $2 AND actor IS NOT NULL \
             AND spec #>> '{slice,seed,user_data}' <> ''",
        )
    } else {
        (
            "UPDATE slice_run SET spec = \
             json_patch(spec, json_object('seed', json_object('user_data', ''))) \
             WHERE claim_id = $1 AND spec -> 'seed' ->> 'user_data' <> ''",
            "UPDATE node_task SET spec = json_patch(spec, \
             json_object('slice', json_object('seed', json_object('user_data', '')))) \
             WHERE node_id = $1 AND claim_id = $2 AND actor IS NOT NULL \
             AND spec -> 'slice' -> 'seed' ->> 'user_data' <> ''",
        )
    };
    if conn.execute(of_run, args![claim.id.0]).await? > 0 {
        conn.execute(of_tasks, args![claim.node_id.0, claim.id.0]).await?;
    }
    Ok(())
}

/// Appends proofs.
pub(crate) async fn append_proofs(
    conn: &mut Conn,
    now: Timestamp,
    id: ClaimId,
    proofs: &[SliceProof],
) -> Result<(), StoreError> {
    for proof in proofs {
        let sql = "INSERT INTO slice_proof (claim_id, number, at, proof) \
                   SELECT $1, COALESCE(MAX(number), 0) + 1, $2, $3 FROM slice_proof \
                   WHERE claim_id = $1";
        conn.execute(sql, vec![id.0.into(), now.into(), Val::json(proof)?]).await?;
    }
    Ok(())
}

/// Makes the launch or release due that a task is a part of.
pub(crate) async fn wake_by_task(
    conn: &mut Conn,
    now: Timestamp,
    task_id: TaskId,
) -> Result<(), StoreError> {
    // A decision that was made without this result changes nothing.
    let sql = "UPDATE slice_run SET due_at = $2, revision = revision + 1 \
               WHERE status = 'running' AND claim_id = \
               (SELECT claim_id FROM node_task WHERE id = $1)";
    conn.execute(sql, args![task_id.0, now]).await.map(drop)
}
