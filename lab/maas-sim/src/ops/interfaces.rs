//! Network interfaces and their links.

use super::accounts::mandatory;
use super::call::{Call, HandlerResult};
use super::forms::{FormError, is_mac};
use crate::json::JsonWriter;
use crate::model::{Link, LinkMode, Nic};
use crate::name_index::LookupName;
use crate::network::{AddressError, ip, parse_ip};
use crate::region::Region;
use crate::render;
use crate::status::Status;
use crate::wire::{JSON, SimResponse};

/// Handles `GET nodes/ID/interfaces/`.
pub(super) fn list(region: &mut Region, call: &Call<'_>) -> HandlerResult {
    let key = region.find_machine(call.part(0))?;
    let m = region.machine(key).ok_or_else(|| SimResponse::not_found("Node"))?;
    let mut j = JsonWriter::at(0, 4096);
    j.array(|j| {
        m.nics.iter().for_each(|n| j.item(|j| render::nic(j, n, &m.system_id, &region.net)))
    });
    Ok(SimResponse::new(200, JSON, j.finish()))
}

fn find(region: &Region, call: &Call<'_>) -> Result<(u32, i64), SimResponse> {
    let key = region.find_machine(call.part(0))?;
    let wanted = call.part(1);
    let nic = region.machine(key).and_then(|m| {
        m.nics.iter().find(|n| n.id.to_string() == wanted || n.name == wanted).map(|n| n.id)
    });
    nic.map(|id| (key, id)).ok_or_else(|| SimResponse::not_found("Interface"))
}

pub(super) fn show(region: &Region, key: u32, id: i64) -> HandlerResult {
    let m = region.machine(key).ok_or_else(|| SimResponse::not_found("Machine"))?;
    let nic = m.nic(id).ok_or_else(|| SimResponse::not_found("Interface"))?;
    let mut j = JsonWriter::at(0, 2048);
    j.object(|j| render::nic(j, nic, &m.system_id, &region.net));
    Ok(SimResponse::new(200, JSON, j.finish()))
}

/// Handles `GET nodes/ID/interfaces/IID/`.
pub(super) fn read(region: &mut Region, call: &Call<'_>) -> HandlerResult {
    let (key, id) = find(region, call)?;
    show(region, key, id)
}

/// The interface, if the machine's state lets its network be changed.
fn find_changeable(
    region: &Region,
    call: &Call<'_>,
    what: &str,
    more: &[Status],
) -> Result<(u32, i64), SimResponse> {
    let (key, id) = find(region, call)?;
    region.check_permitted(key, call)?;
    let status = region.status(key);
    let usual = matches!(
        status,
        Status::New | Status::Ready | Status::FailedTesting | Status::Allocated | Status::Broken
    );
    if !usual && !more.contains(&status) {
        let text =
            format!("Cannot {what} because the machine is not New, Ready, Allocated, or Broken.");
        return Err(SimResponse::conflict(text));
    }
    Ok((key, id))
}

fn edit<T>(
    region: &mut Region,
    key: u32,
    id: i64,
    change: impl FnOnce(&mut Nic) -> T,
) -> Option<T> {
    region.edit_names(key, |m| m.nics.iter_mut().find(|n| n.id == id).map(change)).flatten()
}

/// What a form refuses of a MAC address that an interface is to have.
pub(super) fn mac_error(region: &Region, mac: &str, but: Option<i64>) -> Option<FormError> {
    if !is_mac(mac) {
        return Some(("mac_address", format!("'{mac}' is not a valid MAC address.")));
    }
    let has = |n: &Nic| n.mac == mac && n.kind == "physical" && Some(n.id) != but;
    let mut named = region.machines_named(LookupName::Mac(mac), |m| m.has_mac(mac));
    let (m, nic) = named.find_map(|m| m.nics.iter().find(|n| has(n)).map(|n| (m, n)))?;
    let text = format!(
        "This MAC address is already in use by {} ({}) on {}.",
        nic.name, nic.kind, m.hostname
    );
    Some(("mac_address", text))
}

/// What a form refuses of a name that an interface is to have.
pub(super) fn name_error(
    region: &Region,
    key: u32,
    name: &str,
    but: Option<i64>,
) -> Option<FormError> {
    let m = region.machine(key)?;
    let taken = m.nics.iter().any(|n| n.name == name && Some(n.id) != but);
    let text = format!("Node {} already has an interface named '{name}'.", m.hostname);
    taken.then_some(("name", text))
}

