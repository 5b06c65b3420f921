//! Block devices and storage layouts.

use super::call::{Call, HandlerResult};
use crate::json::JsonWriter;
use crate::model::Disk;
use crate::region::Region;
use crate::render;
use crate::status::Status;
use crate::wire::{JSON, SimResponse, TEXT_BARE};

/// Handles `GET nodes/ID/blockdevices/`.
pub(super) fn list(region: &mut Region, call: &Call<'_>) -> HandlerResult {
    let key = region.find_machine(call.part(0))?;
    let m = region.machine(key).ok_or_else(|| SimResponse::not_found("Node"))?;
    let mut j = JsonWriter::at(0, 4096);
    j.array(|j| m.disks.iter().for_each(|d| j.item(|j| render::listed_disk(j, d, &m.system_id))));
    Ok(SimResponse::new(200, JSON, j.finish()))
}

pub(super) fn find<'a>(
    region: &'a Region,
    call: &Call<'_>,
) -> Result<(&'a crate::model::Machine, &'a crate::model::Disk), SimResponse> {
    let key = region.find_machine(call.part(0))?;
    let m = region.machine(key).ok_or_else(|| SimResponse::not_found("Node"))?;
    let disk = m.disks.iter().find(|d| d.id.to_string() == call.part(1));
    disk.map(|d| (m, d)).ok_or_else(|| SimResponse::not_found("BlockDevice"))
}

/// Handles `GET nodes/ID/blockdevices/BID/`.
pub(super) fn read(region: &mut Region, call: &Call<'_>) -> HandlerResult {
    let (m, disk) = find(region, call)?;
    let mut j = JsonWriter::at(0, 1024);
    j.object(|j| render::disk(j, disk, &m.system_id));
    Ok(SimResponse::new(200, JSON, j.finish()))
}

/// Handles `op=set_boot_disk`.
pub(super) fn set_boot_disk(region: &mut Region, call: &Call<'_>) -> HandlerResult {
    let (m, disk) = find(region, call)?;
    let (key, id, physical) = (m.key, disk.id, disk.logical.is_none());
    if !call.admin {
        return Err(SimResponse::forbidden());
    }
    if m.status != Status::Ready {
        return Err(SimResponse::conflict(
            "Cannot set as boot disk because the machine is not Ready.",
        ));
    }
    if !physical {
        return Err(SimResponse::text(400, "Cannot set a virtual block device as the boot disk."));
    }
    region.edit(key, |m| m.boot_disk = Some(id));
    Ok(SimResponse::new(200, TEXT_BARE, "OK"))
}

/// Filesystems that a disk may get.
const FORMATS: &[&str] = &["btrfs", "ext2", "ext4", "fat32", "swap", "vfat", "xfs"];

/// The disk of a machine whose filesystems the caller may change; `what` is what is refused in
/// another status than Ready or one of `more`.
pub(super) fn find_changeable(
    region: &Region,
    call: &Call<'_>,
    what: &str,
    more: &str,
) -> Result<(u32, i64), SimResponse> {
    let (m, disk) = find(region, call)?;
    let (key, id) = (m.key, disk.id);
    let allowed = m.status == Status::Ready || (!more.is_empty() && m.status == Status::Allocated);
    if !allowed {
        return Err(SimResponse::conflict(format!(
            "Cannot {what} the machine is not Ready{more}."
        )));
    }
    region.check_permitted(key, call)?;
    Ok((key, id))
}

fn find_device(region: &Region, call: &Call<'_>, verb: &str) -> Result<(u32, i64), SimResponse> {
    find_changeable(region, call, &format!("{verb} block device because"), " or Allocated")
}

