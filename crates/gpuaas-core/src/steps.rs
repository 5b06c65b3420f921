//! The table of steps, and the table of run kinds: what runs are made of.
//!
//! One row per step: its timing bucket, whether it can be cancelled, how long it normally takes,
//! when it gives up, what it makes of the node, and the function that decides in it. Adding a step
//! is: a variant of `Step`, a row here, a function in `decide`.
//!
//! A step means the same in every kind of run, so it has one row, and a kind is an ordered list of
//! steps: a reimage goes through the very rows that an onboarding does. Side steps, from which
//! there is a way back (`release_for_retry`), are in the list too; where a step is followed by
//! another than the list's next, its decision says so.

use gpuaas_types::NodeState as N;
use gpuaas_types::{Bucket, NodeState, RunKind, Step};

use crate::decide::{boot, commission, deploy, discover, leave, ready, release};
use crate::record::RunRecord;
use crate::snapshot::{Decision, Snapshot};

/// What a cancel does in a step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cancel {
    /// Nothing is under way: stop at once.
    Now,
    /// Stop once the effect in flight has a known outcome.
    AfterEffect,
    /// The machine is owned in MAAS and has to be released first.
    NeedsRelease,
}

/// A row of the table.
#[derive(Debug, Clone, Copy)]
pub struct StepRow {
    /// The step.
    pub step: Step,
    /// Where its time is counted.
    pub bucket: Bucket,
    /// What a cancel does.
    pub cancel: Cancel,
    /// Seconds that it normally takes at most; used for "expected by".
    pub expected_seconds: u32,
    /// Seconds after which the run parks.
    pub deadline_seconds: u32,
    /// State of the node from the beginning of the step.
    pub node_state: Option<NodeState>,
    /// The decision.
    pub decide: fn(&Snapshot<'_>) -> Decision,
}

macro_rules! rows {
    ($($step:ident $bucket:ident $cancel:ident $expected:literal $deadline:literal $state:expr, $decide:path;)+) => {
        &[$(StepRow {
            step: Step::$step,
            bucket: Bucket::$bucket,
            cancel: Cancel::$cancel,
            expected_seconds: $expected,
            deadline_seconds: $deadline,
            node_state: $state,
            decide: $decide,
        },)+]
    };
}

const DRAINING: Option<NodeState> = Some(NodeState::Draining);
const ISSUED: Option<NodeState> = Some(NodeState::BootstrapIssued);
const ENROLLING: Option<NodeState> = Some(NodeState::Enrolling);

/// Every step, once.
#[rustfmt::skip]
pub const ROWS: &[StepRow] = rows![
//  step            bucket         cancel       expected deadline node state   decision
    Accept          Accept         Now                10    3600  None,        discover::accept;
    Discover        Discover       AfterEffect        60    3600  None,        discover::discover;
    ReleaseAdopted  Discover       AfterEffect       900    7200  None,        discover::release_adopted;
    RegisterScripts Commission     AfterEffect        30    3600  None,        commission::register_scripts;
    Commission      Commission     AfterEffect      1800   10800  None,        commission::commission;
    PxePreflight    ReadyWait      Now                30    3600  None,        ready::pxe_preflight;
    PrepareStorage  ReadyWait      AfterEffect        60    3600  None,        ready::prepare_storage;
    RoceLinks       ReadyWait      AfterEffect        60    3600  None,        ready::roce_links;
    HardwareSync    ReadyWait      Now                30    3600  None,        ready::hardware_sync;
    PredeployChecks ReadyWait      Now                30    3600  None,        ready::predeploy_checks;
    Deploy          ImageDeploy    NeedsRelease     1800   10800  ISSUED,      deploy::deploy;
    ReleaseForRetry ImageDeploy    AfterEffect       900    7200  None,        deploy::release_for_retry;
    FirstBoot       FirstBoot      NeedsRelease      900    5400  None,        deploy::first_boot;
    BootstrapFetch  BootstrapFetch NeedsRelease      300    3600  None,        boot::bootstrap_fetch;
    SiteBootstrap   SiteBootstrap  NeedsRelease     1800    7200  None,        boot::site_bootstrap;
    NodeBootstrap   NodeBootstrap  NeedsRelease      300    3600  None,        boot::node_bootstrap;
    Enrollment      Enrollment     NeedsRelease      120    3600  ENROLLING,   boot::enrollment;
    PrereqChecks    PrereqChecks   NeedsRelease      120    3600  ENROLLING,   boot::prereq_checks;
    Confirmation    Confirmation   NeedsRelease      120    3600  ENROLLING,   boot::confirmation;
    Drain           Leaving        Now                10    3600  DRAINING,    leave::drain;
    Release         Leaving        AfterEffect      1800   14400  DRAINING,    leave::release;
    PowerOff        Leaving        AfterEffect       120    3600  None,        leave::power_off;
    AgentCleanup    Leaving        Now               300    3600  DRAINING,    leave::agent_cleanup;
    DetachRecord    Leaving        Now                10    3600  None,        leave::detach_record;
    RemoveRecord    Leaving        Now                10    3600  None,        leave::remove_record;
    ReleaseForCancel Leaving       AfterEffect       900    7200  None,        leave::release_for_cancel;
];

/// The deploying part of a run: while it lasts the node takes its image from the region. What
/// `batch_max_parallel` counts; a parked run takes no image and is not counted.
pub const DEPLOYING: [Step; 3] = [Step::Deploy, Step::ReleaseForRetry, Step::FirstBoot];

/// A row of the table of run kinds.
#[derive(Debug, Clone, Copy)]
pub struct KindRow {
    /// The kind.
    pub kind: RunKind,
    /// Its steps, in order.
    pub steps: &'static [Step],
    /// States of a node in which it may begin.
    pub from: &'static [NodeState],
    /// State of the node when it succeeded.
    pub ends: NodeState,
    /// Whether it needs MAAS. One that does not never waits for it, and never asks it.
    pub needs_maas: bool,
}

/// Every kind of run, once.
pub const KINDS: &[KindRow] = &[
    KindRow {
        kind: RunKind::Onboard,
        steps: &[
            Step::Accept,
            Step::Discover,
            Step::ReleaseAdopted,
            Step::RegisterScripts,
            Step::Commission,
            Step::PxePreflight,
            Step::PrepareStorage,
            Step::RoceLinks,
            Step::HardwareSync,
            Step::PredeployChecks,
            Step::Deploy,
            Step::ReleaseForRetry,
            Step::FirstBoot,
            Step::BootstrapFetch,
            Step::SiteBootstrap,
            Step::NodeBootstrap,
            Step::Enrollment,
            Step::PrereqChecks,
            Step::Confirmation,
            Step::ReleaseForCancel,
        ],
        from: &[],
        ends: N::Active,
        needs_maas: true,
    },
    KindRow {
        kind: RunKind::Decommission,
        steps: &[Step::Accept, Step::Drain, Step::Release, Step::PowerOff],
        from: &[
            N::Registered,
            N::BootstrapIssued,
            N::Enrolling,
            N::Active,
            N::Offline,
            N::Quarantined,
            N::Draining,
        ],
        ends: N::Retired,
        needs_maas: true,
    },
    KindRow {
        kind: RunKind::Reimage,
        steps: &[
            Step::Accept,
            Step::Drain,
            Step::Release,
            Step::RegisterScripts,
            Step::Commission,
            Step::PxePreflight,
            Step::PrepareStorage,
            Step::RoceLinks,
            Step::HardwareSync,
            Step::PredeployChecks,
            Step::Deploy,
            Step::ReleaseForRetry,
            Step::FirstBoot,
            Step::BootstrapFetch,
            Step::SiteBootstrap,
            Step::NodeBootstrap,
            Step::Enrollment,
            Step::PrereqChecks,
            Step::Confirmation,
            Step::ReleaseForCancel,
        ],
        from: &[
            N::BootstrapIssued,
            N::Enrolling,
            N::Active,
            N::Offline,
            N::Quarantined,
            N::Draining,
        ],
        ends: N::Active,
        needs_maas: true,
    },
    KindRow {
        kind: RunKind::SoftReset,
        steps: &[Step::Drain, Step::AgentCleanup],
        from: &[N::Active, N::Quarantined],
        ends: N::Active,
        needs_maas: false,
    },
    KindRow {
        kind: RunKind::StorageCleanup,
        steps: &[Step::Drain, Step::AgentCleanup],
        from: &[N::Active, N::Quarantined],
        ends: N::Active,
        needs_maas: false,
    },
    KindRow {
        kind: RunKind::Detach,
        steps: &[Step::DetachRecord],
        from: &[
            N::Registered,
            N::BootstrapIssued,
            N::Enrolling,
            N::Active,
            N::Offline,
            N::Quarantined,
            N::Draining,
            N::Retired,
        ],
        ends: N::Detached,
        needs_maas: false,
    },
    KindRow {
        kind: RunKind::Remove,
        steps: &[Step::RemoveRecord],
        from: &[N::Retired, N::Detached],
        ends: N::Deleted,
        needs_maas: false,
    },
];

/// The row of a kind.
#[must_use]
pub fn kind(kind: RunKind) -> &'static KindRow {
    KINDS.iter().find(|row| row.kind == kind).unwrap_or(&KINDS[0])
}

