//! Block devices and storage layouts.

use super::{Answer, Call};
use crate::json::Json;
use crate::region::Region;
use crate::render;
use crate::status::Status;
use crate::wire::{JSON, Response, TEXT_BARE};

/// `GET nodes/ID/blockdevices/`.
pub(super) fn list(region: &mut Region, call: &Call<'_>) -> Answer {
    let key = region.find(call.part(0))?;
    let m = region.machine(key).ok_or_else(|| Response::missing("Node"))?;
    let mut j = Json::at(0, 4096);
    j.array(|j| m.disks.iter().for_each(|d| j.item(|j| render::listed_disk(j, d, &m.system_id))));
    Ok(Response::new(200, JSON, j.finish()))
}

fn find<'a>(
    region: &'a Region,
    call: &Call<'_>,
) -> Result<(&'a crate::model::Machine, &'a crate::model::Disk), Response> {
    let key = region.find(call.part(0))?;
    let m = region.machine(key).ok_or_else(|| Response::missing("Node"))?;
    let disk = m.disks.iter().find(|d| d.id.to_string() == call.part(1));
    disk.map(|d| (m, d)).ok_or_else(|| Response::missing("BlockDevice"))
}

/// `GET nodes/ID/blockdevices/BID/`.
pub(super) fn read(region: &mut Region, call: &Call<'_>) -> Answer {
    let (m, disk) = find(region, call)?;
    let mut j = Json::at(0, 1024);
    j.object(|j| render::disk(j, disk, &m.system_id));
    Ok(Response::new(200, JSON, j.finish()))
}

/// `op=set_boot_disk`.
pub(super) fn set_boot_disk(region: &mut Region, call: &Call<'_>) -> Answer {
    let (m, disk) = find(region, call)?;
    let (key, id, physical) = (m.key, disk.id, disk.logical.is_none());
    if !call.admin {
        return Err(Response::forbidden());
    }
    if m.status != Status::Ready {
        return Err(Response::conflict(
            "Cannot set as boot disk because the machine is not Ready.",
        ));
    }
    if !physical {
        return Err(Response::text(400, "Cannot set a virtual block device as the boot disk."));
    }
    region.edit(key, |m| m.boot_disk = Some(id));
    Ok(Response::new(200, TEXT_BARE, "OK"))
}

/// `op=set_storage_layout`.
pub(super) fn set_layout(region: &mut Region, call: &Call<'_>) -> Answer {
    let key = region.editable(call)?;
    if region.status(key) != Status::Ready {
        return Err(Response::conflict(
            "Cannot change the storage layout on a machine that is not Ready.",
        ));
    }
    let layout = call
        .form
        .filled("storage_layout")
        .ok_or_else(|| Response::invalid("storage_layout", "This field is required."))?;
    region.apply_layout(key, layout, &call.form)?;
    Ok(region.show(key))
}

/// Refuses restoring anything in another state than Ready or Failed testing.
pub(super) fn restorable(region: &Region, call: &Call<'_>, what: &str) -> Result<u32, Response> {
    let key = region.editable(call)?;
    if matches!(region.status(key), Status::Ready | Status::FailedTesting) {
        return Ok(key);
    }
    let text = format!(
        "Machine must be in a ready or failed testing state to restore {what} configuration."
    );
    Err(Response::conflict(text))
}

/// `op=restore_storage_configuration`.
pub(super) fn restore(region: &mut Region, call: &Call<'_>) -> Answer {
    let key = restorable(region, call, "storage")?;
    let layout = region.settings.text("default_storage_layout").to_owned();
    region.apply_layout(key, &layout, &crate::wire::Params::default())?;
    Ok(region.show(key))
}
