//! Networks, discoveries and the rack controller.

use serde_json::json;

use super::call::{Call, HandlerResult};
use super::groups::domain_json;
use crate::network::{RACK, ip};
use crate::region::Region;
use crate::wire::{SimResponse, TEXT_BARE};

/// Handles `GET domains/`: the region's own, and those that were added.
pub(super) fn domains(region: &mut Region, _: &Call<'_>) -> HandlerResult {
    let added = region.added_rows("domains");
    Ok(SimResponse::json(&std::iter::once(domain_json()).chain(added).collect()))
}

/// Handles `GET fabrics/`.
pub(super) fn fabrics(region: &mut Region, _: &Call<'_>) -> HandlerResult {
    Ok(SimResponse::json(
        &region.net.fabrics.iter().map(|(id, _)| region.net.fabric_json(*id)).collect(),
    ))
}

pub(super) fn number(call: &Call<'_>, index: usize) -> i64 {
    call.part(index).parse().unwrap_or(-1)
}

pub(super) fn fabric_id(region: &Region, call: &Call<'_>) -> Result<i64, SimResponse> {
    let known = region.net.fabrics.iter().find(|f| f.0 == number(call, 0) || f.1 == call.part(0));
    known.map(|f| f.0).ok_or_else(|| SimResponse::not_found("Fabric"))
}

/// Handles `GET fabrics/ID/`.
pub(super) fn fabric(region: &mut Region, call: &Call<'_>) -> HandlerResult {
    fabric_id(region, call).map(|id| SimResponse::json(&region.net.fabric_json(id)))
}

/// Handles `GET fabrics/ID/vlans/`.
pub(super) fn vlans(region: &mut Region, call: &Call<'_>) -> HandlerResult {
    let fabric = fabric_id(region, call)?;
    let list = region.net.vlans.iter().filter(|v| v.fabric == fabric);
    Ok(SimResponse::json(&list.map(|v| region.net.vlan_json(v.id)).collect()))
}

/// Handles `GET fabrics/ID/vlans/VID/`.
pub(super) fn vlan(region: &mut Region, call: &Call<'_>) -> HandlerResult {
    let fabric = fabric_id(region, call)?;
    let found = region.net.vlans.iter().find(|v| v.fabric == fabric && v.vid == number(call, 1));
    found
        .map(|v| SimResponse::json(&region.net.vlan_json(v.id)))
        .ok_or_else(|| SimResponse::not_found("VLAN"))
}

/// Handles `GET vlans/ID/`.
pub(super) fn vlan_by_id(region: &mut Region, call: &Call<'_>) -> HandlerResult {
    let found = region.net.vlan_by_id(number(call, 0));
    found
        .map(|v| SimResponse::json(&region.net.vlan_json(v.id)))
        .ok_or_else(|| SimResponse::new(404, TEXT_BARE, "VLAN with specified ID does not exist."))
}

/// Handles `GET domains/ID/`.
pub(super) fn domain(region: &mut Region, call: &Call<'_>) -> HandlerResult {
    if matches!(call.part(0), "0" | "maas") {
        return Ok(SimResponse::json(&domain_json()));
    }
    super::rows::read(region, call)
}

/// Handles `GET spaces/`.
pub(super) fn spaces(region: &mut Region, _: &Call<'_>) -> HandlerResult {
    Ok(SimResponse::json(&all_spaces(region).into()))
}

fn all_spaces(region: &Region) -> Vec<serde_json::Value> {
    let mut all = region.net.spaces_json().as_array().cloned().unwrap_or_default();
    all.extend(region.added_rows("spaces"));
    all
}

/// Handles `GET spaces/ID/`.
pub(super) fn space(region: &mut Region, call: &Call<'_>) -> HandlerResult {
    let (wanted, id) = (call.part(0), number(call, 0));
    let is = |s: &&serde_json::Value| s["name"] == wanted || s["id"] == id;
    let all = all_spaces(region);
    all.iter().find(is).map(SimResponse::json).ok_or_else(|| SimResponse::not_found("Space"))
}

