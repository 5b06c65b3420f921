//! Why a run stopped, who has to act, and what lets it go on.

use super::cure::Cure;
use crate::ids::RunId;
use crate::park::{Owner, Park, ParkAction};

impl Park {
    /// Fills in [`Park::actions`] from the advice: the cures that it names, for this run of this
    /// node. A skip is offered for each of the checks that do not pass.
    pub fn fill_actions(&mut self, run: RunId, node: &str, failing_checks: &[&str]) {
        self.actions = actions(&self.next_action, &run.to_string(), node, failing_checks);
    }
}

/// The cures that an advice names, each with what the advice says has to be done for it. An advice
/// is made of alternatives (`; or `); in each, what comes before the command and after `, and ` has
/// to be done, and what comes after `, which ` only says what the command does.
fn actions(advice: &str, run: &str, node: &str, failing_checks: &[&str]) -> Vec<ParkAction> {
    let mut actions = Vec::new();
    for alternative in advice.split("; or ") {
        let pieces: Vec<&str> = alternative.split('`').collect();
        let cure = |at: usize| Some((at, Cure::from_command(pieces.get(at)?)?));
        let Some((at, cure)) = (1..pieces.len()).step_by(2).find_map(cure) else { continue };
        let needs = needs(&pieces[..at].join("`"), &pieces[at + 1..].join("`"), node);
        let command = cure.command().replace("RUN", run);
        if cure == Cure::SkipCheck {
            actions.extend(failing_checks.iter().map(|check| ParkAction {
                command: command.replace("NAME", check),
                needs: needs.clone(),
            }));
        } else {
            actions.push(ParkAction { command, needs });
        }
    }
    actions
}

/// What has to be done besides a command, from the texts before and after it.
pub(super) fn needs(before: &str, after: &str, node: &str) -> String {
    let mut before = before.trim();
    for joint in [" then", " and", ";", ",", ":"] {
        before = before.strip_suffix(joint).unwrap_or(before).trim_end();
        before = before.trim_end_matches([',', ';']);
    }
    let also = after.strip_prefix(", and ").or_else(|| after.strip_prefix(", then "));
    let text = match (before, also) {
        (before, None) => before.to_owned(),
        ("", Some(also)) => format!("afterwards {also}"),
        (before, Some(also)) => format!("{before}; afterwards {also}"),
    };
    text.replace("NODE", node)
}

/// A row of [`PARKS`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ParkRow {
    /// The code.
    pub code: ParkCode,
    /// What stopped the run, in a few words.
    pub title: &'static str,
    /// Who has to act.
    pub owner: Owner,
    /// What lets the run go on or ends it; the advice names exactly these.
    pub cures: &'static [Cure],
    /// Whether the parked run looks again by itself: MAAS shows the cause, and that it is gone, and
    /// going on then repeats no call that failed.
    pub looked_at_again: bool,
    /// What to do, as `park.next_action` says it where the park knows nothing more.
    pub next_action: &'static str,
    /// When a run parks so.
    pub doc: &'static str,
}

