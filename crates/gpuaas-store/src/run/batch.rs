//! Batches: their rows, and the one write that moves them.
//!
//! A batch row keeps what cannot be read from elsewhere: what was asked, the profile revision in
//! force, and why it stopped. How far it is follows from its members' runs, each time.
//!
//! Its nodes are made with it, so that their names and BMC addresses are taken from then on; their
//! runs are made when their turn comes. `wake_seq` counts what happened to a batch since it was
//! made. [`Store::advance_batch`] names the count that its decision was made on and does nothing
//! when it grew: two control planes that decide at the same time cannot both begin a member, and a
//! decision on rows that have changed is made again. What wakes a batch is written in the
//! transaction of the event itself, so a process that dies right after it leaves the batch due.

use async_recursion::async_recursion as boxed;
use std::collections::HashMap;

use gpuaas_core::batch::{MemberSnapshot, member_state};
use gpuaas_core::record::ReportKind;
use gpuaas_types::api::{Park, TimelineEvent, Wait};
use gpuaas_types::batch::{BatchAccepted, BatchSpec, BatchStop};
use gpuaas_types::codes::ProblemCode;
use gpuaas_types::filter::{FilterList, ListFilter};
use gpuaas_types::{
    BatchId, MemberState, NodeId, NodeState, ProfileId, RunId, RunStatus, SiteId, Step, Timestamp,
};

use crate::agent::report_rows::append_reports;
use crate::audit::rows::{self as audit, IdempotencyKey, NewAuditEntry};
use crate::database::list_filter::with_filter;
use crate::database::page::Page;
use crate::database::{Cols, Conn, RequestOrigin, Val, args, padded, with_list};
use crate::error::StoreError;
use crate::identity::secret::rows::put_secret;
use crate::node::rows::{BMC_PASSWORD, NewNode, insert_node};
use crate::run::rows::{NewRun, insert_run};
use crate::run::timeline_rows;
use crate::store::Store;

/// A batch to be, with its nodes in the order in which they begin.
#[derive(Debug, Clone)]
pub struct NewBatch {
    /// Identifier of the batch.
    pub id: BatchId,
    /// Specification from the manifest, without passwords.
    pub spec: BatchSpec,
    /// Site of all its machines.
    pub site_id: SiteId,
    /// Profile of all its machines.
    pub profile_id: ProfileId,
    /// Revision of the profile that machines get which begin now.
    pub profile_revision: i64,
    /// Its nodes, each with its first line of history.
    pub nodes: Vec<(NewNode, TimelineEvent)>,
    /// The answer to keep under the key.
    pub accepted: BatchAccepted,
    /// Entry for the audit log.
    pub audit: Option<NewAuditEntry>,
    /// The request may be repeated under this key.
    pub idempotency: Option<IdempotencyKey>,
}

/// A batch as the database has it.
#[derive(Debug, Clone, PartialEq)]
pub struct StoredBatch {
    /// Identifier of the batch.
    pub id: BatchId,
    /// Specification from the manifest, without passwords.
    pub spec: BatchSpec,
    /// Site of all its machines.
    pub site_id: SiteId,
    /// Profile of all its machines.
    pub profile_id: ProfileId,
    /// Revision of the profile that machines get which begin now.
    pub profile_revision: i64,
    /// Why no further machine begins.
    pub stop: Option<BatchStop>,
    /// Grows with every event that concerns the batch, and with every step of its own.
    pub wake_seq: i64,
    /// Moment at which it is due.
    pub due_at: Timestamp,
    /// Moment at which it was made.
    pub created_at: Timestamp,
    /// Moment of its last change.
    pub updated_at: Timestamp,
    /// Moment at which its last machine ended; none: it is open.
    pub ended_at: Option<Timestamp>,
    /// The span that asked for it, as `traceparent` has it; none: it was not traced.
    pub traceparent: Option<String>,
}

/// The onboarding of a member.
#[derive(Debug, Clone, PartialEq)]
pub struct MemberRun {
    /// Identifier of the run.
    pub id: RunId,
    /// Step that the run is in.
    pub step: Step,
    /// Status of the run.
    pub status: RunStatus,
    /// Profile revision that it pinned.
    pub profile_revision: i64,
    /// What the run waits for; none: for nothing.
    pub wait: Option<Wait>,
    /// Why the run parked; none: it is not parked.
    pub park: Option<Park>,
    /// Moment at which the run was made.
    pub created_at: Timestamp,
    /// Moment at which the run ended; none: it is open.
    pub ended_at: Option<Timestamp>,
}

