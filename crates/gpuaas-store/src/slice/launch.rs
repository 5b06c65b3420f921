//! Launches and releases of claims.
//!
//! A row for each claim that was launched: how it stands as one document, and the number of its last
//! write. Whoever decides names that number, and the write changes nothing once it has grown; so any
//! number of control planes may decide at once, and an agent is given each action once. Task, proofs,
//! and the states of claim and slots are written with the run that they follow from.
//!
//! The user-data of a guest may hold a tenant's secrets. It is sealed, in neither the run nor its tasks, put
//! into a task when the agent fetches it, and deleted once the launch has ended.

use async_recursion::async_recursion as boxed;
use gpuaas_core::slice_run::{SliceLaunchSpec, claim_and_slot_state, new_launch, to_release};
use gpuaas_types::agent::TaskSpec;
use gpuaas_types::api::{Source, TimelineEvent};
use gpuaas_types::claim::ClaimState;
use gpuaas_types::codes::{ProblemCode, TimelineCode};
use gpuaas_types::slice::{SliceProof, SliceRun, SliceRunKind, SliceRunStatus};
use gpuaas_types::{AuditAction, ClaimId, TaskId, Timestamp};
use secrecy::SecretString;
use serde_json::json;

use crate::audit::rows::{self as audit, NewAuditEntry};
use crate::database::{Conn, Val, args};
use crate::error::StoreError;
use crate::identity::secret::rows::put_secret;
use crate::run::timeline_rows;
use crate::slice::claim_rows::{self, SlotClaim, SlotClaimRelease};
use crate::slice::launch_rows::{self, StoredSliceRun};
use crate::store::Store;

/// A launch of a reserved claim.
#[derive(Debug, Clone, PartialEq)]
pub struct NewSliceLaunch {
    /// Identifier of the claim.
    pub id: ClaimId,
    /// The claim's fencing token; none: whoever holds it.
    pub fence: Option<i64>,
    /// What it is made with.
    pub spec: SliceLaunchSpec,
    /// Actor who asks.
    pub actor: String,
    /// Reason that the actor names.
    pub reason: String,
}

/// A task for the agent of a slice's host.
#[derive(Debug, Clone, PartialEq)]
pub struct NewSliceTask {
    /// Identifier of the task.
    pub id: TaskId,
    /// What is to be done.
    pub spec: TaskSpec,
    /// It is not begun later than this.
    pub expires_at: Timestamp,
}

/// What follows from a decision about a launch or a release.
#[derive(Debug, Clone, PartialEq)]
pub struct SliceRunWrite {
    /// Identifier of the claim.
    pub claim_id: ClaimId,
    /// Number of the write that was decided on.
    pub revision: i64,
    /// The run as it is from now on.
    pub run: SliceRun,
    /// Moment at which it is looked at again.
    pub due_at: Timestamp,
    /// A task for the agent.
    pub task: Option<NewSliceTask>,
    /// What the agent proved.
    pub proofs: Vec<SliceProof>,
    /// Lines for the timeline of the node.
    pub history: Vec<TimelineEvent>,
}

/// Takes a reserved claim: it does not expire any more, and its fencing token is another one.
async fn launch(
    conn: &mut Conn,
    now: Timestamp,
    new: &NewSliceLaunch,
    user_data: Vec<u8>,
) -> Result<bool, StoreError> {
    let NewSliceLaunch { id, fence, spec, actor, reason } = new;
    let taken = conn
        .execute(
            "UPDATE slice_claim SET state = 'preparing', expires_at = NULL, fence = fence + 1 \
             WHERE id = $1 AND ($2 IS NULL OR fence = $2) AND state = 'reserved' \
             AND expires_at > $3",
            args![id.0, *fence, now],
        )
        .await?;
    if taken == 0 {
        return Ok(false);
    }
    let claim = claim_rows::read_one(conn, *id).await?;
    let run = new_launch(now);
    launch_rows::insert(conn, now, &claim, &run, spec).await?;
    put_secret(conn, id.0, claim_rows::USER_DATA, user_data).await?;
    follow(conn, now, &claim, &run, "its slice is being launched").await?;
    let sql = "UPDATE slice_slot SET fence = $3 WHERE node_id = $1 AND claim_id = $2";
    conn.execute(sql, args![claim.node_id.0, id.0, claim.fence]).await?;
    let detail = json!({ "claim": id, "image": spec.image, "reason": reason });
    let text = format!("{actor} launched claim {id} with image {}: {reason}", spec.image);
    note(conn, now, &claim, (AuditAction::SliceLaunch, actor, detail), text).await?;
    Ok(true)
}

