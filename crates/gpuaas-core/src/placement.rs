//! Which slots a claim gets. Pure: nodes with their free slots in, a set of one node out.
//!
//! A claim of several GPUs gets one of the fabric's own partitions, exactly: GPUs of no partition
//! cannot be joined by NVLink, and would be isolated from each other within one guest. Partitions of
//! a board are nested, so what a claim takes decides which larger ones stay whole. Best fit looks for
//! the set that breaks the fewest of them, the largest first, and among equal ones for the fullest
//! node, so that empty nodes stay empty. Taking the first set that fits breaks more; spreading breaks
//! nearly all. Policies other than best fit are there to be compared with it.

use gpuaas_types::claim::{ClaimRefusal, NumaPreference};

/// A set of a node's slots; bit `n` is slot `n`.
pub type SlotSet = u32;

/// A node whose slots may be claimed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PlacementNode {
    /// Slots that may be claimed now.
    pub free: SlotSet,
    /// Sets that may be claimed together, single slots among them.
    pub partitions: Vec<SlotSet>,
    /// The slots of each NUMA node.
    pub numa: Vec<SlotSet>,
    /// Whether the node is ready for slices.
    pub is_ready: bool,
}

/// Slots for a claim.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SlotPlacement {
    /// Number of the node in the list.
    pub node: usize,
    /// Its slots.
    pub slots: SlotSet,
}

/// Why a claim got no slots, with what was counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PlacementRefusal {
    /// Which of the three it is.
    pub reason: ClaimRefusal,
    /// Free slots of nodes that are ready.
    pub free_slots: u32,
    /// Most free slots of one node that is ready.
    pub most_on_one_node: u32,
    /// Nodes that would have a set, and are not ready.
    pub nodes_not_ready: u32,
}

/// How a set is chosen.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum PlacementPolicy {
    /// A partition that breaks the fewest larger ones; then the fullest node.
    BestFit,
    /// The first free partition of the first node.
    FirstFit,
    /// The first free partition of the emptiest node.
    Spread,
    /// The lowest free slots of the first node that has enough, whether they are a partition or not.
    LowestFree,
}

impl PlacementPolicy {
    /// Every policy.
    pub const ALL: [Self; 4] = [Self::BestFit, Self::FirstFit, Self::Spread, Self::LowestFree];

    /// Its written form.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::BestFit => "best_fit",
            Self::FirstFit => "first_fit",
            Self::Spread => "spread",
            Self::LowestFree => "lowest_free",
        }
    }
}

impl PlacementNode {
    /// Whether `slots` is one of the node's partitions.
    #[must_use]
    pub fn is_partition(&self, slots: SlotSet) -> bool {
        self.partitions.contains(&slots)
    }

    /// Whether `slots` is of more NUMA nodes than its size needs.
    ///
    /// ```
    /// use gpuaas_core::placement::PlacementNode;
    /// let node = PlacementNode {
    ///     free: 0xff, partitions: Vec::new(), numa: vec![0x0f, 0xf0], is_ready: true,
    /// };
    /// assert!(!node.is_numa_split(0x0f));
    /// assert!(node.is_numa_split(0x18));
    /// assert!(!node.is_numa_split(0xff)); // eight do not fit into one
    /// ```
    #[must_use]
    pub fn is_numa_split(&self, slots: SlotSet) -> bool {
        let mut sizes: Vec<u32> = self.numa.iter().map(|node| node.count_ones()).collect();
        sizes.sort_unstable_by(|a, b| b.cmp(a));
        let mut rest = slots.count_ones();
        let needed = sizes.iter().take_while(|size| {
            let more = rest > 0;
            rest = rest.saturating_sub(**size);
            more
        });
        let needed = needed.count();
        self.numa.iter().filter(|node| **node & slots != 0).count() > needed
    }