/// A stored member of a batch.
#[derive(Debug, Clone, PartialEq)]
pub struct StoredMember {
    /// Index in the manifest, from 0.
    pub position: i64,
    /// Node of the member.
    pub node_id: NodeId,
    /// Hostname of the node.
    pub hostname: String,
    /// State of the node.
    pub node_state: NodeState,
    /// It was parked or failed at a resume of the batch.
    pub written_off: bool,
    /// The node has a run open, of whatever kind.
    pub busy: bool,
    /// Its onboarding run; none: its turn has not come.
    pub run: Option<MemberRun>,
}

impl StoredMember {
    /// State of the member, from its run and its node.
    #[must_use]
    pub fn state(&self) -> MemberState {
        member_state(self.run.as_ref().map(|run| run.status), self.node_state, self.busy)
    }

    /// The member as `decide_batch` takes it.
    #[must_use]
    pub fn member(&self) -> MemberSnapshot {
        MemberSnapshot {
            state: self.state(),
            written_off: self.written_off,
            profile_revision: self.run.as_ref().map(|run| run.profile_revision),
            started_at: self.run.as_ref().map(|run| run.created_at),
            ended_at: self.run.as_ref().and_then(|run| run.ended_at),
        }
    }
}

/// A member whose run is to be made.
#[derive(Debug, Clone)]
pub struct MemberStart {
    /// Index in the manifest, from 0.
    pub position: i64,
    /// Node of the member.
    pub node_id: NodeId,
    /// Onboarding run to make.
    pub run: NewRun,
    /// What the run goes by from its beginning.
    pub reports: Vec<ReportKind>,
    /// Lines for the timeline of the node.
    pub history: Vec<TimelineEvent>,
}

/// A step of a batch: all of it is kept, or nothing.
#[derive(Debug, Clone)]
pub struct BatchAdvance {
    /// The batch as it was read; the step is dropped when it has changed since.
    pub batch: StoredBatch,
    /// Members whose runs are made now.
    pub begin: Vec<MemberStart>,
    /// Reason for which the batch stops now; none: it goes on.
    pub stop: Option<BatchStop>,
    /// Moment at which the batch is due again.
    pub due_at: Timestamp,
    /// Whether the last machine has ended.
    pub ended: bool,
    /// Entry for the audit log.
    pub audit: Option<NewAuditEntry>,
}

/// A command of an operator to a batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OperatorBatchCommand {
    /// No further machine begins.
    Stop,
    /// Go on. What is parked or failed is written off.
    Resume {
        /// Revision of the profile that machines get which begin from now on.
        profile_revision: i64,
    },
}

macro_rules! batch_select {
    ($rest:literal) => {
        concat!(
            "SELECT id, spec, site_id, profile_id, profile_revision, stop, wake_seq, due_at, \
             created_at, updated_at, ended_at, traceparent FROM batch ",
            $rest
        )
    };
}

const MEMBERS: &str = "SELECT batch_member.batch_id, batch_member.position, node.id, \
     node.hostname, node.state, \
     batch_member.written_off, latest.status, run.id, run.step, run.status, run.profile_revision, \
     run.wait, run.park, run.created_at, run.ended_at FROM batch_member \
     JOIN node ON node.id = batch_member.node_id \
     LEFT JOIN run ON run.id = batch_member.run_id \
     LEFT JOIN run AS latest ON latest.id = node.run_id \
     WHERE batch_member.batch_id IN ({LIST}) ORDER BY batch_member.batch_id, batch_member.position";

fn read_batch(mut cols: Cols<'_>) -> Result<StoredBatch, StoreError> {
    Ok(StoredBatch {
        id: cols.id(BatchId)?,
        spec: cols.json()?,
        site_id: cols.id(SiteId)?,
        profile_id: cols.id(ProfileId)?,
        profile_revision: cols.next()?,
        stop: cols.opt_json()?,
        wake_seq: cols.next()?,
        due_at: cols.at()?,
        created_at: cols.at()?,
        updated_at: cols.at()?,
        ended_at: cols.opt_at()?,
        traceparent: cols.next()?,
    })
}

fn read_member(mut cols: Cols<'_>) -> Result<StoredMember, StoreError> {
    Ok(StoredMember {
        position: cols.next()?,
        node_id: cols.id(NodeId)?,
        hostname: cols.next()?,
        node_state: cols.enum_str()?,
        written_off: cols.next()?,
        busy: cols.opt_enum_str::<RunStatus>()?.is_some_and(RunStatus::is_open),
        run: match cols.opt_id(RunId)? {
            None => None,
            Some(id) => Some(MemberRun {
                id,
                step: cols.enum_str()?,
                status: cols.enum_str()?,
                profile_revision: cols.next()?,
                wait: cols.opt_json()?,
                park: cols.opt_json()?,
                created_at: cols.at()?,
                ended_at: cols.opt_at()?,
            }),
        },
    })
}

