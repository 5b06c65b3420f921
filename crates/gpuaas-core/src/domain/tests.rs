//! Domains of all shapes, held against files that a reviewer reads, and against libvirt's own schema.

use std::collections::BTreeMap;
use std::fs;
use std::process::{Command, Stdio};

use gpuaas_types::ClaimId;
use gpuaas_types::claim::ClaimedSlot;
use gpuaas_types::slot::SlotMap;
use gpuaas_types::topology::{
    BarSize, GpuModule, HostTopology, NumaResources, NvmeNamespace, TopologyFunction,
};

use super::*;
use crate::slots::{SlotPolicy, slot_map};

const GIB: u64 = 1 << 30;

fn claim_id() -> ClaimId {
    "01913f6e-7c00-7000-8000-000000000001".parse().unwrap()
}

fn function(address: String, vendor: &str, class: &str, complex: u32) -> TopologyFunction {
    TopologyFunction {
        address,
        vendor: Some(vendor.to_owned()),
        class: Some(class.to_owned()),
        numa_node: Some(complex / 2),
        path: vec![format!("pci0000:{:02x}", 0x10 * (complex + 1)), "port".to_owned()],
        ..TopologyFunction::default()
    }
}

fn bars(sizes: &[u64]) -> Option<Vec<BarSize>> {
    let bar = |(index, size_bytes): (u32, &u64)| BarSize {
        index: index * 2,
        size_bytes: *size_bytes,
        prefetchable: true,
    };
    Some((0..).zip(sizes).map(bar).collect())
}

/// Eight GPUs below four root complexes of two NUMA nodes, each with a function of the fabric and a
/// drive beside it.
fn host() -> HostTopology {
    let mut host = HostTopology::default();
    for number in 0..8u32 {
        let complex = number / 2;
        let bus = 0x10 * (complex + 1) + 4 * (number % 2) + 1;
        let address =
            |offset: u32, function: u32| format!("0000:{:02x}:00.{function}", bus + offset);
        let mut gpu = function(address(0, 0), "10de", "030200", complex);
        gpu.bars = bars(&[GIB / 16, 256 * GIB, GIB / 32]);
        let module_id = [2, 4, 3, 1, 7, 5, 8, 6][number as usize];
        host.gpu_modules.push(GpuModule { address: address(0, 0), module_id, serial: None });
        let port = function(address(1, 0), "15b3", "020700", complex);
        let mut vf = function(address(1, 1), "15b3", "020700", complex);
        vf.physical_function = Some(address(1, 0));
        vf.virtual_index = Some(0);
        vf.bars = bars(&[GIB / 32]);
        let mut controller = function(address(2, 0), "144d", "010802", complex);
        controller.bars = Some(vec![BarSize { index: 0, size_bytes: 16384, prefetchable: false }]);
        host.namespaces.push(NvmeNamespace {
            name: format!("nvme{number}n1"),
            serial: Some(format!("S{number}")),
            path: format!("/dev/disk/by-id/nvme-SAMSUNG_S{number}"),
            address: Some(address(2, 0)),
            uses: Some(Vec::new()),
            ..NvmeNamespace::default()
        });
        host.functions.extend([gpu, port, vf, controller]);
    }
    host.functions.push(function("0000:e1:00.0".to_owned(), "10de", "068000", 0));
    for id in 0..2 {
        host.numa_nodes.push(NumaResources {
            id,
            cores: (0..56).map(|core| vec![id * 56 + core, 112 + id * 56 + core]).collect(),
            package: Some(id),
            distances: if id == 0 { vec![10, 21] } else { vec![21, 10] },
            gigabyte_pages: Some(256),
        });
    }
    host
}

/// The slots of a claim, as the map has them.
fn claimed(host: &HostTopology, indices: &[u32]) -> Vec<ClaimedSlot> {
    let SlotMap { slots, .. } = slot_map("j22u15", host, &SlotPolicy::default());
    let slots = slots.into_iter().filter(|slot| indices.contains(&slot.index));
    let claimed = slots.map(|slot| ClaimedSlot {
        index: slot.index,
        gpu: slot.gpu.address,
        fabric_vf: slot.fabric_vf.map(|vf| vf.address),
        nvme: slot.nvme.map(|drive| drive.serial),
        numa_node: slot.numa_node,
        cpus: slot.cpus,
        hugepages: slot.hugepages,
        mac: slot.mac,
        private_ip: slot.private_ip,
    });
    claimed.collect()
}

