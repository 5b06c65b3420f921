//! The table of steps: what an onboarding is made of.
//!
//! One row per step: its timing bucket, whether it can be cancelled, how long it normally takes,
//! when it gives up, what it makes of the node, and the function that decides in it. Adding a step
//! is: a variant of `Step`, a row here, a function in `decide`.

use gpuaas_types::{Bucket, NodeState, Step};

use crate::decide::{boot, deploy, discover, ready};
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

const ISSUED: Option<NodeState> = Some(NodeState::BootstrapIssued);
const ENROLLING: Option<NodeState> = Some(NodeState::Enrolling);

/// Steps of an onboarding, in order.
#[rustfmt::skip]
pub const ONBOARD: &[StepRow] = rows![
//  step            bucket         cancel       expected deadline node state   decision
    Accept          Accept         Now                10    3600  None,        discover::accept;
    Discover        Discover       AfterEffect        60    3600  None,        discover::discover;
    ReleaseAdopted  Discover       AfterEffect       900    7200  None,        discover::release_adopted;
    Commission      Commission     AfterEffect      1800   10800  None,        discover::commission;
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
];

/// The deploying part of a run: while it lasts the node takes its image from the region. What
/// `batch_max_parallel` counts; a parked run takes no image and is not counted.
pub const DEPLOYING: [Step; 3] = [Step::Deploy, Step::ReleaseForRetry, Step::FirstBoot];

/// The row of a step.
#[must_use]
pub fn row(step: Step) -> &'static StepRow {
    ONBOARD.iter().find(|row| row.step == step).unwrap_or(&ONBOARD[0])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_step_has_its_own_row() {
        for step in Step::ALL {
            assert_eq!(ONBOARD.iter().filter(|row| row.step == *step).count(), 1, "{step}");
            assert_eq!(row(*step).step, *step);
            assert!(row(*step).expected_seconds <= row(*step).deadline_seconds);
        }
    }

    #[test]
    fn every_bucket_has_a_step() {
        for bucket in Bucket::ALL {
            assert!(ONBOARD.iter().any(|row| row.bucket == *bucket), "{bucket}");
        }
    }

    #[test]
    fn the_table_as_text() {
        let table: Vec<String> = ONBOARD
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
