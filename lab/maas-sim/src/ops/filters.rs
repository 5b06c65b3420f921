//! Which machines a list, an allocation or an event query means.

use super::call::Call;
use super::forms::is_mac;
use crate::model::Machine;
use crate::name_index::LookupName;
use crate::region::Region;
use crate::status::Status;
use crate::wire::{Params, SimResponse};

/// Filters of the list that this simulator evaluates; the other constraints of MAAS are
/// accepted and match everything.
const FILTERS: &[&str] = &[
    "id",
    "hostname",
    "name",
    "system_id",
    "mac_address",
    "domain",
    "zone",
    "pool",
    "agent_name",
    "owner",
    "status",
    "power_state",
    "arch",
    "tags",
    "cpu_count",
    "mem",
    "fabrics",
    "vlans",
    "subnets",
];

const ACCEPTED: &[&str] = &[
    "link_speed",
    "pod",
    "pod_type",
    "devices",
    "interfaces",
    "storage",
    "simple_status",
    "description",
    "workloads",
    "distro_series",
    "osystem",
    "error_description",
    "parent",
    "ip_addresses",
    "spaces",
    "fabric_classes",
];

/// Whether MAAS knows this constraint or its `not_` twin.
pub(super) fn is_constraint(name: &str) -> bool {
    let bare = name.strip_prefix("not_").unwrap_or(name);
    let bare = if bare == "in_zone" {
        "zone"
    } else if bare == "in_pool" {
        "pool"
    } else {
        bare
    };
    FILTERS.contains(&bare) || ACCEPTED.contains(&bare)
}

fn check_filter(region: &Region, name: &str, value: &str) -> Result<(), SimResponse> {
    let bare = name.strip_prefix("not_").unwrap_or(name);
    match bare {
        "status" if Status::from_filter_name(value).is_none() => {
            let text =
                format!("Select a valid choice. {value} is not one of the available choices.");
            Err(SimResponse::invalid(name, text))
        }
        "power_state" if !matches!(value, "on" | "off" | "unknown" | "error") => {
            let text =
                format!("Select a valid choice. {value} is not one of the available choices.");
            Err(SimResponse::invalid(name, text))
        }
        "arch" if !matches!(value, "amd64" | "arm64" | "amd64/generic" | "arm64/generic") => {
            Err(SimResponse::invalid(name, "Architecture not recognised."))
        }
        "cpu_count" if value.parse::<f64>().is_err() => {
            Err(SimResponse::invalid(name, "Invalid CPU count: number required."))
        }
        "mem" if value.parse::<f64>().is_err() => {
            Err(SimResponse::invalid(name, "Invalid memory: number of MiB required."))
        }
        "subnets" if region.net.subnet_by_text(value).is_none() => {
            Err(SimResponse::invalid(name, "No matching subnets found."))
        }
        "vlans" if !value.parse().is_ok_and(|id| region.net.vlan_by_id(id).is_some()) => {
            Err(SimResponse::invalid(name, "No matching VLANs found."))
        }
        "storage" if disk_sizes(value).is_none() => {
            let text = format!("Malformed storage constraint, \"{value}\".");
            Err(SimResponse::invalid(name, text))
        }
        "interfaces" if !is_labelled(value) => {
            let text = format!(
                "Malformed constraint: '{value}' (required format: '<label>:<key>=<value>[,<key2>=<value2>[,...]]')"
            );
            Err(SimResponse::invalid(name, text))
        }
        "mac_address" if !is_mac(value) => {
            Err(SimResponse::invalid(name, format!("'{value}' is not a valid MAC address.")))
        }
        "zone" | "in_zone" if !region.settings.zones.iter().any(|z| z.name == value) => {
            Err(SimResponse::invalid(name, format!("No such zone(s): {value}.")))
        }
        "pool" | "in_pool" if !region.settings.pools.iter().any(|p| p.name == value) => {
            Err(SimResponse::invalid(name, format!("No such pool(s): {value}.")))
        }
        "tags" if !region.settings.tags.iter().any(|t| t.name == value) => {
            Err(SimResponse::invalid(name, format!("No such tag(s): '{value}'.")))
        }
        _ => Ok(()),
    }
}

/// Least sizes in GB of a storage constraint, `[LABEL:]SIZE[(TAGS)],…`; `None` for other text.
fn disk_sizes(text: &str) -> Option<Vec<f64>> {
    text.split(',')
        .map(|piece| {
            let size = piece.rsplit_once(':').map_or(piece, |(_, size)| size);
            size.split('(').next().unwrap_or("").trim().parse().ok()
        })
        .collect()
}

/// `LABEL:KEY=VALUE[,KEY=VALUE]`, several of them divided by `;`.
fn is_labelled(text: &str) -> bool {
    text.split(';').all(|one| {
        one.split_once(':').is_some_and(|(label, rest)| {
            !label.is_empty() && rest.split(',').all(|p| p.contains('='))
        })
    })
}

