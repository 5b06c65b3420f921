//! The steps of a run, the kinds of runs, and the mutations of MAAS that steps may ask for: tables
//! of pure data.
//!
//! A step means the same in every kind of run, so it has one row: in which kinds it occurs, where
//! its time is counted, what a cancel does in it, how long it may take, what it makes of the node,
//! and which mutations of MAAS it may ask for. The order of a kind's steps is the order of the
//! rows that name the kind. A reimage therefore goes through the very rows that an onboarding does.
//!
//! **Main** steps follow each other. A **side** step is entered only because a decision asks for it
//! (`gpuaas_core::Decision::AdvanceTo`), such as the release of a failed deployment before the next
//! attempt; whoever goes on to the next step passes it by.
//!
//! # Adding a step
//! A row in this table, a function below `gpuaas-core/src/decide`, and an arm of the match in
//! `gpuaas-core/src/decide/table.rs`, which does not compile without it. A step with an effect of
//! its own adds a row of [`EffectKind`] here, the effect in `gpuaas-core/src/effect.rs` and its call
//! in `gpuaas-engine/src/run/maas_request.rs`. A read adds a variant in `gpuaas-core/src/snapshot.rs` and
//! its arm in `gpuaas-engine/src/run/reads.rs`; a context a field of `Snapshot` and what fills it in
//! `gpuaas-engine/src/run/context.rs`.
//!
//! ```
//! use gpuaas_types::steps::KINDS;
//! use gpuaas_types::{RunKind, Step};
//!
//! let onboard = RunKind::Onboard.row();
//! assert_eq!(onboard.first(), Step::Accept);
//! assert_eq!(onboard.next_after(Step::Deploy), Some(Step::FirstBoot));
//! assert!(KINDS.iter().all(|kind| !kind.steps.is_empty()));
//! ```

use crate::lifecycle::NodeState as N;
use crate::lifecycle::{Bucket, NodeState, RunKind};
use crate::string_enum::string_enum;

string_enum!(
    /// A kind of mutation of MAAS. Its written form stands in the journal of effects, in metrics,
    /// and in the plan of a run; what a run asks for with its parameters is
    /// `gpuaas_core::effect::Effect`.
    EffectKind {
        /// Creates the machine: `POST machines/`.
        CreateMachine = "create_machine",
        /// Releases the machine: `op=release`.
        Release = "release",
        /// Writes a commissioning script: `POST scripts/`, or `PUT scripts/NAME`.
        RegisterScript = "register_script",
        /// Commissions the machine: `op=commission`.
        Commission = "commission",
        /// Takes a machine in Failed testing as Ready: `op=override_failed_testing`.
        OverrideFailedTesting = "override_failed_testing",
        /// Chooses the disk to boot from: `op=set_boot_disk`.
        SetBootDisk = "set_boot_disk",
        /// Lays out the storage: `op=set_storage_layout`.
        SetStorageLayout = "set_storage_layout",
        /// Makes a filesystem on a whole disk: `op=format`.
        FormatBlockDevice = "format_block_device",
        /// Gives a filesystem its mount point: `op=mount`.
        MountBlockDevice = "mount_block_device",
        /// Takes a link off an interface: `op=unlink_subnet`.
        UnlinkSubnet = "unlink_subnet",
        /// Gives an interface an address: `op=link_subnet`.
        LinkSubnet = "link_subnet",
        /// Writes a tag with its kernel options: `POST tags/`, or `PUT tags/NAME/`.
        WriteTag = "write_tag",
        /// Gives the machine a tag: `tags/NAME/ op=update_nodes`.
        TagMachine = "tag_machine",
        /// Takes a tag from the machine: `tags/NAME/ op=update_nodes`.
        UntagMachine = "untag_machine",
        /// Deploys the machine: `op=deploy`.
        Deploy = "deploy",
        /// Switches the machine off: `op=power_off`.
        PowerOff = "power_off",
        /// Switches the machine on: `op=power_on`.
        PowerOn = "power_on",
        /// Ends an erasing: `op=abort`.
        Abort = "abort",
        /// Marks the machine broken: `op=mark_broken`.
        MarkBroken = "mark_broken",
        /// Takes the mark away again: `op=mark_fixed`.
        MarkFixed = "mark_fixed",
    }
);

