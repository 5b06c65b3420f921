//! Checks of PCI functions: their drivers, their IOMMU groups, their isolation, SR-IOV.

use std::collections::BTreeMap;

use host_facts::{HostFacts, HostRoot, PciFunction};

use super::verdict::{Verdict, at_least};

/// PciFilter PCI functions a check is about.
#[derive(Clone, Copy)]
pub(super) struct PciFilter<'a> {
    /// PCI vendor id, hexadecimal, in any case.
    pub(super) vendor: &'a str,
    /// PCI device id, hexadecimal, in any case; `None`: any device.
    pub(super) device: Option<&'a str>,
    /// Beginning of the PCI class, hexadecimal, in any case; `None`: any class.
    pub(super) class: Option<&'a str>,
    /// Whether only SR-IOV virtual functions match.
    pub(super) virtual_only: bool,
}

impl<'a> PciFilter<'a> {
    /// Functions of a vendor, of this device and class if one is named.
    pub(super) fn devices(
        vendor: &'a str,
        device: Option<&'a str>,
        class: Option<&'a str>,
    ) -> Self {
        Self { vendor, device, class, virtual_only: false }
    }

    pub(super) fn matches(&self, function: &PciFunction) -> bool {
        let same = |wanted: &str, found: &Option<String>| {
            found.as_deref().is_some_and(|found| found.eq_ignore_ascii_case(wanted))
        };
        let class = function.class.as_deref().unwrap_or_default();
        same(self.vendor, &function.vendor)
            && self.device.is_none_or(|device| same(device, &function.device))
            && self.class.is_none_or(|begin| class.starts_with(&begin.to_ascii_lowercase()))
            && (!self.virtual_only || function.physical_function.is_some())
    }
}

/// Beginning of the PCI class of PCI-to-PCI bridges.
const BRIDGE_CLASS: &str = "0604";
/// Beginning of the PCI class of NVSwitches.
const SWITCH_CLASS: &str = "0680";

fn driver(function: &PciFunction) -> &str {
    function.driver.as_deref().unwrap_or("none")
}

/// Virtual functions are no devices of their own.
pub(super) fn present(facts: &HostFacts, filter: PciFilter<'_>, count: u32) -> Verdict {
    let is_device = |one: &&PciFunction| filter.matches(one) && one.physical_function.is_none();
    at_least(facts.pci.iter().filter(is_device).count(), count)
}

pub(super) fn driver_bound(
    root: Option<&HostRoot>,
    facts: &HostFacts,
    filter: PciFilter<'_>,
    wanted: &str,
    count: u32,
) -> Verdict {
    let found: Vec<&PciFunction> =
        facts.pci.iter().filter(|function| filter.matches(function)).collect();
    let others: Vec<String> = found
        .iter()
        .filter(|function| driver(function) != wanted)
        .map(|function| format!("{}: driver {}", function.address, driver(function)))
        .collect();
    let (enough, seen) = at_least(found.len(), count);
    if others.is_empty() {
        return (enough, seen);
    }
    let mut seen = format!("{seen}; {}", others.join(", "));
    // What has a GPU open keeps it from any other driver.
    if found.iter().any(|function| driver(function) == "nvidia") {
        let holders = root.map(HostRoot::gpu_holders).unwrap_or_default();
        if !holders.is_empty() {
            seen = format!("{seen}; held open by {}", holders.join(", "));
        }
    }
    (false, seen)
}

