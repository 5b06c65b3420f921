//! Changes of fabrics, VLANs, subnets and address ranges.

use super::accounts::mandatory;
use super::call::{Call, HandlerResult};
use super::networks::{fabric_id, number, subnet_id};
use crate::network::{Range, parse_ip};
use crate::region::Region;
use crate::wire::SimResponse;

fn required(name: &str) -> SimResponse {
    SimResponse::invalid(name, "This field is required.")
}

/// A number of the form; `None` where it is not sent.
fn whole(call: &Call<'_>, name: &str) -> Result<Option<i64>, SimResponse> {
    let text = call.form.filled(name);
    let read = |t: &str| t.parse().map_err(|_| SimResponse::invalid(name, "Enter a whole number."));
    text.map(read).transpose()
}

fn address(call: &Call<'_>, name: &str) -> Result<Option<u32>, SimResponse> {
    let wrong = || SimResponse::invalid(name, "Enter a valid IPv4 or IPv6 address.");
    call.form.filled(name).map(|t| parse_ip(t).ok_or_else(wrong)).transpose()
}

/// Network and prefix length of the form's `cidr`.
fn cidr(call: &Call<'_>) -> Result<Option<(u32, u32)>, SimResponse> {
    let Some(text) = call.form.filled("cidr") else {
        return Ok(None);
    };
    let read = text.split_once('/').and_then(|(base, bits)| {
        let bits: u32 = bits.parse().ok().filter(|b| (8..=30).contains(b))?;
        Some((parse_ip(base)? & (u32::MAX << (32 - bits)), bits))
    });
    read.map(Some).ok_or_else(|| SimResponse::invalid("cidr", "Invalid network."))
}

/// Handles `POST fabrics/`.
pub(super) fn create_fabric(region: &mut Region, call: &Call<'_>) -> HandlerResult {
    let name = call.form.filled("name").map(str::to_owned);
    if name.as_ref().is_some_and(|n| region.net.fabrics.iter().any(|f| f.1 == *n)) {
        return Err(SimResponse::invalid("name", "Fabric with this Name already exists."));
    }
    let id = region.net.fabrics.last().map_or(0, |f| f.0) + 1;
    region.net.add_fabric(id, name.unwrap_or_else(|| format!("fabric-{id}")));
    Ok(SimResponse::json(&region.net.fabric_json(id)))
}

/// Handles `PUT fabrics/ID/`.
pub(super) fn update_fabric(region: &mut Region, call: &Call<'_>) -> HandlerResult {
    let id = fabric_id(region, call)?;
    if let Some(name) = call.form.filled("name") {
        region.net.fabrics.iter_mut().filter(|f| f.0 == id).for_each(|f| name.clone_into(&mut f.1));
        region.invalidate_bodies();
    }
    Ok(SimResponse::json(&region.net.fabric_json(id)))
}

/// Handles `DELETE fabrics/ID/`: not while a subnet is in it.
pub(super) fn delete_fabric(region: &mut Region, call: &Call<'_>) -> HandlerResult {
    let id = fabric_id(region, call)?;
    let vlans: Vec<i64> =
        region.net.vlans.iter().filter(|v| v.fabric == id).map(|v| v.id).collect();
    if id == 0 {
        let text = "This fabric is the default fabric, it cannot be deleted.";
        return Err(SimResponse::text(400, text));
    }
    let subnets: Vec<String> = region
        .net
        .subnets
        .iter()
        .filter(|s| vlans.contains(&s.vlan))
        .map(|s| format!("{}:{}", s.name, s.cidr()))
        .collect();
    if !subnets.is_empty() {
        let list = subnets.join(", ");
        let text = format!("Can't delete fabric; the following subnets are still present: {list}");
        return Err(SimResponse::text(400, text));
    }
    region.net.vlans.retain(|v| v.fabric != id);
    region.net.fabrics.retain(|f| f.0 != id);
    forget_vlans(region, &vlans);
    Ok(SimResponse::no_content())
}

fn forget_vlans(region: &mut Region, gone: &[i64]) {
    let keys: Vec<u32> = region.machines.keys().copied().collect();
    for key in keys {
        region.edit(key, |m| {
            m.nics.iter_mut().for_each(|n| n.vlan = n.vlan.filter(|v| !gone.contains(v)));
        });
    }
}

