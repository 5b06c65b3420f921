//! Nodes: onboarding them, finding them, listing them.

use gpuaas_core::memory::Memory;
use gpuaas_core::record::{NodeHardware, NodeRecord};
use gpuaas_types::api::{OnboardAccepted, Park, TimelineEvent, Wait};
use gpuaas_types::{
    NodeId, NodeState, ProfileId, RunId, RunKind, RunStatus, SiteId, Step, Timestamp,
};

use crate::audit::{self, IdempotencyKey, NewAudit};
use crate::db::{Cols, Conn, Val, args};
use crate::error::StoreError;
use crate::rows::{self, node_columns, node_from};
use crate::run::{Transition, append_transitions};
use crate::seal::Secret;
use crate::site::put_secret;
use crate::{Store, batch, timeline};

pub(crate) const BMC_PASSWORD: &str = "bmc_password";

/// A node to be.
#[derive(Debug, Clone)]
pub struct NewNode {
    /// Identifier.
    pub id: NodeId,
    /// Its site.
    pub site_id: SiteId,
    /// Its profile.
    pub profile_id: ProfileId,
    /// Short hostname.
    pub hostname: String,
    /// What the operator says of the hardware.
    pub hardware: NodeHardware,
    /// Sealed at once.
    pub bmc_password: Option<Secret>,
}

/// A run to be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewRun {
    /// Identifier.
    pub id: RunId,
    /// What it is for.
    pub kind: RunKind,
    /// Its first step.
    pub step: Step,
    /// Revision of the node's profile that it pins.
    pub profile_revision: i64,
    /// Why it starts, one sentence.
    pub cause: String,
}

/// A node and its first run, made at once.
#[derive(Debug, Clone)]
pub struct Onboard {
    /// The node.
    pub node: NewNode,
    /// The run.
    pub run: NewRun,
    /// History.
    pub timeline: Vec<TimelineEvent>,
    /// Who asked.
    pub audit: Option<NewAudit>,
    /// The request may be repeated under this key.
    pub idempotency: Option<IdempotencyKey>,
}

/// A run to be on a node that exists.
#[derive(Debug, Clone)]
pub struct StartRun {
    /// The node.
    pub node_id: NodeId,
    /// The run.
    pub run: NewRun,
    /// States of the node in which it may begin.
    pub from: &'static [NodeState],
    /// History.
    pub history: Vec<TimelineEvent>,
    /// Who asked.
    pub audit: Option<NewAudit>,
}

/// Answer to [`Store::onboard`].
#[derive(Debug, Clone, PartialEq)]
pub struct Onboarded {
    /// What was made, now or by the earlier request with the same key.
    pub accepted: OnboardAccepted,
    /// It was made by an earlier request.
    pub replayed: bool,
}

/// Which nodes to list; what is left empty does not matter.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct NodeFilter {
    /// Of this site.
    pub site_id: Option<SiteId>,
    /// In this state.
    pub state: Option<NodeState>,
    /// Whose latest run stands like this.
    pub run_status: Option<RunStatus>,
    /// Only nodes whose latest run is open.
    pub open: bool,
}

/// A run without what it remembers.
#[derive(Debug, Clone, PartialEq)]
pub struct RunBrief {
    /// Identifier.
    pub id: RunId,
    /// What it is for.
    pub kind: RunKind,
    /// Where it is.
    pub step: Step,
    /// How it stands.
    pub status: RunStatus,
    /// What it waits for.
    pub wait: Option<Wait>,
    /// Why it stopped.
    pub park: Option<Park>,
    /// When it was asked for.
    pub created_at: Timestamp,
    /// When the current step began.
    pub step_since: Timestamp,
    /// When it ended.
    pub ended_at: Option<Timestamp>,
}

/// A node with the names and the neighbours that a view shows.
#[derive(Debug, Clone, PartialEq)]
pub struct ListedNode {
    /// The node.
    pub node: NodeRecord,
    /// Name of its site.
    pub site: String,
    /// Name of its profile.
    pub profile: String,
    /// Name of the batch that it was made by.
    pub batch: Option<String>,
    /// The open run, or the latest one.
    pub run: Option<RunBrief>,
    /// Status number of its machine in MAAS.
    pub maas_status: Option<i64>,
    /// When MAAS was asked for that.
    pub maas_status_at: Option<Timestamp>,
}

