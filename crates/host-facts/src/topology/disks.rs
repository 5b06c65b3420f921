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
}

impl HostRoot {
    /// Namespaces of NVMe controllers on PCI, by name.
    pub(super) fn nvme_namespaces(
        &self,
        open_files: Option<&[DeviceHolder]>,
    ) -> Vec<NvmeNamespace> {
        let mounts = self.mounted();
        let swaps = self.text("proc/swaps").map(|text| swaps(&text)).unwrap_or_default();
        let mut namespaces = Vec::new();
        for controller in self.names("sys/class/nvme") {
            let at = format!("sys/class/nvme/{controller}");
            let address = self.line(format!("{at}/address")).filter(|text| text.contains(':'));
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
    let source = file_system.split(' ').nth(1)?.to_owned();
    Some(Mounted { device, source, target })
}

/// Lines of `/proc/swaps` after its heading.
fn swaps(text: &str) -> Vec<Mounted> {
    let swap = |line: &str| {
        let source = line.split_whitespace().next()?.to_owned();
        Some(Mounted { device: String::new(), source, target: String::new() })
    };
    text.lines().skip(1).filter_map(swap).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_to_a_namespace_is_named_after_the_disk() {
        assert_eq!(namespace_name("nvme3n1").as_deref(), Some("nvme3n1"));
        assert_eq!(namespace_name("nvme0c3n1").as_deref(), Some("nvme0n1"));
        for other in ["nvme3", "ng3n1", "nvmen", "nvme3n", "power"] {
            assert_eq!(namespace_name(other), None, "{other}");
        }
    }
}
