//! Onboarding nodes, and starting runs of those that are there.

use async_recursion::async_recursion as boxed;
use std::sync::Arc;

use gpuaas_core::record::ReportKind;
use gpuaas_types::api::{OnboardAccepted, TimelineEvent};
use gpuaas_types::codes::ProblemCode;
use gpuaas_types::{NodeId, NodeState, ProfileId, SiteId, Timestamp};

use crate::agent::report_rows::append_reports;
use crate::audit::rows::{self as audit, IdempotencyKey, NewAuditEntry};
use crate::database::{Conn, GroupFn, GroupHints, args};
use crate::error::StoreError;
use crate::identity::secret::rows::{delete_secret, put_secret};
use crate::node::rows::{
    BMC_PASSWORD, NewNode, address_in_use, insert_node, is_other_bmc, replace_hardware,
};
use crate::run::rows::{NewRun, insert_run};
use crate::run::{batch_rows, timeline_rows};
use crate::slice::claim_rows::refuse_while_claimed;
use crate::store::Store;

/// A node and its first run, made at once.
#[derive(Debug, Clone)]
pub struct NewOnboarding {
    /// Node to make.
    pub node: NewNode,
    /// Run to make.
    pub run: NewRun,
    /// Lines for the timeline of the node.
    pub timeline: Vec<TimelineEvent>,
    /// What the request says to the run.
    pub reports: Vec<ReportKind>,
    /// Entry for the audit log.
    pub audit: Option<NewAuditEntry>,
    /// The request may be repeated under this key.
    pub idempotency: Option<IdempotencyKey>,
}

impl NewOnboarding {
    /// One that leaves nothing on the timeline or in the audit, and tells the run nothing.
    #[must_use]
    pub const fn new(node: NewNode, run: NewRun) -> Self {
        Self {
            node,
            run,
            timeline: Vec::new(),
            reports: Vec::new(),
            audit: None,
            idempotency: None,
        }
    }
}

/// A run to make on a node that exists.
#[derive(Debug, Clone)]
pub struct NewRunOfNode {
    /// Node to start the run on.
    pub node_id: NodeId,
    /// Run to make.
    pub run: NewRun,
    /// Profile that is the node's from then on, and whose revision the run pins; none: it keeps its
    /// own.
    pub profile_id: Option<ProfileId>,
    /// States of the node in which it may begin.
    pub from: &'static [NodeState],
    /// Lines for the timeline of the node.
    pub history: Vec<TimelineEvent>,
    /// Entry for the audit log.
    pub audit: Option<NewAuditEntry>,
}

/// Answer to [`Store::onboard`].
#[derive(Debug, Clone, PartialEq)]
pub struct AcceptedOnboarding {
    /// What was made, now or by the earlier request with the same key.
    pub accepted: OnboardAccepted,
    /// It was made by an earlier request.
    pub replayed: bool,
}

/// Answer to the same request before, where there was one; else the key is taken for this one.
async fn replayed(
    conn: &mut Conn,
    now: Timestamp,
    request: &NewOnboarding,
    accepted: &OnboardAccepted,
) -> Result<Option<AcceptedOnboarding>, StoreError> {
    let Some(key) = &request.idempotency else { return Ok(None) };
    if audit::insert_response(conn, now, key, accepted).await? {
        return Ok(None);
    }
    let earlier = audit::read_response(conn, key).await?;
    let accepted =
        earlier.ok_or_else(|| StoreError::corrupt("idempotency record", "row is missing"))?;
    Ok(Some(AcceptedOnboarding { accepted, replayed: true }))
}

async fn onboard(
    conn: &mut Conn,
    now: Timestamp,
    request: &NewOnboarding,
    sealed: Option<Vec<u8>>,
) -> Result<AcceptedOnboarding, StoreError> {
    let NewOnboarding { node, run, .. } = request;
    let accepted = OnboardAccepted { node_id: node.id, run_id: run.id };
    if let Some(earlier) = replayed(conn, now, request, &accepted).await? {
        return Ok(earlier);
    }
    insert_node(conn, now, node, Some(run.id)).await?;
    insert_run(conn, now, node.id, (node.site_id, node.profile_id), run).await?;
    write_onboarding(conn, now, request, sealed).await?;
    Ok(AcceptedOnboarding { accepted, replayed: false })
}

