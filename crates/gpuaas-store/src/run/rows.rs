//! Rows of `run` and `transition`.

use std::collections::HashMap;

use gpuaas_core::record::RunRecord;
use gpuaas_core::run_state::{MachineOrigin, RunState};
use gpuaas_types::codes::ProblemCode;
use gpuaas_types::{NodeId, ProfileId, RunId, RunKind, SiteId, Step, Timestamp};

use crate::database::{Cols, Conn, Val, args, padded, with_list};
use crate::error::StoreError;

/// A run to make.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewRun {
    /// Identifier of the run.
    pub id: RunId,
    /// Kind of the run.
    pub kind: RunKind,
    /// Step that it begins in.
    pub step: Step,
    /// Revision of the node's profile that it pins.
    pub profile_revision: i64,
    /// Why it starts, one sentence.
    pub cause: String,
}

impl NewRun {
    /// The first run of a node.
    #[must_use]
    pub const fn onboard(id: RunId, profile_revision: i64, cause: String) -> Self {
        Self { id, kind: RunKind::Onboard, step: Step::Accept, profile_revision, cause }
    }
}

/// The boundary at which a step of a run begins.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Transition {
    /// The step that begins.
    pub step: Step,
    /// Moment at which the step begins.
    pub at: Timestamp,
    /// Why the step begins, one sentence.
    pub cause: String,
}

/// Columns of a [`RunRecord`]; the argument is the column that stands for `due_at`.
macro_rules! run_columns {
    ($due:literal) => {
        concat!(
            "run.id, run.node_id, run.site_id, run.kind, run.step, run.status, run.profile_id, \
             run.profile_revision, run.memory, run.wait, run.park, run.created_at, \
             run.step_since, run.ended_at, ",
            $due,
            ", run.wake_seq, run.handled_seq, run.lease_token, run.lease_until, run.traceparent"
        )
    };
}
pub(crate) use run_columns;

pub(crate) fn read_run(cols: &mut Cols<'_>) -> Result<RunRecord, StoreError> {
    Ok(RunRecord {
        id: cols.id(RunId)?,
        node_id: cols.id(NodeId)?,
        site_id: cols.id(SiteId)?,
        kind: cols.enum_str()?,
        step: cols.enum_str()?,
        status: cols.enum_str()?,
        profile_id: cols.id(ProfileId)?,
        profile_revision: cols.next()?,
        state: cols.json()?,
        wait: cols.opt_json()?,
        park: cols.opt_json()?,
        created_at: cols.at()?,
        step_since: cols.at()?,
        ended_at: cols.opt_at()?,
        due_at: cols.at()?,
        wake_seq: cols.next()?,
        handled_seq: cols.next()?,
        lease_token: cols.next()?,
        lease_until: cols.at()?,
        traceparent: cols.next()?,
    })
}

/// The runs with these ids; those that are not there are left out.
pub(crate) async fn runs_with_ids(
    conn: &mut Conn,
    ids: impl IntoIterator<Item = RunId>,
) -> Result<HashMap<RunId, RunRecord>, StoreError> {
    const SQL: &str =
        concat!("SELECT ", run_columns!("run.due_at"), " FROM run WHERE id IN ({LIST})");
    let mut runs = HashMap::new();
    for ids in padded(ids.into_iter().map(|id| id.0)) {
        let sql = with_list(SQL, 1, ids.len());
        for row in conn.all(sql, ids.into_iter().map(Val::from).collect()).await? {
            let run = read_run(&mut row.cols())?;
            runs.insert(run.id, run);
        }
    }
    Ok(runs)
}

/// How the node's machine came to it, as its latest onboarding found: a claimed machine keeps the name
/// that it has in MAAS. An onboarding finds that out by itself.
async fn machine_origin(
    conn: &mut Conn,
    node_id: NodeId,
    kind: RunKind,
) -> Result<Option<MachineOrigin>, StoreError> {
    if kind == RunKind::Onboard {
        return Ok(None);
    }
    let row = conn
        .first(
            "SELECT memory FROM run WHERE node_id = $1 AND kind = 'onboard' \
             ORDER BY created_at DESC LIMIT 1",
            args![node_id.0],
        )
        .await?;
    let Some(row) = row else { return Ok(None) };
    let state: RunState = row.cols().json()?;
    Ok(state.origin)
}