    /// Free partitions of `gpus` slots, in the order of their slots.
    fn free_partitions(&self, gpus: u32) -> impl Iterator<Item = SlotSet> + '_ {
        let fits =
            move |set: &SlotSet| set.count_ones() == gpus && set & self.free == *set && *set != 0;
        self.partitions.iter().copied().filter(fits)
    }

    /// Free partitions that taking `slots` would break, by size: those of 32 slots first.
    fn broken_partitions(&self, slots: SlotSet) -> [u8; 33] {
        let mut broken = [0u8; 33];
        for set in &self.partitions {
            let is_broken = set & self.free == *set && set & slots != 0 && *set & !slots != 0;
            if is_broken {
                let count = &mut broken[32 - set.count_ones() as usize];
                *count = count.saturating_add(1);
            }
        }
        broken
    }

    /// The lowest free slots, `gpus` of them.
    fn lowest_free(&self, gpus: u32) -> Option<SlotSet> {
        let mut slots = 0;
        for slot in (0..32).map(|slot| 1 << slot).filter(|slot| self.free & slot != 0) {
            if SlotSet::count_ones(slots) == gpus {
                break;
            }
            slots |= slot;
        }
        (slots.count_ones() == gpus && gpus > 0).then_some(slots)
    }
}

/// The slots of a claim of `gpus` GPUs, by `policy`. The same for the same arguments.
///
/// # Errors
/// Which of the three reasons there is to refuse it, with the counts.
pub fn choose_slots(
    gpus: u32,
    numa: NumaPreference,
    nodes: &[PlacementNode],
    policy: PlacementPolicy,
) -> Result<SlotPlacement, PlacementRefusal> {
    let ready = nodes.iter().enumerate().filter(|(_, node)| node.is_ready);
    let chosen = match policy {
        PlacementPolicy::BestFit => {
            ready.flat_map(|(at, node)| sets(at, node, gpus, numa)).min_by_key(|(node, placed)| {
                (SetFit::new(node, placed.slots), placed.node, placed.slots)
            })
        }
        PlacementPolicy::FirstFit => ready.flat_map(|(at, node)| sets(at, node, gpus, numa)).next(),
        PlacementPolicy::Spread => {
            ready.flat_map(|(at, node)| sets(at, node, gpus, numa)).min_by_key(|(node, placed)| {
                (std::cmp::Reverse(node.free.count_ones()), placed.node, placed.slots)
            })
        }
        PlacementPolicy::LowestFree => ready
            .filter_map(|(at, node)| {
                Some((node, SlotPlacement { node: at, slots: node.lowest_free(gpus)? }))
            })
            .next(),
    };
    chosen.map(|(_, placed)| placed).ok_or_else(|| refusal(gpus, numa, nodes.iter()))
}

/// Free partitions of a node that a claim may have.
fn sets(
    at: usize,
    node: &PlacementNode,
    gpus: u32,
    numa: NumaPreference,
) -> impl Iterator<Item = (&PlacementNode, SlotPlacement)> {
    node.free_partitions(gpus)
        .filter(move |slots| numa == NumaPreference::Preferred || !node.is_numa_split(*slots))
        .map(move |slots| (node, SlotPlacement { node: at, slots }))
}

/// What best fit minimizes, in this order; among equals the node that comes first, and its lowest slots.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct SetFit {
    /// Whether the set is of more NUMA nodes than its size needs.
    pub is_numa_split: bool,
    /// Free partitions that it breaks, by size: those of 32 slots first.
    broken: [u8; 33],
    /// Free slots of its node.
    pub free_slots: u32,
}

impl SetFit {
    /// Of a set of a node's free slots.
    #[must_use]
    pub fn new(node: &PlacementNode, slots: SlotSet) -> Self {
        Self {
            is_numa_split: node.is_numa_split(slots),
            broken: node.broken_partitions(slots),
            free_slots: node.free.count_ones(),
        }
    }
}

