//! What is known of a node's hardware, corrected by an operator.

use gpuaas_core::record::NodeHardware;
use gpuaas_types::api::TimelineEvent;
use gpuaas_types::codes::ProblemCode;
use gpuaas_types::{NodeId, RunId, RunStatus, SiteId, Timestamp};
use secrecy::SecretString;

use crate::database::{Conn, args};
use crate::error::StoreError;
use crate::store::Store;
use crate::tables::audit::{self, NewAuditEntry};
use crate::tables::node::{BMC_PASSWORD, address_in_use, replace_hardware};
use crate::tables::secret::put_secret;
use crate::tables::timeline;

/// A correction of what is known of a node's hardware.
#[derive(Debug, Clone)]
pub struct HardwareChange {
    /// Node to correct.
    pub node_id: NodeId,
    /// The whole hardware as it is from now on.
    pub hardware: NodeHardware,
    /// Another password of the BMC; none: the one that is kept stays.
    pub bmc_password: Option<SecretString>,
    /// Line for the timeline of the node.
    pub line: TimelineEvent,
    /// Entry for the audit log.
    pub audit: NewAuditEntry,
}

async fn change(
    conn: &mut Conn,
    now: Timestamp,
    change: &HardwareChange,
    sealed: Option<Vec<u8>>,
) -> Result<(), StoreError> {
    let id = change.node_id;
    let row = conn
        .first(
            "SELECT node.site_id, run.id, run.status FROM node LEFT JOIN run \
             ON run.id = node.run_id WHERE node.id = $1",
            args![id.0],
        )
        .await?
        .ok_or_else(|| StoreError::not_found("node", id))?;
    let mut cols = row.cols();
    let (site_id, run_id) = (cols.id(SiteId)?, cols.opt_id(RunId)?);
    if let Some(run_id) = run_id {
        let status: RunStatus = cols.enum_str()?;
        if matches!(status, RunStatus::Running | RunStatus::Waiting) {
            let detail = format!("run {run_id} is {status}; what it works with does not change");
            return Err(StoreError::conflict(ProblemCode::NodeHasOpenRun, detail));
        }
    }
    if let Some(error) = address_in_use(conn, site_id, id, &change.hardware).await? {
        return Err(error);
    }
    replace_hardware(conn, now, id, &change.hardware).await?;
    if let Some(sealed) = sealed {
        put_secret(conn, id.0, BMC_PASSWORD, sealed).await?;
    }
    timeline::append(conn, std::iter::once((id, &change.line))).await?;
    audit::append(conn, now, &change.audit).await
}

impl Store {
    /// Corrects what is known of a node's hardware. A parked run reads it when it is resumed.
    ///
    /// # Errors
    /// [`StoreError::NotFound`]; `node_has_open_run` while a run moves; `bmc_address_taken` or
    /// `mac_address_taken`, which name the node; [`StoreError::Unavailable`] or
    /// [`StoreError::Corrupt`]. In each case nothing was changed.
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
