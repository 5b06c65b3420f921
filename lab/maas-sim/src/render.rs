//! The JSON of a machine and of its parts.
//!
//! Every key of a machine (docs/maas.md#machine-object) is written, in one pass, into one buffer;
//! the region keeps the text for a while, or until the machine changes.

use crate::hardware_class::HardwareClass;
use crate::json::JsonWriter;
use crate::model::{Disk, Filesystem, Machine, Nic, Power, ScriptState};
use crate::network::{Network, ip};
use crate::times;

/// What a body needs besides the machine.
pub(crate) struct Environment<'a> {
    pub(crate) net: &'a Network,
    pub(crate) class: &'static HardwareClass,
    pub(crate) serial: &'a str,
    /// `(id, name, description)` of zone and pool.
    pub(crate) zone: (i64, &'a str, &'a str),
    pub(crate) pool: (i64, &'a str, &'a str),
    pub(crate) ip_addresses: bool,
}

pub(crate) fn domain(j: &mut JsonWriter) {
    j.bool("authoritative", true);
    j.null("ttl");
    j.int("id", 0);
    j.str("name", "maas");
    j.int("resource_record_count", 0);
    j.bool("is_default", true);
    j.str("resource_uri", "/MAAS/api/2.0/domains/0/");
}

fn filesystem(j: &mut JsonWriter, fs: Option<&Filesystem>) {
    match fs {
        None => j.null("filesystem"),
        Some(fs) => j.obj("filesystem", |j| {
            j.str("fstype", fs.fstype);
            j.opt_str("label", fs.label);
            j.str("uuid", &fs.uuid);
            j.opt_str("mount_point", fs.mount.as_deref());
            j.opt_str("mount_options", fs.options.as_deref());
        }),
    }
}

/// Writes the members of the partition at a place of a disk.
pub(crate) fn partition(j: &mut JsonWriter, disk: &Disk, index: usize, system_id: &str) {
    let Some(part) = disk.partitions.get(index) else {
        return;
    };
    // Number 1 is the BIOS boot partition that MAAS does not list.
    let number = index + 2;
    j.str("uuid", &part.uuid);
    j.int("size", part.size as i64);
    j.bool("bootable", part.bootable);
    j.list("tags", |_| {});
    j.str("used_for", &part.used_for);
    j.str("type", "partition");
    j.int("device_id", disk.id);
    j.int("id", part.id);
    filesystem(j, part.fs.as_ref());
    j.str("system_id", system_id);
    j.fmt("path", format_args!("/dev/disk/by-dname/{}-part{number}", disk.name));
    j.fmt(
        "resource_uri",
        format_args!(
            "/MAAS/api/2.0/nodes/{system_id}/blockdevices/{}/partition/{}",
            disk.id, part.id
        ),
    );
}

/// Writes the members of a block device.
pub(crate) fn disk(j: &mut JsonWriter, disk: &Disk, system_id: &str) {
    let physical = disk.logical.is_none();
    if physical {
        j.null("firmware_version");
    }
    listed_disk(j, disk, system_id);
}

/// Writes the members of a block device as `blockdevices/` lists it, without the firmware.
pub(crate) fn listed_disk(j: &mut JsonWriter, disk: &Disk, system_id: &str) {
    let physical = disk.logical.is_none();
    j.opt_str("id_path", physical.then(|| format!("/dev/{}", disk.name)).as_deref());
    j.int("size", disk.size as i64);
    j.int("used_size", disk.used() as i64);
    j.fmt("path", format_args!("/dev/disk/by-dname/{}", disk.name));
    j.null("storage_pool");
    j.str("type", if physical { "physical" } else { "virtual" });
    j.int("id", disk.id);
    j.str("name", &disk.name);
    filesystem(j, disk.direct());
    j.opt_int("numa_node", physical.then_some(disk.numa));
    j.opt_str("partition_table_type", (!disk.partitions.is_empty()).then_some("GPT"));
    j.strs("tags", disk.tags.iter().map(String::as_str));
    j.list("partitions", |j| {
        for index in 0..disk.partitions.len() {
            j.item(|j| partition(j, disk, index, system_id));
        }
    });
    j.opt_str("model", physical.then_some(disk.model));
    j.int("block_size", disk.block_size);
    j.str("used_for", &disk.used_for());
    j.str("system_id", system_id);
    j.opt_str("uuid", disk.logical.as_ref().map(|(uuid, _)| uuid.as_str()));
    j.opt_str("serial", physical.then_some(disk.serial.as_str()));
    j.int("available_size", disk.available() as i64);
    j.fmt(
        "resource_uri",
        format_args!("/MAAS/api/2.0/nodes/{system_id}/blockdevices/{}/", disk.id),
    );
}