async fn note(
    conn: &mut Conn,
    now: Timestamp,
    claim: &SlotClaim,
    (action, actor, detail): (AuditAction, &str, serde_json::Value),
    text: String,
) -> Result<(), StoreError> {
    let entry = NewAuditEntry {
        actor: actor.to_owned(),
        action,
        subject: claim.node_id.to_string(),
        detail,
    };
    audit::append(conn, now, &entry).await?;
    let line = TimelineEvent {
        at: now,
        run_id: None,
        step: None,
        source: Source::Operator,
        code: TimelineCode::SliceAsked.into(),
        text,
    };
    timeline_rows::append(conn, [(claim.node_id, &line)]).await
}

/// Sets claim and slots to what the run says of them.
async fn follow(
    conn: &mut Conn,
    now: Timestamp,
    claim: &SlotClaim,
    run: &SliceRun,
    reason: &str,
) -> Result<(), StoreError> {
    let states = claim_and_slot_state(run);
    if states.0.is_live() {
        return claim_rows::set_states(conn, now, claim, states, reason).await;
    }
    claim_rows::end(conn, now, claim, states, reason).await
}

/// Begins the release of a launched claim, or begins a blocked one again.
async fn release(
    conn: &mut Conn,
    now: Timestamp,
    asked: &SlotClaimRelease,
) -> Result<SlotClaim, StoreError> {
    let SlotClaimRelease { id, fence, actor, reason } = asked;
    let refused = |code, detail: String| Err(StoreError::conflict(code, detail));
    // Two requests at once: the second one waits for the first.
    conn.first("SELECT id FROM slice_claim WHERE id = $1 {LOCK}", args![id.0]).await?;
    let claim = claim_rows::read_one(conn, *id).await?;
    if fence.is_some_and(|fence| fence != claim.fence) {
        let detail = format!("claim {id} has the fencing token {}", claim.fence);
        return refused(ProblemCode::ClaimFenced, detail);
    }
    let is_launched = matches!(
        claim.state,
        ClaimState::Preparing | ClaimState::InUse | ClaimState::CleanupBlocked
    );
    let stored = launch_rows::read(conn, *id).await?.filter(|_| is_launched);
    let Some(StoredSliceRun { run, revision, .. }) = stored else {
        return refused(ProblemCode::ClaimInUse, format!("claim {id} is {}", claim.state));
    };
    let run = to_release(&run, now, reason);
    if !launch_rows::replace(conn, *id, revision, &run, now).await? {
        return refused(
            ProblemCode::ClaimFenced,
            format!("claim {id} has changed in the meantime"),
        );
    }
    let sql = "UPDATE node_task SET expires_at = $3 WHERE node_id = $1 AND claim_id = $2 \
               AND delivered_at IS NULL AND finished_at IS NULL";
    conn.execute(sql, args![claim.node_id.0, id.0, now]).await?;
    let sql = "UPDATE slice_claim SET fence = fence + 1 WHERE id = $1";
    conn.execute(sql, args![id.0]).await?;
    launch_rows::delete_user_data(conn, &claim).await?;
    follow(conn, now, &claim, &run, &format!("its slice is being released: {reason}")).await?;
    let text = format!("{actor} released claim {id}: {reason}");
    let detail = json!({ "claim": id, "reason": reason });
    note(conn, now, &claim, (AuditAction::SliceRelease, actor, detail), text).await?;
    claim_rows::read_one(conn, *id).await
}

async fn advance(
    conn: &mut Conn,
    now: Timestamp,
    write: &SliceRunWrite,
) -> Result<Option<SlotClaim>, StoreError> {
    let SliceRunWrite { claim_id, revision, run, due_at, task, proofs, history } = write;
    if !launch_rows::replace(conn, *claim_id, *revision, run, *due_at).await? {
        return Ok(None);
    }
    let claim = claim_rows::read_one(conn, *claim_id).await?;
    launch_rows::append_proofs(conn, now, *claim_id, proofs).await?;
    if run.kind != SliceRunKind::Launch || run.status != SliceRunStatus::Running {
        launch_rows::delete_user_data(conn, &claim).await?;
    }
    if let Some(task) = task {
        insert_task(conn, now, &claim, task).await?;
    }
    if claim_and_slot_state(run).0 != claim.state {
        let reason = match run.status {
            SliceRunStatus::Succeeded if run.reason.is_empty() => {
                format!("the {} of claim {claim_id} completed", run.kind)
            }
            SliceRunStatus::Succeeded => format!("proven clean after: {}", run.reason),
            _ => run.reason.clone(),
        };
        follow(conn, now, &claim, run, &reason).await?;
    }
    timeline_rows::append(conn, history.iter().map(|event| (claim.node_id, event))).await?;
    Ok(Some(claim))
}

async fn insert_task(
    conn: &mut Conn,
    now: Timestamp,
    claim: &SlotClaim,
    task: &NewSliceTask,
) -> Result<(), StoreError> {
    let values = vec![
        task.id.0.into(),
        claim.node_id.0.into(),
        Val::json(&task.spec)?,
        now.into(),
        task.expires_at.into(),
        claim.id.0.into(),
    ];
    let sql = "INSERT INTO node_task \
               (id, node_id, run_id, spec, created_at, expires_at, actor, claim_id) \
               SELECT $1, node_id, run_id, $3, $4, $5, 'gpuaas', $6 FROM heartbeat \
               WHERE node_id = $2";
    if conn.execute(sql, values).await? == 0 {
        let detail = format!("no agent has ever reported from node {}", claim.node_id);
        return Err(StoreError::conflict(ProblemCode::NodeWithoutAgent, detail));
    }
    Ok(())
}

