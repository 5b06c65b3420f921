//! What a store remembers of free slots, so that a claim need not read them all.
//!
//! A claim plans with what is remembered here, and takes what it planned only if the database still has
//! it so: what is remembered may be old and is never wrong for long. Claims of this process that are on
//! their way are taken off, so two of them do not plan the same slots; a set that another process took
//! is taken off until the next look. Nodes of equal fit are tried in another order by each process that
//! shares a database: all would otherwise want the same node at once.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use gpuaas_core::placement::{
    PlacementNode, PlacementPolicy, PlacementRefusal, SlotSet, choose_slots, refusal,
};
use gpuaas_core::placement_index::PlacementIndex;
use gpuaas_types::claim::NumaPreference;
use gpuaas_types::slot::SlotMap;
use gpuaas_types::{ClaimId, NodeId, SiteId, Timestamp};

/// Seconds after which what is remembered is read anew.
const FRESH_SECONDS: f64 = 0.25;

/// Slots that were planned for a claim.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct PlannedSlots {
    /// Node of the slots.
    pub(crate) node_id: NodeId,
    /// Hostname of the node.
    pub(crate) hostname: String,
    /// Name of the node's site.
    pub(crate) site: String,
    /// The slots.
    pub(crate) slots: SlotSet,
    /// Digest of the map that they were approved with.
    pub(crate) digest: String,
}

/// What a claim wants.
#[derive(Debug, Clone, Copy)]
pub(crate) struct SlotDemand {
    /// Number of GPUs.
    pub(crate) gpus: u32,
    /// How near to each other.
    pub(crate) numa: NumaPreference,
    /// Only at this site; none: anywhere.
    pub(crate) site_id: Option<SiteId>,
}

/// Free slots of a node as the database has them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct FreeSlots {
    /// Node of the slots.
    pub(crate) node_id: NodeId,
    /// Hostname of the node.
    pub(crate) hostname: String,
    /// Site of the node.
    pub(crate) site_id: SiteId,
    /// Name of the site.
    pub(crate) site: String,
    /// Digest of the map that they were approved with.
    pub(crate) digest: String,
    /// The slots.
    pub(crate) free: SlotSet,
    /// Whether the node is ready for slices.
    pub(crate) is_ready: bool,
}

/// What a map says of placing claims.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct SlotLayout {
    partitions: Vec<SlotSet>,
    numa: Vec<SlotSet>,
}

impl SlotLayout {
    /// A slot whose NUMA node is unknown is near to no other one.
    pub(crate) fn new(map: &SlotMap) -> Self {
        let set = |slots: &[u32]| slots.iter().fold(0, |set, slot| set | bit(*slot));
        let mut numa: BTreeMap<u32, SlotSet> = BTreeMap::new();
        let mut unknown = Vec::new();
        for slot in &map.slots {
            match slot.numa_node {
                Some(node) => *numa.entry(node).or_default() |= bit(slot.index),
                None => unknown.push(bit(slot.index)),
            }
        }
        Self {
            partitions: map.partitions.iter().map(|slots| set(slots)).collect(),
            numa: numa.into_values().chain(unknown).collect(),
        }
    }

    fn node(&self, free: SlotSet, is_ready: bool) -> PlacementNode {
        let Self { partitions, numa } = self.clone();
        PlacementNode { free, partitions, numa, is_ready }
    }
}

/// The set of this slot alone; slots from 32 on are in none.
fn bit(slot: u32) -> SlotSet {
    1u32.checked_shl(slot).unwrap_or(0)
}

/// Where a node stands among equals, then its identifier.
type NodeKey = (u128, NodeId);

#[derive(Debug, Default)]
struct Remembered {
    sites: BTreeMap<SiteId, PlacementIndex<NodeKey>>,
    /// Nodes as the database had them at the last look, with their layouts.
    nodes: BTreeMap<NodeId, (FreeSlots, Arc<SlotLayout>)>,
    pending: BTreeMap<ClaimId, (NodeId, SlotSet)>,
    /// Begin of the last look by the clock of its caller; none: there was none.
    looked_at: Option<Timestamp>,
    /// Looks that were begun.
    looks: u64,
}

