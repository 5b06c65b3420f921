//! Machines: list, read, create, update, delete.

use serde_json::{Map, Value};

use super::forms::{architecture, create_errors, hostname_error, is_mac, power, same_bmc};
use super::{Answer, Call, actions};
use crate::hardware::NewMachine;
use crate::model::{Machine, ScriptState, SetKind};
use crate::names::Name;
use crate::region::Region;
use crate::status::Status;
use crate::wire::{HTML, Params, Response};

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

fn check_filter(region: &Region, name: &str, value: &str) -> Result<(), Response> {
    let bare = name.strip_prefix("not_").unwrap_or(name);
    match bare {
        "status" if Status::from_word(value).is_none() => {
            let text =
                format!("Select a valid choice. {value} is not one of the available choices.");
            Err(Response::invalid(name, text))
        }
        "mac_address" if !is_mac(value) => {
            Err(Response::invalid(name, format!("'{value}' is not a valid MAC address.")))
        }
        "zone" | "in_zone" if !region.settings.zones.iter().any(|z| z.name == value) => {
            Err(Response::invalid(name, format!("No such zone(s): {value}.")))
        }
        "pool" | "in_pool" if !region.settings.pools.iter().any(|p| p.name == value) => {
            Err(Response::invalid(name, format!("No such pool(s): {value}.")))
        }
        "tags" if !region.settings.tags.iter().any(|t| t.name == value) => {
            Err(Response::invalid(name, format!("No such tag(s): '{value}'.")))
        }
        _ => Ok(()),
    }
}

fn matches(region: &Region, m: &Machine, name: &str, value: &str) -> bool {
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
        "status" => m.status.word() == value,
        "power_state" => m.power.word() == value,
        "arch" => m.architecture == value || m.architecture.starts_with(&format!("{value}/")),
        "tags" => m.tags.iter().any(|t| t == value),
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
pub(super) fn select(
    region: &Region,
    params: &Params,
    call: &Call<'_>,
) -> Result<Vec<u32>, Response> {
    let mut groups: Vec<(&str, Vec<&str>)> = Vec::new();
    for (name, value) in params.iter().filter(|(k, _)| is_constraint(k)) {
        check_filter(region, name, value)?;
        match groups.iter_mut().find(|(k, _)| *k == name) {
            Some((_, values)) => values.push(value),
            None => groups.push((name, vec![value])),
        }
    }
    let fits = |m: &Machine| {
        groups.iter().all(|(name, values)| match name.strip_prefix("not_") {
            Some(bare) => !values.iter().any(|v| matches(region, m, bare, v)),
            None if *name == "tags" => values.iter().all(|v| matches(region, m, name, v)),
            None => values.iter().any(|v| matches(region, m, name, v)),
        })
    };
    let seen = |m: &Machine| call.admin || m.owner.as_deref().is_none_or(|o| o == call.user);
    let walk = || -> Vec<u32> {
        region.machines.values().filter(|m| seen(m) && fits(m)).map(|m| m.key).collect()
    };
    let Some(mut keys) = groups.iter().find_map(|(name, values)| named(region, name, values))
    else {
        return Ok(walk());
    };
    keys.sort_unstable();
    keys.dedup();
    keys.retain(|k| region.machine(*k).is_some_and(|m| seen(m) && fits(m)));
    debug_assert_eq!(keys, walk(), "what is found by name is what a walk finds");
    Ok(keys)
}

/// Whom a filter can mean at most; none where only a walk over the fleet tells.
fn named(region: &Region, filter: &str, values: &[&str]) -> Option<Vec<u32>> {
    let all = |name: fn(&str) -> Name<'_>| {
        values.iter().flat_map(|value| region.names.candidates(name(value))).collect()
    };
    match filter {
        "id" | "system_id" => Some(values.iter().filter_map(|id| region.key_of(id)).collect()),
        "hostname" => Some(all(|value| Name::Host(value))),
        "name" => Some(all(|value| Name::Host(value.strip_suffix(".maas").unwrap_or(value)))),
        "mac_address" => Some(all(|value| Name::Mac(value))),
        _ => None,
    }
}

/// `GET machines/`.
pub(super) fn list(region: &mut Region, call: &Call<'_>) -> Answer {
    for (name, _) in call.query.iter() {
        if name != "op" && !is_constraint(name) {
            return Err(Response::invalid(name, "No such constraint."));
        }
    }
    if call.query.has("simple_status") {
        return Err(Response::text(500, "Unsupported lookup 'simple_status'"));
    }
    let keys = select(region, &call.query, call)?;
    Ok(region.show_list(&keys))
}

/// `op=list_allocated`.
pub(super) fn list_allocated(region: &mut Region, call: &Call<'_>) -> Answer {
    let mut keys = select(region, &Params::default(), call)?;
    keys.retain(|k| {
        region.machine(*k).is_some_and(|m| {
            m.status == Status::Allocated && m.owner.as_deref() == Some(&call.user)
        })
    });
    Ok(region.show_list(&keys))
}