/// Writes the members of an interface.
pub(crate) fn nic(j: &mut JsonWriter, nic: &Nic, system_id: &str, net: &Network) {
    let hw = nic.hardware;
    j.opt_str("firmware_version", hw.map(|_| "28.39.1002"));
    j.str("mac_address", &nic.mac);
    j.list("links", |j| {
        for link in &nic.links {
            j.item(|j| {
                j.int("id", link.id);
                j.str("mode", link.mode.as_str());
                if let Some(address) = link.address {
                    j.str("ip_address", &ip(address));
                }
                if let Some(subnet) = link.subnet {
                    j.obj("subnet", |j| net.write_subnet(j, subnet));
                }
            });
        }
    });
    j.strs("children", nic.children.iter().map(String::as_str));
    j.opt_str("vendor", hw.map(|h| h.vendor));
    j.str("type", nic.kind);
    j.int("id", nic.id);
    j.obj("params", |j| {
        if let Some(mtu) = nic.mtu {
            j.int("mtu", mtu);
        }
        for (key, value) in &nic.params {
            j.str(key, value);
        }
    });
    j.str("name", &nic.name);
    j.int("sriov_max_vf", 0);
    j.opt_int("numa_node", (nic.kind == "physical").then(|| hw.map_or(0, |h| h.numa)));
    j.strs("tags", nic.tags.iter().map(String::as_str));
    match nic.vlan {
        Some(id) => j.obj("vlan", |j| net.write_vlan(j, id)),
        None => j.null("vlan"),
    }
    let vlan_mtu = nic.vlan.and_then(|id| net.vlan_by_id(id)).map(|v| v.mtu);
    j.int("effective_mtu", nic.mtu.or(vlan_mtu).unwrap_or(1500));
    let speed = hw.map_or(0, |h| h.speed_mbps);
    j.int("interface_speed", speed);
    j.str("system_id", system_id);
    j.int("link_speed", if nic.link_connected { speed } else { 0 });
    j.bool("link_connected", nic.link_connected);
    j.opt_str("product", hw.map(|h| h.product));
    match nic.discovered {
        None => j.null("discovered"),
        Some((subnet, address)) => j.list("discovered", |j| {
            j.item(|j| {
                j.obj("subnet", |j| net.write_subnet(j, subnet));
                j.str("ip_address", &ip(address));
            });
        }),
    }
    j.bool("enabled", true);
    j.strs("parents", nic.parents.iter().map(String::as_str));
    j.fmt("resource_uri", format_args!("/MAAS/api/2.0/nodes/{system_id}/interfaces/{}/", nic.id));
}

fn states(j: &mut JsonWriter, m: &Machine) {
    let mut state = |name: &str, s: ScriptState| {
        j.int(name, s as i64);
        j.str(&format!("{name}_name"), s.label());
    };
    state("commissioning_status", m.commissioning_state);
    state("testing_status", m.testing_state);
    state("storage_test_status", m.storage_test_state);
    for name in ["cpu", "memory", "network", "interface", "other"] {
        state(&format!("{name}_test_status"), ScriptState::Unknown);
    }
}

/// Members of `hardware_info` that this simulator knows nothing about come after the first four.
pub(crate) const HARDWARE_KEYS: &[&str] = &[
    "system_vendor",
    "system_product",
    "system_serial",
    "cpu_model",
    "system_family",
    "system_version",
    "system_sku",
    "mainboard_vendor",
    "mainboard_product",
    "mainboard_serial",
    "mainboard_version",
    "mainboard_firmware_vendor",
    "mainboard_firmware_date",
    "mainboard_firmware_version",
    "chassis_vendor",
    "chassis_type",
    "chassis_serial",
    "chassis_version",
];

