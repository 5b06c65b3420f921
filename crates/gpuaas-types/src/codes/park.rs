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
DeadlineExceeded "deadline_exceeded" "A step took longer than its deadline" {
    owner: Owner::InfraOperator,
    cures: &[Cure::Resume],
    looked_at_again: false,
    next_action: "look at the machine's console and at MAAS' event log, then `gpuaas run resume RUN --reason WHY`",
    doc: "The wait of a step went beyond the step's deadline; the text says what it waited for",
}
UnknownOutcomeUnresolved "unknown_outcome_unresolved" "A call was made several times and never took effect" {
    owner: Owner::InfraOperator,
    cures: &[Cure::Retry],
    looked_at_again: true,
    next_action: "look at MAAS' log for the request, then `gpuaas run retry RUN --reason WHY`",
    doc: "No answer came to a call, and what it would have changed is unchanged",
}
MachineLocked "machine_locked" "The machine is locked in MAAS" {
    owner: Owner::InfraOperator,
    cures: &[Cure::Resume],
    looked_at_again: true,
    next_action: "unlock the machine in MAAS if it is meant for GPUaaS, then `gpuaas run resume RUN --reason WHY`",
    doc: "MAAS lets nobody change a locked machine",
}
TwoCandidates "two_candidates" "Several machines match the host" {
    owner: Owner::InfraOperator,
    cures: &[Cure::Resume],
    looked_at_again: true,
    next_action: "make all but one of them not match (rename it, or correct its BMC or MAC address), then `gpuaas run resume RUN --reason WHY`",
    doc: "Hostname, BMC address and MAC addresses lead to different machines in MAAS",
}
MachineMismatch "machine_mismatch" "The machine is not the one that the request names" {
    owner: Owner::InfraOperator,
    cures: &[Cure::Resume],
    looked_at_again: true,
    next_action: "correct the side that is wrong: the machine's hostname or BMC in MAAS, or what was given, `gpuaas node set NODE --mac MAC --bmc-address ADDRESS --serial SERIAL --reason WHY`; then `gpuaas run resume RUN --reason WHY`",
    doc: "An identifier of the request (hostname, MAC or BMC address, system id, serial number) is not the machine's; the text names both sides",
}
MachineInUse "machine_in_use" "The machine is in use" {
    owner: Owner::PlatformOperator,
    cures: &[Cure::Resume, Cure::TakeOver],
    looked_at_again: true,
    next_action: "have its owner release it in MAAS, then `gpuaas run resume RUN --reason WHY`; or take it with everything on it, `gpuaas run take-over RUN --reason WHY`",
    doc: "Another user of MAAS owns the machine, or it is allocated or deployed and not by this run; it is neither released nor changed without an operator's word",
}
PowerTypeDiffers "power_type_differs" "MAAS drives the machine without the BMC that was given" {
    owner: Owner::InfraOperator,
    cures: &[Cure::Resume],
    looked_at_again: true,
    next_action: "set the machine's power type and BMC address in MAAS, or give the BMC up, `gpuaas node set NODE --power-type manual --reason WHY`; then `gpuaas run resume RUN --reason WHY`",
    doc: "A BMC address was given, and MAAS has another power type for the machine and no BMC address, such as manual: a person would have to switch it on",
}
MachineHeld "machine_held" "The machine belongs to another node" {
    owner: Owner::PlatformOperator,
    cures: &[Cure::Resume],
    looked_at_again: true,
    next_action: "take the node that holds it out of service while the machine has that node's name in MAAS, `gpuaas node decommission NODE`, or correct the host named here in MAAS, then `gpuaas run resume RUN --reason WHY`",
    doc: "A machine is bound to one node at a time",
}
SeveralNewMachines "several_new_machines" "Several new machines could be the host" {
    owner: Owner::InfraOperator,
    cures: &[Cure::Resume],
    looked_at_again: true,
    next_action: "give the host's machine its hostname in MAAS, then `gpuaas run resume RUN --reason WHY`",
    doc: "With `auto_claim_single_new_machine` one new machine is claimed, and MAAS lists more than one",
}
MachineNotFound "machine_not_found" "MAAS does not know the host" {
    owner: Owner::InfraOperator,
    cures: &[Cure::Resume],
    looked_at_again: true,
    next_action: "boot the host once so that MAAS enlists it and give that machine the hostname, or correct the site that the host is at, `gpuaas node set NODE --site NAME --reason WHY`; then `gpuaas run resume RUN --reason WHY`",
    doc: "No machine has the hostname, and there is neither a MAC nor a BMC address to make one from",
}
CreatedMachineMissing "created_machine_missing" "MAAS does not list the machine that it took" {
    owner: Owner::InfraOperator,
    cures: &[Cure::Resume],
    looked_at_again: true,
    next_action: "look for the machine in MAAS, then `gpuaas run resume RUN --reason WHY`",
    doc: "MAAS accepted a new machine and does not show it afterwards",
}
MachineBusy "machine_busy" "Somebody else uses the machine" {
    owner: Owner::InfraOperator,
    cures: &[Cure::Resume],
    looked_at_again: true,
    next_action: "bring the machine to New, Ready or Deployed in MAAS, then `gpuaas run resume RUN --reason WHY`",
    doc: "MAAS shows the machine in a status from which no onboarding begins",
}
MachineTaken "machine_taken" "Somebody changed the machine during the run" {
    owner: Owner::InfraOperator,
    cures: &[Cure::Resume],
    looked_at_again: false,
    next_action: "find out who changed the machine and why, bring it to Ready in MAAS, then `gpuaas run resume RUN --reason WHY`",
    doc: "MAAS shows a status that this run did not bring about",
}
MachineVanished "machine_vanished" "The machine is gone from MAAS" {
    owner: Owner::InfraOperator,
    cures: &[Cure::Resume, Cure::Cancel],
    looked_at_again: true,
    next_action: "restore MAAS from a backup that has the machine, then `gpuaas run resume RUN --reason WHY`; or find out who deleted it in MAAS, `gpuaas run cancel RUN --reason WHY`, and `gpuaas node detach NODE` before the host is onboarded again",
    doc: "MAAS answers that the machine of the node does not exist",
}
MachineRepurposed "machine_repurposed" "The machine belongs to another MAAS user" {
    owner: Owner::PlatformOperator,
    cures: &[Cure::Resume, Cure::Cancel],
    looked_at_again: true,
    next_action: "ask that user to release the machine in MAAS, then `gpuaas run resume RUN --reason WHY`; or cancel if it stays theirs, `gpuaas run cancel RUN --reason WHY`, then `gpuaas node detach NODE`",
    doc: "GPUaaS does not change a machine that another user of MAAS owns",
}
CommissioningBundleMissing "commissioning_bundle_missing" "The profile's commissioning bundle does not resolve" {
    owner: Owner::PlatformOperator,
    cures: &[Cure::Resume, Cure::ResumeLatestProfile],
    looked_at_again: false,
    next_action: "publish the bundle again, `gpuaas bundle publish DIR`, and `gpuaas run resume RUN --reason WHY`; or name another in `commissioning_bundle_ref` and `gpuaas run resume RUN --latest-profile --reason WHY`",
    doc: "The bundle that `commissioning_bundle_ref` names was there when the run began and is not now",
}
ScriptNotAsAsked "script_not_as_asked" "MAAS shows another script than it took" {
    owner: Owner::InfraOperator,
    cures: &[Cure::Resume],
    looked_at_again: false,
    next_action: "look at the script in MAAS' settings, then `gpuaas run resume RUN --reason WHY`",
    doc: "A script of the commissioning bundle was registered and reads differently afterwards",
}
TagNotAsAsked "tag_not_as_asked" "MAAS shows another tag than it took" {
    owner: Owner::InfraOperator,
    cures: &[Cure::Resume],
    looked_at_again: false,
    next_action: "look at the tag and at the machine's tags in MAAS, then `gpuaas run resume RUN --reason WHY`",
    doc: "The profile's tag was written or given to the machine, and reads differently afterwards",
}
HardwareTestFailed "hardware_test_failed" "A hardware test of MAAS failed" {
    owner: Owner::InfraOperator,
    cures: &[Cure::Resume],
    looked_at_again: true,
    next_action: "read the test results in MAAS, mend the machine and test it again there, or override the failed test, then `gpuaas run resume RUN --reason WHY`",
    doc: "MAAS says Failed testing because of a test that is not of the profile's bundle",
}
CommissioningFailed "commissioning_failed" "Commissioning failed" {
    owner: Owner::InfraOperator,
    cures: &[Cure::Retry],
    looked_at_again: true,
    next_action: "read the commissioning results in MAAS, mend the machine, then `gpuaas run retry RUN --reason WHY`, which commissions it again",
    doc: "MAAS says Failed commissioning, as often as the step allows",
}
CommissioningScriptFailed "commissioning_script_failed" "A commissioning script of the bundle failed" {
    owner: Owner::InfraOperator,
    cures: &[Cure::Resume, Cure::SkipCheck],
    looked_at_again: false,
    next_action: "mend what the script names, then `gpuaas run resume RUN --reason WHY`, which commissions the machine again; or answer for the check, `gpuaas run skip-check RUN --check NAME --reason WHY`",
    doc: "A script that the profile's commissioning bundle brought did not pass",
}
CommissioningReverted "commissioning_reverted" "MAAS took the commissioning and undid it" {
    owner: Owner::InfraOperator,
    cures: &[Cure::Resume],
    looked_at_again: true,
    next_action: "check the machine's BMC address and password in MAAS, then `gpuaas run resume RUN --reason WHY`, which commissions it again",
    doc: "MAAS goes back to the earlier status when the machine's BMC does not answer",
}
PxePreflightFailed "pxe_preflight_failed" "The boot interface is not fit to boot from" {
    owner: Owner::InfraOperator,
    cures: &[Cure::Resume, Cure::ResumeLatestProfile],
    looked_at_again: true,
    next_action: "correct the boot interface in MAAS and `gpuaas run resume RUN --reason WHY`; or set `strict_pxe_preflight=false` in the profile and `gpuaas run resume RUN --latest-profile --reason WHY`",
    doc: "The profile has `strict_pxe_preflight`, and a check of the boot interface does not pass",
}
StorageLayoutUnknown "storage_layout_unknown" "There is no such storage layout" {
    owner: Owner::PlatformOperator,
    cures: &[Cure::ResumeLatestProfile],
    looked_at_again: false,
    next_action: "correct `storage_layout_profile` in the profile, then `gpuaas run resume RUN --latest-profile --reason WHY`",
    doc: "The pinned profile names a storage layout that this version does not have",
}
NoDataDisk "no_data_disk" "There is no disk for the data" {
    owner: Owner::PlatformOperator,
    cures: &[Cure::Resume, Cure::ResumeLatestProfile],
    looked_at_again: true,
    next_action: "check the disks, commission the machine in MAAS and `gpuaas run resume RUN --reason WHY`; or choose a `storage_layout_profile` without data disks and `gpuaas run resume RUN --latest-profile --reason WHY`",
    doc: "The storage layout wants NVMe disks beside the boot disk, and MAAS lists none",
}
NoBootDisk "no_boot_disk" "There is no disk to boot from" {
    owner: Owner::InfraOperator,
    cures: &[Cure::Resume],
    looked_at_again: true,
    next_action: "check the disks and commission the machine in MAAS, then `gpuaas run resume RUN --reason WHY`",
    doc: "No disk of the machine fits the rules for a boot disk, or there are too few for the layout",
}
StorageNotAsAsked "storage_not_as_asked" "MAAS shows another storage than it took" {
    owner: Owner::InfraOperator,
    cures: &[Cure::Resume],
    looked_at_again: true,
    next_action: "correct the machine's storage page in MAAS, then `gpuaas run resume RUN --reason WHY`",
    doc: "A storage layout, filesystem or mount point was set and reads differently afterwards",
}
RoceAssignmentsMissing "roce_assignments_missing" "The host has no fabric addresses" {
    owner: Owner::PlatformOperator,
    cures: &[Cure::Resume],
    looked_at_again: false,
    next_action: "add them, `gpuaas roce add --site SITE --host HOST --interface NAME --subnet CIDR --ip ADDRESS`, then `gpuaas run resume RUN --reason WHY`",
    doc: "The profile has `enable_phase2_roce`, and no fabric address is assigned to the host",
}
RoceInterfaceMissing "roce_interface_missing" "The host lacks a fabric interface" {
    owner: Owner::PlatformOperator,
    cures: &[Cure::Resume],
    looked_at_again: true,
    next_action: "give the machine the interface that the assignment names, or commission it in MAAS so that MAAS sees it, then `gpuaas run resume RUN --reason WHY`",
    doc: "A fabric address is assigned to an interface that MAAS does not list",
}
RoceBootInterface "roce_boot_interface" "A fabric address is assigned to the boot interface" {
    owner: Owner::PlatformOperator,
    cures: &[Cure::Resume],
    looked_at_again: false,
    next_action: "assign the address to a fabric interface, `gpuaas roce set --site SITE --host HOST --interface NAME --to-interface NAME`, or take it away, `gpuaas roce remove --site SITE --host HOST --interface NAME`; then `gpuaas run resume RUN --reason WHY`",
    doc: "The machine boots from the interface that an assignment names, so its links are left as they are",
}
RoceSubnetUnknown "roce_subnet_unknown" "A fabric address is in a subnet that does not fit" {
    owner: Owner::PlatformOperator,
    cures: &[Cure::Resume],
    looked_at_again: false,
    next_action: "make the subnet in MAAS, on the VLAN of the interface, or correct the assignment, `gpuaas roce set --site SITE --host HOST --interface NAME --subnet CIDR --ip ADDRESS`; then `gpuaas run resume RUN --reason WHY`",
    doc: "MAAS does not have the subnet of an assignment, or has it on another VLAN than the interface; no link was changed",
}
RoceLinkStays "roce_link_stays" "MAAS shows a link that it took away" {
    owner: Owner::InfraOperator,
    cures: &[Cure::Resume],
    looked_at_again: false,
    next_action: "remove the link from the interface in MAAS, then `gpuaas run resume RUN --reason WHY`",
    doc: "A link that no assignment wants was removed from a fabric interface and is still there afterwards",
}
RoceLinkMissing "roce_link_missing" "MAAS shows no link that it took" {
    owner: Owner::InfraOperator,
    cures: &[Cure::Resume],
    looked_at_again: true,
    next_action: "correct the interface in MAAS, then `gpuaas run resume RUN --reason WHY`",
    doc: "A fabric address was linked and is not there afterwards",
}
HardwareSyncIntervalDiffers "hardware_sync_interval_differs" "MAAS syncs hardware at another interval" {
    owner: Owner::InfraOperator,
    cures: &[Cure::Resume, Cure::ResumeLatestProfile],
    looked_at_again: true,
    next_action: "set the interval in MAAS' settings and `gpuaas run resume RUN --reason WHY`; or set `hardware_sync_interval` in the profile and `gpuaas run resume RUN --latest-profile --reason WHY`",
    doc: "The profile has `require_hw_sync`, and its interval is not the region's",
}
PredeployChecksFailed "predeploy_checks_failed" "A check before the deployment fails" {
    owner: Owner::PlatformOperator,
    cures: &[Cure::Resume, Cure::ResumeLatestProfile],
    looked_at_again: true,
    next_action: "correct what the checks name and `gpuaas run resume RUN --reason WHY`; or correct the profile, where it is at fault, and `gpuaas run resume RUN --latest-profile --reason WHY`",
    doc: "Nothing is written to a disk while an input of the deployment is known to be bad",
}
DeployReverted "deploy_reverted" "MAAS took the deployment and undid it" {
    owner: Owner::InfraOperator,
    cures: &[Cure::Resume],
    looked_at_again: false,
    next_action: "look at the machine's events in MAAS (rack controller, BMC), then `gpuaas run resume RUN --reason WHY`, which deploys it again",
    doc: "MAAS went back to Allocated, as it does when the machine cannot be powered on",
}
DeployFailed "deploy_failed" "The deployment failed" {
    owner: Owner::InfraOperator,
    cures: &[Cure::Retry],
    looked_at_again: false,
    next_action: "mend the cause, then `gpuaas run retry RUN --reason WHY`, which releases the machine and deploys it again",
    doc: "MAAS says Failed deployment; the class of the failure decides who has to act",
}
SiteBootstrapFailed "site_bootstrap_failed" "The site bootstrap failed" {
    owner: Owner::BundleOwner,
    cures: &[Cure::Resume],
    looked_at_again: false,
    next_action: "read /var/log/cloud-init-output.log on the host, mend the cause, `gpuaas run resume RUN --reason WHY`, and run the scripts under /var/lib/cloud/instance/scripts on the host again",
    doc: "A phase of the site's bundle failed on the host",
}
NodeBootstrapFailed "node_bootstrap_failed" "The node bootstrap failed" {
    owner: Owner::PlatformOperator,
    cures: &[Cure::Resume],
    looked_at_again: false,
    next_action: "read /var/log/cloud-init-output.log on the host, mend the cause, `gpuaas run resume RUN --reason WHY`, and run the scripts under /var/lib/cloud/instance/scripts on the host again",
    doc: "The agent could not be fetched, installed or started on the host",
}
HostChecksUnknown "host_checks_unknown" "What the bundles ask of the host is not known" {
    owner: Owner::PlatformOperator,
    cures: &[Cure::Resume, Cure::ResumeLatestProfile],
    looked_at_again: false,
    next_action: "correct the inputs, `gpuaas site set SITE --bundle-input BUNDLE.INPUT=VALUE`, or publish the bundle again, `gpuaas bundle publish DIR`, and `gpuaas run resume RUN --reason WHY`; or name another in `post_deploy_validation_bundle_ref` and `gpuaas run resume RUN --latest-profile --reason WHY`",
    doc: "A bundle of the profile does not resolve any more, or its inputs do not fit",
}
DiagnosticsFailed "diagnostics_failed" "The agent's diagnostics failed" {
    owner: Owner::PlatformOperator,
    cures: &[Cure::Retry],
    looked_at_again: false,
    next_action: "read the agent's log on the host, then `gpuaas run retry RUN --reason WHY`, which has the agent look again",
    doc: "The agent could not look at its host",
}
RebootDidNotHelp "reboot_did_not_help" "The host was started again and asks for it still" {
    owner: Owner::PlatformOperator,
    cures: &[Cure::Retry],
    looked_at_again: false,
    next_action: "mend on the host what the reason names, then `gpuaas run retry RUN --reason WHY`, which has the host start again where it still asks for that",
    doc: "Its agent was told to start the host again; that failed, or a reason to start it again is there after the boot",
}
PrerequisiteMissing "prerequisite_missing" "The host is not as the bundles require" {
    owner: Owner::PlatformOperator,
    cures: &[Cure::Retry, Cure::SkipCheck],
    looked_at_again: false,
    next_action: "repair the host, then `gpuaas run retry RUN --reason WHY`, which has the agent look again; or answer for the check, `gpuaas run skip-check RUN --check NAME --reason WHY`",
    doc: "The agent looked at its host, and a check does not pass",
}
CompletionGateFailed "completion_gate_failed" "A completion gate does not pass" {
    owner: Owner::PlatformOperator,
    cures: &[Cure::Resume],
    looked_at_again: true,
    next_action: "correct what the gate names; for a bootstrap, run the scripts under /var/lib/cloud/instance/scripts on the host again; then `gpuaas run resume RUN --reason WHY`",
    doc: "One of the gates between a deployed host and an active node does not pass",
}
EnrollmentContested "enrollment_contested" "Two keys asked to enroll with one token" {
    owner: Owner::PlatformOperator,
    cures: &[Cure::Cancel],
    looked_at_again: false,
    next_action: "find out how the token left the host, then `gpuaas run cancel RUN --reason WHY`, and onboard the machine again, which gives it other tokens",
    doc: "Somebody else has the token of the node's agent, and nobody can tell which of the two is the node: every certificate of the node is revoked",
}
CleanupFailed "cleanup_failed" "The agent could not empty folders of its host" {
    owner: Owner::PlatformOperator,
    cures: &[Cure::Retry, Cure::Cancel],
    looked_at_again: false,
    next_action: "mend what the agent names, then `gpuaas run retry RUN --reason WHY`; or `gpuaas run cancel RUN --reason WHY`, then `gpuaas node reimage NODE`",
    doc: "A soft reset or a storage cleanup did not succeed on the host",
}
HostReleased "host_released" "The machine was released in MAAS" {
    owner: Owner::PlatformOperator,
    cures: &[Cure::Cancel],
    looked_at_again: false,
    next_action: "find out who released it in MAAS; then `gpuaas run cancel RUN --reason WHY`, and `gpuaas node reimage NODE` to have its host back",
    doc: "A soft reset or a storage cleanup is the work of the node's agent, and MAAS says that no system is deployed on the machine any more",
}
ReleaseFailed "release_failed" "MAAS does not release the machine" {
    owner: Owner::InfraOperator,
    cures: &[Cure::Retry],
    looked_at_again: true,
    next_action: "clear the failure in MAAS (disks, BMC), then `gpuaas run retry RUN --reason WHY`",
    doc: "Everything that may be done about a release that hangs or fails was done",
}
MachineHandedOff "machine_handed_off" "The machine was handed over" {
    owner: Owner::PlatformOperator,
    cures: &[Cure::Cancel],
    looked_at_again: false,
    next_action: "GPUaaS does not touch a machine whose profile hands it over: `gpuaas run cancel RUN --reason WHY`, then `gpuaas node detach NODE`",
    doc: "The profile has `release_mode=handoff`, so the call was not made",
}
DecisionLoop "decision_loop" "The run decided without end" {
    owner: Owner::PlatformOperator,
    cures: &[Cure::Resume],
    looked_at_again: false,
    next_action: "this is a bug: report it with the output of `gpuaas run show RUN`, then `gpuaas run resume RUN --reason WHY`",
    doc: "One turn of a run made more decisions than any run needs",
}
EffectNotPrepared "effect_not_prepared" "A call could not be prepared" {
    owner: Owner::PlatformOperator,
    cures: &[Cure::Resume],
    looked_at_again: false,
    next_action: "correct what the text names, then `gpuaas run resume RUN --reason WHY`",
    doc: "What a call to MAAS carries, such as the user-data or the name of what it is about, could not be made",
}
InternalError "internal_error" "A defect of the control plane stopped the run" {
    owner: Owner::PlatformOperator,
    cures: &[Cure::Resume],
    looked_at_again: false,
    next_action: "this is a bug: report the text and the log of the control plane, then `gpuaas run resume RUN --reason WHY`",
    doc: "Something panicked while the run was worked on, or its step has no successor; the text says what",
}
MaasValidation "maas_validation" "MAAS refused a field" {
    owner: Owner::InfraOperator,
    cures: &[Cure::Retry],
    looked_at_again: false,
    next_action: "correct what MAAS names, then `gpuaas run retry RUN --reason WHY`",
    doc: "MAAS answered that the value of a field cannot be taken",
}
MaasBadRequest "maas_bad_request" "MAAS refused a request" {
    owner: Owner::InfraOperator,
    cures: &[Cure::Retry],
    looked_at_again: false,
    next_action: "correct what MAAS names, then `gpuaas run retry RUN --reason WHY`",
    doc: "MAAS answered 400 without naming a field",
}
MaasForbidden "maas_forbidden" "The API key may not do this" {
    owner: Owner::PlatformOperator,
    cures: &[Cure::Retry],
    looked_at_again: false,
    next_action: "give the site a key of a MAAS administrator, `gpuaas site set SITE --api-key-file FILE`, then `gpuaas run retry RUN --reason WHY`",
    doc: "MAAS answered 403: the key's user is not an administrator, or does not own the machine",
}
MaasNotFound "maas_not_found" "MAAS does not know what was named" {
    owner: Owner::InfraOperator,
    cures: &[Cure::Retry],
    looked_at_again: false,
    next_action: "correct what MAAS names, then `gpuaas run retry RUN --reason WHY`",
    doc: "MAAS answered 404 to a change",
}
MaasAddressInUse "maas_address_in_use" "An address is in use" {
    owner: Owner::InfraOperator,
    cures: &[Cure::Retry],
    looked_at_again: false,
    next_action: "free the address that MAAS names, then `gpuaas run retry RUN --reason WHY`",
    doc: "MAAS answered that a static address belongs to another interface",
}
MaasUnknownEndpoint "maas_unknown_endpoint" "This MAAS has no such endpoint" {
    owner: Owner::InfraOperator,
    cures: &[Cure::Retry],
    looked_at_again: false,
    next_action: "check the version of MAAS and what stands before it, then `gpuaas run retry RUN --reason WHY`",
    doc: "MAAS, or a proxy before it, answered 404 to an address of its own API",
}
MaasMethodNotAllowed "maas_method_not_allowed" "This MAAS does not take the method" {
    owner: Owner::InfraOperator,
    cures: &[Cure::Retry],
    looked_at_again: false,
    next_action: "check the version of MAAS and what stands before it, then `gpuaas run retry RUN --reason WHY`",
    doc: "MAAS, or a proxy before it, answered 405",
}
MaasStateConflict "maas_state_conflict" "The machine's status forbids a call" {
    owner: Owner::InfraOperator,
    cures: &[Cure::Retry],
    looked_at_again: false,
    next_action: "correct what MAAS names, then `gpuaas run retry RUN --reason WHY`",
    doc: "MAAS answered 409, as often as the step allows",
}
MaasDatabaseConflict "maas_database_conflict" "MAAS' database refuses a change" {
    owner: Owner::InfraOperator,
    cures: &[Cure::Retry],
    looked_at_again: false,
    next_action: "correct what MAAS names (mostly a BMC or MAC address of another machine), then `gpuaas run retry RUN --reason WHY`",
    doc: "MAAS answered with an error of its database, as often as the step allows",
}
MaasRefused "maas_refused" "MAAS refused a call" {
    owner: Owner::InfraOperator,
    cures: &[Cure::Retry],
    looked_at_again: false,
    next_action: "correct what MAAS names, then `gpuaas run retry RUN --reason WHY`",
    doc: "MAAS refused a call in a way that has no code of its own",
}
}

#[cfg(test)]
#[path = "park_tests.rs"]
mod tests;
