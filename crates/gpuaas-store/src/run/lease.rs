//! Runs: handing them out, waking them, taking their results back. The rules are told in the
//! text of the crate; what operators say to runs is in `operator_command`.

use async_recursion::async_recursion as boxed;
use std::sync::Arc;

use gpuaas_core::effect::Intent;
use gpuaas_core::record::{NodeRecord, Report, RunRecord};
use gpuaas_types::agent::TaskSpec;
use gpuaas_types::api::TimelineEvent;
use gpuaas_types::codes::ProblemCode;
use gpuaas_types::machine::Observation;
use gpuaas_types::{NodeId, NodeState, RunId, RunStatus, Step, TaskId, Timestamp};

use crate::agent::report_rows::{forget_earlier_system, reports_of};
use crate::database::{Conn, GroupHints, RowsStatement, UPDATE_RUNS, Val, args, padded, with_list};
use crate::error::StoreError;
use crate::identity::certificate_rows::{self, CertificateEnding};
use crate::identity::token_rows::{self, NewToken};
use crate::node::host_value;
use crate::node::observation_rows::{observation_columns, put_read, read_observation};
use crate::node::rows::{node_columns, node_from, read_node};
use crate::run::moment_rows::RunMoment;
use crate::run::rows::{Transition, append_transitions, read_run, run_columns};
use crate::run::{batch_rows, moment_rows, rows as run, timeline_rows};
use crate::site::rows::sites_of_region;
use crate::slice::topology;
use crate::slice::whole_node;
use crate::store::Store;

/// A run handed to a worker, with everything stored that a decision about it needs.
#[derive(Debug, Clone, PartialEq)]
pub struct LeasedRun {
    /// The run; `due_at` is when it was due, `lease_token` what each write must name.
    pub run: RunRecord,
    /// Node of the run.
    pub node: NodeRecord,
    /// Revision of the site's row, which an operator may have changed a moment ago.
    pub site_revision: i64,
    /// Latest observation of the machine in MAAS.
    pub observation: Option<Observation>,
    /// What the node said during this run, oldest first.
    pub reports: Vec<Report>,
}

/// A change of the run's node.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct NodeChange {
    /// New state of the node; none: as before.
    pub state: Option<NodeState>,
    /// MAAS `system_id` of the machine it is bound to; none: as before.
    pub system_id: Option<String>,
}

/// A task for the run's node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewTask {
    /// Identifier of the task.
    pub id: TaskId,
    /// What the agent is to do.
    pub spec: TaskSpec,
    /// Moment after which the agent does not begin it.
    pub expires_at: Timestamp,
}

/// Everything a worker writes at once. All of it is kept, or nothing.
#[derive(Debug, Clone)]
pub struct RunWrite {
    /// The run as it is from now on. `id`, `lease_token` and `wake_seq` are those of the claim;
    /// `step`, `status`, `memory`, `wait`, `park`, `step_since` and `ended_at` are written.
    /// `lease_until` is written unless the lease is given back, `due_at` only if it is.
    pub run: RunRecord,
    /// Whether the lease is given back.
    pub release: bool,
    /// Change of the node; none: it stays as it is.
    pub node: Option<NodeChange>,
    /// Lines for the timeline of the node.
    pub timeline: Vec<TimelineEvent>,
    /// Boundaries of the steps that begin.
    pub transitions: Vec<Transition>,
    /// Intents, new ones and ones whose outcome is now known. A known outcome never changes.
    pub attempts: Vec<Intent>,
    /// Observation from a full read of the machine.
    pub observation: Option<Observation>,
    /// Credentials for a new deployment; those of the run's earlier ones are revoked.
    pub tokens: Vec<NewToken>,
    /// The tokens of the run's deployments are revoked, and the certificates of the node's agent end:
    /// what was deployed is released.
    pub revokes_tokens: bool,
    /// Whether the tokens of an earlier deployment of the run stay good beside new ones: nobody knows for
    /// certain that it came to nothing.
    pub keeps_tokens: bool,
    /// The run's tokens expire then, if it is parked: see [`Store::start_token_clock`].
    pub tokens_expire_at: Option<Timestamp>,
    /// Tasks for the node's agent.
    pub tasks: Vec<NewTask>,
    /// The run was parked before and is so for the same reason: nobody is woken.
    pub stays_parked: bool,
}

