//! What holds of every placement, over random fleets by seed.

use gpuaas_types::claim::NumaPreference;

use crate::placement::*;
use crate::placement_index::PlacementIndex;

const SEEDS: std::ops::Range<u64> = 0..40;
const CLAIMS: usize = 150;

/// Numbers by seed (SplitMix64).
struct Rng(u64);

impl Rng {
    fn below(&mut self, limit: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        usize::try_from((z ^ (z >> 31)) % limit as u64).unwrap()
    }

    fn shuffle<T>(&mut self, items: &mut [T]) {
        for last in (1..items.len()).rev() {
            items.swap(last, self.below(last + 1));
        }
    }
}

/// A board of eight as its module ids fall on slots, one of four without switches, or one whose pairs
/// cross NUMA nodes.
fn node(rng: &mut Rng) -> PlacementNode {
    let mut slots: Vec<u32> = (0..8).collect();
    let numa = vec![0x0f, 0xf0];
    let set = |slots: &[u32]| slots.iter().fold(0, |set, slot| set | 1 << slot);
    let singles = (0..8).map(|slot| 1 << slot);
    let (free, partitions, numa): (SlotSet, Vec<SlotSet>, _) = match rng.below(4) {
        0 => (0x0f, (0..4).map(|slot| 1 << slot).collect(), vec![0x03, 0x0c]),
        1 => {
            rng.shuffle(&mut slots);
            let blocks = slots.chunks(2).chain(slots.chunks(4)).chain([&slots[..]]).map(set);
            (0xff, blocks.chain(singles).collect(), numa)
        }
        _ => {
            let blocks = slots.chunks(2).chain(slots.chunks(4)).chain([&slots[..]]).map(set);
            (0xff, blocks.chain(singles).collect(), numa)
        }
    };
    PlacementNode { free, partitions, numa, is_ready: rng.below(10) > 0 }
}

fn fleet(rng: &mut Rng) -> Vec<PlacementNode> {
    (0..1 + rng.below(12)).map(|_| node(rng)).collect()
}

fn demand(rng: &mut Rng) -> (u32, NumaPreference) {
    ([1, 1, 2, 2, 4, 8, 3][rng.below(7)], NumaPreference::ALL[rng.below(2)])
}

/// A claim that holds slots of a node.
type Held = (usize, SlotSet);

#[test]
fn no_slot_is_given_twice_and_no_set_is_illegal() {
    let (mut placed_sets, mut refused) = (0, 0);
    for seed in SEEDS {
        let mut rng = Rng(seed);
        let mut nodes = fleet(&mut rng);
        let mut held: Vec<Held> = Vec::new();
        for _ in 0..CLAIMS {
            if !held.is_empty() && rng.below(3) == 0 {
                let (node, slots) = held.swap_remove(rng.below(held.len()));
                nodes[node].free |= slots;
            }
            let (gpus, numa) = demand(&mut rng);
            for policy in PlacementPolicy::ALL {
                let chosen = choose_slots(gpus, numa, &nodes, policy);
                let best_fits = choose_slots(gpus, numa, &nodes, PlacementPolicy::BestFit).is_ok();
                if policy != PlacementPolicy::LowestFree {
                    assert_eq!(chosen.is_ok(), best_fits, "seed {seed}: {policy:?} misses a set");
                }
                let Ok(placed) = chosen else { continue };
                let node = &nodes[placed.node];
                assert!(node.is_ready && placed.slots & node.free == placed.slots, "seed {seed}");
                assert_eq!(placed.slots.count_ones(), gpus, "seed {seed}");
                if policy != PlacementPolicy::LowestFree {
                    assert!(node.is_partition(placed.slots), "seed {seed}: {placed:?}");
                    let splits = node.is_numa_split(placed.slots);
                    assert!(!splits || numa == NumaPreference::Preferred, "seed {seed}");
                }
            }
            match choose_slots(gpus, numa, &nodes, PlacementPolicy::BestFit) {
                Ok(SlotPlacement { node, slots }) => {
                    assert!(held.iter().all(|(other, taken)| *other != node || taken & slots == 0));
                    nodes[node].free &= !slots;
                    held.push((node, slots));
                    placed_sets += 1;
                }
                Err(_) => refused += 1,
            }
        }
    }
    assert!(placed_sets > 1000 && refused > 1000, "{placed_sets} placed, {refused} refused");
}

#[test]
fn the_order_in_which_nodes_are_listed_does_not_choose_another_fit() {
    for seed in SEEDS {
        let mut rng = Rng(seed);
        let nodes = fleet(&mut rng);
        let mut order: Vec<usize> = (0..nodes.len()).collect();
        rng.shuffle(&mut order);
        let shuffled: Vec<PlacementNode> = order.iter().map(|at| nodes[*at].clone()).collect();
        let mut turned = nodes.clone();
        turned.iter_mut().for_each(|node| rng.shuffle(&mut node.partitions));
        for gpus in [1, 2, 4, 8] {
            for numa in NumaPreference::ALL {
                let here = choose_slots(gpus, *numa, &nodes, PlacementPolicy::BestFit);
                let there = choose_slots(gpus, *numa, &shuffled, PlacementPolicy::BestFit);
                let fit = |nodes: &[PlacementNode], one: SlotPlacement| {
                    (SetFit::new(&nodes[one.node], one.slots), one.slots.count_ones())
                };
                let fits = (here.map(|one| fit(&nodes, one)), there.map(|one| fit(&shuffled, one)));
                assert_eq!(fits.0, fits.1, "seed {seed}: {gpus} {numa}");
                let same = choose_slots(gpus, *numa, &turned, PlacementPolicy::BestFit);
                assert_eq!(here, same, "seed {seed}: the order of partitions");
            }
        }
    }
}

#[test]
fn the_index_answers_what_a_look_at_every_set_answers() {
    for seed in SEEDS {
        let mut rng = Rng(seed);
        let mut nodes = fleet(&mut rng);
        let mut index = PlacementIndex::default();
        let mut keys: Vec<usize> = (0..nodes.len()).collect();
        rng.shuffle(&mut keys);
        keys.iter().for_each(|key| index.set_node(*key, nodes[*key].clone()));
        for _ in 0..CLAIMS {
            let key = rng.below(nodes.len());
            match rng.below(8) {
                0 => {
                    nodes[key].is_ready = !nodes[key].is_ready;
                    index.set_node(key, nodes[key].clone());
                }
                1 => {
                    index.remove_node(key);
                    index.set_node(key, nodes[key].clone());
                }
                _ => {
                    let all = nodes[key].partitions.iter().fold(0, |all, set| all | set);
                    nodes[key].free = u32::try_from(rng.below(256)).unwrap() & all;
                    index.set_free(key, nodes[key].free);
                }
            }
            let (gpus, numa) = demand(&mut rng);
            let looked = choose_slots(gpus, numa, &nodes, PlacementPolicy::BestFit);
            let indexed = index.best(gpus, numa);
            let indexed = indexed.map(|one| SlotPlacement { node: one.node, slots: one.slots });
            let wanted = looked.ok();
            assert_eq!(indexed, wanted, "seed {seed}");
            let seen: Vec<&PlacementNode> = index.nodes().map(|(_, node)| node).collect();
            assert_eq!(seen, nodes.iter().collect::<Vec<_>>());
        }
    }
}
