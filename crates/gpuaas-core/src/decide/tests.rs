//! One test per promise of the module texts.

use gpuaas_types::agent::{Finding, HostCheck, Phase, ProgressStatus, TaskResult, TaskSpec};
use gpuaas_types::api::CheckResult;
use gpuaas_types::machine::{DiskFilesystem, Link, MaasAlarm, maas_status as status};
use gpuaas_types::spec::{FabricMode, RoceAssignmentSpec};
use gpuaas_types::{NodeState, RunStatus, Step, TaskId, Timestamp};

use super::fixture::{Case, at, id, machine};
use super::ready::PREDEPLOY_CHECKS;
use crate::effect::{Effect, Outcome, ScriptChoice};
use crate::memory::{Candidate, Found, MacOwners, Origin};
use crate::pace::{Pace, StepTimes};
use crate::record::ReportKind;
use crate::snapshot::{BatchQueue, Decision, Read};

pub(super) fn parked(decision: &Decision) -> &str {
    match decision {
        Decision::Park { park, .. } => &park.code,
        other => panic!("expected a park, got {other:?}"),
    }
}

pub(super) fn waiting(decision: &Decision) -> &str {
    match decision {
        Decision::Wait { wait, .. } => &wait.code,
        other => panic!("expected a wait, got {other:?}"),
    }
}

pub(super) fn next(decision: &Decision) -> (Step, f64) {
    match decision {
        Decision::Advance { to, at: when, .. } => (*to, when.seconds_since(at(0.0))),
        other => panic!("expected an advance, got {other:?}"),
    }
}

fn candidate(system_id: &str) -> Candidate {
    Candidate {
        system_id: system_id.to_owned(),
        hostname: format!("host-{system_id}"),
        matched_by: vec!["hostname".to_owned()],
        held_by: None,
    }
}

fn discovering(candidates: Vec<Candidate>, unclaimed_new: Vec<Candidate>) -> Case {
    let mut case = Case::new(Step::Discover);
    case.node.system_id = None;
    case.run.memory.found = Some(Found { asked_at: at(5.0), candidates, unclaimed_new });
    case
}

fn commission() -> Effect {
    Effect::Commission { scripts: ScriptChoice::default() }
}

pub(super) fn unknown() -> Option<Outcome> {
    Some(Outcome::Unknown { code: "gateway_timeout".to_owned(), text: "504".to_owned() })
}

fn progress(phase: Phase, status: ProgressStatus) -> ReportKind {
    ReportKind::Progress { phase, status, message: "m".to_owned() }
}

fn enrolled() -> ReportKind {
    ReportKind::Enrolled { agent_version: "0.1.0".to_owned(), hostname: "j22u11".to_owned() }
}

#[test]
fn nothing_begins_before_the_event_feed_is_followed() {
    let mut case = Case::new(Step::Accept);
    case.watched = false;
    assert_eq!(waiting(&case.decide()), "watcher_starting");
    case.watched = true;
    assert_eq!(next(&case.decide()).0, Step::Discover);
}

#[test]
fn what_is_expected_is_learned_and_the_deadline_is_the_tables() {
    let mut case = Case::new(Step::Accept);
    case.watched = false;
    let limits = |case: &Case| match case.decide() {
        Decision::Wait { wait, .. } => {
            let since = |moment: Option<Timestamp>| moment.map(|m| m.seconds_since(at(0.0)));
            let from = wait.expected_from.map(crate::pace::said);
            (since(wait.expected_by), since(wait.deadline), from.unwrap_or_default())
        }
        other => panic!("expected a wait, got {other:?}"),
    };
    assert_eq!(limits(&case), (Some(10.0), Some(3600.0), "table".to_owned()));
    let times = StepTimes::from([(Step::Accept, vec![40.0; 9])]);
    case.pace = Pace::learn(&times, &times);
    let learned = "1.5 x p95 of 9 runs of this profile and image".to_owned();
    assert_eq!(limits(&case), (Some(60.0), Some(3600.0), learned));
}