/// The filesystem that the form asks for.
pub(super) fn filesystem_type(call: &Call<'_>) -> Result<&'static str, SimResponse> {
    let asked = call
        .form
        .filled("fstype")
        .ok_or_else(|| SimResponse::invalid("fstype", "This field is required."))?;
    FORMATS.iter().find(|name| **name == asked).copied().ok_or_else(|| {
        let text = format!("Select a valid choice. {asked} is not one of the available choices.");
        SimResponse::invalid("fstype", text)
    })
}

/// Where the form wants something mounted, and how.
pub(super) fn mount_target(call: &Call<'_>) -> Result<(String, String), SimResponse> {
    let target = call
        .form
        .filled("mount_point")
        .ok_or_else(|| SimResponse::invalid("mount_point", "This field is required."))?;
    if !target.starts_with('/') && target != "none" {
        return Err(SimResponse::invalid("mount_point", "Enter a valid value."));
    }
    Ok((target.to_owned(), call.form.get("mount_options").unwrap_or("").to_owned()))
}

fn shown(region: &Region, key: u32, id: i64) -> HandlerResult {
    let m = region.machine(key).ok_or_else(|| SimResponse::not_found("Node"))?;
    let disk = m.disks.iter().find(|d| d.id == id);
    let disk = disk.ok_or_else(|| SimResponse::not_found("BlockDevice"))?;
    let mut j = JsonWriter::at(0, 1024);
    j.object(|j| render::disk(j, disk, &m.system_id));
    Ok(SimResponse::new(200, JSON, j.finish()))
}

/// Handles `op=format`.
pub(super) fn format(region: &mut Region, call: &Call<'_>) -> HandlerResult {
    let (key, id) = find_device(region, call, "format")?;
    let fstype = filesystem_type(call)?;
    let (_, disk) = find(region, call)?;
    if !disk.partitions.is_empty() {
        let text = "Cannot format block device with a partition table.";
        return Err(SimResponse::invalid("__all__", text));
    }
    let fs = region.filesystem(key, fstype, Some(""), None);
    region.edit(key, |m| {
        if let Some(disk) = m.disks.iter_mut().find(|d| d.id == id) {
            match &mut disk.logical {
                Some((_, old)) => *old = fs,
                None => disk.fs = Some(fs),
            }
        }
    });
    shown(region, key, id)
}

/// Handles `op=mount`.
pub(super) fn mount(region: &mut Region, call: &Call<'_>) -> HandlerResult {
    let (key, id) = find_device(region, call, "mount")?;
    let (_, disk) = find(region, call)?;
    if disk.direct().is_none() {
        let text = "Cannot mount an unformatted partition or block device.";
        return Err(SimResponse::invalid("__all__", text));
    }
    let (target, options) = mount_target(call)?;
    region.edit(key, |m| {
        if let Some(disk) = m.disks.iter_mut().find(|d| d.id == id) {
            let fs = disk.logical.as_mut().map(|(_, fs)| fs).or(disk.fs.as_mut());
            if let Some(fs) = fs {
                (fs.mount, fs.options) = (Some(target), Some(options));
            }
        }
    });
    shown(region, key, id)
}

fn edit_disk(
    region: &mut Region,
    key: u32,
    id: i64,
    change: impl FnOnce(&mut Disk),
) -> HandlerResult {
    region.edit(key, |m| m.disks.iter_mut().find(|d| d.id == id).map(change));
    shown(region, key, id)
}

/// Handles `op=unmount`.
pub(super) fn unmount(region: &mut Region, call: &Call<'_>) -> HandlerResult {
    let (key, id) = find_device(region, call, "unmount")?;
    match find(region, call)?.1.direct() {
        None => return Err(SimResponse::text(400, "Block device is not formatted.")),
        Some(fs) if fs.mount.is_none() => {
            return Err(SimResponse::text(400, "Filesystem is already unmounted."));
        }
        Some(_) => {}
    }
    edit_disk(region, key, id, |disk| {
        if let Some(fs) = disk.logical.as_mut().map(|(_, fs)| fs).or(disk.fs.as_mut()) {
            (fs.mount, fs.options) = (None, None);
        }
    })
}

/// Handles `op=unformat`.
pub(super) fn unformat(region: &mut Region, call: &Call<'_>) -> HandlerResult {
    let (key, id) = find_device(region, call, "unformat")?;
    match find(region, call)?.1.direct() {
        None => return Err(SimResponse::text(400, "Block device is not formatted.")),
        Some(fs) if fs.mount.is_some() => {
            let text = "Filesystem is mounted and cannot be unformatted. Unmount the filesystem before unformatting the block device.";
            return Err(SimResponse::text(400, text));
        }
        Some(_) => {}
    }
    edit_disk(region, key, id, |disk| disk.fs = None)
}

/// Handles `op=add_tag` and `op=remove_tag`.
pub(super) fn tag(region: &mut Region, call: &Call<'_>) -> HandlerResult {
    let (key, id) = {
        let (m, disk) = find(region, call)?;
        (m.key, disk.id)
    };
    region.check_permitted(key, call)?;
    let tag = super::accounts::mandatory(call, "tag")?.to_owned();
    let remove = call.form.get("op") == Some("remove_tag");
    edit_disk(region, key, id, |disk| {
        disk.tags.retain(|t| *t != tag);
        if !remove {
            disk.tags.push(tag);
        }
    })
}

/// Handles `PUT nodes/ID/blockdevices/BID/`: its name and its size.
pub(super) fn update(region: &mut Region, call: &Call<'_>) -> HandlerResult {
    let (key, id) = find_changeable(region, call, "update block device because", "")?;
    let name = call.form.filled("name").map(str::to_owned);
    let size = match call.form.filled("size") {
        None => None,
        Some(text) => Some(
            text.parse::<u64>()
                .map_err(|_| SimResponse::invalid("size", "Enter a whole number."))?,
        ),
    };
    edit_disk(region, key, id, |disk| {
        disk.name = name.unwrap_or(std::mem::take(&mut disk.name));
        disk.size = size.unwrap_or(disk.size);
    })
}

/// Handles `DELETE nodes/ID/blockdevices/BID/`.
pub(super) fn delete(region: &mut Region, call: &Call<'_>) -> HandlerResult {
    let (key, id) = find_changeable(region, call, "delete block device because", "")?;
    region.edit(key, |m| {
        m.disks.retain(|d| d.id != id);
        m.boot_disk = m.boot_disk.filter(|b| *b != id);
    });
    Ok(SimResponse::no_content())
}

/// Handles the lists of RAIDs, volume groups, bcaches, cache sets and datastores of a machine. What
/// a layout made of them is named in the machine; their own objects are not simulated.
pub(super) fn no_groups(region: &mut Region, call: &Call<'_>) -> HandlerResult {
    region.find_machine(call.part(0))?;
    Ok(SimResponse::json(&serde_json::json!([])))
}

/// Handles `op=mount_special` and `op=unmount_special`: checked, and not kept.
pub(super) fn special(region: &mut Region, call: &Call<'_>) -> HandlerResult {
    let key = region.find_editable(call)?;
    let mounting = call.form.get("op") == Some("mount_special");
    if !matches!(region.status(key), Status::Ready | Status::Allocated) {
        let verb = if mounting { "mount" } else { "unmount" };
        let text =
            format!("Cannot {verb} the filesystem because the machine is not Ready or Allocated.");
        return Err(SimResponse::conflict(text));
    }
    if mounting {
        let fstype = super::accounts::mandatory(call, "fstype")?;
        if !matches!(fstype, "tmpfs" | "ramfs") {
            let text =
                format!("Select a valid choice. {fstype} is not one of the available choices.");
            return Err(SimResponse::invalid("fstype", text));
        }
    }
    mount_target(call)?;
    Ok(region.machine_response(key))
}

/// Handles `op=set_storage_layout`.
pub(super) fn set_layout(region: &mut Region, call: &Call<'_>) -> HandlerResult {
    let key = region.find_editable(call)?;
    if region.status(key) != Status::Ready {
        return Err(SimResponse::conflict(
            "Cannot change the storage layout on a machine that is not Ready.",
        ));
    }
    let layout = call
        .form
        .filled("storage_layout")
        .ok_or_else(|| SimResponse::invalid("storage_layout", "This field is required."))?;
    region.apply_layout(key, layout, &call.form)?;
    Ok(region.machine_response(key))
}

/// Refuses restoring anything in another state than Ready or Failed testing.
pub(super) fn find_restorable(
    region: &Region,
    call: &Call<'_>,
    what: &str,
) -> Result<u32, SimResponse> {
    let key = region.find_editable(call)?;
    if matches!(region.status(key), Status::Ready | Status::FailedTesting) {
        return Ok(key);
    }
    // That of the network ends without a full stop.
    let stop = if what == "networking" { "" } else { "." };
    let text = format!(
        "Machine must be in a ready or failed testing state to restore {what} configuration{stop}"
    );
    Err(SimResponse::conflict(text))
}

/// Handles `op=restore_storage_configuration`.
pub(super) fn restore(region: &mut Region, call: &Call<'_>) -> HandlerResult {
    let key = find_restorable(region, call, "storage")?;
    let layout = region.settings.text("default_storage_layout").to_owned();
    region.apply_layout(key, &layout, &crate::wire::Params::default())?;
    Ok(region.machine_response(key))
}