/// What a store remembers of free slots.
#[derive(Debug)]
pub(crate) struct SlotPlacements {
    /// Mixed into the order of nodes; 0: that of their identifiers.
    salt: u128,
    remembered: Mutex<Remembered>,
    /// Held during a look.
    looking: tokio::sync::Mutex<()>,
}

impl SlotPlacements {
    /// Nothing is remembered.
    pub(crate) fn new(salt: u128) -> Self {
        Self { salt, remembered: Mutex::default(), looking: tokio::sync::Mutex::default() }
    }

    fn remembered(&self) -> MutexGuard<'_, Remembered> {
        self.remembered.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn key(&self, node_id: NodeId) -> NodeKey {
        // Odd, so different identifiers stay different.
        const SPREAD: u128 = 0x9e37_79b9_7f4a_7c15_f39c_c060_5ced_c835;
        match self.salt {
            0 => (0, node_id),
            salt => ((node_id.0.as_u128() ^ salt).wrapping_mul(SPREAD).swap_bytes(), node_id),
        }
    }

    /// Whether what is remembered is too old to plan with.
    pub(crate) fn is_old(&self, now: Timestamp) -> bool {
        let looked_at = self.remembered().looked_at;
        looked_at.is_none_or(|at| !(0.0..FRESH_SECONDS).contains(&now.seconds_since(at)))
    }

    /// Looks that were begun so far.
    pub(crate) fn looks(&self) -> u64 {
        self.remembered().looks
    }