#[test]
fn discovery_is_deterministic() {
    let mut case = Case::new(Step::Discover);
    case.node.system_id = None;
    assert_eq!(case.decide(), Decision::Read(Read::FindMachine));
    let adopt = Decision::Adopt { system_id: "a".to_owned(), origin: Origin::Adopted };
    assert_eq!(discovering(vec![candidate("a")], vec![]).decide(), adopt);
    let two = discovering(vec![candidate("a"), candidate("b")], vec![]).decide();
    assert_eq!(parked(&two), "two_candidates");
    let Decision::Park { park, .. } = two else { unreachable!() };
    assert!(park.text.contains("host-a") && park.text.contains("host-b"), "{}", park.text);
}

#[test]
fn a_new_machine_is_claimed_only_where_the_profile_allows() {
    let mut case = discovering(vec![], vec![candidate("n")]);
    assert_eq!(parked(&case.decide()), "machine_not_found");
    case.profile.auto_claim_single_new_machine = true;
    assert_eq!(
        case.decide(),
        Decision::Adopt { system_id: "n".to_owned(), origin: Origin::Claimed }
    );
    case.run.memory.found.as_mut().unwrap().unclaimed_new.push(candidate("o"));
    assert_eq!(parked(&case.decide()), "several_new_machines");
}

#[test]
fn a_machine_held_by_another_node_is_not_taken() {
    let mut held = candidate("a");
    held.held_by = Some("j22u15".to_owned());
    assert_eq!(parked(&discovering(vec![held], vec![]).decide()), "machine_held");
}

#[test]
fn create_with_a_lost_answer_is_looked_for_before_it_is_repeated() {
    let mut case = discovering(vec![], vec![]);
    case.node.hardware.mac_addresses.push("00:16:3e:00:00:01".to_owned());
    assert_eq!(case.decide(), Decision::Do(Effect::CreateMachine));
    let mut case = case.intent(Effect::CreateMachine, 6.0, unknown());
    assert_eq!(case.decide(), Decision::Read(Read::FindMachine));
    case.run.memory.found.as_mut().unwrap().asked_at = at(9.0);
    assert_eq!(waiting(&case.decide()), "unknown_outcome");
    case.run.memory.found.as_mut().unwrap().asked_at = at(60.0);
    case.now = at(60.5);
    assert_eq!(case.decide(), Decision::Settle { happened: false });
    case.run.memory.found.as_mut().unwrap().candidates.push(candidate("a"));
    assert_eq!(case.decide(), Decision::Settle { happened: true });
    assert_eq!(
        case.accepted().decide(),
        Decision::Adopt { system_id: "a".to_owned(), origin: Origin::Created }
    );
}

/// The process died between the call and its record, and what was asked for is there.
#[test]
fn nothing_goes_on_past_an_effect_of_which_nobody_knows() {
    let wanted = Effect::SetBootDisk { block_device_id: 2 };
    let case = Case::new(Step::PrepareStorage).read(machine(status::READY), 1.0);
    assert_eq!(next(&case.decide()).0, Step::RoceLinks);
    let case = case.intent(wanted, 2.0, None);
    assert_eq!(case.decide(), Decision::Read(Read::Machine), "what is known is from before");
    let mut case = case.read(machine(status::READY), 3.0);
    assert_eq!(case.decide(), Decision::Settle { happened: true });
    let mut other = machine(status::READY);
    other.boot_disk_id = Some(1);
    let gone = Effect::SetBootDisk { block_device_id: 7 };
    case.run.memory.intent.as_mut().unwrap().effect = gone;
    case.now = at(4.0);
    assert_eq!(waiting(&case.decide()), "unknown_outcome");
    case.now = at(40.0);
    let case = case.read(other, 39.0);
    assert_eq!(case.decide(), Decision::Settle { happened: false });
}

#[test]
fn an_adopted_machine_goes_where_its_status_says() {
    for (number, to) in [
        (status::NEW, Step::RegisterScripts),
        (status::READY, Step::RegisterScripts),
        (status::DEPLOYED, Step::ReleaseAdopted),
        (status::FAILED_DEPLOYMENT, Step::ReleaseAdopted),
    ] {
        assert_eq!(next(&Case::new(Step::Discover).read(machine(number), 1.0).decide()).0, to);
    }
    let busy = Case::new(Step::Discover).read(machine(status::DEPLOYING), 1.0);
    assert_eq!(parked(&busy.decide()), "machine_busy");
    let mut locked = machine(status::DEPLOYED);
    locked.locked = true;
    assert_eq!(parked(&Case::new(Step::Discover).read(locked, 1.0).decide()), "machine_locked");
}

