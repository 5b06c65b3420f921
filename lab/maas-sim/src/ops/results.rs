//! Script results, in the new and the old form, and `op=details`.

use serde_json::{Value, json};

use super::call::{Call, HandlerResult};
use crate::model::{Machine, ScriptSet, ScriptState, SetKind};
use crate::region::Region;
use crate::times;
use crate::wire::{SimResponse, encode_base64};

/// What a script printed.
fn output(region: &Region, m: &Machine, set: &ScriptSet, name: &str) -> Vec<u8> {
    match name {
        "/tmp/install.log" => install_log(set, m),
        "20-maas-03-machine-resources" | "50-maas-01-commissioning" => {
            resources(region, m).to_string().into_bytes()
        }
        "maas-lshw" => b"<?xml version='1.0'?><list></list>".to_vec(),
        "maas-kernel-cmdline" => {
            let mac = m.boot_interface().map_or("", |n| n.mac.as_str());
            format!("console=tty1 console=ttyS0 BOOTIF=01-{mac}").into_bytes()
        }
        _ if set.failed.iter().any(|failed| failed == name) => {
            format!("{name} found something wrong\n").into_bytes()
        }
        _ => Vec::new(),
    }
}

fn install_log(set: &ScriptSet, m: &Machine) -> Vec<u8> {
    let last = match set.state {
        ScriptState::Failed => format!("curtin: {}\n", m.error_description),
        _ => "curtin: Installation finished.\n".to_owned(),
    };
    format!("start: cmd-install: curtin command install\n{last}").into_bytes()
}

fn resources(region: &Region, m: &Machine) -> Value {
    let class = region.hosts[m.host].class;
    let cards: Vec<Value> = m
        .nics
        .iter()
        .map(|n| {
            let hw = n.hardware;
            json!({"vendor": hw.map(|h| h.vendor), "product": hw.map(|h| h.product),
                   "numa_node": hw.map(|h| h.numa), "ports": [{"id": n.name, "address": n.mac}]})
        })
        .collect();
    json!({"api_version": "1.0", "environment": {"server": "maas-machine-resources", "server_name": m.hostname},
           "resources": {"cpu": {"total": class.cpu_count}, "memory": {"total": class.memory_mib * 1024 * 1024},
                         "network": {"cards": cards}, "system": {"vendor": class.vendor, "product": class.product}}})
}

/// State of the script at `index` of a set: where the set failed, some of its scripts passed.
fn script_state(set: &ScriptSet, index: usize) -> ScriptState {
    match set.state {
        ScriptState::Failed
            if !set.failed.is_empty() && !set.failed.contains(&set.scripts[index]) =>
        {
            ScriptState::Passed
        }
        state => state,
    }
}

fn result(region: &Region, m: &Machine, set: &ScriptSet, index: usize, with_output: bool) -> Value {
    let name = &set.scripts[index];
    let state = script_state(set, index);
    let exit = match state {
        ScriptState::Passed => Some(0),
        ScriptState::Failed => Some(1),
        _ => None,
    };
    let seconds = |us: Option<i64>| us.map_or_else(|| json!(""), |us| json!(us as f64 / 1e6));
    let script = region.scripts.id_of(name);
    let mut out = json!({
        "id": set.first_result + index as i64,
        "created": times::rfc2822(set.created_us),
        "updated": times::rfc2822(set.ended_us.or(set.started_us).unwrap_or(set.created_us)),
        "name": name,
        "status": state as i64,
        "status_name": state.label(),
        "exit_status": exit,
        "started": set.started_us.map(times::rfc2822),
        "ended": set.ended_us.map(times::rfc2822),
        "runtime": runtime(set),
        "starttime": seconds(set.started_us),
        "endtime": seconds(set.ended_us),
        "estimated_runtime": "0:00:00",
        "parameters": {},
        "script_id": script,
        "script_revision_id": script,
        "suppressed": false,
    });
    if with_output {
        let text = encode_base64(&output(region, m, set, name));
        out["output"] = json!(text);
        out["stdout"] = json!(if name == "/tmp/install.log" { String::new() } else { text });
        out["stderr"] = json!("");
        out["result"] = json!("");
    }
    out
}