impl RunWrite {
    /// Writes the run itself and nothing else.
    #[must_use]
    pub const fn new(run: RunRecord) -> Self {
        Self {
            run,
            release: false,
            node: None,
            timeline: Vec::new(),
            transitions: Vec::new(),
            attempts: Vec::new(),
            observation: None,
            tokens: Vec::new(),
            revokes_tokens: false,
            keeps_tokens: false,
            tokens_expire_at: None,
            tasks: Vec::new(),
            stays_parked: false,
        }
    }

    /// The run is parked as before, so nobody is woken.
    #[must_use]
    pub const fn staying_parked(mut self) -> Self {
        self.stays_parked = true;
        self
    }

    /// Gives the lease back, too.
    #[must_use]
    pub const fn releasing(mut self) -> Self {
        self.release = true;
        self
    }
}

const CLAIM: &str = concat!(
    "WITH due AS MATERIALIZED (SELECT id FROM run \
     WHERE status IN ('running', 'waiting', 'parked') AND due_at <= $1 AND lease_until <= $1 ORDER BY due_at LIMIT $3 {SKIP}) \
     UPDATE run SET lease_token = lease_token + 1, lease_until = $2, was_due_at = run.due_at, \
     due_at = $2 FROM due WHERE run.id = due.id RETURNING ",
    run_columns!("run.was_due_at")
);

const CLAIMED_NODES: &str = concat!(
    "SELECT ",
    node_columns!(),
    ", (SELECT site.revision FROM site WHERE site.id = node.site_id), ",
    observation_columns!(),
    " FROM ",
    node_from!(),
    " LEFT JOIN observation ON observation.node_id = node.id WHERE node.id IN ({LIST})"
);

/// The update of the run, by the columns of [`UPDATE_RUNS`].
fn run_update(now: Timestamp, write: &RunWrite) -> Result<Vec<Val>, StoreError> {
    let run = &write.run;
    Ok(vec![
        run.id.0.into(),
        run.lease_token.into(),
        run.step.as_str().into(),
        run.status.as_str().into(),
        Val::json(&run.state)?,
        Val::opt_json(run.wait.as_ref())?,
        Val::opt_json(run.park.as_ref())?,
        run.step_since.into(),
        run.ended_at.into(),
        run.lease_until.into(),
        run.due_at.into(),
        run.wake_seq.into(),
        now.into(),
        write.release.into(),
    ])
}

async fn write_run(conn: &mut Conn, now: Timestamp, write: &RunWrite) -> Result<bool, StoreError> {
    let run = &write.run;
    let due = |wake_seq: i64| write.release && (wake_seq > run.wake_seq || run.due_at <= now);
    if let Some(updated) = conn.group().and_then(|group| group.take_updated(run.id.0)) {
        return updated.map(due).ok_or(StoreError::LeaseLost);
    }
    let rows = conn.query_rows(UPDATE_RUNS, vec![run_update(now, write)?]).await?;
    let row = rows.into_iter().next().ok_or(StoreError::LeaseLost)?;
    let mut cols = row.cols();
    let _: uuid::Uuid = cols.next()?;
    cols.next().map(due)
}

/// Revokes the credentials of a node that left: it has no agent any more.
async fn revoke_credentials(
    conn: &mut Conn,
    now: Timestamp,
    node_id: NodeId,
    state: NodeState,
) -> Result<(), StoreError> {
    let reason = format!("the node is {}", state.as_str());
    certificate_rows::end_all(conn, now, node_id, CertificateEnding::Revoked, &reason).await?;
    conn.execute(
        "UPDATE token SET revoked_at = $2 WHERE node_id = $1 AND revoked_at IS NULL",
        args![node_id.0, now],
    )
    .await
    .map(drop)
}

/// Changes of the states of nodes in a group of writes. A node has one run that writes to it.
const CHANGE_STATES: RowsStatement = RowsStatement {
    head: "WITH v (id, state, now) AS (",
    tail: ") UPDATE node SET state = COALESCE(v.state, node.state), \
           revision = node.revision + 1, updated_at = v.now FROM v WHERE node.id = v.id",
};

