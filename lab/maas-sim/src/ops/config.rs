//! The region's version and its settings.

use serde_json::{Value, json};

use super::call::{Call, HandlerResult};
use crate::region::Region;
use crate::settings::{CHOICES, NAMES};
use crate::times;
use crate::wire::{JSON, JSON_BARE, SimResponse, TEXT_BARE};

/// What says to whoever asks that the machines of this region are made up; releases of MAAS leave the
/// field empty, and packages of it put a revision there.
const SUBVERSION: &str = "simulated";

/// Handles `GET version/`: compact, the one answer that is not pretty-printed.
pub(super) fn version(region: &mut Region, _: &Call<'_>) -> HandlerResult {
    let value = json!({
        "capabilities": ["networks-management", "static-ipaddresses", "ipv6-deployment-ubuntu", "devices-management",
            "storage-deployment-ubuntu", "network-deployment-ubuntu", "bridging-interface-ubuntu",
            "bridging-automatic-ubuntu", "authenticate-api"],
        "version": region.cfg.version,
        "subversion": SUBVERSION,
    });
    Ok(SimResponse::new(200, JSON, value.to_string()))
}

fn unknown_setting(name: &str) -> SimResponse {
    let text =
        format!("{name} is not a valid config setting (valid settings are: {}).", NAMES.join(", "));
    let mut response = SimResponse::invalid(name, text);
    response.content_type = JSON_BARE;
    response
}

/// Handles `maas/?op=get_config`.
pub(super) fn get_config(region: &mut Region, call: &Call<'_>) -> HandlerResult {
    let name =
        call.query.filled("name").ok_or_else(|| SimResponse::text(400, "No provided name!"))?;
    let value = region.settings.get(name).ok_or_else(|| unknown_setting(name))?;
    Ok(SimResponse::new(200, JSON_BARE, value.to_string()))
}

/// What the form of a setting refuses.
fn check_setting(region: &Region, name: &str, value: &str) -> Result<(), SimResponse> {
    if let Some((_, choices)) = CHOICES.iter().find(|(n, _)| *n == name)
        && !choices.contains(&value)
    {
        let text = format!("Select a valid choice. {value} is not one of the available choices.");
        return Err(SimResponse::invalid(name, text));
    }
    if matches!(name, "commissioning_distro_series" | "default_distro_series") {
        let series = region.images.series();
        let bare = value.strip_prefix("ubuntu/").unwrap_or(value);
        if !series.contains(&bare) {
            let list: Vec<String> = series.iter().map(|s| format!("'{s}'")).collect();
            let text = format!(
                "'{value}' is not a valid {name}.  It should be one of: {}.",
                list.join(", ")
            );
            return Err(SimResponse::invalid(name, text));
        }
    }
    let number = matches!(region.settings.get(name), Some(Value::Number(_)));
    if number && value.trim().parse::<i64>().is_err() {
        return Err(SimResponse::invalid(name, "Enter a whole number."));
    }
    Ok(())
}

/// Handles `maas/ op=set_config`.
pub(super) fn set_config(region: &mut Region, call: &Call<'_>) -> HandlerResult {
    let name =
        call.form.filled("name").ok_or_else(|| SimResponse::text(400, "No provided name!"))?;
    let value =
        call.form.get("value").ok_or_else(|| SimResponse::text(400, "No provided value!"))?;
    if !NAMES.contains(&name) {
        return Err(unknown_setting(name));
    }
    check_setting(region, name, value)?;
    if name == "hardware_sync_interval" && times::interval_seconds(value).is_none() {
        let text = format!(
            "'{value}' is not a valid interval. Only 'h|hr|hour|hours, m|min|minute|minutes.s|sec|second|seconds' are valid units"
        );
        return Err(SimResponse::invalid(name, text));
    }
    if name == "default_min_hwe_kernel" && !value.is_empty() && !region.images.has_any_kernel(value)
    {
        let list = "'', 'ga-22.04', 'hwe-22.04', 'hwe-22.04-edge'";
        let text = format!(
            "'{value}' is not a valid default_min_hwe_kernel.  It should be one of: {list}."
        );
        return Err(SimResponse::invalid(name, text));
    }
    let typed = match region.settings.get(name) {
        Some(Value::Bool(_)) => Value::Bool(call.form.django_bool("value")),
        Some(Value::Number(_)) => value.parse::<i64>().map_or_else(|_| json!(value), |n| json!(n)),
        _ => json!(value),
    };
    region.settings.set(name, typed);
    Ok(SimResponse::new(200, TEXT_BARE, "OK"))
}
