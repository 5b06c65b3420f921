//! What is known of a node's machine, and where it is, corrected by an operator.

use async_recursion::async_recursion as boxed;
use gpuaas_core::record::{NodeHardware, ReportKind};
use gpuaas_core::run_state::RunState;
use gpuaas_types::api::TimelineEvent;
use gpuaas_types::codes::ProblemCode;
use gpuaas_types::{EffectKind, NodeId, RunId, RunStatus, SiteId, Step, Timestamp};
use secrecy::SecretString;

use crate::agent::report_rows::append_reports;
use crate::audit::rows::{self as audit, NewAuditEntry};
use crate::database::{Conn, Val, args};
use crate::error::StoreError;
use crate::identity::secret::rows::{delete_secret, put_secret};
use crate::node::rows::{
    BMC_ACCESS, BMC_PASSWORD, address_in_use, hostname_in_use, is_other_bmc, replace_hardware,
};
use crate::run::rows::{Transition, append_transitions};
use crate::run::timeline_rows;
use crate::store::Store;

/// A correction of what is known of a node's machine.
#[derive(Debug, Clone)]
pub struct HardwareChange {
    /// Node to correct.
    pub node_id: NodeId,
    /// The whole hardware as it is from now on.
    pub hardware: NodeHardware,
    /// Another password of the BMC; none: the one that is kept stays.
    pub bmc_password: Option<SecretString>,
    /// Another site that the host is at; none: it stays.
    pub site_id: Option<SiteId>,
    /// What the parked run goes by from now on, such as [`ReportKind::MachineNamed`].
    pub report: Option<ReportKind>,
    /// Line for the timeline of the node.
    pub line: TimelineEvent,
    /// Entry for the audit log.
    pub audit: NewAuditEntry,
}

/// The node as it is before the correction.
struct Before {
    site_id: SiteId,
    hostname: String,
    system_id: Option<String>,
    hardware: NodeHardware,
    run: Option<(RunId, RunStatus)>,
}

async fn before(conn: &mut Conn, id: NodeId) -> Result<Before, StoreError> {
    let row = conn
        .first(
            "SELECT node.site_id, node.hostname, node.system_id, node.hardware, run.id, run.status \
             FROM node LEFT JOIN run ON run.id = node.run_id WHERE node.id = $1",
            args![id.0],
        )
        .await?
        .ok_or_else(|| StoreError::not_found("node", id))?;
    let mut cols = row.cols();
    let (site_id, hostname, system_id) = (cols.id(SiteId)?, cols.next()?, cols.next()?);
    let hardware = cols.json()?;
    let run = match cols.opt_id(RunId)? {
        Some(run_id) => Some((run_id, cols.enum_str::<RunStatus>()?)),
        None => None,
    };
    let run = run.filter(|(_, status)| status.is_open());
    Ok(Before { site_id, hostname, system_id, hardware, run })
}

async fn change(
    conn: &mut Conn,
    now: Timestamp,
    change: &HardwareChange,
    sealed: Option<Vec<u8>>,
) -> Result<(), StoreError> {
    let id = change.node_id;
    let node = before(conn, id).await?;
    if let Some((run_id, status)) = node.run
        && status != RunStatus::Parked
    {
        let detail = format!("run {run_id} is {status}; the node can change once it is parked");
        return Err(StoreError::conflict(ProblemCode::NodeHasOpenRun, detail));
    }
    let site_id = change.site_id.unwrap_or(node.site_id);
    if site_id != node.site_id {
        move_to_site(conn, now, id, &node, site_id).await?;
    }
    if let Some(error) = address_in_use(conn, site_id, id, &change.hardware).await? {
        return Err(error);
    }
    replace_hardware(conn, now, id, &change.hardware).await?;
    if sealed.is_some() || change.hardware.bmc_user != node.hardware.bmc_user {
        // What MAAS has from now on is what was meant.
        let sql = "DELETE FROM secret WHERE owner = $1 AND name = $2";
        conn.execute(sql, args![id.0, BMC_ACCESS]).await?;
    }
    match sealed {
        Some(sealed) => put_secret(conn, id.0, BMC_PASSWORD, sealed).await?,
        // The password was given for one BMC, and is sent to no other.
        None if site_id != node.site_id || is_other_bmc(&node.hardware, &change.hardware) => {
            delete_secret(conn, id.0, BMC_PASSWORD).await?;
        }
        None => {}
    }
    if let Some(report) = &change.report {
        let Some((run_id, _)) = node.run else {
            let detail = format!("node {} has no open run to apply the change to", node.hostname);
            return Err(StoreError::conflict(ProblemCode::RunNotParked, detail));
        };
        append_reports(conn, now, run_id, report).await?;
    }
    timeline_rows::append(conn, std::iter::once((id, &change.line))).await?;
    audit::append(conn, now, &change.audit).await
}

