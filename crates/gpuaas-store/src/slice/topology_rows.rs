//! Rows of `slice_topology`.

use std::collections::BTreeSet;

use gpuaas_types::slot::SlotMap;
use gpuaas_types::topology::TopologyReport;
use gpuaas_types::{NodeId, Timestamp};

use crate::database::{Conn, args};
use crate::error::StoreError;

/// The last discovery of a node.
#[derive(Debug, Clone, PartialEq)]
pub struct SliceTopology {
    /// Moment at which the report came.
    pub observed_at: Timestamp,
    /// What the agent read.
    pub report: TopologyReport,
    /// The map of it.
    pub map: SlotMap,
    /// The map of the discovery before, and when it was made; none: there was no other.
    pub previous: Option<(Timestamp, SlotMap)>,
}

/// A map with blockers, and the slots of its node that were approved.
#[derive(Debug, Clone, PartialEq)]
pub struct BlockedSlotMap {
    /// Moment at which the report came.
    pub observed_at: Timestamp,
    /// The map of it.
    pub map: SlotMap,
    /// Numbers of the approved slots.
    pub approved: BTreeSet<u32>,
}

/// Discoveries and approvals of a node one by one.
pub(crate) async fn lock_node(conn: &mut Conn, node_id: NodeId) -> Result<(), StoreError> {
    conn.first("SELECT id FROM node WHERE id = $1 {LOCK}", args![node_id.0]).await.map(drop)
}

/// The discovery of a node, as a transaction sees it.
pub(crate) async fn read(
    conn: &mut Conn,
    node_id: NodeId,
) -> Result<Option<SliceTopology>, StoreError> {
    let row = conn
        .first(
            "SELECT observed_at, report, map, previous_at, previous_map FROM slice_topology \
             WHERE node_id = $1",
            args![node_id.0],
        )
        .await?;
    let Some(row) = row else { return Ok(None) };
    let mut cols = row.cols();
    let (observed_at, report, map) = (cols.at()?, cols.json()?, cols.json()?);
    let previous = cols.opt_at()?.zip(cols.opt_json()?);
    Ok(Some(SliceTopology { observed_at, report, map, previous }))
}