/// What an onboarding writes beside its node and its run.
async fn write_onboarding(
    conn: &mut Conn,
    now: Timestamp,
    request: &NewOnboarding,
    sealed: Option<Vec<u8>>,
) -> Result<(), StoreError> {
    let id = request.node.id;
    if let Some(sealed) = sealed {
        put_secret(conn, id.0, BMC_PASSWORD, sealed).await?;
    }
    timeline_rows::append(conn, request.timeline.iter().map(|event| (id, event))).await?;
    for report in &request.reports {
        append_reports(conn, now, request.run.id, report).await?;
    }
    match &request.audit {
        Some(entry) => audit::append(conn, now, entry).await,
        None => Ok(()),
    }
}

/// Onboards a node that exists from the beginning: nothing of its machine is taken for known.
async fn onboard_again(
    conn: &mut Conn,
    now: Timestamp,
    request: &NewOnboarding,
    from: &[NodeState],
    sealed: Option<Vec<u8>>,
) -> Result<AcceptedOnboarding, StoreError> {
    let NewOnboarding { node, run, .. } = request;
    let accepted = OnboardAccepted { node_id: node.id, run_id: run.id };
    if let Some(earlier) = replayed(conn, now, request, &accepted).await? {
        return Ok(earlier);
    }
    let row = conn
        .first("SELECT state FROM node WHERE id = $1 {LOCK_KEY}", args![node.id.0])
        .await?
        .ok_or_else(|| StoreError::not_found("node", node.id))?;
    let state: NodeState = row.cols().enum_str()?;
    insert_run(conn, now, node.id, (node.site_id, node.profile_id), run).await?;
    if !from.contains(&state) {
        let detail = format!("the node is {state}; it cannot be onboarded in this state");
        return Err(StoreError::conflict(ProblemCode::NodeStateForbids, detail));
    }
    if let Some(error) = address_in_use(conn, node.site_id, node.id, &node.hardware).await? {
        return Err(error);
    }
    if sealed.is_none() {
        let sql = "SELECT hardware FROM node WHERE id = $1";
        let known = conn.first(sql, args![node.id.0]).await?;
        let known = known.map(|row| row.cols().json()).transpose()?;
        if known.is_some_and(|known| is_other_bmc(&known, &node.hardware)) {
            delete_secret(conn, node.id.0, BMC_PASSWORD).await?;
        }
    }
    replace_hardware(conn, now, node.id, &node.hardware).await?;
    conn.execute(
        "UPDATE node SET profile_id = $2, state = 'registered', system_id = NULL, run_id = $3 \
         WHERE id = $1",
        args![node.id.0, node.profile_id.0, run.id.0],
    )
    .await?;
    conn.execute("DELETE FROM observation WHERE node_id = $1", args![node.id.0]).await?;
    conn.execute("DELETE FROM drift WHERE node_id = $1", args![node.id.0]).await?;
    write_onboarding(conn, now, request, sealed).await?;
    Ok(AcceptedOnboarding { accepted, replayed: false })
}

