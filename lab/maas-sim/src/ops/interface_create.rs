//! New interfaces: physical ones, bonds, VLANs and bridges.

use super::call::{Call, HandlerResult};
use super::forms::{FormError, is_mac};
use super::interfaces::{mac_error, name_error, show};
use crate::model::{Link, LinkMode, Nic};
use crate::region::Region;
use crate::status::Status;
use crate::wire::SimResponse;

const REQUIRED: &str = "This field is required.";

/// The machine that gets an interface, if its state allows it.
fn find_machine(region: &Region, call: &Call<'_>, kind: &str) -> Result<u32, SimResponse> {
    let key = region.find_machine(call.part(0))?;
    region.check_permitted(key, call)?;
    let usual =
        [Status::New, Status::Ready, Status::FailedTesting, Status::Allocated, Status::Broken];
    if !usual.contains(&region.status(key)) {
        let text = format!(
            "Cannot create {kind} interface because the machine is not New, Ready, Allocated, or Broken."
        );
        return Err(SimResponse::conflict(text));
    }
    Ok(key)
}

fn vlan(region: &Region, call: &Call<'_>, errors: &mut Vec<FormError>) -> Option<i64> {
    let text = call.form.filled("vlan")?;
    let known = text.parse().ok().filter(|v| region.net.vlan_by_id(*v).is_some());
    if known.is_none() {
        let text = "Select a valid choice. That choice is not one of the available choices.";
        errors.push(("vlan", text.to_owned()));
    }
    known
}

/// The interfaces of the machine that the form names as parents.
fn parents(
    region: &Region,
    key: u32,
    call: &Call<'_>,
    field: &'static str,
    errors: &mut Vec<FormError>,
) -> Vec<Nic> {
    let Some(m) = region.machine(key) else {
        return Vec::new();
    };
    let mut out = Vec::new();
    for wanted in call.form.all(field).filter(|p| !p.is_empty()) {
        match m.nics.iter().find(|n| n.id.to_string() == wanted || n.name == wanted) {
            Some(nic) => out.push(nic.clone()),
            None => {
                let text =
                    format!("Select a valid choice. {wanted} is not one of the available choices.");
                errors.push((field, text));
            }
        }
    }
    out
}

/// Adds a checked interface; one with a VLAN is up.
fn add(region: &mut Region, key: u32, mut nic: Nic, call: &Call<'_>) -> HandlerResult {
    nic.id = region.next_id("interface");
    nic.mtu = call.form.filled("mtu").and_then(|m| m.parse().ok());
    nic.tags = call
        .form
        .filled("tags")
        .map(|t| t.split(',').map(|t| t.trim().to_owned()).collect())
        .unwrap_or_default();
    if nic.vlan.is_some() {
        let id = region.next_id("link");
        nic.links = vec![Link { id, mode: LinkMode::LinkUp, subnet: None, address: None }];
    }
    let (id, name, parents) = (nic.id, nic.name.clone(), nic.parents.clone());
    region.edit_names(key, |m| {
        for parent in m.nics.iter_mut().filter(|n| parents.contains(&n.name)) {
            parent.children.push(name.clone());
        }
        m.nics.push(nic);
    });
    show(region, key, id)
}

fn checked(errors: Vec<FormError>) -> Result<(), SimResponse> {
    if errors.is_empty() { Ok(()) } else { Err(SimResponse::invalid_fields(&errors)) }
}

/// Handles `op=create_physical`.
pub(super) fn physical(region: &mut Region, call: &Call<'_>) -> HandlerResult {
    let key = find_machine(region, call, "physical")?;
    let mut errors = Vec::new();
    let mac = call.form.filled("mac_address").unwrap_or("").to_lowercase();
    if mac.is_empty() {
        errors.push(("mac_address", REQUIRED.to_owned()));
    } else {
        errors.extend(mac_error(region, &mac, None));
    }
    let vlan = vlan(region, call, &mut errors);
    let count = region.machine(key).map_or(0, |m| m.nics.len());
    let name = call.form.filled("name").map_or_else(|| format!("eth{count}"), str::to_owned);
    errors.extend(name_error(region, key, &name, None));
    checked(errors)?;
    let mut nic = Nic::bare(0, name, mac);
    nic.vlan = vlan;
    add(region, key, nic, call)
}

