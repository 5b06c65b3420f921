//! MAAS' machine, reduced to what decisions need.

use gpuaas_types::Timestamp;
use gpuaas_types::machine::{Disk, DiskFilesystem, MachineView, Nic, NicLink};
use maas_client::{Interface, Machine, MachineDisk};

/// The reduced view.
#[must_use]
pub(crate) fn machine_view(machine: &Machine) -> MachineView {
    MachineView {
        system_id: machine.system_id.clone(),
        hostname: machine.hostname.clone(),
        status: machine.status,
        owner: machine.owner.clone(),
        power_state: machine.power_state.clone(),
        power_type: machine.power_type.clone(),
        architecture: machine.architecture.clone(),
        osystem: machine.osystem.clone(),
        distro_series: machine.distro_series.clone(),
        locked: machine.locked,
        netboot: machine.netboot,
        error_description: machine.error_description.clone(),
        status_message: machine.status_message.clone(),
        enable_hw_sync: machine.enable_hw_sync,
        sync_interval_seconds: machine.sync_interval.map(id),
        boot_interface_id: machine.boot_interface.as_ref().map(|i| id(i.id)),
        boot_disk_id: machine.boot_disk_id.map(id),
        disks: machine.physicalblockdevice_set.iter().map(disk_view).collect(),
        complex_storage: u32::try_from(
            machine.volume_group_count + machine.raid_count + machine.bcache_count,
        )
        .unwrap_or(u32::MAX),
        volume_groups: u32::try_from(machine.volume_group_count).unwrap_or(u32::MAX),
        bcaches: u32::try_from(machine.bcache_count).unwrap_or(u32::MAX),
        nics: machine.interface_set.iter().map(nic_view).collect(),
        tags: machine.tag_names.clone(),
        hardware: format!(
            "{} {}",
            machine.hardware_info.system_vendor, machine.hardware_info.system_product
        ),
        serial: known_serial(machine),
        hardware_uuid: machine.hardware_uuid.clone(),
        pool: machine.pool.clone(),
        zone: machine.zone.clone(),
        has_installation_result: machine.current_installation_result_id.is_some(),
        installation_id: machine.current_installation_result_id.map(id),
        last_sync: machine.last_sync.as_deref().and_then(Timestamp::from_rfc3339),
    }
}

/// The serial number of the chassis; MAAS says `Unknown` until it was commissioned.
fn known_serial(machine: &Machine) -> String {
    let serial = machine.hardware_info.system_serial.trim();
    if serial.eq_ignore_ascii_case("unknown") { String::new() } else { serial.to_owned() }
}

/// MAAS' ids are small positive numbers; ours are signed as the databases' are.
fn id(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

/// A disk, as it also comes back from being formatted or mounted.
#[must_use]
pub(crate) fn disk_view(device: &MachineDisk) -> Disk {
    let on_disk = device.filesystem.iter();
    let on_partitions = device.partitions.iter().filter_map(|p| p.filesystem.as_ref());
    Disk {
        id: id(device.id),
        name: device.name.clone(),
        model: device.model.clone(),
        serial: device.serial.clone(),
        size_bytes: device.size,
        tags: device.tags.clone(),
        mounts: on_disk.chain(on_partitions).filter_map(|f| f.mount_point.clone()).collect(),
        partitions: u32::try_from(device.partitions.len()).unwrap_or(u32::MAX),
        filesystem: device.filesystem.as_ref().map(|f| DiskFilesystem {
            fstype: f.fstype.clone(),
            mount_point: f.mount_point.clone(),
        }),
    }
}

/// An interface, as it also comes back from link operations.
#[must_use]
pub(crate) fn nic_view(interface: &Interface) -> Nic {
    let vlan = interface.vlan.as_ref();
    Nic {
        id: id(interface.id),
        name: interface.name.clone(),
        mac_address: interface.mac_address.to_ascii_lowercase(),
        kind: interface.kind.clone(),
        vid: vlan.map(|v| id(v.vid)),
        vlan_id: vlan.map(|v| id(v.id)),
        fabric: vlan.map(|v| v.fabric.clone()),
        dhcp_on: vlan.is_some_and(|v| v.dhcp_on),
        link_connected: interface.link_connected,
        links: interface
            .links
            .iter()
            .map(|link| NicLink {
                id: id(link.id),
                mode: link.mode.clone(),
                subnet_id: link.subnet.as_ref().map(|s| id(s.id)),
                subnet_cidr: link.subnet.as_ref().map(|s| s.cidr.clone()),
                ip_address: link.ip_address.clone(),
            })
            .collect(),
    }
}

#[cfg(test)]
mod tests {
    use gpuaas_types::machine::maas_status;

    #[test]
    fn both_crates_name_the_statuses_alike() {
        let ours: Vec<(i64, &str)> = maas_status::LABELS.to_vec();
        let theirs: Vec<(i64, &str)> =
            maas_client::status::TABLE.iter().map(|(number, label, _)| (*number, *label)).collect();
        assert_eq!(ours, theirs);
    }
}