fn runtime(set: &ScriptSet) -> String {
    set.started_us
        .zip(set.ended_us)
        .map_or_else(String::new, |(a, b)| times::duration((b - a) / 1_000_000))
}

fn set_json(region: &Region, m: &Machine, set: &ScriptSet, call: &Call<'_>) -> Value {
    let with_output = call.query.django_bool("include_output");
    let filters: Vec<&str> =
        call.query.get("filters").map(|t| t.split(',').collect()).unwrap_or_default();
    let results: Vec<Value> = (0..set.scripts.len())
        .filter(|i| filters.is_empty() || filters.contains(&set.scripts[*i].as_str()))
        .map(|i| result(region, m, set, i, with_output))
        .collect();
    // The installer reports its end only.
    let pings = set.kind != SetKind::Installation;
    json!({
        "id": set.id,
        "status": set.state as i64,
        "status_name": set.state.label(),
        "type": set.kind as i64,
        "type_name": set.kind.label(),
        "started": set.started_us.map(times::rfc2822),
        "ended": set.ended_us.map(times::rfc2822),
        "runtime": runtime(set),
        "last_ping": set.ended_us.filter(|_| pings).map(times::rfc2822),
        "results": results,
        "system_id": m.system_id,
        "resource_uri": format!("/MAAS/api/2.0/nodes/{}/results/{}/", m.system_id, set.id),
    })
}

/// Handles `GET nodes/ID/results/`.
pub(super) fn list(region: &mut Region, call: &Call<'_>) -> HandlerResult {
    let key = region.key_of(call.part(0)).ok_or_else(|| SimResponse::not_found("Node"))?;
    let m = region.machine(key).ok_or_else(|| SimResponse::not_found("Node"))?;
    let kind = match call.query.filled("type") {
        None => None,
        Some("commissioning") => Some(SetKind::Commissioning),
        Some("testing") => Some(SetKind::Testing),
        Some("installation") => Some(SetKind::Installation),
        Some("release") => Some(SetKind::Release),
        Some(other) => {
            return Err(SimResponse::text(400, format!("'{other}' is not a valid script type.")));
        }
    };
    let hardware = ["node", "cpu", "memory", "storage", "network", "gpu"];
    if call.query.filled("hardware_type").is_some_and(|word| !hardware.contains(&word)) {
        let text = "Hardware type must be node, cpu, memory, storage, or gpu";
        return Err(SimResponse::text(400, text));
    }
    let mut wanted: Vec<&ScriptSet> =
        m.sets.iter().filter(|s| kind.is_none_or(|k| s.kind == k)).collect();
    wanted.sort_by_key(|s| std::cmp::Reverse((s.kind as i64, s.id)));
    let sets: Vec<Value> = wanted.into_iter().map(|s| set_json(region, m, s, call)).collect();
    Ok(SimResponse::json(&Value::Array(sets)))
}

fn find<'a>(
    region: &'a Region,
    call: &Call<'_>,
) -> Result<(&'a Machine, &'a ScriptSet), SimResponse> {
    let key = region.key_of(call.part(0)).ok_or_else(|| SimResponse::not_found("Node"))?;
    let m = region.machine(key).ok_or_else(|| SimResponse::not_found("Node"))?;
    let word = call.part(1);
    let current = match word {
        "current-commissioning" => Some((m.current_commissioning, "commissioning")),
        "current-testing" => Some((m.current_testing, "testing")),
        "current-installation" => Some((m.current_installation, "installation")),
        _ => None,
    };
    if let Some((id, label)) = current {
        let text = format!("No current {label} script set exists for this node.");
        return m.set(id).map(|s| (m, s)).ok_or_else(|| SimResponse::text(400, text));
    }
    let Ok(id) = word.parse() else {
        let text = format!(
            "Unknown id \"{word}\" must be current-commissioning, current-testing, current-installation, or the id number of a specific result."
        );
        return Err(SimResponse::text(400, text));
    };
    m.set(Some(id)).map(|s| (m, s)).ok_or_else(|| SimResponse::not_found("ScriptSet"))
}

/// Handles `GET nodes/ID/results/SET/`.
pub(super) fn read(region: &mut Region, call: &Call<'_>) -> HandlerResult {
    let (m, set) = find(region, call)?;
    Ok(SimResponse::json(&set_json(region, m, set, call)))
}