/// Handles `GET subnets/`.
pub(super) fn subnets(region: &mut Region, _: &Call<'_>) -> HandlerResult {
    Ok(SimResponse::json(
        &region.net.subnets.iter().map(|s| region.net.subnet_json(s.id)).collect(),
    ))
}

pub(super) fn subnet_id(region: &Region, call: &Call<'_>) -> Result<i64, SimResponse> {
    region
        .net
        .subnet_by_text(call.part(0))
        .map(|s| s.id)
        .ok_or_else(|| SimResponse::not_found("Subnet"))
}

/// Handles `GET subnets/ID/`.
pub(super) fn subnet(region: &mut Region, call: &Call<'_>) -> HandlerResult {
    subnet_id(region, call).map(|id| SimResponse::json(&region.net.subnet_json(id)))
}

/// Handles `op=reserved_ip_ranges`.
pub(super) fn reserved(region: &mut Region, call: &Call<'_>) -> HandlerResult {
    let list = region.net.reserved(subnet_id(region, call)?);
    let rows = list.iter().map(|(a, b, purpose)| {
        json!({"start": ip(*a), "end": ip(*b), "num_addresses": b - a + 1, "purpose": purpose})
    });
    Ok(SimResponse::json(&rows.collect()))
}

/// Handles `op=unreserved_ip_ranges`.
pub(super) fn unreserved(region: &mut Region, call: &Call<'_>) -> HandlerResult {
    let list = region.net.unreserved(subnet_id(region, call)?);
    let rows = list
        .iter()
        .map(|(a, b)| json!({"start": ip(*a), "end": ip(*b), "num_addresses": b - a + 1}));
    Ok(SimResponse::json(&rows.collect()))
}

/// Handles `op=ip_addresses`: who has which address.
pub(super) fn addresses(region: &mut Region, call: &Call<'_>) -> HandlerResult {
    let subnet = subnet_id(region, call)?;
    let at = crate::times::event_time(region.now);
    let mut rows = Vec::new();
    for address in region.net.used(subnet) {
        let links = |m: &crate::model::Machine| {
            let mut nics = m.nics.iter();
            nics.find(|n| n.links.iter().any(|l| l.address == Some(address)))
                .map(|n| n.name.clone())
        };
        let owner = region.machines.values().find_map(|m| links(m).map(|via| (m, via)));
        let summary = match owner {
            Some((m, via)) => json!({"system_id": m.system_id, "node_type": 0,
                "fqdn": format!("{}.maas", m.hostname), "hostname": m.hostname,
                "is_container": false, "via": via}),
            None => json!({"system_id": RACK, "node_type": 4, "fqdn": "maas.maas",
                "hostname": "maas", "is_container": false, "via": "eth0"}),
        };
        rows.push(json!({"ip": ip(address), "alloc_type": 1, "created": at, "updated": at,
            "node_summary": summary}));
    }
    Ok(SimResponse::json(&rows.into()))
}

/// Handles `op=statistics`.
pub(super) fn statistics(region: &mut Region, call: &Call<'_>) -> HandlerResult {
    let id = subnet_id(region, call)?;
    let free = region.net.unreserved(id);
    let available: u32 = free.iter().map(|(a, b)| b - a + 1).sum();
    let largest = free.iter().map(|(a, b)| b - a + 1).max().unwrap_or(0);
    let (base, bits) = region.net.subnet_by_id(id).map_or((0, 32), |s| (s.base, s.bits));
    let total = ((1_u64 << (32 - bits)) as u32).saturating_sub(2);
    let usage = f64::from(total - available) / f64::from(total.max(1));
    Ok(SimResponse::json(&json!({
        "num_available": available,
        "largest_available": largest,
        "num_unavailable": total - available,
        "total_addresses": total,
        "usage": usage,
        "usage_string": format!("{:.0}%", usage * 100.0),
        "available_string": format!("{:.0}%", (1.0 - usage) * 100.0),
        "first_address": ip(base + 1),
        "last_address": ip(base + total),
        "ip_version": 4,
    })))
}

