//! What typed values claim about the JSON they were read from.

use std::collections::BTreeMap;

use crate::{
    BootResource, Event, Events, Interface, Machine, MachineDisk, PowerParameters, PowerState,
    RegionVersion, Script, ScriptSet, Subnet, Tag, TagCounts, WhoAmI,
};
use serde_json::{Value, json};

/// A JSON pointer and the value there; a pointer that ends in `#` means the length.
pub(crate) type Fact = (String, Value);

pub(crate) trait Facts {
    fn facts(&self, at: &str) -> Vec<Fact>;
}

/// Everything claimed is in the JSON; `null` and absent count as the empty value.
pub(crate) fn check(facts: &[Fact], json: &Value) -> Result<(), String> {
    for (pointer, claimed) in facts {
        let found = match pointer.strip_suffix('#') {
            Some(pointer) => json!(match json.pointer(pointer) {
                Some(Value::Array(list)) => list.len(),
                Some(Value::Object(map)) => map.len(),
                _ => 0,
            }),
            None => json.pointer(pointer).cloned().unwrap_or(Value::Null),
        };
        let empty = [json!(""), json!(0), json!(0.0), json!(false), Value::Null];
        if &found != claimed && !(found.is_null() && empty.contains(claimed)) {
            return Err(format!("{pointer} is {found}, read as {claimed}"));
        }
    }
    Ok(())
}

fn at(at: &str, rows: Vec<(&str, Value)>) -> Vec<Fact> {
    rows.into_iter().map(|(key, value)| (format!("{at}/{key}"), value)).collect()
}

impl<T: Facts> Facts for Vec<T> {
    fn facts(&self, at: &str) -> Vec<Fact> {
        let own = (format!("{at}#"), json!(self.len()));
        let items = self.iter().enumerate();
        items.flat_map(|(place, item)| item.facts(&format!("{at}/{place}"))).chain([own]).collect()
    }
}

impl<T: Facts> Facts for BTreeMap<String, T> {
    fn facts(&self, at: &str) -> Vec<Fact> {
        let own = (format!("{at}#"), json!(self.len()));
        let items = self.iter();
        items.flat_map(|(key, item)| item.facts(&format!("{at}/{key}"))).chain([own]).collect()
    }
}

impl<T: Facts> Facts for Option<T> {
    fn facts(&self, at: &str) -> Vec<Fact> {
        self.as_ref().map_or(vec![(at.to_owned(), Value::Null)], |item| item.facts(at))
    }
}

impl Facts for () {
    fn facts(&self, _: &str) -> Vec<Fact> {
        Vec::new()
    }
}

impl Facts for Value {
    fn facts(&self, at: &str) -> Vec<Fact> {
        vec![(at.to_owned(), self.clone())]
    }
}