fn hardware_info(j: &mut JsonWriter, m: &Machine, at: &Environment<'_>) {
    j.obj("hardware_info", |j| {
        let known = |text| if m.hardware_known { text } else { "Unknown" };
        j.str("system_vendor", known(at.class.vendor));
        j.str("system_product", known(at.class.product));
        j.str("system_serial", known(at.serial));
        j.str("cpu_model", known(at.class.cpu_model));
        HARDWARE_KEYS[4..].iter().for_each(|key| j.str(key, "Unknown"));
    });
}

fn numa(j: &mut JsonWriter, m: &Machine, at: &Environment<'_>) {
    let nodes = if m.hardware_known { at.class.numa_nodes } else { 1 };
    let (memory, cores) = (m.memory / nodes, m.cpu_count / nodes);
    j.list("numanode_set", |j| {
        for index in 0..nodes {
            j.item(|j| {
                j.int("index", index);
                j.int("memory", memory);
                j.list("cores", |j| {
                    (index * cores..(index + 1) * cores).for_each(|c| j.item_int(c))
                });
                j.list("hugepages_set", |_| {});
            });
        }
    });
}

fn gateways(j: &mut JsonWriter, m: &Machine, net: &Network) {
    let chosen = m.gateway.or_else(|| {
        m.nics
            .iter()
            .flat_map(|n| &n.links)
            .filter_map(|l| l.subnet)
            .find(|s| net.subnet_by_id(*s).is_some_and(|s| s.gateway.is_some()))
    });
    let address = chosen.and_then(|s| net.subnet_by_id(s)).and_then(|s| s.gateway).map(ip);
    j.obj("default_gateways", |j| {
        j.obj("ipv4", |j| {
            j.opt_str("gateway_ip", address.as_deref());
            j.opt_int("link_id", m.gateway_link);
        });
        j.obj("ipv6", |j| {
            j.null("gateway_ip");
            j.null("link_id");
        });
    });
}

fn named(j: &mut JsonWriter, key: &str, (id, name, description): (i64, &str, &str), uri: &str) {
    j.obj(key, |j| {
        j.str("name", name);
        j.str("description", description);
        j.int("id", id);
        j.str("resource_uri", uri);
    });
}

fn references(j: &mut JsonWriter, key: &str, ids: &[i64], system_id: &str) {
    j.list(key, |j| {
        for id in ids {
            j.item(|j| {
                j.str("system_id", system_id);
                j.int("id", *id);
                j.bool("__incomplete__", true);
            });
        }
    });
}

/// Writes the members of a machine object.
pub(crate) fn machine(j: &mut JsonWriter, m: &Machine, at: &Environment<'_>) {
    let id = m.system_id.as_str();
    j.str("system_id", id);
    j.str("hostname", &m.hostname);
    j.fmt("fqdn", format_args!("{}.maas", m.hostname));
    identity(j, m);
    states(j, m);
    storage(j, m);
    match m.boot_interface() {
        Some(found) => j.obj("boot_interface", |j| nic(j, found, id, at.net)),
        None => j.null("boot_interface"),
    }
    j.list("interface_set", |j| m.nics.iter().for_each(|n| j.item(|j| nic(j, n, id, at.net))));
    if at.ip_addresses {
        let all = m.nics.iter().flat_map(|n| &n.links).filter_map(|l| l.address);
        j.list("ip_addresses", |j| all.for_each(|a| j.item_str(&ip(a))));
    }
    gateways(j, m, at.net);
    j.obj("domain", domain);
    named(j, "zone", at.zone, &format!("/MAAS/api/2.0/zones/{}/", at.zone.1));
    named(j, "pool", at.pool, &format!("/MAAS/api/2.0/resourcepool/{}/", at.pool.0));
    hardware_info(j, m, at);
    numa(j, m, at);
    j.int("cpu_count", m.cpu_count);
    j.int("cpu_speed", if m.hardware_known { at.class.cpu_speed_mhz } else { 0 });
    j.int("memory", m.memory);
    j.strs("tag_names", m.tags.iter().map(String::as_str));
    for key in ["owner_data", "workload_annotations"] {
        j.obj(key, |j| m.annotations.iter().for_each(|(k, v)| j.str(k, v)));
    }
    j.fmt("resource_uri", format_args!("/MAAS/api/2.0/machines/{id}/"));
}