pub(super) fn groups_whole(facts: &HostFacts, wanted: &str) -> Verdict {
    let mut groups: BTreeMap<u32, Vec<&PciFunction>> = BTreeMap::new();
    for function in &facts.pci {
        if let Some(group) = function.iommu_group {
            groups.entry(group).or_default().push(function);
        }
    }
    let bound: Vec<&PciFunction> =
        facts.pci.iter().filter(|function| driver(function) == wanted).collect();
    if bound.is_empty() {
        return (false, format!("nothing is bound to {wanted}"));
    }
    let mut wrong = Vec::new();
    for function in &bound {
        let Some(group) = function.iommu_group else {
            wrong.push(format!("{} has no IOMMU group: the IOMMU is off", function.address));
            continue;
        };
        for other in &groups[&group] {
            let bridge =
                other.class.as_deref().is_some_and(|class| class.starts_with(BRIDGE_CLASS));
            if !bridge && driver(other) != wanted {
                wrong.push(format!(
                    "IOMMU group {group} of {} also contains {}, driver {}",
                    function.address,
                    other.address,
                    driver(other)
                ));
            }
        }
    }
    if wrong.is_empty() {
        (true, format!("{} functions, none shares its IOMMU group", bound.len()))
    } else {
        (false, wrong.join("; "))
    }
}

pub(super) fn virtual_functions(
    facts: &HostFacts,
    filter: PciFilter<'_>,
    each: u32,
    count: u32,
) -> Verdict {
    let physical: Vec<&PciFunction> = facts
        .pci
        .iter()
        .filter(|function| filter.matches(function) && function.virtual_functions.is_some())
        .collect();
    // `sriov_numvfs` against the functions that are there: a number that was written is no proof.
    let counted = |function: &PciFunction| {
        let is_virtual_of = |other: &&PciFunction| {
            other.physical_function.as_deref() == Some(function.address.as_str())
        };
        u32::try_from(facts.pci.iter().filter(is_virtual_of).count()).unwrap_or(u32::MAX)
    };
    let wrong: Vec<String> = physical
        .iter()
        .map(|function| (function, function.virtual_functions.unwrap_or(0), counted(function)))
        .filter(|(_, numvfs, counted)| *numvfs != each || *counted != each)
        .map(|(function, numvfs, counted)| {
            format!("{}: numvfs {numvfs}, {counted} present, expected {each}", function.address)
        })
        .collect();
    let (enough, mut seen) = at_least(physical.len(), count);
    let without: Vec<&str> = facts
        .pci
        .iter()
        .filter(|function| {
            filter.matches(function)
                && function.virtual_functions.is_none()
                && function.physical_function.is_none()
        })
        .map(|function| function.address.as_str())
        .collect();
    if !enough && !without.is_empty() {
        seen = format!("{seen}; SR-IOV is off in the firmware of {}", without.join(", "));
    }
    if wrong.is_empty() { (enough, seen) } else { (false, wrong.join("; ")) }
}

pub(super) fn acs_isolates(root: Option<&HostRoot>, facts: &HostFacts, wanted: &str) -> Verdict {
    let Some(root) = root else { return (false, "a simulated host has no buses".to_owned()) };
    let bound: Vec<&PciFunction> =
        facts.pci.iter().filter(|function| driver(function) == wanted).collect();
    if bound.is_empty() {
        return (false, format!("nothing is bound to {wanted}"));
    }
    let mut bridges: Vec<String> =
        bound.iter().flat_map(|function| root.bridges_above(&function.address)).collect();
    bridges.sort();
    bridges.dedup();
    let wrong: Vec<String> = bridges
        .iter()
        .filter_map(|bridge| match root.acs(bridge) {
            Some(acs) if acs.isolates() => None,
            Some(acs) => Some(format!(
                "bridge {bridge} supports ACS {:#06x}, but only {:#06x} is enabled",
                acs.capability, acs.control
            )),
            // An upstream port of a switch has none and needs none; a downstream port needs it.
            None if downstream(root, bridge) => Some(format!("bridge {bridge} has no ACS")),
            None => None,
        })
        .collect();
    if wrong.is_empty() {
        (true, format!("{} bridges isolate {} functions", bridges.len(), bound.len()))
    } else {
        (false, wrong.join("; "))
    }
}