#[test]
fn commission_waits_probes_and_gives_up() {
    let case = Case::new(Step::Commission).read(machine(status::NEW), 1.0);
    assert_eq!(case.decide(), Decision::Do(commission()));
    let case = case.intent(commission(), 2.0, unknown());
    assert_eq!(case.decide(), Decision::Read(Read::Machine));
    let case = case.read(machine(status::COMMISSIONING), 5.0);
    assert_eq!(waiting(&case.decide()), "maas_commissioning");
    let case = case.read(machine(status::READY), 6.0);
    assert_eq!(case.decide(), Decision::Settle { happened: true });
    assert_eq!(next(&case.accepted().decide()).0, Step::PxePreflight);
    let mut late = Case::new(Step::Commission).read(machine(status::COMMISSIONING), 10_700.0);
    late.now = at(10_900.0);
    assert_eq!(parked(&late.decide()), "deadline_exceeded");
}

#[test]
fn a_crash_between_intent_and_answer_is_probed_like_a_lost_answer() {
    let case =
        Case::new(Step::Commission).read(machine(status::NEW), 1.0).intent(commission(), 2.0, None);
    assert_eq!(case.decide(), Decision::Read(Read::Machine));
    let mut case = case.read(machine(status::NEW), 30.0);
    case.now = at(31.0);
    assert_eq!(case.decide(), Decision::Settle { happened: false });
}

#[test]
fn failed_commissioning_is_tried_twice() {
    let case = Case::new(Step::Commission)
        .intent(commission(), 2.0, Some(Outcome::Accepted))
        .read(machine(status::FAILED_COMMISSIONING), 9.0);
    assert_eq!(case.decide(), Decision::Do(commission()));
    let case = case.intent(commission(), 9.5, Some(Outcome::Accepted));
    assert_eq!(parked(&case.decide()), "commissioning_failed");
}

#[test]
fn strictness_decides_whether_a_pxe_doubt_stops_the_run() {
    let owners = Some(MacOwners {
        mac_address: "00:16:3e:00:00:01".to_owned(),
        system_ids: vec!["abc123".to_owned()],
    });
    let mut case = Case::new(Step::PxePreflight).read(machine(status::READY), 1.0);
    assert_eq!(
        case.decide(),
        Decision::Read(Read::MacOwners { mac_address: "00:16:3e:00:00:01".to_owned() })
    );
    case.run.memory.mac_owners = owners;
    assert_eq!(next(&case.decide()).0, Step::PrepareStorage);
    case.site.pxe_vlan = Some(7);
    assert_eq!(parked(&case.decide()), "pxe_preflight_failed");
    case.profile.strict_pxe_preflight = false;
    assert_eq!(next(&case.decide()).0, Step::PrepareStorage);
    case.site.pxe_vlan = None;
    case.profile.strict_pxe_preflight = true;
    case.run.memory.mac_owners.as_mut().unwrap().system_ids.push("zzz".to_owned());
    assert_eq!(parked(&case.decide()), "pxe_preflight_failed");
}

#[test]
fn storage_is_changed_only_where_it_differs_and_read_back() {
    let case = Case::new(Step::PrepareStorage).read(machine(status::READY), 1.0);
    assert_eq!(next(&case.decide()).0, Step::RoceLinks);
    let mut wrong = machine(status::READY);
    wrong.boot_disk_id = Some(1);
    wrong.disks[0].mounts = vec!["/".to_owned()];
    wrong.disks[1].mounts.clear();
    let case = Case::new(Step::PrepareStorage).read(wrong, 1.0);
    let boot = Effect::SetBootDisk { block_device_id: 2 };
    assert_eq!(case.decide(), Decision::Do(boot.clone()));
    let case = case.intent(boot, 2.0, Some(Outcome::Accepted));
    let layout = Effect::SetStorageLayout { layout: "flat".to_owned(), root_device: 2 };
    assert_eq!(case.decide(), Decision::Do(layout.clone()));
    let case = case.intent(layout, 3.0, unknown());
    assert_eq!(case.decide(), Decision::Read(Read::Machine));
    let case = case.read(machine(status::READY), 5.0);
    assert_eq!(case.decide(), Decision::Settle { happened: true });
    assert_eq!(next(&case.accepted().decide()).0, Step::RoceLinks);
}

