//! Which slots of a map an operator may approve.

use std::fmt;

use gpuaas_types::slot::{CandidateSlot, SlotBlocker, SlotMap};

/// Why slots cannot be approved.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ApprovalFault {
    /// The map has no slot of this number.
    NoSuchSlot {
        /// The number.
        index: u32,
        /// Slots of the map.
        slots: usize,
    },
    /// What keeps a slot, or the host (no number), from being used cannot be overridden.
    Blocked {
        /// The slot; none: the host.
        index: Option<u32>,
        /// Codes of these blockers.
        codes: Vec<String>,
    },
    /// No slot is without a blocker, and none was named.
    NoneWithoutBlocker,
}

impl fmt::Display for ApprovalFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoSuchSlot { index, slots } => {
                write!(f, "slot {index} does not exist: the host has {slots} slots")
            }
            Self::Blocked { index: Some(index), codes } => {
                write!(f, "slot {index} is blocked by {}", codes.join(", "))
            }
            Self::Blocked { index: None, codes } => {
                write!(f, "the host is blocked by {}", codes.join(", "))
            }
            Self::NoneWithoutBlocker => f.write_str(
                "every slot has a blocker: name the slots whose blockers you want to override",
            ),
        }
    }
}

/// The slots that an approval of `wanted` covers; of none: each slot that has no blocker, on a host
/// that has none. Blockers that may be overridden are overridden only for slots that are named.
///
/// # Errors
/// [`ApprovalFault`]: nothing may be approved.
pub fn approvable<'a>(
    map: &'a SlotMap,
    wanted: &[u32],
) -> Result<Vec<&'a CandidateSlot>, ApprovalFault> {
    blocked(None, &map.host_blockers)?;
    if wanted.is_empty() {
        let slots: Vec<&CandidateSlot> = match map.host_blockers.as_slice() {
            [] => map.slots.iter().filter(|slot| slot.blockers.is_empty()).collect(),
            _ => Vec::new(),
        };
        return if slots.is_empty() { Err(ApprovalFault::NoneWithoutBlocker) } else { Ok(slots) };
    }
    let mut slots: Vec<&CandidateSlot> = Vec::new();
    for &index in wanted {
        let Some(slot) = map.slots.iter().find(|slot| slot.index == index) else {
            return Err(ApprovalFault::NoSuchSlot { index, slots: map.slots.len() });
        };
        blocked(Some(index), &slot.blockers)?;
        if !slots.contains(&slot) {
            slots.push(slot);
        }
    }
    Ok(slots)
}

fn blocked(index: Option<u32>, blockers: &[SlotBlocker]) -> Result<(), ApprovalFault> {
    match final_blockers(blockers) {
        codes if codes.is_empty() => Ok(()),
        codes => Err(ApprovalFault::Blocked { index, codes }),
    }
}

/// Why a slot that was approved may not be handed out any more, by the map that is there now; none:
/// nothing keeps it. `digest` is that of the map that was approved.
#[must_use]
pub fn stale_reason(map: &SlotMap, index: u32, digest: &str) -> Option<String> {
    if map.digest != digest {
        return Some("the host has changed since its slots were approved".to_owned());
    }
    let slot = map.slots.iter().find(|slot| slot.index == index);
    let mut codes = final_blockers(&map.host_blockers);
    codes.extend(slot.map(|slot| final_blockers(&slot.blockers)).unwrap_or_default());
    (!codes.is_empty()).then(|| format!("blocked by {}", codes.join(", ")))
}

/// Codes of the blockers that nobody can override.
fn final_blockers(blockers: &[SlotBlocker]) -> Vec<String> {
    blockers.iter().filter(|one| !one.overridable).map(|one| one.code.clone()).collect()
}