/// Whether each GPU that NVSwitches join has a module ID of its own on record.
pub(super) fn gpu_modules(
    root: Option<&HostRoot>,
    facts: &HostFacts,
    gpus: PciFilter<'_>,
) -> Verdict {
    let is_switch = |function: &&PciFunction| {
        let class = function.class.as_deref().unwrap_or_default();
        function.vendor.as_deref() == Some("10de") && class.starts_with(SWITCH_CLASS)
    };
    if !facts.pci.iter().any(|function| is_switch(&function)) {
        return (true, "no NVSwitch connects the GPUs".to_owned());
    }
    let Some(root) = root else { return (false, "a simulated host has no record".to_owned()) };
    let recorded = match root.recorded_gpu_modules() {
        Ok(recorded) => recorded,
        Err(why) => return (false, why.to_string()),
    };
    let gpus: Vec<&PciFunction> = facts.pci.iter().filter(|one| gpus.matches(one)).collect();
    let of_gpus: BTreeMap<u32, &str> = recorded
        .iter()
        .filter(|one| gpus.iter().any(|gpu| gpu.address == one.address))
        .map(|one| (one.module_id, one.address.as_str()))
        .collect();
    let seen = format!("{} of {} GPUs have a recorded module", of_gpus.len(), gpus.len());
    (!gpus.is_empty() && of_gpus.len() == gpus.len(), seen)
}

