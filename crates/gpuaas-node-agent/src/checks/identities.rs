//! Whether virtual functions have an identity on the fabric.
//!
//! NVIDIA's driver shows identities in sysfs; the kernel's own driver answers for them through the link of the
//! physical function (`ip -j link show`). A guest whose function has zeros for a GUID reaches nobody.

use std::collections::BTreeMap;

use gpuaas_types::slice::FabricIdentity;
use host_facts::topology::queries::{
    VIRTUAL_IDENTITIES_QUERY, VirtualIdentity, virtual_identities,
};
use host_facts::{HostFacts, HostRoot, PciFunction};

use super::pci::PciFilter;
use super::query::{QUERY_SECONDS, query};
use super::verdict::Verdict;
use crate::command::CommandRunner;
use crate::host::Host;

/// Beginning of the PCI class of InfiniBand controllers.
const INFINIBAND_CLASS: &str = "0207";
/// Beginning of the PCI class of Ethernet controllers.
const ETHERNET_CLASS: &str = "0200";

/// What an identity is at an adapter.
#[derive(Clone, Copy)]
enum IdentityKind {
    Guids,
    Mac,
}

impl IdentityKind {
    /// By the adapter's class; none: its functions have no identity.
    fn of(adapter: &PciFunction) -> Option<Self> {
        let class = adapter.class.as_deref()?;
        match () {
            () if class.starts_with(INFINIBAND_CLASS) => Some(Self::Guids),
            () if class.starts_with(ETHERNET_CLASS) => Some(Self::Mac),
            () => None,
        }
    }

    /// Names of what `identity` lacks.
    fn missing(self, identity: &VirtualIdentity) -> Vec<&'static str> {
        let parts = match self {
            Self::Guids => {
                vec![("node GUID", &identity.guid), ("port GUID", &identity.port_guid)]
            }
            Self::Mac => vec![("MAC address", &identity.mac)],
        };
        let is_set =
            |value: &str| value.chars().any(|digit| digit.is_ascii_hexdigit() && digit != '0');
        let missing = parts.into_iter().filter(|(_, value)| !value.as_deref().is_some_and(is_set));
        missing.map(|(name, _)| name).collect()
    }
}

/// Evaluates `HostCheck::VirtualIdentities` for the adapters that `filter` matches.
pub(super) async fn judge(
    host: &Host,
    runner: CommandRunner<'_>,
    facts: &HostFacts,
    filter: PciFilter<'_>,
) -> Verdict {
    let Some(root) = host.root() else {
        return (false, "a simulated host has no virtual functions".to_owned());
    };
    let released = root.assigned_identities();
    let (mut count, mut wrong) = (0, Vec::new());
    for adapter in facts.pci.iter().filter(|one| filter.matches(one)) {
        let Some(kind) = IdentityKind::of(adapter) else { continue };
        let functions = root.virtual_functions_of(&adapter.address);
        let mut answered = None;
        for (index, address) in functions {
            count += 1;
            let identity = match root.virtual_identity(&adapter.address, index) {
                Some(identity) => identity,
                None => {
                    if answered.is_none() {
                        answered = Some(ask(root, runner, &adapter.address).await);
                    }
                    match answered.as_ref() {
                        Some(Ok(all)) => all.get(&index).cloned().unwrap_or_default(),
                        Some(Err(reason)) => return (false, reason.clone()),
                        None => VirtualIdentity::default(),
                    }
                }
            };
            let missing = kind.missing(&identity);
            if !missing.is_empty() && !is_on_record(&released, &address, &adapter.address, index) {
                wrong.push(format!("{address} has no {}", missing.join(" and no ")));
            }
        }
    }
    if wrong.is_empty() {
        return (true, format!("{count} virtual functions have identities"));
    }
    (false, wrong.join("; "))
}

/// Whether a release took the identity of this function away.
fn is_on_record(
    released: &BTreeMap<String, FabricIdentity>,
    address: &str,
    physical_function: &str,
    index: u32,
) -> bool {
    released.get(address).is_some_and(|identity| {
        identity.physical_function == physical_function && identity.index == index
    })
}

