//! What is wrong with a node, whether a run is open or not.
//!
//! The order of the table is the order in which problems are shown: what has to be acted on first
//! stands first. Commands stand in backticks; NODE and SITE are replaced by the names, and
//! alternatives are joined by `; or `.

use super::park::needs;
use crate::api::{Owner, Source};
use crate::lifecycle::DriftKind;
use crate::park::ParkAction;

/// A row of [`NODE_PROBLEMS`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NodeProblemRow {
    /// The code.
    pub code: NodeProblemCode,
    /// What is wrong, in a few words.
    pub title: &'static str,
    /// Whose view it is.
    pub source: Source,
    /// Who has to act.
    pub owner: Owner,
    /// What to do.
    pub next_action: &'static str,
    /// When a node has the problem.
    pub doc: &'static str,
}

impl NodeProblemCode {
    /// The problem that a kind of drift is.
    #[must_use]
    pub const fn of_drift(kind: DriftKind) -> Self {
        match kind {
            DriftKind::ReleasedByHand => Self::ReleasedByHand,
            DriftKind::DeployedByHand => Self::DeployedByHand,
            DriftKind::InRescueMode => Self::InRescueMode,
            DriftKind::Vanished => Self::Vanished,
            DriftKind::Renamed => Self::Renamed,
            DriftKind::Retagged => Self::Retagged,
            DriftKind::BmcChanged => Self::BmcChanged,
            DriftKind::BmcAccessChanged => Self::BmcAccessChanged,
            DriftKind::PoolChanged => Self::PoolChanged,
            DriftKind::ZoneChanged => Self::ZoneChanged,
            DriftKind::PoweredOff => Self::PoweredOff,
            DriftKind::Locked => Self::Locked,
            DriftKind::HwSyncStale => Self::HwSyncStale,
        }
    }
}

impl NodeProblemRow {
    /// The next action for this node of this site.
    #[must_use]
    pub fn advice(&self, node: &str, site: &str) -> String {
        self.next_action.replace("NODE", node).replace("SITE", site)
    }
}

/// The commands that an advice about a node names, one of each alternative, with what it needs.
#[must_use]
pub fn advised_commands(advice: &str, node: &str) -> Vec<ParkAction> {
    advice.split("; or ").filter_map(|alternative| command_of(alternative, node)).collect()
}

/// The first command of an alternative of an advice.
fn command_of(alternative: &str, node: &str) -> Option<ParkAction> {
    let pieces: Vec<&str> = alternative.split('`').collect();
    let at = (1..pieces.len()).step_by(2).find(|at| pieces[*at].starts_with("gpuaas "))?;
    let needs = needs(&pieces[..at].join("`"), &pieces[at + 1..].join("`"), node);
    Some(ParkAction { command: pieces[at].to_owned(), needs })
}

