//! The states of nodes and runs, and the other enumerations of their lifecycle.

use crate::string_enum::string_enum;

string_enum!(
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

string_enum!(
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
        /// The record of a removed node is archived.
        Remove = "remove",
    }
);

string_enum!(
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

string_enum!(
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
        /// MAAS reaches its BMC at another address.
        BmcChanged = "bmc_changed",
        /// MAAS logs in at its BMC as another user or with another password.
        BmcAccessChanged = "bmc_access_changed",
        /// It is in another resource pool.
        PoolChanged = "pool_changed",
        /// It is in another availability zone.
        ZoneChanged = "zone_changed",
        /// It is switched off.
        PoweredOff = "powered_off",
        /// A user of MAAS locked it.
        Locked = "locked",
        /// The deployed system no longer reports its hardware.
        HwSyncStale = "hw_sync_stale",
    }
);

string_enum!(
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

string_enum!(
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

string_enum!(
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

string_enum!(
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
    fn written_forms_are_read_back() {
        for state in NodeState::ALL {
            assert_eq!(state.as_str().parse::<NodeState>().unwrap(), *state);
        }
        assert!(!Bucket::ONBOARDING.contains(&Bucket::Leaving));
        assert_eq!(Bucket::ONBOARDING.last(), Some(&Bucket::Confirmation));
        assert!("ready".parse::<NodeState>().is_err());
    }
}
