//! Checks whose effect is in the host's files or in its facts.

use std::net::IpAddr;

use gpuaas_types::agent::{Finding, HostCheck};
use host_facts::{HostFacts, HostRoot};
use ipnet::IpNet;

use super::pci::PciFilter;
use super::verdict::{Verdict, at_least, matches_pattern};
use super::{kernel, network, pages, pci};
use crate::paths;

fn file_has_line(root: Option<&HostRoot>, path: &str, line: &str) -> Verdict {
    match root.and_then(|root| root.has_line(path, line)) {
        Some(true) => (true, "the file contains the line".to_owned()),
        Some(false) => (false, format!("the file does not contain the line {line:?}")),
        None => (false, "the file does not exist".to_owned()),
    }
}

fn package_installed(root: Option<&HostRoot>, package: &str) -> Verdict {
    match root.and_then(|root| root.package_installed(package)) {
        Some(true) => (true, "installed according to dpkg".to_owned()),
        Some(false) => (false, "not installed according to dpkg".to_owned()),
        None => (false, "the host has no dpkg status file".to_owned()),
    }
}

/// Evaluates `check` by files and facts; `None` where a program of the host has to be queried for
/// it. `root` is `None` for a simulated host, which has facts but no files. Blocking.
pub(super) fn evaluate(
    root: Option<&HostRoot>,
    facts: &HostFacts,
    check: &HostCheck,
) -> Option<Finding> {
    let (passed, seen) = match check {
        HostCheck::FileExists { path } => match root {
            Some(root) if root.exists(path) => (true, "it exists".to_owned()),
            _ => (false, "it does not exist".to_owned()),
        },
        HostCheck::FileHasLine { path, line } => file_has_line(root, path, line),
        HostCheck::MountPresent { target } => {
            match facts.mounts.iter().find(|mount| mount.target == *target) {
                Some(mount) => (true, format!("{} ({})", mount.source, mount.fs_type)),
                None => (false, "nothing is mounted there".to_owned()),
            }
        }
        HostCheck::PackageInstalled { package } => package_installed(root, package),
        HostCheck::KernelArgument { argument } => kernel::argument(facts, argument),
        HostCheck::KernelArguments { arguments } => kernel::arguments(facts, arguments),
        HostCheck::GigabytePages { vendor, class, each, .. } => pages::gigabyte_pages(
            root,
            facts,
            PciFilter::devices(vendor, None, class.as_deref()),
            *each,
        ),
        HostCheck::GpuModules { vendor, class } => {
            pci::gpu_modules(root, facts, PciFilter::devices(vendor, None, class.as_deref()))
        }
        HostCheck::Sysctl { name, value } => match root.and_then(|root| root.sysctl(name)) {
            Some(seen) => (seen == *value, format!("it is {seen}")),
            None => (false, "the setting does not exist".to_owned()),
        },
        HostCheck::DnsUpstream { path } => dns_upstream(root, path),
        HostCheck::NginxAllows { path, networks } => nginx_allows(root, path, networks),
        HostCheck::BundleDone { bundle } => bundle_done(root, bundle),
        HostCheck::PciPresent { vendor, device, class, count } => pci::present(
            facts,
            PciFilter::devices(vendor, device.as_deref(), class.as_deref()),
            *count,
        ),
        HostCheck::DriverBound { vendor, device, class, virtual_only, driver, count } => {
            let devices = PciFilter::devices(vendor, device.as_deref(), class.as_deref());
            let filter = PciFilter { virtual_only: *virtual_only, ..devices };
            pci::driver_bound(root, facts, filter, driver, *count)
        }
        HostCheck::IommuGroupsWhole { driver } => pci::groups_whole(facts, driver),
        HostCheck::VirtualFunctions { vendor, class, each, count } => {
            let physical = PciFilter::devices(vendor, None, class.as_deref());
            pci::virtual_functions(facts, physical, *each, *count)
        }
        HostCheck::AcsIsolates { driver } => pci::acs_isolates(root, facts, driver),
        HostCheck::LinkUp { interface } => network::link_up(facts, interface),
        HostCheck::InfinibandUp { count, interface } => {
            network::infiniband_up(facts, *count, interface.as_deref())
        }
        HostCheck::InfinibandPortsActive { count, link_layer, interface } => {
            network::ports_active(facts, *count, link_layer, interface.as_deref())
        }
        HostCheck::DisksPresent { name, count } => {
            let disks = facts.block_devices.iter().filter(|disk| matches_pattern(name, &disk.name));
            at_least(disks.count(), *count)
        }
        HostCheck::AddressOn { interface, subnet } => network::address(facts, interface, subnet),
        HostCheck::RoutePresent { destination, interface } => {
            network::route(facts, destination, interface)
        }
        HostCheck::Listens { address, port } => network::listens(facts, address, *port),
        HostCheck::UnitActive { .. }
        | HostCheck::HttpAnswers { .. }
        | HostCheck::NetdataCollects { .. }
        | HostCheck::VirtualIdentities { .. }
        | HostCheck::OvsBridge { .. }
        | HostCheck::Masquerades { .. }
        | HostCheck::DropsInput { .. }
        | HostCheck::DropsForward { .. }
        | HostCheck::OvsPortsIsolated { .. }
        | HostCheck::NvidiaGpus { .. }
        | HostCheck::NvidiaFabric {}
        | HostCheck::SshdSetting { .. }
        | HostCheck::UnitStarts { .. } => return None,
    };
    Some(Finding { name: check.name(), passed: Some(passed), seen })
}