impl Facts for Machine {
    fn facts(&self, here: &str) -> Vec<Fact> {
        let boot = self.boot_interface.as_ref();
        let mut facts = at(
            here,
            vec![
                ("system_id", json!(self.system_id)),
                ("hostname", json!(self.hostname)),
                ("fqdn", json!(self.fqdn)),
                ("status", json!(self.status)),
                ("status_name", json!(self.status_name)),
                ("status_message", json!(self.status_message)),
                ("error_description", json!(self.error_description)),
                ("owner", json!(self.owner)),
                ("power_state", json!(self.power_state)),
                ("power_type", json!(self.power_type)),
                ("architecture", json!(self.architecture)),
                ("osystem", json!(self.osystem)),
                ("distro_series", json!(self.distro_series)),
                ("hwe_kernel", json!(self.hwe_kernel)),
                ("netboot", json!(self.netboot)),
                ("locked", json!(self.locked)),
                ("boot_interface/id", json!(boot.map(|boot| boot.id))),
                ("boot_interface/mac_address", json!(boot.map(|boot| &boot.mac_address))),
                ("boot_disk/id", json!(self.boot_disk_id)),
                ("volume_groups#", json!(self.volume_group_count)),
                ("raids#", json!(self.raid_count)),
                ("bcaches#", json!(self.bcache_count)),
                ("cache_sets#", json!(self.cache_set_count)),
                ("tag_names#", json!(self.tag_names.len())),
                ("hardware_info/system_vendor", json!(self.hardware_info.system_vendor)),
                ("hardware_info/system_serial", json!(self.hardware_info.system_serial)),
                ("zone/name", json!(self.zone)),
                ("pool/name", json!(self.pool)),
                ("domain/name", json!(self.domain)),
                ("cpu_count", json!(self.cpu_count)),
                ("memory", json!(self.memory)),
                ("storage", json!(self.storage)),
                ("enable_hw_sync", json!(self.enable_hw_sync)),
                ("sync_interval", json!(self.sync_interval)),
                ("last_sync", json!(self.last_sync)),
                ("bios_boot_method", json!(self.bios_boot_method)),
                ("commissioning_status", json!(self.commissioning_status)),
                ("testing_status", json!(self.testing_status)),
                ("current_commissioning_result_id", json!(self.current_commissioning_result_id)),
                ("current_installation_result_id", json!(self.current_installation_result_id)),
            ],
        );
        facts.extend(self.interface_set.facts(&format!("{here}/interface_set")));
        facts
            .extend(self.physicalblockdevice_set.facts(&format!("{here}/physicalblockdevice_set")));
        facts
    }
}

impl Facts for Interface {
    fn facts(&self, here: &str) -> Vec<Fact> {
        let mut facts = at(
            here,
            vec![
                ("id", json!(self.id)),
                ("name", json!(self.name)),
                ("type", json!(self.kind)),
                ("mac_address", json!(self.mac_address)),
                ("vlan/id", json!(self.vlan.as_ref().map(|vlan| vlan.id))),
                ("vlan/vid", json!(self.vlan.as_ref().map(|vlan| vlan.vid))),
                ("vlan/fabric", json!(self.vlan.as_ref().map(|vlan| &vlan.fabric))),
                ("vlan/dhcp_on", json!(self.vlan.as_ref().map(|vlan| vlan.dhcp_on))),
                ("links#", json!(self.links.len())),
                ("link_connected", json!(self.link_connected)),
                ("interface_speed", json!(self.interface_speed)),
                ("enabled", json!(self.enabled)),
                ("tags#", json!(self.tags.len())),
            ],
        );
        for (place, link) in self.links.iter().enumerate() {
            let subnet = link.subnet.as_ref();
            facts.extend(at(
                &format!("{here}/links/{place}"),
                vec![
                    ("id", json!(link.id)),
                    ("mode", json!(link.mode)),
                    ("ip_address", json!(link.ip_address)),
                    ("subnet/id", json!(subnet.map(|subnet| subnet.id))),
                    ("subnet/cidr", json!(subnet.map(|subnet| &subnet.cidr))),
                ],
            ));
        }
        facts
    }
}

impl Facts for MachineDisk {
    fn facts(&self, here: &str) -> Vec<Fact> {
        let mut facts = at(
            here,
            vec![
                ("id", json!(self.id)),
                ("name", json!(self.name)),
                ("model", json!(self.model)),
                ("serial", json!(self.serial)),
                ("size", json!(self.size)),
                ("numa_node", json!(self.numa_node)),
                ("filesystem/fstype", json!(self.filesystem.as_ref().map(|fs| &fs.fstype))),
                ("tags#", json!(self.tags.len())),
                ("partitions#", json!(self.partitions.len())),
            ],
        );
        for (place, partition) in self.partitions.iter().enumerate() {
            let filesystem = partition.filesystem.as_ref();
            facts.extend(at(
                &format!("{here}/partitions/{place}"),
                vec![
                    ("size", json!(partition.size)),
                    ("filesystem/fstype", json!(filesystem.map(|fs| &fs.fstype))),
                    ("filesystem/mount_point", json!(filesystem.map(|fs| &fs.mount_point))),
                ],
            ));
        }
        facts
    }
}