pub(crate) async fn insert_run(
    conn: &mut Conn,
    now: Timestamp,
    node_id: NodeId,
    site_and_profile: (SiteId, ProfileId),
    run: &NewRun,
) -> Result<(), StoreError> {
    let traceparent = conn.origin().trace.map(|span| span.to_string());
    let origin = machine_origin(conn, node_id, run.kind).await?;
    let made = conn
        .execute(
            "INSERT INTO run (id, node_id, site_id, kind, step, status, profile_id, \
             profile_revision, memory, created_at, step_since, due_at, was_due_at, wake_seq, \
             handled_seq, lease_token, lease_until, traceparent) VALUES ($1, $2, $3, $4, $5, \
             'running', $6, $7, $8, $9, $9, $9, $9, 0, 0, 0, 0, $10) ON CONFLICT DO NOTHING",
            vec![
                run.id.0.into(),
                node_id.0.into(),
                site_and_profile.0.0.into(),
                run.kind.as_str().into(),
                run.step.as_str().into(),
                site_and_profile.1.0.into(),
                run.profile_revision.into(),
                Val::json(&RunState { origin, ..RunState::default() })?,
                now.into(),
                traceparent.as_deref().into(),
            ],
        )
        .await?;
    if made == 0 {
        let open = conn
            .first(
                "SELECT id, step FROM run WHERE node_id = $1 \
                 AND status IN ('running', 'waiting', 'parked')",
                args![node_id.0],
            )
            .await?;
        let Some(open) = open else {
            return Err(StoreError::conflict(
                ProblemCode::AlreadyExists,
                format!("run {} already exists", run.id),
            ));
        };
        let mut cols = open.cols();
        let (id, step) = (cols.id(RunId)?, cols.enum_str::<Step>()?);
        let detail = format!("the node already has an open run: {id}, at {step}");
        return Err(StoreError::conflict(ProblemCode::NodeHasOpenRun, detail));
    }
    let first = Transition { step: run.step, at: now, cause: run.cause.clone() };
    append_transitions(conn, run.id, &[first]).await
}

const WAKE: &str = "WITH woken AS MATERIALIZED (SELECT id FROM run WHERE id IN ({LIST}) \
     ORDER BY id {LOCK}) \
     UPDATE run SET wake_seq = wake_seq + 1, \
     due_at = CASE WHEN status = 'parked' OR lease_until > $1 OR due_at < $1 \
     THEN due_at ELSE $1 END \
     FROM woken WHERE run.id = woken.id";

/// Counts an event of each run and makes it due. While a worker holds the lease, only the count
/// grows: the worker sees it when it gives the lease back. A parked run keeps the pace of its
/// rechecks.
pub(crate) async fn wake(
    conn: &mut Conn,
    now: Timestamp,
    run_ids: impl IntoIterator<Item = RunId>,
) -> Result<(), StoreError> {
    for ids in padded(run_ids.into_iter().map(|id| id.0)) {
        let sql = with_list(WAKE, 2, ids.len());
        let mut args = args![now];
        args.extend(ids.into_iter().map(Val::from));
        conn.execute(sql, args).await?;
    }
    Ok(())
}

const RECHECK: &str = "WITH woken AS MATERIALIZED (SELECT id FROM run WHERE id IN ({LIST}) \
     ORDER BY id {LOCK}) \
     UPDATE run SET due_at = $1 FROM woken WHERE run.id = woken.id AND run.status = 'parked' \
     AND run.due_at > $1 AND run.due_at < $2";

/// Lets each of the runs that is parked, and looks again by itself, do so at once.
pub(crate) async fn recheck_now(
    conn: &mut Conn,
    now: Timestamp,
    run_ids: impl IntoIterator<Item = RunId>,
) -> Result<(), StoreError> {
    for ids in padded(run_ids.into_iter().map(|id| id.0)) {
        let sql = with_list(RECHECK, 3, ids.len());
        let mut args = args![now, Timestamp::NEVER];
        args.extend(ids.into_iter().map(Val::from));
        conn.execute(sql, args).await?;
    }
    Ok(())
}

/// Locks a run until the end of the transaction, and names its node; none: there is no such run.
pub(crate) async fn lock(conn: &mut Conn, run_id: RunId) -> Result<Option<NodeId>, StoreError> {
    if let Some(node_id) = conn.group().and_then(|group| group.node_of_locked(run_id.0)) {
        return Ok(Some(NodeId(node_id)));
    }
    let sql = "SELECT node_id FROM run WHERE id = $1 {LOCK}";
    let row = conn.first(sql, args![run_id.0]).await?;
    row.map(|row| row.cols().id(NodeId)).transpose()
}

/// Wakes one run and names its node.
pub(crate) async fn wake_one(
    conn: &mut Conn,
    now: Timestamp,
    run_id: RunId,
) -> Result<NodeId, StoreError> {
    if let Some(group) = conn.group()
        && let Some(node_id) = group.node_of_locked(run_id.0)
    {
        group.add_wake(run_id.0, now.as_micros());
        return Ok(NodeId(node_id));
    }
    let row = conn
        .first(
            "UPDATE run SET wake_seq = wake_seq + 1, \
             due_at = CASE WHEN status = 'parked' OR lease_until > $1 OR due_at < $1 \
     THEN due_at ELSE $1 END \
             WHERE id = $2 RETURNING node_id",
            args![now, run_id.0],
        )
        .await?;
    row.ok_or_else(|| StoreError::not_found("run", run_id))?.cols().id(NodeId)
}

/// Appends step boundaries.
pub(crate) async fn append_transitions(
    conn: &mut Conn,
    run_id: RunId,
    transitions: &[Transition],
) -> Result<(), StoreError> {
    let rows = transitions
        .iter()
        .map(|change| args![run_id.0, change.step.as_str(), change.at, &change.cause])
        .collect();
    conn.insert_rows("INSERT INTO transition (run_id, step, at, cause)", rows).await
}