/// Handles `PUT nodes/ID/interfaces/IID/`.
pub(super) fn update(region: &mut Region, call: &Call<'_>) -> HandlerResult {
    let (key, id) =
        find_changeable(region, call, "update interface interface", &[Status::Deployed])?;
    let form = &call.form;
    let vlan = match form.filled("vlan") {
        None => None,
        Some(text) => {
            let known = text.parse().ok().filter(|v| region.net.vlan_by_id(*v).is_some());
            Some(known.ok_or_else(|| {
                let text =
                    "Select a valid choice. That choice is not one of the available choices.";
                SimResponse::invalid("vlan", text)
            })?)
        }
    };
    let mut errors: Vec<FormError> = Vec::new();
    let mtu_error = form.filled("mtu").and_then(|mtu| match mtu.parse::<i64>() {
        Err(_) => Some("Enter a whole number."),
        Ok(n) if n < 552 => Some("Ensure this value is greater than or equal to 552."),
        Ok(n) if n > 65535 => Some("Ensure this value is less than or equal to 65535."),
        Ok(_) => None,
    });
    errors.extend(mtu_error.map(|text| ("mtu", text.to_owned())));
    if let Some(mac) = form.filled("mac_address") {
        errors.extend(mac_error(region, &mac.to_lowercase(), Some(id)));
    }
    if let Some(name) = form.filled("name") {
        errors.extend(name_error(region, key, name, Some(id)));
    }
    if !errors.is_empty() {
        return Err(SimResponse::invalid_fields(&errors));
    }
    let deployed = region.status(key) == Status::Deployed;
    let name = form.filled("name").map(str::to_owned);
    let mac = form.filled("mac_address").map(str::to_lowercase);
    let tags = form
        .get("tags")
        .map(|t| t.split(',').filter(|t| !t.is_empty()).map(|t| t.trim().to_owned()).collect());
    let mtu = form.filled("mtu").and_then(|m| m.parse().ok());
    let connected = form.has("link_connected").then(|| form.django_bool("link_connected"));
    let moved = edit(region, key, id, |nic| {
        nic.name = name.unwrap_or(std::mem::take(&mut nic.name));
        nic.mac = mac.unwrap_or(std::mem::take(&mut nic.mac));
        nic.link_connected = connected.unwrap_or(nic.link_connected);
        if deployed {
            return Vec::new();
        }
        nic.tags = tags.unwrap_or(std::mem::take(&mut nic.tags));
        nic.mtu = mtu.or(nic.mtu);
        if vlan.is_none() || vlan == nic.vlan {
            return Vec::new();
        }
        nic.vlan = vlan;
        // Links to subnets of the old VLAN go with it.
        let (gone, kept) =
            std::mem::take(&mut nic.links).into_iter().partition(|l| l.subnet.is_some());
        nic.links = kept;
        gone
    });
    free(region, moved.unwrap_or_default());
    show(region, key, id)
}

fn free(region: &mut Region, links: Vec<Link>) {
    for link in links {
        if let (Some(subnet), Some(address)) = (link.subnet, link.address) {
            region.net.release_address(subnet, address);
        }
    }
}

/// Handles `DELETE nodes/ID/interfaces/IID/`.
pub(super) fn delete(region: &mut Region, call: &Call<'_>) -> HandlerResult {
    let (key, id) = find_changeable(region, call, "delete interface interface", &[])?;
    let links = edit(region, key, id, |nic| std::mem::take(&mut nic.links)).unwrap_or_default();
    free(region, links);
    region.edit_names(key, |m| {
        m.nics.retain(|n| n.id != id);
        m.boot_nic = m.boot_nic.filter(|b| *b != id);
    });
    Ok(SimResponse::no_content())
}

fn mode(text: &str) -> Result<LinkMode, SimResponse> {
    match text.to_lowercase().as_str() {
        "auto" => Ok(LinkMode::Auto),
        "dhcp" => Ok(LinkMode::Dhcp),
        "static" => Ok(LinkMode::Static),
        "link_up" => Ok(LinkMode::LinkUp),
        "" => Err(SimResponse::invalid("mode", "This field is required.")),
        other => {
            let text = format!(
                "'{other}' is not a valid mode.  It should be one of: 'auto', 'dhcp', 'static', 'link_up'."
            );
            Err(SimResponse::invalid("mode", text))
        }
    }
}