impl Facts for PowerParameters {
    /// Numbers become text, so only text is claimed.
    fn facts(&self, here: &str) -> Vec<Fact> {
        at(
            here,
            vec![
                ("power_address", json!(self.power_address)),
                ("power_user", json!(self.power_user)),
                ("power_driver", json!(self.power_driver)),
                ("mac_address", json!(self.mac_address)),
            ],
        )
    }
}

impl Facts for RegionVersion {
    fn facts(&self, here: &str) -> Vec<Fact> {
        at(here, vec![("version", json!(self.version)), ("capabilities", json!(self.capabilities))])
    }
}

impl Facts for WhoAmI {
    fn facts(&self, here: &str) -> Vec<Fact> {
        at(
            here,
            vec![("username", json!(self.username)), ("is_superuser", json!(self.is_superuser))],
        )
    }
}

impl Facts for PowerState {
    fn facts(&self, here: &str) -> Vec<Fact> {
        at(here, vec![("state", json!(self.state))])
    }
}

impl Facts for Tag {
    fn facts(&self, here: &str) -> Vec<Fact> {
        at(here, vec![("name", json!(self.name)), ("comment", json!(self.comment))])
    }
}

impl Facts for TagCounts {
    fn facts(&self, here: &str) -> Vec<Fact> {
        at(here, vec![("added", json!(self.added)), ("removed", json!(self.removed))])
    }
}

impl Facts for Subnet {
    fn facts(&self, here: &str) -> Vec<Fact> {
        at(
            here,
            vec![
                ("id", json!(self.id)),
                ("cidr", json!(self.cidr)),
                ("gateway_ip", json!(self.gateway_ip)),
                ("vlan/id", json!(self.vlan.as_ref().map(|vlan| vlan.id))),
            ],
        )
    }
}

impl Facts for BootResource {
    fn facts(&self, here: &str) -> Vec<Fact> {
        at(
            here,
            vec![
                ("id", json!(self.id)),
                ("type", json!(self.kind)),
                ("name", json!(self.name)),
                ("architecture", json!(self.architecture)),
                ("sets#", json!(self.sets.len())),
            ],
        )
    }
}

impl Facts for Script {
    fn facts(&self, here: &str) -> Vec<Fact> {
        at(
            here,
            vec![
                ("id", json!(self.id)),
                ("name", json!(self.name)),
                ("type", json!(self.kind)),
                ("timeout", json!(self.timeout)),
                ("tags", json!(self.tags)),
                ("default", json!(self.default)),
                ("for_hardware#", json!(self.for_hardware.len())),
                ("history#", json!(self.history.len())),
            ],
        )
    }
}

impl Facts for ScriptSet {
    fn facts(&self, here: &str) -> Vec<Fact> {
        let mut facts = at(
            here,
            vec![
                ("id", json!(self.id)),
                ("status", json!(self.status)),
                ("type", json!(self.kind)),
                ("results#", json!(self.results.len())),
            ],
        );
        for (place, result) in self.results.iter().enumerate() {
            facts.extend(at(
                &format!("{here}/results/{place}"),
                vec![
                    ("id", json!(result.id)),
                    ("name", json!(result.name)),
                    ("status", json!(result.status)),
                    ("exit_status", json!(result.exit_status)),
                ],
            ));
        }
        facts
    }
}

impl Facts for Events {
    fn facts(&self, here: &str) -> Vec<Fact> {
        let mut facts = at(here, vec![("count", json!(self.count))]);
        facts.extend(self.events.facts(&format!("{here}/events")));
        facts
    }
}

impl Facts for Event {
    /// Every time must be readable, and every status change.
    fn facts(&self, here: &str) -> Vec<Fact> {
        let readable = self.created_seconds().is_some();
        let changed = self.kind == crate::STATUS_CHANGED;
        assert!(readable, "{here}: created {}", self.created);
        assert_eq!(changed, self.status_change().is_some(), "{here}: {}", self.description);
        at(
            here,
            vec![
                ("id", json!(self.id)),
                ("level", json!(self.level)),
                ("type", json!(self.kind)),
                ("description", json!(self.description)),
                ("node", json!(self.node)),
            ],
        )
    }
}