async fn create(
    conn: &mut Conn,
    now: Timestamp,
    request: &NewBatch,
    sealed: Vec<Option<Vec<u8>>>,
) -> Result<BatchAccepted, StoreError> {
    if let Some(key) = &request.idempotency
        && !audit::insert_response(conn, now, key, &request.accepted).await?
    {
        let earlier = audit::read_response(conn, key).await?;
        return earlier.ok_or_else(|| StoreError::corrupt("idempotency record", "row is missing"));
    }
    let made = conn
        .execute(
            "INSERT INTO batch (id, name, site_id, profile_id, profile_revision, spec, wake_seq, \
             due_at, created_at, updated_at, traceparent) \
             VALUES ($1, $2, $3, $4, $5, $6, 0, $7, $7, $7, $8) \
             ON CONFLICT DO NOTHING",
            vec![
                request.id.0.into(),
                (&request.spec.name).into(),
                request.site_id.0.into(),
                request.profile_id.0.into(),
                request.profile_revision.into(),
                Val::json(&request.spec)?,
                now.into(),
                conn.origin().trace.map(|span| span.to_string()).as_deref().into(),
            ],
        )
        .await?;
    if made == 0 {
        let detail = format!("a batch named {} already exists", request.spec.name);
        return Err(StoreError::conflict(ProblemCode::BatchNameTaken, detail));
    }
    let mut members = Vec::new();
    // In one order everywhere, so that two batches with the same machines cannot wait for each
    // other.
    let mut nodes: Vec<_> = (0i64..).zip(request.nodes.iter().zip(sealed)).collect();
    nodes.sort_by(|(_, ((one, _), _)), (_, ((other, _), _))| one.hostname.cmp(&other.hostname));
    for (position, ((node, _), sealed)) in nodes {
        insert_node(conn, now, node, None).await?;
        if let Some(sealed) = sealed {
            put_secret(conn, node.id.0, BMC_PASSWORD, sealed).await?;
        }
        members.push(args![request.id.0, position, node.id.0, false]);
    }
    let head = "INSERT INTO batch_member (batch_id, position, node_id, written_off)";
    conn.insert_rows(head, members).await?;
    timeline_rows::append(conn, request.nodes.iter().map(|(node, line)| (node.id, line))).await?;
    if let Some(entry) = &request.audit {
        audit::append(conn, now, entry).await?;
    }
    Ok(request.accepted.clone())
}

fn batch_moved(detail: String) -> StoreError {
    StoreError::conflict(ProblemCode::BatchMoved, detail)
}

async fn start_member(
    conn: &mut Conn,
    now: Timestamp,
    batch: &StoredBatch,
    member: &MemberStart,
) -> Result<(), StoreError> {
    let MemberStart { position, node_id, run, reports, .. } = member;
    let site_and_profile = (batch.site_id, batch.profile_id);
    // The run is of the request that asked for the batch.
    let trace = batch.traceparent.as_deref().and_then(|text| text.parse().ok());
    conn.set_origin(RequestOrigin { trace, ..RequestOrigin::default() });
    match insert_run(conn, now, *node_id, site_and_profile, run).await {
        Err(StoreError::Conflict { detail, .. }) => return Err(batch_moved(detail)),
        other => other?,
    }
    let taken = conn
        .execute(
            "UPDATE batch_member SET run_id = $3 \
             WHERE batch_id = $1 AND position = $2 AND node_id = $4 AND run_id IS NULL",
            args![batch.id.0, *position, run.id.0, node_id.0],
        )
        .await?;
    let free = conn
        .execute(
            "UPDATE node SET run_id = $2, revision = revision + 1, updated_at = $3 \
             WHERE id = $1 AND state = 'registered'",
            args![node_id.0, run.id.0, now],
        )
        .await?;
    if taken != 1 || free != 1 {
        return Err(batch_moved(format!(
            "member {position} of batch {} is no longer waiting",
            batch.id
        )));
    }
    for report in reports {
        append_reports(conn, now, run.id, report).await?;
    }
    Ok(())
}