/// The subnet that a link names, which must lie on the interface's VLAN.
fn subnet_of(
    region: &Region,
    nic: &Nic,
    call: &Call<'_>,
    mode: LinkMode,
) -> Result<Option<i64>, SimResponse> {
    let Some(text) = call.form.filled("subnet") else {
        return match mode {
            LinkMode::Dhcp | LinkMode::LinkUp => Ok(None),
            _ => Err(SimResponse::invalid("subnet", "This field is required.")),
        };
    };
    let found =
        region.net.subnet_by_text(text).filter(|s| nic.vlan.is_none() || nic.vlan == Some(s.vlan));
    match found {
        Some(subnet) => Ok(Some(subnet.id)),
        None => {
            let none = format!("None found with id={text}.");
            let required = "This field is required.".to_owned();
            Err(SimResponse::invalid_fields(&[("subnet", none), ("subnet", required)]))
        }
    }
}

fn dhcp_conflict(region: &Region, nic: &Nic) -> Option<SimResponse> {
    let link = nic.links.iter().find(|l| l.mode == LinkMode::Dhcp)?;
    let from = link.subnet.and_then(|s| region.net.subnet_by_id(s)).map(|s| {
        let vid = region.net.vlan_by_id(s.vlan).map_or(0, |v| v.vid);
        format!(" from '{}:{}(vid={vid})'", s.name, s.cidr())
    });
    Some(SimResponse::invalid(
        "mode",
        format!("Interface is already set to DHCP{}.", from.unwrap_or_default()),
    ))
}

fn static_address(region: &mut Region, call: &Call<'_>, subnet: i64) -> Result<u32, SimResponse> {
    let Some(text) = call.form.filled("ip_address") else {
        return region
            .net
            .allocate_address(subnet)
            .ok_or_else(|| SimResponse::new(503, "text/plain", "No more IPs available."));
    };
    let address = parse_ip(text)
        .ok_or_else(|| SimResponse::invalid("ip_address", "Enter a valid IPv4 or IPv6 address."))?;
    match region.net.claim_address(subnet, address) {
        Ok(()) => Ok(address),
        Err(AddressError::Used) => Err(SimResponse::text(404, "IP address is already in use.")),
        Err(AddressError::Dynamic(a, b)) => {
            let text = format!("IP address is inside a dynamic range {} to {}.", ip(a), ip(b));
            Err(SimResponse::invalid("ip_address", text))
        }
        Err(AddressError::Outside) => {
            let name = region.net.subnet_by_id(subnet).map(|s| {
                let vid = region.net.vlan_by_id(s.vlan).map_or(0, |v| v.vid);
                format!("{}:{}(vid={vid})", s.name, s.cidr())
            });
            let text =
                format!("IP address is not in the given subnet '{}'.", name.unwrap_or_default());
            Err(SimResponse::invalid("ip_address", text))
        }
    }
}

/// Handles `op=link_subnet`.
pub(super) fn link(region: &mut Region, call: &Call<'_>) -> HandlerResult {
    let (key, id) = find_changeable(region, call, "link subnet interface", &[])?;
    let nic = region
        .machine(key)
        .and_then(|m| m.nic(id))
        .cloned()
        .ok_or_else(|| SimResponse::not_found("Interface"))?;
    let mode = mode(call.form.get("mode").unwrap_or(""))?;
    let force = call.form.django_bool("force");
    let subnet = subnet_of(region, &nic, call, mode)?;
    let real = nic.links.iter().any(|l| l.mode != LinkMode::LinkUp);
    if mode == LinkMode::LinkUp && real && !force {
        let text = "Cannot configure interface to link up (with no IP address) while other links are already configured. Specify force=True to override this behavior and delete all links.";
        return Err(SimResponse::invalid("mode", text));
    }
    if mode == LinkMode::Dhcp
        && !force
        && let Some(refusal) = dhcp_conflict(region, &nic)
    {
        return Err(refusal);
    }
    let address = match (mode, subnet) {
        (LinkMode::Static, Some(subnet)) => Some(static_address(region, call, subnet)?),
        _ => None,
    };
    let link = Link { id: region.next_id("link"), mode, subnet, address };
    let vlan = subnet.and_then(|s| region.net.subnet_by_id(s)).map(|s| s.vlan);
    let gone = edit(region, key, id, |nic| {
        nic.vlan = nic.vlan.or(vlan);
        // A bare link-up gives way; other links add up, unless forced.
        let (gone, kept) = std::mem::take(&mut nic.links)
            .into_iter()
            .partition(|l| force || l.mode == LinkMode::LinkUp);
        nic.links = kept;
        nic.links.push(link);
        gone
    });
    free(region, gone.unwrap_or_default());
    show(region, key, id)
}