macro_rules! listed_select {
    ($rest:literal) => {
        concat!(
            "SELECT ",
            node_columns!(),
            ", site.name, profile.name, observation.status, observation.status_at, batch.name, \
             run.id, run.kind, run.step, run.status, run.wait, run.park, run.created_at, \
             run.step_since, run.ended_at FROM ",
            node_from!(),
            " JOIN site ON site.id = node.site_id JOIN profile ON profile.id = node.profile_id \
             LEFT JOIN run ON run.id = node.run_id \
             LEFT JOIN observation ON observation.node_id = node.id \
             LEFT JOIN batch_member ON batch_member.node_id = node.id \
             LEFT JOIN batch ON batch.id = batch_member.batch_id ",
            $rest
        )
    };
}

const FIND: &str = concat!(
    "SELECT ",
    node_columns!(),
    " FROM ",
    node_from!(),
    " WHERE node.id = $2 OR node.hostname = $1 OR node.system_id = $1 OR node.bmc_address = $1 \
     OR node.id IN (SELECT node_id FROM node_mac WHERE mac_address = $3) \
     OR node.id IN (SELECT node_id FROM run WHERE id = $2) \
     OR node.id IN (SELECT host.id FROM roce_assignment JOIN node AS host \
     ON host.site_id = roce_assignment.site_id AND host.hostname = roce_assignment.hostname \
     WHERE roce_assignment.ip_address = $1) \
     ORDER BY CASE WHEN node.state IN ('retired', 'detached', 'deleted') THEN 1 ELSE 0 END, \
     node.created_at DESC"
);

fn listed(mut cols: Cols<'_>) -> Result<ListedNode, StoreError> {
    Ok(ListedNode {
        node: rows::node(&mut cols)?,
        site: cols.next()?,
        profile: cols.next()?,
        maas_status: cols.next()?,
        maas_status_at: cols.opt_at()?,
        batch: cols.next()?,
        run: match cols.opt_id(RunId)? {
            None => None,
            Some(id) => Some(RunBrief {
                id,
                kind: cols.word()?,
                step: cols.word()?,
                status: cols.word()?,
                wait: cols.opt_json()?,
                park: cols.opt_json()?,
                created_at: cols.at()?,
                step_since: cols.at()?,
                ended_at: cols.opt_at()?,
            }),
        },
    })
}

/// Names the node that is in the way of a new one.
async fn in_the_way(conn: &mut Conn, node: &NewNode) -> Result<StoreError, StoreError> {
    const LIVE: &str = "SELECT id, state FROM node WHERE site_id = $1 AND hostname = $2 \
         AND state NOT IN ('retired', 'detached', 'deleted')";
    const BMC: &str = "SELECT hostname, id FROM node WHERE site_id = $1 AND bmc_address = $2 \
         AND state NOT IN ('retired', 'detached', 'deleted')";
    let hostname = &node.hostname;
    if let Some(row) = conn.first(LIVE, args![node.site_id.0, hostname]).await? {
        let mut cols = row.cols();
        let (id, state) = (cols.id(NodeId)?, cols.word::<NodeState>()?);
        let detail = format!("node {hostname} exists at this site as {id} and is {state}");
        return Ok(StoreError::conflict("hostname_taken", detail));
    }
    let address = node.hardware.bmc_address.as_deref();
    if let Some(row) = conn.first(BMC, args![node.site_id.0, address]).await? {
        let mut cols = row.cols();
        let (holder, id): (String, _) = (cols.next()?, cols.id(NodeId)?);
        let address = address.unwrap_or_default();
        let detail = format!("BMC address {address} belongs to node {holder} ({id})");
        return Ok(StoreError::conflict("bmc_address_taken", detail));
    }
    Ok(StoreError::conflict("already_exists", format!("node {} exists", node.id)))
}

pub(crate) async fn insert_node(
    conn: &mut Conn,
    now: Timestamp,
    node: &NewNode,
    run_id: Option<RunId>,
) -> Result<(), StoreError> {
    let made = conn
        .execute(
            "INSERT INTO node (id, site_id, profile_id, hostname, state, bmc_address, hardware, \
             run_id, revision, created_at, updated_at) \
             VALUES ($1, $2, $3, $4, $5, $6, $7, $8, 1, $9, $9) ON CONFLICT DO NOTHING",
            vec![
                node.id.0.into(),
                node.site_id.0.into(),
                node.profile_id.0.into(),
                (&node.hostname).into(),
                NodeState::Registered.as_str().into(),
                node.hardware.bmc_address.as_deref().into(),
                Val::json(&node.hardware)?,
                run_id.map(|id| id.0).into(),
                now.into(),
            ],
        )
        .await?;
    if made == 0 {
        return Err(in_the_way(conn, node).await?);
    }
    let macs = node.hardware.mac_addresses.iter().collect::<std::collections::BTreeSet<_>>();
    let rows = macs.into_iter().map(|mac| args![&mac.to_ascii_lowercase(), node.id.0]).collect();
    conn.insert_rows("INSERT INTO node_mac (mac_address, node_id)", rows).await
}