    /// The right to look, one at a time.
    pub(crate) async fn lock_look(&self) -> tokio::sync::MutexGuard<'_, ()> {
        self.looking.lock().await
    }

    /// A look begins.
    pub(crate) fn begin_look(&self, now: Timestamp) {
        let mut remembered = self.remembered();
        remembered.looks += 1;
        remembered.looked_at = Some(now);
    }

    /// A look failed: nothing of it is to be trusted.
    pub(crate) fn forget_look(&self) {
        self.remembered().looked_at = None;
    }

    /// The layout of a node by its digest; none: it has to be read.
    pub(crate) fn layout(&self, node_id: NodeId, digest: &str) -> Option<Arc<SlotLayout>> {
        let remembered = self.remembered();
        let (known, layout) = remembered.nodes.get(&node_id)?;
        (known.digest == digest).then(|| Arc::clone(layout))
    }

    /// Takes over what a look found: all nodes that have free slots.
    pub(crate) fn replace(&self, found: Vec<(FreeSlots, Arc<SlotLayout>)>) {
        let mut remembered = self.remembered();
        let there: BTreeSet<NodeId> = found.iter().map(|(free, _)| free.node_id).collect();
        let gone: Vec<NodeId> =
            remembered.nodes.keys().copied().filter(|id| !there.contains(id)).collect();
        for node_id in gone {
            if let Some((known, _)) = remembered.nodes.get_mut(&node_id) {
                known.free = 0;
            }
            self.index(&mut remembered, node_id);
        }
        for (free, layout) in found {
            self.remember(&mut remembered, free, layout);
        }
    }

    /// Takes over what the database has of one node; `taken` of its slots are somebody's, whatever it
    /// says.
    pub(crate) fn replace_node(&self, node_id: NodeId, free: Option<SlotSet>, taken: SlotSet) {
        let mut remembered = self.remembered();
        if let Some((known, _)) = remembered.nodes.get_mut(&node_id) {
            known.free = free.unwrap_or(0) & !taken;
        }
        self.index(&mut remembered, node_id);
    }

    fn remember(&self, remembered: &mut Remembered, free: FreeSlots, layout: Arc<SlotLayout>) {
        let node_id = free.node_id;
        if let Some((known, _)) = remembered.nodes.get(&node_id)
            && known.site_id != free.site_id
            && let Some(index) = remembered.sites.get_mut(&known.site_id)
        {
            index.remove_node(self.key(node_id));
        }
        remembered.nodes.insert(node_id, (free, layout));
        self.index(remembered, node_id);
    }

    /// Brings a node's entry in line with what is known of it and what is on its way.
    fn index(&self, remembered: &mut Remembered, node_id: NodeId) {
        let key = self.key(node_id);
        let Some((known, layout)) = remembered.nodes.get(&node_id) else { return };
        let pending = remembered.pending.values().filter(|(id, _)| *id == node_id);
        let free = known.free & !pending.fold(0, |all, (_, slots)| all | slots);
        let index = remembered.sites.entry(known.site_id).or_default();
        match index.node(key) {
            Some(node)
                if node.is_ready == known.is_ready
                    && node.partitions == layout.partitions
                    && node.numa == layout.numa =>
            {
                index.set_free(key, free);
            }
            _ => index.set_node(key, layout.node(free, known.is_ready)),
        }
    }

    /// Plans a claim with what is remembered, and keeps others off what it plans.
    pub(crate) fn plan(&self, id: ClaimId, demand: SlotDemand) -> Option<PlannedSlots> {
        let mut remembered = self.remembered();
        let sites = remembered.sites.iter();
        let wanted = sites.filter(|(id, _)| demand.site_id.is_none_or(|wanted| wanted == **id));
        let best = wanted.filter_map(|(_, index)| index.best(demand.gpus, demand.numa)).min()?;
        self.reserve(&mut remembered, id, best.node.1, best.slots)
    }

    /// Plans a claim with what the last look found, whoever else plans the same.
    pub(crate) fn plan_again(
        &self,
        id: ClaimId,
        demand: SlotDemand,
    ) -> Result<PlannedSlots, PlacementRefusal> {
        let mut remembered = self.remembered();
        let mut nodes: Vec<(NodeKey, PlacementNode)> = remembered
            .nodes
            .values()
            .filter(|(free, _)| demand.site_id.is_none_or(|wanted| wanted == free.site_id))
            .map(|(free, layout)| (self.key(free.node_id), layout.node(free.free, free.is_ready)))
            .collect();
        nodes.sort_by_key(|(key, _)| *key);
        let (keys, nodes): (Vec<NodeKey>, Vec<PlacementNode>) = nodes.into_iter().unzip();
        let SlotDemand { gpus, numa, .. } = demand;
        let chosen = choose_slots(gpus, numa, &nodes, PlacementPolicy::BestFit)?;
        let planned = self.reserve(&mut remembered, id, keys[chosen.node].1, chosen.slots);
        planned.ok_or_else(|| refusal(gpus, numa, nodes.iter()))
    }

    fn reserve(
        &self,
        remembered: &mut Remembered,
        id: ClaimId,
        node_id: NodeId,
        slots: SlotSet,
    ) -> Option<PlannedSlots> {
        let FreeSlots { hostname, site, digest, .. } = remembered.nodes.get(&node_id)?.0.clone();
        remembered.pending.insert(id, (node_id, slots));
        self.index(remembered, node_id);
        Some(PlannedSlots { node_id, hostname, site, slots, digest })
    }

    /// A claim is not on its way any more; `taken`: it has its slots.
    fn end_plan(&self, id: ClaimId, taken: bool) {
        let mut remembered = self.remembered();
        let Some((node_id, slots)) = remembered.pending.remove(&id) else { return };
        if taken && let Some((known, _)) = remembered.nodes.get_mut(&node_id) {
            known.free &= !slots;
        }
        self.index(&mut remembered, node_id);
    }

    /// Slots of a node are free again.
    pub(crate) fn give_back(&self, node_id: NodeId, slots: SlotSet) {
        let mut remembered = self.remembered();
        if let Some((known, _)) = remembered.nodes.get_mut(&node_id) {
            known.free |= slots;
        }
        self.index(&mut remembered, node_id);
    }
}

/// A plan under way. It ends with this value, so a request that is given up keeps nobody from slots.
#[derive(Debug)]
pub(crate) struct PlanGuard<'a> {
    placements: &'a SlotPlacements,
    id: ClaimId,
    /// Whether the claim has its slots.
    pub(crate) taken: bool,
}

