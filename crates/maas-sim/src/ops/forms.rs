//! What the machine forms accept: power types, architectures, names.

use serde_json::{Map, Value};

use crate::name_index::{LookupName, SECRETS};
use crate::region::Region;
use crate::wire::{Params, SimResponse};

pub(super) fn is_mac(text: &str) -> bool {
    let pieces: Vec<&str> = text.split([':', '-']).collect();
    pieces.len() == 6
        && pieces.iter().all(|p| p.len() == 2 && p.chars().all(|c| c.is_ascii_hexdigit()))
}

/// Handles `(power type, required parameters)`.
const POWER_TYPES: &[(&str, &[&str])] = &[
    ("manual", &[]),
    ("ipmi", &["power_address"]),
    ("redfish", &["power_address", "power_user", "power_pass"]),
    ("virsh", &["power_address", "power_id"]),
    ("lxd", &["power_address", "instance_name", "project"]),
    ("webhook", &["power_on_uri", "power_off_uri", "power_query_uri"]),
    ("openbmc", &["power_address", "power_user", "power_pass"]),
    ("amt", &["power_address"]),
    ("apc", &["power_address", "node_outlet"]),
    ("dli", &["power_address"]),
    ("eaton", &["power_address", "node_outlet"]),
    ("hmc", &["power_address", "server_name", "lpar"]),
    ("hmcz", &["power_address", "power_partition_name"]),
    ("moonshot", &["power_address", "power_hwaddress"]),
    ("mscm", &["power_address", "node_id"]),
    ("msftocs", &["power_address", "blade_id"]),
    ("nova", &["nova_id"]),
    ("proxmox", &["power_address", "power_user", "power_vm_name"]),
    ("raritan", &["power_address", "node_outlet"]),
    ("recs_box", &["power_address", "node_id"]),
    ("sm15k", &["power_address", "system_id"]),
    ("ucsm", &["power_address", "uuid"]),
    ("vmware", &["power_address", "power_vm_name"]),
    ("wedge", &["power_address"]),
];

/// Types of which two machines cannot have the same BMC row (docs/maas.md#duplicate-bmc).
const OWN_BMC: &[&str] = &["ipmi", "amt", "openbmc", "webhook", "wedge"];

const IPMI_DEFAULTS: &[(&str, &str)] = &[
    ("power_driver", "LAN_2_0"),
    ("power_user", ""),
    ("power_off_mode", "hard"),
    ("cipher_suite_id", "3"),
    ("power_boot_type", "auto"),
    ("privilege_level", "OPERATOR"),
    ("k_g", ""),
    ("power_pass", ""),
    ("mac_address", ""),
];

pub(super) fn sent_power_parameters(params: &Params) -> Map<String, Value> {
    let mut out = Map::new();
    if let Some(Value::Object(map)) =
        params.filled("power_parameters").and_then(|t| serde_json::from_str(t).ok())
    {
        out.extend(map);
    }
    for (key, value) in params.iter() {
        if let Some(name) = key.strip_prefix("power_parameters_").filter(|n| *n != "skip_check") {
            out.insert(name.to_owned(), Value::from(value));
        }
    }
    out
}

/// Power type and stored parameters.
pub(super) type Power = (String, Map<String, Value>);
/// Field and message.
pub(super) type FormError = (&'static str, String);

/// The stored power parameters after this request, or the form's refusal.
pub(super) fn parse_power(
    params: &Params,
    old_type: &str,
    old: &Map<String, Value>,
) -> Result<Power, FormError> {
    let kind = params.filled("power_type").unwrap_or(old_type).to_owned();
    let Some((_, required)) = POWER_TYPES.iter().find(|(name, _)| *name == kind) else {
        if kind.is_empty() {
            return Ok((kind, Map::new()));
        }
        let text = format!("Select a valid choice. {kind} is not one of the available choices.");
        return Err(("power_type", text));
    };
    let mut all = if kind == old_type { old.clone() } else { Map::new() };
    all.extend(sent_power_parameters(params));
    let skip = params.django_bool("power_parameters_skip_check");
    let missing =
        required.iter().any(|r| all.get(*r).and_then(Value::as_str).is_none_or(str::is_empty));
    if missing && !skip {
        return Err(("power_parameters", "This field is required.".to_owned()));
    }
    if kind == "ipmi" {
        for (name, value) in IPMI_DEFAULTS {
            all.entry(*name).or_insert_with(|| Value::from(*value));
        }
        all.entry("workaround_flags").or_insert_with(|| Value::from(vec!["opensesspriv"]));
    }
    Ok((kind, all))
}

pub(super) fn parse_architecture(text: &str) -> Result<String, SimResponse> {
    let full = if text.contains('/') { text.to_owned() } else { format!("{text}/generic") };
    if full.split('/').nth(1).is_some_and(|s| s.starts_with("hwe-") || s.starts_with("ga-")) {
        return Err(SimResponse::text(
            400,
            "hwe kernel must be specified using the min_hwe_kernel argument.",
        ));
    }
    if matches!(full.as_str(), "amd64/generic" | "arm64/generic") {
        return Ok(full);
    }
    let text = format!(
        "'{text}' is not a valid architecture.  It should be one of: 'amd64/generic', 'arm64/generic'."
    );
    Err(SimResponse::invalid("architecture", text))
}

pub(super) fn hostname_error(region: &Region, name: &str, but: Option<u32>) -> Option<String> {
    if name.contains('_') {
        return Some(format!("Host label cannot contain underscore: '{name}'."));
    }
    if !name.chars().all(|c| c.is_ascii_alphanumeric() || c == '-')
        || name.starts_with('-')
        || name.ends_with('-')
    {
        return Some("Enter a valid hostname.".to_owned());
    }
    let taken = region
        .machines_named(LookupName::Host(name), |m| m.hostname == name && Some(m.key) != but)
        .count()
        > 0;
    taken.then(|| "Node with this Hostname already exists.".to_owned())
}

/// Everything a create form complains about.
pub(super) fn create_errors(
    region: &Region,
    params: &Params,
    macs: &[String],
) -> Vec<(&'static str, String)> {
    let mut errors = Vec::new();
    let required = || "This field is required.".to_owned();
    if params.filled("architecture").is_none() {
        errors.push(("architecture", required()));
    }
    if macs.is_empty() && matches!(params.filled("power_type"), None | Some("manual")) {
        errors.push(("mac_addresses", required()));
    }
    for mac in macs {
        if !is_mac(mac) {
            errors.push(("mac_addresses", format!("'{mac}' is not a valid MAC address.")));
        } else if let Some(m) =
            region.machines_named(LookupName::Mac(mac), |m| m.has_mac(mac)).next()
        {
            errors.push((
                "mac_addresses",
                format!("MAC address {mac} already in use on {}.", m.hostname),
            ));
        }
    }
    if let Some(text) = params.filled("hostname").and_then(|h| hostname_error(region, h, None)) {
        errors.push(("hostname", text));
    }
    errors
}

pub(super) fn has_duplicate_bmc(
    region: &Region,
    kind: &str,
    parameters: &Map<String, Value>,
) -> bool {
    let open = |map: &Map<String, Value>| -> Map<String, Value> {
        map.iter()
            .filter(|(k, _)| !SECRETS.contains(&k.as_str()))
            .map(|(k, v)| (k.clone(), v.clone()))
            .collect()
    };
    let mine = open(parameters);
    OWN_BMC.contains(&kind)
        && region
            .machines_named(LookupName::bmc(kind, parameters), |m| {
                m.power_type == kind && open(&m.power_parameters) == mine
            })
            .next()
            .is_some()
}
