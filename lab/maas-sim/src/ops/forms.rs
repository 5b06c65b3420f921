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

/// Types of which two machines cannot have the same BMC row (docs/maas.md#duplicate-bmc).
const OWN_BMC: &[&str] = &["ipmi", "amt", "openbmc", "webhook", "wedge"];

/// Field and message.
pub(super) type FormError = (&'static str, String);

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

/// The host part of a name that may carry the region's domain.
pub(super) fn host_part(name: &str) -> &str {
    name.strip_suffix(".maas").unwrap_or(name)
}

/// What MAAS refuses of a DNS name.
fn name_error(name: &str) -> Option<String> {
    if name.len() > 255 {
        return Some("Hostname is too long.  Maximum allowed is 255 characters.".to_owned());
    }
    let host = name.split('.').next().unwrap_or("");
    if host.contains('_') {
        return Some(format!("Host label cannot contain underscore: '{host}'."));
    }
    name.split('.').find_map(|label| {
        if label.is_empty() {
            Some("DNS name contains an empty label.".to_owned())
        } else if label.len() > 63 {
            Some(format!("Label is too long: '{label}'.  Maximum allowed is 63 characters."))
        } else if label.starts_with('-') || label.ends_with('-') {
            Some(format!("Label cannot start or end with hyphen: '{label}'."))
        } else if !label.chars().all(|c| c.is_ascii_alphanumeric() || c == '-') {
            Some(format!("Label contains disallowed characters: '{label}'."))
        } else {
            None
        }
    })
}

pub(super) fn hostname_error(region: &Region, name: &str, but: Option<u32>) -> Option<String> {
    if let Some(text) = name_error(name) {
        return Some(text);
    }
    let host = host_part(name);
    if host.contains('.') {
        return Some("Nonexistant domain.".to_owned());
    }
    let taken = region
        .machines_named(LookupName::Host(host), |m| m.hostname == host && Some(m.key) != but)
        .count()
        > 0;
    taken.then(|| "Node with this Hostname already exists.".to_owned())
}

/// What the forms of create and update both complain about.
pub(super) fn common_errors(region: &Region, params: &Params, but: Option<u32>) -> Vec<FormError> {
    let mut errors = Vec::new();
    if let Some(text) = params.filled("hostname").and_then(|h| hostname_error(region, h, but)) {
        errors.push(("hostname", text));
    }
    let choice = "Select a valid choice. That choice is not one of the available choices.";
    if params.filled("zone").is_some_and(|z| !region.settings.zones.iter().any(|g| g.name == z)) {
        errors.push(("zone", choice.to_owned()));
    }
    if params.filled("pool").is_some_and(|p| !region.settings.pools.iter().any(|g| g.name == p)) {
        errors.push(("pool", choice.to_owned()));
    }
    if let Some(name) = params.filled("domain").filter(|d| !matches!(*d, "maas" | "0")) {
        errors.push(("domain", format!("Unable to find domain {name}")));
    }
    for field in ["cpu_count", "memory"] {
        if params.filled(field).is_some_and(|n| n.trim().parse::<i64>().is_err()) {
            errors.push((field, "Enter a whole number.".to_owned()));
        }
    }
    if let Some(size) = params.filled("swap_size") {
        let digits = size.trim_end_matches(['K', 'M', 'G', 'T']);
        if digits.parse::<i64>().is_err() {
            errors.push(("swap_size", format!("Invalid size for swap: {size}")));
        }
    }
    errors
}

/// A kernel that machines must at least have: refused where it is none, or none is so new.
pub(super) fn check_min_kernel(
    region: &Region,
    params: &Params,
    errors: &mut Vec<FormError>,
) -> Result<(), SimResponse> {
    let Some(kernel) = params.filled("min_hwe_kernel") else {
        return Ok(());
    };
    if !kernel.starts_with("hwe-") && !kernel.starts_with("ga-") {
        let text = "min_hwe_kernel must start with \"hwe-\" or \"ga-\"";
        return Err(SimResponse::text(400, text));
    }
    if !region.images.has_any_kernel(kernel) {
        let text = format!("No kernel matches \">={kernel}\" requirement.");
        errors.push(("min_hwe_kernel", text));
    }
    Ok(())
}

/// Everything a create form complains about, but for its power.
pub(super) fn create_errors(region: &Region, params: &Params, macs: &[String]) -> Vec<FormError> {
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
    errors.extend(common_errors(region, params, None));
    errors
}

pub(super) fn has_duplicate_bmc(
    region: &Region,
    kind: &str,
    parameters: &Map<String, Value>,
    but: Option<u32>,
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
                Some(m.key) != but && m.power_type == kind && open(&m.power_parameters) == mine
            })
            .next()
            .is_some()
}