async fn advance(conn: &mut Conn, now: Timestamp, step: &BatchAdvance) -> Result<(), StoreError> {
    let BatchAdvance { batch, stop, due_at, ended, .. } = step;
    // Runs and nodes before the batch, in the order in which whoever ends a run locks them.
    for member in &step.begin {
        start_member(conn, now, batch, member).await?;
    }
    let changed = conn
        .execute(
            "UPDATE batch SET wake_seq = wake_seq + 1, stop = $3, due_at = $4, updated_at = $5, \
             ended_at = $6 WHERE id = $1 AND wake_seq = $2 AND ended_at IS NULL",
            vec![
                batch.id.0.into(),
                batch.wake_seq.into(),
                Val::opt_json(stop.as_ref().or(batch.stop.as_ref()))?,
                (*due_at).into(),
                now.into(),
                ended.then_some(now).into(),
            ],
        )
        .await?;
    if changed == 0 {
        return Err(batch_moved(format!("batch {} has changed", batch.id)));
    }
    let mut lines = Vec::new();
    for member in &step.begin {
        for line in &member.history {
            lines.push((member.node_id, line));
        }
    }
    timeline_rows::append(conn, lines).await?;
    match &step.audit {
        Some(entry) => audit::append(conn, now, entry).await,
        None => Ok(()),
    }
}

async fn apply_command(
    conn: &mut Conn,
    now: Timestamp,
    id: BatchId,
    command: OperatorBatchCommand,
    entry: &NewAuditEntry,
) -> Result<(), StoreError> {
    let batch = conn.first(batch_select!("WHERE id = $1"), args![id.0]).await?;
    let batch = read_batch(batch.ok_or_else(|| StoreError::not_found("batch", id))?.cols())?;
    let name = &batch.spec.name;
    let revision = match (command, &batch.stop) {
        _ if batch.ended_at.is_some() => {
            return Err(StoreError::conflict(
                ProblemCode::BatchOver,
                format!("batch {name} is already done"),
            ));
        }
        (OperatorBatchCommand::Resume { .. }, None) => {
            let detail = format!("batch {name} is not stopped");
            return Err(StoreError::conflict(ProblemCode::BatchNotStopped, detail));
        }
        (OperatorBatchCommand::Stop, Some(stop)) => {
            let detail = format!("batch {name} is already stopped: {}", stop.text);
            return Err(StoreError::conflict(ProblemCode::BatchStopped, detail));
        }
        (OperatorBatchCommand::Resume { profile_revision }, Some(_)) => profile_revision,
        (OperatorBatchCommand::Stop, None) => batch.profile_revision,
    };
    let stop = (command == OperatorBatchCommand::Stop).then(|| BatchStop {
        code: "stopped_by_operator".to_owned(),
        text: format!(
            "{} stopped it: {}",
            entry.actor,
            entry.detail["reason"].as_str().unwrap_or("no reason given")
        ),
        at: now,
    });
    conn.execute(
        "UPDATE batch SET stop = $2, profile_revision = $3, wake_seq = wake_seq + 1, due_at = $4, \
         updated_at = $4 WHERE id = $1",
        vec![id.0.into(), Val::opt_json(stop.as_ref())?, revision.into(), now.into()],
    )
    .await?;
    if stop.is_none() {
        conn.execute(
            "UPDATE batch_member SET written_off = TRUE WHERE batch_id = $1 AND run_id IN \
             (SELECT id FROM run WHERE status IN ('parked', 'failed', 'cancelled'))",
            args![id.0],
        )
        .await?;
    }
    audit::append(conn, now, entry).await
}

impl Store {
    /// Makes a batch and its nodes; the batch is due at once. Answers what was made, now or by the
    /// earlier request with the same key.
    ///
    /// # Errors
    /// `batch_name_taken`; `hostname_taken` or `bmc_address_taken`, each naming the node that is
    /// there; `idempotency_key_reused`; [`StoreError::Unavailable`] or [`StoreError::Corrupt`]. In
    /// each case nothing was made.
    #[boxed]
    pub async fn create_batch(
        &self,
        now: Timestamp,
        request: NewBatch,
    ) -> Result<BatchAccepted, StoreError> {
        let seal = |node: &NewNode| {
            let password = node.bmc_password.as_ref();
            password.map(|secret| self.seal(node.id.0, BMC_PASSWORD, secret)).transpose()
        };
        let sealed = request.nodes.iter().map(|(node, _)| seal(node)).collect::<Result<_, _>>()?;
        let made = self
            .write(move |conn| Box::pin(async move { create(conn, now, &request, sealed).await }))
            .await?;
        self.signal_batch();
        Ok(made)
    }

    /// A batch by identifier or name.
    ///
    /// # Errors
    /// [`StoreError::NotFound`]; [`StoreError::Unavailable`] or [`StoreError::Corrupt`].
    #[boxed]
    pub async fn batch(&self, key: &str) -> Result<StoredBatch, StoreError> {
        let id = uuid::Uuid::parse_str(key).ok();
        let sql = batch_select!("WHERE id = $1 OR name = $2");
        let row = self.reader().await?.first(sql, args![id, key]).await?;
        read_batch(row.ok_or_else(|| StoreError::not_found("batch", key))?.cols())
    }