async fn change_node(
    conn: &mut Conn,
    now: Timestamp,
    run: &RunRecord,
    change: &NodeChange,
) -> Result<(), StoreError> {
    match &change.system_id {
        Some(system_id) => bind_machine(conn, now, run, change.state, system_id).await,
        None => {
            let state = change.state.map(NodeState::as_str);
            conn.write_rows(CHANGE_STATES, vec![args![run.node_id.0, state, now]]).await
        }
    }
}

/// Another node in care of the site's region that has the machine: `$1` the site, `$2` the machine,
/// `$3` the node.
macro_rules! holder {
    () => {
        concat!(
            "node AS holder WHERE holder.system_id = $2 AND holder.id <> $3 \
             AND holder.site_id IN ",
            sites_of_region!(),
            " AND holder.state NOT IN ('retired', 'detached', 'deleted')"
        )
    };
}

/// Binds the run's node to a machine that no other node has.
async fn bind_machine(
    conn: &mut Conn,
    now: Timestamp,
    run: &RunRecord,
    state: Option<NodeState>,
    system_id: &str,
) -> Result<(), StoreError> {
    const BIND: &str = concat!(
        "UPDATE node SET state = COALESCE($4, state), system_id = $2, \
         region = (SELECT site.region FROM site WHERE site.id = node.site_id), \
         revision = revision + 1, updated_at = $5 WHERE id = $3 AND NOT EXISTS (SELECT 1 FROM ",
        holder!(),
        ")"
    );
    const HOLDER: &str = concat!(
        "SELECT holder.hostname, (SELECT site.name FROM site WHERE site.id = holder.site_id) FROM ",
        holder!()
    );
    let (site_id, node_id) = (run.site_id.0, run.node_id.0);
    let held = |detail| StoreError::conflict(ProblemCode::MachineHeld, detail);
    let just_taken = || held(format!("another node has just taken machine {system_id}"));
    let values = args![site_id, system_id, node_id, state.map(NodeState::as_str), now];
    match conn.execute(BIND, values).await {
        // Another node took the machine between the look and the write.
        Err(StoreError::Conflict { code: ProblemCode::AlreadyExists, .. }) => {
            return Err(just_taken());
        }
        Ok(0) => {}
        other => return other.map(drop),
    }
    let holder = conn.first(HOLDER, args![site_id, system_id, node_id]).await?;
    let holder = holder.ok_or_else(just_taken)?;
    let mut cols = holder.cols();
    let (hostname, site): (String, String) = (cols.next()?, cols.next()?);
    let detail = format!("machine {system_id} is held by node {hostname} of site {site}");
    Err(held(detail))
}

async fn write_attempts(
    conn: &mut Conn,
    run_id: RunId,
    intents: &[Intent],
) -> Result<(), StoreError> {
    const PUT: RowsStatement = RowsStatement {
        head: "INSERT INTO effect_attempt (id, run_id, step, effect, number, at, before_status, \
               outcome, ended_at)",
        tail: "ON CONFLICT (id) DO UPDATE SET outcome = excluded.outcome, \
               ended_at = excluded.ended_at WHERE effect_attempt.outcome IS NULL",
    };
    let rows = intents.iter().map(|intent| {
        Ok(vec![
            intent.id.0.into(),
            run_id.0.into(),
            intent.step.as_str().into(),
            Val::json(&intent.effect)?,
            i64::from(intent.number).into(),
            intent.at.into(),
            intent.before.into(),
            Val::opt_json(intent.outcome.as_ref())?,
            intent.ended_at.into(),
        ])
    });
    conn.write_rows(PUT, rows.collect::<Result<_, StoreError>>()?).await
}

async fn write_tasks(
    conn: &mut Conn,
    now: Timestamp,
    run: &RunRecord,
    tasks: &[NewTask],
) -> Result<(), StoreError> {
    let rows = tasks.iter().map(|task| {
        Ok(vec![
            task.id.0.into(),
            run.node_id.0.into(),
            run.id.0.into(),
            Val::json(&task.spec)?,
            now.into(),
            task.expires_at.into(),
        ])
    });
    let head = "INSERT INTO node_task (id, node_id, run_id, spec, created_at, expires_at)";
    conn.insert_rows(head, rows.collect::<Result<_, StoreError>>()?).await
}

/// Whether the run parked or ended with this.
const fn is_news_to_batch(write: &RunWrite) -> bool {
    !write.stays_parked && !matches!(write.run.status, RunStatus::Running | RunStatus::Waiting)
}

