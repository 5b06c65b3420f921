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

/// Handles `GET zones/`.
pub(super) fn zones(region: &mut Region, _: &Call<'_>) -> HandlerResult {
    Ok(SimResponse::json(&region.settings.zones.iter().map(zone_json).collect()))
}

/// Handles `GET zones/NAME/`.
pub(super) fn zone(region: &mut Region, call: &Call<'_>) -> HandlerResult {
    let found = region.settings.zones.iter().find(|z| z.name == call.part(0));
    found.map(|z| SimResponse::json(&zone_json(z))).ok_or_else(|| SimResponse::not_found("Zone"))
}

fn new_group(list: &[Group], call: &Call<'_>, what: &str) -> Result<Group, SimResponse> {
    let name = call
        .form
        .filled("name")
        .ok_or_else(|| SimResponse::invalid("name", "This field is required."))?;
    if list.iter().any(|g| g.name == name) {
        return Err(SimResponse::invalid("name", format!("{what} with this Name already exists.")));
    }
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