/// Handles `PUT nodes/ID/results/SET/`: what is suppressed counts as passed, which no script here
/// needs.
pub(super) fn update(region: &mut Region, call: &Call<'_>) -> HandlerResult {
    call.form.string_bool("suppressed", false)?;
    read(region, call)
}

/// Handles `DELETE nodes/ID/results/SET/`: not of what is current.
pub(super) fn delete(region: &mut Region, call: &Call<'_>) -> HandlerResult {
    let (m, set) = find(region, call)?;
    let (key, id) = (m.key, set.id);
    let current = [m.current_commissioning, m.current_testing, m.current_installation];
    if current.contains(&Some(id)) {
        let text = "Unable to delete the current commissioning script set";
        return Err(SimResponse::text(400, text));
    }
    region.edit(key, |m| m.sets.retain(|s| s.id != id));
    Ok(SimResponse::no_content())
}

/// Handles `op=download`.
pub(super) fn download(region: &mut Region, call: &Call<'_>) -> HandlerResult {
    let (m, set) = find(region, call)?;
    if let Some(odd) = call.query.filled("filetype").filter(|t| !matches!(*t, "txt" | "tar.xz")) {
        let text = format!("Unknown filetype \"{odd}\" must be txt or tar.xz");
        return Err(SimResponse::text(400, text));
    }
    let filters: Vec<&str> =
        call.query.get("filters").map(|t| t.split(',').collect()).unwrap_or_default();
    let mut out = Vec::new();
    for name in set.scripts.iter().filter(|n| filters.is_empty() || filters.contains(&n.as_str())) {
        out.extend(output(region, m, set, name));
    }
    Ok(SimResponse::new(200, "application/binary", out))
}

/// Handles `GET installation-results/`: the older, flat form.
pub(super) fn installation_results(region: &mut Region, call: &Call<'_>) -> HandlerResult {
    let ids: Vec<&str> = call.query.all("system_id").collect();
    let names: Vec<&str> = call.query.all("name").collect();
    let kind = call.query.filled("result_type").and_then(|t| t.parse::<i64>().ok());
    let mut out = Vec::new();
    for m in
        region.machines.values().filter(|m| ids.is_empty() || ids.contains(&m.system_id.as_str()))
    {
        for set in m
            .sets
            .iter()
            .filter(|s| kind.is_none_or(|k| s.kind as i64 == k) && s.ended_us.is_some())
        {
            for (i, name) in set.scripts.iter().enumerate() {
                if names.is_empty() || names.contains(&name.as_str()) {
                    out.push(json!({
                        "created": times::iso_utc(set.created_us),
                        "updated": times::iso_utc(set.ended_us.unwrap_or(set.created_us)),
                        "id": set.first_result + i as i64,
                        "name": name,
                        "script_result": i64::from(script_state(set, i) == ScriptState::Failed),
                        "result_type": set.kind as i64,
                        "node": {"system_id": m.system_id},
                        "data": encode_base64(&output(region, m, set, name)),
                        "resource_uri": "/MAAS/api/2.0/commissioning-scripts/",
                    }));
                }
            }
        }
    }
    Ok(SimResponse::json(&Value::Array(out)))
}

/// Handles `op=details`: BSON with `lldp` and `lshw`.
pub(super) fn details(region: &mut Region, call: &Call<'_>) -> HandlerResult {
    let key = region.find_machine(call.part(0))?;
    let probed = region.machine(key).is_some_and(|m| m.hardware_known);
    let mut body = Vec::new();
    for (name, text) in [("lldp", ""), ("lshw", "<?xml version='1.0'?><list></list>")] {
        body.push(if probed { 0x05 } else { 0x0a });
        body.extend(name.as_bytes());
        body.push(0);
        if probed {
            body.extend((text.len() as u32).to_le_bytes());
            body.push(0);
            body.extend(text.as_bytes());
        }
    }
    let mut out = (body.len() as u32 + 5).to_le_bytes().to_vec();
    out.extend(body);
    out.push(0);
    Ok(SimResponse::new(200, "application/bson", out))
}