/// Handles `GET ipranges/`.
pub(super) fn ranges(region: &mut Region, _: &Call<'_>) -> HandlerResult {
    Ok(SimResponse::json(&region.net.ranges.iter().map(|r| region.net.range_json(r)).collect()))
}

/// Handles `GET discovery/` and its filters: nothing is discovered here.
pub(super) fn discoveries(_: &mut Region, _: &Call<'_>) -> HandlerResult {
    Ok(SimResponse::json(&json!([])))
}

/// Handles `discovery/ op=scan`.
pub(super) fn scan(_: &mut Region, call: &Call<'_>) -> HandlerResult {
    if call.form.filled("cidr").is_none() && !call.form.django_bool("force") {
        let text = "Bad request: scanning all subnets is not allowed unless force=True is specified.\n\n**WARNING: This will scan ALL networks attached to MAAS rack controllers.\nCheck with your internet service provider or IT department to be sure this is\nallowed before proceeding.**\n";
        return Err(SimResponse::new(400, TEXT_BARE, text));
    }
    Ok(SimResponse::json(&json!({"result": "No rack controllers are available to scan."})))
}

/// Handles `GET rackcontrollers/`: one, which is also the region.
pub(super) fn racks(region: &mut Region, _: &Call<'_>) -> HandlerResult {
    let mut rack = controller(region);
    rack["architecture"] = json!("amd64/generic");
    let services = [
        "bind9",
        "reverse_proxy",
        "ntp_region",
        "proxy",
        "temporal-worker",
        "syslog_region",
        "temporal",
        "regiond",
    ];
    rack["service_set"] = services
        .iter()
        .map(|s| json!({"name": s, "status": "running", "status_info": ""}))
        .collect();
    Ok(SimResponse::json(&json!([rack])))
}

/// Handles `GET regioncontrollers/`: the same host.
pub(super) fn regions(region: &mut Region, _: &Call<'_>) -> HandlerResult {
    let mut host = controller(region);
    host["current_commissioning_result_id"] = json!(1);
    host["resource_uri"] = json!(format!("/MAAS/api/2.0/regioncontrollers/{RACK}/"));
    Ok(SimResponse::json(&json!([host])))
}

/// What both lists say of a controller.
fn controller(region: &Region) -> serde_json::Value {
    let mut rack = json!({
        "system_id": RACK, "hostname": "maas", "fqdn": "maas.maas", "node_type": 4,
        "node_type_name": "Region and rack controller", "version": region.cfg.version, "description": "",
        "architecture": null, "osystem": "", "distro_series": "", "status_action": null, "swap_size": null,
        "hardware_uuid": null, "power_type": "", "power_state": "unknown", "cpu_count": 0, "cpu_speed": 0, "memory": 0,
        "current_commissioning_result_id": null, "current_installation_result_id": null,
        "current_testing_result_id": null, "hardware_info": {}, "interface_set": [], "tag_names": [],
        "zone": super::groups::zone_json(&region.settings.zones[0]),
        "domain": {"authoritative": true, "ttl": null, "id": 0, "name": "maas", "resource_record_count": 0,
                   "is_default": true, "resource_uri": "/MAAS/api/2.0/domains/0/"},
        "resource_uri": format!("/MAAS/api/2.0/rackcontrollers/{RACK}/"),
    });
    for test in [
        "commissioning",
        "testing",
        "cpu_test",
        "memory_test",
        "network_test",
        "storage_test",
        "interface_test",
        "other_test",
    ] {
        rack[format!("{test}_status")] = json!(-1);
        rack[format!("{test}_status_name")] = json!("Unknown");
    }
    for key in crate::render::HARDWARE_KEYS {
        rack["hardware_info"][*key] = json!("Unknown");
    }
    rack
}
