//! Slices: virtual machines of claims.

use crate::ids::ClaimId;

/// Folder on a host with a folder for each claim that was launched there.
pub const SLICES_FOLDER: &str = "/var/lib/gpuaas/slices";

/// Folder on a host with the seed of a claim's guest and the variables of its firmware.
#[must_use]
pub fn slice_folder(claim_id: ClaimId) -> String {
    format!("{SLICES_FOLDER}/{claim_id}")
}