/// What a cancel does in a step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CancelPolicy {
    /// Nothing is under way: the run ends at once.
    Now,
    /// The run ends once the effect in flight has a known outcome.
    AfterEffect,
    /// The machine is owned in MAAS and has to be released first.
    NeedsRelease,
}

/// How a step is entered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StepOrder {
    /// After the main step before it in the kind's list.
    Main,
    /// Only when a decision names it.
    Side,
}

/// A row of the table of steps.
#[derive(Debug, Clone, Copy)]
pub struct StepRow {
    /// The step.
    pub step: Step,
    /// Whether a run passes through it by itself.
    pub order: StepOrder,
    /// Kinds of runs in which it occurs.
    pub kinds: &'static [RunKind],
    /// Bucket in which its time is counted.
    pub bucket: Bucket,
    /// What a cancel does in it.
    pub cancel: CancelPolicy,
    /// Seconds that it normally takes at most; used for "expected by" until history knows better.
    pub expected_seconds: u32,
    /// Seconds after which the run parks.
    pub deadline_seconds: u32,
    /// State of the node from the beginning of the step; none: it stays as it is.
    pub node_state: Option<NodeState>,
    /// Mutations of MAAS that it may ask for. A plan shows them, and tests go through them.
    pub effects: &'static [EffectKind],
}

