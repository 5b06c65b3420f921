//! Storage layouts, with MAAS's own arithmetic (4 MiB alignment, a BIOS boot partition that is
//! not listed).

use crate::model::{ALIGN, Disk, Filesystem, Partition};
use crate::region::Region;
use crate::settings::LAYOUTS;
use crate::wire::{Params, SimResponse};

const GIB: u64 = 1 << 30;
/// Less is no root filesystem.
const LEAST_ROOT: u64 = 3 * GIB;
const CACHE_MODES: &[&str] = &["writeback", "writethrough", "writearound"];

/// Whole units of the alignment.
pub(crate) fn aligned(bytes: u64) -> u64 {
    bytes / ALIGN * ALIGN
}

/// `20G`, `50%` of `whole`, or bytes.
pub(crate) fn size(text: &str, whole: u64) -> Option<u64> {
    let text = text.trim();
    let (digits, unit) =
        text.split_at(text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len()));
    let number: f64 = digits.parse().ok()?;
    let factor = match unit.trim() {
        "" => 1.0,
        "K" | "k" => 1e3,
        "M" | "m" => 1e6,
        "G" | "g" => 1e9,
        "T" | "t" => 1e12,
        "%" => whole as f64 / 100.0,
        _ => return None,
    };
    Some((number * factor) as u64)
}

struct Plan {
    root: i64,
    boot: i64,
    boot_size: u64,
    root_size: Option<u64>,
}

impl Region {
    /// Removes partitions, file systems and virtual disks.
    pub(crate) fn wipe_layout(&mut self, key: u32) {
        self.edit(key, |m| {
            m.disks.retain(|d| d.logical.is_none());
            for disk in &mut m.disks {
                disk.partitions.clear();
                disk.fs = None;
            }
            m.volume_groups.clear();
            m.bcaches.clear();
            m.cache_sets.clear();
        });
    }

    /// Checks and applies a layout.
    pub(crate) fn apply_layout(
        &mut self,
        key: u32,
        layout: &str,
        params: &Params,
    ) -> Result<(), SimResponse> {
        if !LAYOUTS.contains(&layout) {
            let list: Vec<String> = LAYOUTS.iter().map(|l| format!("'{l}'")).collect();
            let text = format!(
                "'{layout}' is not a valid storage_layout.  It should be one of: {}.",
                list.join(", ")
            );
            return Err(SimResponse::invalid("storage_layout", text));
        }
        let plan = self.plan(key, params)?;
        match layout {
            "custom" => {
                let text = "Failed to configure storage layout 'custom': No custom storage layout configuration found";
                return Err(SimResponse::text(400, text));
            }
            "flat" => self.flat(key, &plan),
            "lvm" => self.lvm(key, &plan, params),
            "bcache" => self.bcache(key, &plan),
            "blank" => self.wipe_layout(key),
            _ => self.vmfs(key, &plan),
        }
        Ok(())
    }

    fn plan(&self, key: u32, params: &Params) -> Result<Plan, SimResponse> {
        let none =
            || SimResponse::text(400, "Machine doesn't have any storage devices to configure.");
        let m = self.machine(key).ok_or_else(none)?;
        let physical: Vec<&Disk> = m.disks.iter().filter(|d| d.logical.is_none()).collect();
        let boot = physical
            .iter()
            .find(|d| Some(d.id) == m.boot_disk)
            .or(physical.first())
            .ok_or_else(none)?;
        let mut root = *boot;
        if let Some(text) = params.filled("root_device") {
            root = physical.iter().find(|d| d.id.to_string() == text).ok_or_else(|| {
                let list: Vec<String> = physical.iter().map(|d| format!("'{}'", d.id)).collect();
                let text = format!(
                    "'{text}' is not a valid root_device.  It should be one of: {}.",
                    list.join(", ")
                );
                SimResponse::invalid("root_device", text)
            })?;
        }
        let boot_size =
            params.filled("boot_size").and_then(|t| size(t, boot.size)).map_or(0, aligned);
        let root_size = match params.filled("root_size") {
            None => None,
            Some(text) => {
                let most = root.size.saturating_sub(GIB);
                let asked = size(text, root.size).ok_or_else(|| {
                    SimResponse::invalid("root_size", "Value must be a number or a percentage.")
                })?;
                if asked > most {
                    return Err(SimResponse::invalid(
                        "root_size",
                        format!("Size is too large. Maximum size is {most}."),
                    ));
                }
                if asked < LEAST_ROOT {
                    return Err(SimResponse::invalid(
                        "root_size",
                        format!("Size is too small. Minimum size is {LEAST_ROOT}."),
                    ));
                }
                Some(aligned(asked))
            }
        };
        if let Some(mode) = params.filled("cache_mode").filter(|m| !CACHE_MODES.contains(m)) {
            let text =
                format!("Select a valid choice. {mode} is not one of the available choices.");
            return Err(SimResponse::invalid("cache_mode", text));
        }
        Ok(Plan { root: root.id, boot: boot.id, boot_size, root_size })
    }

