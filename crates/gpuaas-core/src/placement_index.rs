//! Best fit over many nodes whose free slots change one node at a time.
//!
//! Looking at every set of every node for each claim costs a thousand nodes a millisecond. Here each
//! node's best set of each size is kept in order, so a claim takes the first, and a change of one node
//! puts that node's few sets in their places again. What it answers is what [`crate::placement::choose_slots`]
//! answers with [`PlacementPolicy::BestFit`](crate::placement::PlacementPolicy::BestFit) for the same nodes in the order of their keys.

use std::collections::{BTreeMap, BTreeSet};

use gpuaas_types::claim::NumaPreference;

use crate::placement::{PlacementNode, SetFit, SlotSet};

/// A set of a node's slots that best fit chose.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct IndexedPlacement<K> {
    /// How well it fits: less is better.
    pub fit: SetFit,
    /// The node.
    pub node: K,
    /// Its slots.
    pub slots: SlotSet,
}

/// GPUs of a claim, and how near to each other they have to be.
type Demand = (u32, NumaPreference);

/// Nodes with the best set of each size that each of them has free.
#[derive(Debug, Clone)]
pub struct PlacementIndex<K> {
    nodes: BTreeMap<K, PlacementNode>,
    /// What each node stands for in `best`.
    entries: BTreeMap<K, Vec<(Demand, IndexedPlacement<K>)>>,
    best: BTreeMap<Demand, BTreeSet<IndexedPlacement<K>>>,
}

impl<K> Default for PlacementIndex<K> {
    fn default() -> Self {
        Self { nodes: BTreeMap::new(), entries: BTreeMap::new(), best: BTreeMap::new() }
    }
}

impl<K: Copy + Ord> PlacementIndex<K> {
    /// The best set for a claim of `gpus` GPUs; none: no node that is ready has one free.
    #[must_use]
    pub fn best(&self, gpus: u32, numa: NumaPreference) -> Option<IndexedPlacement<K>> {
        self.best.get(&(gpus, numa))?.first().copied()
    }

    /// A node by its key.
    #[must_use]
    pub fn node(&self, key: K) -> Option<&PlacementNode> {
        self.nodes.get(&key)
    }

    /// Every node, by its key.
    pub fn nodes(&self) -> impl Iterator<Item = (K, &PlacementNode)> {
        self.nodes.iter().map(|(key, node)| (*key, node))
    }

    /// Puts a node in, in the place of the one that had the key.
    pub fn set_node(&mut self, key: K, node: PlacementNode) {
        if self.nodes.get(&key) == Some(&node) {
            return;
        }
        self.nodes.insert(key, node);
        self.reindex(key);
    }

    /// Takes a node out.
    pub fn remove_node(&mut self, key: K) {
        self.nodes.remove(&key);
        self.reindex(key);
    }

    /// Changes which slots of a node are free; a node that is not there stays so.
    pub fn set_free(&mut self, key: K, free: SlotSet) {
        match self.nodes.get_mut(&key) {
            Some(node) if node.free != free => node.free = free,
            _ => return,
        }
        self.reindex(key);
    }

    fn reindex(&mut self, key: K) {
        for (demand, placement) in self.entries.remove(&key).unwrap_or_default() {
            if let Some(sets) = self.best.get_mut(&demand) {
                sets.remove(&placement);
            }
        }
        let Some(node) = self.nodes.get(&key).filter(|node| node.is_ready) else { return };
        let mut entries: BTreeMap<Demand, IndexedPlacement<K>> = BTreeMap::new();
        for &slots in &node.partitions {
            if slots & node.free != slots || slots == 0 {
                continue;
            }
            let placement = IndexedPlacement { fit: SetFit::new(node, slots), node: key, slots };
            let demands: &[NumaPreference] = if placement.fit.is_numa_split {
                &[NumaPreference::Preferred]
            } else {
                NumaPreference::ALL
            };
            for numa in demands {
                let known = entries.entry((slots.count_ones(), *numa)).or_insert(placement);
                *known = placement.min(*known);
            }
        }
        for (demand, placement) in &entries {
            self.best.entry(*demand).or_default().insert(*placement);
        }
        self.entries.insert(key, entries.into_iter().collect());
    }
}