/// Why none of `nodes` has slots for a claim.
#[must_use]
pub fn refusal<'n>(
    gpus: u32,
    numa: NumaPreference,
    nodes: impl Iterator<Item = &'n PlacementNode>,
) -> PlacementRefusal {
    let (mut free_slots, mut most_on_one_node, mut nodes_not_ready) = (0u32, 0, 0u32);
    for node in nodes {
        if node.is_ready {
            free_slots += node.free.count_ones();
            most_on_one_node = most_on_one_node.max(node.free.count_ones());
        } else {
            nodes_not_ready += u32::from(sets(0, node, gpus, numa).next().is_some());
        }
    }
    let reason = if nodes_not_ready > 0 {
        ClaimRefusal::NotReady
    } else if free_slots < gpus {
        ClaimRefusal::NoneInSite
    } else {
        ClaimRefusal::NoSingleNodeFits
    };
    PlacementRefusal { reason, free_slots, most_on_one_node, nodes_not_ready }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A board of eight with two NUMA nodes, whose pairs are 0 and 1, 2 and 3 and so on.
    fn board(free: SlotSet) -> PlacementNode {
        let mut partitions = vec![0xff, 0x0f, 0xf0, 0x03, 0x0c, 0x30, 0xc0];
        partitions.extend((0..8).map(|slot| 1 << slot));
        PlacementNode { free, partitions, numa: vec![0x0f, 0xf0], is_ready: true }
    }

    fn best(gpus: u32, nodes: &[PlacementNode]) -> Result<SlotPlacement, PlacementRefusal> {
        choose_slots(gpus, NumaPreference::Required, nodes, PlacementPolicy::BestFit)
    }

    #[test]
    fn larger_partitions_stay_whole() {
        // One GPU goes beside the one that is taken, not into a whole node or a whole pair.
        let nodes = [board(0xff), board(0b1111_1110)];
        assert_eq!(best(1, &nodes), Ok(SlotPlacement { node: 1, slots: 0b10 }));
        // A pair goes into the half that is broken already.
        let nodes = [board(0xff), board(0b1111_1100)];
        assert_eq!(best(2, &nodes), Ok(SlotPlacement { node: 1, slots: 0b1100 }));
        assert_eq!(best(8, &nodes), Ok(SlotPlacement { node: 0, slots: 0xff }));
    }

    #[test]
    fn the_fullest_node_wins_among_equals() {
        let nodes = [board(0xff), board(0x30), board(0x3f)];
        assert_eq!(best(2, &nodes), Ok(SlotPlacement { node: 1, slots: 0x30 }));
    }

    #[test]
    fn a_set_is_a_partition_or_nothing() {
        // Two are free, and of two pairs.
        let nodes = [board(0b0000_0110)];
        let refused = best(2, &nodes).unwrap_err();
        assert_eq!(refused.reason, ClaimRefusal::NoSingleNodeFits);
        assert_eq!((refused.free_slots, refused.most_on_one_node), (2, 2));
        let lowest =
            choose_slots(2, NumaPreference::Required, &nodes, PlacementPolicy::LowestFree).unwrap();
        assert!(!nodes[0].is_partition(lowest.slots));
    }

    #[test]
    fn a_refusal_says_which_of_three() {
        let busy = best(4, &[board(0x03)]).unwrap_err();
        assert_eq!(busy.reason, ClaimRefusal::NoneInSite);
        let waiting = PlacementNode { is_ready: false, ..board(0xff) };
        let refused = best(4, &[board(0x03), waiting]).unwrap_err();
        assert_eq!((refused.reason, refused.nodes_not_ready), (ClaimRefusal::NotReady, 1));
        assert_eq!(refused.free_slots, 2);
        assert_eq!(best(3, &[board(0xff)]).unwrap_err().reason, ClaimRefusal::NoSingleNodeFits);
        assert_eq!(best(0, &[board(0xff)]).unwrap_err().reason, ClaimRefusal::NoSingleNodeFits);
    }

    #[test]
    fn a_split_is_taken_only_where_it_may_be() {
        // Pairs that cross the nodes.
        let mut node = board(0b0011_1100);
        node.partitions = vec![0b0001_1000, 0b0010_0100];
        let nodes = [node];
        assert!(best(2, &nodes).is_err());
        let placed = choose_slots(2, NumaPreference::Preferred, &nodes, PlacementPolicy::BestFit);
        assert_eq!(placed, Ok(SlotPlacement { node: 0, slots: 0b0001_1000 }));
    }
}