fn identity(j: &mut JsonWriter, m: &Machine) {
    j.str("description", &m.description);
    j.str("architecture", &m.architecture);
    j.str("min_hwe_kernel", &m.min_hwe_kernel);
    j.opt_str("hwe_kernel", m.hwe_kernel.as_deref());
    j.str("osystem", &m.osystem);
    j.str("distro_series", &m.distro_series);
    j.int("status", m.status.code());
    j.str("status_name", m.status.label());
    j.opt_str("status_message", m.status_message.as_deref());
    j.opt_str("status_action", m.status_action);
    j.str("error_description", &m.error_description);
    j.opt_str("owner", m.owner.as_deref());
    j.str("power_type", &m.power_type);
    j.str("power_state", m.power.as_str());
    j.int("node_type", 0);
    j.str("node_type_name", "Machine");
    j.bool("locked", m.locked);
    j.bool("netboot", m.netboot);
    j.bool("disable_ipv4", false);
    j.bool("ephemeral_deploy", m.ephemeral_deploy);
    j.bool("enable_hw_sync", m.hw_sync);
    j.bool("enable_kernel_crash_dump", m.crash_dump);
    j.bool("is_dpu", m.is_dpu);
    j.opt_int("sync_interval", m.sync_interval);
    j.opt_str("last_sync", m.last_sync_us.map(times::iso_utc).as_deref());
    let next =
        m.last_sync_us.zip(m.sync_interval).map(|(at, step)| times::iso_utc(at + step * 1_000_000));
    j.opt_str("next_sync", next.as_deref());
    j.opt_int("swap_size", m.swap_size);
    j.opt_int("current_commissioning_result_id", m.current_commissioning);
    j.opt_int("current_testing_result_id", m.current_testing);
    j.opt_int("current_installation_result_id", m.current_installation);
    for key in
        ["address_ttl", "bios_boot_method", "hardware_uuid", "parent", "pod", "virtualmachine_id"]
    {
        j.null(key);
    }
}

fn storage(j: &mut JsonWriter, m: &Machine) {
    let id = m.system_id.as_str();
    let physical: u64 = m.disks.iter().filter(|d| d.logical.is_none()).map(|d| d.size).sum();
    j.float("storage", physical as f64 / 1e6);
    match m.disks.iter().find(|d| Some(d.id) == m.boot_disk) {
        Some(found) => j.obj("boot_disk", |j| disk(j, found, id)),
        None => j.null("boot_disk"),
    }
    let mut set = |key: &str, wanted: fn(&Disk) -> bool| {
        j.list(key, |j| {
            m.disks.iter().filter(|d| wanted(d)).for_each(|d| j.item(|j| disk(j, d, id)))
        });
    };
    set("blockdevice_set", |_| true);
    set("physicalblockdevice_set", |d| d.logical.is_none());
    set("virtualblockdevice_set", |d| d.logical.is_some());
    references(j, "volume_groups", &m.volume_groups, id);
    references(j, "bcaches", &m.bcaches, id);
    references(j, "cache_sets", &m.cache_sets, id);
    j.list("raids", |_| {});
    j.list("special_filesystems", |_| {});
}

/// The short object that an anonymous enlistment gets.
pub(crate) fn enlistment(j: &mut JsonWriter, m: &Machine, at: &Environment<'_>) {
    j.int("status", m.status.code());
    j.str("architecture", &m.architecture);
    j.str("power_state", Power::Unknown.as_str());
    j.str("status_name", m.status.label());
    j.fmt("fqdn", format_args!("{}.maas", m.hostname));
    j.str("hostname", &m.hostname);
    j.opt_str("status_action", m.status_action);
    j.int("node_type", 0);
    j.obj("domain", |j| {
        j.str("name", "maas");
        j.bool("authoritative", true);
        j.null("ttl");
        j.int("id", 0);
        j.int("resource_record_count", 0);
        j.bool("is_default", true);
    });
    j.obj("zone", |j| {
        j.str("name", at.zone.1);
        j.str("description", at.zone.2);
        j.int("id", at.zone.0);
    });
    j.opt_str("status_message", m.status_message.as_deref());
    j.str("system_id", &m.system_id);
    j.str("power_type", &m.power_type);
    j.fmt("resource_uri", format_args!("/MAAS/api/2.0/machines/{}/", m.system_id));
}