fn has_disks(m: &Machine, wanted: &str) -> bool {
    let mut free: Vec<f64> =
        m.disks.iter().filter(|d| d.logical.is_none()).map(|d| d.size as f64 / 1e9).collect();
    disk_sizes(wanted).unwrap_or_default().into_iter().all(|size| {
        let found = free.iter().position(|disk| *disk >= size);
        found.map(|at| free.remove(at)).is_some()
    })
}

fn matches_filter(region: &Region, m: &Machine, name: &str, value: &str) -> bool {
    let number = || value.parse::<f64>().unwrap_or(0.0);
    match name {
        "id" | "system_id" => m.system_id == value,
        "hostname" => m.hostname == value,
        "name" => m.hostname == value || format!("{}.maas", m.hostname) == value,
        "mac_address" => m.has_mac(value),
        "domain" => value == "maas",
        "zone" | "in_zone" => m.zone == value,
        "pool" | "in_pool" => m.pool == value,
        "agent_name" => m.agent_name == value,
        "owner" => m.owner.as_deref() == Some(value),
        "status" => m.status.filter_name() == value,
        "power_state" => m.power.as_str() == value,
        "arch" => m.architecture == value || m.architecture.starts_with(&format!("{value}/")),
        "tags" => m.tags.iter().any(|t| t == value),
        "storage" => has_disks(m, value),
        // Nothing here is part of a pod.
        "pod" | "pod_type" => false,
        "cpu_count" => m.cpu_count as f64 >= number(),
        "mem" => m.memory as f64 >= number(),
        "subnets" => {
            let wanted = region.net.subnet_by_text(value).map(|s| s.id);
            m.nics.iter().flat_map(|n| &n.links).any(|l| l.subnet.is_some() && l.subnet == wanted)
        }
        "vlans" => m.nics.iter().any(|n| n.vlan.is_some_and(|v| v.to_string() == value)),
        "fabrics" => m
            .nics
            .iter()
            .filter_map(|n| n.vlan.and_then(|v| region.net.vlan_by_id(v)))
            .any(|v| region.net.fabric_name(v.fabric) == value || v.fabric.to_string() == value),
        _ => true,
    }
}

/// Machines that the caller sees and that match: OR within a key (AND for tags), AND between.
pub(super) fn select_machines(
    region: &Region,
    params: &Params,
    call: &Call<'_>,
) -> Result<Vec<u32>, SimResponse> {
    for (name, value) in params.iter().filter(|(k, _)| is_constraint(k)) {
        check_filter(region, name, value)?;
    }
    Ok(matching_machines(region, params, call))
}

/// [`select_machines`] that takes every value as it is: an unknown one matches nothing.
pub(super) fn matching_machines(region: &Region, params: &Params, call: &Call<'_>) -> Vec<u32> {
    let mut groups: Vec<(&str, Vec<&str>)> = Vec::new();
    for (name, value) in params.iter().filter(|(k, _)| is_constraint(k)) {
        match groups.iter_mut().find(|(k, _)| *k == name) {
            Some((_, values)) => values.push(value),
            None => groups.push((name, vec![value])),
        }
    }
    let fits = |m: &Machine| {
        groups.iter().all(|(name, values)| match name.strip_prefix("not_") {
            Some(bare) => !values.iter().any(|v| matches_filter(region, m, bare, v)),
            None if *name == "tags" => values.iter().all(|v| matches_filter(region, m, name, v)),
            None => values.iter().any(|v| matches_filter(region, m, name, v)),
        })
    };
    let seen = |m: &Machine| call.admin || m.owner.as_deref().is_none_or(|o| o == call.user);
    let walk = || -> Vec<u32> {
        region.machines.values().filter(|m| seen(m) && fits(m)).map(|m| m.key).collect()
    };
    let Some(mut keys) =
        groups.iter().find_map(|(name, values)| candidates_by_name(region, name, values))
    else {
        return walk();
    };
    keys.sort_unstable();
    keys.dedup();
    keys.retain(|k| region.machine(*k).is_some_and(|m| seen(m) && fits(m)));
    debug_assert_eq!(keys, walk(), "a lookup by name must find the same machines as a full scan");
    keys
}

/// Whom a filter can mean at most; none where only a walk over the fleet tells.
fn candidates_by_name(region: &Region, filter: &str, values: &[&str]) -> Option<Vec<u32>> {
    let all = |name: fn(&str) -> LookupName<'_>| {
        values.iter().flat_map(|value| region.names.candidates(name(value))).collect()
    };
    match filter {
        "id" | "system_id" => Some(values.iter().filter_map(|id| region.key_of(id)).collect()),
        "hostname" => Some(all(|value| LookupName::Host(value))),
        "name" => Some(all(|value| LookupName::Host(value.strip_suffix(".maas").unwrap_or(value)))),
        "mac_address" => Some(all(|value| LookupName::Mac(value))),
        _ => None,
    }
}
