//! The table: how each park is made, and what a person does about it.

use gpuaas_types::agent::BootstrapPhase;
use gpuaas_types::codes::{ParkCode, WaitCode};
use gpuaas_types::{RunKind, RunStatus, Step};
use maas_sim::{Fault, FaultKind, HostView};

use super::act::{Act, When};
use super::case::{Acts, PLAIN, RecoveryCase};
use super::commands;
use crate::shared_state::HostFault;

const MACHINE: &str = "machines/{id}/";

/// Another user of MAAS has deployed the machine.
fn deployed_by_bob() -> Vec<Act> {
    vec![Act::Ready("{host}", false), Act::DeployAs("bob"), Act::UntilMaas("Deployed")]
}

/// A host of which only the name is told.
fn bare(host: &HostView) -> HostView {
    let (mac_address, bmc_address) = (String::new(), String::new());
    HostView { mac_address, bmc_address, ..host.clone() }
}

fn clear() -> Vec<Act> {
    vec![Act::ClearFaults]
}

fn sound_host() -> Vec<Act> {
    vec![Act::Host(None)]
}

/// A commissioning that MAAS, or what stands before it, refuses like this until somebody corrects
/// what is named.
fn refused(status: u16, body: &str) -> Vec<Act> {
    let fault = Fault::new(FaultKind::Answered).at("machine.commission");
    vec![Act::Fault(fault.with_status(status).with_message(body))]
}

/// What ends once MAAS, or what stands before it, refuses no more.
const fn refusal(code: ParkCode, before: Acts) -> RecoveryCase {
    RecoveryCase { code, before, repair: clear, ..PLAIN }
}

const fn person(form: &'static str) -> Act {
    Act::Maas("POST", MACHINE, form)
}