/// What the kernel's own driver knows of the virtual functions of an adapter, by number.
async fn ask(
    root: &HostRoot,
    runner: CommandRunner<'_>,
    adapter: &str,
) -> Result<BTreeMap<u32, VirtualIdentity>, String> {
    let Some(link) = root.function_links(adapter).into_iter().next() else {
        return Err(format!("{adapter} has neither SR-IOV settings nor a network link"));
    };
    let arguments = [&VIRTUAL_IDENTITIES_QUERY[..], &[link.as_str()]].concat();
    Ok(virtual_identities(&query(runner, "ip", &arguments, QUERY_SECONDS).await?))
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::{PermissionsExt as _, symlink};
    use std::path::Path;

    use super::*;

    const ZEROS: &str = "00:00:00:00:00:00:00:00";
    const GUID: &str = "96:6d:ae:f0:00:12:34:01";

    /// One adapter of `class` with one virtual function, and a program that answers `ip` with what the file
    /// `answer` has.
    fn host(dir: &Path, class: &str) -> (Host, HostFacts) {
        let pci = dir.join("root/sys/bus/pci/devices");
        fs::create_dir_all(pci.join("0000:24:00.0/net/ibp36s0")).unwrap();
        fs::create_dir_all(pci.join("0000:24:00.1")).unwrap();
        symlink("../0000:24:00.1", pci.join("0000:24:00.0/virtfn0")).unwrap();
        let emulator = dir.join("emulator");
        let script = format!("#!/bin/sh\nshift\n[ \"$1\" = ip ] && cat {}/answer\n", dir.display());
        fs::write(&emulator, script).unwrap();
        fs::set_permissions(&emulator, fs::Permissions::from_mode(0o755)).unwrap();
        let facts = serde_json::json!({"pci": [
            {"address": "0000:24:00.0", "vendor": "15b3", "class": class},
            {"address": "0000:24:00.1", "vendor": "15b3", "class": class,
                "physical_function": "0000:24:00.0"},
        ]});
        let host = Host::at(HostRoot::new(dir.join("root")), Some(emulator));
        (host, serde_json::from_value(facts).unwrap())
    }

    fn answer(dir: &Path, function: &serde_json::Value) {
        let text = serde_json::json!([{"ifname": "ibp36s0", "vfinfo_list": [function]}]);
        fs::write(dir.join("answer"), text.to_string()).unwrap();
    }

    async fn verdict(host: &Host, facts: &HostFacts) -> Verdict {
        let runner = CommandRunner::for_host(host).unwrap();
        judge(host, runner, facts, PciFilter::devices("15b3", None, None)).await
    }

    #[tokio::test]
    async fn infiniband_function_needs_both_guids() {
        let dir = tempfile::tempdir().unwrap();
        let (host, facts) = host(dir.path(), "020700");
        let guids = |node: &str, port: &str| {
            serde_json::json!({"vf": 0, "link_type": "infiniband", "node guid": node,
                "port guid": port})
        };
        answer(dir.path(), &guids(GUID, GUID));
        let seen = "1 virtual functions have identities".to_owned();
        assert_eq!(verdict(&host, &facts).await, (true, seen));
        answer(dir.path(), &guids(GUID, ZEROS));
        let expected = "0000:24:00.1 has no port GUID";
        assert_eq!(verdict(&host, &facts).await, (false, expected.to_owned()));
        answer(dir.path(), &serde_json::json!({"vf": 0}));
        let expected = "0000:24:00.1 has no node GUID and no port GUID";
        assert_eq!(verdict(&host, &facts).await, (false, expected.to_owned()));
        fs::remove_file(dir.path().join("answer")).unwrap();
        assert!(!verdict(&host, &facts).await.0, "nobody answers");
        // What NVIDIA's driver shows in sysfs needs no answer.
        let sriov = dir.path().join("root/sys/bus/pci/devices/0000:24:00.0/sriov/0");
        fs::create_dir_all(&sriov).unwrap();
        for (name, passes) in [("node", false), ("port", true)] {
            fs::write(sriov.join(name), GUID).unwrap();
            assert_eq!(verdict(&host, &facts).await.0, passes);
        }
    }

    #[tokio::test]
    async fn ethernet_function_needs_a_mac_address_and_nvme_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let (ethernet, facts) = host(dir.path(), "020000");
        let mac = |mac: &str| serde_json::json!({"vf": 0, "link_type": "ether", "address": mac});
        answer(dir.path(), &mac("96:6c:ae:12:35:08"));
        assert!(verdict(&ethernet, &facts).await.0);
        answer(dir.path(), &mac("00:00:00:00:00:00"));
        let expected = "0000:24:00.1 has no MAC address";
        assert_eq!(verdict(&ethernet, &facts).await, (false, expected.to_owned()));
        let other = tempfile::tempdir().unwrap();
        let (nvme, facts) = host(other.path(), "010802");
        let seen = "0 virtual functions have identities".to_owned();
        assert_eq!(verdict(&nvme, &facts).await, (true, seen));
    }

    #[tokio::test]
    async fn identity_that_a_release_took_away_is_not_missing() {
        let dir = tempfile::tempdir().unwrap();
        let (host, facts) = host(dir.path(), "020700");
        let zeros = serde_json::json!({"vf": 0, "node guid": ZEROS, "port guid": ZEROS});
        answer(dir.path(), &zeros);
        assert!(!verdict(&host, &facts).await.0);
        let record = dir.path().join("root/var/lib/gpuaas/slices");
        fs::create_dir_all(&record).unwrap();
        let identity = |index: u32| {
            serde_json::json!({"0000:24:00.1": {"physical_function": "0000:24:00.0",
                "index": index, "kind": "guid", "value": GUID}})
        };
        for (index, passes) in [(1, false), (0, true)] {
            let text = identity(index).to_string();
            fs::write(record.join("fabric-identities.json"), text).unwrap();
            assert_eq!(verdict(&host, &facts).await.0, passes, "{index}");
        }
    }
}