impl KindRow {
    /// The step that a run of this kind begins with.
    #[must_use]
    pub fn first(&self) -> Step {
        self.steps.first().copied().unwrap_or(Step::Accept)
    }

    /// The step after `step` in the list; `step` itself at its end.
    #[must_use]
    pub fn after(&self, step: Step) -> Step {
        let mut rest = self.steps.iter().copied().skip_while(|other| *other != step);
        rest.next();
        rest.next().unwrap_or(step)
    }
}

/// State of the node when its run was cancelled; none: it stays as it is.
///
/// An onboarding leaves a node that was never in service. Whatever else had already touched the
/// machine leaves it in a state that nobody vouches for; before that, nothing has changed.
#[must_use]
pub fn state_after_cancel(run: &RunRecord) -> Option<NodeState> {
    let before = run.memory.state_before?;
    let touched = [Step::Release, Step::AgentCleanup].iter().any(|s| run.memory.visits(*s) > 0);
    match run.kind {
        RunKind::Onboard => Some(NodeState::Registered),
        _ if touched => Some(NodeState::Quarantined),
        _ => Some(before),
    }
}

/// Mutations of MAAS that a step may ask for, by the names of their effects. The effects a run kind
/// can have are those of its steps: a plan shows them, and tests go through them.
#[must_use]
pub const fn effects(step: Step) -> &'static [&'static str] {
    match step {
        Step::Discover => &["create_machine"],
        Step::ReleaseAdopted | Step::ReleaseForRetry | Step::Release | Step::ReleaseForCancel => {
            release::EFFECTS
        }
        Step::RegisterScripts => &["register_script"],
        Step::Commission => &["commission", "override_failed_testing"],
        Step::PrepareStorage => {
            &["set_boot_disk", "set_storage_layout", "format_block_device", "mount_block_device"]
        }
        Step::RoceLinks => &["unlink_subnet", "link_subnet"],
        Step::Deploy => &["deploy"],
        Step::PowerOff => &["power_off"],
        _ => &[],
    }
}