macro_rules! steps {
    ($($(#[$doc:meta])* $step:ident $text:literal $order:ident $kinds:ident $bucket:ident
        $cancel:ident $expected:literal $deadline:literal $state:ident $effects:expr;)+) => {
        string_enum!(
            /// The steps of runs, in the order of their table.
            Step { $($(#[$doc])* $step = $text,)+ }
        );

        /// Every step, once, in the order in which runs pass through them.
        pub const ROWS: &[StepRow] = &[$(StepRow {
            step: Step::$step,
            order: StepOrder::$order,
            kinds: $kinds,
            bucket: Bucket::$bucket,
            cancel: CancelPolicy::$cancel,
            expected_seconds: $expected,
            deadline_seconds: $deadline,
            node_state: $state,
            effects: $effects,
        },)+];
    };
}

const ONBOARD: &[RunKind] = &[RunKind::Onboard];
const DECOMMISSION: &[RunKind] = &[RunKind::Decommission];
/// Kinds that bring a machine from Ready to active.
const PROVISION: &[RunKind] = &[RunKind::Onboard, RunKind::Reimage];
/// Kinds that give the machine of a node in service back.
const RELEASE: &[RunKind] = &[RunKind::Decommission, RunKind::Reimage];
/// Kinds that ask MAAS for anything.
const WITH_MAAS: &[RunKind] = &[RunKind::Onboard, RunKind::Decommission, RunKind::Reimage];
/// Kinds that have the agent empty folders of its host.
const CLEANUP: &[RunKind] = &[RunKind::SoftReset, RunKind::StorageCleanup];
/// Kinds that take a node out of service first.
const DRAIN: &[RunKind] =
    &[RunKind::Decommission, RunKind::Reimage, RunKind::SoftReset, RunKind::StorageCleanup];
const DETACH: &[RunKind] = &[RunKind::Detach];
const REMOVE: &[RunKind] = &[RunKind::Remove];

const UNCHANGED: Option<NodeState> = None;
const DRAINING: Option<NodeState> = Some(N::Draining);
const ISSUED: Option<NodeState> = Some(N::BootstrapIssued);
const ENROLLING: Option<NodeState> = Some(N::Enrolling);

use EffectKind as E;

/// Effects of a step that releases a machine: the release itself and what is tried where it hangs.
pub const RELEASE_EFFECTS: &[EffectKind] =
    &[E::Release, E::Abort, E::MarkBroken, E::MarkFixed, E::PowerOff, E::PowerOn];
/// Effects of a step that gives the machine of a cancelled run back.
const CANCEL_EFFECTS: &[EffectKind] =
    &[E::Release, E::Abort, E::MarkBroken, E::MarkFixed, E::PowerOff, E::PowerOn, E::UntagMachine];
const TAG_EFFECTS: &[EffectKind] = &[E::WriteTag, E::TagMachine, E::UntagMachine];
const COMMISSION_EFFECTS: &[EffectKind] = &[E::Commission, E::OverrideFailedTesting];
const STORAGE_EFFECTS: &[EffectKind] =
    &[E::SetBootDisk, E::SetStorageLayout, E::FormatBlockDevice, E::MountBlockDevice];

steps! {
//  step             written form         order kinds        bucket         cancel       expected deadline node state effects
    /// The site is watched; the profile revision that was asked for is pinned.
    Accept           "accept"             Main  WITH_MAAS    Accept         Now                10    3600  UNCHANGED  &[];
    /// Find the machine in MAAS, or create it.
    Discover         "discover"           Main  ONBOARD      Discover       AfterEffect        60    3600  UNCHANGED  &[E::CreateMachine];
    /// Release a machine that was adopted with an owner.
    ReleaseAdopted   "release_adopted"    Side  ONBOARD      Discover       AfterEffect       900    7200  UNCHANGED  RELEASE_EFFECTS;
    /// No new work for the node.
    Drain            "drain"              Main  DRAIN        Leaving        Now                10    3600  DRAINING   &[];
    /// Release the machine, with or without erasing its disks.
    Release          "release"            Main  RELEASE      Leaving        AfterEffect      1800   14400  DRAINING   RELEASE_EFFECTS;
    /// See that the released machine is off.
    PowerOff         "power_off"          Main  DECOMMISSION Leaving        AfterEffect       120    3600  UNCHANGED  &[E::PowerOff, E::UntagMachine];
    /// The agent empties the tenant's folders, or the scratch storage.
    AgentCleanup     "agent_cleanup"      Main  CLEANUP      Leaving        Now               300    3600  DRAINING   &[];
    /// The scripts of the profile's commissioning bundle are in MAAS.
    RegisterScripts  "register_scripts"   Main  PROVISION    Commission     AfterEffect        30    3600  UNCHANGED  &[E::RegisterScript];
    /// Commission to Ready.
    Commission       "commission"         Main  PROVISION    Commission     AfterEffect      1800   10800  UNCHANGED  COMMISSION_EFFECTS;
    /// Check the boot interface.
    PxePreflight     "pxe_preflight"      Main  PROVISION    ReadyWait      Now                30    3600  UNCHANGED  &[];
    /// Boot disk and storage layout.
    PrepareStorage   "prepare_storage"    Main  PROVISION    ReadyWait      AfterEffect        60    3600  UNCHANGED  STORAGE_EFFECTS;
    /// Static addresses on the RoCE interfaces.
    RoceLinks        "roce_links"         Main  PROVISION    ReadyWait      AfterEffect        60    3600  UNCHANGED  &[E::UnlinkSubnet, E::LinkSubnet];
    /// The region's hardware-sync interval is the profile's.
    HardwareSync     "hardware_sync"      Main  PROVISION    ReadyWait      Now                30    3600  UNCHANGED  &[];
    /// The machine has the tag of its kernel's arguments, which a deployment carries into the system.
    MachineTag       "machine_tag"        Main  PROVISION    ReadyWait      AfterEffect        30    3600  UNCHANGED  TAG_EFFECTS;
    /// The six checks before anything is written to a disk, and the wait for a deploy slot.
    PredeployChecks  "predeploy_checks"   Main  PROVISION    ReadyWait      Now                30    3600  UNCHANGED  &[];
    /// Submit the deployment and follow it to curtin's reboot.
    Deploy           "deploy"             Main  PROVISION    ImageDeploy    NeedsRelease     1800   10800  ISSUED     &[E::Deploy];
    /// A failed deployment is released before the next attempt.
    ReleaseForRetry  "release_for_retry"  Side  PROVISION    ImageDeploy    AfterEffect       900    7200  UNCHANGED  RELEASE_EFFECTS;
    /// Curtin's reboot to MAAS' Deployed.
    FirstBoot        "first_boot"         Main  PROVISION    FirstBoot      NeedsRelease      900    5400  UNCHANGED  &[];
    /// Deployed to the first sign of the site bootstrap.
    BootstrapFetch   "bootstrap_fetch"    Main  PROVISION    BootstrapFetch NeedsRelease      300    3600  UNCHANGED  &[];
    /// The infra-owned site bootstrap.
    SiteBootstrap    "site_bootstrap"     Main  PROVISION    SiteBootstrap  NeedsRelease     1800    7200  UNCHANGED  &[];
    /// The GPUaaS node bootstrap.
    NodeBootstrap    "node_bootstrap"     Main  PROVISION    NodeBootstrap  NeedsRelease      300    3600  UNCHANGED  &[];
    /// Agent start to first heartbeat.
    Enrollment       "enrollment"         Main  PROVISION    Enrollment     NeedsRelease      120    3600  ENROLLING  &[];
    /// A host that asks for it is started again, and its agent looks at it after the boot.
    HostReboot       "host_reboot"        Main  PROVISION    PrereqChecks   NeedsRelease      900    7200  ENROLLING  &[];
    /// Diagnostics by the agent.
    PrereqChecks     "prereq_checks"      Main  PROVISION    PrereqChecks   NeedsRelease      120    3600  ENROLLING  &[];
    /// The seven completion gates.
    Confirmation     "confirmation"       Main  PROVISION    Confirmation   NeedsRelease      120    3600  ENROLLING  &[];
    /// A cancelled run releases its machine.
    ReleaseForCancel "release_for_cancel" Side  PROVISION    Leaving        AfterEffect       900    7200  UNCHANGED  CANCEL_EFFECTS;
    /// Give the machine up without asking MAAS.
    DetachRecord     "detach_record"      Main  DETACH       Leaving        Now                10    3600  UNCHANGED  &[];
    /// Put the node's record away.
    RemoveRecord     "remove_record"      Main  REMOVE       Leaving        Now                10    3600  UNCHANGED  &[];
}

/// Steps during which a run holds a deploy slot: the node takes its image from the region. What
/// `batch_max_parallel` counts; a parked run takes no image and is not counted.
pub const DEPLOYING: [Step; 3] = [Step::Deploy, Step::ReleaseForRetry, Step::FirstBoot];

/// Steps in which the host goes on by itself, whatever is known of it: the end of its deployment is
/// news to us and holds nothing up.
pub const HOST_GOES_ON: &[Step] = &[
    Step::Deploy,
    Step::FirstBoot,
    Step::BootstrapFetch,
    Step::SiteBootstrap,
    Step::NodeBootstrap,
    Step::Enrollment,
    Step::HostReboot,
    Step::PrereqChecks,
    Step::Confirmation,
];

/// Steps that the host and this control plane do between them: a region that is away holds nothing up.
pub const WITHOUT_REGION: &[Step] = &[
    Step::AgentCleanup,
    Step::BootstrapFetch,
    Step::SiteBootstrap,
    Step::NodeBootstrap,
    Step::Enrollment,
    Step::HostReboot,
    Step::PrereqChecks,
];

impl Step {
    /// The row of the step.
    #[must_use]
    pub fn row(self) -> &'static StepRow {
        ROWS.iter().find(|row| row.step == self).unwrap_or(&ROWS[0])
    }
}

/// A row of the table of run kinds.
#[derive(Debug, Clone, Copy)]
pub struct KindRow {
    /// The kind.
    pub kind: RunKind,
    /// Its steps, main and side, in order: the rows of [`ROWS`] that name the kind.
    pub steps: &'static [Step],
    /// States of a node in which a run of this kind may begin.
    pub begins_in: &'static [NodeState],
    /// State of the node when the run succeeded.
    pub ends_in: NodeState,
    /// Whether it needs MAAS. A run of a kind that does not never waits for MAAS or asks it.
    pub needs_maas: bool,
}

/// How many steps a kind has.
const fn count_steps(kind: RunKind) -> usize {
    let (mut row, mut count) = (0, 0);
    while row < ROWS.len() {
        if names_kind(&ROWS[row], kind) {
            count += 1;
        }
        row += 1;
    }
    count
}

/// The `N` steps of a kind, in the order of their rows.
const fn list_steps<const N: usize>(kind: RunKind) -> [Step; N] {
    let mut steps = [Step::Accept; N];
    let (mut row, mut next) = (0, 0);
    while row < ROWS.len() {
        if names_kind(&ROWS[row], kind) {
            steps[next] = ROWS[row].step;
            next += 1;
        }
        row += 1;
    }
    steps
}

const fn names_kind(row: &StepRow, kind: RunKind) -> bool {
    let mut index = 0;
    while index < row.kinds.len() {
        if row.kinds[index] as u8 == kind as u8 {
            return true;
        }
        index += 1;
    }
    false
}

macro_rules! steps_of {
    ($kind:ident) => {{
        const STEPS: [Step; count_steps(RunKind::$kind)] = list_steps(RunKind::$kind);
        &STEPS
    }};
}

/// Every kind of run, once.
pub const KINDS: &[KindRow] = &[
    KindRow {
        kind: RunKind::Onboard,
        steps: steps_of!(Onboard),
        begins_in: &[],
        ends_in: N::Active,
        needs_maas: true,
    },
    KindRow {
        kind: RunKind::Decommission,
        steps: steps_of!(Decommission),
        begins_in: &[
            N::Registered,
            N::BootstrapIssued,
            N::Enrolling,
            N::Active,
            N::Offline,
            N::Quarantined,
            N::Draining,
        ],
        ends_in: N::Retired,
        needs_maas: true,
    },
    KindRow {
        kind: RunKind::Reimage,
        steps: steps_of!(Reimage),
        begins_in: &[
            N::BootstrapIssued,
            N::Enrolling,
            N::Active,
            N::Offline,
            N::Quarantined,
            N::Draining,
        ],
        ends_in: N::Active,
        needs_maas: true,
    },
    KindRow {
        kind: RunKind::SoftReset,
        steps: steps_of!(SoftReset),
        begins_in: &[N::Active, N::Quarantined],
        ends_in: N::Active,
        needs_maas: false,
    },
    KindRow {
        kind: RunKind::StorageCleanup,
        steps: steps_of!(StorageCleanup),
        begins_in: &[N::Active, N::Quarantined],
        ends_in: N::Active,
        needs_maas: false,
    },
    KindRow {
        kind: RunKind::Detach,
        steps: steps_of!(Detach),
        begins_in: &[
            N::Registered,
            N::BootstrapIssued,
            N::Enrolling,
            N::Active,
            N::Offline,
            N::Quarantined,
            N::Draining,
            N::Retired,
        ],
        ends_in: N::Detached,
        needs_maas: false,
    },
    KindRow {
        kind: RunKind::Remove,
        steps: steps_of!(Remove),
        begins_in: &[N::Retired, N::Detached],
        ends_in: N::Deleted,
        needs_maas: false,
    },
];

impl RunKind {
    /// The row of the kind.
    #[must_use]
    pub fn row(self) -> &'static KindRow {
        KINDS.iter().find(|row| row.kind == self).unwrap_or(&KINDS[0])
    }
}

impl KindRow {
    /// The step that a run of this kind begins with.
    #[must_use]
    pub fn first(&self) -> Step {
        self.steps.first().copied().unwrap_or(Step::Accept)
    }

    /// The main step after `step`; none: `step` is the last one, or none of this kind's.
    #[must_use]
    pub fn next_after(&self, step: Step) -> Option<Step> {
        let rest = self.steps.iter().copied().skip_while(|other| *other != step).skip(1);
        rest.into_iter().find(|next| next.row().order == StepOrder::Main)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_step_has_its_own_row() {
        for step in Step::ALL {
            assert_eq!(ROWS.iter().filter(|row| row.step == *step).count(), 1, "{step}");
            assert_eq!(step.row().step, *step);
            assert!(step.row().expected_seconds <= step.row().deadline_seconds);
            assert!(!step.row().kinds.is_empty(), "{step} occurs in no run");
            assert_eq!(step.as_str().parse::<Step>().unwrap(), *step);
        }
    }

    #[test]
    fn every_kind_has_a_row_and_asks_maas_only_where_it_needs_it() {
        for kind in RunKind::ALL {
            let rows: Vec<_> = KINDS.iter().filter(|row| row.kind == *kind).collect();
            let [row] = rows.as_slice() else { panic!("{kind}: {rows:?}") };
            let asks = row.steps.iter().any(|step| !step.row().effects.is_empty());
            assert_eq!(asks, row.needs_maas, "{kind}");
            assert_eq!(row.steps.contains(&Step::Accept), row.needs_maas, "{kind}");
            assert_eq!(row.first().row().order, StepOrder::Main, "{kind}");
        }
    }

    #[test]
    fn the_next_step_is_the_next_main_one() {
        let next = |kind: RunKind, step| kind.row().next_after(step);
        assert_eq!(next(RunKind::Onboard, Step::Accept), Some(Step::Discover));
        assert_eq!(next(RunKind::Onboard, Step::Discover), Some(Step::RegisterScripts));
        assert_eq!(next(RunKind::Onboard, Step::ReleaseAdopted), Some(Step::RegisterScripts));
        assert_eq!(next(RunKind::Decommission, Step::Drain), Some(Step::Release));
        assert_eq!(next(RunKind::Decommission, Step::PowerOff), None);
        assert_eq!(next(RunKind::Reimage, Step::Release), Some(Step::RegisterScripts));
        assert_eq!(next(RunKind::Reimage, Step::Confirmation), None);
        assert_eq!(next(RunKind::Detach, Step::Deploy), None, "no step of the kind");
    }

    #[test]
    fn onboard_and_reimage_share_their_way_from_register_scripts_on() {
        let tail = |kind: RunKind| -> Vec<Step> {
            let steps = kind.row().steps.iter().copied();
            steps.skip_while(|step| *step != Step::RegisterScripts).collect()
        };
        assert_eq!(tail(RunKind::Onboard), tail(RunKind::Reimage));
        assert!(tail(RunKind::Onboard).len() > 10);
    }

    #[test]
    fn every_bucket_has_a_step() {
        for bucket in Bucket::ALL {
            assert!(ROWS.iter().any(|row| row.bucket == *bucket), "{bucket}");
        }
    }

    /// The whole of both tables, so that a change of either is read as a change of these lines.
    #[test]
    fn the_tables_as_text() {
        let columns = |row: &StepRow| {
            let effects: Vec<&str> = row.effects.iter().map(|effect| effect.as_str()).collect();
            let line = format!(
                "{:<18} {:<5} {:<15} {:<13} {:>5} {:>6}  {:<17}{}",
                row.step,
                format!("{:?}", row.order),
                row.bucket,
                format!("{:?}", row.cancel),
                row.expected_seconds,
                row.deadline_seconds,
                row.node_state.map_or("", NodeState::as_str),
                effects.join(" ")
            );
            line.trim_end().to_owned()
        };
        let kinds = KINDS.iter().map(|row| {
            let steps: Vec<&str> = row.steps.iter().map(|step| step.as_str()).collect();
            format!("{}, ends {}: {}", row.kind, row.ends_in, steps.join(" "))
        });
        let lines: Vec<String> = ROWS.iter().map(columns).chain(kinds).collect();
        insta::assert_snapshot!(lines.join("\n"));
    }
}
