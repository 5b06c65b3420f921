//! Rows of `node` and `node_mac`.

use gpuaas_core::record::{NodeHardware, NodeRecord};
use gpuaas_types::codes::ProblemCode;
use gpuaas_types::{NodeId, NodeState, ProfileId, RunId, SiteId, Timestamp};

use crate::database::{Cols, Conn, Val, args};
use crate::error::StoreError;
use crate::seal::Secret;

pub(crate) const BMC_PASSWORD: &str = "bmc_password";

/// A node to make.
#[derive(Debug, Clone)]
pub struct NewNode {
    /// Identifier of the node.
    pub id: NodeId,
    /// Site of the node.
    pub site_id: SiteId,
    /// Profile of the node.
    pub profile_id: ProfileId,
    /// Short hostname, unique among the live nodes of the site.
    pub hostname: String,
    /// Hardware as the operator described it.
    pub hardware: NodeHardware,
    /// Password of the BMC; sealed before it is stored.
    pub bmc_password: Option<Secret>,
}

/// Columns of a [`NodeRecord`]; needs [`node_from!`].
macro_rules! node_columns {
    () => {
        "node.id, node.site_id, node.profile_id, node.hostname, node.state, node.system_id, \
         node.hardware, node.run_id, heartbeat.at, node.revision, node.created_at, node.updated_at"
    };
}
pub(crate) use node_columns;

/// Tables of [`node_columns!`].
macro_rules! node_from {
    () => {
        "node LEFT JOIN heartbeat ON heartbeat.node_id = node.id"
    };
}
pub(crate) use node_from;

pub(crate) fn read_node(cols: &mut Cols<'_>) -> Result<NodeRecord, StoreError> {
    Ok(NodeRecord {
        id: cols.id(NodeId)?,
        site_id: cols.id(SiteId)?,
        profile_id: cols.id(ProfileId)?,
        hostname: cols.next()?,
        state: cols.enum_str()?,
        system_id: cols.next()?,
        hardware: cols.json()?,
        run_id: cols.opt_id(RunId)?,
        heartbeat_at: cols.opt_at()?,
        revision: cols.next()?,
        created_at: cols.at()?,
        updated_at: cols.at()?,
    })
}

/// Names the node that is in the way of a new one.
async fn taken_error(conn: &mut Conn, node: &NewNode) -> Result<StoreError, StoreError> {
    const LIVE: &str = "SELECT id, state FROM node WHERE site_id = $1 AND hostname = $2 \
         AND state NOT IN ('retired', 'detached', 'deleted')";
    const BMC: &str = "SELECT hostname, id FROM node WHERE site_id = $1 AND bmc_address = $2 \
         AND state NOT IN ('retired', 'detached', 'deleted')";
    let hostname = &node.hostname;
    if let Some(row) = conn.first(LIVE, args![node.site_id.0, hostname]).await? {
        let mut cols = row.cols();
        let (id, state) = (cols.id(NodeId)?, cols.enum_str::<NodeState>()?);
        let detail = format!("node {hostname} exists at this site as {id} and is {state}");
        return Ok(StoreError::conflict(ProblemCode::HostnameTaken, detail));
    }
    let address = node.hardware.bmc_address.as_deref();
    if let Some(row) = conn.first(BMC, args![node.site_id.0, address]).await? {
        let mut cols = row.cols();
        let (holder, id): (String, _) = (cols.next()?, cols.id(NodeId)?);
        let address = address.unwrap_or_default();
        let detail = format!("BMC address {address} belongs to node {holder} ({id})");
        return Ok(StoreError::conflict(ProblemCode::BmcAddressTaken, detail));
    }
    Ok(StoreError::conflict(ProblemCode::AlreadyExists, format!("node {} exists", node.id)))
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
        return Err(taken_error(conn, node).await?);
    }
    let macs = node.hardware.mac_addresses.iter().collect::<std::collections::BTreeSet<_>>();
    let rows = macs.into_iter().map(|mac| args![&mac.to_ascii_lowercase(), node.id.0]).collect();
    conn.insert_rows("INSERT INTO node_mac (mac_address, node_id)", rows).await
}
