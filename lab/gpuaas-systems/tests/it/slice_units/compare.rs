//! The agent's facts against what the distribution's own tools say of the same machine.
//!
//! `lspci` reads configuration spaces, `lscpu`, `lsblk`, `findmnt`, `ip` and `free` have readers of
//! their own: nothing here has a line in common with the agent.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Debug;

use host_facts::{HostFacts, PciFunction};
use serde_json::Value;

use super::machine::MachineOutput;

/// How many facts were compared, and which differ.
#[derive(Debug, Default)]
pub(crate) struct Comparison {
    pub(crate) compared: usize,
    pub(crate) agreed: usize,
    pub(crate) differences: Vec<String>,
}

impl Comparison {
    fn same<T: PartialEq + Debug>(&mut self, what: &str, agent: &T, other: &T) {
        self.compared += 1;
        if agent == other {
            self.agreed += 1;
        } else {
            self.differences.push(format!("{what}: the agent says {agent:?}, not {other:?}"));
        }
    }
}

/// Compares the facts of the machine at one time.
pub(crate) fn compare_facts(output: &MachineOutput, name: &str, comparison: &mut Comparison) {
    let text = |kind: &str| output.text(&format!("{name}.{kind}"));
    let facts: HostFacts = serde_json::from_str(&text("facts")).unwrap();
    pci(name, &facts, &text("lspci"), comparison);
    functions(name, &facts, &text("lspci-vv"), &text("virtfn"), comparison);
    groups(name, &facts, &text("groups"), comparison);
    numa(name, &facts, &text("lscpu"), comparison);
    plain(name, &facts, &text("plain"), comparison);
    disks(name, &facts, &text("lsblk"), comparison);
    let mounts: BTreeSet<_> =
        facts.mounts.iter().map(|m| format!("{} {} {}", m.source, m.target, m.fs_type)).collect();
    let found: BTreeSet<_> = text("findmnt").lines().map(str::to_owned).collect();
    comparison.same(&format!("{name}: mounts"), &mounts, &found);
    links(name, &facts, &output.json(&format!("{name}.ip-link")), comparison);
}

/// `Name [1b36]` as `1b36`; the last bracket is the number.
fn number(text: &str) -> Option<String> {
    Some(text.rsplit_once('[')?.1.strip_suffix(']')?.to_owned())
}

fn pci(name: &str, facts: &HostFacts, lspci: &str, comparison: &mut Comparison) {
    let records: Vec<BTreeMap<&str, &str>> = lspci
        .split("\n\n")
        .map(|record| record.lines().filter_map(|line| line.split_once(":\t")).collect())
        .filter(|record: &BTreeMap<_, _>| !record.is_empty())
        .collect();
    let agent: Vec<&str> = facts.pci.iter().map(|function| function.address.as_str()).collect();
    let lspci: Vec<&str> = records.iter().map(|record| record["Slot"]).collect();
    comparison.same(&format!("{name}: PCI functions"), &agent, &lspci);
    for record in &records {
        let slot = record["Slot"];
        let Some(function) = facts.pci.iter().find(|function| function.address == slot) else {
            continue;
        };
        let get = |key: &str| record.get(key).map(|text| (*text).to_owned());
        let interface = get("ProgIf").unwrap_or_else(|| "00".to_owned());
        let class = number(record["Class"]).map(|class| format!("{class}{interface}"));
        let whole = |key: &str| get(key).and_then(|text| text.parse().ok());
        let mut same = |what: &str, agent: &Option<String>, other: &Option<String>| {
            comparison.same(&format!("{name}: {slot} {what}"), agent, other);
        };
        same("vendor", &function.vendor, &number(record["Vendor"]));
        same("device", &function.device, &number(record["Device"]));
        same("class", &function.class, &class);
        same("driver", &function.driver, &get("Driver"));
        comparison.same(
            &format!("{name}: {slot} group"),
            &function.iommu_group,
            &whole("IOMMUGroup"),
        );
        comparison.same(
            &format!("{name}: {slot} NUMA node"),
            &function.numa_node,
            &whole("NUMANode"),
        );
    }
}

/// Virtual functions as the capability of the physical one counts them, and as the kernel links
/// them from there. The agent reads `sriov_numvfs`, and the link back.
fn functions(
    name: &str,
    facts: &HostFacts,
    capabilities: &str,
    links: &str,
    comparison: &mut Comparison,
) {
    let mut counts: BTreeMap<String, u32> = BTreeMap::new();
    let mut slot = "";
    for line in capabilities.lines() {
        if !line.starts_with(char::is_whitespace) {
            slot = line.split(' ').next().unwrap_or_default();
        } else if let Some((_, rest)) = line.split_once("Number of VFs: ") {
            let count = rest.split(',').next().and_then(|count| count.parse().ok());
            counts.insert(slot.to_owned(), count.unwrap());
        }
    }
    let said =
        |function: &PciFunction| Some((function.address.clone(), function.virtual_functions?));
    let agent: BTreeMap<String, u32> = facts.pci.iter().filter_map(said).collect();
    comparison.same(&format!("{name}: counts of virtual functions"), &agent, &counts);
    let pair = |function: &PciFunction| {
        Some(format!("{} {}", function.physical_function.as_ref()?, function.address))
    };
    let agent: BTreeSet<String> = facts.pci.iter().filter_map(pair).collect();
    let kernel: BTreeSet<String> = links.lines().map(str::to_owned).collect();
    comparison.same(&format!("{name}: virtual functions"), &agent, &kernel);
}

