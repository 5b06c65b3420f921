//! What agents read of the devices that slices are made of, and the slot maps of it.
//!
//! A node has one row: the last report with its map, and the map of the discovery before, for a
//! difference. The report is kept whole, so that a map can be made of it again by other rules.

use std::collections::{BTreeSet, HashMap};

use async_recursion::async_recursion as boxed;
use gpuaas_types::slot::SlotMap;
use gpuaas_types::topology::TopologyReport;
use gpuaas_types::{NodeId, RunId, TaskId, Timestamp};

use crate::database::{Cols, Conn, Val, args, padded, with_list};
use crate::error::StoreError;
use crate::run::moment_rows::{self, RunMoment};
use crate::slice::claim_rows;
use crate::slice::slot;
use crate::slice::topology_rows::{BlockedSlotMap, SliceTopology, lock_node, read};
use crate::store::Store;

/// A report with the map that was made of it.
#[derive(Debug, Clone, PartialEq)]
pub struct NewSliceTopology {
    /// Node that was read.
    pub node_id: NodeId,
    /// Task that asked for it; the node's, and not finished.
    pub task_id: TaskId,
    /// What the agent read.
    pub report: TopologyReport,
    /// The map of it.
    pub map: SlotMap,
}

async fn record(
    conn: &mut Conn,
    now: Timestamp,
    new: &NewSliceTopology,
) -> Result<bool, StoreError> {
    let NewSliceTopology { node_id, task_id, report, map } = new;
    lock_node(conn, *node_id).await?;
    let task = conn
        .first(
            "SELECT run_id, created_at FROM node_task \
             WHERE id = $1 AND node_id = $2 AND finished_at IS NULL",
            args![task_id.0, node_id.0],
        )
        .await?;
    let Some(task) = task else { return Ok(false) };
    note_discovery(conn, task.cols(), now).await?;
    // An agent that got no answer sends the same report again: it is no discovery of its own.
    conn.execute(
        "INSERT INTO slice_topology (node_id, task_id, observed_at, report, map) \
         VALUES ($1, $2, $3, $4, $5) ON CONFLICT (node_id) DO UPDATE SET \
         previous_at = CASE WHEN slice_topology.task_id = excluded.task_id \
         THEN slice_topology.previous_at ELSE slice_topology.observed_at END, \
         previous_map = CASE WHEN slice_topology.task_id = excluded.task_id \
         THEN slice_topology.previous_map ELSE slice_topology.map END, \
         task_id = excluded.task_id, observed_at = excluded.observed_at, \
         report = excluded.report, map = excluded.map",
        vec![node_id.0.into(), task_id.0.into(), now.into(), Val::json(report)?, Val::json(map)?],
    )
    .await?;
    slot::follow_map(conn, now, *node_id, map).await?;
    Ok(true)
}

/// Notes for the run of the system how long its first discovery took.
async fn note_discovery(
    conn: &mut Conn,
    mut task: Cols<'_>,
    now: Timestamp,
) -> Result<(), StoreError> {
    let (run_id, asked_at) = (task.id(RunId)?, task.at()?);
    let reported = moment_rows::of_runs(conn, [run_id]).await?.remove(&run_id).unwrap_or_default();
    if reported.slots_reported.is_none() {
        moment_rows::note(conn, run_id, RunMoment::SlotsAsked, asked_at).await?;
        moment_rows::note(conn, run_id, RunMoment::SlotsReported, now).await?;
    }
    Ok(())
}

/// Forgets discovery and slots of a node, and that it was ready for slices: its system is gone, and so is
/// what claims of it had.
pub(crate) async fn forget(
    conn: &mut Conn,
    now: Timestamp,
    node_id: NodeId,
) -> Result<(), StoreError> {
    claim_rows::lose(conn, now, node_id).await?;
    conn.execute("DELETE FROM slice_slot WHERE node_id = $1", args![node_id.0]).await?;
    conn.execute("DELETE FROM slice_topology WHERE node_id = $1", args![node_id.0]).await?;
    let sql = "DELETE FROM node_gate WHERE node_id = $1 AND gate = 'slice_ready'";
    conn.execute(sql, args![node_id.0]).await?;
    Ok(())
}

impl Store {
    /// Keeps a report with its map, in the place of the one before, whose map is kept for a
    /// difference. Candidate slots follow the map; free ones that are no longer what was approved
    /// become stale. Answers `false`, and changes nothing, where the node has no such open task.
    ///
    /// # Errors
    /// [`StoreError::Unavailable`] or [`StoreError::Corrupt`].
    #[boxed]
    pub async fn record_slice_topology(
        &self,
        now: Timestamp,
        new: NewSliceTopology,
    ) -> Result<bool, StoreError> {
        self.write(move |conn| Box::pin(async move { record(conn, now, &new).await })).await
    }

    /// The last discovery of a node; none: it was never discovered, or released since.
    ///
    /// # Errors
    /// [`StoreError::Unavailable`] or [`StoreError::Corrupt`].
    #[boxed]
    pub async fn slice_topology(
        &self,
        node_id: NodeId,
    ) -> Result<Option<SliceTopology>, StoreError> {
        read(&mut self.reader().await?, node_id).await
    }

    /// Maps of the last discovery of each of these nodes that have a blocker.
    ///
    /// # Errors
    /// [`StoreError::Unavailable`] or [`StoreError::Corrupt`].
    pub async fn blocked_slot_maps(
        &self,
        nodes: impl IntoIterator<Item = NodeId>,
    ) -> Result<HashMap<NodeId, BlockedSlotMap>, StoreError> {
        let mut maps = HashMap::new();
        let mut conn = self.reader().await?;
        for ids in padded(nodes.into_iter().map(|id| id.0)) {
            // Only a blocker has this field, and most maps have none.
            let text = "SELECT node_id, observed_at, map FROM slice_topology \
                        WHERE CAST(map AS TEXT) LIKE '%\"fixed_by\"%' AND node_id IN ({LIST})";
            let sql = with_list(text, 1, ids.len());
            for row in conn.all(sql, ids.into_iter().map(Val::from).collect()).await? {
                let mut cols = row.cols();
                let node_id = cols.id(NodeId)?;
                let (observed_at, map) = (cols.at()?, cols.json()?);
                let approved = BTreeSet::new();
                maps.insert(node_id, BlockedSlotMap { observed_at, map, approved });
            }
        }
        let with_maps: Vec<NodeId> = maps.keys().copied().collect();
        for ids in padded(with_maps.into_iter().map(|id| id.0)) {
            let text = "SELECT node_id, slot_index FROM slice_slot \
                        WHERE state <> 'candidate' AND node_id IN ({LIST})";
            let sql = with_list(text, 1, ids.len());
            for row in conn.all(sql, ids.into_iter().map(Val::from).collect()).await? {
                let mut cols = row.cols();
                let (node_id, index) = (cols.id(NodeId)?, cols.next::<i64>()?);
                if let (Some(found), Ok(index)) = (maps.get_mut(&node_id), u32::try_from(index)) {
                    found.approved.insert(index);
                }
            }
        }
        Ok(maps)
    }
}
