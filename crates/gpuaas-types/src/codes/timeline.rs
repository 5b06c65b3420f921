//! Lines of a node's history.

#[macro_use]
mod run;
#[macro_use]
mod node;

use crate::RunKind;
use crate::agent::{Gate, PhaseOutcome};
use crate::api::Owner;

/// A row of [`TIMELINE`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TimelineRow {
    /// The code.
    pub code: TimelineCode,
    /// What happened, in a few words.
    pub title: &'static str,
    /// Who has to act; none: nobody.
    pub owner: Option<Owner>,
    /// What to do; empty: nothing.
    pub next_action: &'static str,
    /// What the line means, and what its text says.
    pub doc: &'static str,
}

impl TimelineCode {
    /// The line that a run of this kind begins with.
    #[must_use]
    pub const fn accepted(kind: RunKind) -> Self {
        match kind {
            RunKind::Onboard => Self::OnboardAccepted,
            RunKind::Decommission => Self::DecommissionAccepted,
            RunKind::Reimage => Self::ReimageAccepted,
            RunKind::SoftReset => Self::SoftResetAccepted,
            RunKind::StorageCleanup => Self::StorageCleanupAccepted,
            RunKind::Detach => Self::DetachAccepted,
            RunKind::Remove => Self::RemoveAccepted,
        }
    }

    /// The line that says that a gate opened or shut.
    #[must_use]
    pub const fn gate(gate: Gate, is_open: bool) -> Self {
        match (gate, is_open) {
            (Gate::Active, true) => Self::GateActiveOpen,
            (Gate::Active, false) => Self::GateActiveShut,
            (Gate::SliceReady, true) => Self::GateSliceReadyOpen,
            (Gate::SliceReady, false) => Self::GateSliceReadyShut,
            (Gate::Telemetry, true) => Self::GateTelemetryOpen,
            (Gate::Telemetry, false) => Self::GateTelemetryShut,
        }
    }

    /// The line that says how a phase of a bundle ended.
    #[must_use]
    pub const fn phase(outcome: PhaseOutcome) -> Self {
        match outcome {
            PhaseOutcome::Ran => Self::BundlePhaseFinished,
            PhaseOutcome::Skipped => Self::BundlePhaseSkipped,
            PhaseOutcome::Failed => Self::BundlePhaseFailed,
        }
    }
}

rows_of_nodes! { rows_of_runs! { codes! {
/// What a line of a node's history says, as its `code` names it.
TimelineCode, TimelineRow, TIMELINE;
} } }