/// Handles `POST fabrics/ID/vlans/`.
pub(super) fn create_vlan(region: &mut Region, call: &Call<'_>) -> HandlerResult {
    let fabric = fabric_id(region, call)?;
    let vid = whole(call, "vid")?.ok_or_else(|| required("vid"))?;
    if !(0..=4094).contains(&vid) {
        return Err(SimResponse::invalid("vid", "VID must be between 0 and 4094."));
    }
    if region.net.vlans.iter().any(|v| v.fabric == fabric && v.vid == vid) {
        let text = "A VLAN with the specified VID already exists in the destination fabric.";
        return Err(SimResponse::invalid("vid", text));
    }
    let mtu = whole(call, "mtu")?.unwrap_or(1500);
    let name = call.form.filled("name").map_or_else(|| vid.to_string(), str::to_owned);
    let id = region.net.add_vlan(vid, &name, fabric, mtu);
    Ok(SimResponse::json(&region.net.vlan_json(id)))
}

fn vlan_position(region: &Region, call: &Call<'_>) -> Result<usize, SimResponse> {
    let by_id = call.parts.len() == 1;
    let fabric = if by_id { None } else { Some(fabric_id(region, call)?) };
    let is = |v: &crate::network::Vlan| match fabric {
        None => v.id == number(call, 0),
        Some(fabric) => v.fabric == fabric && v.vid == number(call, 1),
    };
    let found = region.net.vlans.iter().position(is);
    found.ok_or_else(|| SimResponse::not_found("VLAN"))
}

/// Handles `PUT fabrics/ID/vlans/VID/` and `PUT vlans/ID/`.
pub(super) fn update_vlan(region: &mut Region, call: &Call<'_>) -> HandlerResult {
    let index = vlan_position(region, call)?;
    let (mtu, vid) = (whole(call, "mtu")?, whole(call, "vid")?);
    let vlan = &mut region.net.vlans[index];
    vlan.mtu = mtu.unwrap_or(vlan.mtu);
    vlan.vid = vid.unwrap_or(vlan.vid);
    if call.form.has("dhcp_on") {
        vlan.dhcp = call.form.django_bool("dhcp_on");
    }
    if let Some(name) = call.form.filled("name") {
        name.clone_into(&mut vlan.name);
    }
    let id = vlan.id;
    region.invalidate_bodies();
    Ok(SimResponse::json(&region.net.vlan_json(id)))
}

/// Handles the deletion of a VLAN.
pub(super) fn delete_vlan(region: &mut Region, call: &Call<'_>) -> HandlerResult {
    let index = vlan_position(region, call)?;
    let (id, vid) = (region.net.vlans[index].id, region.net.vlans[index].vid);
    if vid == 0 {
        let text = "This VLAN is the default VLAN in the fabric, it cannot be deleted.";
        return Err(SimResponse::text(400, text));
    }
    region.net.vlans.remove(index);
    region.net.subnets.retain(|s| s.vlan != id);
    forget_vlans(region, &[id]);
    Ok(SimResponse::no_content())
}

/// Handles `POST subnets/`.
pub(super) fn create_subnet(region: &mut Region, call: &Call<'_>) -> HandlerResult {
    let (base, bits) = cidr(call)?.ok_or_else(|| required("cidr"))?;
    if region.net.subnets.iter().any(|s| s.base == base && s.bits == bits) {
        return Err(SimResponse::invalid("cidr", "Subnet with this Cidr already exists."));
    }
    let vlan = whole(call, "vlan")?
        .or_else(|| region.net.vlans.first().map(|v| v.id))
        .filter(|v| region.net.vlan_by_id(*v).is_some());
    let vlan = vlan.ok_or_else(|| {
        let text = "Select a valid choice. That choice is not one of the available choices.";
        SimResponse::invalid("vlan", text)
    })?;
    let gateway = address(call, "gateway_ip")?;
    let name = mandatory(call, "name")
        .map_or_else(|_| format!("{}/{bits}", crate::network::ip(base)), str::to_owned);
    let id = region.net.add_subnet(&name, vlan, base, bits, gateway);
    Ok(SimResponse::json(&region.net.subnet_json(id)))
}