impl<'a> PlanGuard<'a> {
    /// Of a claim that was planned.
    pub(crate) const fn new(placements: &'a SlotPlacements, id: ClaimId) -> Self {
        Self { placements, id, taken: false }
    }
}

impl Drop for PlanGuard<'_> {
    fn drop(&mut self) {
        self.placements.end_plan(self.id, self.taken);
    }
}

#[cfg(test)]
mod tests {
    use uuid::Uuid;

    use super::*;

    fn board(node: u128, free: SlotSet) -> (FreeSlots, Arc<SlotLayout>) {
        let mut partitions = vec![0xff, 0x0f, 0xf0, 0x03, 0x0c, 0x30, 0xc0];
        partitions.extend((0..8).map(|slot| 1 << slot));
        let node_id = NodeId(Uuid::from_u128(node));
        let site_id = SiteId(Uuid::from_u128(1));
        let (hostname, site, digest) = (node.to_string(), "north".to_owned(), "d".to_owned());
        let is_ready = true;
        let free = FreeSlots { node_id, hostname, site_id, site, digest, free, is_ready };
        (free, Arc::new(SlotLayout { partitions, numa: vec![0x0f, 0xf0] }))
    }

    fn claim(number: u128) -> ClaimId {
        ClaimId(Uuid::from_u128(number))
    }

    const EIGHT: SlotDemand = SlotDemand { gpus: 8, numa: NumaPreference::Required, site_id: None };

    #[test]
    fn what_is_on_its_way_is_planned_once_and_comes_back_where_it_fails() {
        let placements = SlotPlacements::new(0);
        placements.replace(vec![board(1, 0xff), board(2, 0xff)]);
        let first = placements.plan(claim(1), EIGHT).unwrap();
        let second = placements.plan(claim(2), EIGHT).unwrap();
        assert_ne!(first.node_id, second.node_id);
        assert_eq!(placements.plan(claim(3), EIGHT), None);
        // A look that began before the first was committed still has its slots free.
        placements.replace(vec![board(1, 0xff), board(2, 0xff)]);
        assert_eq!(placements.plan(claim(3), EIGHT), None);
        assert!(placements.plan_again(claim(3), EIGHT).is_ok());
        placements.end_plan(claim(3), false);
        placements.end_plan(claim(1), true);
        placements.end_plan(claim(2), false);
        assert_eq!(placements.plan(claim(4), EIGHT), Some(second));
        placements.give_back(first.node_id, 0xff);
        assert_eq!(placements.plan(claim(5), EIGHT), Some(first));
    }

    #[test]
    fn what_another_process_took_is_not_planned_until_the_next_look() {
        let placements = SlotPlacements::new(7);
        placements.replace(vec![board(1, 0xff)]);
        let planned = placements.plan(claim(1), EIGHT).unwrap();
        placements.end_plan(claim(1), false);
        placements.replace_node(planned.node_id, Some(0xff), 0xff);
        assert_eq!(placements.plan(claim(1), EIGHT), None);
        placements.replace(vec![board(1, 0xff)]);
        assert!(placements.plan(claim(1), EIGHT).is_some());
        placements.end_plan(claim(1), false);
        placements.replace(Vec::new());
        let refused = placements.plan_again(claim(1), EIGHT).unwrap_err();
        assert_eq!(refused.free_slots, 0);
    }

    #[test]
    fn each_process_has_an_order_of_its_own() {
        let nodes = || (1..=20).map(|node| board(node, 0xff)).collect::<Vec<_>>();
        let first = |salt| {
            let placements = SlotPlacements::new(salt);
            placements.replace(nodes());
            placements.plan(claim(1), EIGHT).unwrap().node_id
        };
        let chosen: BTreeSet<NodeId> = (1..=8).map(first).collect();
        assert!(chosen.len() > 2, "{chosen:?}");
        assert_eq!(first(0), NodeId(Uuid::from_u128(1)));
    }
}
