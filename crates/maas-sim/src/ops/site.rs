//! Everything that is not a machine, an image or a script: users, settings, tags, networks,
//! events.

use serde_json::{Value, json};

use super::call::{Call, HandlerResult};
use super::filters::select;
use crate::auth::User;
use crate::events::{NODE_FILTERS, Query};
use crate::region::Region;
use crate::settings::{Group, NAMES, SshKey};
use crate::times;
use crate::wire::{JSON, JSON_BARE, Params, SimRequest, SimResponse, TEXT_BARE};

/// Handles `GET version/`: compact, the one answer that is not pretty-printed.
pub(super) fn version(region: &mut Region, _: &Call<'_>) -> HandlerResult {
    let value = json!({
        "capabilities": ["networks-management", "static-ipaddresses", "ipv6-deployment-ubuntu", "devices-management",
            "storage-deployment-ubuntu", "network-deployment-ubuntu", "bridging-interface-ubuntu",
            "bridging-automatic-ubuntu", "authenticate-api"],
        "version": region.cfg.version,
        "subversion": "",
    });
    Ok(SimResponse::new(200, JSON, value.to_string()))
}

fn user_json(user: &User) -> Value {
    json!({"is_superuser": user.admin, "username": user.name, "email": user.email, "is_local": true,
           "resource_uri": format!("/MAAS/api/2.0/users/{}/", user.name)})
}

/// Handles `GET users/`.
pub(super) fn users(region: &mut Region, _: &Call<'_>) -> HandlerResult {
    Ok(SimResponse::json(&region.accounts.users.iter().map(user_json).collect()))
}

fn user_named(region: &Region, name: &str) -> HandlerResult {
    let user = region.accounts.users.iter().find(|u| u.name == name);
    user.map(|u| SimResponse::json(&user_json(u))).ok_or_else(|| SimResponse::not_found("User"))
}

/// Handles `users/?op=whoami`.
pub(super) fn whoami(region: &mut Region, call: &Call<'_>) -> HandlerResult {
    user_named(region, &call.user)
}

/// Handles `GET users/NAME/`.
pub(super) fn user(region: &mut Region, call: &Call<'_>) -> HandlerResult {
    user_named(region, call.part(0))
}

/// Handles `account/?op=list_authorisation_tokens`.
pub(super) fn tokens(region: &mut Region, call: &Call<'_>) -> HandlerResult {
    let keys = region.accounts.users.iter().filter(|u| u.name == call.user).flat_map(|u| &u.keys);
    Ok(SimResponse::json(&keys.map(|k| json!({"name": "MAAS consumer", "token": k})).collect()))
}

fn new_key(region: &mut Region, index: usize, name: &str) -> Value {
    let number = region.next_id("apikey");
    let mut rng = crate::rng::SimRng::for_name(region.cfg.seed, &format!("apikey/{number}"));
    let mut word = || rng.uuid().replace('-', "");
    let (consumer, token, secret) = (word(), word(), word());
    if let Some(user) = region.accounts.users.get_mut(index) {
        user.keys.push(format!("{consumer}:{token}:{secret}"));
    }
    json!({"name": name, "consumer_key": consumer, "token_key": token, "token_secret": secret})
}

/// Handles `account/ op=create_authorisation_token`.
pub(super) fn create_token(region: &mut Region, call: &Call<'_>) -> HandlerResult {
    let index = region.accounts.users.iter().position(|u| u.name == call.user).unwrap_or(0);
    let name = call.form.filled("name").unwrap_or("MAAS consumer").to_owned();
    Ok(SimResponse::json(&new_key(region, index, &name)))
}

/// Handles `POST /MAAS/accounts/authenticate/`: an API key for a name and a password.
pub(crate) fn authenticate(region: &mut Region, request: &SimRequest) -> SimResponse {
    if request.method != "POST" {
        return SimResponse::new(405, TEXT_BARE, "").header("Allow", "POST");
    }
    let form = Params::parse_body(request.content_type.as_deref(), &request.body, false);
    let (name, password) = (form.get("username").unwrap_or(""), form.get("password").unwrap_or(""));
    match region.accounts.login(name, password) {
        Some(index) => {
            let name = form.get("consumer").unwrap_or("").to_owned();
            SimResponse::json(&new_key(region, index, &name))
        }
        None => SimResponse::new(403, TEXT_BARE, ""),
    }
}

