//! What actions share: looks at functions, and proofs of what is seen.

use gpuaas_types::slice::{ProofResult, ProofSubject, SliceProof};

use super::host::SliceHostError;

/// Driver of functions that are for guests.
pub(super) const GUEST_DRIVER: &str = "vfio-pci";
/// Seconds between two looks at what takes a while.
pub(super) const LOOK_SECONDS: u32 = 5;

pub(super) fn check_unheld(
    address: &str,
    holders: Option<&[String]>,
) -> Result<(), SliceHostError> {
    match holders {
        Some([]) => Ok(()),
        Some(holders) => {
            let message = format!("{address} is held by {}", holders.join(", "));
            Err(SliceHostError::new("device_held", message))
        }
        None => {
            let message = format!("cannot determine what holds {address}");
            Err(SliceHostError::new("holders_unknown", message))
        }
    }
}

pub(super) fn proof(slot: u32, subject: ProofSubject, device: &str) -> SliceProof {
    SliceProof {
        slot,
        subject,
        device: device.to_owned(),
        method: String::new(),
        result: ProofResult::Unproven,
        reader: "sysfs".to_owned(),
        detail: String::new(),
    }
}
