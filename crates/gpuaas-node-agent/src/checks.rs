//! Whether a host is what its profile says: one finding for each check, always with a verdict.
//!
//! What cannot be seen counts as not there. A gate that passes because nobody looked is none.

use gpuaas_types::agent::{Finding, HostCheck};
use host_facts::{HostFacts, HostRoot};

/// Octets of an InfiniBand hardware address.
const INFINIBAND_OCTETS: usize = 20;

/// Looks for everything but units, which are systemd's to tell. `root` is none for a stand-in,
/// which has facts but no files. Blocking.
pub(crate) fn look(root: Option<&HostRoot>, facts: &HostFacts, check: &HostCheck) -> Finding {
    let (passed, seen) = match check {
        HostCheck::FileExists { path } => match root {
            Some(root) if root.exists(path) => (true, "it is there".to_owned()),
            _ => (false, "it is not there".to_owned()),
        },
        HostCheck::MountPresent { target } => {
            match facts.mounts.iter().find(|mount| mount.target == *target) {
                Some(mount) => (true, format!("{} ({})", mount.source, mount.fs_type)),
                None => (false, "nothing is mounted there".to_owned()),
            }
        }
        HostCheck::PciPresent { vendor, device, count } => {
            let same = |wanted: &str, found: &Option<String>| {
                found.as_deref().is_some_and(|found| found.eq_ignore_ascii_case(wanted))
            };
            let found = facts.pci.iter().filter(|function| {
                same(vendor, &function.vendor)
                    && device.as_ref().is_none_or(|device| same(device, &function.device))
            });
            enough(found.count(), *count)
        }
        HostCheck::LinkUp { interface } => {
            let link = facts.links.iter().find(|link| {
                let address = link.mac_address.as_deref().unwrap_or_default();
                link.name == *interface || address.eq_ignore_ascii_case(interface)
            });
            match link.map(|link| link.operstate.as_deref().unwrap_or("unknown")) {
                Some(state) => (state == "up", format!("it is {state}")),
                None => (false, "there is no such link".to_owned()),
            }
        }
        HostCheck::InfinibandUp { count } => {
            let up = facts.links.iter().filter(|link| {
                let octets = link.mac_address.as_deref().map_or(0, |mac| mac.split(':').count());
                octets == INFINIBAND_OCTETS && link.operstate.as_deref() == Some("up")
            });
            enough(up.count(), *count)
        }
        HostCheck::PackageInstalled { package } => {
            match root.and_then(|root| root.package_installed(package)) {
                Some(true) => (true, "dpkg says installed".to_owned()),
                Some(false) => (false, "dpkg does not say installed".to_owned()),
                None => (false, "the host has no dpkg".to_owned()),
            }
        }
        HostCheck::UnitActive { .. } => (false, "not looked at".to_owned()),
    };
    Finding { name: check.name(), passed: Some(passed), seen }
}

fn enough(found: usize, wanted: u32) -> (bool, String) {
    let passed = u32::try_from(found).unwrap_or(u32::MAX) >= wanted;
    (passed, format!("{found} found, {wanted} wanted"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn verdict(root: Option<&HostRoot>, facts: &serde_json::Value, check: &str) -> Option<bool> {
        let facts: HostFacts = serde_json::from_value(facts.clone()).unwrap();
        let check: HostCheck = serde_json::from_str(check).unwrap();
        let finding = look(root, &facts, &check);
        assert_eq!(finding.name, check.name());
        finding.passed
    }

    #[test]
    fn facts_decide() {
        let hca = "00:".repeat(19) + "01";
        let facts = serde_json::json!({
            "mounts": [{"source": "/dev/sda2", "target": "/", "fs_type": "ext4", "options": ""}],
            "pci": [{"address": "0000:19:00.0", "vendor": "10de", "device": "2335"}],
            "links": [
                {"name": "ib0", "mac_address": hca, "operstate": "up"},
                {"name": "eno1", "mac_address": "7c:c2:55:00:00:01", "operstate": "down"},
            ],
        });
        for (check, expected) in [
            (r#"{"check":"mount_present","target":"/"}"#, true),
            (r#"{"check":"mount_present","target":"/data"}"#, false),
            (r#"{"check":"pci_present","vendor":"10DE","count":1}"#, true),
            (r#"{"check":"pci_present","vendor":"10de","device":"2336","count":1}"#, false),
            (r#"{"check":"pci_present","vendor":"10de","count":2}"#, false),
            (r#"{"check":"infiniband_up","count":1}"#, true),
            (r#"{"check":"infiniband_up","count":2}"#, false),
            (r#"{"check":"link_up","interface":"ib0"}"#, true),
            (r#"{"check":"link_up","interface":"7C:C2:55:00:00:01"}"#, false),
            (r#"{"check":"link_up","interface":"eno9"}"#, false),
            (r#"{"check":"package_installed","package":"bash"}"#, false),
            (r#"{"check":"file_exists","path":"/etc"}"#, false),
        ] {
            assert_eq!(verdict(None, &facts, check), Some(expected), "{check}");
        }
    }

    #[test]
    fn files_and_packages_decide() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir_all(dir.path().join("var/lib/dpkg")).unwrap();
        let status = "Package: bash\nStatus: install ok installed\n\n\
                      Package: nano\nStatus: deinstall ok config-files\n";
        std::fs::write(dir.path().join("var/lib/dpkg/status"), status).unwrap();
        let root = HostRoot::new(dir.path());
        let facts = serde_json::json!({});
        for (check, expected) in [
            (r#"{"check":"package_installed","package":"bash"}"#, true),
            (r#"{"check":"package_installed","package":"nano"}"#, false),
            (r#"{"check":"package_installed","package":"vim"}"#, false),
            (r#"{"check":"file_exists","path":"/var/lib/dpkg/status"}"#, true),
            (r#"{"check":"file_exists","path":"/var/lib/../lib/dpkg"}"#, false),
        ] {
            assert_eq!(verdict(Some(&root), &facts, check), Some(expected), "{check}");
        }
    }
}
