//! Slot maps of small hosts that are made here, fact by fact.

use std::net::Ipv4Addr;

use gpuaas_types::slot::SlotChange;
use gpuaas_types::topology::{
    FabricPartition, GpuModule, HostTopology, NumaResources, TopologyFunction,
};

use super::*;

fn function(address: &str, vendor: &str, class: &str, node: u32) -> TopologyFunction {
    TopologyFunction {
        address: address.to_owned(),
        vendor: Some(vendor.to_owned()),
        class: Some(class.to_owned()),
        driver: Some("vfio-pci".to_owned()),
        iommu_group: u32::from_str_radix(&address[5..7], 16).ok(),
        numa_node: Some(node),
        path: vec![format!("pci0000:{node:02x}")],
        holders: Some(Vec::new()),
        ..TopologyFunction::default()
    }
}

/// What the fabric manager of a board with eight GPUs lists.
fn listed_partitions() -> Vec<FabricPartition> {
    let sets: [&[u32]; 7] = [
        &[1, 2, 3, 4, 5, 6, 7, 8],
        &[1, 2, 3, 4],
        &[5, 6, 7, 8],
        &[1, 3],
        &[2, 4],
        &[5, 7],
        &[6, 8],
    ];
    let sets = sets.into_iter().map(<[u32]>::to_vec).chain((1..=8).map(|module| vec![module]));
    (0..).zip(sets).map(|(id, modules)| FabricPartition { id, modules, active: false }).collect()
}