fn plan(indices: &[u32], policy: &DomainPolicy) -> Result<DomainPlan, DomainFault> {
    let topology = host();
    let slots = claimed(&topology, indices);
    let request = DomainRequest { claim_id: claim_id(), slots: &slots, topology: &topology };
    DomainPlan::new(&request, policy)
}

fn inputs(values: &[(&str, &str)]) -> BTreeMap<String, String> {
    values.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
}

/// Name, slots and policy of each shape.
fn shapes() -> Vec<(&'static str, Vec<u32>, DomainPolicy)> {
    let nvme = DomainPolicy { nvme: NvmeAttachment::PciFunction, ..DomainPolicy::default() };
    vec![
        ("1-gpu", vec![3], DomainPolicy::default()),
        ("2-gpus", vec![4, 5], DomainPolicy::default()),
        ("4-gpus-one-node", vec![0, 1, 2, 3], DomainPolicy::default()),
        ("4-gpus-two-nodes", vec![2, 3, 4, 5], DomainPolicy::default()),
        ("8-gpus", (0..8).collect(), DomainPolicy::default()),
        ("2-gpus-nvme-functions", vec![0, 1], nvme),
        (
            "1-gpu-without-kvm",
            vec![3],
            DomainPolicy::from_inputs(&inputs(&[("virt_type", "qemu")])),
        ),
    ]
}

#[test]
fn each_shape_is_as_it_was_reviewed() {
    for (name, slots, policy) in shapes() {
        let xml = plan(&slots, &policy).unwrap().xml(&policy);
        insta::assert_snapshot!(format!("domain-{name}"), xml);
    }
}

#[test]
fn libvirt_takes_each_shape() {
    let is_there = |program: &str| {
        Command::new(program).arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status()
    };
    if is_there("virt-xml-validate").is_err() || is_there("xmllint").is_err() {
        test_report::skip("virt-xml-validate", "virt-xml-validate is not installed");
        return;
    }
    let folder = std::env::temp_dir().join(format!("gpuaas-domains-{}", std::process::id()));
    fs::create_dir_all(&folder).unwrap();
    for (name, slots, policy) in shapes() {
        let file = folder.join(format!("{name}.xml"));
        fs::write(&file, plan(&slots, &policy).unwrap().xml(&policy)).unwrap();
        let output = Command::new("virt-xml-validate").arg(&file).arg("domain").output().unwrap();
        let text = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.success(), "{name}: {text}");
        // The schema has to be one that refuses.
        let broken = fs::read_to_string(&file).unwrap().replace("<vcpu ", "<vcpus ");
        fs::write(&file, broken.replace("</vcpu>", "</vcpus>")).unwrap();
        let output = Command::new("virt-xml-validate").arg(&file).arg("domain").output().unwrap();
        assert!(!output.status.success(), "{name}: a broken domain passed");
    }
    fs::remove_dir_all(&folder).unwrap();
}

#[test]
fn a_policy_follows_the_inputs_of_the_slice_bundle() {
    let policy = DomainPolicy::from_inputs(&inputs(&[
        ("bridge", "br-slices"),
        ("host_cores_per_node", "2"),
        ("virt_type", "qemu"),
    ]));
    let expected = DomainPolicy {
        bridge: "br-slices".to_owned(),
        host_cores_per_node: 2,
        virt_type: VirtType::Qemu,
        ..DomainPolicy::default()
    };
    assert_eq!(policy, expected);
    let odd = inputs(&[("bridge", "a b"), ("host_cores_per_node", "many"), ("virt_type", "xen")]);
    assert_eq!(DomainPolicy::from_inputs(&odd), DomainPolicy::default());
}

#[test]
fn a_guest_has_the_host_in_small() {
    let all: Vec<u32> = (0..8).collect();
    let plan = plan(&all, &DomainPolicy::default()).unwrap();
    assert_eq!((plan.cells.len(), plan.vcpus(), plan.memory_gib()), (2, 192, 512));
    assert_eq!(plan.threads_per_core, 2);
    assert_eq!(plan.cells[0].cpus[..4], [1, 113, 2, 114], "threads of a core side by side");
    assert_eq!(plan.cells[1].distances, [21, 10]);
    assert_eq!(plan.emulator_cpus, [0, 56, 112, 168], "what no slot has");
    let cells: Vec<usize> = plan.root_complexes.iter().map(|one| one.cell).collect();
    assert_eq!(cells, [0, 0, 1, 1]);
    let buses: Vec<u32> = plan.root_complexes.iter().map(|one| one.bus_number).collect();
    assert_eq!(buses, [64, 72, 80, 88]);
    assert!(plan.root_complexes.iter().all(|one| one.functions.len() == 4));
    assert_eq!(plan.mmio_window_gib, 8192);
}

