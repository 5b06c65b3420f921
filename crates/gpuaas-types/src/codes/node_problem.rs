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
    next_action: "`gpuaas explain NODE` says why, who has to act, and what lets it go on",
    doc: "The open run is parked; owner, text and commands are those of the park, see waits-and-parks.md",
}
RunLate "run_late" "Its run takes longer than expected" {
    source: Source::ControlPlane,
    owner: Owner::PlatformOperator,
    next_action: "`gpuaas explain NODE` says what it waits for, and who can help",
    doc: "The open run is slow or stuck; owner and next action are those of the wait, see waits-and-parks.md",
}
Vanished "vanished" "Its machine is gone from MAAS" {
    source: Source::Maas,
    owner: Owner::InfraOperator,
    next_action: "find out who deleted it, then `gpuaas node detach NODE`, and onboard the host again",
    doc: "MAAS does not list the machine any more",
}
ReleasedByHand "released_by_hand" "Its machine is not deployed any more" {
    source: Source::Maas,
    owner: Owner::InfraOperator,
    next_action: "find out who released it, then `gpuaas node reimage NODE`; or if it is to stay away, `gpuaas node detach NODE`",
    doc: "MAAS shows the machine in another status than Deployed, and no run of ours asked for it",
}
DeployedByHand "deployed_by_hand" "Another deployment than ours is on its machine" {
    source: Source::Maas,
    owner: Owner::InfraOperator,
    next_action: "find out who deployed it: if the machine is theirs now, `gpuaas node detach NODE`; or if it is not, `gpuaas node reimage NODE`",
    doc: "Owner, image or installation differ from those of our deployment, or a deployment is under way",
}
InRescueMode "in_rescue_mode" "Somebody works on its machine in rescue mode" {
    source: Source::Maas,
    owner: Owner::InfraOperator,
    next_action: "wait for whoever works on it to leave rescue mode; `gpuaas node show NODE` has the events of MAAS",
    doc: "MAAS shows the machine in rescue mode",
}
AgentSilent "agent_silent" "Its agent is silent" {
    source: Source::ControlPlane,
    owner: Owner::PlatformOperator,
    next_action: "look at the machine's power and console, and start gpuaas-node-agent.service there: the node comes back by itself; or if the system on it is lost, `gpuaas node reimage NODE`, which writes it anew",
    doc: "No heartbeat came for longer than the profile allows (`offline_after_seconds`); what the agent said before is history",
}
CertificateRevoked "certificate_revoked" "Its agent's certificate is revoked" {
    source: Source::ControlPlane,
    owner: Owner::PlatformOperator,
    next_action: "have the agent enroll again: `gpuaas node reimage NODE` deploys the host anew",
    doc: "The latest certificate of the agent was withdrawn, so the agent is refused",
}
CertificateExpired "certificate_expired" "Its agent's certificate has ended" {
    source: Source::ControlPlane,
    owner: Owner::PlatformOperator,
    next_action: "have the agent enroll again: `gpuaas node reimage NODE` deploys the host anew",
    doc: "The latest certificate of the agent is past its last moment, so the agent is refused",
}
CertificateEndsSoon "certificate_ends_soon" "Its agent's certificate ends soon" {
    source: Source::ControlPlane,
    owner: Owner::PlatformOperator,
    next_action: "read in the log of gpuaas-node-agent.service why it gets no other one; `gpuaas node certificates NODE` shows those that it has",
    doc: "Less than a fifth of its time is left; agents ask for another one when two thirds are over, or shortly after",
}
AgentTroubled "agent_troubled" "Something keeps its agent from its work" {
    source: Source::Agent,
    owner: Owner::PlatformOperator,
    next_action: "look at the host: `gpuaas node task NODE diagnostics` collects what is needed",
    doc: "The agent says so in its heartbeats, such as a full disk, or a host that has to be started again (`reboot_needed`)",
}
GateAgentFault "gate_agent_fault" "A gate is shut because its agent does not vouch for it" {
    source: Source::ControlPlane,
    owner: Owner::PlatformOperator,
    next_action: "start the agent on the host, `systemctl restart gpuaas-node-agent.service`; or if it runs, collect what it sees, `gpuaas node task NODE diagnostics`",
    doc: "A gate that the bundles of its profile ask for is shut and the host is not to blame",
}
GateBaselineIncomplete "gate_host_baseline_incomplete" "A gate is shut because the host lacks its baseline" {
    source: Source::Agent,
    owner: Owner::BundleOwner,
    next_action: "restore the host's effects, `gpuaas node task NODE repair-drift`, and do what its result names if a check still fails; or run bootstrap.sh of the site's bundle on the host, which runs its baseline first",
    doc: "Checks of a gate fail that the bundle's baseline makes true; the agent is not at fault",
}
GateSetupIncomplete "gate_host_setup_incomplete" "A gate is shut because the host is not set up" {
    source: Source::Agent,
    owner: Owner::BundleOwner,
    next_action: "restore the host's effects, `gpuaas node task NODE repair-drift`, and do what its result names if a check still fails; or repair on the host what fails",
    doc: "Checks of a gate fail on a host that has its baseline",
}
GateMachineUntagged "gate_machine_untagged" "A gate is shut because its machine lacks the profile's tag" {
    source: Source::Maas,
    owner: Owner::InfraOperator,
    next_action: "give the machine the tag in MAAS again; or have a run give it, `gpuaas node reimage NODE`",
    doc: "The host is as it should be; without the tag its next deployment would not get the kernel's arguments",
}
SlotsWithoutSliceProfile "slots_without_slice_profile" "It has slots and its profile makes no slice host" {
    source: Source::ControlPlane,
    owner: Owner::PlatformOperator,
    next_action: "deploy it with a profile of slices, `gpuaas node reimage NODE --profile PROFILE`; or deploy it with its own, which removes the slots, `gpuaas node reimage NODE`",
    doc: "Slots of the host are approved, and its gate `slice_ready` never opens: neither a slice nor the whole host can be claimed",
}
Quarantined "quarantined" "It is held back" {
    source: Source::ControlPlane,
    owner: Owner::PlatformOperator,
    next_action: "look at why, `gpuaas node show NODE`; or once the cause is gone, `gpuaas node reimage NODE`",
    doc: "The site's policy for a kind of drift, or a run that was cancelled half way, took it out of service",
}
SiteControlledElsewhere "site_controlled_elsewhere" "Another control plane changes its machine" {
    source: Source::ControlPlane,
    owner: Owner::PlatformOperator,
    next_action: "find out which control plane is to change the machines of this region; if it is this one, `gpuaas site take-control SITE --reason WHY`, and what was begun here goes on by itself",
    doc: "Another control plane writes the mark that is kept in the region, so this one only reads there: a reimage or a decommission begun here would wait",
}
Renamed "renamed" "Its machine has another name in MAAS" {
    source: Source::Maas,
    owner: Owner::InfraOperator,
    next_action: "rename it back, `maas PROFILE machine update SYSTEM_ID hostname=EXPECTED`; or have the name taken over, `gpuaas site set SITE --drift renamed=adopt`",
    doc: "The hostname of the machine is not that of the node",
}
Retagged "retagged" "Its machine has other tags in MAAS" {
    source: Source::Maas,
    owner: Owner::InfraOperator,
    next_action: "have the tags taken over, `gpuaas site set SITE --drift retagged=adopt` beside the site's other rules; or restore them in MAAS",
    doc: "The tags of the machine are not those that its run saw",
}
BmcChanged "bmc_changed" "MAAS reaches its BMC elsewhere" {
    source: Source::Maas,
    owner: Owner::InfraOperator,
    next_action: "if the BMC has another address now, `gpuaas node set NODE --bmc-address FOUND --reason WHY`; or put the old one back, `maas PROFILE machine update SYSTEM_ID power_parameters_power_address=EXPECTED`",
    doc: "The BMC's address in MAAS is not that of the node's record",
}
BmcAccessChanged "bmc_access_changed" "MAAS logs in at its BMC otherwise" {
    source: Source::Maas,
    owner: Owner::InfraOperator,
    next_action: "if that is meant, have it taken over, `gpuaas site set SITE --drift bmc_access_changed=adopt`; or for this node alone, `gpuaas node set NODE --bmc-user USER --bmc-pass-file FILE --reason WHY`; or put user and password back in MAAS",
    doc: "User or password of the BMC in MAAS are not those that stood there after the node's last run. No password is kept for that, only a salted digest, sealed",
}
PoolChanged "pool_changed" "Its machine is in another resource pool" {
    source: Source::Maas,
    owner: Owner::InfraOperator,
    next_action: "move it back, `maas PROFILE machine update SYSTEM_ID pool=EXPECTED`; or have the pool taken over, `gpuaas site set SITE --drift pool_changed=adopt`",
    doc: "The pool of the machine is not the one that its run saw. A site with a pool of its own takes over no other one: the machine would be another site's",
}
ZoneChanged "zone_changed" "Its machine is in another availability zone" {
    source: Source::Maas,
    owner: Owner::InfraOperator,
    next_action: "move it back, `maas PROFILE machine update SYSTEM_ID zone=EXPECTED`; or have the zone taken over, `gpuaas site set SITE --drift zone_changed=adopt`",
    doc: "The zone of the machine is not the one that its run saw",
}
PoweredOff "powered_off" "Its machine is switched off" {
    source: Source::Maas,
    owner: Owner::InfraOperator,
    next_action: "find out who switched it off, then `maas PROFILE machine power-on SYSTEM_ID`; or look at the events of MAAS, `gpuaas node show NODE`",
    doc: "MAAS says that the machine of a deployed node is off",
}
Locked "locked" "Its machine is locked in MAAS" {
    source: Source::Maas,
    owner: Owner::InfraOperator,
    next_action: "ask whoever locked it: until `maas PROFILE machine unlock SYSTEM_ID` MAAS refuses to release it; or look at the events of MAAS, `gpuaas node show NODE`",
    doc: "A user of MAAS locked the machine since a run of ours read it last",
}
HwSyncStale "hw_sync_stale" "Its system no longer reports its hardware" {
    source: Source::Maas,
    owner: Owner::InfraOperator,
    next_action: "see on the host whether maas_hardware_sync.timer runs and reaches MAAS; `gpuaas node task NODE diagnostics` collects what is needed",
    doc: "The profile asks for hardware sync, and no report came for one and a half intervals",
}
CheckOverridden "check_overridden" "An operator overrides a check" {
    source: Source::Operator,
    owner: Owner::PlatformOperator,
    next_action: "fix what the check names before the override ends; `gpuaas explain NODE` shows its evidence",
    doc: "A check of its latest run does not pass and counts as passed for a while, because an operator said so",
}
MaasViewStale "maas_view_stale" "MAAS was not asked about its machine for long" {
    source: Source::ControlPlane,
    owner: Owner::InfraOperator,
    next_action: "`gpuaas site show SITE` says whether the region answers",
    doc: "What is known of the machine is more than an hour old, so nobody knows whether it was released or deleted since",
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
                ("gpuaas node detach j22u11", "if it is to stay away"),
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
