//! NVMe namespaces, and everything that uses them.

use gpuaas_types::topology::{DeviceHolder, DiskUse, DiskUseKind, NvmeNamespace};

use crate::root::HostRoot;

/// Most layers of block devices that are followed upwards from a disk.
const MAX_LAYERS: usize = 8;

/// A mounted file system or swap space, by its device.
struct Mounted {
    /// `MAJOR:MINOR`; for swap spaces empty.
    device: String,
    /// Path of the device: `/dev/nvme0n1p2`.
    source: String,
    /// Mount point.
    target: String,
    /// Options of the file system, which name its further devices: `logdev=/dev/nvme1n1`.
    options: String,
}

impl HostRoot {
    /// Namespaces of NVMe controllers on PCI, by name. One that comes over a network is a storage
    /// system's: it cannot be passed through and is nobody's to erase.
    pub(super) fn nvme_namespaces(
        &self,
        open_files: Option<&[DeviceHolder]>,
    ) -> Vec<NvmeNamespace> {
        let mounts = self.mounted();
        let swaps = self.text("proc/swaps").map(|text| swaps(&text)).unwrap_or_default();
        let mut namespaces = Vec::new();
        for controller in self.names("sys/class/nvme") {
            let at = format!("sys/class/nvme/{controller}");
            // Kernels before 4.15 show no transport; there the address is PCI's or none.
            let transport = self.line(format!("{at}/transport"));
            let address = self.line(format!("{at}/address"));
            let is_fabric = transport.as_deref().is_some_and(|name| name != "pcie")
                || address.as_deref().is_some_and(|text| text.contains("traddr="));
            if is_fabric {
                continue;
            }
            let address = address.filter(|text| is_pci_address(text));
            for name in self.names(&at).iter().filter_map(|name| namespace_name(name)) {
                let serial = self.line(format!("{at}/serial"));
                let uses = mounts.as_deref().zip(open_files).map(|(mounts, open)| {
                    let mut uses = self.disk_uses(&name, mounts, &swaps);
                    uses.extend(open_uses(&name, open));
                    uses.sort();
                    uses.dedup();
                    uses
                });
                let sectors: Option<u64> = self.number(format!("sys/block/{name}/size"));
                namespaces.push(NvmeNamespace {
                    path: self.stable_path(&name, serial.as_deref()),
                    serial,
                    address: address.clone(),
                    size_bytes: sectors.and_then(|sectors| sectors.checked_mul(512)),
                    uses,
                    erase_methods: None,
                    name,
                });
            }
        }
        namespaces.sort_by(|a, b| a.name.cmp(&b.name));
        // A namespace that two controllers lead to.
        namespaces.dedup_by(|a, b| a.name == b.name);
        namespaces
    }

    /// The link below `/dev/disk/by-id` that has the drive's serial number; else the kernel's name.
    fn stable_path(&self, name: &str, serial: Option<&str>) -> String {
        let folder = "dev/disk/by-id";
        let of_drive = |link: &String| {
            link.starts_with("nvme-")
                && serial.is_some_and(|serial| link.contains(serial))
                && self.link_name(format!("{folder}/{link}")).as_deref() == Some(name)
        };
        let link = self.names(folder).into_iter().find(of_drive);
        link.map_or_else(|| format!("/dev/{name}"), |link| format!("/dev/disk/by-id/{link}"))
    }

    /// Mounts of the first process, whose are the host's; `None` where they could not be read.
    fn mounted(&self) -> Option<Vec<Mounted>> {
        let text = self.text("proc/1/mountinfo").or_else(|| self.text("proc/self/mountinfo"))?;
        Some(text.lines().filter_map(mount_of_line).collect())
    }