/// Whether a bridge is a root port or a downstream port of a switch.
fn downstream(root: &HostRoot, bridge: &str) -> bool {
    root.is_downstream_port(bridge).unwrap_or(true)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn facts(functions: &serde_json::Value) -> HostFacts {
        serde_json::from_value(serde_json::json!({ "pci": functions })).unwrap()
    }

    fn function(address: &str, class: &str, driver: &str, group: u32) -> serde_json::Value {
        serde_json::json!({"address": address, "vendor": "10de", "device": "2335", "class": class,
            "driver": driver, "iommu_group": group})
    }

    #[test]
    fn a_function_with_another_driver_is_named() {
        let facts = facts(&serde_json::json!([
            function("0000:19:00.0", "030200", "vfio-pci", 1),
            function("0000:3b:00.0", "030200", "nvidia", 2),
            function("0000:05:00.0", "068000", "nvidia-nvswitch", 3),
        ]));
        let gpus =
            PciFilter { vendor: "10DE", device: None, class: Some("0302"), virtual_only: false };
        let (passed, seen) = driver_bound(None, &facts, gpus, "vfio-pci", 2);
        let expected = "found 2, expected at least 2; 0000:3b:00.0: driver nvidia";
        assert_eq!((passed, seen.as_str()), (false, expected));
        let (passed, _) = driver_bound(
            None,
            &facts,
            PciFilter { class: Some("0680"), ..gpus },
            "nvidia-nvswitch",
            1,
        );
        assert!(passed);
        assert!(
            !driver_bound(None, &facts, PciFilter { class: Some("0c"), ..gpus }, "vfio-pci", 1).0
        );
    }

    /// NVMe's virtual functions are of the vendor, device and class of their physical one.
    #[test]
    fn virtual_functions_are_told_from_their_physical_one() {
        let facts = facts(&serde_json::json!([
            {"address": "0000:41:00.0", "vendor": "1b36", "class": "010802", "driver": "nvme"},
            {"address": "0000:41:00.1", "vendor": "1b36", "class": "010802", "driver": "vfio-pci",
                "physical_function": "0000:41:00.0"},
        ]));
        let filter =
            PciFilter { vendor: "1b36", device: None, class: Some("0108"), virtual_only: true };
        assert_eq!(
            driver_bound(None, &facts, filter, "vfio-pci", 1),
            (true, "found 1, expected at least 1".to_owned())
        );
        let (passed, seen) =
            driver_bound(None, &facts, PciFilter { virtual_only: false, ..filter }, "vfio-pci", 1);
        assert!(!passed && seen.contains("0000:41:00.0: driver nvme"), "{seen}");
    }

    #[test]
    fn a_group_may_hold_bridges_and_nothing_else() {
        let whole = serde_json::json!([
            function("0000:19:00.0", "030200", "vfio-pci", 1),
            function("0000:18:00.0", "060400", "pcieport", 1),
        ]);
        assert!(groups_whole(&facts(&whole), "vfio-pci").0);
        let mut shared = whole;
        shared.as_array_mut().unwrap().push(function("0000:19:00.1", "040300", "snd", 1));
        let (passed, seen) = groups_whole(&facts(&shared), "vfio-pci");
        assert!(!passed && seen.contains("0000:19:00.1, driver snd"), "{seen}");
        let off = serde_json::json!([{"address": "0000:19:00.0", "driver": "vfio-pci"}]);
        assert!(groups_whole(&facts(&off), "vfio-pci").1.contains("the IOMMU is off"));
        assert!(!groups_whole(&facts(&serde_json::json!([])), "vfio-pci").0);
    }

    #[test]
    fn virtual_functions_are_counted_and_not_believed() {
        let physical = |said: u32| {
            serde_json::json!({"address": "0000:1a:00.0", "vendor": "15b3", "class": "020700",
                "virtual_functions": said})
        };
        let child = |n: u32| {
            serde_json::json!({"address": format!("0000:1a:00.{n}"), "vendor": "15b3",
                "physical_function": "0000:1a:00.0"})
        };
        let verdict = |said, children: &[u32]| {
            let ethernet = serde_json::json!({"address": "0000:00:01.0", "vendor": "15b3",
                "class": "020000", "virtual_functions": 0});
            let mut functions = vec![ethernet, physical(said)];
            functions.extend(children.iter().map(|n| child(*n)));
            let adapters = PciFilter {
                vendor: "15b3",
                device: None,
                class: Some("0207"),
                virtual_only: false,
            };
            virtual_functions(&facts(&functions.into()), adapters, 2, 1)
        };
        assert!(verdict(2, &[1, 2]).0);
        assert!(!verdict(2, &[1]).0);
        assert!(!verdict(0, &[]).0);
        assert_eq!(verdict(2, &[1]).1, "0000:1a:00.0: numvfs 2, 1 present, expected 2");
        let off =
            serde_json::json!([{"address": "0000:1a:00.0", "vendor": "15b3", "class": "020700"}]);
        let adapters =
            PciFilter { vendor: "15b3", device: None, class: Some("0207"), virtual_only: false };
        let (passed, seen) = virtual_functions(&facts(&off), adapters, 2, 1);
        let expected =
            "found 0, expected at least 1; SR-IOV is off in the firmware of 0000:1a:00.0";
        assert_eq!((passed, seen.as_str()), (false, expected));
    }

    #[test]
    fn acs_that_was_turned_off_is_seen() {
        let dir = tempfile::tempdir().unwrap();
        let devices = dir.path().join("sys/bus/pci/devices");
        let port = dir.path().join("sys/devices/pci0000:15/0000:15:01.0");
        std::fs::create_dir_all(&devices).unwrap();
        std::fs::create_dir_all(port.join("0000:16:00.0")).unwrap();
        for (name, to) in
            [("0000:15:01.0", "0000:15:01.0"), ("0000:16:00.0", "0000:15:01.0/0000:16:00.0")]
        {
            let target = format!("../../../devices/pci0000:15/{to}");
            std::os::unix::fs::symlink(target, devices.join(name)).unwrap();
        }
        let facts = facts(&serde_json::json!([
            {"address": "0000:16:00.0", "driver": "vfio-pci", "iommu_group": 1}
        ]));
        let root = HostRoot::new(dir.path());
        let verdict = |control: u16| {
            let mut bytes = vec![0; 4096];
            bytes[0x100..0x104].copy_from_slice(&[0x0d, 0x00, 0x01, 0x00]);
            bytes[0x104] = 0x1d;
            bytes[0x106..0x108].copy_from_slice(&control.to_le_bytes());
            std::fs::write(port.join("config"), bytes).unwrap();
            acs_isolates(Some(&root), &facts, "vfio-pci")
        };
        assert!(verdict(0x1d).0);
        let (passed, seen) = verdict(0);
        assert!(!passed && seen.contains("0000:15:01.0 supports ACS 0x001d"), "{seen}");
        std::fs::write(port.join("config"), [0; 64]).unwrap();
        assert!(!acs_isolates(Some(&root), &facts, "vfio-pci").0, "cannot be read");
    }
}
