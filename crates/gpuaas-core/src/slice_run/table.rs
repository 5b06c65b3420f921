//! The parts of a launch and of a release, and the actions that they are made of, as tables.

use gpuaas_types::slice::{
    DomainState, GUEST_TIMEOUT_SECONDS, SliceAction, SlicePart, SliceReport, SliceRunKind,
};

/// Parts of a launch, in order.
const LAUNCH: &[SlicePart] = &[
    SlicePart::Claim,
    SlicePart::Verify,
    SlicePart::Prepare,
    SlicePart::Define,
    SlicePart::Start,
    SlicePart::GuestReady,
];
/// Parts of a release, in order.
const RELEASE: &[SlicePart] =
    &[SlicePart::Stop, SlicePart::Reset, SlicePart::Erase, SlicePart::Verify, SlicePart::Return];

/// Parts of a launch or of a release, in order.
#[must_use]
pub const fn parts(kind: SliceRunKind) -> &'static [SlicePart] {
    match kind {
        SliceRunKind::Launch => LAUNCH,
        SliceRunKind::Release => RELEASE,
    }
}

/// The part after `part`; none: it is the last.
pub(super) fn next_part(kind: SliceRunKind, part: SlicePart) -> Option<SlicePart> {
    let parts = parts(kind);
    let at = parts.iter().position(|one| *one == part)?;
    parts.get(at + 1).copied()
}

/// What the agent does in a part; none: nothing.
pub(super) const fn action(kind: SliceRunKind, part: SlicePart) -> Option<SliceAction> {
    match (kind, part) {
        (SliceRunKind::Launch, SlicePart::Verify) => Some(SliceAction::Verify),
        (SliceRunKind::Release, SlicePart::Verify) => Some(SliceAction::ReadBack),
        (_, SlicePart::Prepare) => Some(SliceAction::Prepare),
        (_, SlicePart::Define) => Some(SliceAction::Define),
        (_, SlicePart::Start) => Some(SliceAction::Start),
        (_, SlicePart::GuestReady) => Some(SliceAction::AwaitGuest),
        (_, SlicePart::Stop) => Some(SliceAction::Stop),
        (_, SlicePart::Reset) => Some(SliceAction::Reset),
        (_, SlicePart::Erase) => Some(SliceAction::Erase),
        (_, SlicePart::Claim | SlicePart::Return) => None,
    }
}

/// How it is found out whether an action whose outcome is unknown has happened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ProbeRule {
    /// It changes nothing, so it is just done again.
    Again,
    /// The domain is there.
    DomainDefined,
    /// The domain runs.
    DomainRuns,
    /// libvirt does not know the domain.
    DomainGone,
    /// Image and seed are there to the end.
    Prepared,
    /// Nothing shows it. It is done again once nothing of it goes on, and once the domain is gone: a
    /// second time does no harm then.
    AgainWhenQuiet,
}

/// What an observation says of an action whose outcome is unknown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Probed {
    /// It happened.
    Happened,
    /// It goes on.
    NotYet,
    /// It did not happen, or does no harm a second time.
    DidNotHappen,
}

impl ProbeRule {
    /// What `report` says.
    pub(super) const fn judge(self, report: &SliceReport) -> Probed {
        let happened = match self {
            Self::Again => false,
            Self::DomainDefined => !matches!(report.domain, DomainState::Absent),
            Self::DomainRuns => matches!(report.domain, DomainState::Running),
            Self::DomainGone => matches!(report.domain, DomainState::Absent),
            Self::Prepared => report.prepared,
            Self::AgainWhenQuiet => {
                let is_quiet = !report.erasing && matches!(report.domain, DomainState::Absent);
                return if is_quiet { Probed::DidNotHappen } else { Probed::NotYet };
            }
        };
        if happened { Probed::Happened } else { Probed::DidNotHappen }
    }
}

/// An action of agents.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SliceActionRow {
    /// The action.
    pub action: SliceAction,
    /// Seconds that it may take, from the moment at which the agent is told.
    pub limit_seconds: u32,
    /// Times that it is given at most in one part.
    pub tries: u32,
    /// How it is found out whether it happened.
    pub(super) probe: ProbeRule,
}

const fn row(
    action: SliceAction,
    limit_seconds: u32,
    tries: u32,
    probe: ProbeRule,
) -> SliceActionRow {
    SliceActionRow { action, limit_seconds, tries, probe }
}

/// The row of an action. A sanitize of a large drive by overwriting takes hours (NVM Express Base
/// Specification 2.0, 8.21).
#[must_use]
pub const fn action_row(action: SliceAction) -> SliceActionRow {
    match action {
        SliceAction::Verify => row(action, 120, 2, ProbeRule::Again),
        SliceAction::Prepare => row(action, 3600, 2, ProbeRule::Prepared),
        SliceAction::Define => row(action, 120, 2, ProbeRule::DomainDefined),
        SliceAction::Start => row(action, 600, 2, ProbeRule::DomainRuns),
        SliceAction::AwaitGuest => row(action, GUEST_TIMEOUT_SECONDS + 100, 2, ProbeRule::Again),
        SliceAction::Stop => row(action, 300, 3, ProbeRule::DomainGone),
        SliceAction::Reset => row(action, 600, 2, ProbeRule::AgainWhenQuiet),
        SliceAction::Erase => row(action, 6 * 3600, 2, ProbeRule::AgainWhenQuiet),
        SliceAction::ReadBack => row(action, 600, 3, ProbeRule::AgainWhenQuiet),
        SliceAction::Probe => row(action, 120, 1, ProbeRule::Again),
    }
}