/// Handles `op=create_bond`.
pub(super) fn bond(region: &mut Region, call: &Call<'_>) -> HandlerResult {
    let key = find_machine(region, call, "bond")?;
    let mut errors = Vec::new();
    let parents = parents(region, key, call, "parents", &mut errors);
    if parents.is_empty() && errors.is_empty() {
        let text = "A bond interface must have one or more parents.";
        errors.push(("parents", text.to_owned()));
    }
    if parents.iter().any(|p| Some(p.vlan) != parents.first().map(|f| f.vlan)) {
        errors.push(("parents", "All parents must belong to the same VLAN.".to_owned()));
    }
    let name = call.form.filled("name").unwrap_or("").to_owned();
    if name.is_empty() {
        errors.push(("name", REQUIRED.to_owned()));
    }
    errors.extend(name_error(region, key, &name, None));
    let given = call.form.filled("mac_address").map(str::to_lowercase);
    let mac = given.or_else(|| parents.first().map(|p| p.mac.clone()));
    match &mac {
        None => errors.push(("mac_address", "This field cannot be blank.".to_owned())),
        Some(mac) if !is_mac(mac) => {
            errors.push(("mac_address", format!("'{mac}' is not a valid MAC address.")));
        }
        Some(_) => {}
    }
    checked(errors)?;
    let mut bond = Nic::bare(0, name, mac.unwrap_or_default());
    bond.kind = "bond";
    bond.vlan = parents.first().and_then(|p| p.vlan);
    bond.parents = parents.iter().map(|p| p.name.clone()).collect();
    let mode = call.form.filled("bond_mode").unwrap_or("active-backup").to_owned();
    bond.params.insert("bond_mode".to_owned(), mode);
    let ids: Vec<i64> = parents.iter().map(|p| p.id).collect();
    region.edit(key, |m| {
        m.nics.iter_mut().filter(|n| ids.contains(&n.id)).for_each(|n| n.links.clear());
    });
    add(region, key, bond, call)
}

/// Handles `op=create_vlan`.
pub(super) fn tagged(region: &mut Region, call: &Call<'_>) -> HandlerResult {
    let key = find_machine(region, call, "VLAN")?;
    let mut errors = Vec::new();
    let parents = parents(region, key, call, "parent", &mut errors);
    if parents.len() != 1 && errors.is_empty() {
        let text = "A VLAN interface must have exactly one parent.";
        errors.push(("parent", text.to_owned()));
    }
    let wanted = vlan(region, call, &mut errors);
    let vid = wanted.and_then(|v| region.net.vlan_by_id(v)).map(|v| v.vid);
    if vid == Some(0) || (vid.is_none() && errors.is_empty()) {
        let text = "A VLAN interface can only belong to a tagged VLAN.";
        errors.push(("vlan", text.to_owned()));
    }
    checked(errors)?;
    let parent = parents.first().map(|p| (p.name.clone(), p.mac.clone())).unwrap_or_default();
    let mut nic = Nic::bare(0, format!("{}.{}", parent.0, vid.unwrap_or(0)), parent.1);
    nic.kind = "vlan";
    nic.vlan = wanted;
    nic.parents = vec![parent.0];
    add(region, key, nic, call)
}

/// Handles `op=create_bridge`.
pub(super) fn bridge(region: &mut Region, call: &Call<'_>) -> HandlerResult {
    let key = find_machine(region, call, "bridge")?;
    let mut errors = Vec::new();
    let parents = parents(region, key, call, "parent", &mut errors);
    if parents.len() != 1 && errors.is_empty() {
        let text = "A bridge interface must have exactly one parent.";
        errors.push(("parent", text.to_owned()));
    }
    let name = call.form.filled("name").unwrap_or("").to_owned();
    if name.is_empty() {
        errors.push(("name", REQUIRED.to_owned()));
    }
    errors.extend(name_error(region, key, &name, None));
    checked(errors)?;
    let Some(parent) = parents.into_iter().next() else {
        return Err(SimResponse::not_found("Interface"));
    };
    let mut nic = Nic::bare(0, name, parent.mac);
    nic.kind = "bridge";
    nic.vlan = parent.vlan;
    nic.parents = vec![parent.name];
    let kind = call.form.filled("bridge_type").unwrap_or("standard").to_owned();
    nic.params.insert("bridge_type".to_owned(), kind);
    add(region, key, nic, call)
}