/// The first disk with this on it, where the profile wants its data disks as ext4.
fn with_data(on: Option<(&str, Option<&str>)>, seconds: f64) -> Case {
    let mut machine = machine(status::READY);
    let filesystem = on.map(|(fstype, point)| DiskFilesystem {
        fstype: fstype.to_owned(),
        mount_point: point.map(str::to_owned),
    });
    machine.disks[0].mounts = filesystem.iter().filter_map(|f| f.mount_point.clone()).collect();
    machine.disks[0].filesystem = filesystem;
    let mut case = Case::new(Step::PrepareStorage).read(machine, seconds);
    case.profile.storage_layout_profile = "flat-data".to_owned();
    case
}

#[test]
fn data_disks_are_formatted_then_mounted_then_read_back() {
    let format = Effect::FormatBlockDevice { block_device_id: 1, fstype: "ext4".to_owned() };
    let mount = Effect::MountBlockDevice { block_device_id: 1, mount_point: "/data/0".to_owned() };
    assert_eq!(with_data(None, 1.0).decide(), Decision::Do(format.clone()));
    let lost = with_data(None, 1.0).intent(format.clone(), 2.0, unknown());
    assert_eq!(lost.decide(), Decision::Read(Read::Machine));
    let taken = Some(Outcome::Accepted);
    let ignored = with_data(None, 4.0).intent(format, 2.0, taken.clone());
    assert_eq!(parked(&ignored.decide()), "storage_not_as_asked");
    let formatted = with_data(Some(("ext4", None)), 1.0);
    assert_eq!(formatted.decide(), Decision::Do(mount.clone()));
    let done = Some(("ext4", Some("/data/0")));
    let answered = with_data(done, 1.0).intent(mount.clone(), 2.0, taken.clone());
    assert_eq!(answered.decide(), Decision::Read(Read::Machine), "an answer is no read-back");
    let decision = with_data(done, 4.0).intent(mount, 2.0, taken).decide();
    assert_eq!(next(&decision).0, Step::RoceLinks);
    let Decision::Advance { checks, .. } = decision else { panic!() };
    assert!(checks[0].evidence.ends_with(", nvme0n1=/data/0"), "{}", checks[0].evidence);
}

#[test]
fn a_data_disk_with_something_else_on_it_is_laid_out_anew() {
    let layout = Effect::SetStorageLayout { layout: "flat".to_owned(), root_device: 2 };
    for foreign in [Some(("xfs", None)), Some(("ext4", Some("/srv")))] {
        assert_eq!(with_data(foreign, 1.0).decide(), Decision::Do(layout.clone()));
    }
    let mut none = with_data(None, 1.0);
    none.observation.as_mut().unwrap().machine.as_mut().unwrap().disks[0].name = "sdb".to_owned();
    assert_eq!(parked(&none.decide()), "no_data_disk");
}

#[test]
fn roce_links_replace_what_is_in_the_way_and_are_read_back() {
    let mut case = Case::new(Step::RoceLinks).read(machine(status::READY), 1.0);
    assert_eq!(next(&case.decide()).0, Step::HardwareSync);
    case.profile.enable_phase2_roce = true;
    assert_eq!(parked(&case.decide()), "roce_assignments_missing");
    case.roce.push(RoceAssignmentSpec {
        site: "lab".to_owned(),
        hostname: "j22u11".to_owned(),
        interface: "ens1".to_owned(),
        subnet_cidr: "10.9.0.0/24".to_owned(),
        ip_address: "10.9.0.11".to_owned(),
    });
    assert_eq!(case.decide(), Decision::Do(Effect::UnlinkSubnet { interface_id: 2, link_id: 12 }));
    case.observation.as_mut().unwrap().machine.as_mut().unwrap().nics[1].links.clear();
    let link = Effect::LinkSubnet {
        interface_id: 2,
        subnet_cidr: "10.9.0.0/24".to_owned(),
        ip_address: "10.9.0.11".to_owned(),
    };
    assert_eq!(case.decide(), Decision::Do(link.clone()));
    let case = case.intent(link, 2.0, Some(Outcome::Accepted));
    assert_eq!(case.decide(), Decision::Read(Read::Machine));
    let mut linked = machine(status::READY);
    linked.nics[1].links = vec![Link {
        id: 40,
        mode: "static".to_owned(),
        subnet_id: Some(9),
        subnet_cidr: Some("10.9.0.0/24".to_owned()),
        ip_address: Some("10.9.0.11".to_owned()),
    }];
    assert_eq!(next(&case.read(linked, 4.0).decide()).0, Step::HardwareSync);
}