/// `GET machines/ID/`.
pub(super) fn read(region: &mut Region, call: &Call<'_>) -> Answer {
    let key = region.find(call.part(0))?;
    let hidden = region
        .machine(key)
        .is_some_and(|m| !call.admin && m.owner.as_deref().is_some_and(|o| o != call.user));
    if hidden {
        return Err(Response::forbidden());
    }
    Ok(region.show(key))
}

/// `nodes/?op=is_registered`.
pub(super) fn is_registered(region: &mut Region, call: &Call<'_>) -> Answer {
    let mac = call.query.get("mac_address").unwrap_or("");
    let found = region.called(Name::Mac(mac), |m| m.has_mac(mac)).next().is_some();
    Ok(Response::json(&Value::Bool(found)))
}

/// `machines/?op=power_parameters`.
pub(super) fn all_power_parameters(region: &mut Region, call: &Call<'_>) -> Answer {
    let ids: Vec<&str> = call.query.all("id").collect();
    let mut out = Map::new();
    for m in region.machines.values() {
        if ids.is_empty() || ids.contains(&m.system_id.as_str()) {
            out.insert(m.system_id.clone(), Value::Object(m.power_parameters.clone()));
        }
    }
    Ok(Response::json(&Value::Object(out)))
}

/// `machines/ID/?op=power_parameters`.
pub(super) fn power_parameters(region: &mut Region, call: &Call<'_>) -> Answer {
    let key = region.find(call.part(0))?;
    if !call.admin {
        return Err(Response::forbidden());
    }
    let parameters = region.machine(key).map(|m| m.power_parameters.clone()).unwrap_or_default();
    Ok(Response::json(&Value::Object(parameters)))
}

/// `op=get_token`: none before the machine has booted once.
pub(super) fn token(region: &mut Region, call: &Call<'_>) -> Answer {
    region.find(call.part(0))?;
    Ok(Response::json(&Value::Null))
}

/// The page of a database conflict that retrying never cures (docs/maas.md#duplicate-bmc).
fn conflict_page() -> Response {
    const PAGE: &str = "<!DOCTYPE html PUBLIC \"-//W3C//DTD XHTML 1.0 Transitional//EN\" \"http://www.w3.org/TR/xhtml1/DTD/xhtml1-transitional.dtd\">\n<html xmlns=\"http://www.w3.org/1999/xhtml\" xml:lang=\"en\" lang=\"en\">\n  <head>\n    <title>Error: Conflict Error</title>\n  </head>\n  <body>\n    <h2 class=\"p-heading--four\">\n      Conflict error. Try your request again, as it will most likely succeed.\n    </h2>\n  </body>\n</html>\n";
    Response::new(409, HTML, PAGE).header("Retry-After", "5")
}

/// `POST machines/`: 200, and the machine boots right away unless `commission` is false.
pub(super) fn create(region: &mut Region, call: &Call<'_>) -> Answer {
    let form = &call.form;
    let arch = form.filled("architecture").map(architecture);
    if let Some(Err(refusal)) = &arch
        && refusal.content_type == crate::wire::TEXT
    {
        return Err(refusal.clone());
    }
    let macs: Vec<String> =
        form.all("mac_addresses").filter(|m| !m.is_empty()).map(str::to_lowercase).collect();
    if call.user.is_empty()
        && let Some(key) = enlisting(region, &macs)
    {
        return Ok(region.enlisted(key));
    }
    let errors = create_errors(region, form, &macs);
    if !errors.is_empty() {
        return Err(Response::invalid_all(&errors));
    }
    let architecture = arch.unwrap_or_else(|| Ok("amd64/generic".to_owned()))?;
    let (power_type, power_parameters) =
        power(form, "", &Map::new()).map_err(|(field, text)| Response::invalid(field, text))?;
    let deployed = form.string_bool("deployed", false)?;
    let commission = form.string_bool("commission", call.admin)? && call.admin && !deployed;
    if same_bmc(region, &power_type, &power_parameters) {
        let wait = (26e6 * region.cfg.scale.min(1.0)) as i64;
        return Err(conflict_page().delayed(wait));
    }
    let hostname = form
        .filled("hostname")
        .map_or_else(|| pet_name(region, &macs, &power_parameters), str::to_owned);
    let key = region.create_record(NewMachine {
        hostname,
        macs,
        architecture,
        power_type,
        power_parameters,
    });
    apply_fields(region, key, form);
    if deployed {
        adopt(region, key, &call.user);
    } else if commission {
        // Errors of the implicit commissioning form are ignored: the machine stays New.
        if let Ok(options) = actions::commission_options(region, form) {
            return actions::begin_commissioning(region, key, &call.user, options);
        }
    }
    if call.user.is_empty() {
        return Ok(region.enlisted(key));
    }
    Ok(region.show(key))
}

/// A machine that enlisted with one of these MACs and is asked for again.
fn enlisting(region: &Region, macs: &[String]) -> Option<u32> {
    let known = |mac: &String| {
        let is =
            |m: &Machine| matches!(m.status, Status::New | Status::Commissioning) && m.has_mac(mac);
        region.called(Name::Mac(mac), is).map(|m| m.key).next()
    };
    macs.iter().filter_map(known).min()
}