pub(crate) async fn insert_run(
    conn: &mut Conn,
    now: Timestamp,
    node_id: NodeId,
    place: (SiteId, ProfileId),
    run: &NewRun,
) -> Result<(), StoreError> {
    let made = conn
        .execute(
            "INSERT INTO run (id, node_id, site_id, kind, step, status, profile_id, \
             profile_revision, memory, created_at, step_since, due_at, was_due_at, wake_seq, \
             handled_seq, lease_token, lease_until) VALUES ($1, $2, $3, $4, $5, 'running', $6, \
             $7, $8, $9, $9, $9, $9, 0, 0, 0, 0) ON CONFLICT DO NOTHING",
            vec![
                run.id.0.into(),
                node_id.0.into(),
                place.0.0.into(),
                run.kind.as_str().into(),
                run.step.as_str().into(),
                place.1.0.into(),
                run.profile_revision.into(),
                Val::json(&Memory::default())?,
                now.into(),
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
            return Err(StoreError::conflict("already_exists", format!("run {} exists", run.id)));
        };
        let mut cols = open.cols();
        let (id, step) = (cols.id(RunId)?, cols.word::<Step>()?);
        let detail = format!("run {id} of the node is open, at {step}");
        return Err(StoreError::conflict("node_has_open_run", detail));
    }
    let first = Transition { step: run.step, at: now, cause: run.cause.clone() };
    append_transitions(conn, run.id, &[first]).await
}

async fn onboard(
    conn: &mut Conn,
    now: Timestamp,
    asked: &Onboard,
    sealed: Option<Vec<u8>>,
) -> Result<Onboarded, StoreError> {
    let Onboard { node, run, .. } = asked;
    let accepted = OnboardAccepted { node_id: node.id, run_id: run.id };
    if let Some(key) = &asked.idempotency
        && !audit::keep(conn, now, key, &accepted).await?
    {
        let earlier = audit::replay(conn, key).await?;
        let accepted =
            earlier.ok_or_else(|| StoreError::corrupt("idempotency record", "it is gone"))?;
        return Ok(Onboarded { accepted, replayed: true });
    }
    insert_node(conn, now, node, Some(run.id)).await?;
    insert_run(conn, now, node.id, (node.site_id, node.profile_id), run).await?;
    if let Some(sealed) = sealed {
        put_secret(conn, node.id.0, BMC_PASSWORD, sealed).await?;
    }
    timeline::append(conn, asked.timeline.iter().map(|event| (node.id, event))).await?;
    if let Some(entry) = &asked.audit {
        audit::append(conn, now, entry).await?;
    }
    Ok(Onboarded { accepted, replayed: false })
}

async fn start_run(conn: &mut Conn, now: Timestamp, asked: &StartRun) -> Result<(), StoreError> {
    let StartRun { node_id, run, from, history, audit } = asked;
    let row = conn
        .first("SELECT site_id, profile_id, state FROM node WHERE id = $1", args![node_id.0])
        .await?
        .ok_or_else(|| StoreError::not_found("node", *node_id))?;
    let mut cols = row.cols();
    let place = (cols.id(SiteId)?, cols.id(ProfileId)?);
    let state: NodeState = cols.word()?;
    insert_run(conn, now, *node_id, place, run).await?;
    if !from.contains(&state) {
        let detail = format!("the node is {state}, and a {} needs another state", run.kind);
        return Err(StoreError::conflict("node_state_forbids", detail));
    }
    conn.execute(
        "UPDATE node SET run_id = $2, revision = revision + 1, updated_at = $3 WHERE id = $1",
        args![node_id.0, run.id.0, now],
    )
    .await?;
    timeline::append(conn, history.iter().map(|event| (*node_id, event))).await?;
    batch::wake_of_node(conn, now, *node_id).await?;
    match audit {
        Some(entry) => audit::append(conn, now, entry).await,
        None => Ok(()),
    }
}

