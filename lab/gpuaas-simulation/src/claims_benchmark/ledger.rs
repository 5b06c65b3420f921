//! Who had which slot when, kept beside the database and held against it.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Mutex, MutexGuard, PoisonError};

use gpuaas_core::placement::{PlacementRefusal, SlotSet};
use gpuaas_store::SlotClaim;
use gpuaas_types::{ClaimId, NodeId, Timestamp};

use crate::slice_fleet::Fleet;

/// What clients of all replicas did.
#[derive(Debug, Clone, Default)]
pub(super) struct Tally {
    /// Milliseconds of each claim and of each release.
    pub(super) latencies_ms: Vec<f64>,
    /// Claims that were made and released.
    pub(super) pairs: u64,
    /// Claims by GPUs.
    pub(super) claims_by_gpus: BTreeMap<u32, u64>,
    /// Plans whose slots were gone.
    pub(super) conflicts: u64,
    /// Claims that were refused, by code.
    pub(super) refused: BTreeMap<String, u64>,
    /// Slots of a claim that another live claim had.
    pub(super) double_claims: u64,
    /// Claims whose slots are no partition.
    pub(super) illegal_sets: u64,
    /// Claims of more NUMA nodes than their size needs.
    pub(super) numa_splits: u64,
}

/// Slots that claims have, as their clients heard it.
#[derive(Debug, Default)]
pub(super) struct Ledger {
    fleet: Fleet,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    tally: Tally,
    /// Each slot's claim, and until when it is that claim's at most.
    held: HashMap<(NodeId, u32), (ClaimId, Timestamp)>,
}

impl Ledger {
    pub(super) fn new(fleet: Fleet) -> Self {
        Self { fleet, state: Mutex::default() }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What was counted so far; nothing is, from then on, of what was before.
    pub(super) fn take(&self) -> Tally {
        std::mem::take(&mut self.state().tally)
    }

    /// A client hears at `now` that it has a claim.
    pub(super) fn claimed(&self, now: Timestamp, claim: &SlotClaim, conflicts: usize, ms: f64) {
        let slots: SlotSet = claim.slots.iter().fold(0, |set, slot| set | 1 << slot.index);
        let node = self.fleet.nodes.get(&claim.node_id);
        let mut state = self.state();
        let State { tally, held } = &mut *state;
        tally.latencies_ms.push(ms);
        *tally.claims_by_gpus.entry(slots.count_ones()).or_default() += 1;
        tally.conflicts += conflicts as u64;
        tally.illegal_sets += u64::from(!node.is_some_and(|node| node.is_partition(slots)));
        tally.numa_splits += u64::from(node.is_some_and(|node| node.is_numa_split(slots)));
        let until = claim.expires_at.unwrap_or(now);
        for slot in &claim.slots {
            let before = held.insert((claim.node_id, slot.index), (claim.id, until));
            // Who has it is gone with its replica, or asked for the release a moment ago.
            let is_double = before.is_some_and(|(_, until)| until > now);
            tally.double_claims += u64::from(is_double);
        }
    }

    /// A client is about to release its claim.
    pub(super) fn releasing(&self, claim: &SlotClaim) {
        let mut state = self.state();
        for slot in &claim.slots {
            let key = (claim.node_id, slot.index);
            if state.held.get(&key).is_some_and(|(id, _)| *id == claim.id) {
                state.held.remove(&key);
            }
        }
    }

    /// A release took so many milliseconds.
    pub(super) fn released(&self, ms: f64) {
        let tally = &mut self.state().tally;
        tally.latencies_ms.push(ms);
        tally.pairs += 1;
    }

    /// A claim was refused.
    pub(super) fn refused(&self, refusal: &PlacementRefusal) {
        self.failed(refusal.reason.as_str());
    }

    /// A claim or a release failed with a code.
    pub(super) fn failed(&self, code: &str) {
        *self.state().tally.refused.entry(code.to_owned()).or_default() += 1;
    }
}

#[cfg(test)]
mod tests {
    use gpuaas_core::placement::PlacementNode;
    use gpuaas_types::claim::{ClaimState, ClaimedSlot, NumaPreference};

    use super::*;

    const NOW: Timestamp = Timestamp::from_micros(1_795_176_000_000_000);

    fn claim(number: u128, slots: &[u32]) -> SlotClaim {
        let slot = |index: &u32| ClaimedSlot {
            index: *index,
            gpu: format!("0000:{index:02x}:00.0"),
            fabric_vf: None,
            nvme: None,
            numa_node: Some(index / 4),
            cpus: String::new(),
            hugepages: 0,
            mac: String::new(),
            private_ip: None,
        };
        SlotClaim {
            id: ClaimId(uuid::Uuid::from_u128(number)),
            node_id: NodeId(uuid::Uuid::nil()),
            hostname: "bench00000".to_owned(),
            site: "bench".to_owned(),
            whole_node: false,
            owner: "bench".to_owned(),
            state: ClaimState::Reserved,
            numa: NumaPreference::Required,
            fence: 1,
            slots: slots.iter().map(slot).collect(),
            created_at: NOW,
            expires_at: Some(NOW.plus_seconds(30.0)),
            ended_at: None,
            reason: String::new(),
        }
    }

    #[test]
    fn what_is_wrong_with_a_claim_is_counted() {
        let node = PlacementNode {
            free: 0xff,
            partitions: vec![0x03, 0x0c, 0x01, 0x02, 0x18],
            numa: vec![0x0f, 0xf0],
            is_ready: true,
        };
        let nodes = [(NodeId(uuid::Uuid::nil()), node)].into();
        let ledger = Ledger::new(Fleet { nodes, slots: 8 });
        let first = claim(1, &[0, 1]);
        ledger.claimed(NOW, &first, 0, 1.0);
        ledger.claimed(NOW, &claim(2, &[3, 4]), 2, 1.0);
        let clean = ledger.take();
        assert_eq!((clean.double_claims, clean.illegal_sets, clean.numa_splits), (0, 0, 1));
        assert_eq!((clean.conflicts, clean.latencies_ms.len()), (2, 2));
        ledger.claimed(NOW.plus_seconds(1.0), &claim(3, &[1, 2]), 0, 1.0);
        let seen = ledger.take();
        assert_eq!((seen.double_claims, seen.illegal_sets), (1, 1));
        // One that was released, or whose time is over, is nobody's.
        ledger.releasing(&claim(3, &[1, 2]));
        ledger.claimed(NOW.plus_seconds(2.0), &claim(4, &[1]), 0, 1.0);
        let fifth = SlotClaim { expires_at: Some(NOW.plus_seconds(60.0)), ..claim(5, &[0]) };
        ledger.claimed(NOW.plus_seconds(31.0), &fifth, 0, 1.0);
        assert_eq!(ledger.take().double_claims, 0);
        ledger.releasing(&first);
        ledger.claimed(NOW.plus_seconds(32.0), &claim(6, &[0]), 0, 1.0);
        assert_eq!(ledger.take().double_claims, 1, "a release of an earlier claim frees nothing");
    }
}