#[test]
fn predeploy_checks_pass_or_are_repeated_before_they_park() {
    let mut case = Case::new(Step::PredeployChecks).read(machine(status::READY), 1.0);
    assert_eq!(case.decide(), Decision::Read(Read::PredeployChecks));
    for name in PREDEPLOY_CHECKS {
        let mut result = super::check(&case.snapshot(), name, true, "seen");
        result.at = at(1.0);
        case.run.memory.checks.insert(name.to_owned(), result);
    }
    assert_eq!(next(&case.decide()).0, Step::Deploy);
    case.run.memory.checks.get_mut("image_available_and_approved").unwrap().passed = false;
    assert_eq!(waiting(&case.decide()), "predeploy_checks_failing");
    case.now = at(20.0);
    assert_eq!(case.decide(), Decision::Read(Read::PredeployChecks));
    case.now = at(61.0);
    assert_eq!(parked(&case.decide()), "predeploy_checks_failed");
}

fn deploy() -> Effect {
    Effect::Deploy { distro_series: "ubuntu/noble".to_owned(), enable_hw_sync: false }
}

fn deploying() -> Case {
    Case::new(Step::Deploy)
        .read(machine(status::READY), 1.0)
        .intent(deploy(), 2.0, Some(Outcome::Accepted))
        .read(machine(status::DEPLOYING), 3.0)
}

#[test]
fn a_deployment_is_asked_for_once_and_its_edges_are_maas_own() {
    let case = Case::new(Step::Deploy).read(machine(status::READY), 1.0);
    assert_eq!(case.decide(), Decision::Do(deploy()));
    let mut case = deploying();
    assert_eq!(waiting(&case.decide()), "maas_deploying");
    case.observation.as_mut().unwrap().rebooted_at = Some(at(7.0));
    assert_eq!(next(&case.decide()), (Step::FirstBoot, 7.0));
    case.run.step = Step::FirstBoot;
    case.observation.as_mut().unwrap().status = status::DEPLOYED;
    case.observation.as_mut().unwrap().status_at = at(9.0);
    assert_eq!(next(&case.decide()), (Step::BootstrapFetch, 9.0));
}

#[test]
fn an_unknown_deploy_is_never_repeated_while_it_may_have_happened() {
    let case =
        Case::new(Step::Deploy).read(machine(status::READY), 1.0).intent(deploy(), 2.0, unknown());
    assert_eq!(case.decide(), Decision::Read(Read::Machine));
    let taken = case.read(machine(status::DEPLOYING), 5.0);
    assert_eq!(taken.decide(), Decision::Settle { happened: true });
    let not_yet = taken.read(machine(status::READY), 8.0);
    assert_eq!(waiting(&not_yet.decide()), "unknown_outcome");
    let mut never = not_yet.read(machine(status::READY), 40.0);
    never.now = at(41.0);
    assert_eq!(never.decide(), Decision::Settle { happened: false });
}

#[test]
fn a_datasource_failure_is_retried_within_the_policy_and_an_image_failure_is_not() {
    let mut failed = machine(status::FAILED_DEPLOYMENT);
    failed.error_description = "Installation failed".to_owned();
    let mut case = deploying().read(failed, 9.0);
    assert_eq!(parked(&case.decide()), "deploy_failed");
    case.observation.as_mut().unwrap().rebooted_at = Some(at(6.0));
    assert_eq!(next(&case.decide()).0, Step::ReleaseForRetry);
    case.run.memory.visits.insert(Step::ReleaseForRetry, 2);
    assert_eq!(parked(&case.decide()), "deploy_failed");
    case.run.memory.visits.clear();
    case.profile.enable_deploy_retry_on_datasource_failure = false;
    assert_eq!(parked(&case.decide()), "deploy_failed");
}