impl Store {
    /// Makes a node and its first run, due at once. The hostname and the BMC address must be
    /// free at the site; nodes that left it do not count.
    ///
    /// # Errors
    /// `hostname_taken` or `bmc_address_taken`, each naming the node that is there;
    /// `idempotency_key_reused`; the database's. In each case nothing was made.
    pub async fn onboard(&self, now: Timestamp, asked: Onboard) -> Result<Onboarded, StoreError> {
        let sealed = asked.node.bmc_password.as_ref();
        let sealed = sealed.map(|secret| self.seal(asked.node.id.0, BMC_PASSWORD, secret));
        let sealed = sealed.transpose()?;
        let made = self
            .write(move |conn| Box::pin(async move { onboard(conn, now, &asked, sealed).await }))
            .await?;
        self.signal_due();
        Ok(made)
    }

    /// Starts a run on a node that has none open. It pins the given revision of the node's
    /// profile.
    ///
    /// # Errors
    /// [`StoreError::NotFound`], `node_has_open_run` (which names it), or the database's.
    pub async fn start_run(
        &self,
        now: Timestamp,
        node_id: NodeId,
        run: NewRun,
        history: Vec<TimelineEvent>,
    ) -> Result<(), StoreError> {
        let asked = StartRun { node_id, run, from: NodeState::ALL, history, audit: None };
        self.start_run_from(now, asked).await
    }

    /// The same, where the node must be in one of some states.
    ///
    /// # Errors
    /// Those of [`Store::start_run`]; `node_state_forbids` when it is in another state.
    pub async fn start_run_from(&self, now: Timestamp, asked: StartRun) -> Result<(), StoreError> {
        self.write(move |conn| Box::pin(async move { start_run(conn, now, &asked).await })).await?;
        self.signal_due();
        self.signal_batch();
        Ok(())
    }

    /// A node.
    ///
    /// # Errors
    /// [`StoreError::NotFound`], or the database's.
    pub async fn node(&self, id: NodeId) -> Result<NodeRecord, StoreError> {
        const SQL: &str =
            concat!("SELECT ", node_columns!(), " FROM ", node_from!(), " WHERE node.id = $1");
        let row = self.reader().await?.first(SQL, args![id.0]).await?;
        rows::node(&mut row.ok_or_else(|| StoreError::not_found("node", id))?.cols())
    }

    /// Nodes that answer to `text`: identifier of the node or of one of its runs, hostname,
    /// MAAS' `system_id`, MAC address, BMC address or fabric address. Nodes in service first,
    /// then the newest.
    ///
    /// # Errors
    /// The database's.
    pub async fn find_nodes(&self, text: &str) -> Result<Vec<NodeRecord>, StoreError> {
        let id = uuid::Uuid::parse_str(text).ok();
        let values = args![text, id, &text.to_ascii_lowercase()];
        let rows = self.reader().await?.all(FIND, values).await?;
        rows.iter().map(|row| rows::node(&mut row.cols())).collect()
    }

    /// A node as views show it.
    ///
    /// # Errors
    /// [`StoreError::NotFound`], or the database's.
    pub async fn listed_node(&self, id: NodeId) -> Result<ListedNode, StoreError> {
        let sql = listed_select!("WHERE node.id = $1");
        let row = self.reader().await?.first(sql, args![id.0]).await?;
        listed(row.ok_or_else(|| StoreError::not_found("node", id))?.cols())
    }

    /// Nodes as views show them, by hostname.
    ///
    /// # Errors
    /// The database's.
    pub async fn list_nodes(&self, filter: NodeFilter) -> Result<Vec<ListedNode>, StoreError> {
        let sql = listed_select!(
            "WHERE ($1 IS NULL OR node.site_id = $1) AND ($2 IS NULL OR node.state = $2) \
             AND ($3 IS NULL OR run.status = $3) \
             AND (NOT $4 OR run.status IN ('running', 'waiting', 'parked')) ORDER BY node.hostname, node.created_at"
        );
        let values = args![
            filter.site_id.map(|id| id.0),
            filter.state.map(NodeState::as_str),
            filter.run_status.map(RunStatus::as_str),
            filter.open
        ];
        let rows = self.reader().await?.all(sql, values).await?;
        rows.iter().map(|row| listed(row.cols())).collect()
    }

    /// The password of a node's BMC.
    ///
    /// # Errors
    /// [`StoreError::Corrupt`], or the database's.
    pub async fn bmc_password(&self, id: NodeId) -> Result<Option<Secret>, StoreError> {
        self.secret(id.0, BMC_PASSWORD).await
    }
}