/// What systemd-resolved's stub listens on.
const RESOLVED_STUBS: [&str; 2] = ["127.0.0.53", "127.0.0.54"];
/// The servers that systemd-resolved asks.
const RESOLVED_SERVERS: &str = "/run/systemd/resolve/resolv.conf";

/// The name servers that a configuration of dnsmasq leads to. systemd-resolved's stub is one where it has
/// a server itself; another loopback address does not count.
fn dns_upstream(root: Option<&HostRoot>, path: &str) -> Verdict {
    let text = |path: &str| root.and_then(|root| std::fs::read_to_string(root.join(path)).ok());
    let Some(settings) = text(path) else { return (false, "the file does not exist".to_owned()) };
    let after = |name: &'static str| {
        settings.lines().filter_map(move |line| line.trim().strip_prefix(name)).map(str::to_owned)
    };
    let named_in = |file: &str| -> Vec<String> {
        let text = text(file).unwrap_or_default();
        let named = text.lines().filter_map(|line| line.trim().strip_prefix("nameserver "));
        named.map(|server| server.trim().to_owned()).collect()
    };
    let is_loopback =
        |server: &String| server.parse().is_ok_and(|address: IpAddr| address.is_loopback());
    let file = after("resolv-file=").next_back();
    let named: Vec<String> =
        after("server=").chain(file.iter().flat_map(|file| named_in(file))).collect();
    let mut servers: Vec<String> =
        named.iter().filter(|server| !is_loopback(server)).cloned().collect();
    if named.iter().any(|server| RESOLVED_STUBS.contains(&server.as_str())) {
        servers.extend(named_in(RESOLVED_SERVERS).into_iter().filter(|one| !is_loopback(one)));
    }
    match (servers.is_empty(), named.is_empty(), file) {
        (false, ..) => (true, servers.join(", ")),
        (true, false, _) => (false, format!("{} has no upstream server", named.join(", "))),
        (true, true, Some(file)) => (false, format!("{file} lists no name server")),
        (true, true, None) => (false, "no name server is configured".to_owned()),
    }
}

