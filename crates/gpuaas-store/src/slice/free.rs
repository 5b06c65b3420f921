//! Which slots are free, and at which nodes: read for `placement`.

use std::collections::HashMap;
use std::sync::Arc;

use gpuaas_core::placement::SlotSet;
use gpuaas_types::slot::SlotMap;
use gpuaas_types::{NodeId, SiteId, Timestamp};

use crate::database::{Cols, Conn, Val, args, padded, with_list};
use crate::error::StoreError;
use crate::slice::placement::{FreeSlots, SlotLayout};
use crate::store::Store;

/// Slots are counted first, so that their node's rows are read once for it and not for each of them.
macro_rules! select_free {
    ($and:literal) => {
        concat!(
            "SELECT free.node_id, node.hostname, node.site_id, site.name, free.digest, free.slots, \
             CASE WHEN node.state = 'active' AND gate.passed \
             AND run.status NOT IN ('running', 'waiting', 'parked') THEN TRUE ELSE FALSE END \
             FROM (SELECT node_id, digest, \
             CAST(SUM(CAST(1 AS BIGINT) << CAST(slot_index AS INTEGER)) AS BIGINT) AS slots \
             FROM slice_slot WHERE state = 'free' AND slot_index < 32 ",
            $and,
            " GROUP BY node_id, digest) AS free JOIN node ON node.id = free.node_id \
             JOIN site ON site.id = node.site_id \
             LEFT JOIN run ON run.id = node.run_id LEFT JOIN node_gate AS gate \
             ON gate.node_id = node.id AND gate.gate = 'slice_ready'"
        )
    };
}

fn read_free(mut cols: Cols<'_>) -> Result<FreeSlots, StoreError> {
    Ok(FreeSlots {
        node_id: cols.id(NodeId)?,
        hostname: cols.next()?,
        site_id: cols.id(SiteId)?,
        site: cols.next()?,
        digest: cols.next()?,
        free: u32::try_from(cols.next::<i64>()?)
            .map_err(|error| StoreError::corrupt("set of slots", error))?,
        is_ready: cols.next()?,
    })
}

/// Answers layouts of nodes by the maps of their last discoveries.
async fn read_layouts(
    conn: &mut Conn,
    nodes: Vec<NodeId>,
) -> Result<HashMap<(NodeId, String), Arc<SlotLayout>>, StoreError> {
    let mut layouts = HashMap::new();
    for ids in padded(nodes.into_iter().map(|id| id.0)) {
        let text = "SELECT node_id, map FROM slice_topology WHERE node_id IN ({LIST})";
        let sql = with_list(text, 1, ids.len());
        for row in conn.all(sql, ids.into_iter().map(Val::from).collect()).await? {
            let mut cols = row.cols();
            let (node_id, map) = (cols.id(NodeId)?, cols.json::<SlotMap>()?);
            layouts.insert((node_id, map.digest.clone()), Arc::new(SlotLayout::new(&map)));
        }
    }
    Ok(layouts)
}

impl Store {
    /// Reads what is free at every node; with `anew` also where somebody did since before this call.
    pub(crate) async fn look_at_slots(&self, now: Timestamp, anew: bool) -> Result<(), StoreError> {
        let placements = &self.inner.placements;
        let looks = placements.looks();
        let _looking = placements.lock_look().await;
        if placements.looks() > looks || !anew && !placements.is_old(now) {
            return Ok(());
        }
        placements.begin_look(now);
        let found = self.read_free_slots().await;
        match found {
            Ok(found) => placements.replace(found),
            Err(error) => {
                placements.forget_look();
                return Err(error);
            }
        }
        Ok(())
    }

    async fn read_free_slots(&self) -> Result<Vec<(FreeSlots, Arc<SlotLayout>)>, StoreError> {
        let mut conn = self.reader().await?;
        let rows = conn.all(select_free!(""), Vec::new()).await?;
        let free: Vec<FreeSlots> =
            rows.iter().map(|row| read_free(row.cols())).collect::<Result<_, _>>()?;
        let placements = &self.inner.placements;
        let unknown =
            free.iter().filter(|one| placements.layout(one.node_id, &one.digest).is_none());
        let unknown: Vec<NodeId> = unknown.map(|one| one.node_id).collect();
        let mut read = read_layouts(&mut conn, unknown).await?;
        let with_layout = |one: FreeSlots| {
            let known = placements.layout(one.node_id, &one.digest);
            let layout = known.or_else(|| read.remove(&(one.node_id, one.digest.clone())))?;
            Some((one, layout))
        };
        Ok(free.into_iter().filter_map(with_layout).collect())
    }

    /// Reads what is free at a node where `taken` were not.
    pub(crate) async fn look_at_node(
        &self,
        node_id: NodeId,
        taken: SlotSet,
    ) -> Result<(), StoreError> {
        let sql = select_free!("AND node_id = $1");
        let row = self.reader().await?.first(sql, args![node_id.0]).await?;
        let free = row.map(|row| read_free(row.cols())).transpose()?;
        let free = free.filter(|free| free.is_ready).map(|free| free.free);
        self.inner.placements.replace_node(node_id, free, taken);
        Ok(())
    }
}
