//! Blocks that are written to a drive before it is erased, and have to be gone afterwards.
//!
//! Where they are and what is in them follows from the claim and its fencing token, so that the look
//! after the erase needs no memory of what was written before, and finds nothing by accident.

use gpuaas_types::slice::SliceTask;

use super::host::BLOCK_BYTES;

/// Blocks of a drive.
pub(super) const BLOCKS: u64 = 16;

/// The next number after `state` (SplitMix64; Steele, Lea and Flood, OOPSLA 2014).
const fn next(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mut mixed = *state;
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}

/// Offsets and contents of the blocks of a drive of `size_bytes`: one in each sixteenth of it. None
/// where the drive is smaller than that.
pub(super) fn blocks(task: &SliceTask, slot: u32, size_bytes: u64) -> Vec<(u64, Vec<u8>)> {
    let (high, low) = task.claim_id.0.as_u64_pair();
    let mut state = high ^ low.rotate_left(17) ^ task.fence.rotate_left(40) ^ u64::from(slot);
    let block_bytes = BLOCK_BYTES as u64;
    let per_part = size_bytes / block_bytes / BLOCKS;
    if per_part == 0 {
        return Vec::new();
    }
    (0..BLOCKS)
        .map(|part| {
            let offset = (part * per_part + next(&mut state) % per_part) * block_bytes;
            let words = BLOCK_BYTES / size_of::<u64>();
            let content = (0..words).flat_map(|_| next(&mut state).to_le_bytes()).collect();
            (offset, content)
        })
        .collect()
}

/// Whether anything of `written` is in `found`: a word at its place. Two random blocks have one in
/// common once in 2^55 times.
pub(super) fn survives(written: &[u8], found: &[u8]) -> bool {
    written.chunks_exact(8).zip(found.chunks_exact(8)).any(|(one, other)| one == other)
}
