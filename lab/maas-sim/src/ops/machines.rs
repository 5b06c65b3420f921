//! Machines: list, read, create, update, delete.

use serde_json::{Map, Value};

use super::call::{Call, HandlerResult};
use super::commission;
use super::filters::{is_constraint, select_machines};
use super::forms::{
    check_min_kernel, common_errors, create_errors, has_duplicate_bmc, host_part, hostname_error,
    parse_architecture,
};
use super::power_types::parse_power;
use crate::inventory::NewMachine;
use crate::model::{Machine, ScriptState, SetKind};
use crate::name_index::LookupName;
use crate::region::Region;
use crate::scripts::COMMISSIONING_SCRIPTS;
use crate::stats::LogEntry;
use crate::status::Status;
use crate::wire::{Params, SimResponse};
/// Handles `GET machines/`.
pub(super) fn list(region: &mut Region, call: &Call<'_>) -> HandlerResult {
    for (name, _) in call.query.iter() {
        if name != "op" && !is_constraint(name) {
            return Err(SimResponse::invalid(name, "No such constraint."));
        }
    }
    if call.query.has("simple_status") {
        return Err(SimResponse::text(500, "Unsupported lookup 'simple_status'"));
    }
    let keys = select_machines(region, &call.query, call)?;
    Ok(region.machine_list_response(&keys))
}

/// Handles `GET nodes/`: devices, then machines.
pub(super) fn nodes(region: &mut Region, call: &Call<'_>) -> HandlerResult {
    let machines = list(region, call)?;
    let has_devices =
        crate::tables::table_of("devices").is_some_and(|t| !region.tables.rows(t).is_empty());
    let machines = if has_devices { region.complete(machines) } else { machines };
    let devices = crate::tables::table_of("devices").map_or(&[][..], |t| region.tables.rows(t));
    let wanted: Vec<Value> = devices
        .iter()
        .filter(|d| {
            call.query.iter().all(|(key, value)| match key {
                "op" => true,
                "id" => d.get("system_id").is_some_and(|v| v == value),
                "hostname" => d.get("hostname").is_some_and(|v| v == value),
                _ => false,
            })
        })
        .cloned()
        .map(Value::Object)
        .collect();
    if wanted.is_empty() {
        return Ok(machines);
    }
    let Value::Array(rest) = machines.body_json() else {
        return Ok(machines);
    };
    Ok(SimResponse::json(&wanted.into_iter().chain(rest).collect()))
}

/// Handles `op=list_allocated`.
pub(super) fn list_allocated(region: &mut Region, call: &Call<'_>) -> HandlerResult {
    let mut keys = select_machines(region, &Params::default(), call)?;
    keys.retain(|k| {
        region.machine(*k).is_some_and(|m| {
            m.status == Status::Allocated && m.owner.as_deref() == Some(&call.user)
        })
    });
    Ok(region.machine_list_response(&keys))
}

/// Handles `GET machines/ID/`.
pub(super) fn read(region: &mut Region, call: &Call<'_>) -> HandlerResult {
    let key = region.find_machine(call.part(0))?;
    let hidden = region
        .machine(key)
        .is_some_and(|m| !call.admin && m.owner.as_deref().is_some_and(|o| o != call.user));
    if hidden {
        return Err(SimResponse::forbidden());
    }
    Ok(region.machine_response(key))
}

/// Handles `nodes/?op=is_registered`.
pub(super) fn is_registered(region: &mut Region, call: &Call<'_>) -> HandlerResult {
    let mac = call.query.get("mac_address");
    let mac = mac.ok_or_else(|| SimResponse::text(400, "No provided mac_address!"))?;
    // One that nobody has accepted yet does not count.
    let is = |m: &Machine| m.has_mac(mac) && !matches!(m.status, Status::New | Status::Retired);
    let found = region.machines_named(LookupName::Mac(mac), is).next().is_some();
    Ok(SimResponse::json(&Value::Bool(found)))
}

