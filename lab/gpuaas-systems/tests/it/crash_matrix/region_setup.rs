//! What is so in the region before a disturbed run, and what people do to its machine.

use gpuaas_core::decide::machine_tag::kernel_tag;
use gpuaas_types::Timestamp;
use gpuaas_types::spec::SLICE_TAG;
use maas_sim::{Fault, FaultKind, HumanAction, MachineSpec, Region, Status};

/// Arguments of the kernel of a profile that has any.
pub(crate) const KERNEL_ARGUMENTS: &str = "iommu=pt";
/// A fixed address for the fabric interface, and another for it.
pub(crate) const ADDRESS: (&str, &str, &str, &str) =
    ("ens108np0", "10.101.0.0/16", "10.101.7.1", "10.101.7.2");

/// MAAS knows the machine and says Deployed.
pub(crate) fn deployed(region: &mut Region, name: &str) {
    region.add_machine(MachineSpec::new(name, Status::Deployed));
}

/// MAAS says Ready, and the fabric interface has an automatic link.
pub(crate) fn linked_by_somebody(region: &mut Region, name: &str) {
    let id = region.add_machine(MachineSpec::new(name, Status::Ready));
    let shown = region.machine_json(&id).expect("a machine");
    let nics = shown["interface_set"].as_array().expect("interfaces");
    let (interface, ..) = ADDRESS;
    let nic = nics.iter().find(|nic| nic["name"] == interface).expect("the fabric interface");
    let path = format!("nodes/{id}/interfaces/{}/", nic["id"]);
    let link = "op=link_subnet&mode=auto&subnet=cidr:10.101.0.0/16";
    region.call_as_person(0, "POST", &path, link).expect("a link");
    share_tag(region, 0, &id);
}

/// The machine has the tag that an earlier version of GPUaaS gave to all slice hosts.
fn share_tag(region: &mut Region, now_us: i64, id: &str) {
    // It may be there already.
    let form = format!("name={SLICE_TAG}&kernel_opts=quiet");
    region.call_as_person(now_us, "POST", "tags/", &form).ok();
    let path = format!("tags/{SLICE_TAG}/");
    let form = format!("op=update_nodes&add={id}");
    region.call_as_person(now_us, "POST", &path, &form).expect("a tag");
}

pub(crate) fn no_data_source_once(region: &mut Region, name: &str) {
    region.inject(Fault::new(FaultKind::DatasourceFailure).on(name).times(1));
}

pub(crate) fn stuck(region: &mut Region, name: &str) {
    region.inject(Fault::new(FaultKind::StuckDeploying).on(name));
}

/// Somebody gives the tag other arguments, takes it from every machine, and gives each the one that an
/// earlier version of GPUaaS gave.
pub(crate) fn change_tag(region: &mut Region, now: Timestamp) {
    let (now_us, path) = (now.as_micros(), format!("tags/{}/", kernel_tag(KERNEL_ARGUMENTS)));
    region.call_as_person(now_us, "PUT", &path, "kernel_opts=quiet").expect("another text");
    for id in region.hosts().into_iter().filter_map(|host| host.system_id) {
        let form = format!("op=update_nodes&remove={id}");
        region.call_as_person(now_us, "POST", &path, &form).expect("no tag");
        share_tag(region, now_us, &id);
    }
}

/// No release gets the machine switched off until somebody has switched it on.
pub(crate) fn hung_power(region: &mut Region, name: &str) {
    region.inject(Fault::new(FaultKind::HungPower).on(name));
}

/// The machine is not heard of after its next boot into an erasing.
pub(crate) fn hanging_erasing(region: &mut Region, name: &str) {
    region.inject(Fault::new(FaultKind::StuckErasing).on(name).times(1));
}

/// The region erases whatever is released.
pub(crate) fn erase_always(region: &mut Region) {
    region.set_setting("enable_disk_erasing_on_release", true.into());
}

/// The power-off of two releases is never seen, so the escalation goes on to its repair.
pub(crate) fn hanging_release(region: &mut Region, name: &str) {
    region.inject(Fault::new(FaultKind::StuckReleasing).on(name).times(2));
}

/// MAAS says Deployed, and lets only the owner mark a machine broken, who is somebody else.
pub(crate) fn hung_power_of_somebody(region: &mut Region, name: &str) {
    let owner = Some("ann".to_owned());
    region.add_machine(MachineSpec { owner, ..MachineSpec::new(name, Status::Deployed) });
    erase_always(region);
    hung_power(region, name);
}

pub(crate) fn release_and_switch_on(region: &mut Region, name: &str, now: Timestamp) {
    let machine = name.to_owned();
    region
        .apply_human_action(now.as_micros(), &HumanAction::Release { machine })
        .expect("released");
    region.advance(now.as_micros());
    region.press_power(name).expect("switched on");
}

/// Somebody released the machine, commissioned it without our scripts, gave one of them another
/// text, and laid the machine's disks out.
pub(crate) fn make_over(region: &mut Region, name: &str, now: Timestamp) {
    let machine = || name.to_owned();
    let disk = "nvme0n1".to_owned();
    for action in [
        HumanAction::Release { machine: machine() },
        HumanAction::Commission { machine: machine() },
        HumanAction::SetBootDisk { machine: machine(), disk },
        HumanAction::SetStorageLayout { machine: machine(), layout: "lvm".to_owned() },
    ] {
        region.apply_human_action(now.as_micros(), &action).expect("done");
        region.advance(now.as_micros());
    }
    let scripts = region.added_scripts();
    let ours = scripts.keys().find(|script| script.contains(TEST)).expect("a script of ours");
    region.put_script(ours, "#!/bin/sh\nexit 0\n");
}

/// A test of the commissioning bundle that every commissioning of the machine fails.
pub(crate) const TEST: &str = "nvme-health";

pub(crate) fn failing_test(region: &mut Region, name: &str) {
    region.inject(Fault::new(FaultKind::ScriptFailed).on(name).with_message(TEST));
}