/// Eight GPUs on a board with switches, at two nodes.
fn board() -> HostTopology {
    let mut host = HostTopology::default();
    for number in 0..8u32 {
        let address = format!("0000:{:02x}:00.0", 0x10 + number);
        let module_id = [2, 4, 3, 1, 7, 5, 8, 6][number as usize];
        host.gpu_modules.push(GpuModule { address: address.clone(), module_id, serial: None });
        host.functions.push(function(&address, "10de", "030200", number / 4));
    }
    host.functions.push(function("0000:e1:00.0", "10de", "068000", 0));
    host.fabric_partitions = Some(listed_partitions());
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

#[test]
fn partitions_follow_module_ids_and_not_addresses() {
    let map = slot_map("j22u15", &board(), &SlotPolicy::default());
    let sizes: Vec<usize> = map.partitions.iter().map(Vec::len).collect();
    assert_eq!(sizes, [8, 4, 4, 2, 2, 2, 2, 1, 1, 1, 1, 1, 1, 1, 1]);
    // Modules 1 and 3 are the GPUs 3 and 2, modules 2 and 4 the GPUs 0 and 1.
    assert_eq!(map.partitions[3..7], [[0, 1], [2, 3], [4, 5], [6, 7]]);
    let mut other = board();
    for (module, id) in other.gpu_modules.iter_mut().zip(1..) {
        module.module_id = id;
    }
    let map = slot_map("j22u15", &other, &SlotPolicy::default());
    assert_eq!(map.partitions[3..7], [[0, 2], [1, 3], [4, 6], [5, 7]]);
}

#[test]
fn the_fabric_managers_own_list_counts_and_its_silence_and_its_mode_are_said() {
    let mut host = board();
    let codes = |host: &HostTopology| {
        let map = slot_map("j22u15", host, &SlotPolicy::default());
        let blockers = map.host_blockers.iter();
        (
            map.partitions,
            blockers.map(|one| (one.code.clone(), one.overridable)).collect::<Vec<_>>(),
        )
    };
    let (whole, blockers) = codes(&host);
    assert_eq!((whole.len(), blockers.len()), (15, 0));
    // A GPU whose links failed is in no partition but its own.
    host.fabric_partitions.as_mut().unwrap().retain(|one| one.modules.len() != 8);
    assert_eq!(codes(&host).0, whole[1..]);
    host.fabric_mode = Some(1);
    assert_eq!(codes(&host).1, []);
    host.fabric_partitions = None;
    assert_eq!(codes(&host), (whole, vec![("fabric_manager_silent".to_owned(), true)]));
    host.fabric_mode = Some(0);
    assert_eq!(codes(&host).1, [("fabric_manager_mode".to_owned(), false)]);
}

#[test]
fn without_module_ids_there_are_no_partitions_of_a_board() {
    let mut host = board();
    host.gpu_modules.pop();
    let map = slot_map("j22u15", &host, &SlotPolicy::default());
    assert_eq!(map.partitions, Vec::<Vec<u32>>::new());
    assert_eq!(map.host_blockers[0].code, "module_ids_unknown");
    assert!(!map.host_blockers[0].overridable);
    // GPUs that no switch joins need no module ids.
    host.functions.pop();
    host.gpu_modules.clear();
    let map = slot_map("j22u15", &host, &SlotPolicy::default());
    assert_eq!((map.partitions.len(), map.host_blockers.len()), (8, 0));
    assert!(map.slots.iter().all(|slot| slot.gpu.module_id.is_none()));
}

#[test]
fn each_slot_has_whole_cores_of_its_own_node() {
    let map = slot_map("j22u15", &board(), &SlotPolicy::default());
    assert_eq!(map.slots[0].cpus, "1-12,113-124");
    assert_eq!(map.slots[3].cpus, "37-48,149-160");
    assert_eq!(map.slots[4].cpus, "57-68,169-180");
    assert!(map.slots.iter().all(|slot| slot.hugepages == 64));
    let nodes: Vec<_> = map.slots.iter().map(|slot| slot.numa_node).collect();
    assert_eq!(nodes[..4], [Some(0); 4]);
    assert_eq!(nodes[4..], [Some(1); 4]);
    // A policy may ask for more than there is.
    let policy = SlotPolicy { vcpus_per_gpu: 32, ..SlotPolicy::default() };
    let map = slot_map("j22u15", &board(), &policy);
    let short: Vec<u32> = map
        .slots
        .iter()
        .filter(|slot| slot.blockers.iter().any(|blocker| blocker.code == "cpus_short"))
        .map(|slot| slot.index)
        .collect();
    assert_eq!(short, [3, 7]);
}

#[test]
fn a_subnet_ends_before_its_broadcast_address() {
    let subnet = |prefix_length, first_host| SliceSubnet {
        network: Ipv4Addr::new(10, 100, 0, 0),
        prefix_length,
        first_host,
    };
    assert_eq!(subnet(24, 10).address(0), Some(Ipv4Addr::new(10, 100, 0, 10)));
    assert_eq!(subnet(24, 10).address(244), Some(Ipv4Addr::new(10, 100, 0, 254)));
    assert_eq!(subnet(24, 10).address(245), None);
    assert_eq!(subnet(28, 10).address(4), Some(Ipv4Addr::new(10, 100, 0, 14)));
    assert_eq!(subnet(28, 10).address(5), None);
    assert_eq!(subnet(0, 0).address(0), None);
    assert_eq!(subnet(40, 1).address(0), None);
    let policy = SlotPolicy { subnet: subnet(28, 10), ..SlotPolicy::default() };
    let map = slot_map("j22u15", &board(), &policy);
    assert!(map.slots[5].blockers.iter().any(|blocker| blocker.code == "subnet_full"));
    assert!(map.slots[4].blockers.iter().all(|blocker| blocker.code != "subnet_full"));
}

#[test]
fn the_digest_pins_what_a_slot_is_and_not_how_it_stands() {
    let host = board();
    let map = slot_map("j22u15", &host, &SlotPolicy::default());
    assert_eq!(map.digest.len(), 64);
    let mut held = host.clone();
    held.functions[0].holders = None;
    let blocked = slot_map("j22u15", &held, &SlotPolicy::default());
    assert_eq!(blocked.digest, map.digest);
    assert_ne!(blocked.slots[0].blockers, map.slots[0].blockers);
    let mut replaced = host.clone();
    replaced.gpu_modules[0].serial = Some("1652224000001".to_owned());
    assert_ne!(slot_map("j22u15", &replaced, &SlotPolicy::default()).digest, map.digest);
    assert_ne!(slot_map("j22u11", &host, &SlotPolicy::default()).digest, map.digest);
}

#[test]
fn guests_of_two_nodes_have_other_addresses() {
    let mac = |node: &str| slot_map(node, &board(), &SlotPolicy::default()).slots[7].mac.clone();
    assert!(mac("j22u15").starts_with("02:") && mac("j22u15").ends_with(":07"));
    assert_ne!(mac("j22u15"), mac("j22u11"));
}

#[test]
fn a_difference_is_told_by_gpu_and_field() {
    let host = board();
    let before = slot_map("j22u15", &host, &SlotPolicy::default());
    assert_eq!(map_difference(&before, &before), []);
    let mut other = host.clone();
    other.gpu_modules[0].serial = Some("165".to_owned());
    other.functions[1].driver = Some("nvidia".to_owned());
    let after = slot_map("j22u15", &other, &SlotPolicy::default());
    let line = |change: &SlotChange| {
        let gpu = change.gpu.as_deref().unwrap_or("host");
        format!("{gpu} {}: {} -> {}", change.what, change.before, change.after)
    };
    let lines: Vec<String> = map_difference(&before, &after).iter().map(line).collect();
    assert_eq!(
        lines,
        [
            "0000:10:00.0 gpu.serial:  -> 165",
            "0000:11:00.0 blocker gpu_driver:  -> 0000:11:00.0 has nvidia",
        ]
    );
    other.functions.remove(7);
    let fewer = slot_map("j22u15", &other, &SlotPolicy::default());
    let lines: Vec<String> = map_difference(&after, &fewer).iter().map(line).collect();
    assert!(lines.contains(&"0000:17:00.0 slot: there -> ".to_owned()), "{lines:?}");
    assert!(lines[0].starts_with("host "), "{lines:?}");
}

/// A map of three slots: free of blockers, with one that may be overridden, with one that may not.
fn three_slots() -> SlotMap {
    let mut map = slot_map("j22u15", &board(), &SlotPolicy::default());
    map.slots.truncate(3);
    map.slots.iter_mut().for_each(|slot| slot.blockers.clear());
    map.slots[1].blockers.push(blocker(SlotBlockerCode::VfFar, "near", "far"));
    map.slots[2].blockers.push(blocker(SlotBlockerCode::GpuAcsOff, "on", "off"));
    map
}

#[test]
fn an_approval_overrides_what_is_named_and_never_isolation() {
    let mut map = three_slots();
    let indexes = |wanted: &[u32], map: &SlotMap| {
        let slots = approvable(map, wanted).map_err(|fault| fault.to_string())?;
        Ok::<_, String>(slots.iter().map(|slot| slot.index).collect::<Vec<_>>())
    };
    assert_eq!(indexes(&[], &map), Ok(vec![0]));
    assert_eq!(indexes(&[1, 0, 1], &map), Ok(vec![1, 0]));
    let refused = indexes(&[0, 2], &map).unwrap_err();
    assert_eq!(refused, "slot 2 is blocked by gpu_acs_off");
    assert_eq!(indexes(&[3], &map).unwrap_err(), "slot 3 does not exist: the host has 3 slots");
    map.host_blockers.push(blocker(SlotBlockerCode::GpuCount, "8", "3"));
    let refused = indexes(&[], &map).unwrap_err();
    assert_eq!(
        refused,
        "every slot has a blocker: name the slots whose blockers you want to override"
    );
    assert_eq!(indexes(&[0], &map), Ok(vec![0]));
    map.host_blockers.push(blocker(SlotBlockerCode::IommuOff, "on", "off"));
    let refused = indexes(&[0], &map).unwrap_err();
    assert_eq!(refused, "the host is blocked by iommu_off");
}

#[test]
fn an_approved_slot_is_stale_once_the_host_is_another_or_does_not_isolate() {
    let map = three_slots();
    assert_eq!(stale_reason(&map, 0, &map.digest), None);
    assert_eq!(stale_reason(&map, 1, &map.digest), None, "an operator answers for it");
    let reason = stale_reason(&map, 2, &map.digest);
    assert_eq!(reason.as_deref(), Some("blocked by gpu_acs_off"));
    assert!(stale_reason(&map, 0, "another").unwrap().contains("has changed"));
}

#[test]
fn a_policy_follows_the_inputs_of_the_slice_bundle() {
    let inputs = [
        ("gpu_count", "4"),
        ("hca_class", "0207"),
        ("guest_subnet", "10.7.0.0/25"),
        ("dhcp_first", "10.7.0.20"),
        ("gpu_class", "what"),
        ("vcpus_per_gpu", "12"),
        ("memory_gib_per_gpu", "0"),
        ("host_cores_per_node", "2"),
    ];
    let inputs = inputs.map(|(name, value)| (name.to_owned(), value.to_owned())).into();
    let policy = SlotPolicy::from_inputs(&inputs);
    assert_eq!((policy.gpus, policy.fabric.class.as_str()), (Some(4), "0207"));
    assert_eq!(policy.gpu, SlotPolicy::default().gpu, "what is no class is not taken");
    let shape = (policy.vcpus_per_gpu, policy.memory_gib_per_gpu, policy.host_cores_per_node);
    assert_eq!(shape, (12, 64, 2), "a slot without memory is none");
    assert_eq!(policy.subnet.address(0), Some(Ipv4Addr::new(10, 7, 0, 20)));
    assert_eq!(policy.subnet.address(107), None);
    assert_eq!(SlotPolicy::from_inputs(&Default::default()), SlotPolicy::default());
}

/// Of several nodes nobody knows which one, and no slice could be launched.
#[test]
fn a_gpu_without_a_node_is_no_slot() {
    let mut several = board();
    several.functions[3].numa_node = None;
    let map = slot_map("j22u11", &several, &SlotPolicy::default());
    let unknown = map.slots[3].blockers.iter().find(|one| one.code == "gpu_numa_unknown");
    assert!(!unknown.unwrap().overridable, "an approval that could not be launched");
    assert!(matches!(approvable(&map, &[3]), Err(ApprovalFault::Blocked { index: Some(3), .. })));
}
