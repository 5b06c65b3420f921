//! Block devices and storage layouts.

use super::call::{Call, HandlerResult};
use crate::json::JsonWriter;
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

fn find<'a>(
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

/// The disk of a machine whose filesystems the caller may change. Not among the recordings: read
/// in MAAS' handler, as are the refusals below.
fn find_changeable(
    region: &Region,
    call: &Call<'_>,
    verb: &str,
) -> Result<(u32, i64), SimResponse> {
    let (m, disk) = find(region, call)?;
    let (key, id) = (m.key, disk.id);
    if !matches!(m.status, Status::Ready | Status::Allocated) {
        let text =
            format!("Cannot {verb} block device because the machine is not Ready or Allocated.");
        return Err(SimResponse::conflict(text));
    }
    region.check_permitted(key, call)?;
    Ok((key, id))
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
    let (key, id) = find_changeable(region, call, "format")?;
    let asked = call
        .form
        .filled("fstype")
        .ok_or_else(|| SimResponse::invalid("fstype", "This field is required."))?;
    let fstype = FORMATS.iter().find(|name| **name == asked).ok_or_else(|| {
        let text = format!("Select a valid choice. {asked} is not one of the available choices.");
        SimResponse::invalid("fstype", text)
    })?;
    let (_, disk) = find(region, call)?;
    if !disk.partitions.is_empty() {
        let text = "Cannot format block device with a partition table.";
        return Err(SimResponse::invalid("__all__", text));
    }
    let fs = region.filesystem(key, fstype, None, None);
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
    let (key, id) = find_changeable(region, call, "mount")?;
    let (_, disk) = find(region, call)?;
    if disk.direct().is_none() {
        let text = "Cannot mount an unformatted partition or block device.";
        return Err(SimResponse::invalid("__all__", text));
    }
    let target = call
        .form
        .filled("mount_point")
        .ok_or_else(|| SimResponse::invalid("mount_point", "This field is required."))?;
    if !target.starts_with('/') {
        return Err(SimResponse::invalid("mount_point", "Enter a valid value."));
    }
    let target = target.to_owned();
    region.edit(key, |m| {
        if let Some(disk) = m.disks.iter_mut().find(|d| d.id == id) {
            let fs = disk.logical.as_mut().map(|(_, fs)| fs).or(disk.fs.as_mut());
            if let Some(fs) = fs {
                fs.mount = Some(target);
            }
        }
    });
    shown(region, key, id)
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
    let text = format!(
        "Machine must be in a ready or failed testing state to restore {what} configuration."
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
