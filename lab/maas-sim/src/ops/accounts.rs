//! Users, their API keys and SSH keys, and logging in.

use serde_json::{Value, json};

use super::call::{Call, HandlerResult};
use crate::auth::User;
use crate::region::Region;
use crate::rng::SimRng;
use crate::settings::SshKey;
use crate::wire::{HTML, Params, SimRequest, SimResponse, TEXT_BARE};

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

/// A parameter that must be there.
pub(super) fn mandatory<'a>(call: &'a Call<'_>, name: &str) -> Result<&'a str, SimResponse> {
    call.form.get(name).ok_or_else(|| SimResponse::text(400, format!("No provided {name}!")))
}

/// Handles `POST users/`.
pub(super) fn create_user(region: &mut Region, call: &Call<'_>) -> HandlerResult {
    let name = mandatory(call, "username")?.to_owned();
    let email = mandatory(call, "email")?.to_owned();
    let password = call.form.get("password").map(str::to_owned);
    mandatory(call, "is_superuser")?;
    let admin = call.form.string_bool("is_superuser", false)?;
    if region.accounts.users.iter().any(|u| u.name == name || u.email == email) {
        return Err(region.conflict_page());
    }
    let user = User { name, password, email, admin, keys: Vec::new() };
    let answer = SimResponse::json(&user_json(&user));
    region.accounts.users.push(user);
    Ok(answer)
}

/// Handles `DELETE users/NAME/`.
pub(super) fn delete_user(region: &mut Region, call: &Call<'_>) -> HandlerResult {
    let name = call.part(0);
    if name == call.user {
        return Err(SimResponse::text(400, "An administrator cannot self-delete."));
    }
    let owns = region.machines.values().any(|m| m.owner.as_deref() == Some(name));
    if owns {
        let text = format!("User {name} cannot be deleted: 1 node(s) are still allocated");
        return Err(SimResponse::text(400, text));
    }
    let index = region.accounts.users.iter().position(|u| u.name == name);
    region.accounts.users.remove(index.ok_or_else(|| SimResponse::not_found("User"))?);
    Ok(SimResponse::no_content())
}

/// The caller's API key whose token the form names.
fn own_key(region: &Region, call: &Call<'_>, field: &str) -> Result<(usize, usize), SimResponse> {
    let token = mandatory(call, field)?;
    let of_token = |key: &String| key.split(':').nth(1) == Some(token);
    let users = region.accounts.users.iter().enumerate();
    let mut mine = users.filter(|(_, u)| u.name == call.user);
    mine.find_map(|(i, u)| u.keys.iter().position(of_token).map(|k| (i, k)))
        .ok_or_else(|| SimResponse::not_found("Token"))
}

/// Handles `account/ op=delete_authorisation_token`.
pub(super) fn delete_token(region: &mut Region, call: &Call<'_>) -> HandlerResult {
    let (user, key) = own_key(region, call, "token_key")?;
    region.accounts.users[user].keys.remove(key);
    Ok(SimResponse::no_content())
}

/// Handles `account/ op=update_token_name`. Names are told once, when a token is made.
pub(super) fn update_token_name(region: &mut Region, call: &Call<'_>) -> HandlerResult {
    own_key(region, call, "token")?;
    mandatory(call, "name")?;
    Ok(SimResponse::new(202, TEXT_BARE, "Accepted"))
}

/// Handles `GET account/prefs/sslkeys/`: none.
pub(super) fn ssl_keys(_: &mut Region, _: &Call<'_>) -> HandlerResult {
    Ok(SimResponse::json(&json!([])))
}

/// Handles `account/?op=list_authorisation_tokens`.
pub(super) fn tokens(region: &mut Region, call: &Call<'_>) -> HandlerResult {
    let keys = region.accounts.users.iter().filter(|u| u.name == call.user).flat_map(|u| &u.keys);
    Ok(SimResponse::json(&keys.map(|k| json!({"name": "MAAS consumer", "token": k})).collect()))
}

fn new_key(region: &mut Region, index: usize, name: &str) -> Value {
    let number = region.next_id("apikey");
    let mut rng = SimRng::for_name(region.cfg.seed, &format!("apikey/{number}"));
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
        return SimResponse::new(405, HTML, "").header("Allow", "POST");
    }
    let form = Params::parse_form(request.content_type.as_deref(), &request.body);
    let (name, password) = (form.get("username").unwrap_or(""), form.get("password").unwrap_or(""));
    match region.accounts.login(name, password) {
        Some(index) => {
            let name = form.get("consumer").unwrap_or("").to_owned();
            SimResponse::json(&new_key(region, index, &name))
        }
        None => SimResponse::new(403, HTML, ""),
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
        return Err(SimResponse::invalid("key", "Invalid SSH public key: Invalid value."));
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