/// Whether each `allow` of a site of nginx is within `networks` or loopback; where there are none, each
/// has to be a single host.
fn nginx_allows(root: Option<&HostRoot>, path: &str, networks: &str) -> Verdict {
    let text = root.and_then(|root| std::fs::read_to_string(root.join(path)).ok());
    let Some(text) = text else { return (false, "the file does not exist".to_owned()) };
    let Ok(named) = networks.split_whitespace().map(str::parse).collect::<Result<Vec<IpNet>, _>>()
    else {
        return (false, format!("{networks:?} is not a list of networks"));
    };
    let allowed = text.lines().filter_map(|line| line.trim().strip_prefix("allow "));
    let is_right = |allowed: &&str| {
        let allowed = allowed.trim_end_matches(';').trim();
        let net: Option<IpNet> = allowed.parse().ok();
        let net = net.or_else(|| allowed.parse().ok().map(|one: IpAddr| one.into()));
        net.is_some_and(|net| {
            net.network().is_loopback()
                || (named.is_empty() && net.prefix_len() == net.max_prefix_len())
                || named.iter().any(|one| one.contains(&net))
        })
    };
    let wrong: Vec<&str> = allowed.filter(|line| !is_right(line)).collect();
    if wrong.is_empty() {
        return (true, "it allows no other networks".to_owned());
    }
    (false, format!("it allows {}", wrong.join(" ").trim_end_matches(';')))
}

/// Whether a bundle's marker is of the installed version: an older one was left by an earlier
/// deployment, or came with an image.
fn bundle_done(root: Option<&HostRoot>, bundle: &str) -> Verdict {
    let path = format!("{}/{bundle}.done", paths::BUNDLE_STATE);
    let marker = root.and_then(|root| root.line_of(&path));
    let Some(marker) = marker else { return (false, format!("{path} does not exist")) };
    let done = marker.split_whitespace().next().unwrap_or_default();
    match root.and_then(|root| installed_version(root, bundle)) {
        Some(version) if version != done => {
            (false, format!("{path} records version {done}, but {version} is installed"))
        }
        _ => (true, format!("{path} exists")),
    }
}