    fn disk_uses(&self, disk: &str, mounts: &[Mounted], swaps: &[Mounted]) -> Vec<DiskUse> {
        let mut uses = Vec::new();
        let partitions = self
            .names(format!("sys/block/{disk}"))
            .into_iter()
            .filter(|name| name.strip_prefix(disk).is_some_and(|rest| rest.starts_with('p')));
        let mut layer: Vec<(String, String)> = vec![(disk.to_owned(), format!("sys/block/{disk}"))];
        for part in partitions {
            uses.push(DiskUse {
                kind: DiskUseKind::Partition,
                part: part.clone(),
                by: "partition table".to_owned(),
            });
            layer.push((part.clone(), format!("sys/block/{disk}/{part}")));
        }
        for (part, at) in &layer {
            let signature = self.signature(at).map(|by| DiskUse {
                kind: DiskUseKind::Signature,
                part: part.clone(),
                by,
            });
            uses.extend(signature);
        }
        for _ in 0..MAX_LAYERS {
            let mut above = Vec::new();
            for (part, at) in &layer {
                let device = self.line(format!("{at}/dev"));
                let path = format!("/dev/{part}");
                let is_it = |one: &&Mounted| {
                    one.source == path || device.as_ref().is_some_and(|dev| *dev == one.device)
                };
                let one_use = |kind: DiskUseKind, by: &str| DiskUse {
                    kind,
                    part: part.clone(),
                    by: by.to_owned(),
                };
                uses.extend(
                    self.claims(part, at).iter().map(|by| one_use(DiskUseKind::BlockDevice, by)),
                );
                let names_it = |one: &&Mounted| {
                    let values = one.options.split(',').filter_map(|option| option.split_once('='));
                    values.into_iter().any(|(_, value)| value == path)
                };
                let further = mounts.iter().filter(names_it);
                uses.extend(further.map(|one| one_use(DiskUseKind::Mount, &one.target)));
                let mounted = mounts.iter().filter(is_it);
                uses.extend(mounted.map(|one| one_use(DiskUseKind::Mount, &one.target)));
                let swapped = swaps.iter().filter(is_it);
                uses.extend(swapped.map(|one| one_use(DiskUseKind::Swap, &one.source)));
                for holder in self.names(format!("{at}/holders")) {
                    let mapped = self.line(format!("sys/block/{holder}/dm/name"));
                    let by = mapped.map_or(holder.clone(), |name| format!("{holder} ({name})"));
                    uses.push(one_use(DiskUseKind::BlockDevice, &by));
                    above.push((holder.clone(), format!("sys/block/{holder}")));
                }
            }
            if above.is_empty() {
                break;
            }
            layer = above;
        }
        uses
    }
}

impl HostRoot {
    /// What blkid found on a device when udev last looked (`/run/udev/data`, udev(7)): a file system, a
    /// member of an array or a pool, or a partition table. None: there is nothing, or udev does not run.
    fn signature(&self, at: &str) -> Option<String> {
        let device = self.line(format!("{at}/dev"))?;
        let text = self.text(format!("run/udev/data/b{device}"))?;
        let value = |name: &str| text.lines().find_map(|line| line.strip_prefix(name));
        let table = || value("E:ID_PART_TABLE_TYPE=").map(|kind| format!("{kind} partition table"));
        value("E:ID_FS_TYPE=").map(str::to_owned).or_else(table)
    }

    /// What claims a device without a mount or a holder of its own: a file system of several devices, whose
    /// mount names the first one alone; a cache; a file behind a loop; a target that exports it.
    fn claims(&self, part: &str, at: &str) -> Vec<String> {
        let mut found = Vec::new();
        let btrfs = self.names("sys/fs/btrfs").into_iter();
        let has_it = |uuid: &String| {
            let devices = self.names(format!("sys/fs/btrfs/{uuid}/devices"));
            devices.iter().any(|name| name == part)
        };
        found.extend(btrfs.filter(has_it).map(|uuid| format!("btrfs {uuid}")));
        if !self.names(format!("{at}/bcache")).is_empty() {
            found.push("bcache".to_owned());
        }
        let path = format!("/dev/{part}");
        let is_path = |file: String| self.line(file).is_some_and(|text| text == path);
        let loops = self.names("sys/block").into_iter().filter(|name| name.starts_with("loop"));
        let backed = loops.filter(|name| is_path(format!("sys/block/{name}/loop/backing_file")));
        found.extend(backed);
        let subsystems = "sys/kernel/config/nvmet/subsystems";
        for subsystem in self.names(subsystems) {
            let namespaces = format!("{subsystems}/{subsystem}/namespaces");
            for namespace in self.names(&namespaces) {
                if is_path(format!("{namespaces}/{namespace}/device_path")) {
                    found.push(format!("nvmet {subsystem}"));
                }
            }
        }
        let backstores = "sys/kernel/config/target/core";
        for kind in self.names(backstores) {
            for name in self.names(format!("{backstores}/{kind}")) {
                if is_path(format!("{backstores}/{kind}/{name}/udev_path")) {
                    found.push(format!("target {name}"));
                }
            }
        }
        found
    }
}