#[test]
fn a_window_that_is_too_small_is_refused_before_anything_is_made() {
    let policy = DomainPolicy { mmio_window_gib: Some(1024), ..DomainPolicy::default() };
    assert!(plan(&[0], &policy).is_ok());
    let fault = plan(&[0, 1], &policy).unwrap_err();
    assert_eq!(fault, DomainFault::WindowTooSmall { needed_gib: 2048, window_gib: 1024 });
    assert_eq!(fault.code(), "mmio_window_too_small");
    assert!(fault.to_string().contains("2048 GiB") && fault.to_string().contains("1024 GiB"));
    let policy = DomainPolicy { physical_address_bits: 39, ..DomainPolicy::default() };
    let fault = plan(&[0], &policy).unwrap_err();
    assert_eq!(fault, DomainFault::AddressesTooFew { needed_bits: 41, bits: 39 });
}

#[test]
fn what_the_host_no_longer_has_is_named() {
    let policy = DomainPolicy::default();
    let topology = host();
    let slots = claimed(&topology, &[0]);
    let refuse = |topology: &HostTopology, slots: &[ClaimedSlot]| {
        let request = DomainRequest { claim_id: claim_id(), slots, topology };
        DomainPlan::new(&request, &policy).unwrap_err()
    };
    assert_eq!(refuse(&topology, &[]), DomainFault::NoSlots);
    let mut gone = topology.clone();
    gone.functions.retain(|one| one.address != slots[0].gpu);
    let device = slots[0].gpu.clone();
    assert_eq!(refuse(&gone, &slots), DomainFault::DeviceUnknown { slot: 0, device });
    let mut gone = topology.clone();
    gone.namespaces.clear();
    let device = "S0".to_owned();
    assert_eq!(refuse(&gone, &slots), DomainFault::DeviceUnknown { slot: 0, device });
    let mut unread = topology.clone();
    unread.functions[0].bars = None;
    assert_eq!(refuse(&unread, &slots).code(), "registers_unknown");
    let bare = |change: fn(&mut ClaimedSlot)| {
        let mut slots = slots.clone();
        change(&mut slots[0]);
        refuse(&topology, &slots)
    };
    assert_eq!(bare(|slot| slot.numa_node = None), DomainFault::NumaUnknown { slot: 0 });
    assert_eq!(bare(|slot| slot.nvme = None), DomainFault::DriveMissing { slot: 0 });
    assert_eq!(bare(|slot| slot.cpus = "4-2".to_owned()).code(), "cpus_unreadable");
    assert_eq!(bare(|slot| slot.gpu = "0000:11:00".to_owned()).code(), "device_unknown");
}

#[test]
fn each_function_may_have_a_root_complex_of_its_own() {
    let mut topology = host();
    for (number, function) in (0u32..).zip(&mut topology.functions) {
        function.path = vec![format!("pci{number:04x}:00")];
    }
    let slots = claimed(&host(), &(0..8).collect::<Vec<_>>());
    let request = DomainRequest { claim_id: claim_id(), slots: &slots, topology: &topology };
    let apart = DomainPlan::new(&request, &DomainPolicy::default()).unwrap();
    assert_eq!(apart.root_complexes.len(), 16);
    let policy = DomainPolicy { nvme: NvmeAttachment::PciFunction, ..DomainPolicy::default() };
    let apart = DomainPlan::new(&request, &policy).unwrap();
    assert_eq!(apart.root_complexes.last().unwrap().bus_number, 64 + 23 * 8);
    let one = vec!["pci0000:00".to_owned()];
    topology.functions.iter_mut().for_each(|function| function.path.clone_from(&one));
    let request = DomainRequest { claim_id: claim_id(), slots: &slots, topology: &topology };
    let together = DomainPlan::new(&request, &policy).unwrap();
    assert_eq!(together.root_complexes[0].functions.len(), 24);
}

#[test]
fn cores_that_are_not_whole_are_single_threads() {
    let topology = host();
    let mut slots = claimed(&topology, &[0]);
    slots[0].cpus = "1-4,113".to_owned();
    let request = DomainRequest { claim_id: claim_id(), slots: &slots, topology: &topology };
    let plan = DomainPlan::new(&request, &DomainPolicy::default()).unwrap();
    assert_eq!((plan.threads_per_core, plan.cells[0].cpus.len()), (1, 5));
    assert_eq!(plan.cells[0].cpus, [1, 2, 3, 4, 113]);
}