codes! {
/// What is wrong with a node, as `code` of a problem of the node names it.
NodeProblemCode, NodeProblemRow, NODE_PROBLEMS;
RunParked "run_parked" "Its run stopped" {
    source: Source::ControlPlane,
    owner: Owner::PlatformOperator,
    next_action: "`gpuaas explain NODE` shows why, who must act, and how to continue",
    doc: "The open run is parked; owner, text and commands are those of the park, see waits-and-parks.md",
}
RunLate "run_late" "Its run is taking longer than expected" {
    source: Source::ControlPlane,
    owner: Owner::PlatformOperator,
    next_action: "`gpuaas explain NODE` shows what it waits for and who can help",
    doc: "The open run is slow or stuck; owner and next action are those of the wait, see waits-and-parks.md",
}
Vanished "vanished" "Its machine no longer exists in MAAS" {
    source: Source::Maas,
    owner: Owner::InfraOperator,
    next_action: "find out who deleted it, then `gpuaas node detach NODE`, and onboard the host again",
    doc: "MAAS no longer lists the machine",
}
ReleasedByHand "released_by_hand" "Its machine is no longer deployed" {
    source: Source::Maas,
    owner: Owner::InfraOperator,
    next_action: "find out who released it, then `gpuaas node reimage NODE`; or if it should stay released, `gpuaas node detach NODE`",
    doc: "The machine's status in MAAS is not Deployed, and no GPUaaS run requested that",
}
DeployedByHand "deployed_by_hand" "Someone else deployed its machine" {
    source: Source::Maas,
    owner: Owner::InfraOperator,
    next_action: "find out who deployed it: if the machine is theirs now, `gpuaas node detach NODE`; or if it is not, `gpuaas node reimage NODE`",
    doc: "Owner, image or installation differ from those of GPUaaS' deployment, or another deployment is in progress",
}
InRescueMode "in_rescue_mode" "Its machine is in rescue mode" {
    source: Source::Maas,
    owner: Owner::InfraOperator,
    next_action: "wait until the machine leaves rescue mode; `gpuaas node show NODE` shows its MAAS events",
    doc: "MAAS reports that the machine is in rescue mode",
}
AgentSilent "agent_silent" "Its agent sends no heartbeats" {
    source: Source::ControlPlane,
    owner: Owner::PlatformOperator,
    next_action: "check the machine's power and console, and start gpuaas-node-agent.service there: the node recovers automatically; or if the system on it is lost, `gpuaas node reimage NODE`, which installs it again",
    doc: "No heartbeat arrived for longer than the profile allows (`offline_after_seconds`); earlier reports of the agent are out of date",
}
CertificateRevoked "certificate_revoked" "Its agent's certificate is revoked" {
    source: Source::ControlPlane,
    owner: Owner::PlatformOperator,
    next_action: "redeploy the host so that its agent enrolls again: `gpuaas node reimage NODE`",
    doc: "The agent's latest certificate was revoked, so the control plane rejects the agent",
}
CertificateExpired "certificate_expired" "Its agent's certificate has expired" {
    source: Source::ControlPlane,
    owner: Owner::PlatformOperator,
    next_action: "redeploy the host so that its agent enrolls again: `gpuaas node reimage NODE`",
    doc: "The agent's latest certificate has expired, so the control plane rejects the agent",
}
CertificateEndsSoon "certificate_ends_soon" "Its agent's certificate expires soon" {
    source: Source::ControlPlane,
    owner: Owner::PlatformOperator,
    next_action: "read the log of gpuaas-node-agent.service to see why it gets no new certificate; `gpuaas node certificates NODE` lists its certificates",
    doc: "Less than a fifth of its lifetime is left; agents request a new certificate at two thirds of it, or shortly after",
}
AgentTroubled "agent_troubled" "Its agent reports a problem" {
    source: Source::Agent,
    owner: Owner::PlatformOperator,
    next_action: "check the host: `gpuaas node task NODE diagnostics` collects what you need",
    doc: "The agent's heartbeats name the problem, such as a full disk or a required reboot (`reboot_needed`)",
}
GateAgentFault "gate_agent_fault" "A gate is closed because its agent does not confirm it" {
    source: Source::ControlPlane,
    owner: Owner::PlatformOperator,
    next_action: "start the agent on the host, `systemctl restart gpuaas-node-agent.service`; or if it runs, collect its diagnostics, `gpuaas node task NODE diagnostics`",
    doc: "A gate that the profile's bundles require is closed, and the host is not the cause",
}
GateBaselineIncomplete "gate_host_baseline_incomplete" "A gate is closed because the host lacks its baseline" {
    source: Source::Agent,
    owner: Owner::BundleOwner,
    next_action: "repair the host's drift, `gpuaas node task NODE repair-drift`, and follow its result if a check still fails; or run bootstrap.sh of the site's bundle on the host, which runs its baseline first",
    doc: "The failing checks of the gate depend on the bundle's baseline; the agent is not the cause",
}
GateSetupIncomplete "gate_host_setup_incomplete" "A gate is closed because the host is not set up" {
    source: Source::Agent,
    owner: Owner::BundleOwner,
    next_action: "repair the host's drift, `gpuaas node task NODE repair-drift`, and follow its result if a check still fails; or fix on the host what fails",
    doc: "Checks of a gate fail although the host has its baseline",
}
GateMachineUntagged "gate_machine_untagged" "A gate is closed because its machine lacks the profile's tag" {
    source: Source::Maas,
    owner: Owner::InfraOperator,
    next_action: "add the tag to the machine in MAAS again; or reimage the node, which adds it, `gpuaas node reimage NODE`",
    doc: "The host itself is fine, but without the tag its next deployment would lack the kernel arguments",
}
SlotsWithoutSliceProfile "slots_without_slice_profile" "It has slots, but its profile is not for slice hosts" {
    source: Source::ControlPlane,
    owner: Owner::PlatformOperator,
    next_action: "redeploy it with a slice profile, `gpuaas node reimage NODE --profile PROFILE`; or redeploy it with its own profile, which removes the slots, `gpuaas node reimage NODE`",
    doc: "The host has approved slots, but its gate `slice_ready` never opens: nobody can claim a slice or the whole host",
}
SlotsBlocked "slots_blocked" "Its slots cannot be used" {
    source: Source::Agent,
    owner: Owner::PlatformOperator,
    next_action: "`gpuaas slice map NODE` lists the blockers: fix them, then `gpuaas slice discover NODE --wait`",
    doc: "The last discovery found blockers of the host or its slots that nobody approved; owner and next action are those of the first blocker, see slot-blockers.md",
}
Quarantined "quarantined" "It is quarantined" {
    source: Source::ControlPlane,
    owner: Owner::PlatformOperator,
    next_action: "find the cause, `gpuaas node show NODE`; or once it is fixed, `gpuaas node reimage NODE`",
    doc: "The site's policy for a kind of drift, or a run that was cancelled midway, took it out of service",
}
SiteControlledElsewhere "site_controlled_elsewhere" "Another control plane manages its machine" {
    source: Source::ControlPlane,
    owner: Owner::PlatformOperator,
    next_action: "find out which control plane should manage this region; if it is this one, `gpuaas site take-control SITE --reason WHY`: pending runs then continue automatically",
    doc: "Another control plane renews the control mark in the region, so this one only reads there: a reimage or decommission started here would wait",
}
Renamed "renamed" "Its machine has a different name in MAAS" {
    source: Source::Maas,
    owner: Owner::InfraOperator,
    next_action: "rename it back, `maas PROFILE machine update SYSTEM_ID hostname=EXPECTED`; or adopt the new name, `gpuaas site set SITE --drift renamed=adopt`",
    doc: "The machine's hostname differs from the node's",
}
Retagged "retagged" "Its machine has different tags in MAAS" {
    source: Source::Maas,
    owner: Owner::InfraOperator,
    next_action: "adopt the new tags, `gpuaas site set SITE --drift retagged=adopt` in addition to the site's other rules; or restore the old ones in MAAS",
    doc: "The machine's tags differ from those that its run saw",
}
BmcChanged "bmc_changed" "MAAS has a different BMC address for its machine" {
    source: Source::Maas,
    owner: Owner::InfraOperator,
    next_action: "if the BMC has a new address, `gpuaas node set NODE --bmc-address FOUND --reason WHY`; or restore the old one, `maas PROFILE machine update SYSTEM_ID power_parameters_power_address=EXPECTED`",
    doc: "The BMC's address in MAAS differs from the node's record",
}
BmcAccessChanged "bmc_access_changed" "MAAS has different BMC credentials for its machine" {
    source: Source::Maas,
    owner: Owner::InfraOperator,
    next_action: "if the change is intended, adopt it, `gpuaas site set SITE --drift bmc_access_changed=adopt`; or for this node only, `gpuaas node set NODE --bmc-user USER --bmc-pass-file FILE --reason WHY`; or restore the user and password in MAAS",
    doc: "The BMC user or password in MAAS changed since the node's last run. GPUaaS stores no password for this, only a sealed, salted digest",
}
PoolChanged "pool_changed" "Its machine is in another resource pool" {
    source: Source::Maas,
    owner: Owner::InfraOperator,
    next_action: "move it back, `maas PROFILE machine update SYSTEM_ID pool=EXPECTED`; or adopt the new pool, `gpuaas site set SITE --drift pool_changed=adopt`",
    doc: "The machine's pool differs from the one that its run saw. A site with its own pool does not adopt another: the machine would belong to another site",
}
ZoneChanged "zone_changed" "Its machine is in another availability zone" {
    source: Source::Maas,
    owner: Owner::InfraOperator,
    next_action: "move it back, `maas PROFILE machine update SYSTEM_ID zone=EXPECTED`; or adopt the new zone, `gpuaas site set SITE --drift zone_changed=adopt`",
    doc: "The machine's zone differs from the one that its run saw",
}
PoweredOff "powered_off" "Its machine is powered off" {
    source: Source::Maas,
    owner: Owner::InfraOperator,
    next_action: "find out who powered it off, then `maas PROFILE machine power-on SYSTEM_ID`; or check the MAAS events, `gpuaas node show NODE`",
    doc: "MAAS reports that the machine of a deployed node is powered off",
}
Locked "locked" "Its machine is locked in MAAS" {
    source: Source::Maas,
    owner: Owner::InfraOperator,
    next_action: "ask who locked it: MAAS refuses to release it until `maas PROFILE machine unlock SYSTEM_ID`; or check the MAAS events, `gpuaas node show NODE`",
    doc: "A MAAS user locked the machine after the last run read it",
}
HwSyncStale "hw_sync_stale" "Its system no longer reports its hardware" {
    source: Source::Maas,
    owner: Owner::InfraOperator,
    next_action: "check on the host whether maas_hardware_sync.timer runs and reaches MAAS; `gpuaas node task NODE diagnostics` collects what you need",
    doc: "The profile requires hardware sync, but no report arrived for one and a half intervals",
}
CheckOverridden "check_overridden" "An operator overrode a check" {
    source: Source::Operator,
    owner: Owner::PlatformOperator,
    next_action: "fix what the check names before the override expires; `gpuaas explain NODE` shows its evidence",
    doc: "A check of its latest run does not pass, but counts as passed until the operator's override expires",
}
MaasViewStale "maas_view_stale" "Its MAAS data is out of date" {
    source: Source::ControlPlane,
    owner: Owner::InfraOperator,
    next_action: "`gpuaas site show SITE` shows whether the region answers",
    doc: "GPUaaS last read the machine more than an hour ago, so it cannot tell whether someone released or deleted it since",
}
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_problem_names_a_command_and_what_it_needs() {
        for row in NODE_PROBLEMS {
            let actions = advised_commands(&row.advice("j22u11", "lab"), "j22u11");
            assert!(!actions.is_empty(), "{} names no command", row.code);
            for action in &actions {
                assert!(action.command.starts_with("gpuaas "), "{action:?}");
                assert!(!action.command.contains("NODE"), "{action:?}");
            }
        }
        let released = NodeProblemCode::ReleasedByHand.row().advice("j22u11", "lab");
        let released = advised_commands(&released, "j22u11");
        let pairs: Vec<_> = released.iter().map(|a| (a.command.as_str(), &*a.needs)).collect();
        assert_eq!(
            pairs,
            [
                ("gpuaas node reimage j22u11", "find out who released it"),
                ("gpuaas node detach j22u11", "if it should stay released"),
            ]
        );
    }

    #[test]
    fn a_drift_is_the_problem_of_its_name() {
        for kind in DriftKind::ALL {
            assert_eq!(NodeProblemCode::of_drift(*kind).as_str(), kind.as_str());
        }
    }
}
