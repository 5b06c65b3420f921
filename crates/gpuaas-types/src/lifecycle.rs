//! The words of a node's life: node states, run kinds and statuses, steps, timing buckets.

use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;

macro_rules! words {
    ($(#[$doc:meta])* $name:ident { $($(#[$vdoc:meta])* $variant:ident = $word:literal,)+ }) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        pub enum $name { $($(#[$vdoc])* #[serde(rename = $word)] $variant,)+ }

        impl $name {
            /// Every value, in declaration order.
            pub const ALL: &'static [Self] = &[$(Self::$variant,)+];

            /// The word used on the wire, in the database and in output.
            #[must_use]
            pub const fn as_str(self) -> &'static str {
                match self { $(Self::$variant => $word,)+ }
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.pad(self.as_str())
            }
        }

        impl FromStr for $name {
            type Err = UnknownWord;
            fn from_str(s: &str) -> Result<Self, UnknownWord> {
                match s {
                    $($word => Ok(Self::$variant),)+
                    _ => Err(UnknownWord { kind: stringify!($name), word: s.to_owned() }),
                }
            }
        }
    };
}

/// A word that names no value of an enumeration.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnknownWord {
    /// The enumeration.
    pub kind: &'static str,
    /// The word found.
    pub word: String,
}

impl fmt::Display for UnknownWord {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} is not a {}", self.word, self.kind)
    }
}

impl std::error::Error for UnknownWord {}

words!(
    /// GPUaaS' own view of a node; never mixed with what MAAS says.
    NodeState {
        /// Known to GPUaaS; nothing has been handed to the host.
        Registered = "registered",
        /// A deployment carrying a bootstrap token was submitted.
        BootstrapIssued = "bootstrap_issued",
        /// The agent has made contact and is enrolling.
        Enrolling = "enrolling",
        /// Every completion gate passed.
        Active = "active",
        /// Was active; the agent is silent.
        Offline = "offline",
        /// Held back by an operator or by policy.
        Quarantined = "quarantined",
        /// Being emptied before it leaves.
        Draining = "draining",
        /// Left service through a decommission.
        Retired = "retired",
        /// GPUaaS gave the machine up without touching MAAS.
        Detached = "detached",
        /// Record kept for history only.
        Deleted = "deleted",
    }
);

words!(
    /// What a run is for.
    RunKind {
        /// From discovered to active.
        Onboard = "onboard",
        /// Out of service: drained, released, powered off; the node is retired.
        Decommission = "decommission",
        /// Released, deployed and enrolled again, through the same gates.
        Reimage = "reimage",
        /// The agent removes what a tenant left; MAAS is not asked.
        SoftReset = "soft_reset",
        /// The agent empties the scratch storage; MAAS is not asked.
        StorageCleanup = "storage_cleanup",
        /// GPUaaS gives the machine up; MAAS is not asked and the machine stays as it is.
        Detach = "detach",
        /// The record of a node that left is put away.
        Remove = "remove",
    }
);

words!(
    /// Where a run stands.
    RunStatus {
        /// Work is due or being done.
        Running = "running",
        /// Waiting for something named in its wait.
        Waiting = "waiting",
        /// Stopped; a named owner has to act.
        Parked = "parked",
        /// Reached what was asked.
        Succeeded = "succeeded",
        /// Ended without reaching it.
        Failed = "failed",
        /// Ended by an operator.
        Cancelled = "cancelled",
    }
);

impl RunStatus {
    /// Whether the run may still move.
    #[must_use]
    pub const fn is_open(self) -> bool {
        matches!(self, Self::Running | Self::Waiting | Self::Parked)
    }
}