/// Whether the text is an address of PCI, `DOMAIN:BUS:DEVICE.FUNCTION` in hex digits; a domain may have
/// more than four (VMD).
fn is_pci_address(text: &str) -> bool {
    let hex = |part: &str| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_hexdigit());
    let Some((bus, function)) = text.rsplit_once('.') else { return false };
    let parts: Vec<&str> = bus.split(':').collect();
    parts.len() == 3 && parts[0].len() >= 4 && parts.into_iter().all(hex) && hex(function)
}

/// Name of a namespace as a disk: `nvme0n1`; where the kernel has several paths to it, a controller's
/// folder names one of the paths, `nvme0c1n1`.
fn namespace_name(name: &str) -> Option<String> {
    let rest = name.strip_prefix("nvme")?;
    let (head, namespace) = rest.rsplit_once('n')?;
    let instance = head.split_once('c').map_or(head, |(instance, _)| instance);
    let number = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    (number(instance) && number(namespace)).then(|| format!("nvme{instance}n{namespace}"))
}

/// Processes that have the disk or a partition of it open.
fn open_uses(disk: &str, open: &[DeviceHolder]) -> Vec<DiskUse> {
    let of_disk = |holder: &DeviceHolder| {
        let part = holder.path.strip_prefix("/dev/")?;
        let rest = part.strip_prefix(disk)?;
        (rest.is_empty() || rest.starts_with('p')).then(|| DiskUse {
            kind: DiskUseKind::Process,
            part: part.to_owned(),
            by: format!("{} (process {})", holder.program, holder.pid),
        })
    };
    open.iter().filter_map(of_disk).collect()
}

/// A line of mountinfo (proc(5)): id, parent, `MAJOR:MINOR`, root, mount point, options, optional
/// fields, `-`, type, source.
fn mount_of_line(line: &str) -> Option<Mounted> {
    let (mount, file_system) = line.split_once(" - ")?;
    let mut mount = mount.split(' ');
    let device = mount.nth(2)?.to_owned();
    let target = mount.nth(1)?.to_owned();
    let mut file_system = file_system.split(' ').skip(1);
    let source = file_system.next()?.to_owned();
    let options = file_system.next().unwrap_or_default().to_owned();
    Some(Mounted { device, source, target, options })
}

