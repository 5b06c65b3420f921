//! The topology that discovery reads, and the slot map made of it.
//!
//! `h100` is one machine with an H100 that a hypervisor passed through, driver 580: its sysfs, and what
//! `nvidia-smi -q`, `nvidia-smi -q -x` and `lspci -Dvvnn` printed there. Serial numbers and the UUID are
//! made up.

#![expect(clippy::unwrap_used, reason = "a fixture that fails is a failed test")]

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;

use gpuaas_core::slots::{SlotPolicy, slot_map};
use gpuaas_types::slot::SlotMap;
use gpuaas_types::topology::{BarSize, HostTopology, TopologyFunction, TopologyReport};
use host_facts::HostRoot;
use host_facts::topology::{GPU_MODULES_RECORD, RECORDED_HARDWARE};

use super::{agent, log, output_of};

const SYSFS: &str = include_str!("h100/sysfs.txt");
const SMI: &str = include_str!("h100/nvidia-smi-q.txt");
const SMI_XML: &str = include_str!("h100/nvidia-smi-q.xml");
const LSPCI: &str = include_str!("h100/lspci-vv.txt");
/// The candidate slots of the machine as it is: no host of slices, so each reason is told.
const MAP: &str = include_str!("h100/map.json");

/// What `lspci -vv` says of one function, a line each.
type Lines<'a> = Vec<&'a str>;

/// Display controllers (class 03) in what `lspci -Dvvnn` prints, by address.
fn controllers(lspci: &str) -> BTreeMap<&str, Lines<'_>> {
    let mut functions: BTreeMap<&str, Lines<'_>> = BTreeMap::new();
    let mut address = None;
    for line in lspci.lines() {
        if line.starts_with(|first: char| first.is_ascii_hexdigit()) {
            let (found, class) = line.split_once(' ').unwrap_or_default();
            address = class.contains("[03").then_some(found);
        }
        if let Some(address) = address {
            functions.entry(address).or_default().push(line.trim());
        }
    }
    functions
}

/// The base address registers of a function: `Region 2: Memory at 1000 (64-bit, prefetchable) [size=128G]`.
fn regions(lines: &Lines<'_>) -> Vec<BarSize> {
    let region = |line: &&str| {
        let (index, text) = line.strip_prefix("Region ")?.split_once(": ")?;
        let size = text.split_once("[size=")?.1.split_once(']')?.0;
        let digits = size.trim_end_matches(|unit: char| unit.is_ascii_alphabetic());
        let shift = match &size[digits.len()..] {
            "" => 0,
            "K" => 10,
            "M" => 20,
            "G" => 30,
            _ => return None,
        };
        Some(BarSize {
            index: index.parse().ok()?,
            size_bytes: digits.parse::<u64>().ok()? << shift,
            prefetchable: text.contains(" prefetchable"),
        })
    };
    lines.iter().filter_map(region).collect()
}