/// Handles `op=unlink_subnet`.
pub(super) fn unlink(region: &mut Region, call: &Call<'_>) -> HandlerResult {
    let (key, id) = find_changeable(region, call, "unlink subnet interface", &[])?;
    let wanted = call.form.get("id").unwrap_or("").to_owned();
    let links =
        region.machine(key).and_then(|m| m.nic(id)).map(|n| n.links.clone()).unwrap_or_default();
    if !links.iter().any(|l| l.id.to_string() == wanted) {
        let list: Vec<String> = links.iter().map(|l| format!("'{}'", l.id)).collect();
        let text =
            format!("'{wanted}' is not a valid id.  It should be one of: {}.", list.join(", "));
        return Err(SimResponse::invalid("id", text));
    }
    let up = region.next_id("link");
    // What is left up is up in the subnet that DHCP was seen in.
    let subnet = region.machine(key).and_then(|m| m.nic(id)).and_then(|nic| {
        let seen = region.net.subnet_by_id(nic.discovered?.0)?;
        (nic.vlan == Some(seen.vlan)).then_some(seen.id)
    });
    let gone = edit(region, key, id, |nic| {
        let (gone, kept): (Vec<Link>, Vec<Link>) =
            std::mem::take(&mut nic.links).into_iter().partition(|l| l.id.to_string() == wanted);
        nic.links = kept;
        if nic.links.is_empty() {
            nic.links.push(Link { id: up, mode: LinkMode::LinkUp, subnet, address: None });
        }
        gone
    });
    free(region, gone.unwrap_or_default());
    show(region, key, id)
}

/// Handles `op=disconnect`: drops the links and the VLAN.
pub(super) fn disconnect(region: &mut Region, call: &Call<'_>) -> HandlerResult {
    let (key, id) = find_changeable(region, call, "disconnect interface", &[])?;
    let gone = edit(region, key, id, |nic| {
        nic.vlan = None;
        std::mem::take(&mut nic.links)
    });
    free(region, gone.unwrap_or_default());
    show(region, key, id)
}

/// Handles `op=set_default_gateway`.
pub(super) fn set_default_gateway(region: &mut Region, call: &Call<'_>) -> HandlerResult {
    let (key, id) = find_changeable(region, call, "set default gateway", &[])?;
    let nic = region
        .machine(key)
        .and_then(|m| m.nic(id))
        .cloned()
        .ok_or_else(|| SimResponse::not_found("Interface"))?;
    let asked = call.form.filled("link_id");
    let usable: Vec<(i64, i64)> = nic
        .links
        .iter()
        .filter(|l| asked.is_none_or(|a| l.id.to_string() == a))
        .filter_map(|l| l.subnet.map(|s| (l.id, s)))
        .filter(|(_, s)| region.net.subnet_by_id(*s).is_some_and(|s| s.gateway.is_some()))
        .collect();
    let Some((link, subnet)) = usable.first().copied() else {
        return Err(SimResponse::invalid("__all__", "This interface has no usable gateways."));
    };
    region.edit(key, |m| (m.gateway, m.gateway_link) = (Some(subnet), Some(link)));
    show(region, key, id)
}

/// Handles `op=clear_default_gateways`.
pub(super) fn clear_gateways(region: &mut Region, call: &Call<'_>) -> HandlerResult {
    let key = region.find_as_admin(call)?;
    region.check_permitted(key, call)?;
    region.edit(key, |m| (m.gateway, m.gateway_link) = (None, None));
    Ok(region.machine_response(key))
}

/// Handles `op=add_tag`.
pub(super) fn add_tag(region: &mut Region, call: &Call<'_>) -> HandlerResult {
    let (key, id) = find(region, call)?;
    region.check_permitted(key, call)?;
    let tag = mandatory(call, "tag")?.to_owned();
    edit(region, key, id, |nic| {
        if !tag.is_empty() && !nic.tags.contains(&tag) {
            nic.tags.push(tag);
        }
    });
    show(region, key, id)
}

/// Handles `op=remove_tag`.
pub(super) fn remove_tag(region: &mut Region, call: &Call<'_>) -> HandlerResult {
    let (key, id) = find(region, call)?;
    region.check_permitted(key, call)?;
    let tag = mandatory(call, "tag")?.to_owned();
    edit(region, key, id, |nic| nic.tags.retain(|t| *t != tag));
    show(region, key, id)
}

/// Handles `op=restore_networking_configuration`.
pub(super) fn restore(region: &mut Region, call: &Call<'_>) -> HandlerResult {
    let key = super::storage::find_restorable(region, call, "networking")?;
    region.rediscover_network(key);
    Ok(region.machine_response(key))
}

/// Handles `op=restore_default_configuration`.
pub(super) fn restore_default(region: &mut Region, call: &Call<'_>) -> HandlerResult {
    restore(region, call)?;
    super::storage::restore(region, call)
}
