//! Tests of what makes a machine in Ready fit to be deployed.

use gpuaas_types::Step;
use gpuaas_types::api::CheckResult;
use gpuaas_types::machine::{DiskFilesystem, maas_status as status};

use super::fixture::{Case, at, machine, parked, unknown, waiting};
use super::preparation::PREDEPLOY_CHECKS;
use crate::effect::{Effect, Outcome};
use crate::run_state::MacOwners;
use crate::snapshot::{Decision, DeployQueue, Read};

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
    case.run.state.mac_owners = owners;
    assert_eq!(case.next().0, Step::PrepareStorage);
    case.site.pxe_vlan = Some(7);
    assert_eq!(parked(&case.decide()), "pxe_preflight_failed");
    case.profile.strict_pxe_preflight = false;
    assert_eq!(case.next().0, Step::PrepareStorage);
    case.site.pxe_vlan = None;
    case.profile.strict_pxe_preflight = true;
    case.run.state.mac_owners.as_mut().unwrap().system_ids.push("zzz".to_owned());
    assert_eq!(parked(&case.decide()), "pxe_preflight_failed");
}

#[test]
fn storage_is_changed_only_where_it_differs_and_read_back() {
    let case = Case::new(Step::PrepareStorage).read(machine(status::READY), 1.0);
    assert_eq!(case.next().0, Step::RoceLinks);
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
    assert_eq!(case.accepted().next().0, Step::RoceLinks);
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
    let case = with_data(done, 4.0).intent(mount, 2.0, taken);
    let decision = case.decide();
    assert_eq!(case.next_of(&decision).0, Step::RoceLinks);
    let Decision::Next { checks, .. } = decision else { panic!() };
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
fn predeploy_checks_pass_or_are_repeated_before_they_park() {
    let mut case = Case::new(Step::PredeployChecks).read(machine(status::READY), 1.0);
    assert_eq!(case.decide(), Decision::Read(Read::PredeployChecks));
    for name in PREDEPLOY_CHECKS {
        let mut result = case.snapshot().check(name, true, "seen");
        result.at = at(1.0);
        case.run.state.checks.insert(name.to_owned(), result);
    }
    assert_eq!(case.next().0, Step::Deploy);
    case.run.state.checks.get_mut("image_available_and_approved").unwrap().passed = false;
    assert_eq!(waiting(&case.decide()), "predeploy_checks_failing");
    case.now = at(20.0);
    assert_eq!(case.decide(), Decision::Read(Read::PredeployChecks));
    case.now = at(61.0);
    assert_eq!(parked(&case.decide()), "predeploy_checks_failed");
}

#[test]
fn a_full_batch_holds_a_run_before_the_deployment_for_as_long_as_it_takes() {
    let mut case = Case::new(Step::PredeployChecks);
    for name in PREDEPLOY_CHECKS {
        let check = CheckResult {
            name: name.to_owned(),
            passed: true,
            verified: true,
            evidence: String::new(),
            at: at(5.0),
        };
        case.run.state.checks.insert(name.to_owned(), check);
    }
    let queue = |ahead| Some(DeployQueue { ahead, limit: 2, scope: "profile" });
    case.deploy_queue = queue(3);
    for seconds in [10.0, 100_000.0] {
        case.now = at(seconds);
        let Decision::Wait { wait, recheck_at } = case.decide() else {
            panic!("{:?}", case.decide());
        };
        assert_eq!((wait.code.as_str(), wait.deadline), ("batch_limit", None));
        assert_eq!(
            wait.text,
            "a deploy slot: 3 nodes of the profile are ahead, 2 deploy at a time"
        );
        assert!(recheck_at > case.now);
    }
    case.site.image_bandwidth_mbit_per_second = 25_000;
    case.profile.image_size_megabytes = 8000;
    case.deploy_queue = Some(DeployQueue { ahead: 15, limit: 15, scope: "image_bandwidth" });
    let Decision::Wait { wait, .. } = case.decide() else { panic!("{:?}", case.decide()) };
    assert_eq!(
        wait.text,
        "a deploy slot: 15 nodes of the site are ahead, 15 deploy at a time (images of 8000 MB \
         share 25000 Mbit/s)"
    );
    case.deploy_queue = queue(1);
    assert_eq!(case.decide(), Decision::Read(Read::PredeployChecks), "the checks are old");
    case.now = at(10.0);
    assert!(case.next().0 == Step::Deploy);
}