fn key_json(key: &SshKey) -> Value {
    json!({"key": key.key, "id": key.id, "keysource": "",
           "resource_uri": format!("/MAAS/api/2.0/account/prefs/sshkeys/{}/", key.id)})
}

/// Handles `GET account/prefs/sshkeys/`.
pub(super) fn ssh_keys(region: &mut Region, call: &Call<'_>) -> HandlerResult {
    let mine = region.settings.ssh_keys.iter().filter(|k| k.owner == call.user);
    Ok(SimResponse::json(&mine.map(key_json).collect()))
}

/// Handles `POST account/prefs/sshkeys/`.
pub(super) fn create_ssh_key(region: &mut Region, call: &Call<'_>) -> HandlerResult {
    let key = call
        .form
        .filled("key")
        .ok_or_else(|| SimResponse::invalid("key", "This field is required."))?
        .to_owned();
    if !key.starts_with("ssh-") && !key.starts_with("ecdsa-") && !key.starts_with("sk-") {
        return Err(SimResponse::invalid("key", "Invalid SSH public key."));
    }
    if region.settings.ssh_keys.iter().any(|k| k.owner == call.user && k.key == key) {
        return Err(SimResponse::invalid(
            "__all__",
            "This key has already been added for this user.",
        ));
    }
    let id = region.next_id("sshkey");
    region.settings.ssh_keys.push(SshKey { id, owner: call.user.clone(), key: key.clone() });
    let mut response = SimResponse::json(&json!({"key": key, "id": id}));
    response.status = 201;
    Ok(response)
}

/// Handles `GET account/prefs/sshkeys/ID/`.
pub(super) fn ssh_key(region: &mut Region, call: &Call<'_>) -> HandlerResult {
    let found = region.settings.ssh_keys.iter().find(|k| k.id.to_string() == call.part(0));
    found.map(|k| SimResponse::json(&key_json(k))).ok_or_else(|| SimResponse::not_found("SSHKey"))
}

/// Handles `DELETE account/prefs/sshkeys/ID/`.
pub(super) fn delete_ssh_key(region: &mut Region, call: &Call<'_>) -> HandlerResult {
    let before = region.settings.ssh_keys.len();
    region.settings.ssh_keys.retain(|k| k.id.to_string() != call.part(0));
    if region.settings.ssh_keys.len() == before {
        return Err(SimResponse::not_found("SSHKey"));
    }
    Ok(SimResponse::no_content())
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

/// Handles `maas/ op=set_config`.
pub(super) fn set_config(region: &mut Region, call: &Call<'_>) -> HandlerResult {
    let name =
        call.form.filled("name").ok_or_else(|| SimResponse::text(400, "No provided name!"))?;
    let value =
        call.form.get("value").ok_or_else(|| SimResponse::text(400, "No provided value!"))?;
    if !NAMES.contains(&name) {
        return Err(unknown_setting(name));
    }
    if name == "hardware_sync_interval" && times::interval_seconds(value).is_none() {
        let text = format!(
            "'{value}' is not a valid interval. Only 'h|hr|hour|hours, m|min|minute|minutes.s|sec|second|seconds' are valid units"
        );
        return Err(SimResponse::invalid(name, text));
    }
    if name == "default_min_hwe_kernel" && !value.is_empty() && !region.images.knows_kernel(value) {
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

/// Handles `events/?op=query`.
pub(super) fn events(region: &mut Region, call: &Call<'_>) -> HandlerResult {
    let mut query = Query::parse(&call.query)?;
    if NODE_FILTERS.iter().any(|f| call.query.has(f)) {
        let mut only = Params::default();
        for (name, value) in call.query.iter().filter(|(k, _)| NODE_FILTERS.contains(k)) {
            only.push(name, value);
        }
        query.nodes = Some(select(region, &only, call)?);
    }
    let name = |key: u32| region.machine(key).map(|m| (m.system_id.as_str(), m.hostname.as_str()));
    Ok(SimResponse::new(200, JSON, region.events.page(&query, &call.query, name)))
}

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
