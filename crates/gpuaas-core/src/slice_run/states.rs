//! How a claim and its slots stand while they are launched and released.

use gpuaas_types::claim::ClaimState;
use gpuaas_types::slice::{SliceRun, SliceRunKind, SliceRunStatus};
use gpuaas_types::slot::SlotState;

/// How claim and slots stand with this run. Slots of a claim that ended have none.
#[must_use]
pub const fn claim_and_slot_state(run: &SliceRun) -> (ClaimState, SlotState) {
    match (run.kind, run.status) {
        (SliceRunKind::Launch, SliceRunStatus::Running | SliceRunStatus::Blocked) => {
            (ClaimState::Preparing, SlotState::Preparing)
        }
        (SliceRunKind::Launch, SliceRunStatus::Succeeded) => (ClaimState::InUse, SlotState::InUse),
        // Its devices are not what they should be: nobody gets them before an operator looked.
        (SliceRunKind::Launch, SliceRunStatus::Failed) => {
            (ClaimState::Released, SlotState::Faulted)
        }
        (SliceRunKind::Release, SliceRunStatus::Running) => {
            (ClaimState::Releasing, SlotState::Releasing)
        }
        (SliceRunKind::Release, SliceRunStatus::Blocked) => {
            (ClaimState::CleanupBlocked, SlotState::CleanupBlocked)
        }
        (SliceRunKind::Release, SliceRunStatus::Succeeded | SliceRunStatus::Failed) => {
            (ClaimState::Released, SlotState::Free)
        }
    }
}