/// The name of a machine created without one: the rack's name for a racked machine, as a reverse
/// lookup of its address would give; else MAAS's pets, here numbered.
fn pet_name(region: &mut Region, macs: &[String], parameters: &Map<String, Value>) -> String {
    let bmc = parameters.get("power_address").and_then(Value::as_str).unwrap_or("");
    let host =
        macs.iter().find_map(|m| region.host_by_mac.get(m)).or_else(|| region.host_by_bmc.get(bmc));
    let rack = host.map(|i| region.hosts[*i].name.clone());
    rack.filter(|name| hostname_error(region, name, None).is_none())
        .unwrap_or_else(|| format!("sure-pet{}", region.next_id("pet")))
}

fn adopt(region: &mut Region, key: u32, user: &str) {
    let scripts = crate::lifecycle::COMMISSIONING_SCRIPTS.iter().map(|s| (*s).to_owned()).collect();
    let set = region.new_set(key, SetKind::Commissioning, scripts);
    region.edit(key, |m| {
        m.status = Status::Deployed;
        m.owner = Some(user.to_owned());
        m.was_deployed = true;
        m.current_commissioning = Some(set);
        m.commissioning_state = ScriptState::Pending;
    });
    let at_us = region.now;
    region.log(key, crate::stats::LogEntry::Status { at_us, name: Status::Deployed.label() });
}

fn apply_fields(region: &mut Region, key: u32, params: &Params) {
    let text = |name: &str| params.get(name).map(str::to_owned);
    let (description, zone, pool) = (text("description"), text("zone"), text("pool"));
    let (hwe, swap) =
        (text("min_hwe_kernel"), params.filled("swap_size").and_then(|s| s.parse().ok()));
    let (cpu, memory) = (
        params.filled("cpu_count").and_then(|s| s.parse().ok()),
        params.filled("memory").and_then(|s| s.parse().ok()),
    );
    let dpu = params.has("is_dpu").then(|| params.django_bool("is_dpu"));
    region.edit(key, |m| {
        m.description = description.unwrap_or(std::mem::take(&mut m.description));
        m.zone = zone.unwrap_or(std::mem::take(&mut m.zone));
        m.pool = pool.unwrap_or(std::mem::take(&mut m.pool));
        m.min_hwe_kernel = hwe.unwrap_or(std::mem::take(&mut m.min_hwe_kernel));
        m.swap_size = swap.or(m.swap_size);
        m.cpu_count = cpu.unwrap_or(m.cpu_count);
        m.memory = memory.unwrap_or(m.memory);
        m.is_dpu = dpu.unwrap_or(m.is_dpu);
    });
}

/// `PUT machines/ID/`: in any status, unless locked; unknown fields are ignored.
pub(super) fn update(region: &mut Region, call: &Call<'_>) -> Answer {
    let key = region.find(call.part(0))?;
    let m = region.machine(key).ok_or_else(|| Response::missing("Machine"))?;
    if !call.admin || m.locked {
        return Err(Response::forbidden());
    }
    let form = &call.form;
    let choice =
        || "Select a valid choice. That choice is not one of the available choices.".to_owned();
    let mut errors = Vec::new();
    if form.filled("zone").is_some_and(|z| !region.settings.zones.iter().any(|g| g.name == z)) {
        errors.push(("zone", choice()));
    }
    if form.filled("pool").is_some_and(|p| !region.settings.pools.iter().any(|g| g.name == p)) {
        errors.push(("pool", choice()));
    }
    if let Some(kernel) = form.filled("min_hwe_kernel").filter(|k| !region.images.knows_kernel(k)) {
        errors.push(("min_hwe_kernel", format!("No kernel matches \">={kernel}\" requirement.")));
    }
    if let Some(text) = form.filled("hostname").and_then(|h| hostname_error(region, h, Some(key))) {
        errors.push(("hostname", text));
    }
    let arch = form.filled("architecture").map(architecture).transpose()?;
    let touches_power = form.iter().any(|(k, _)| k.starts_with("power_"));
    let new_power = if touches_power {
        match power(form, &m.power_type, &m.power_parameters) {
            Ok(power) => Some(power),
            Err((field, text)) => {
                errors.push((field, text));
                None
            }
        }
    } else {
        None
    };
    if !errors.is_empty() {
        return Err(Response::invalid_all(&errors));
    }
    apply_fields(region, key, form);
    let hostname = form.filled("hostname").map(str::to_owned);
    region.rename(key, |m| {
        if let Some((kind, parameters)) = new_power {
            m.power_type = kind;
            m.power_parameters = parameters;
        }
        m.hostname = hostname.unwrap_or(std::mem::take(&mut m.hostname));
        m.architecture = arch.unwrap_or(std::mem::take(&mut m.architecture));
    });
    Ok(region.show(key))
}

/// `DELETE machines/ID/`: also of a Deployed machine; what runs on it runs on.
pub(super) fn delete(region: &mut Region, call: &Call<'_>) -> Answer {
    let key = region.find(call.part(0))?;
    if !call.admin || region.machine(key).is_some_and(|m| m.locked) {
        return Err(Response::forbidden());
    }
    region.remove(key);
    Ok(Response::deleted())
}
