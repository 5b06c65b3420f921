//! Operations on many machines at once.

use serde_json::{Value, json};

use super::accounts::mandatory;
use super::call::{Call, HandlerResult};
use super::commission::{begin_commissioning, commission_options};
use crate::region::Region;
use crate::status::Status;
use crate::wire::SimResponse;

const CHASSIS: &[&str] = &[
    "recs_box",
    "ucsm",
    "mscm",
    "hmcz",
    "msftocs",
    "proxmox",
    "sm15k",
    "vmware",
    "virsh",
    "powerkvm",
    "seamicro15k",
];

/// Handles `op=accept` and `op=accept_all`: enlisted machines are commissioned.
pub(super) fn accept(region: &mut Region, call: &Call<'_>) -> HandlerResult {
    let named: Vec<&str> = call.form.all("machines").collect();
    let unknown: Vec<&str> =
        named.iter().copied().filter(|id| region.key_of(id).is_none()).collect();
    if !unknown.is_empty() {
        let text = format!("Unknown machine(s): {}.", unknown.join(", "));
        return Err(SimResponse::text(400, text));
    }
    let all = call.form.get("op") == Some("accept_all");
    let wanted: Vec<u32> = region
        .machines
        .values()
        .filter(|m| m.status == Status::New && m.owner.is_none())
        .filter(|m| all || named.contains(&m.system_id.as_str()))
        .map(|m| m.key)
        .collect();
    for key in &wanted {
        let options = commission_options(region, &call.form)?;
        begin_commissioning(region, *key, &call.user, options)?;
    }
    Ok(region.machine_list_response(&wanted))
}

/// Handles `op=set_zone`.
pub(super) fn set_zone(region: &mut Region, call: &Call<'_>) -> HandlerResult {
    let zone = mandatory(call, "zone")?.to_owned();
    if !region.settings.zones.iter().any(|z| z.name == zone) {
        let text = "Select a valid choice. That choice is not one of the available choices.";
        return Err(SimResponse::invalid("zone", text));
    }
    let keys: Vec<u32> = call.form.all("nodes").filter_map(|id| region.key_of(id)).collect();
    for key in keys {
        region.edit(key, |m| m.zone.clone_from(&zone));
    }
    Ok(SimResponse::json(&Value::Null))
}

/// Handles `op=add_chassis`: no chassis is simulated, so nothing is found in one.
pub(super) fn add_chassis(_: &mut Region, call: &Call<'_>) -> HandlerResult {
    let kind = mandatory(call, "chassis_type")?;
    if !CHASSIS.contains(&kind) {
        let text = format!(
            "Invalid chassis_type: Value must be one of: {} (not '{kind}')",
            CHASSIS.join("; ")
        );
        return Err(SimResponse::text(400, text));
    }
    let hostname = mandatory(call, "hostname")?;
    let text = format!("Asking maas to add machines from chassis {hostname}");
    Ok(SimResponse::new(200, crate::wire::TEXT_BARE, text))
}

/// Handles `op=clone`: checked, and refused where nothing is named.
pub(super) fn clone(region: &mut Region, call: &Call<'_>) -> HandlerResult {
    let mut errors = Vec::new();
    let required = || "This field is required.".to_owned();
    match call.form.filled("source") {
        None => errors.push(("source", required())),
        Some(id) if region.key_of(id).is_none() => {
            errors.push(("source", format!("Source machine {id} not found.")));
        }
        Some(_) => {}
    }
    if call.form.filled("destinations").is_none() {
        errors.push(("destinations", required()));
    }
    if !call.form.django_bool("storage") && !call.form.django_bool("interfaces") {
        errors.push(("__all__", "Either storage or interfaces must be true.".to_owned()));
    }
    if errors.is_empty() {
        return Ok(SimResponse::json(&json!(null)));
    }
    Err(SimResponse::invalid_fields(&errors))
}
