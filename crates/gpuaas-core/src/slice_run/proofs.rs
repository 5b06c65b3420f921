//! What has to be proven before slots are free again.

use gpuaas_types::Timestamp;
use gpuaas_types::claim::ClaimedSlot;
use gpuaas_types::slice::{ProofResult, ProofSubject, RecordedProof, SlicePartition};

/// What of a release is unproven (of one with a `partition`, that as well), one text each: subject, slot, and what was seen instead. Of several
/// proofs of one subject the last one counts, and none that is older than `since`.
#[must_use]
pub fn missing_proofs(
    slots: &[ClaimedSlot],
    partition: Option<&SlicePartition>,
    proofs: &[RecordedProof],
    since: Timestamp,
) -> Vec<String> {
    let mut missing = Vec::new();
    for (slot, subject, device) in required(slots, partition.is_some()) {
        let last = proofs.iter().rev().find(|recorded| {
            let proof = &recorded.proof;
            recorded.at >= since
                && proof.slot == slot
                && proof.subject == subject
                && device.is_none_or(|device| proof.device == device)
        });
        match last.map(|recorded| (&recorded.proof, recorded.proof.result)) {
            Some((_, ProofResult::Proven)) => {}
            Some((_, ProofResult::ResetOnly | ProofResult::Scrubbed))
                if subject == ProofSubject::GpuMemory => {}
            Some((proof, result)) => missing.push(format!(
                "{subject} of slot {slot} is {result} ({}: {})",
                proof.reader, proof.detail
            )),
            None => missing.push(format!("{subject} of slot {slot} has no proof")),
        }
    }
    missing
}

/// Slot, subject and device of each proof that there has to be.
fn required(slots: &[ClaimedSlot], is_partition: bool) -> Vec<(u32, ProofSubject, Option<&str>)> {
    let mut wanted = Vec::new();
    if let Some(first) = slots.first() {
        wanted.push((first.index, ProofSubject::DomainGone, None));
        wanted.push((first.index, ProofSubject::FilesRemoved, None));
        if is_partition {
            wanted.push((first.index, ProofSubject::PartitionInactive, None));
        }
    }
    for slot in slots {
        let (index, gpu) = (slot.index, Some(slot.gpu.as_str()));
        wanted.push((index, ProofSubject::DevicesUnheld, gpu));
        wanted.push((index, ProofSubject::GpuReset, gpu));
        wanted.push((index, ProofSubject::GpuMemory, gpu));
        if let Some(function) = &slot.fabric_vf {
            wanted.push((index, ProofSubject::VfReset, Some(function)));
            wanted.push((index, ProofSubject::VfIdentityCleared, Some(function)));
            wanted.push((index, ProofSubject::DevicesUnheld, Some(function)));
        }
        if let Some(drive) = &slot.nvme {
            wanted.push((index, ProofSubject::DriveErased, Some(drive)));
            wanted.push((index, ProofSubject::DriveReadBack, Some(drive)));
        }
    }
    wanted
}