/// The row of a step.
#[must_use]
pub fn row(step: Step) -> &'static StepRow {
    ROWS.iter().find(|row| row.step == step).unwrap_or(&ROWS[0])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_step_has_its_own_row() {
        for step in Step::ALL {
            assert_eq!(ROWS.iter().filter(|row| row.step == *step).count(), 1, "{step}");
            assert_eq!(row(*step).step, *step);
            assert!(row(*step).expected_seconds <= row(*step).deadline_seconds);
        }
    }

    #[test]
    fn every_kind_has_a_row_and_may_end_as_it_says() {
        use crate::node_state::may_become;
        for kind in RunKind::ALL {
            let rows: Vec<_> = KINDS.iter().filter(|row| row.kind == *kind).collect();
            let [row] = rows.as_slice() else { panic!("{kind}: {rows:?}") };
            let draining = row.steps.contains(&Step::Drain);
            for from in row.from {
                let from = if draining { NodeState::Draining } else { *from };
                let ends = may_become(from, row.ends)
                    || row.steps.contains(&Step::Confirmation) && row.ends == N::Active;
                assert!(ends, "{kind} from {from}");
                assert!(!draining || may_become(from, NodeState::Draining), "{kind} from {from}");
            }
            let asks = row.steps.iter().any(|step| !effects(*step).is_empty());
            assert_eq!(asks, row.needs_maas, "{kind}");
            assert_eq!(row.steps.contains(&Step::Accept), row.needs_maas, "{kind}");
        }
        assert_eq!(kind(RunKind::Decommission).after(Step::Drain), Step::Release);
        assert_eq!(kind(RunKind::Reimage).after(Step::Release), Step::RegisterScripts);
        assert_eq!(kind(RunKind::Onboard).after(Step::Accept), Step::Discover);
    }

    #[test]
    fn every_bucket_has_a_step() {
        for bucket in Bucket::ALL {
            assert!(ROWS.iter().any(|row| row.bucket == *bucket), "{bucket}");
        }
    }

    #[test]
    fn the_table_as_text() {
        let table: Vec<String> = ROWS
            .iter()
            .map(|r| {
                format!(
                    "{:<17}{:<16}{:<14}{:>6}{:>7}",
                    r.step.as_str(),
                    r.bucket.as_str(),
                    format!("{:?}", r.cancel),
                    r.expected_seconds,
                    r.deadline_seconds
                )
            })
            .collect();
        insta::assert_snapshot!(table.join("\n"));
    }
}