impl Store {
    /// Begins the launch of a reserved claim: it does not expire any more, and its fencing token is
    /// another one, so whoever has the old one can neither launch nor release it.
    ///
    /// # Errors
    /// [`StoreError::NotFound`]; `claim_in_use` where it is not reserved, `claim_fenced`;
    /// [`StoreError::Unavailable`] or [`StoreError::Corrupt`].
    #[boxed]
    pub async fn launch_slot_claim(
        &self,
        now: Timestamp,
        mut new: NewSliceLaunch,
    ) -> Result<SlotClaim, StoreError> {
        let (id, fence) = (new.id, new.fence);
        let user_data = SecretString::from(std::mem::take(&mut new.spec.seed.user_data).expose());
        let sealed = self.seal(id.0, claim_rows::USER_DATA, &user_data)?;
        let taken = self
            .write(move |conn| Box::pin(async move { launch(conn, now, &new, sealed).await }))
            .await?;
        let claim = self.slot_claim(id).await?;
        if taken {
            self.signal_slice();
            return Ok(claim);
        }
        if fence.is_some_and(|fence| fence != claim.fence) {
            let detail = format!("claim {id} has the fencing token {}", claim.fence);
            return Err(StoreError::conflict(ProblemCode::ClaimFenced, detail));
        }
        let detail = format!("claim {id} is {}", claim.state);
        Err(StoreError::conflict(ProblemCode::ClaimInUse, detail))
    }

    /// Begins the release of a claim that was launched, or once more that of one whose release is
    /// blocked. Its fencing token is another one from then on.
    ///
    /// # Errors
    /// [`StoreError::NotFound`]; `claim_in_use` where it was not launched, ended, or is being released;
    /// `claim_fenced`; [`StoreError::Unavailable`] or [`StoreError::Corrupt`].
    #[boxed]
    pub async fn begin_slice_release(
        &self,
        now: Timestamp,
        asked: SlotClaimRelease,
    ) -> Result<SlotClaim, StoreError> {
        let begun = self
            .write(move |conn| Box::pin(async move { release(conn, now, &asked).await }))
            .await?;
        self.signal_slice();
        Ok(begun)
    }

    /// The launch or release of a claim; none: the claim was not launched.
    ///
    /// # Errors
    /// [`StoreError::Unavailable`] or [`StoreError::Corrupt`].
    #[boxed]
    pub async fn slice_run(&self, id: ClaimId) -> Result<Option<StoredSliceRun>, StoreError> {
        launch_rows::read(&mut self.reader().await?, id).await
    }

    /// Claims whose launch or release is due, the longest due first.
    ///
    /// # Errors
    /// [`StoreError::Unavailable`] or [`StoreError::Corrupt`].
    #[boxed]
    pub async fn due_slice_runs(
        &self,
        now: Timestamp,
        at_most: u32,
    ) -> Result<Vec<ClaimId>, StoreError> {
        let sql = "SELECT slice_run.claim_id FROM slice_run JOIN slice_claim \
                   ON slice_claim.id = slice_run.claim_id WHERE slice_run.status = 'running' \
                   AND slice_run.due_at <= $1 AND slice_claim.ended_at IS NULL \
                   ORDER BY slice_run.due_at LIMIT $2";
        let rows = self.reader().await?.all(sql, args![now, i64::from(at_most)]).await?;
        rows.iter().map(|row| row.cols().id(ClaimId)).collect()
    }

    /// Writes what follows from a decision; answers whether the run was still as it was decided on,
    /// and nothing was changed where it was not.
    ///
    /// # Errors
    /// [`StoreError::NotFound`]; `node_without_agent`; [`StoreError::Unavailable`] or
    /// [`StoreError::Corrupt`].
    #[boxed]
    pub async fn advance_slice_run(
        &self,
        now: Timestamp,
        write: SliceRunWrite,
    ) -> Result<bool, StoreError> {
        let ends_well = claim_and_slot_state(&write.run).0 == ClaimState::Released
            && write.run.status == SliceRunStatus::Succeeded;
        let has_task = write.task.is_some();
        let advanced = self
            .write(move |conn| Box::pin(async move { advance(conn, now, &write).await }))
            .await?;
        let Some(claim) = &advanced else { return Ok(false) };
        if has_task {
            self.signal_task(claim.node_id);
        }
        if ends_well {
            self.inner.placements.give_back(claim.node_id, claim_rows::slot_set(&claim.slots));
        }
        Ok(true)
    }
}