/// Handles `machines/?op=power_parameters`.
pub(super) fn all_power_parameters(region: &mut Region, call: &Call<'_>) -> HandlerResult {
    let ids: Vec<&str> = call.query.all("id").collect();
    let mut out = Map::new();
    for m in region.machines.values() {
        if ids.is_empty() || ids.contains(&m.system_id.as_str()) {
            out.insert(m.system_id.clone(), Value::Object(m.power_parameters.clone()));
        }
    }
    Ok(SimResponse::json(&Value::Object(out)))
}

/// Handles `machines/ID/?op=power_parameters`.
pub(super) fn power_parameters(region: &mut Region, call: &Call<'_>) -> HandlerResult {
    let key = region.find_machine(call.part(0))?;
    if !call.admin {
        return Err(SimResponse::forbidden());
    }
    let parameters = region.machine(key).map(|m| m.power_parameters.clone()).unwrap_or_default();
    Ok(SimResponse::json(&Value::Object(parameters)))
}

/// Handles `op=get_token`: none before the machine has booted once.
pub(super) fn token(region: &mut Region, call: &Call<'_>) -> HandlerResult {
    region.find_machine(call.part(0))?;
    Ok(SimResponse::json(&Value::Null))
}

/// Handles `POST machines/`: 200, and the machine boots right away unless `commission` is false.
pub(super) fn create(region: &mut Region, call: &Call<'_>) -> HandlerResult {
    let form = &call.form;
    let arch = form.filled("architecture").map(parse_architecture);
    if let Some(Err(refusal)) = &arch
        && refusal.content_type == crate::wire::TEXT
    {
        return Err(refusal.clone());
    }
    let macs: Vec<String> =
        form.all("mac_addresses").filter(|m| !m.is_empty()).map(str::to_lowercase).collect();
    if call.user.is_empty()
        && let Some(key) = find_enlisted(region, &macs)
    {
        return Ok(region.enlistment_response(key));
    }
    let mut errors = create_errors(region, form, &macs);
    check_min_kernel(region, form, &mut errors)?;
    let power = parse_power(form, "", &Map::new());
    if let Err(refused) = &power {
        errors.extend(refused.iter().cloned());
    }
    if !errors.is_empty() {
        return Err(SimResponse::invalid_fields(&errors));
    }
    let architecture = arch.unwrap_or_else(|| Ok("amd64/generic".to_owned()))?;
    let (power_type, power_parameters) = power.unwrap_or_default();
    let deployed = form.string_bool("deployed", false)?;
    let commission = form.string_bool("commission", call.admin)? && call.admin && !deployed;
    if has_duplicate_bmc(region, &power_type, &power_parameters, None) {
        return Err(region.conflict_page());
    }
    let hostname = form
        .filled("hostname")
        .map(|name| host_part(name).to_owned())
        .unwrap_or_else(|| pet_name(region, &macs, &power_parameters));
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
        if let Ok(options) = commission::commission_options(region, form) {
            return commission::begin_commissioning(region, key, &call.user, options);
        }
    }
    if call.user.is_empty() {
        return Ok(region.enlistment_response(key));
    }
    Ok(region.machine_response(key))
}

/// A machine that enlisted with one of these MACs and is asked for again.
fn find_enlisted(region: &Region, macs: &[String]) -> Option<u32> {
    let known = |mac: &String| {
        let is =
            |m: &Machine| matches!(m.status, Status::New | Status::Commissioning) && m.has_mac(mac);
        region.machines_named(LookupName::Mac(mac), is).map(|m| m.key).next()
    };
    macs.iter().filter_map(known).min()
}

/// The name of a machine created without one: the host's name where one is known, as a reverse
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
    let scripts = COMMISSIONING_SCRIPTS.iter().map(|s| (*s).to_owned()).collect();
    let set = region.new_set(key, SetKind::Commissioning, scripts);
    region.edit(key, |m| {
        m.status = Status::Deployed;
        m.owner = Some(user.to_owned());
        m.was_deployed = true;
        m.current_commissioning = Some(set);
        m.commissioning_state = ScriptState::Pending;
    });
    let at_us = region.now;
    region.append_log(key, LogEntry::Status { at_us, name: Status::Deployed.label() });
}