fn groups(name: &str, facts: &HostFacts, kernel: &str, comparison: &mut Comparison) {
    let pair =
        |function: &PciFunction| Some(format!("{} {}", function.iommu_group?, function.address));
    let agent: BTreeSet<String> = facts.pci.iter().filter_map(pair).collect();
    let kernel: BTreeSet<String> = kernel.lines().map(str::to_owned).collect();
    comparison.same(&format!("{name}: members of IOMMU groups"), &agent, &kernel);
}

/// Numbers of a kernel list such as `0-3,8`.
fn numbers(list: &str) -> BTreeSet<u32> {
    let range = |part: &str| {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        first.parse().unwrap()..=last.parse().unwrap()
    };
    list.split(',').filter(|part| !part.is_empty()).flat_map(range).collect()
}

fn numa(name: &str, facts: &HostFacts, lscpu: &str, comparison: &mut Comparison) {
    let mut nodes: BTreeMap<u32, BTreeSet<u32>> = BTreeMap::new();
    for (cpu, node) in lscpu.lines().filter_map(|line| line.split_once(',')) {
        nodes.entry(node.parse().unwrap()).or_default().insert(cpu.parse().unwrap());
    }
    let cpus = |list: &Option<String>| numbers(list.as_deref().unwrap_or_default());
    let agent = facts.numa_nodes.iter().map(|node| (node.id, cpus(&node.cpu_list))).collect();
    comparison.same(&format!("{name}: processors of NUMA nodes"), &agent, &nodes);
    let sum = facts.numa_nodes.iter().map(|node| node.memory_total_bytes).sum();
    comparison.same(&format!("{name}: memory of NUMA nodes"), &sum, &facts.memory_total_bytes);
}

fn plain(name: &str, facts: &HostFacts, said: &str, comparison: &mut Comparison) {
    let said: BTreeMap<&str, &str> = said.lines().filter_map(|line| line.split_once(' ')).collect();
    let agent = [
        ("kernel_release", facts.kernel_release.clone()),
        ("hostname", facts.hostname.clone()),
        ("kernel_cmdline", facts.kernel_cmdline.clone()),
        ("boot_id", facts.boot_id.clone()),
        ("cpu_model", facts.cpu_model.clone()),
        ("cpu_count", facts.cpu_count.map(|count| count.to_string())),
        ("memory_total_bytes", facts.memory_total_bytes.map(|bytes| bytes.to_string())),
    ];
    for (what, agent) in agent {
        let other = said.get(what).map(|text| (*text).to_owned());
        comparison.same(&format!("{name}: {what}"), &agent, &other);
    }
}

fn disks(name: &str, facts: &HostFacts, lsblk: &str, comparison: &mut Comparison) {
    let disk = |line: &str| {
        let value = |key: &str| {
            let (_, rest) = line.split_once(&format!("{key}=\""))?;
            Some(rest.split_once('"')?.0.to_owned()).filter(|text| !text.is_empty())
        };
        let size: Option<u64> = value("SIZE").and_then(|size| size.parse().ok());
        (value("NAME").unwrap(), size, value("ROTA").map(|rota| rota == "1"), value("SERIAL"))
    };
    let found: BTreeSet<_> = lsblk.lines().map(disk).collect();
    let agent: BTreeSet<_> = facts
        .block_devices
        .iter()
        .map(|disk| (disk.name.clone(), disk.size_bytes, disk.rotational, disk.serial.clone()))
        .collect();
    comparison.same(&format!("{name}: disks"), &agent, &found);
}

fn links(name: &str, facts: &HostFacts, ip: &Value, comparison: &mut Comparison) {
    let text = |value: &Value| value.as_str().map(str::to_lowercase);
    let found: BTreeSet<_> = ip
        .as_array()
        .unwrap()
        .iter()
        .map(|link| {
            let state = text(&link["operstate"]);
            (text(&link["ifname"]), text(&link["address"]), state, link["mtu"].as_u64())
        })
        .collect();
    let agent: BTreeSet<_> = facts
        .links
        .iter()
        .map(|link| {
            let mtu = link.mtu_bytes.map(u64::from);
            (Some(link.name.clone()), link.mac_address.clone(), link.operstate.clone(), mtu)
        })
        .collect();
    comparison.same(&format!("{name}: links"), &agent, &found);
}