    /// A page of the batches of a site, or of all of them, that a filter lets pass, newest first.
    ///
    /// # Errors
    /// [`StoreError::Unavailable`] or [`StoreError::Corrupt`].
    #[boxed]
    pub async fn batches(
        &self,
        site: Option<SiteId>,
        filter: Option<&ListFilter>,
        page: Page<BatchId>,
    ) -> Result<Vec<StoredBatch>, StoreError> {
        let sql = batch_select!(
            "WHERE ($1 IS NULL OR (created_at, id) < (SELECT after.created_at, after.id \
             FROM batch AS after WHERE after.id = $1)) AND site_id = COALESCE($3, site_id) {FILTER} \
             ORDER BY created_at DESC, id DESC LIMIT $2"
        );
        let site = site.map(|id| id.0);
        let mut values = args![page.after.map(|id| id.0), i64::from(page.limit), site];
        let sql = with_filter(sql, FilterList::Batches, filter, &mut values)?;
        let rows = self.reader().await?.all(sql, values).await?;
        rows.iter().map(|row| read_batch(row.cols())).collect()
    }

    /// The members of a batch, in the order of the manifest.
    ///
    /// # Errors
    /// [`StoreError::Unavailable`] or [`StoreError::Corrupt`].
    #[boxed]
    pub async fn batch_members(&self, id: BatchId) -> Result<Vec<StoredMember>, StoreError> {
        Ok(self.members_of_batches([id]).await?.remove(&id).unwrap_or_default())
    }

    /// The members of each batch, in the order of its manifest. A batch that is not there has
    /// none.
    ///
    /// # Errors
    /// [`StoreError::Unavailable`] or [`StoreError::Corrupt`].
    pub async fn members_of_batches(
        &self,
        ids: impl IntoIterator<Item = BatchId>,
    ) -> Result<HashMap<BatchId, Vec<StoredMember>>, StoreError> {
        let mut members: HashMap<BatchId, Vec<StoredMember>> = HashMap::new();
        let mut conn = self.reader().await?;
        for ids in padded(ids.into_iter().map(|id| id.0)) {
            let sql = with_list(MEMBERS, 1, ids.len());
            for row in conn.all(sql, ids.into_iter().map(Val::from).collect()).await? {
                let mut cols = row.cols();
                members.entry(cols.id(BatchId)?).or_default().push(read_member(cols)?);
            }
        }
        Ok(members)
    }

    /// Batches that are due, the longest due first.
    ///
    /// # Errors
    /// [`StoreError::Unavailable`] or [`StoreError::Corrupt`].
    #[boxed]
    pub async fn due_batches(&self, now: Timestamp) -> Result<Vec<StoredBatch>, StoreError> {
        let sql = batch_select!("WHERE ended_at IS NULL AND due_at <= $1 ORDER BY due_at, id");
        let rows = self.reader().await?.all(sql, args![now]).await?;
        rows.iter().map(|row| read_batch(row.cols())).collect()
    }

    /// Writes a step of a batch. Answers `false`, and writes nothing, when the batch or one of the
    /// members to begin has changed since it was read.
    ///
    /// # Errors
    /// [`StoreError::Unavailable`] or [`StoreError::Corrupt`].
    #[boxed]
    pub async fn advance_batch(
        &self,
        now: Timestamp,
        step: BatchAdvance,
    ) -> Result<bool, StoreError> {
        let kept =
            self.write(move |conn| Box::pin(async move { advance(conn, now, &step).await })).await;
        match kept {
            Ok(()) => {
                self.signal_due();
                Ok(true)
            }
            Err(StoreError::Conflict { code: ProblemCode::BatchMoved, .. }) => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Tells a batch what an operator wants. `entry` is the audit of it; its detail holds the
    /// `reason`.
    ///
    /// # Errors
    /// [`StoreError::NotFound`]; `batch_over`; `batch_not_stopped` for a resume; `batch_stopped`
    /// for a stop; [`StoreError::Unavailable`] or [`StoreError::Corrupt`]. In each case nothing was
    /// written.
    #[boxed]
    pub async fn apply_batch_command(
        &self,
        now: Timestamp,
        id: BatchId,
        command: OperatorBatchCommand,
        entry: NewAuditEntry,
    ) -> Result<(), StoreError> {
        self.write(move |conn| {
            Box::pin(async move { apply_command(conn, now, id, command, &entry).await })
        })
        .await?;
        self.signal_batch();
        Ok(())
    }
}