/// Bytes of a swap file: digits, and a unit of thousands.
fn swap_bytes(text: &str) -> Option<i64> {
    let digits = text.trim_end_matches(['K', 'M', 'G', 'T']);
    let power = ["", "K", "M", "G", "T"].iter().position(|unit| text[digits.len()..] == **unit)?;
    digits.parse::<i64>().ok().map(|n| n * 1000_i64.pow(power as u32))
}

fn apply_fields(region: &mut Region, key: u32, params: &Params) {
    let text = |name: &str| params.get(name).map(str::to_owned);
    let (description, zone, pool) = (text("description"), text("zone"), text("pool"));
    let (hwe, swap) = (text("min_hwe_kernel"), params.filled("swap_size").and_then(swap_bytes));
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

/// Handles `PUT machines/ID/`: in any status, unless locked; unknown fields are ignored.
pub(super) fn update(region: &mut Region, call: &Call<'_>) -> HandlerResult {
    let key = region.find_machine(call.part(0))?;
    let m = region.machine(key).ok_or_else(|| SimResponse::not_found("Machine"))?;
    if !call.admin || m.locked {
        return Err(SimResponse::forbidden());
    }
    let form = &call.form;
    let mut errors = common_errors(region, form, Some(key));
    check_min_kernel(region, form, &mut errors)?;
    let arch = form.filled("architecture").map(parse_architecture).transpose()?;
    let touches_power = form.iter().any(|(k, _)| k.starts_with("power_"));
    let new_power = if touches_power {
        match parse_power(form, &m.power_type, &m.power_parameters) {
            Ok(power) => Some(power),
            Err(refused) => {
                errors.extend(refused);
                None
            }
        }
    } else {
        None
    };
    if !errors.is_empty() {
        return Err(SimResponse::invalid_fields(&errors));
    }
    if let Some((kind, parameters)) = &new_power
        && has_duplicate_bmc(region, kind, parameters, Some(key))
    {
        return Err(region.conflict_page());
    }
    apply_fields(region, key, form);
    let hostname = form.filled("hostname").map(|name| host_part(name).to_owned());
    region.edit_names(key, |m| {
        if let Some((kind, parameters)) = new_power {
            m.power_type = kind;
            m.power_parameters = parameters;
        }
        m.hostname = hostname.unwrap_or(std::mem::take(&mut m.hostname));
        m.architecture = arch.unwrap_or(std::mem::take(&mut m.architecture));
    });
    Ok(region.machine_response(key))
}

/// Handles `DELETE machines/ID/`: also of a Deployed machine; what runs on it runs on.
pub(super) fn delete(region: &mut Region, call: &Call<'_>) -> HandlerResult {
    let key = region.find_machine(call.part(0))?;
    if !call.admin || region.machine(key).is_some_and(|m| m.locked) {
        return Err(SimResponse::forbidden());
    }
    region.remove_machine(key);
    Ok(SimResponse::no_content())
}

/// Handles `op=set_workload_annotations`: an empty value removes the key.
pub(super) fn annotate(region: &mut Region, call: &Call<'_>) -> HandlerResult {
    let key = region.find_editable(call)?;
    if region.machine(key).is_some_and(|m| m.owner.is_none()) {
        return Err(SimResponse::conflict(
            "Cannot set workload annotation: it hasn't been acquired.",
        ));
    }
    let pairs: Vec<(String, String)> = call
        .form
        .iter()
        .filter(|(k, _)| *k != "op")
        .map(|(k, v)| (k.to_owned(), v.to_owned()))
        .collect();
    region.edit(key, |m| {
        for (name, value) in pairs {
            if value.is_empty() {
                m.annotations.remove(&name);
            } else {
                m.annotations.insert(name, value);
            }
        }
    });
    Ok(region.machine_response(key))
}
