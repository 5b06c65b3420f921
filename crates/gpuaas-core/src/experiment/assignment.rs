//! Which node gets which image: drawn from a recorded seed, so that anybody can draw it again.

use gpuaas_types::experiment::ExperimentArm;

/// A stream of random numbers (SplitMix64, Steele and others 2014), the same everywhere for a seed.
#[derive(Debug, Clone)]
struct SplitMix64(u64);

impl SplitMix64 {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// Below `bound`, each number as likely; what would favour the lower ones is drawn again.
    fn below(&mut self, bound: u64) -> u64 {
        let unfair = u64::MAX - u64::MAX % bound;
        loop {
            let drawn = self.next();
            if drawn < unfair {
                return drawn % bound;
            }
        }
    }

    /// Fisher and Yates' shuffle.
    fn shuffle<T>(&mut self, items: &mut [T]) {
        for at in (1..items.len()).rev() {
            let other = self.below(at as u64 + 1);
            items.swap(at, usize::try_from(other).unwrap_or(at));
        }
    }
}

/// Draws `count` of `hosts` and gives each the arm that it begins with, half of them each. Where the
/// number is odd, A has one more. The order of `hosts` does not matter.
#[must_use]
pub fn assign_nodes(hosts: &[String], count: usize, seed: u64) -> Vec<(String, ExperimentArm)> {
    let mut hosts = hosts.to_vec();
    hosts.sort_unstable();
    hosts.dedup();
    let mut random = SplitMix64(seed);
    random.shuffle(&mut hosts);
    hosts.truncate(count);
    let of_a = hosts.len().div_ceil(2);
    let arm = |at: usize| if at < of_a { ExperimentArm::A } else { ExperimentArm::B };
    let mut assigned: Vec<_> =
        hosts.into_iter().enumerate().map(|(at, host)| (host, arm(at))).collect();
    assigned.sort_unstable();
    assigned
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    fn hosts(count: usize) -> Vec<String> {
        (0..count).map(|n| format!("h{n:03}")).collect()
    }

    #[test]
    fn a_seed_gives_one_assignment_of_equal_halves() {
        let (all, mut seen) = (hosts(30), BTreeSet::new());
        for seed in 0..50 {
            let drawn = assign_nodes(&all, 20, seed);
            let mut turned = all.clone();
            turned.reverse();
            assert_eq!(drawn, assign_nodes(&turned, 20, seed), "{seed}");
            let of_a = drawn.iter().filter(|(_, arm)| *arm == ExperimentArm::A).count();
            assert_eq!((drawn.len(), of_a), (20, 10));
            let names: BTreeSet<&String> = drawn.iter().map(|(host, _)| host).collect();
            assert_eq!(names.len(), 20);
            seen.insert(drawn);
        }
        assert_eq!(seen.len(), 50, "each seed draws another one");
    }

    #[test]
    fn every_host_is_as_often_in_either_arm() {
        let all = hosts(8);
        let mut of_a = vec![0_u32; all.len()];
        for seed in 0..4000 {
            for (at, (_, arm)) in assign_nodes(&all, 8, seed).iter().enumerate() {
                of_a[at] += u32::from(*arm == ExperimentArm::A);
            }
        }
        // Five standard deviations of 4000 throws of a coin.
        assert!(of_a.iter().all(|count| count.abs_diff(2000) < 158), "{of_a:?}");
    }
}