/// Gives a node, and its parked run, another site. What may be in the region of the site that it
/// leaves would be left there unseen: so not while a machine is bound, or may have been made.
async fn move_to_site(
    conn: &mut Conn,
    now: Timestamp,
    id: NodeId,
    node: &Before,
    site_id: SiteId,
) -> Result<(), StoreError> {
    let forbids = |detail: String| StoreError::conflict(ProblemCode::NodeBound, detail);
    if let Some(system_id) = &node.system_id {
        return Err(forbids(format!("the node is bound to machine {system_id} of its site")));
    }
    let waits = "SELECT batch.name FROM batch_member JOIN batch ON batch.id = batch_member.batch_id \
         WHERE batch_member.node_id = $1 AND batch_member.run_id IS NULL AND batch.ended_at IS NULL";
    if let Some(row) = conn.first(waits, args![id.0]).await? {
        let batch: String = row.cols().next()?;
        return Err(forbids(format!("the node is waiting in batch {batch} of its site")));
    }
    if let Some(error) = hostname_in_use(conn, site_id, &node.hostname).await? {
        return Err(error);
    }
    conn.execute("UPDATE node SET site_id = $2 WHERE id = $1", args![id.0, site_id.0]).await?;
    let Some((run_id, _)) = node.run else { return Ok(()) };
    let row = conn
        .first("SELECT memory FROM run WHERE id = $1", args![run_id.0])
        .await?
        .ok_or_else(|| StoreError::not_found("run", run_id))?;
    let mut state: RunState = row.cols().json()?;
    if state.intended_at.contains_key(&EffectKind::CreateMachine) {
        return Err(forbids(format!("run {run_id} asked MAAS to create a machine in its site")));
    }
    // From the beginning: nobody may have followed the feed of the other site yet.
    state.look_again(now);
    state.enter_step(Step::Accept);
    conn.execute(
        "UPDATE run SET site_id = $2, step = $3, step_since = $4, memory = $5 WHERE id = $1",
        vec![
            run_id.0.into(),
            site_id.0.into(),
            Step::Accept.as_str().into(),
            now.into(),
            Val::json(&state)?,
        ],
    )
    .await?;
    let cause = "the node moved to another site".to_owned();
    append_transitions(conn, run_id, &[Transition { step: Step::Accept, at: now, cause }]).await
}

impl Store {
    /// Corrects what is known of a node's machine. A parked run reads it when it is resumed.
    ///
    /// # Errors
    /// [`StoreError::NotFound`]; `node_has_open_run` while a run moves; `run_not_parked` where no run
    /// would go by the report; `bmc_address_taken`, `mac_address_taken` or `hostname_taken`, which
    /// name the node; `node_bound` for another site while a machine of its site is bound or may have
    /// been made; [`StoreError::Unavailable`] or
    /// [`StoreError::Corrupt`]. In each case nothing was changed.
    #[boxed]
    pub async fn change_hardware(
        &self,
        now: Timestamp,
        request: HardwareChange,
    ) -> Result<(), StoreError> {
        let sealed = request.bmc_password.as_ref();
        let sealed = sealed.map(|secret| self.seal(request.node_id.0, BMC_PASSWORD, secret));
        let sealed = sealed.transpose()?;
        self.write(move |conn| Box::pin(async move { change(conn, now, &request, sealed).await }))
            .await
    }
}
