//! The digest of a map: what an approval pins.

use std::fmt::Write as _;

use gpuaas_types::slot::{CandidateSlot, SlotGpu, SlotVirtualFunction};
use serde::Serialize;
use sha2::{Digest as _, Sha256};

/// What of a map is pinned, in this order. Blockers, states, paths and distances are not in it: they
/// change while the host stays what it is.
#[derive(Serialize)]
struct PinnedMap<'a> {
    node: &'a str,
    partitions: &'a [Vec<u32>],
    slots: Vec<PinnedSlot<'a>>,
}

#[derive(Serialize)]
struct PinnedSlot<'a> {
    index: u32,
    gpu: &'a SlotGpu,
    fabric_vf: Option<&'a SlotVirtualFunction>,
    nvme_serial: Option<&'a str>,
    numa_node: Option<u32>,
    cpus: &'a str,
    hugepages: u32,
    mac: &'a str,
    private_ip: Option<&'a str>,
}

/// SHA-256 of the pinned part of a map, as 64 hexadecimal digits.
pub(super) fn digest(node: &str, partitions: &[Vec<u32>], slots: &[CandidateSlot]) -> String {
    let slots = slots.iter().map(|slot| PinnedSlot {
        index: slot.index,
        gpu: &slot.gpu,
        fabric_vf: slot.fabric_vf.as_ref(),
        nvme_serial: slot.nvme.as_ref().map(|nvme| nvme.serial.as_str()),
        numa_node: slot.numa_node,
        cpus: &slot.cpus,
        hugepages: slot.hugepages,
        mac: &slot.mac,
        private_ip: slot.private_ip.as_deref(),
    });
    let map = PinnedMap { node, partitions, slots: slots.collect() };
    // Plain structures of numbers and texts can always be written.
    let canonical = serde_json::to_vec(&map).unwrap_or_default();
    let mut text = String::with_capacity(64);
    for byte in Sha256::digest(canonical) {
        write!(text, "{byte:02x}").unwrap_or_default();
    }
    text
}