/// Differences between what discovery says of GPUs and what the tools say.
fn differences(topology: &HostTopology, smi: &str, lspci: &str) -> Vec<String> {
    let gpus: Vec<&TopologyFunction> = topology
        .functions
        .iter()
        .filter(|one| one.vendor.as_deref() == Some("10de"))
        .filter(|one| one.class.as_deref().is_some_and(|class| class.starts_with("03")))
        .collect();
    let (values, functions) = (log(smi), controllers(lspci));
    let only_node = match topology.numa_nodes.as_slice() {
        [only] => Some(only.id),
        _ => None,
    };
    let map = slot_map("gpu-host", topology, &SlotPolicy::default());
    let addresses: Vec<&str> = gpus.iter().map(|gpu| gpu.address.as_str()).collect();
    let of_map: Vec<&str> = map.slots.iter().map(|slot| slot.gpu.address.as_str()).collect();
    let of_lspci: Vec<&str> = functions.keys().copied().collect();
    let mut found = Vec::new();
    let mut same = |what: String, ours: String, theirs: String| {
        if ours != theirs {
            found.push(format!("{what}: the agent says {ours}, the tool {theirs}"));
        }
    };
    same("GPUs".to_owned(), format!("{addresses:?}"), format!("{of_lspci:?}"));
    same("GPUs of slots".to_owned(), format!("{of_map:?}"), format!("{addresses:?}"));
    let attached = values.get("Attached GPUs").cloned().unwrap_or_default();
    same("number of GPUs".to_owned(), gpus.len().to_string(), attached);
    for (gpu, slot) in gpus.iter().zip(&map.slots) {
        let Some(lines) = functions.get(gpu.address.as_str()) else { continue };
        let mut compare = |name: &str, ours: String, theirs: String| {
            same(format!("{} {name}", gpu.address), ours, theirs);
        };
        let after = |name: &str| lines.iter().find_map(|line| line.strip_prefix(name));
        let has = |text: &str| lines.iter().any(|line| line.contains(text));
        let number = |name: &str| after(name).and_then(|text| text.trim().parse::<u32>().ok());
        let bars = gpu.bars.clone().unwrap_or_default();
        compare("registers", format!("{bars:?}"), format!("{:?}", regions(lines)));
        compare("driver", format!("{:?}", gpu.driver.as_deref()), {
            format!("{:?}", after("Kernel driver in use: "))
        });
        compare(
            "NUMA node",
            format!("{:?}", gpu.numa_node),
            // lspci names none where the kernel says -1.
            format!("{:?}", number("NUMA node: ").or(only_node)),
        );
        compare("IOMMU group", format!("{:?}", gpu.iommu_group), {
            format!("{:?}", number("IOMMU group: "))
        });
        // `flr` and `pm` are the two methods that the function's own registers tell of
        // (drivers/pci/pci.c, pcie_reset_flr and pci_pm_reset).
        let methods = gpu.reset_methods.clone().unwrap_or_default();
        for (method, offered) in [("flr", has("FLReset+ ")), ("pm", has("NoSoftRst-"))] {
            let ours = methods.iter().any(|one| one == method);
            compare(&format!("reset by {method}"), ours.to_string(), offered.to_string());
        }
        let of_smi = |name: &str| {
            let value = values.get(&format!("GPU 0000{}/{name}", gpu.address.to_uppercase()));
            value.filter(|text| *text != "N/A").cloned()
        };
        // NVIDIA's BAR1 is the second register there is: one of 64 bits has two numbers.
        let aperture = bars.get(1).map(|bar| format!("{} MiB", bar.size_bytes >> 20));
        compare(
            "BAR1",
            format!("{aperture:?}"),
            format!("{:?}", of_smi("BAR1 Memory Usage/Total")),
        );
        let module = of_smi("Platform Info/Module Id").or_else(|| of_smi("GPU Module Id"));
        let of_slot = slot.gpu.module_id.map(|id| id.to_string());
        compare("module id", format!("{of_slot:?}"), format!("{module:?}"));
        let serial = of_smi("Serial Number");
        compare("serial", format!("{:?}", slot.gpu.serial), format!("{serial:?}"));
    }
    found
}

fn topology_of(root: &Path) -> HostTopology {
    let root = root.display().to_string();
    let printed = output_of(&agent(), &["topology", "--root", &root, "-o", "json"]).unwrap();
    serde_json::from_str::<TopologyReport>(&printed).unwrap().topology
}

/// The recorded machine as a folder.
fn write_h100(root: &Path) {
    for line in SYSFS.lines() {
        let (path, rest) = line.split_once(' ').unwrap();
        let path = root.join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        match rest.split_once(' ').unwrap() {
            ("->", target) => symlink(target, path).unwrap(),
            (_, text) => fs::write(path, text.replace("\\n", "\n") + "\n").unwrap(),
        }
    }
    let record = root.join(GPU_MODULES_RECORD.trim_start_matches('/'));
    fs::create_dir_all(record.parent().unwrap()).unwrap();
    // The recording has no identity of the hardware; a record without one is no evidence.
    let dmi = root.join("sys/class/dmi/id");
    fs::create_dir_all(&dmi).unwrap();
    fs::write(dmi.join("product_serial"), "H100-HOST\n").unwrap();
    let hardware = HostRoot::new(root).hardware_identity().unwrap();
    fs::write(record, format!("{SMI_XML}\n{RECORDED_HARDWARE}{hardware} -->\n")).unwrap();
}