async fn start_run(
    conn: &mut Conn,
    now: Timestamp,
    request: &NewRunOfNode,
) -> Result<(), StoreError> {
    let NewRunOfNode { node_id, run, profile_id, from, history, audit } = request;
    let row = conn
        .first("SELECT site_id, profile_id, state FROM node WHERE id = $1", args![node_id.0])
        .await?
        .ok_or_else(|| StoreError::not_found("node", *node_id))?;
    let mut cols = row.cols();
    let (site_id, own_profile_id) = (cols.id(SiteId)?, cols.id(ProfileId)?);
    let profile_id = profile_id.unwrap_or(own_profile_id);
    let state: NodeState = cols.enum_str()?;
    insert_run(conn, now, *node_id, (site_id, profile_id), run).await?;
    if !from.contains(&state) {
        let detail = format!("the node is {state}; {} is not possible in this state", run.kind);
        return Err(StoreError::conflict(ProblemCode::NodeStateForbids, detail));
    }
    conn.execute(
        "UPDATE node SET run_id = $2, profile_id = $4, revision = revision + 1, updated_at = $3 \
         WHERE id = $1",
        args![node_id.0, run.id.0, now, profile_id.0],
    )
    .await?;
    // The row is locked by now: a claim of the node is there, or comes too late.
    refuse_while_claimed(conn, *node_id, run.kind.as_str()).await?;
    timeline_rows::append(conn, history.iter().map(|event| (*node_id, event))).await?;
    batch_rows::wake_of_node(conn, now, *node_id).await?;
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
    /// `hostname_taken`, `bmc_address_taken` or `mac_address_taken`, each naming the node that is there;
    /// `idempotency_key_reused`; [`StoreError::Unavailable`] or [`StoreError::Corrupt`]. In each
    /// case nothing was made.
    #[boxed]
    pub async fn onboard(
        &self,
        now: Timestamp,
        request: NewOnboarding,
    ) -> Result<AcceptedOnboarding, StoreError> {
        let sealed = request.node.bmc_password.as_ref();
        let sealed = sealed.map(|secret| self.seal(request.node.id.0, BMC_PASSWORD, secret));
        let sealed = sealed.transpose()?;
        let alone = request.idempotency.is_some();
        let asked = Arc::new((request, sealed));
        let work: GroupFn<AcceptedOnboarding> = Box::new(move |conn| {
            let asked = Arc::clone(&asked);
            Box::pin(async move { onboard(conn, now, &asked.0, asked.1.clone()).await })
        });
        // A request with the same key may be under way, and a group waits for nobody.
        let made = if alone {
            self.write(work).await?
        } else {
            self.write_grouped(GroupHints::default(), work).await?
        };
        self.signal_due();
        Ok(made)
    }

    /// Onboards the node `request.node.id` again, which must be in one of some states and have no
    /// open run. Its hardware becomes that of the request, its machine is looked for anew, and the
    /// password of its BMC stays where the request has none.
    ///
    /// # Errors
    /// [`StoreError::NotFound`], `node_has_open_run`, `node_state_forbids`, `bmc_address_taken`,
    /// `mac_address_taken`, `idempotency_key_reused`; [`StoreError::Unavailable`] or
    /// [`StoreError::Corrupt`]. In each case nothing was changed.
    #[boxed]
    pub async fn onboard_again(
        &self,
        now: Timestamp,
        request: NewOnboarding,
        from: &'static [NodeState],
    ) -> Result<AcceptedOnboarding, StoreError> {
        let sealed = request.node.bmc_password.as_ref();
        let sealed = sealed.map(|secret| self.seal(request.node.id.0, BMC_PASSWORD, secret));
        let sealed = sealed.transpose()?;
        let made = self
            .write(move |conn| {
                Box::pin(async move { onboard_again(conn, now, &request, from, sealed).await })
            })
            .await?;
        self.signal_due();
        Ok(made)
    }

    /// Starts a run on a node that has none open. It pins the given revision of the node's
    /// profile.
    ///
    /// # Errors
    /// [`StoreError::NotFound`], `node_has_open_run` (which names it); [`StoreError::Unavailable`]
    /// or [`StoreError::Corrupt`].
    #[boxed]
    pub async fn start_run(
        &self,
        now: Timestamp,
        node_id: NodeId,
        run: NewRun,
        history: Vec<TimelineEvent>,
    ) -> Result<(), StoreError> {
        let (profile_id, from) = (None, NodeState::ALL);
        let request = NewRunOfNode { node_id, run, profile_id, from, history, audit: None };
        self.start_run_from(now, request).await
    }

    /// The same, where the node must be in one of some states, and may get another profile.
    ///
    /// # Errors
    /// Those of [`Store::start_run`]; `node_state_forbids` when it is in another state.
    #[boxed]
    pub async fn start_run_from(
        &self,
        now: Timestamp,
        request: NewRunOfNode,
    ) -> Result<(), StoreError> {
        self.write(move |conn| Box::pin(async move { start_run(conn, now, &request).await }))
            .await?;
        self.signal_due();
        self.signal_batch();
        Ok(())
    }
}