fn installed_version(root: &HostRoot, bundle: &str) -> Option<String> {
    let path = root.join(format!(
        "{}/{bundle}/{}",
        paths::INSTALLED_BUNDLES,
        gpuaas_bundle::manifest::ARCHIVED_NAME
    ));
    let manifest: serde_json::Value = serde_json::from_slice(&std::fs::read(path).ok()?).ok()?;
    Some(manifest["version"].as_str()?.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn verdict(root: Option<&HostRoot>, facts: &serde_json::Value, check: &str) -> Option<bool> {
        let facts: HostFacts = serde_json::from_value(facts.clone()).unwrap();
        let check: HostCheck = serde_json::from_str(check).unwrap();
        let finding = evaluate(root, &facts, &check).unwrap();
        assert_eq!(finding.name, check.name());
        finding.passed
    }

    #[test]
    fn facts_decide() {
        let hca = "00:".repeat(19) + "01";
        let facts = serde_json::json!({
            "mounts": [{"source": "/dev/sda2", "target": "/", "fs_type": "ext4", "options": ""}],
            "pci": [
                {"address": "0000:19:00.0", "vendor": "10de", "device": "2335", "class": "030200"},
                {"address": "0000:19:00.1", "vendor": "10de", "device": "2335", "class": "030200",
                    "physical_function": "0000:19:00.0"},
            ],
            "block_devices": [{"name": "nvme0n1"}, {"name": "nvme1n1"}, {"name": "sda"}],
            "infiniband_ports": [
                {"device": "mlx5_0", "port": 1, "state": "ACTIVE", "link_layer": "InfiniBand",
                    "pci_address": "0000:1a:00.0"},
                {"device": "mlx5_1", "port": 1, "state": "DOWN", "link_layer": "InfiniBand",
                    "pci_address": "0000:1b:00.0"},
            ],
            "links": [
                {"name": "ib0", "mac_address": hca, "operstate": "up",
                    "pci_address": "0000:1a:00.0"},
                {"name": "eno1", "mac_address": "7c:c2:55:00:00:01", "operstate": "down"},
            ],
        });
        for (check, expected) in [
            (r#"{"check":"mount_present","target":"/"}"#, true),
            (r#"{"check":"mount_present","target":"/data"}"#, false),
            (r#"{"check":"pci_present","vendor":"10DE","count":1}"#, true),
            (r#"{"check":"pci_present","vendor":"10de","device":"2336","count":1}"#, false),
            (r#"{"check":"pci_present","vendor":"10de","count":2}"#, false),
            (r#"{"check":"pci_present","vendor":"10de","class":"03","count":1}"#, true),
            (r#"{"check":"pci_present","vendor":"10de","class":"0207","count":1}"#, false),
            (r#"{"check":"disks_present","name":"nvme*","count":2}"#, true),
            (r#"{"check":"disks_present","name":"nvme*","count":3}"#, false),
            (r#"{"check":"disks_present","name":"nvme1n1","count":1}"#, true),
            (r#"{"check":"infiniband_ports_active","count":1}"#, true),
            (r#"{"check":"infiniband_ports_active","count":2}"#, false),
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
        let installed =
            dir.path().join(paths::INSTALLED_BUNDLES.trim_start_matches('/')).join("h200-ib");
        let markers = dir.path().join(paths::BUNDLE_STATE.trim_start_matches('/'));
        std::fs::create_dir_all(&installed).unwrap();
        std::fs::create_dir_all(&markers).unwrap();
        std::fs::write(installed.join("manifest.json"), r#"{"version": "1.1.0"}"#).unwrap();
        for (name, text) in [("h200-ib", "1.0.0 run"), ("fresh", "1.0.0 run"), ("empty", "")] {
            std::fs::write(markers.join(format!("{name}.done")), text).unwrap();
        }
        let edge = "allow ::1/128;\n  allow 10.1.0.5/32;\n  allow 127.0.0.0/8;\n  deny all;\n";
        std::fs::write(dir.path().join("edge"), edge).unwrap();
        std::fs::write(dir.path().join("dns"), "no-resolv\nserver=10.0.0.1\n").unwrap();
        std::fs::write(dir.path().join("dns-of-file"), "resolv-file=/none\n").unwrap();
        std::fs::write(dir.path().join("dns-of-stub"), "server=127.0.0.53\n").unwrap();
        std::fs::write(dir.path().join("dns-of-itself"), "server=127.0.0.1\n").unwrap();
        std::fs::write(dir.path().join("wide"), "allow 10.1.0.0/24;\n").unwrap();
        std::fs::write(dir.path().join("all"), "allow all;\n").unwrap();
        let root = HostRoot::new(dir.path());
        let facts = serde_json::json!({});
        for (check, expected) in [
            (r#"{"check":"dns_upstream","path":"/dns"}"#, true),
            (r#"{"check":"dns_upstream","path":"/dns-of-file"}"#, false),
            (r#"{"check":"dns_upstream","path":"/edge"}"#, false),
            (r#"{"check":"dns_upstream","path":"/dns-of-stub"}"#, false),
            (r#"{"check":"dns_upstream","path":"/dns-of-itself"}"#, false),
            (r#"{"check":"nginx_allows","path":"/edge","networks":""}"#, true),
            (r#"{"check":"nginx_allows","path":"/edge","networks":"10.2.0.0/16"}"#, false),
            (r#"{"check":"nginx_allows","path":"/wide","networks":""}"#, false),
            (r#"{"check":"nginx_allows","path":"/wide","networks":"10.1.0.0/16"}"#, true),
            (r#"{"check":"nginx_allows","path":"/all","networks":""}"#, false),
            (r#"{"check":"nginx_allows","path":"/none","networks":""}"#, false),
            (r#"{"check":"bundle_done","bundle":"h200-ib"}"#, false),
            (r#"{"check":"bundle_done","bundle":"fresh"}"#, true),
            (r#"{"check":"bundle_done","bundle":"empty"}"#, false),
            (r#"{"check":"bundle_done","bundle":"none"}"#, false),
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