/// Handles `PUT subnets/ID/`.
pub(super) fn update_subnet(region: &mut Region, call: &Call<'_>) -> HandlerResult {
    let id = subnet_id(region, call)?;
    let (gateway, vlan) = (address(call, "gateway_ip")?, whole(call, "vlan")?);
    if vlan.is_some_and(|v| region.net.vlan_by_id(v).is_none()) {
        let text = "Select a valid choice. That choice is not one of the available choices.";
        return Err(SimResponse::invalid("vlan", text));
    }
    if let Some(subnet) = region.net.subnets.iter_mut().find(|s| s.id == id) {
        subnet.gateway = gateway.or(subnet.gateway);
        subnet.vlan = vlan.unwrap_or(subnet.vlan);
        if let Some(name) = call.form.filled("name") {
            name.clone_into(&mut subnet.name);
        }
        if let Some(list) = call.form.get("dns_servers") {
            subnet.dns = list.split([',', ' ']).filter_map(parse_ip).collect();
        }
    }
    region.invalidate_bodies();
    Ok(SimResponse::json(&region.net.subnet_json(id)))
}

/// Handles `DELETE subnets/ID/`.
pub(super) fn delete_subnet(region: &mut Region, call: &Call<'_>) -> HandlerResult {
    let id = subnet_id(region, call)?;
    region.net.subnets.retain(|s| s.id != id);
    region.net.ranges.retain(|r| r.subnet != id);
    let keys: Vec<u32> = region.machines.keys().copied().collect();
    for key in keys {
        region.edit(key, |m| {
            m.nics.iter_mut().for_each(|n| n.links.retain(|l| l.subnet != Some(id)));
        });
    }
    Ok(SimResponse::no_content())
}

fn range_position(region: &Region, call: &Call<'_>) -> Result<usize, SimResponse> {
    let found = region.net.ranges.iter().position(|r| r.id == number(call, 0));
    found.ok_or_else(|| SimResponse::not_found("IPRange"))
}

/// Handles `POST ipranges/`.
pub(super) fn create_range(region: &mut Region, call: &Call<'_>) -> HandlerResult {
    let kind = match call.form.filled("type").ok_or_else(|| required("type"))? {
        "dynamic" => "dynamic",
        "reserved" => "reserved",
        other => {
            let text =
                format!("Select a valid choice. {other} is not one of the available choices.");
            return Err(SimResponse::invalid("type", text));
        }
    };
    let start = address(call, "start_ip")?.ok_or_else(|| required("start_ip"))?;
    let end = address(call, "end_ip")?.ok_or_else(|| required("end_ip"))?;
    if end < start {
        let text = "End IP address must not be less than Start IP address.";
        return Err(SimResponse::invalid("end_ip", text));
    }
    let named = call.form.filled("subnet").and_then(|t| region.net.subnet_by_text(t));
    let around = named.or_else(|| region.net.subnets.iter().find(|s| s.contains_address(start)));
    let subnet = around.map(|s| s.id).ok_or_else(|| {
        SimResponse::invalid("subnet", "There is no subnet defined for the range.")
    })?;
    if region.net.ranges.iter().any(|r| r.subnet == subnet && r.start <= end && start <= r.end) {
        let text = format!("Requested {kind} range conflicts with an existing range.");
        return Err(SimResponse::invalid("__all__", text));
    }
    let id = region.net.ranges.iter().map(|r| r.id).max().unwrap_or(0) + 1;
    region.net.ranges.push(Range { id, kind, subnet, start, end, comment: "" });
    read_range_at(region, region.net.ranges.len() - 1)
}

fn read_range_at(region: &Region, index: usize) -> HandlerResult {
    Ok(SimResponse::json(&region.net.range_json(&region.net.ranges[index])))
}

/// Handles `GET ipranges/ID/`.
pub(super) fn read_range(region: &mut Region, call: &Call<'_>) -> HandlerResult {
    let index = range_position(region, call)?;
    read_range_at(region, index)
}

/// Handles `PUT ipranges/ID/`.
pub(super) fn update_range(region: &mut Region, call: &Call<'_>) -> HandlerResult {
    let index = range_position(region, call)?;
    let (start, end) = (address(call, "start_ip")?, address(call, "end_ip")?);
    let range = &mut region.net.ranges[index];
    (range.start, range.end) = (start.unwrap_or(range.start), end.unwrap_or(range.end));
    read_range_at(region, index)
}

/// Handles `DELETE ipranges/ID/`.
pub(super) fn delete_range(region: &mut Region, call: &Call<'_>) -> HandlerResult {
    let index = range_position(region, call)?;
    region.net.ranges.remove(index);
    Ok(SimResponse::no_content())
}