codes! {
/// Why a run stopped, as `park.code` names it.
ParkCode, ParkRow, PARKS;
DeadlineExceeded "deadline_exceeded" "A step exceeded its deadline" {
    owner: Owner::InfraOperator,
    cures: &[Cure::Resume],
    looked_at_again: false,
    next_action: "check the machine's console and the MAAS event log, then `gpuaas run resume RUN --reason WHY`",
    doc: "The step waited past its deadline; the text names what it waited for",
}
UnknownOutcomeUnresolved "unknown_outcome_unresolved" "A repeated call never took effect" {
    owner: Owner::InfraOperator,
    cures: &[Cure::Retry],
    looked_at_again: true,
    next_action: "check the MAAS log for the request, then `gpuaas run retry RUN --reason WHY`",
    doc: "The call got no answer several times, and what it would have changed is unchanged",
}
MachineLocked "machine_locked" "The machine is locked in MAAS" {
    owner: Owner::InfraOperator,
    cures: &[Cure::Resume],
    looked_at_again: true,
    next_action: "unlock the machine in MAAS if it is meant for GPUaaS, then `gpuaas run resume RUN --reason WHY`",
    doc: "MAAS does not allow changes to a locked machine",
}
TwoCandidates "two_candidates" "Several machines match the host" {
    owner: Owner::InfraOperator,
    cures: &[Cure::Resume],
    looked_at_again: true,
    next_action: "make sure that only one machine matches (rename the others, or correct their BMC or MAC addresses), then `gpuaas run resume RUN --reason WHY`",
    doc: "Hostname, BMC address and MAC addresses match different machines in MAAS",
}
MachineMismatch "machine_mismatch" "The machine does not match the request" {
    owner: Owner::InfraOperator,
    cures: &[Cure::Resume],
    looked_at_again: true,
    next_action: "correct the side that is wrong: the machine's hostname or BMC in MAAS, or the node's record, `gpuaas node set NODE --mac MAC --bmc-address ADDRESS --serial SERIAL --reason WHY`; then `gpuaas run resume RUN --reason WHY`",
    doc: "An identifier in the request (hostname, MAC or BMC address, system ID, serial number) differs from the machine's; the text names both values",
}
MachineInUse "machine_in_use" "The machine is in use" {
    owner: Owner::PlatformOperator,
    cures: &[Cure::Resume, Cure::TakeOver],
    looked_at_again: true,
    next_action: "ask its owner to release it in MAAS, then `gpuaas run resume RUN --reason WHY`; or take it over with everything on it, `gpuaas run take-over RUN --reason WHY`",
    doc: "Another MAAS user owns the machine, or it was allocated or deployed outside this run; GPUaaS does not release or change it without an operator's confirmation",
}
PowerTypeDiffers "power_type_differs" "MAAS does not use the given BMC" {
    owner: Owner::InfraOperator,
    cures: &[Cure::Resume],
    looked_at_again: true,
    next_action: "set the machine's power type and BMC address in MAAS, or stop using the BMC, `gpuaas node set NODE --power-type manual --reason WHY`; then `gpuaas run resume RUN --reason WHY`",
    doc: "The request gives a BMC address, but in MAAS the machine has a power type without a BMC address, such as manual, so somebody would have to switch it on by hand",
}
MachineHeld "machine_held" "The machine belongs to another node" {
    owner: Owner::PlatformOperator,
    cures: &[Cure::Resume],
    looked_at_again: true,
    next_action: "decommission the node that holds the machine while the machine still has that node's name in MAAS, `gpuaas node decommission NODE`, or correct this host in MAAS, then `gpuaas run resume RUN --reason WHY`",
    doc: "A machine can be bound to only one node at a time",
}
SeveralNewMachines "several_new_machines" "Several new machines could be the host" {
    owner: Owner::InfraOperator,
    cures: &[Cure::Resume],
    looked_at_again: true,
    next_action: "set the hostname of the host's machine in MAAS, then `gpuaas run resume RUN --reason WHY`",
    doc: "`auto_claim_single_new_machine` claims a single new machine, but MAAS lists more than one",
}
MachineNotFound "machine_not_found" "MAAS does not know the host" {
    owner: Owner::InfraOperator,
    cures: &[Cure::Resume],
    looked_at_again: true,
    next_action: "boot the host once so that MAAS enlists it and set the machine's hostname, or correct the host's site, `gpuaas node set NODE --site NAME --reason WHY`; then `gpuaas run resume RUN --reason WHY`",
    doc: "No machine has the hostname, and the request has no MAC or BMC address to create one from",
}
CreatedMachineMissing "created_machine_missing" "MAAS accepted the new machine but does not list it" {
    owner: Owner::InfraOperator,
    cures: &[Cure::Resume],
    looked_at_again: true,
    next_action: "look for the machine in MAAS, then `gpuaas run resume RUN --reason WHY`",
    doc: "MAAS confirmed that it created the machine, but its machine list does not contain it",
}
MachineBusy "machine_busy" "The machine is in use by someone else" {
    owner: Owner::InfraOperator,
    cures: &[Cure::Resume],
    looked_at_again: true,
    next_action: "return the machine to New, Ready or Deployed in MAAS, then `gpuaas run resume RUN --reason WHY`",
    doc: "The machine's status in MAAS does not allow onboarding",
}
MachineTaken "machine_taken" "Someone changed the machine during the run" {
    owner: Owner::InfraOperator,
    cures: &[Cure::Resume],
    looked_at_again: false,
    next_action: "find out who changed the machine and why, return it to Ready in MAAS, then `gpuaas run resume RUN --reason WHY`",
    doc: "The machine has a status in MAAS that this run did not cause",
}
MachineVanished "machine_vanished" "The machine no longer exists in MAAS" {
    owner: Owner::InfraOperator,
    cures: &[Cure::Resume, Cure::Cancel],
    looked_at_again: true,
    next_action: "restore MAAS from a backup that has the machine, then `gpuaas run resume RUN --reason WHY`; or find out who deleted it in MAAS, `gpuaas run cancel RUN --reason WHY`, and `gpuaas node detach NODE` before you onboard the host again",
    doc: "MAAS answers that the node's machine does not exist",
}
MachineRepurposed "machine_repurposed" "The machine belongs to another MAAS user" {
    owner: Owner::PlatformOperator,
    cures: &[Cure::Resume, Cure::Cancel],
    looked_at_again: true,
    next_action: "ask that user to release the machine in MAAS, then `gpuaas run resume RUN --reason WHY`; or if that user keeps it, `gpuaas run cancel RUN --reason WHY`, then `gpuaas node detach NODE`",
    doc: "GPUaaS does not change a machine that another user of MAAS owns",
}
CommissioningBundleMissing "commissioning_bundle_missing" "The profile's commissioning bundle is missing" {
    owner: Owner::PlatformOperator,
    cures: &[Cure::Resume, Cure::ResumeLatestProfile],
    looked_at_again: false,
    next_action: "publish the bundle again, `gpuaas bundle publish DIR`, and `gpuaas run resume RUN --reason WHY`; or name another bundle in `commissioning_bundle_ref` and `gpuaas run resume RUN --latest-profile --reason WHY`",
    doc: "The bundle named in `commissioning_bundle_ref` existed when the run started but is missing now",
}
ScriptNotAsAsked "script_not_as_asked" "The script in MAAS differs from the one GPUaaS registered" {
    owner: Owner::InfraOperator,
    cures: &[Cure::Resume],
    looked_at_again: false,
    next_action: "check the script in the MAAS settings, then `gpuaas run resume RUN --reason WHY`",
    doc: "GPUaaS registered a script of the commissioning bundle, but MAAS returns different content",
}
TagNotAsAsked "tag_not_as_asked" "The tag in MAAS differs from the one GPUaaS set" {
    owner: Owner::InfraOperator,
    cures: &[Cure::Resume],
    looked_at_again: false,
    next_action: "check the tag and the machine's tags in MAAS, then `gpuaas run resume RUN --reason WHY`",
    doc: "GPUaaS wrote the profile's tag or added it to the machine, but MAAS returns something different",
}
HardwareTestFailed "hardware_test_failed" "A MAAS hardware test failed" {
    owner: Owner::InfraOperator,
    cures: &[Cure::Resume],
    looked_at_again: true,
    next_action: "read the test results in MAAS, fix the machine and test it again there, or override the failed test, then `gpuaas run resume RUN --reason WHY`",
    doc: "MAAS reports Failed testing because of a test that is not part of the profile's bundle",
}
CommissioningFailed "commissioning_failed" "Commissioning failed" {
    owner: Owner::InfraOperator,
    cures: &[Cure::Retry],
    looked_at_again: true,
    next_action: "read the commissioning results in MAAS, fix the machine, then `gpuaas run retry RUN --reason WHY`, which commissions it again",
    doc: "MAAS reported Failed commissioning until the step ran out of attempts",
}
CommissioningScriptFailed "commissioning_script_failed" "A commissioning script of the bundle failed" {
    owner: Owner::InfraOperator,
    cures: &[Cure::Resume, Cure::SkipCheck],
    looked_at_again: false,
    next_action: "fix what the script reports, then `gpuaas run resume RUN --reason WHY`, which commissions the machine again; or override the check, `gpuaas run skip-check RUN --check NAME --reason WHY`",
    doc: "A script of the profile's commissioning bundle did not pass",
}
CommissioningReverted "commissioning_reverted" "MAAS accepted the commissioning, then undid it" {
    owner: Owner::InfraOperator,
    cures: &[Cure::Resume],
    looked_at_again: true,
    next_action: "check the machine's BMC address and password in MAAS, then `gpuaas run resume RUN --reason WHY`, which commissions it again",
    doc: "MAAS returns the machine to its earlier status if its BMC does not answer",
}
PxePreflightFailed "pxe_preflight_failed" "The boot interface failed its checks" {
    owner: Owner::InfraOperator,
    cures: &[Cure::Resume, Cure::ResumeLatestProfile],
    looked_at_again: true,
    next_action: "correct the boot interface in MAAS and `gpuaas run resume RUN --reason WHY`; or set `strict_pxe_preflight=false` in the profile and `gpuaas run resume RUN --latest-profile --reason WHY`",
    doc: "The profile sets `strict_pxe_preflight`, and a check of the boot interface does not pass",
}
StorageLayoutUnknown "storage_layout_unknown" "Unknown storage layout" {
    owner: Owner::PlatformOperator,
    cures: &[Cure::ResumeLatestProfile],
    looked_at_again: false,
    next_action: "correct `storage_layout_profile` in the profile, then `gpuaas run resume RUN --latest-profile --reason WHY`",
    doc: "The pinned profile names a storage layout that this version does not support",
}
NoDataDisk "no_data_disk" "No data disk found" {
    owner: Owner::PlatformOperator,
    cures: &[Cure::Resume, Cure::ResumeLatestProfile],
    looked_at_again: true,
    next_action: "check the disks, commission the machine in MAAS and `gpuaas run resume RUN --reason WHY`; or choose a `storage_layout_profile` without data disks and `gpuaas run resume RUN --latest-profile --reason WHY`",
    doc: "The storage layout needs NVMe disks in addition to the boot disk, and MAAS lists none",
}
NoBootDisk "no_boot_disk" "No boot disk found" {
    owner: Owner::InfraOperator,
    cures: &[Cure::Resume],
    looked_at_again: true,
    next_action: "check the disks and commission the machine in MAAS, then `gpuaas run resume RUN --reason WHY`",
    doc: "No disk of the machine meets the rules for a boot disk, or the machine has too few disks for the layout",
}
StorageNotAsAsked "storage_not_as_asked" "The storage in MAAS differs from what GPUaaS set" {
    owner: Owner::InfraOperator,
    cures: &[Cure::Resume],
    looked_at_again: true,
    next_action: "correct the machine's storage in MAAS, then `gpuaas run resume RUN --reason WHY`",
    doc: "GPUaaS set a storage layout, filesystem or mount point, but MAAS returns something different",
}
RoceAssignmentsMissing "roce_assignments_missing" "The host has no fabric addresses" {
    owner: Owner::PlatformOperator,
    cures: &[Cure::Resume],
    looked_at_again: false,
    next_action: "add them, `gpuaas roce add --site SITE --host HOST --interface NAME --subnet CIDR --ip ADDRESS`, then `gpuaas run resume RUN --reason WHY`",
    doc: "The profile sets `enable_phase2_roce`, but no fabric address is assigned to the host",
}
RoceInterfaceMissing "roce_interface_missing" "The host lacks a fabric interface" {
    owner: Owner::PlatformOperator,
    cures: &[Cure::Resume],
    looked_at_again: true,
    next_action: "add the interface that the assignment names to the machine, or commission the machine in MAAS so that MAAS detects it, then `gpuaas run resume RUN --reason WHY`",
    doc: "A fabric address is assigned to an interface that MAAS does not list",
}
RoceBootInterface "roce_boot_interface" "A fabric address is assigned to the boot interface" {
    owner: Owner::PlatformOperator,
    cures: &[Cure::Resume],
    looked_at_again: false,
    next_action: "assign the address to a fabric interface, `gpuaas roce set --site SITE --host HOST --interface NAME --to-interface NAME`, or remove it, `gpuaas roce remove --site SITE --host HOST --interface NAME`; then `gpuaas run resume RUN --reason WHY`",
    doc: "An assignment names the interface that the machine boots from, so GPUaaS did not change its links",
}
RoceSubnetUnknown "roce_subnet_unknown" "The subnet of a fabric address is missing or on another VLAN" {
    owner: Owner::PlatformOperator,
    cures: &[Cure::Resume],
    looked_at_again: false,
    next_action: "create the subnet in MAAS on the VLAN of the interface, or correct the assignment, `gpuaas roce set --site SITE --host HOST --interface NAME --subnet CIDR --ip ADDRESS`; then `gpuaas run resume RUN --reason WHY`",
    doc: "MAAS lacks the subnet of an assignment, or has it on a different VLAN than the interface; GPUaaS changed no link",
}
RoceLinkStays "roce_link_stays" "A removed link still exists in MAAS" {
    owner: Owner::InfraOperator,
    cures: &[Cure::Resume],
    looked_at_again: false,
    next_action: "remove the link from the interface in MAAS, then `gpuaas run resume RUN --reason WHY`",
    doc: "GPUaaS removed a link without an assignment from a fabric interface, but MAAS still lists it",
}
RoceLinkMissing "roce_link_missing" "An added link is missing in MAAS" {
    owner: Owner::InfraOperator,
    cures: &[Cure::Resume],
    looked_at_again: true,
    next_action: "correct the interface in MAAS, then `gpuaas run resume RUN --reason WHY`",
    doc: "GPUaaS linked a fabric address to an interface, but MAAS does not list it",
}
HardwareSyncIntervalDiffers "hardware_sync_interval_differs" "The hardware sync interval differs from the profile's" {
    owner: Owner::InfraOperator,
    cures: &[Cure::Resume, Cure::ResumeLatestProfile],
    looked_at_again: true,
    next_action: "set the interval in the MAAS settings and `gpuaas run resume RUN --reason WHY`; or set `hardware_sync_interval` in the profile and `gpuaas run resume RUN --latest-profile --reason WHY`",
    doc: "The profile sets `require_hw_sync`, and its interval differs from the region's",
}
PredeployChecksFailed "predeploy_checks_failed" "A pre-deployment check fails" {
    owner: Owner::PlatformOperator,
    cures: &[Cure::Resume, Cure::ResumeLatestProfile],
    looked_at_again: true,
    next_action: "fix what the checks report and `gpuaas run resume RUN --reason WHY`; or if the profile is wrong, correct it and `gpuaas run resume RUN --latest-profile --reason WHY`",
    doc: "GPUaaS writes nothing to a disk while it knows that an input of the deployment is wrong",
}
DeployReverted "deploy_reverted" "MAAS accepted the deployment, then undid it" {
    owner: Owner::InfraOperator,
    cures: &[Cure::Resume],
    looked_at_again: false,
    next_action: "check the machine's events in MAAS (rack controller, BMC), then `gpuaas run resume RUN --reason WHY`, which deploys it again",
    doc: "MAAS returned the machine to Allocated, as it does when it cannot power the machine on",
}
DeployFailed "deploy_failed" "The deployment failed" {
    owner: Owner::InfraOperator,
    cures: &[Cure::Retry],
    looked_at_again: false,
    next_action: "fix the cause, then `gpuaas run retry RUN --reason WHY`, which releases the machine and deploys it again",
    doc: "MAAS reports Failed deployment; the failure class decides who must act",
}
SiteBootstrapFailed "site_bootstrap_failed" "The site bootstrap failed" {
    owner: Owner::BundleOwner,
    cures: &[Cure::Resume],
    looked_at_again: false,
    next_action: "read /var/log/cloud-init-output.log on the host, fix the cause, `gpuaas run resume RUN --reason WHY`, and run the scripts under /var/lib/cloud/instance/scripts on the host again",
    doc: "A phase of the site's bundle failed on the host",
}
NodeBootstrapFailed "node_bootstrap_failed" "The node bootstrap failed" {
    owner: Owner::PlatformOperator,
    cures: &[Cure::Resume],
    looked_at_again: false,
    next_action: "read /var/log/cloud-init-output.log on the host, fix the cause, `gpuaas run resume RUN --reason WHY`, and run the scripts under /var/lib/cloud/instance/scripts on the host again",
    doc: "The bootstrap could not download, install or start the agent on the host",
}
HostChecksUnknown "host_checks_unknown" "The bundles' requirements for the host are unknown" {
    owner: Owner::PlatformOperator,
    cures: &[Cure::Resume, Cure::ResumeLatestProfile],
    looked_at_again: false,
    next_action: "correct the inputs, `gpuaas site set SITE --bundle-input BUNDLE.INPUT=VALUE`, or publish the bundle again, `gpuaas bundle publish DIR`, and `gpuaas run resume RUN --reason WHY`; or name another bundle in `post_deploy_validation_bundle_ref` and `gpuaas run resume RUN --latest-profile --reason WHY`",
    doc: "A bundle of the profile no longer exists, or its inputs are invalid",
}
DiagnosticsFailed "diagnostics_failed" "The agent's diagnostics failed" {
    owner: Owner::PlatformOperator,
    cures: &[Cure::Retry],
    looked_at_again: false,
    next_action: "read the agent's log on the host, then `gpuaas run retry RUN --reason WHY`, which makes the agent check again",
    doc: "The agent could not check its host",
}
RebootDidNotHelp "reboot_did_not_help" "The host still requires a reboot after rebooting" {
    owner: Owner::PlatformOperator,
    cures: &[Cure::Retry],
    looked_at_again: false,
    next_action: "fix on the host what the reason names, then `gpuaas run retry RUN --reason WHY`, which reboots the host if it still requires that",
    doc: "GPUaaS told the agent to reboot its host; the reboot failed, or a reason to reboot remains afterwards",
}
PrerequisiteMissing "prerequisite_missing" "The host does not meet the bundles' requirements" {
    owner: Owner::PlatformOperator,
    cures: &[Cure::Retry, Cure::SkipCheck],
    looked_at_again: false,
    next_action: "repair the host, then `gpuaas run retry RUN --reason WHY`, which makes the agent check again; or override the check, `gpuaas run skip-check RUN --check NAME --reason WHY`",
    doc: "The agent checked its host, and a check does not pass",
}
CompletionGateFailed "completion_gate_failed" "A completion gate does not pass" {
    owner: Owner::PlatformOperator,
    cures: &[Cure::Resume],
    looked_at_again: true,
    next_action: "fix what the gate reports; if it is a bootstrap, run the scripts under /var/lib/cloud/instance/scripts on the host again; then `gpuaas run resume RUN --reason WHY`",
    doc: "One of the gates between a deployed host and an active node does not pass",
}
EnrollmentContested "enrollment_contested" "Two keys tried to enroll with the same token" {
    owner: Owner::PlatformOperator,
    cures: &[Cure::Cancel],
    looked_at_again: false,
    next_action: "find out how the token left the host, then `gpuaas run cancel RUN --reason WHY`, and onboard the machine again, which issues new tokens",
    doc: "Someone else has the token of the node's agent, and GPUaaS cannot tell which of the two is the node, so it revoked every certificate of the node",
}
CleanupFailed "cleanup_failed" "The agent could not empty folders on its host" {
    owner: Owner::PlatformOperator,
    cures: &[Cure::Retry, Cure::Cancel],
    looked_at_again: false,
    next_action: "fix what the agent reports, then `gpuaas run retry RUN --reason WHY`; or `gpuaas run cancel RUN --reason WHY`, then `gpuaas node reimage NODE`",
    doc: "A soft reset or a storage cleanup failed on the host",
}
HostReleased "host_released" "The machine was released in MAAS" {
    owner: Owner::PlatformOperator,
    cures: &[Cure::Cancel],
    looked_at_again: false,
    next_action: "find out who released it in MAAS; then `gpuaas run cancel RUN --reason WHY`, and `gpuaas node reimage NODE` to get the host back",
    doc: "The node's agent performs a soft reset or storage cleanup, but MAAS reports that no system is deployed on the machine any more",
}
ReleaseFailed "release_failed" "MAAS does not release the machine" {
    owner: Owner::InfraOperator,
    cures: &[Cure::Retry],
    looked_at_again: true,
    next_action: "fix the cause in MAAS (disks, BMC), then `gpuaas run retry RUN --reason WHY`",
    doc: "GPUaaS tried every remedy for a release that hangs or fails",
}
MachineHandedOff "machine_handed_off" "The machine was handed over" {
    owner: Owner::PlatformOperator,
    cures: &[Cure::Cancel],
    looked_at_again: false,
    next_action: "cancel the run and detach the node, because GPUaaS does not touch a machine that its profile hands over: `gpuaas run cancel RUN --reason WHY`, then `gpuaas node detach NODE`",
    doc: "The profile sets `release_mode=handoff`, so GPUaaS did not make the call",
}
DecisionLoop "decision_loop" "The run made too many decisions in a row" {
    owner: Owner::PlatformOperator,
    cures: &[Cure::Resume],
    looked_at_again: false,
    next_action: "report this bug with the output of `gpuaas run show RUN`, then `gpuaas run resume RUN --reason WHY`",
    doc: "A single pass over the run made more decisions than any run needs",
}
EffectNotPrepared "effect_not_prepared" "GPUaaS could not prepare a call" {
    owner: Owner::PlatformOperator,
    cures: &[Cure::Resume],
    looked_at_again: false,
    next_action: "correct what the text reports, then `gpuaas run resume RUN --reason WHY`",
    doc: "A part of a call to MAAS could not be built, such as the user-data or the name of the call's target",
}
InternalError "internal_error" "A bug in the control plane stopped the run" {
    owner: Owner::PlatformOperator,
    cures: &[Cure::Resume],
    looked_at_again: false,
    next_action: "report this bug with the text and the control plane's log, then `gpuaas run resume RUN --reason WHY`",
    doc: "The control plane panicked while it processed the run, or the step has no successor; the text names the cause",
}
MaasValidation "maas_validation" "MAAS rejected a field" {
    owner: Owner::InfraOperator,
    cures: &[Cure::Retry],
    looked_at_again: false,
    next_action: "fix what MAAS reports, then `gpuaas run retry RUN --reason WHY`",
    doc: "MAAS answered that a field's value is invalid",
}
MaasBadRequest "maas_bad_request" "MAAS rejected a request" {
    owner: Owner::InfraOperator,
    cures: &[Cure::Retry],
    looked_at_again: false,
    next_action: "fix what MAAS reports, then `gpuaas run retry RUN --reason WHY`",
    doc: "MAAS answered 400 without naming a field",
}
MaasForbidden "maas_forbidden" "The API key lacks permission" {
    owner: Owner::PlatformOperator,
    cures: &[Cure::Retry],
    looked_at_again: false,
    next_action: "replace the site's API key with a MAAS administrator's, `gpuaas site set SITE --api-key-file FILE`, then `gpuaas run retry RUN --reason WHY`",
    doc: "MAAS answered 403: the key's user is not an administrator, or does not own the machine",
}
MaasNotFound "maas_not_found" "MAAS does not know the object in the request" {
    owner: Owner::InfraOperator,
    cures: &[Cure::Retry],
    looked_at_again: false,
    next_action: "fix what MAAS reports, then `gpuaas run retry RUN --reason WHY`",
    doc: "MAAS answered 404 to a change",
}
MaasAddressInUse "maas_address_in_use" "An address is already in use" {
    owner: Owner::InfraOperator,
    cures: &[Cure::Retry],
    looked_at_again: false,
    next_action: "free the address that MAAS names, then `gpuaas run retry RUN --reason WHY`",
    doc: "MAAS answered that a static address belongs to another interface",
}
MaasUnknownEndpoint "maas_unknown_endpoint" "MAAS has no such endpoint" {
    owner: Owner::InfraOperator,
    cures: &[Cure::Retry],
    looked_at_again: false,
    next_action: "check the MAAS version and any proxy in front of it, then `gpuaas run retry RUN --reason WHY`",
    doc: "MAAS, or a proxy in front of it, answered 404 to a MAAS API path",
}
MaasMethodNotAllowed "maas_method_not_allowed" "MAAS does not support the method" {
    owner: Owner::InfraOperator,
    cures: &[Cure::Retry],
    looked_at_again: false,
    next_action: "check the MAAS version and any proxy in front of it, then `gpuaas run retry RUN --reason WHY`",
    doc: "MAAS, or a proxy in front of it, answered 405",
}
MaasStateConflict "maas_state_conflict" "The machine's status does not allow the call" {
    owner: Owner::InfraOperator,
    cures: &[Cure::Retry],
    looked_at_again: false,
    next_action: "fix what MAAS reports, then `gpuaas run retry RUN --reason WHY`",
    doc: "MAAS answered 409 until the step ran out of attempts",
}
MaasDatabaseConflict "maas_database_conflict" "The MAAS database rejected a change" {
    owner: Owner::InfraOperator,
    cures: &[Cure::Retry],
    looked_at_again: false,
    next_action: "fix what MAAS reports (usually a BMC or MAC address of another machine), then `gpuaas run retry RUN --reason WHY`",
    doc: "MAAS answered with a database error until the step ran out of attempts",
}
MaasRefused "maas_refused" "MAAS rejected a call" {
    owner: Owner::InfraOperator,
    cures: &[Cure::Retry],
    looked_at_again: false,
    next_action: "fix what MAAS reports, then `gpuaas run retry RUN --reason WHY`",
    doc: "MAAS rejected a call for a reason that has no code of its own",
}
}

#[cfg(test)]
#[path = "park_tests.rs"]
mod tests;