#[test]
fn a_kernel_that_curtin_cannot_install_names_the_stock_image() {
    let mut failed = machine(status::FAILED_DEPLOYMENT);
    failed.error_description = "Installation failed".to_owned();
    let mut case = deploying().read(failed, 9.0);
    let text = "Node installation failure: installing-kernel: linux-generic".to_owned();
    case.observation.as_mut().unwrap().alarm = Some(MaasAlarm { at: at(8.0), text: text.clone() });
    let Decision::Park { park, .. } = case.decide() else { panic!("{:?}", case.decide()) };
    assert!(park.text.contains("(curtin_kernel)") && park.text.contains(&text), "{}", park.text);
    assert!(park.next_action.contains("ubuntu/noble"), "{}", park.next_action);
    assert!(park.evidence.iter().any(|line| line.contains("linux-generic")), "{park:?}");
    case.observation.as_mut().unwrap().alarm = Some(MaasAlarm { at: at(-1.0), text });
    let Decision::Park { park, .. } = case.decide() else { panic!("{:?}", case.decide()) };
    assert!(park.text.contains("(image_deploy)"), "an alarm of an earlier deployment: {park:?}");
}

#[test]
fn lost_callbacks_do_not_hold_the_run() {
    let case = Case::new(Step::BootstrapFetch).read(machine(status::DEPLOYED), 1.0);
    assert_eq!(waiting(&case.decide()), "bootstrap_fetch");
    let mut case = case.report(enrolled(), 6.0);
    for (step, to) in [
        (Step::BootstrapFetch, Step::SiteBootstrap),
        (Step::SiteBootstrap, Step::NodeBootstrap),
        (Step::NodeBootstrap, Step::Enrollment),
    ] {
        case.run.step = step;
        assert_eq!(next(&case.decide()), (to, 6.0));
    }
    case.run.step = Step::Enrollment;
    assert_eq!(waiting(&case.decide()), "first_heartbeat");
    let case = case.report(ReportKind::FirstHeartbeat, 7.0);
    assert_eq!(next(&case.decide()), (Step::PrereqChecks, 7.0));
}

#[test]
fn failed_bootstraps_park_with_their_owner() {
    let case = Case::new(Step::SiteBootstrap)
        .read(machine(status::DEPLOYED), 1.0)
        .report(progress(Phase::SiteBootstrap, ProgressStatus::Failed), 5.0);
    assert_eq!(parked(&case.decide()), "site_bootstrap_failed");
    let case = Case::new(Step::NodeBootstrap)
        .read(machine(status::DEPLOYED), 1.0)
        .report(progress(Phase::NodeBootstrap, ProgressStatus::Failed), 5.0);
    assert_eq!(parked(&case.decide()), "node_bootstrap_failed");
}

#[test]
fn a_failed_site_bootstrap_is_the_cause_also_when_the_node_part_gave_up_after_it() {
    let failed = || progress(Phase::SiteBootstrap, ProgressStatus::Failed);
    let mut case = Case::new(Step::SiteBootstrap)
        .read(machine(status::DEPLOYED), 1.0)
        .report(failed(), 5.0)
        .report(progress(Phase::NodeBootstrap, ProgressStatus::Failed), 5.5);
    assert_eq!(parked(&case.decide()), "site_bootstrap_failed");
    case.run.memory.parked_at = Some(at(6.0));
    let resumed = case.report(progress(Phase::SiteBootstrap, ProgressStatus::Succeeded), 8.0);
    assert_eq!(next(&resumed.decide()), (Step::NodeBootstrap, 5.5));
}

#[test]
fn what_an_earlier_deployment_said_does_not_count() {
    let mut case = Case::new(Step::BootstrapFetch)
        .read(machine(status::DEPLOYED), 8.0)
        .report(progress(Phase::SiteBootstrap, ProgressStatus::Succeeded), 5.0);
    assert_eq!(next(&case.decide()).0, Step::SiteBootstrap);
    case.run.memory.intended_at.insert("deploy".to_owned(), at(7.0));
    assert_eq!(waiting(&case.decide()), "bootstrap_fetch");
}

#[test]
fn a_machine_released_by_hand_is_noticed_while_waiting_for_the_node() {
    let case = Case::new(Step::SiteBootstrap).read(machine(status::READY), 5.0);
    assert_eq!(parked(&case.decide()), "machine_taken");
}