/// Every park that can be made, once.
pub static CASES: &[RecoveryCase] = &[
    RecoveryCase {
        code: ParkCode::DeadlineExceeded,
        then: Some((RunKind::SoftReset, || vec![person("op=power_off")])),
        repair: || vec![person("op=power_on"), Act::Seconds(60.0)],
        ..PLAIN
    },
    RecoveryCase {
        code: ParkCode::UnknownOutcomeUnresolved,
        before: || vec![Act::Fault(Fault::new(FaultKind::Refused504).at("machine.commission"))],
        repair: clear,
        in_maas: Some(commissioned_by_hand),
        ..PLAIN
    },
    RecoveryCase {
        code: ParkCode::MachineLocked,
        before: || vec![Act::Ready("{host}", true)],
        repair: || vec![person("op=unlock")],
        ..PLAIN
    },
    RecoveryCase {
        code: ParkCode::TwoCandidates,
        before: || {
            let twin = [Act::Ready("other", false), Act::Rename("other", "{host}")];
            [vec![Act::ReadyAs("spare")], twin.to_vec()].concat()
        },
        repair: || vec![Act::Rename("{host}", "other"), Act::Rename("spare", "{host}")],
        ..PLAIN
    },
    RecoveryCase {
        code: ParkCode::MachineMismatch,
        before: || vec![Act::ReadyAs("spare")],
        repair: || vec![Act::Rename("spare", "{host}")],
        ..PLAIN
    },
    RecoveryCase {
        code: ParkCode::MachineInUse,
        before: deployed_by_bob,
        repair: || vec![person("op=release"), Act::UntilMaas("Ready")],
        ..PLAIN
    },
    RecoveryCase {
        code: ParkCode::PowerTypeDiffers,
        before: || {
            vec![Act::Ready("{host}", false), Act::Maas("PUT", MACHINE, "power_type=manual")]
        },
        repair: || {
            let ipmi = "power_type=ipmi&power_parameters_power_address={bmc}";
            vec![Act::Maas("PUT", MACHINE, ipmi)]
        },
        ..PLAIN
    },
    RecoveryCase {
        code: ParkCode::MachineHeld,
        before: || {
            vec![
                Act::ReadyAs("other"),
                Act::Command("gpuaas node onboard other --site simulated --profile h200"),
                Act::Seconds(7200.0),
                Act::Rename("other", "{host}"),
            ]
        },
        named: bare,
        repair: || {
            let leave = "gpuaas node decommission other --yes --reason moved";
            // Under another name it is not the machine of the node that leaves.
            vec![
                Act::Rename("{host}", "other"),
                Act::Command(leave),
                Act::Seconds(7200.0),
                Act::Rename("other", "{host}"),
            ]
        },
        in_maas: Some(|| {
            let twin = [Act::Ready("twin", false), Act::Rename("twin", "{host}")];
            [vec![Act::Rename("{host}", "other")], twin.to_vec()].concat()
        }),
        ..PLAIN
    },
    RecoveryCase {
        code: ParkCode::SeveralNewMachines,
        profile: |profile| profile.auto_claim_single_new_machine = true,
        before: || vec![Act::Enlist("new1"), Act::Enlist("new2")],
        named: bare,
        repair: || vec![Act::Rename("new1", "{host}")],
        ..PLAIN
    },
    RecoveryCase {
        code: ParkCode::MachineNotFound,
        named: bare,
        repair: || vec![Act::Enlist("{host}")],
        ..PLAIN
    },
    // While the answer to the create is on its way, the machine gets another node's name and
    // becomes its; then it is deleted.
    RecoveryCase {
        code: ParkCode::CreatedMachineMissing,
        before: || {
            let slow = Fault::new(FaultKind::Slow).at("machines.create").times(1);
            vec![Act::Fault(slow.lasting_seconds(10.0))]
        },
        during: || {
            let onboard = "gpuaas node onboard other --site simulated --profile h200";
            vec![
                (When::InMaas, Act::Rename("{host}", "other")),
                (When::InMaas, Act::Command(onboard)),
            ]
        },
        at_first_park: || {
            let resume = "gpuaas run resume {run} --reason deleted";
            vec![Act::Delete("other"), Act::Command(resume)]
        },
        repair: || vec![Act::Enlist("{host}")],
        ..PLAIN
    },
    RecoveryCase {
        code: ParkCode::MachineBusy,
        before: || {
            let rescue = person("op=rescue_mode");
            vec![Act::Ready("{host}", false), rescue, Act::UntilMaas("Rescue mode")]
        },
        repair: || vec![person("op=exit_rescue_mode"), Act::UntilMaas("Ready")],
        ..PLAIN
    },
    RecoveryCase {
        code: ParkCode::MachineTaken,
        during: || vec![(When::Maas("Deploying"), person("op=release"))],
        repair: || vec![Act::UntilMaas("Ready")],
        ..PLAIN
    },
    RecoveryCase {
        code: ParkCode::MachineVanished,
        during: || {
            vec![
                (When::Maas("Deploying"), Act::BackUpMaas),
                (When::Maas("Deploying"), Act::Maas("DELETE", MACHINE, "")),
            ]
        },
        repair: || vec![Act::RestoreMaas],
        ..PLAIN
    },
    RecoveryCase {
        code: ParkCode::MachineRepurposed,
        then: Some((RunKind::Decommission, || {
            let theirs = [Act::DeployAs("bob"), Act::UntilMaas("Deployed")];
            [vec![person("op=release"), Act::UntilMaas("Ready")], theirs.to_vec()].concat()
        })),
        repair: || vec![person("op=release"), Act::UntilMaas("Ready")],
        ..PLAIN
    },
    RecoveryCase {
        code: ParkCode::HostReleased,
        then: Some((RunKind::SoftReset, || vec![person("op=release"), Act::UntilMaas("Ready")])),
        ends: RunStatus::Cancelled,
        ..PLAIN
    },
    RecoveryCase {
        code: ParkCode::CommissioningBundleMissing,
        profile: |profile| profile.commissioning_bundle_ref = "late@0.1.0".to_owned(),
        repair: || {
            vec![
                Act::Command("gpuaas bundle new {folder}/late --kind commissioning"),
                Act::Command("gpuaas bundle publish {folder}/late"),
            ]
        },
        ..PLAIN
    },
    RecoveryCase {
        code: ParkCode::ScriptNotAsAsked,
        profile: |profile| profile.commissioning_bundle_ref = "commissioning-base@1.0.0".to_owned(),
        before: || {
            let taken = r#"{"id": 1, "name": "taken", "type": 0, "tags": []}"#;
            let fault = Fault::new(FaultKind::Answered).at("scripts.create");
            vec![Act::Fault(fault.with_status(200).with_message(taken))]
        },
        repair: clear,
        ..PLAIN
    },
    RecoveryCase {
        code: ParkCode::TagNotAsAsked,
        profile: |profile| profile.machine_tag = "gold".to_owned(),
        before: || {
            let fault = Fault::new(FaultKind::Answered).at("tags.create").with_status(200);
            vec![Act::Fault(fault.with_message(r#"{"name": "gold"}"#))]
        },
        repair: clear,
        ..PLAIN
    },
    RecoveryCase {
        code: ParkCode::HardwareTestFailed,
        before: || vec![Act::Fault(Fault::new(FaultKind::TestingFailed).times(1))],
        repair: || vec![person("op=override_failed_testing"), Act::UntilMaas("Ready")],
        ..PLAIN
    },
    RecoveryCase {
        code: ParkCode::CommissioningFailed,
        before: || vec![Act::Fault(Fault::new(FaultKind::CommissioningFailed))],
        repair: clear,
        in_maas: Some(commissioned_by_hand),
        ..PLAIN
    },
    RecoveryCase {
        code: ParkCode::CommissioningScriptFailed,
        profile: |profile| profile.commissioning_bundle_ref = "commissioning-base@1.0.0".to_owned(),
        before: || {
            vec![Act::Fault(Fault::new(FaultKind::ScriptFailed).with_message("gpuaas").times(1))]
        },
        repair: clear,
        ..PLAIN
    },
    RecoveryCase {
        code: ParkCode::CommissioningReverted,
        before: || vec![Act::Fault(Fault::new(FaultKind::Ignored).at("machine.commission"))],
        repair: clear,
        in_maas: Some(commissioned_by_hand),
        ..PLAIN
    },
    RecoveryCase {
        code: ParkCode::PxePreflightFailed,
        before: || vec![Act::Dhcp(false)],
        repair: || vec![Act::Dhcp(true)],
        ..PLAIN
    },
    RecoveryCase {
        code: ParkCode::StorageLayoutUnknown,
        profile: |profile| profile.storage_layout_profile = "zfs".to_owned(),
        repair: || vec![Act::Command("gpuaas profile set h200 storage_layout_profile=flat")],
        ..PLAIN
    },
    RecoveryCase {
        code: ParkCode::NoDataDisk,
        profile: |profile| profile.storage_layout_profile = "flat-data".to_owned(),
        before: || vec![Act::Fault(Fault::new(FaultKind::DisksMissing).with_message("nvme"))],
        repair: commissioned_by_hand,
        ..PLAIN
    },
    RecoveryCase {
        code: ParkCode::NoBootDisk,
        before: || vec![Act::Fault(Fault::new(FaultKind::DisksMissing))],
        repair: commissioned_by_hand,
        ..PLAIN
    },
    RecoveryCase {
        code: ParkCode::StorageNotAsAsked,
        before: || {
            vec![Act::Fault(Fault::new(FaultKind::Ignored).at("machine.set_storage_layout"))]
        },
        repair: clear,
        in_maas: Some(|| {
            let by_hand = person("op=set_storage_layout&storage_layout=flat");
            vec![Act::ClearFaults, by_hand]
        }),
        ..PLAIN
    },
    RecoveryCase {
        code: ParkCode::RoceAssignmentsMissing,
        profile: |profile| profile.enable_phase2_roce = true,
        repair: || vec![Act::Command(commands::ROCE)],
        ..PLAIN
    },
    RecoveryCase {
        code: ParkCode::RoceInterfaceMissing,
        profile: |profile| profile.enable_phase2_roce = true,
        before: || vec![Act::Command(commands::ROCE_ELSEWHERE)],
        repair: || vec![Act::Maas("PUT", "nodes/{id}/interfaces/{nic}/", "name=ens999")],
        ..PLAIN
    },
    RecoveryCase {
        code: ParkCode::RoceLinkMissing,
        profile: |profile| profile.enable_phase2_roce = true,
        before: || {
            let fault = Fault::new(FaultKind::Ignored).at("interface.link_subnet");
            vec![Act::Command(commands::ROCE), Act::Fault(fault)]
        },
        repair: clear,
        in_maas: Some(|| {
            let link = "op=link_subnet&mode=static&subnet=6&ip_address=10.101.0.21";
            let by_hand = Act::Maas("POST", "nodes/{id}/interfaces/{nic}/", link);
            vec![Act::ClearFaults, by_hand]
        }),
        ..PLAIN
    },
    RecoveryCase {
        code: ParkCode::RoceBootInterface,
        profile: |profile| profile.enable_phase2_roce = true,
        before: || vec![Act::Command(commands::ROCE_ON_BOOT)],
        repair: || vec![Act::Command(commands::ROCE_TO_FABRIC)],
        ..PLAIN
    },
    RecoveryCase {
        code: ParkCode::RoceSubnetUnknown,
        profile: |profile| profile.enable_phase2_roce = true,
        before: || vec![Act::Command(commands::ROCE_NOWHERE)],
        repair: || vec![Act::Command(commands::ROCE_INTO_SUBNET)],
        ..PLAIN
    },
    RecoveryCase {
        code: ParkCode::RoceLinkStays,
        profile: |profile| profile.enable_phase2_roce = true,
        before: || {
            let link = "op=link_subnet&mode=auto&subnet=6";
            vec![
                Act::Ready("{host}", false),
                Act::Maas("POST", "nodes/{id}/interfaces/{nic}/", link),
                Act::Command(commands::ROCE),
                Act::Fault(Fault::new(FaultKind::Ignored).at("interface.unlink_subnet")),
            ]
        },
        repair: clear,
        ..PLAIN
    },
    // Its machine is somebody's, until an operator takes it over.
    RecoveryCase {
        code: ParkCode::HardwareSyncIntervalDiffers,
        before: deployed_by_bob,
        at_first_park: || {
            let plan = "gpuaas node onboard {host} --site simulated --profile h200 --dry-run";
            let take_over = "gpuaas run take-over {run} --yes --reason agreed";
            vec![Act::Command(plan), Act::Command(take_over)]
        },
        profile: |profile| {
            profile.require_hw_sync = true;
            profile.hardware_sync_interval = "10m".to_owned();
        },
        repair: || {
            let form = "op=set_config&name=hardware_sync_interval&value=10m";
            vec![Act::Maas("POST", "maas/", form)]
        },
        ..PLAIN
    },
    RecoveryCase {
        code: ParkCode::PredeployChecksFailed,
        profile: |profile| profile.distro_series = "custom/h200-image".to_owned(),
        before: || {
            let approve = "gpuaas site set simulated --approve-image custom/h200-image";
            vec![Act::Command(approve)]
        },
        repair: || vec![Act::Upload("h200-image")],
        ..PLAIN
    },
    RecoveryCase {
        code: ParkCode::DeployReverted,
        during: || {
            let fault = Fault::new(FaultKind::NoRack).times(1);
            vec![(When::Step(Step::Deploy), Act::Fault(fault))]
        },
        repair: clear,
        ..PLAIN
    },
    RecoveryCase {
        code: ParkCode::DeployFailed,
        before: || vec![Act::Fault(Fault::new(FaultKind::DeployFailed).times(1))],
        repair: clear,
        ..PLAIN
    },
    RecoveryCase {
        code: ParkCode::SiteBootstrapFailed,
        before: || vec![Act::Host(Some(HostFault::BootstrapFails(BootstrapPhase::SiteBootstrap)))],
        repair: sound_host,
        afterwards: || vec![Act::RunBootScripts],
        ..PLAIN
    },
    RecoveryCase {
        code: ParkCode::NodeBootstrapFailed,
        before: || vec![Act::Host(Some(HostFault::BootstrapFails(BootstrapPhase::NodeBootstrap)))],
        repair: sound_host,
        afterwards: || vec![Act::RunBootScripts],
        ..PLAIN
    },
    // The deployment is under way when the site gets a value that the bundle cannot take.
    RecoveryCase {
        code: ParkCode::HostChecksUnknown,
        profile: |profile| {
            profile.post_deploy_validation_bundle_ref =
                gpuaas_types::built_in_bundle!("validate-h200").to_owned();
        },
        during: || vec![(When::Maas("Deploying"), Act::Command(commands::DISKS_MANY))],
        repair: || vec![Act::Command(commands::DISKS_ONE)],
        ..PLAIN
    },
    RecoveryCase {
        code: ParkCode::DiagnosticsFailed,
        before: || vec![Act::Host(Some(HostFault::TasksFail))],
        repair: sound_host,
        ..PLAIN
    },
    RecoveryCase {
        code: ParkCode::RebootDidNotHelp,
        before: || vec![Act::Host(Some(HostFault::NeedsReboots))],
        repair: sound_host,
        ..PLAIN
    },
    RecoveryCase {
        code: ParkCode::PrerequisiteMissing,
        before: || vec![Act::Host(Some(HostFault::HostIsBad))],
        repair: sound_host,
        ..PLAIN
    },
    RecoveryCase {
        code: ParkCode::CompletionGateFailed,
        plan: |plan| plan.lost_callbacks = 1.0,
        during: || vec![(When::Step(Step::Confirmation), person("op=rescue_mode"))],
        repair: || {
            let rescue = Act::UntilMaas("Rescue mode");
            vec![rescue, person("op=exit_rescue_mode"), Act::UntilMaas("Deployed")]
        },
        ..PLAIN
    },
    RecoveryCase {
        code: ParkCode::CleanupFailed,
        then: Some((RunKind::SoftReset, || vec![Act::Host(Some(HostFault::TasksFail))])),
        repair: sound_host,
        ..PLAIN
    },
    RecoveryCase {
        code: ParkCode::ReleaseFailed,
        profile: |profile| {
            profile.release_erase = true;
            profile.release_fallback_no_erase = false;
        },
        then: Some((RunKind::Decommission, || vec![Act::Fault(Fault::new(FaultKind::BmcError))])),
        repair: clear,
        in_maas: Some(|| vec![Act::ClearFaults, person("op=release"), Act::UntilMaas("Ready")]),
        ..PLAIN
    },
    RecoveryCase {
        code: ParkCode::MachineHandedOff,
        then: Some((RunKind::Reimage, || {
            vec![Act::Fault(Fault::new(FaultKind::DeployFailed).times(1))]
        })),
        at_first_park: || {
            vec![
                Act::Command("gpuaas profile set h200 release_mode=handoff"),
                Act::Command("gpuaas run retry {run} --latest-profile --reason handed-over"),
            ]
        },
        ends: RunStatus::Cancelled,
        ..PLAIN
    },
    // The approval is taken back while the run waits for its deploy slot, its checks passed.
    RecoveryCase {
        code: ParkCode::EffectNotPrepared,
        profile: |profile| profile.site_bootstrap_bundle_ref = "late@0.1.0".to_owned(),
        plan: |plan| plan.site_batch_max_parallel = 1,
        before: || {
            vec![
                Act::Command("gpuaas bundle new {folder}/late"),
                Act::Command("gpuaas bundle publish {folder}/late"),
                Act::Command(commands::APPROVE),
                Act::Enlist("other"),
                Act::Fault(Fault::new(FaultKind::StuckDeploying).on("other")),
                Act::Command("gpuaas node onboard other --site simulated --profile h200"),
                Act::Seconds(600.0),
            ]
        },
        during: || {
            let withdraw =
                "gpuaas bundle approve late@0.1.0 --site simulated --withdraw --reason doubts";
            vec![
                (When::Wait(WaitCode::BatchLimit), Act::Command(withdraw)),
                (When::Wait(WaitCode::BatchLimit), Act::Abort("other")),
            ]
        },
        repair: || vec![Act::Command(commands::APPROVE)],
        ..PLAIN
    },
    RecoveryCase {
        code: ParkCode::EnrollmentContested,
        before: || vec![Act::Host(Some(HostFault::TokenCopied))],
        ends: RunStatus::Cancelled,
        ..PLAIN
    },
    RecoveryCase {
        code: ParkCode::DecisionLoop,
        plan: |plan| plan.loops_in = Some(Step::PxePreflight),
        ..PLAIN
    },
    RecoveryCase {
        code: ParkCode::InternalError,
        plan: |plan| plan.panics_in = Some(Step::PxePreflight),
        ..PLAIN
    },
    refusal(ParkCode::MaasValidation, || {
        refused(400, r#"{"power_type": ["Not a valid choice."]}"#)
    }),
    refusal(ParkCode::MaasBadRequest, || {
        refused(400, "Unrecognised signature: method=POST op=None")
    }),
    refusal(ParkCode::MaasForbidden, || refused(403, "You do not have permission to do this.")),
    refusal(ParkCode::MaasNotFound, || refused(404, "No such rack")),
    refusal(ParkCode::MaasAddressInUse, || refused(404, "IP address is already in use.")),
    refusal(ParkCode::MaasUnknownEndpoint, || refused(404, "<html>404</html>")),
    refusal(ParkCode::MaasMethodNotAllowed, || refused(405, "<html>405</html>")),
    refusal(ParkCode::MaasStateConflict, || refused(409, "The machine is in another state.")),
    refusal(ParkCode::MaasDatabaseConflict, || refused(409, "<html>409</html>")),
    refusal(ParkCode::MaasRefused, || refused(418, "No.")),
];

/// The part is put right, and a person has MAAS find the disks again.
fn commissioned_by_hand() -> Vec<Act> {
    vec![Act::ClearFaults, person("op=commission"), Act::UntilMaas("Ready")]
}