/// Writes it all; answers whether the run is due at once.
async fn write_all(conn: &mut Conn, now: Timestamp, write: &RunWrite) -> Result<bool, StoreError> {
    let run = &write.run;
    let due = write_run(conn, now, write).await?;
    if let Some(change) = &write.node {
        change_node(conn, now, run, change).await?;
        if let Some(left @ (NodeState::Retired | NodeState::Detached | NodeState::Deleted)) =
            change.state
        {
            revoke_credentials(conn, now, run.node_id, left).await?;
            topology::forget(conn, now, run.node_id).await?;
        }
    }
    if let Some(observation) = &write.observation {
        put_read(conn, run.node_id, observation).await?;
    }
    append_transitions(conn, run.id, &write.transitions).await?;
    write_attempts(conn, run.id, &write.attempts).await?;
    if write.revokes_tokens || !write.tokens.is_empty() && !write.keeps_tokens {
        token_rows::revoke_of_deployments(conn, now, run.id).await?;
        // The system that had them is gone, or about to be written over by the node's next one.
        // MAAS may give its address to another machine; the next deployment claims its own values.
        if write.revokes_tokens {
            topology::forget(conn, now, run.node_id).await?;
        }
        if write.revokes_tokens && run.state.host_values.is_none() {
            host_value::release(conn, run.node_id).await?;
        }
        let reason = if write.revokes_tokens {
            "its system was released"
        } else {
            "a new system is being deployed to the node"
        };
        let ending = CertificateEnding::Superseded;
        certificate_rows::end_all(conn, now, run.node_id, ending, reason).await?;
    }
    if !write.tokens.is_empty() {
        if run.state.visits(Step::ReleaseForRetry) > 0 {
            forget_earlier_system(conn, now, run.node_id, run.id).await?;
        }
        token_rows::insert(conn, now, &write.tokens).await?;
    }
    if let Some(end) = write.tokens_expire_at {
        token_rows::extend_expiry(conn, run.id, end).await?;
    }
    write_tasks(conn, now, run, &write.tasks).await?;
    let history = write.timeline.iter().map(|event| (run.node_id, event));
    timeline_rows::append(conn, history).await?;
    whole_node::end_with_run(conn, now, run).await?;
    if is_news_to_batch(write) {
        batch_rows::wake_of_node(conn, now, run.node_id).await?;
    }
    if let (RunStatus::Succeeded, Some(ended_at)) = (run.status, run.ended_at) {
        moment_rows::note(conn, run.id, RunMoment::Ended, ended_at).await?;
    }
    Ok(due)
}

impl Store {
    /// Hands out at most `limit` runs that are due at `now`, the longest due first, each leased
    /// until `lease_until`.
    ///
    /// # Errors
    /// [`StoreError::Unavailable`] or [`StoreError::Corrupt`].
    #[boxed]
    pub async fn claim(
        &self,
        now: Timestamp,
        lease_until: Timestamp,
        limit: usize,
    ) -> Result<Vec<LeasedRun>, StoreError> {
        let limit = i64::try_from(limit).unwrap_or(i64::MAX);
        let mut runs = self
            .write_grouped(GroupHints::default(), move |conn| {
                Box::pin(async move {
                    let rows = conn.all(CLAIM, args![now, lease_until, limit]).await?;
                    rows.iter().map(|row| read_run(&mut row.cols())).collect::<Result<Vec<_>, _>>()
                })
            })
            .await?;
        runs.sort_by_key(|run| (run.due_at, run.id));
        self.with_context(runs).await
    }

    /// Reads after the claim is committed, and outside it: what is newer than the claim has its
    /// own event, and the writer is not held up.
    async fn with_context(&self, runs: Vec<RunRecord>) -> Result<Vec<LeasedRun>, StoreError> {
        let mut conn = self.reader().await?;
        let mut nodes = std::collections::HashMap::new();
        for ids in padded(runs.iter().map(|run| run.node_id.0)) {
            let sql = with_list(CLAIMED_NODES, 1, ids.len());
            for row in conn.all(sql, ids.into_iter().map(Val::from).collect()).await? {
                let mut cols = row.cols();
                let node = read_node(&mut cols)?;
                let site_revision: i64 = cols.next()?;
                nodes.insert(node.id, (node, site_revision, read_observation(&mut cols)?));
            }
        }
        let mut reports = reports_of(&mut conn, runs.iter().map(|run| run.id)).await?;
        runs.into_iter()
            .map(|run| {
                let (node, site_revision, observation) = nodes
                    .remove(&run.node_id)
                    .ok_or_else(|| StoreError::corrupt("run", "its node is missing"))?;
                let reports = reports.remove(&run.id).unwrap_or_default();
                Ok(LeasedRun { run, node, site_revision, observation, reports })
            })
            .collect()
    }

