//! Installed packages, from dpkg's status file, and systemd units, parsed from `systemctl`'s output.

use std::fs::File;
use std::io::{BufRead as _, BufReader, Read as _};

use serde::{Deserialize, Serialize};

use crate::parse;
use crate::root::{HostRoot, MAX_ENTRIES};

/// Largest part of dpkg's status file that is read, in bytes; that of a large host has 10 MiB.
const MAX_DPKG_BYTES: u64 = 64 << 20;

/// Beginnings of the names of packages that make a GPU host what it is: kernel, drivers, fabric,
/// containers, virtualization, and the tools that set them up. The thousand others are left out.
const LISTED_PREFIXES: [&str; 36] = [
    "chrony",
    "cloud-init",
    "containerd",
    "cuda-",
    "datacenter-gpu-manager",
    "dnsmasq",
    "doca-",
    "docker",
    "driverctl",
    "ibverbs",
    "infiniband",
    "libnvidia-",
    "libvirt-daemon",
    "linux-headers-",
    "linux-image-",
    "linux-modules-",
    "mlnx-",
    "mstflint",
    "netdata",
    "netplan.io",
    "nginx",
    "nvidia-",
    "nvme-cli",
    "ofed",
    "opensm",
    "openssh-server",
    "openvswitch-",
    "ovmf",
    "perftest",
    "qemu-system",
    "rasdaemon",
    "rdma-",
    "rshim",
    "systemd-timesyncd",
    "ucx",
    "xfsprogs",
];

/// An installed Debian package.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Package {
    /// Name, without the architecture.
    pub name: String,
    /// The installed version, as dpkg writes it.
    pub version: String,
}

/// A unit of systemd, as `systemctl list-units --plain --no-legend` prints it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Unit {
    /// Name, such as `libvirtd.service`.
    pub name: String,
    /// `active`, `inactive`, `failed` and so on.
    pub active: String,
    /// `running`, `exited`, `dead` and so on.
    pub sub: String,
}

/// Units in the output of `systemctl list-units --all --plain --no-legend`. Each line has the columns
/// UNIT, LOAD, ACTIVE, SUB and DESCRIPTION.
///
/// ```
/// let output = "libvirtd.service loaded active running Virtualization daemon";
/// let [unit] = &host_facts::software::units(output)[..] else { panic!() };
/// assert_eq!((unit.name.as_str(), unit.sub.as_str()), ("libvirtd.service", "running"));
/// ```
#[must_use]
pub fn units(output: &str) -> Vec<Unit> {
    let unit = |line: &str| {
        let mut columns = line.split_whitespace();
        let (name, _load) = (columns.next()?, columns.next()?);
        let (active, sub) = (columns.next()?.to_owned(), columns.next()?.to_owned());
        Some(Unit { name: parse::clean(name)?, active, sub })
    };
    output.lines().filter_map(unit).take(MAX_ENTRIES).collect()
}

impl HostRoot {
    /// Whether dpkg says that `package` is installed; `None` where the host has no dpkg.
    #[must_use]
    pub fn package_installed(&self, package: &str) -> Option<bool> {
        self.find_package(|name, _| (name == package).then_some(())).map(|found| found.is_some())
    }

    /// Installed packages that make a GPU host what it is, by name.
    pub(crate) fn packages(&self) -> Vec<Package> {
        let mut packages = Vec::new();
        self.find_package(|name, version| {
            if LISTED_PREFIXES.iter().any(|start| name.starts_with(start))
                && packages.len() < MAX_ENTRIES
            {
                packages.push(Package { name: name.to_owned(), version: version.to_owned() });
            }
            None::<()>
        });
        packages.sort_by(|a, b| a.name.cmp(&b.name));
        packages
    }

    /// Calls `visit` with name and version of each installed package until it returns `Some`; `None`
    /// where the host has no dpkg.
    fn find_package<T>(&self, mut visit: impl FnMut(&str, &str) -> Option<T>) -> Option<Option<T>> {
        let status = File::open(self.join("var/lib/dpkg/status")).ok()?;
        let (mut name, mut version, mut installed) = (String::new(), String::new(), false);
        let lines = BufReader::new(status.take(MAX_DPKG_BYTES)).split(b'\n');
        // The last paragraph may have no empty line behind it.
        for line in lines.map_while(Result::ok).chain([Vec::new()]) {
            let line = String::from_utf8_lossy(&line);
            if let Some(text) = line.strip_prefix("Package: ") {
                text.trim().clone_into(&mut name);
            } else if let Some(text) = line.strip_prefix("Status: ") {
                installed = text.trim().ends_with(" ok installed");
            } else if let Some(text) = line.strip_prefix("Version: ") {
                text.trim().clone_into(&mut version);
            } else if line.trim().is_empty() {
                if installed && let Some(found) = visit(&name, &version) {
                    return Some(Some(found));
                }
                installed = false;
            }
        }
        Some(None)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packages_of_a_gpu_host_are_listed_with_their_versions() {
        let dir = tempfile::tempdir().unwrap();
        let root = HostRoot::new(dir.path());
        assert_eq!(root.package_installed("nginx"), None);
        std::fs::create_dir_all(dir.path().join("var/lib/dpkg")).unwrap();
        let status = "Package: openvswitch-switch\nStatus: install ok installed\nVersion: 3.1.0-2\n\n\
                      Package: nginx\nStatus: deinstall ok config-files\nVersion: 1\n\n\
                      Package: zlib1g\nStatus: install ok installed\nVersion: 1:1.2\n\n\
                      Package: nvidia-driver\nVersion: 570.1\nStatus: hold ok installed\n";
        std::fs::write(dir.path().join("var/lib/dpkg/status"), status).unwrap();
        let packages = root.packages();
        let listed: Vec<_> =
            packages.iter().map(|p| (p.name.as_str(), p.version.as_str())).collect();
        assert_eq!(listed, [("nvidia-driver", "570.1"), ("openvswitch-switch", "3.1.0-2")]);
        for (name, there) in [("zlib1g", true), ("nginx", false), ("nosuch", false)] {
            assert_eq!(root.package_installed(name), Some(there), "{name}");
        }
    }

    #[test]
    fn units_are_parsed_as_systemctl_prints_them() {
        let listed = "libvirtd.service loaded active running Virtualization daemon\n\
                      gpuaas-acs.service loaded failed failed Access control\n\nbroken\n";
        let names: Vec<_> = units(listed).into_iter().map(|u| (u.name, u.active, u.sub)).collect();
        let row = |a: &str, b: &str, c: &str| (a.to_owned(), b.to_owned(), c.to_owned());
        assert_eq!(
            names,
            [
                row("libvirtd.service", "active", "running"),
                row("gpuaas-acs.service", "failed", "failed")
            ]
        );
    }
}
