//! Availability zones and resource pools.

use serde_json::{Value, json};

use super::call::{Call, HandlerResult};
use crate::region::Region;
use crate::settings::Group;
use crate::wire::SimResponse;

pub(super) fn zone_json(zone: &Group) -> Value {
    json!({"name": zone.name, "description": zone.description, "id": zone.id,
           "resource_uri": format!("/MAAS/api/2.0/zones/{}/", zone.name)})
}

/// The one domain as the API shows it.
pub(super) fn domain_json() -> serde_json::Value {
    let mut j = crate::json::JsonWriter::at(0, 256);
    j.object(crate::render::domain);
    serde_json::from_str(&j.finish()).unwrap_or_default()
}

/// Handles `GET zones/`.
pub(super) fn zones(region: &mut Region, _: &Call<'_>) -> HandlerResult {
    Ok(SimResponse::json(&region.settings.zones.iter().map(zone_json).collect()))
}

/// Handles `GET zones/NAME/`.
pub(super) fn zone(region: &mut Region, call: &Call<'_>) -> HandlerResult {
    let found = region.settings.zones.iter().find(|z| z.name == call.part(0));
    found.map(|z| SimResponse::json(&zone_json(z))).ok_or_else(|| SimResponse::not_found("Zone"))
}

/// What the form of a zone or a pool refuses.
fn check_name(
    list: &[Group],
    call: &Call<'_>,
    but: Option<i64>,
    what: &str,
) -> Result<(), SimResponse> {
    let Some(name) = call.form.filled("name") else {
        return Ok(());
    };
    let word = |c: char| c.is_alphanumeric() || matches!(c, '_' | '-' | ' ');
    if !name.chars().all(word) || name.starts_with(['-', ' ']) {
        return Err(SimResponse::invalid("name", "Enter a valid value."));
    }
    if list.iter().any(|g| g.name == name && Some(g.id) != but) {
        return Err(SimResponse::invalid("name", format!("{what} with this Name already exists.")));
    }
    Ok(())
}

/// Takes over what the form says; returns the old name and the new one.
fn rename(group: &mut Group, call: &Call<'_>) -> (String, String) {
    let old = group.name.clone();
    if let Some(name) = call.form.filled("name") {
        name.clone_into(&mut group.name);
    }
    if let Some(description) = call.form.get("description") {
        description.clone_into(&mut group.description);
    }
    (old, group.name.clone())
}

/// Handles `PUT zones/NAME/`.
pub(super) fn update_zone(region: &mut Region, call: &Call<'_>) -> HandlerResult {
    let zones = &mut region.settings.zones;
    let index = zones.iter().position(|z| z.name == call.part(0));
    let index = index.ok_or_else(|| SimResponse::not_found("Zone"))?;
    check_name(zones, call, Some(zones[index].id), "Physical zone")?;
    let (old, new) = rename(&mut zones[index], call);
    let answer = SimResponse::json(&zone_json(&zones[index]));
    region.machines.values_mut().filter(|m| m.zone == old).for_each(|m| m.zone.clone_from(&new));
    region.invalidate_bodies();
    Ok(answer)
}

/// Handles `DELETE zones/NAME/`: what was in it is in the default zone.
pub(super) fn delete_zone(region: &mut Region, call: &Call<'_>) -> HandlerResult {
    let name = call.part(0);
    let zone = region.settings.zones.iter().find(|z| z.name == name);
    if zone.ok_or_else(|| SimResponse::not_found("Zone"))?.id == 1 {
        let text = "This zone is the default zone, it cannot be deleted.";
        return Err(SimResponse::text(400, text));
    }
    region.settings.zones.retain(|z| z.name != name);
    let default = region.settings.zones.first().map(|z| z.name.clone()).unwrap_or_default();
    for m in region.machines.values_mut().filter(|m| m.zone == name) {
        m.zone.clone_from(&default);
    }
    region.invalidate_bodies();
    Ok(SimResponse::no_content())
}

fn pool_index(region: &Region, call: &Call<'_>) -> Result<usize, SimResponse> {
    let found = region.settings.pools.iter().position(|p| p.id.to_string() == call.part(0));
    found.ok_or_else(|| SimResponse::not_found("ResourcePool"))
}

/// Handles `PUT resourcepool/ID/`.
pub(super) fn update_pool(region: &mut Region, call: &Call<'_>) -> HandlerResult {
    let index = pool_index(region, call)?;
    let pools = &mut region.settings.pools;
    check_name(pools, call, Some(pools[index].id), "Resource pool")?;
    let (old, new) = rename(&mut pools[index], call);
    let answer = SimResponse::json(&pool_json(&pools[index]));
    region.machines.values_mut().filter(|m| m.pool == old).for_each(|m| m.pool.clone_from(&new));
    region.invalidate_bodies();
    Ok(answer)
}

/// Handles `DELETE resourcepool/ID/`: refused for the default pool, and while machines are in it.
pub(super) fn delete_pool(region: &mut Region, call: &Call<'_>) -> HandlerResult {
    let index = pool_index(region, call)?;
    let pool = &region.settings.pools[index];
    if pool.id == 0 {
        let text = "This is the default pool, it cannot be deleted.";
        return Err(SimResponse::text(400, text));
    }
    if region.machines.values().any(|m| m.pool == pool.name) {
        return Err(SimResponse::text(400, "Can't delete pool with machines in it."));
    }
    region.settings.pools.remove(index);
    Ok(SimResponse::no_content())
}

fn new_group(list: &[Group], call: &Call<'_>, what: &str) -> Result<Group, SimResponse> {
    let name = call
        .form
        .filled("name")
        .ok_or_else(|| SimResponse::invalid("name", "This field is required."))?;
    check_name(list, call, None, what)?;
    let id = list.iter().map(|g| g.id).max().unwrap_or(0) + 1;
    let description = call.form.get("description").unwrap_or("").to_owned();
    Ok(Group { id, name: name.to_owned(), description })
}

/// Handles `POST zones/`.
pub(super) fn create_zone(region: &mut Region, call: &Call<'_>) -> HandlerResult {
    let zone = new_group(&region.settings.zones, call, "Physical zone")?;
    let answer = SimResponse::json(&zone_json(&zone));
    region.settings.zones.push(zone);
    Ok(answer)
}

fn pool_json(pool: &Group) -> Value {
    json!({"name": pool.name, "description": pool.description, "id": pool.id,
           "resource_uri": format!("/MAAS/api/2.0/resourcepool/{}/", pool.id)})
}

/// Handles `GET resourcepools/`.
pub(super) fn pools(region: &mut Region, _: &Call<'_>) -> HandlerResult {
    Ok(SimResponse::json(&region.settings.pools.iter().map(pool_json).collect()))
}

/// Handles `GET resourcepool/ID/`.
pub(super) fn pool(region: &mut Region, call: &Call<'_>) -> HandlerResult {
    let found = region.settings.pools.iter().find(|p| p.id.to_string() == call.part(0));
    found
        .map(|p| SimResponse::json(&pool_json(p)))
        .ok_or_else(|| SimResponse::not_found("ResourcePool"))
}

/// Handles `POST resourcepools/`.
pub(super) fn create_pool(region: &mut Region, call: &Call<'_>) -> HandlerResult {
    let pool = new_group(&region.settings.pools, call, "Resource pool")?;
    let answer = SimResponse::json(&pool_json(&pool));
    region.settings.pools.push(pool);
    Ok(answer)
}