    /// Writes what a worker decided about a run, and with it everything that belongs to it.
    ///
    /// # Errors
    /// [`StoreError::LeaseLost`] when the run was claimed by another worker, or given back;
    /// `machine_held` when the node is to be bound to a machine that another node holds;
    /// [`StoreError::Unavailable`] or [`StoreError::Corrupt`]. In each case nothing was written.
    #[boxed]
    pub async fn commit(&self, now: Timestamp, write: RunWrite) -> Result<(), StoreError> {
        let (node_id, tasks) = (write.run.node_id, !write.tasks.is_empty());
        let at_rest = is_news_to_batch(&write);
        let update = Some(run_update(now, &write)?);
        let hints = GroupHints { update, ..GroupHints::of_run(write.run.id.0) };
        let write = Arc::new(write);
        let due = self
            .write_grouped(hints, move |conn| {
                let write = Arc::clone(&write);
                Box::pin(async move { write_all(conn, now, &write).await })
            })
            .await?;
        if due {
            self.signal_due();
        }
        if at_rest {
            self.signal_batch();
        }
        if tasks {
            self.signal_task(node_id);
        }
        Ok(())
    }

    /// Extends a lease to `until`.
    ///
    /// # Errors
    /// [`StoreError::LeaseLost`]; [`StoreError::Unavailable`] or [`StoreError::Corrupt`].
    #[boxed]
    pub async fn renew_lease(
        &self,
        run_id: RunId,
        lease_token: i64,
        until: Timestamp,
    ) -> Result<(), StoreError> {
        self.write(move |conn| {
            Box::pin(async move {
                let renewed = conn
                    .execute(
                        "UPDATE run SET lease_until = $3, due_at = $3 \
                         WHERE id = $1 AND lease_token = $2 AND lease_until > 0",
                        args![run_id.0, lease_token, until],
                    )
                    .await?;
                if renewed == 0 { Err(StoreError::LeaseLost) } else { Ok(()) }
            })
        })
        .await
    }

    /// Notes an event of each run: due now, or as soon as its worker gives it back. A parked run
    /// only counts the event.
    ///
    /// # Errors
    /// [`StoreError::Unavailable`] or [`StoreError::Corrupt`].
    #[boxed]
    pub async fn wake(&self, now: Timestamp, run_ids: Vec<RunId>) -> Result<(), StoreError> {
        self.write(move |conn| Box::pin(async move { run::wake(conn, now, run_ids).await }))
            .await?;
        self.signal_due();
        Ok(())
    }

    /// When the next parked run looks again by itself; none: none does.
    ///
    /// # Errors
    /// [`StoreError::Unavailable`] or [`StoreError::Corrupt`].
    #[boxed]
    pub async fn next_recheck(&self) -> Result<Option<Timestamp>, StoreError> {
        let row = self
            .reader()
            .await?
            .first(
                "SELECT due_at FROM run WHERE status IN ('running', 'waiting', 'parked') \
                 AND status = 'parked' AND due_at < $1 ORDER BY due_at LIMIT 1",
                args![Timestamp::NEVER],
            )
            .await?;
        row.map(|row| row.cols().at()).transpose()
    }

    /// When the next run is due, or the next lease ends; none: no run is open and moving.
    ///
    /// # Errors
    /// [`StoreError::Unavailable`] or [`StoreError::Corrupt`].
    #[boxed]
    pub async fn next_due(&self) -> Result<Option<Timestamp>, StoreError> {
        let row = self
            .reader()
            .await?
            .first(
                "SELECT due_at FROM run WHERE status IN ('running', 'waiting', 'parked') \
                 AND status <> 'parked' ORDER BY due_at LIMIT 1",
                args![],
            )
            .await?;
        row.map(|row| row.cols().at()).transpose()
    }
}