    /// A file system with a new UUID.
    pub(crate) fn filesystem(
        &mut self,
        key: u32,
        fstype: &'static str,
        label: Option<&'static str>,
        mount: Option<&str>,
    ) -> Filesystem {
        Filesystem {
            fstype,
            label,
            uuid: self.new_uuid(key),
            mount: mount.map(str::to_owned),
            options: None,
        }
    }

    fn part(
        &mut self,
        key: u32,
        disk: i64,
        size: Option<u64>,
        used_for: &str,
        fs: Option<Filesystem>,
        bootable: bool,
    ) {
        let (id, uuid) = (self.next_id("partition"), self.new_uuid(key));
        self.edit(key, |m| {
            if let Some(d) = m.disks.iter_mut().find(|d| d.id == disk) {
                let size = size.unwrap_or(d.available()).min(d.available());
                d.partitions.push(Partition {
                    id,
                    uuid,
                    size,
                    bootable,
                    used_for: used_for.to_owned(),
                    fs,
                });
            }
        });
    }

    fn boot_part(&mut self, key: u32, plan: &Plan, size: u64) {
        if size > 0 {
            let fs = self.filesystem(key, "ext4", Some("boot"), Some("/boot"));
            self.part(
                key,
                plan.boot,
                Some(size),
                "ext4 formatted filesystem mounted at /boot",
                Some(fs),
                true,
            );
        }
    }

    fn flat(&mut self, key: u32, plan: &Plan) {
        self.wipe_layout(key);
        self.boot_part(key, plan, plan.boot_size);
        let fs = self.filesystem(key, "ext4", Some("root"), Some("/"));
        self.part(
            key,
            plan.root,
            plan.root_size,
            "ext4 formatted filesystem mounted at /",
            Some(fs),
            false,
        );
    }

    fn virtual_disk(&mut self, key: u32, name: String, size: u64, block_size: i64) {
        let (id, uuid) = (self.next_id("blockdevice"), self.new_uuid(key));
        let fs = self.filesystem(key, "ext4", Some("root"), Some("/"));
        self.edit(key, |m| {
            m.disks.push(Disk {
                id,
                name,
                model: "",
                serial: String::new(),
                size,
                block_size,
                tags: Vec::new(),
                numa: 0,
                partitions: Vec::new(),
                fs: None,
                logical: Some((uuid, fs)),
            });
        });
    }

    fn usable(&self, key: u32, disk: i64) -> u64 {
        self.machine(key)
            .and_then(|m| m.disks.iter().find(|d| d.id == disk))
            .map_or(0, Disk::available)
    }

    fn lvm(&mut self, key: u32, plan: &Plan, params: &Params) {
        self.wipe_layout(key);
        self.boot_part(key, plan, plan.boot_size);
        let group = params.filled("vg_name").unwrap_or("vgroot");
        let volume = params.filled("lv_name").unwrap_or("lvroot");
        let whole = plan.root_size.unwrap_or_else(|| self.usable(key, plan.root));
        let fs = self.filesystem(key, "lvm-pv", None, None);
        self.part(
            key,
            plan.root,
            plan.root_size,
            &format!("LVM volume for {group}"),
            Some(fs),
            false,
        );
        let most = whole.saturating_sub(ALIGN);
        let size =
            params.filled("lv_size").and_then(|t| size(t, most)).map_or(most, aligned).min(most);
        self.virtual_disk(key, format!("{group}-{volume}"), size, 4096);
        let id = self.next_id("filesystemgroup");
        self.edit(key, |m| m.volume_groups.push(id));
    }

    fn bcache(&mut self, key: u32, plan: &Plan) {
        let cache = self
            .machine(key)
            .and_then(|m| m.disks.iter().find(|d| d.logical.is_none() && d.id != plan.root))
            .map(|d| d.id);
        let Some(cache) = cache else {
            return self.flat(key, plan);
        };
        self.wipe_layout(key);
        self.boot_part(key, plan, plan.boot_size.max(GIB));
        let size = self.usable(key, plan.root);
        let fs = self.filesystem(key, "bcache-backing", None, None);
        self.part(key, plan.root, plan.root_size, "Backing device for bcache0", Some(fs), false);
        let fs = self.filesystem(key, "bcache-cache", None, None);
        self.part(key, cache, None, "Cache device for cache0", Some(fs), false);
        self.virtual_disk(key, "bcache0".to_owned(), size, 512);
        let (set, group) = (self.next_id("filesystemgroup"), self.next_id("filesystemgroup"));
        self.edit(key, |m| {
            m.cache_sets.push(set);
            m.bcaches.push(group);
        });
    }

    fn vmfs(&mut self, key: u32, plan: &Plan) {
        self.wipe_layout(key);
        self.part(key, plan.root, Some(3 * 1024 * 1024), "Unused", None, true);
        for mib in [4096, 249, 249, 109] {
            self.part(key, plan.root, Some(mib * 1024 * 1024), "Unused", None, false);
        }
        let fs = self.filesystem(key, "vmfs6", None, None);
        self.part(key, plan.root, None, "VMFS extent for datastore1", Some(fs), false);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_align_as_recorded() {
        assert_eq!(size("20G", 0).map(aligned), Some(19_998_441_472));
        assert_eq!(size("1G", 0).map(aligned), Some(998_244_352));
        assert_eq!(size("many", 0), None);
    }
}