/// Lines of `/proc/swaps` after its heading.
fn swaps(text: &str) -> Vec<Mounted> {
    let swap = |line: &str| {
        let source = line.split_whitespace().next()?.to_owned();
        Some(Mounted {
            device: String::new(),
            source,
            target: String::new(),
            options: String::new(),
        })
    };
    text.lines().skip(1).filter_map(swap).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Writes files of a host.
    fn host(files: &[(&str, &str)]) -> tempfile::TempDir {
        let folder = tempfile::tempdir().unwrap();
        for (path, text) in files {
            let path = folder.path().join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        }
        folder
    }

    #[test]
    fn a_device_that_some_part_of_the_kernel_claims_is_in_use() {
        let disk = |n: u32| {
            [
                (format!("sys/class/nvme/nvme{n}/address"), format!("0000:2{n}:00.0")),
                (format!("sys/class/nvme/nvme{n}/transport"), "pcie".to_owned()),
                (format!("sys/class/nvme/nvme{n}/nvme{n}n1/x"), String::new()),
                (format!("sys/block/nvme{n}n1/dev"), format!("259:{n}")),
            ]
        };
        let disks: Vec<(String, String)> = (0..7).flat_map(disk).collect();
        let mut files: Vec<(&str, &str)> =
            disks.iter().map(|(path, text)| (path.as_str(), text.as_str())).collect();
        let mounts = "40 25 0:52 / /srv rw - btrfs /dev/nvme0n1 rw,subvolid=5\n\
                      41 25 8:1 / /data rw - xfs /dev/sda1 rw,logdev=/dev/nvme2n1\n";
        files.extend([
            ("proc/1/mountinfo", mounts),
            ("sys/fs/btrfs/1-2/devices/nvme0n1", ""),
            ("sys/fs/btrfs/1-2/devices/nvme1n1", ""),
            ("sys/block/nvme3n1/bcache/state", "clean"),
            ("sys/block/loop0/loop/backing_file", "/dev/nvme4n1"),
            ("sys/kernel/config/nvmet/subsystems/s/namespaces/1/device_path", "/dev/nvme5n1"),
        ]);
        let folder = host(&files);
        let found = HostRoot::new(folder.path()).nvme_namespaces(Some(&[]));
        let by = |n: usize| {
            let uses = found[n].uses.as_ref().unwrap().iter();
            uses.map(|one| one.by.clone()).collect::<Vec<_>>().join(" ")
        };
        let all: Vec<String> = (0..7).map(by).collect();
        let wanted = ["/srv btrfs 1-2", "btrfs 1-2", "/data", "bcache", "loop0", "nvmet s", ""]
            .map(String::from);
        assert_eq!(all, wanted);
    }

    #[test]
    fn data_that_nothing_uses_is_seen() {
        let folder = host(&[
            ("proc/1/mountinfo", ""),
            ("sys/class/nvme/nvme0/nvme0n1/x", ""),
            ("sys/block/nvme0n1/dev", "259:0"),
            (
                "run/udev/data/b259:0",
                "S:disk/by-id/x\nE:ID_FS_TYPE=zfs_member\nE:ID_FS_USAGE=raid\n",
            ),
            ("sys/class/nvme/nvme1/nvme1n1/x", ""),
            ("sys/block/nvme1n1/dev", "259:1"),
            ("run/udev/data/b259:1", "E:ID_PART_TABLE_TYPE=gpt\n"),
            ("sys/class/nvme/nvme2/nvme2n1/x", ""),
            ("sys/block/nvme2n1/dev", "259:2"),
            ("run/udev/data/b259:2", "E:ID_MODEL=x\n"),
        ]);
        let found = HostRoot::new(folder.path()).nvme_namespaces(Some(&[]));
        let seen = |n: usize| {
            let uses = found[n].uses.as_ref().unwrap().iter();
            uses.map(|one| format!("{} {}", one.kind, one.by)).collect::<Vec<_>>()
        };
        assert_eq!(seen(0), ["signature zfs_member"]);
        assert_eq!(seen(1), ["signature gpt partition table"]);
        assert!(seen(2).is_empty());
    }

    #[test]
    fn a_namespace_that_comes_over_a_network_is_none_of_the_hosts() {
        let remote = "traddr=2001:db8::5,trsvcid=4420,src_addr=2001:db8::9";
        let folder = host(&[
            ("sys/class/nvme/nvme0/address", "10000:e1:00.0"),
            ("sys/class/nvme/nvme0/nvme0n1/x", ""),
            ("sys/class/nvme/nvme1/address", remote),
            ("sys/class/nvme/nvme1/transport", "tcp"),
            ("sys/class/nvme/nvme1/nvme1n1/x", ""),
            ("sys/class/nvme/nvme2/address", remote),
            ("sys/class/nvme/nvme2/nvme2n1/x", ""),
        ]);
        let found = HostRoot::new(folder.path()).nvme_namespaces(Some(&[]));
        assert_eq!(found.len(), 1, "{found:?}");
        assert_eq!(found[0].address.as_deref(), Some("10000:e1:00.0"));
    }

    #[test]
    fn a_path_to_a_namespace_is_named_after_the_disk() {
        assert_eq!(namespace_name("nvme3n1").as_deref(), Some("nvme3n1"));
        assert_eq!(namespace_name("nvme0c3n1").as_deref(), Some("nvme0n1"));
        for other in ["nvme3", "ng3n1", "nvmen", "nvme3n", "power"] {
            assert_eq!(namespace_name(other), None, "{other}");
        }
    }
}