words!(
    /// The steps of a run. Order, bucket, deadline and cancel posture: `gpuaas_core::steps`.
    Step {
        /// Validate what was asked and pin the profile revision.
        Accept = "accept",
        /// Find the machine in MAAS, or create it.
        Discover = "discover",
        /// Release a machine that was adopted in Deployed.
        ReleaseAdopted = "release_adopted",
        /// The scripts of the profile's commissioning bundle, in MAAS.
        RegisterScripts = "register_scripts",
        /// Commission to Ready.
        Commission = "commission",
        /// Check the boot interface.
        PxePreflight = "pxe_preflight",
        /// Boot disk and storage layout.
        PrepareStorage = "prepare_storage",
        /// Fabric addresses on the RoCE interfaces.
        RoceLinks = "roce_links",
        /// Hardware-sync policy.
        HardwareSync = "hardware_sync",
        /// The six checks before anything is written to disk.
        PredeployChecks = "predeploy_checks",
        /// Submit the deployment and follow it to curtin's reboot.
        Deploy = "deploy",
        /// Curtin's reboot to MAAS' Deployed.
        FirstBoot = "first_boot",
        /// Deployed to the first sign of the site bootstrap.
        BootstrapFetch = "bootstrap_fetch",
        /// The infra-owned site bootstrap.
        SiteBootstrap = "site_bootstrap",
        /// The GPUaaS node bootstrap.
        NodeBootstrap = "node_bootstrap",
        /// Agent start to first heartbeat.
        Enrollment = "enrollment",
        /// Diagnostics by the agent.
        PrereqChecks = "prereq_checks",
        /// The seven completion gates.
        Confirmation = "confirmation",
        /// A failed deployment is released before the next attempt.
        ReleaseForRetry = "release_for_retry",
        /// No new work for the node.
        Drain = "drain",
        /// Release the machine, with or without erasing its disks.
        Release = "release",
        /// See that the released machine is off.
        PowerOff = "power_off",
        /// The agent cleans its host.
        AgentCleanup = "agent_cleanup",
        /// Give the machine up without asking MAAS.
        DetachRecord = "detach_record",
        /// Put the node's record away.
        RemoveRecord = "remove_record",
        /// A cancelled run gives its machine back.
        ReleaseForCancel = "release_for_cancel",
    }
);

words!(
    /// How a machine in MAAS differs from what its node remembers.
    DriftKind {
        /// It is no longer deployed.
        ReleasedByHand = "released_by_hand",
        /// Another deployment than ours is on it, or under way.
        DeployedByHand = "deployed_by_hand",
        /// Somebody works on it in rescue mode.
        InRescueMode = "in_rescue_mode",
        /// MAAS does not list it any more.
        Vanished = "vanished",
        /// It has another hostname.
        Renamed = "renamed",
        /// It has other tags.
        Retagged = "retagged",
        /// The deployed system no longer reports its hardware.
        HwSyncStale = "hw_sync_stale",
    }
);

words!(
    /// What is done about a kind of drift.
    DriftAction {
        /// Say so.
        Report = "report",
        /// Say so and hold the node back.
        Quarantine = "quarantine",
        /// Take over what MAAS says.
        Adopt = "adopt",
    }
);

words!(
    /// How far a batch is.
    BatchPhase {
        /// Its first machines are on their way; the rest waits for them.
        Canary = "canary",
        /// The canaries are active; the rest follows.
        Rolling = "rolling",
        /// No further machine begins until an operator resumes the batch.
        Stopped = "stopped",
        /// Every machine has ended.
        Done = "done",
    }
);

words!(
    /// How a machine of a batch stands.
    MemberState {
        /// Its onboarding has not begun.
        Waiting = "waiting",
        /// Its onboarding is under way.
        Running = "running",
        /// It reached active.
        Active = "active",
        /// Its onboarding stopped; a named owner has to act.
        Parked = "parked",
        /// Its onboarding ended without reaching active.
        Failed = "failed",
        /// Its node left, or was given other work, before its turn came.
        Withdrawn = "withdrawn",
    }
);

words!(
    /// The timing buckets, a partition of a run's wall time: the twelve of the way to active, and
    /// one for leaving.
    Bucket {
        /// Request accepted to workflow start.
        Accept = "accept",
        /// Discovery and adoption.
        Discover = "discover",
        /// Commissioning.
        Commission = "commission",
        /// Ready to deployment submitted.
        ReadyWait = "ready_wait",
        /// Image deploy.
        ImageDeploy = "image_deploy",
        /// First boot to cloud-init start.
        FirstBoot = "first_boot",
        /// Cloud-init and bootstrap fetch.
        BootstrapFetch = "bootstrap_fetch",
        /// Site bootstrap execution.
        SiteBootstrap = "site_bootstrap",
        /// GPUaaS bootstrap execution.
        NodeBootstrap = "node_bootstrap",
        /// Node-agent enrollment.
        Enrollment = "enrollment",
        /// Post-enrollment prerequisite checks.
        PrereqChecks = "prereq_checks",
        /// Control-plane readiness confirmation.
        Confirmation = "confirmation",
        /// Draining, releasing, cleaning: whatever is not on the way to active.
        Leaving = "leaving",
    }
);

impl Bucket {
    /// The twelve buckets of the way to active, in order.
    pub const ONBOARDING: &'static [Self] = Self::ALL.split_at(12).0;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_round_trip() {
        for step in Step::ALL {
            assert_eq!(step.as_str().parse::<Step>().unwrap(), *step);
        }
        assert!(!Bucket::ONBOARDING.contains(&Bucket::Leaving));
        assert_eq!(Bucket::ONBOARDING.last(), Some(&Bucket::Confirmation));
        assert!("ready".parse::<NodeState>().is_err());
    }
}