#[test]
fn the_topology_agrees_with_the_driver_and_lspci() {
    let Some(smi) = output_of("nvidia-smi", &["-q"]) else {
        return test_report::skip("gpu", "this machine has no NVIDIA GPU that nvidia-smi knows");
    };
    let lspci = output_of("lspci", &["-Dvvnn", "-d", "10de:"]).unwrap();
    let topology = topology_of(Path::new("/"));
    let found = differences(&topology, &smi, &lspci);
    assert!(found.is_empty(), "{}", found.join("\n"));
    println!("{} controllers agree with nvidia-smi -q and lspci", controllers(&lspci).len());
}

#[test]
fn the_recorded_machine_s_topology_and_map_are_what_its_tools_said() {
    let dir = tempfile::tempdir().unwrap();
    write_h100(dir.path());
    let topology = topology_of(dir.path());
    assert_eq!(differences(&topology, SMI, LSPCI), [""; 0]);
    let map = slot_map("gpu-host", &topology, &SlotPolicy::default());
    let wanted: SlotMap = serde_json::from_str(MAP).unwrap();
    assert_eq!(map, wanted, "{}", serde_json::to_string_pretty(&map).unwrap());
}

/// The kernel says -1 of every function of a host whose firmware has no table of nodes.
#[test]
fn functions_without_a_node_belong_to_the_only_one() {
    let dir = tempfile::tempdir().unwrap();
    write_h100(dir.path());
    let nodes = dir.path().join("sys/devices/system/node");
    for entry in fs::read_dir(&nodes).unwrap() {
        let entry = entry.unwrap();
        if entry.file_name() != "node0" && entry.path().is_dir() {
            fs::remove_dir_all(entry.path()).unwrap();
        }
    }
    for entry in fs::read_dir(dir.path().join("sys/bus/pci/devices")).unwrap() {
        fs::write(entry.unwrap().path().join("numa_node"), "-1\n").unwrap();
    }
    let topology = topology_of(dir.path());
    assert_eq!(topology.numa_nodes.len(), 1);
    assert!(topology.functions.iter().all(|function| function.numa_node == Some(0)));
}

#[test]
fn each_difference_of_the_recorded_machine_is_seen() {
    let dir = tempfile::tempdir().unwrap();
    write_h100(dir.path());
    let topology = topology_of(dir.path());
    for (was, is, what) in [
        ("[size=128G]", "[size=64G]", "registers"),
        (
            "Region 4: Memory at 102000000000 (64-bit, prefetchable)",
            "Region 4: Memory at 0 (64-bit)",
            "registers",
        ),
        ("FLReset+ ", "FLReset- ", "reset by flr"),
        ("NoSoftRst+", "NoSoftRst-", "reset by pm"),
        ("Latency: 0", "NUMA node: 1", "NUMA node"),
        ("Latency: 0", "IOMMU group: 7", "IOMMU group"),
        ("in use: nvidia", "in use: vfio-pci", "driver"),
    ] {
        assert!(LSPCI.contains(was), "{was}");
        let found = differences(&topology, SMI, &LSPCI.replacen(was, is, 1));
        assert!(found.len() == 1 && found[0].contains(what), "{what}: {found:?}");
    }
    for (was, is, what) in [
        (": 131072 MiB", ": 65536 MiB", "BAR1"),
        ("Module Id                                      : 4", "Module Id : 5", "module id"),
        (": 1650000000001", ": 1650000000002", "serial"),
        (
            "Attached GPUs                                          : 1",
            "Attached GPUs : 2",
            "number",
        ),
    ] {
        assert!(SMI.contains(was), "{was}");
        let found = differences(&topology, &SMI.replacen(was, is, 1), LSPCI);
        assert!(found.len() == 1 && found[0].contains(what), "{what}: {found:?}");
    }
    assert!(!differences(&topology, SMI, "").is_empty(), "nothing was compared");
}