#[test]
fn a_machine_released_by_hand_is_deployed_again_only_on_an_operators_word() {
    let series =
        crate::policy::normalise_distro_series(&Case::new(Step::Deploy).profile.distro_series);
    let deploy = Effect::Deploy { distro_series: series, enable_hw_sync: false };
    for step in [Step::Deploy, Step::FirstBoot, Step::SiteBootstrap] {
        let mut case = Case::new(step).read(machine(status::READY), 5.0).intent(
            deploy.clone(),
            1.0,
            Some(Outcome::Accepted),
        );
        let Decision::Park { park, .. } = case.decide() else { panic!("{step}") };
        assert_eq!(park.code, "machine_taken", "{step}");
        case.run.memory.parked_at = Some(at(10.0));
        case.run.memory.parked_code = Some(park.code);
        assert_eq!(parked(&case.decide()), "machine_taken", "{step}");
        case.run.memory.resume(at(20.0));
        case.now = at(21.0);
        assert_eq!(next(&case.decide()), (Step::ReleaseForRetry, 21.0), "{step}");
        case.run.memory.enter(step);
        assert!(!case.run.memory.answered(&["machine_taken"]), "{step}: that word is used up");
    }
}

fn confirming() -> Case {
    let mut case = Case::new(Step::Confirmation)
        .read(machine(status::DEPLOYED), 1.0)
        .report(progress(Phase::SiteBootstrap, ProgressStatus::Started), 2.0)
        .report(progress(Phase::SiteBootstrap, ProgressStatus::Succeeded), 3.0)
        .report(progress(Phase::NodeBootstrap, ProgressStatus::Started), 3.0)
        .report(enrolled(), 4.0)
        .report(ReportKind::FirstHeartbeat, 5.0);
    case.node.state = NodeState::Enrolling;
    case
}

#[test]
fn all_seven_gates_or_not_active() {
    let waiting_case = confirming();
    assert_eq!(waiting(&waiting_case.decide()), "node_bootstrap_callback");
    let case = confirming().report(progress(Phase::NodeBootstrap, ProgressStatus::Succeeded), 6.0);
    match case.decide() {
        Decision::Finish { status, checks, .. } => {
            assert_eq!(status, RunStatus::Succeeded);
            assert_eq!(checks.len(), 7);
        }
        other => panic!("{other:?}"),
    }
    let mut other_run =
        confirming().report(progress(Phase::NodeBootstrap, ProgressStatus::Succeeded), 6.0);
    other_run.node.run_id = Some(id(77));
    assert_eq!(parked(&other_run.decide()), "completion_gate_failed");
    let mut unsynced =
        confirming().report(progress(Phase::NodeBootstrap, ProgressStatus::Succeeded), 6.0);
    unsynced.profile.require_hw_sync = true;
    assert_eq!(parked(&unsynced.decide()), "completion_gate_failed");
    let mut late = confirming();
    late.now = at(70.0);
    assert!(matches!(late.decide(), Decision::Finish { .. }), "an absent callback is tolerated");
}

#[test]
fn diagnostics_are_issued_once_and_their_failure_parks() {
    let mut case = Case::new(Step::PrereqChecks).read(machine(status::DEPLOYED), 1.0);
    assert!(matches!(case.decide(), Decision::IssueTask(_)));
    let task: TaskId = id(50);
    case.run.memory.task_id = Some(task);
    assert_eq!(waiting(&case.decide()), "diagnostics");
    let result = |succeeded| TaskResult {
        succeeded,
        message: "disk full".to_owned(),
        findings: Vec::new(),
        facts: serde_json::Value::Null,
    };
    let good = ReportKind::TaskFinished { task_id: task, result: result(true) };
    let bad = ReportKind::TaskFinished { task_id: task, result: result(false) };
    let mut failing =
        Case::new(Step::PrereqChecks).read(machine(status::DEPLOYED), 1.0).report(bad, 4.0);
    failing.run.memory.task_id = Some(task);
    assert_eq!(parked(&failing.decide()), "diagnostics_failed");
    assert_eq!(next(&case.report(good, 4.0).decide()), (Step::Confirmation, 4.0));
}

