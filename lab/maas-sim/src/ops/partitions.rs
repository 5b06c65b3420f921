//! Partitions of a block device.

use super::call::{Call, HandlerResult};
use super::storage::{filesystem_type, find, find_changeable, mount_target};
use crate::json::JsonWriter;
use crate::model::{Disk, Filesystem, Partition};
use crate::region::Region;
use crate::render;
use crate::storage_layout::{aligned, size};
use crate::wire::{JSON, SimResponse, TEXT_BARE};

/// Handles `GET nodes/ID/blockdevices/BID/partitions/`.
pub(super) fn list(region: &mut Region, call: &Call<'_>) -> HandlerResult {
    let (m, disk) = find(region, call)?;
    let mut j = JsonWriter::at(0, 1024);
    j.array(|j| {
        for index in 0..disk.partitions.len() {
            j.item(|j| render::partition(j, disk, index, &m.system_id));
        }
    });
    Ok(SimResponse::new(200, JSON, j.finish()))
}

/// Place of a partition by the id in the path. Another text than a number is no such path.
fn position(disk: &Disk, call: &Call<'_>) -> Result<usize, SimResponse> {
    let Ok(id) = call.part(2).parse::<i64>() else {
        return Err(SimResponse::new(404, TEXT_BARE, ""));
    };
    let found = disk.partitions.iter().position(|p| p.id == id);
    found.ok_or_else(|| SimResponse::not_found("Partition"))
}

fn show(region: &Region, key: u32, disk: i64, partition: i64) -> HandlerResult {
    let none = || SimResponse::not_found("Partition");
    let m = region.machine(key).ok_or_else(none)?;
    let disk = m.disks.iter().find(|d| d.id == disk).ok_or_else(none)?;
    let index = disk.partitions.iter().position(|p| p.id == partition).ok_or_else(none)?;
    let mut j = JsonWriter::at(0, 1024);
    j.object(|j| render::partition(j, disk, index, &m.system_id));
    Ok(SimResponse::new(200, JSON, j.finish()))
}

/// Handles `POST …/partitions/`.
pub(super) fn create(region: &mut Region, call: &Call<'_>) -> HandlerResult {
    let (key, disk) = find_changeable(region, call, "create partition because", "")?;
    let (_, found) = find(region, call)?;
    let free = found.available();
    let wanted = match call.form.filled("size") {
        None => free,
        Some(text) => {
            let bytes = size(text, found.size).ok_or_else(|| {
                SimResponse::invalid("size", "Value must be a number or a percentage.")
            })?;
            aligned(bytes)
        }
    };
    if wanted > free || wanted == 0 {
        let text = "Partition cannot be saved; not enough free space on the block device.";
        return Err(SimResponse::invalid("size", text));
    }
    let (id, uuid) = (region.next_id("partition"), region.new_uuid(key));
    let bootable = call.form.django_bool("bootable");
    let new =
        Partition { id, uuid, size: wanted, bootable, used_for: "Unused".to_owned(), fs: None };
    region.edit(key, |m| {
        if let Some(disk) = m.disks.iter_mut().find(|d| d.id == disk) {
            disk.partitions.push(new);
        }
    });
    show(region, key, disk, id)
}

/// Handles `GET …/partition/PID`.
pub(super) fn read(region: &mut Region, call: &Call<'_>) -> HandlerResult {
    let (m, disk) = find(region, call)?;
    let id = disk.partitions[position(disk, call)?].id;
    show(region, m.key, disk.id, id)
}

/// The partition, if the machine's state lets it be changed: machine, disk, place.
fn changeable(
    region: &Region,
    call: &Call<'_>,
    verb: &str,
) -> Result<(u32, i64, usize), SimResponse> {
    let (_, disk) = find(region, call)?;
    let index = position(disk, call)?;
    let (key, disk) =
        find_changeable(region, call, &format!("{verb} partition because"), " or Allocated")?;
    Ok((key, disk, index))
}

fn edit(
    region: &mut Region,
    (key, disk, index): (u32, i64, usize),
    change: impl FnOnce(&mut Partition),
) -> HandlerResult {
    let id = region.edit(key, |m| {
        let disk = m.disks.iter_mut().find(|d| d.id == disk)?;
        let partition = disk.partitions.get_mut(index)?;
        change(partition);
        partition.used_for =
            partition.fs.as_ref().map_or("Unused".to_owned(), Filesystem::used_for);
        Some(partition.id)
    });
    let id = id.flatten().ok_or_else(|| SimResponse::not_found("Partition"))?;
    show(region, key, disk, id)
}

/// Handles `DELETE …/partition/PID`.
pub(super) fn delete(region: &mut Region, call: &Call<'_>) -> HandlerResult {
    let (key, disk, index) = changeable(region, call, "delete")?;
    region.edit(key, |m| {
        if let Some(disk) = m.disks.iter_mut().find(|d| d.id == disk) {
            disk.partitions.remove(index);
        }
    });
    Ok(SimResponse::no_content())
}

/// Handles `op=format`.
pub(super) fn format(region: &mut Region, call: &Call<'_>) -> HandlerResult {
    let at = changeable(region, call, "format")?;
    let fstype = filesystem_type(call)?;
    let fs = region.filesystem(at.0, fstype, Some(""), None);
    edit(region, at, |partition| partition.fs = Some(fs))
}

/// Handles `op=unformat`.
pub(super) fn unformat(region: &mut Region, call: &Call<'_>) -> HandlerResult {
    let at = changeable(region, call, "unformat")?;
    let (_, disk) = find(region, call)?;
    if disk.partitions[at.2].fs.is_none() {
        return Err(SimResponse::text(400, "Partition is not formatted."));
    }
    edit(region, at, |partition| partition.fs = None)
}

/// Handles `op=mount`.
pub(super) fn mount(region: &mut Region, call: &Call<'_>) -> HandlerResult {
    let at = changeable(region, call, "mount")?;
    let (_, disk) = find(region, call)?;
    if disk.partitions[at.2].fs.is_none() {
        let text = "Cannot mount an unformatted partition or block device.";
        return Err(SimResponse::invalid("__all__", text));
    }
    let (target, options) = mount_target(call)?;
    edit(region, at, |partition| {
        if let Some(fs) = &mut partition.fs {
            (fs.mount, fs.options) = (Some(target), Some(options));
        }
    })
}

/// Handles `op=unmount`.
pub(super) fn unmount(region: &mut Region, call: &Call<'_>) -> HandlerResult {
    let at = changeable(region, call, "unmount")?;
    let (_, disk) = find(region, call)?;
    match &disk.partitions[at.2].fs {
        None => return Err(SimResponse::text(400, "Partition is not formatted.")),
        Some(fs) if fs.mount.is_none() => {
            return Err(SimResponse::text(400, "Filesystem is already unmounted."));
        }
        Some(_) => {}
    }
    edit(region, at, |partition| {
        if let Some(fs) = &mut partition.fs {
            (fs.mount, fs.options) = (None, None);
        }
    })
}