#[test]
fn failed_reads_back_off_and_say_so() {
    let mut case = Case::new(Step::Commission).read(machine(status::NEW), 1.0);
    case.observation = None;
    case.run.memory.read_failure = Some(crate::memory::ReadFailure {
        code: "maas_unavailable".to_owned(),
        text: "connection refused".to_owned(),
        at: at(9.0),
        count: 3,
    });
    assert_eq!(waiting(&case.decide()), "maas_unavailable");
    case.now = at(18.0);
    assert_eq!(case.decide(), Decision::Read(Read::Machine));
}

#[test]
fn a_vanished_machine_parks_in_any_step() {
    let mut case = Case::new(Step::SiteBootstrap).read(machine(status::DEPLOYED), 1.0);
    case.observation.as_mut().unwrap().vanished = true;
    assert_eq!(parked(&case.decide()), "machine_vanished");
}

#[test]
fn a_full_batch_holds_a_run_before_the_deployment_for_as_long_as_it_takes() {
    let mut case = Case::new(Step::PredeployChecks);
    for name in PREDEPLOY_CHECKS {
        let check = CheckResult {
            name: name.to_owned(),
            passed: true,
            evidence: String::new(),
            at: at(5.0),
        };
        case.run.memory.checks.insert(name.to_owned(), check);
    }
    let queue = |ahead| Some(BatchQueue { ahead, limit: 2, scope: "profile" });
    case.batch = queue(3);
    for seconds in [10.0, 100_000.0] {
        case.now = at(seconds);
        let Decision::Wait { wait, recheck_at } = case.decide() else {
            panic!("{:?}", case.decide());
        };
        assert_eq!((wait.code.as_str(), wait.deadline), ("batch_limit", None));
        assert_eq!(wait.text, "3 nodes of the profile to deploy first, of which 2 may at once");
        assert!(recheck_at > case.now);
    }
    case.site.image_bandwidth_mbit_per_second = 25_000;
    case.profile.image_size_megabytes = 8000;
    case.batch = Some(BatchQueue { ahead: 15, limit: 15, scope: "image_bandwidth" });
    let Decision::Wait { wait, .. } = case.decide() else { panic!("{:?}", case.decide()) };
    assert_eq!(
        wait.text,
        "15 nodes of the site to deploy first, of which 15 may at once: so many images of 8000 MB \
         fit into 25000 Mbit/s"
    );
    case.batch = queue(1);
    assert_eq!(case.decide(), Decision::Read(Read::PredeployChecks), "the checks are old");
    case.now = at(10.0);
    assert!(matches!(case.decide(), Decision::Advance { to: Step::Deploy, .. }));
}

#[test]
fn a_host_that_is_not_what_the_profile_says_parks_the_run() {
    let mut case = Case::new(Step::PrereqChecks);
    case.profile.fabric_mode = FabricMode::Ib;
    case.validation = vec![HostCheck::MountPresent { target: "/data".to_owned() }];
    let Decision::IssueTask(TaskSpec::Validate { checks, .. }) = case.decide() else {
        panic!("{:?}", case.decide());
    };
    assert_eq!(checks.len(), 2);
    case.run.memory.task_id = Some(id::<TaskId>(7));
    let finding = |name: &str, passed| Finding {
        name: name.to_owned(),
        passed: Some(passed),
        seen: "seen".to_owned(),
    };
    for (findings, bad) in [
        (vec![finding("mount /data", true)], Some("infiniband")),
        (vec![finding("mount /data", false), finding("infiniband", true)], Some("mount /data")),
        (vec![finding("mount /data", true), finding("infiniband", true)], None),
    ] {
        case.reports.clear();
        let result = TaskResult {
            succeeded: true,
            message: String::new(),
            findings,
            facts: serde_json::Value::Null,
        };
        case = case.report(ReportKind::TaskFinished { task_id: id::<TaskId>(7), result }, 5.0);
        match (case.decide(), bad) {
            (Decision::Park { park, .. }, Some(name)) => {
                assert_eq!(park.code, "prerequisite_missing");
                assert!(park.text.contains(name), "{}", park.text);
            }
            (Decision::Advance { to: Step::Confirmation, checks, .. }, None) => {
                assert_eq!(checks.len(), 2);
            }
            (other, _) => panic!("{other:?}"),
        }
    }
}
