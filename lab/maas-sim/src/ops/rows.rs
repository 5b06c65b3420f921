//! The endpoints of the small tables, and of files.

use serde_json::{Value, json};

use super::call::{Call, HandlerResult};
use super::forms::is_mac;
use crate::region::Region;
use crate::tables::{Field, Kind, Row, Table, table_of};
use crate::wire::{SimResponse, encode_base64};

const REQUIRED: &str = "This field is required.";

impl Region {
    /// What was added to a table, as the API shows it.
    pub(super) fn added_rows(&self, list: &str) -> Vec<Value> {
        let rows = table_of(list).map_or(&[][..], |table| self.tables.rows(table));
        rows.iter().cloned().map(Value::Object).collect()
    }
}

fn table(call: &Call<'_>) -> Result<&'static Table, SimResponse> {
    let first = call.resource.uri.split('/').next().unwrap_or("");
    table_of(first).ok_or_else(|| SimResponse::not_found("resource"))
}

/// Handles a list.
pub(super) fn list(region: &mut Region, call: &Call<'_>) -> HandlerResult {
    let rows = region.tables.rows(table(call)?).iter();
    Ok(SimResponse::json(&rows.cloned().map(Value::Object).collect()))
}

fn position(region: &Region, table: &Table, call: &Call<'_>) -> Result<usize, SimResponse> {
    let wanted = call.part(0);
    let is = |row: &Row| {
        row.get("id").and_then(Value::as_i64).is_some_and(|id| wanted.parse() == Ok(id))
            || ["name", "system_id"].iter().any(|key| row.get(*key).is_some_and(|v| v == wanted))
    };
    let found = region.tables.rows(table).iter().position(is);
    found.ok_or_else(|| SimResponse::not_found(table.model))
}

/// Handles reading one.
pub(super) fn read(region: &mut Region, call: &Call<'_>) -> HandlerResult {
    let table = table(call)?;
    let index = position(region, table, call)?;
    Ok(SimResponse::json(&Value::Object(region.tables.rows(table)[index].clone())))
}

/// The value of a field that was sent, or what the form says of it.
fn value(region: &Region, field: &Field, call: &Call<'_>) -> Result<Value, String> {
    let text = call.form.get(field.name).unwrap_or("");
    match field.kind {
        Kind::Text => Ok(json!(text)),
        Kind::Flag(_) => Ok(json!(call.form.django_bool(field.name))),
        Kind::Number if text.is_empty() => Ok(Value::Null),
        Kind::Number => {
            text.parse::<i64>().map(|n| json!(n)).map_err(|_| "Enter a whole number.".to_owned())
        }
        Kind::List => {
            let all = call.form.all(field.name).flat_map(|t| t.split(','));
            let words: Vec<&str> = all.map(str::trim).filter(|t| !t.is_empty()).collect();
            if field.name == "mac_addresses"
                && let Some(odd) = words.iter().find(|word| !is_mac(word))
            {
                return Err(format!("'{odd}' is not a valid MAC address."));
            }
            Ok(json!(words))
        }
        Kind::Subnet => region.net.subnet_by_text(text).map_or_else(
            || {
                let choice =
                    "Select a valid choice. That choice is not one of the available choices.";
                Err(choice.to_owned())
            },
            |subnet| Ok(region.net.subnet_json(subnet.id)),
        ),
        Kind::Object => serde_json::from_str(text).map_err(|_| "Enter valid JSON.".to_owned()),
    }
}

/// What the form sends for a new row, or for the row at `old`.
fn sent(
    region: &Region,
    table: &Table,
    call: &Call<'_>,
    old: Option<usize>,
) -> Result<Row, SimResponse> {
    let (mut out, mut errors) = (Row::new(), Vec::new());
    for field in table.fields {
        if call.form.filled(field.name).is_none() {
            if field.required && old.is_none() {
                errors.push((field.name, REQUIRED.to_owned()));
            } else if call.form.has(field.name) {
                out.insert(field.name.to_owned(), value(region, field, call).unwrap_or_default());
            }
            continue;
        }
        match value(region, field, call) {
            Ok(value) => {
                let rows = region.tables.rows(table).iter().enumerate();
                let twin =
                    |(i, row): (usize, &Row)| Some(i) != old && row.get(field.name) == Some(&value);
                if field.unique && rows.into_iter().any(twin) {
                    let label = match field.name {
                        "url" => "Url",
                        _ => "Name",
                    };
                    let text = format!("{} with this {label} already exists.", table.words);
                    errors.push((field.name, text));
                }
                out.insert(field.name.to_owned(), value);
            }
            Err(text) => errors.push((field.name, text)),
        }
    }
    if errors.is_empty() { Ok(out) } else { Err(SimResponse::invalid_fields(&errors)) }
}

/// Handles creating one.
pub(super) fn create(region: &mut Region, call: &Call<'_>) -> HandlerResult {
    let table = table(call)?;
    let mut new = sent(region, table, call, None)?;
    if table.model == "Device" {
        device_members(region, &mut new, call);
    }
    let rows = region.tables.rows(table);
    // The spaces of a new region have the numbers before.
    let before = if table.model == "Space" { 2 } else { 0 };
    let id = rows.iter().filter_map(|r| r.get("id")?.as_i64()).max().unwrap_or(before) + 1;
    let mut row = table.row(id, new);
    if table.model == "Device" {
        let id = row.get("system_id").and_then(Value::as_str).unwrap_or("").to_owned();
        row.insert("resource_uri".to_owned(), json!(format!("/MAAS/api/2.0/devices/{id}/")));
        row.remove("id");
        row.remove("mac_addresses");
    }
    let answer = SimResponse::json(&Value::Object(row.clone()));
    region.tables.rows_mut(table).push(row);
    Ok(answer)
}

/// What a device shows beside its form's fields.
fn device_members(region: &mut Region, row: &mut Row, call: &Call<'_>) {
    let number = region.next_id("device");
    let mut rng = crate::rng::SimRng::for_name(region.cfg.seed, &format!("device/{number}"));
    let system_id = rng.system_id();
    let hostname = match call.form.filled("hostname") {
        Some(name) => name.to_owned(),
        None => format!("calm-device{number}"),
    };
    let macs = row.get("mac_addresses").and_then(Value::as_array).cloned().unwrap_or_default();
    let interfaces: Vec<Value> = macs
        .iter()
        .map(|mac| {
            let id = region.next_id("interface");
            json!({"id": id, "name": "eth0", "type": "physical", "mac_address": mac,
                   "system_id": system_id, "links": [], "vlan": null, "enabled": true,
                   "resource_uri": format!("/MAAS/api/2.0/nodes/{system_id}/interfaces/{id}/")})
        })
        .collect();
    row.insert("fqdn".to_owned(), json!(format!("{hostname}.maas")));
    row.insert("hostname".to_owned(), json!(hostname));
    row.insert("owner".to_owned(), json!(call.user));
    row.insert("interface_set".to_owned(), json!(interfaces));
    row.insert("zone".to_owned(), super::groups::zone_json(&region.settings.zones[0]));
    row.insert("domain".to_owned(), super::groups::domain_json());
    row.insert("system_id".to_owned(), json!(system_id));
}

/// Handles updating one.
pub(super) fn update(region: &mut Region, call: &Call<'_>) -> HandlerResult {
    let table = table(call)?;
    let index = position(region, table, call)?;
    let new = sent(region, table, call, Some(index))?;
    let row = &mut region.tables.rows_mut(table)[index];
    row.extend(new);
    Ok(SimResponse::json(&Value::Object(row.clone())))
}

/// Handles deleting one.
pub(super) fn delete(region: &mut Region, call: &Call<'_>) -> HandlerResult {
    let table = table(call)?;
    let index = position(region, table, call)?;
    region.tables.rows_mut(table).remove(index);
    Ok(SimResponse::no_content())
}

/// Handles `notifications/ID/ op=dismiss`.
pub(super) fn dismiss(region: &mut Region, call: &Call<'_>) -> HandlerResult {
    delete(region, call).map(|_| SimResponse::new(200, crate::wire::TEXT_BARE, "OK"))
}

/// Handles `boot-sources/ID/selections/`: the series that are synced.
pub(super) fn selections(region: &mut Region, call: &Call<'_>) -> HandlerResult {
    let table = table(call)?;
    position(region, table, call)?;
    let rows = (1..).zip(region.images.series()).map(|(id, series)| {
        json!({"os": "ubuntu", "release": series, "arches": ["amd64", "arm64"], "subarches": ["*"],
               "labels": ["*"], "boot_source_id": 1, "id": id,
               "resource_uri": format!("/MAAS/api/2.0/boot-sources/{}/selections/{id}/", call.part(0))})
    });
    Ok(SimResponse::json(&rows.collect()))
}

/// Handles `GET commissioning-scripts/`, the older list: names only.
pub(super) fn commissioning_scripts(region: &mut Region, _: &Call<'_>) -> HandlerResult {
    let scripts = region.scripts.list.iter();
    let mut names: Vec<&str> = scripts
        .filter(|s| s.kind == crate::model::SetKind::Commissioning)
        .map(|s| s.name.as_str())
        .collect();
    names.sort_unstable();
    Ok(SimResponse::json(&json!(names)))
}

fn file_json(name: &str, content: Option<&[u8]>) -> Value {
    let mut out = json!({"filename": name, "anon_resource_uri": format!("/MAAS/api/2.0/files/?op=get_by_key&key={name}"),
           "resource_uri": format!("/MAAS/api/2.0/files/{name}/")});
    if let Some(content) = content {
        out["content"] = json!(encode_base64(content));
    }
    out
}

/// Handles `GET files/`.
pub(super) fn files(region: &mut Region, call: &Call<'_>) -> HandlerResult {
    let prefix = call.query.get("prefix").unwrap_or("");
    let mine =
        region.files.keys().filter(|(user, name)| *user == call.user && name.starts_with(prefix));
    Ok(SimResponse::json(&mine.map(|(_, name)| file_json(name, None)).collect()))
}

/// Handles `POST files/`.
pub(super) fn create_file(region: &mut Region, call: &Call<'_>) -> HandlerResult {
    let name = call
        .form
        .filled("filename")
        .ok_or_else(|| SimResponse::text(400, "Filename not supplied"))?
        .to_owned();
    let content = call
        .form
        .files
        .first()
        .map(|file| file.content.clone())
        .ok_or_else(|| SimResponse::text(400, "File not supplied"))?;
    let answer = SimResponse::json(&file_json(&name, Some(&content)));
    region.files.insert((call.user.clone(), name), content);
    Ok(SimResponse { status: 201, ..answer })
}

fn file<'a>(region: &'a Region, user: &str, name: &str) -> Result<&'a bytes::Bytes, SimResponse> {
    let found = region.files.get(&(user.to_owned(), name.to_owned()));
    found.ok_or_else(|| SimResponse::not_found("FileStorage"))
}

/// Handles `files/?op=get`.
pub(super) fn get_file(region: &mut Region, call: &Call<'_>) -> HandlerResult {
    let name = call.query.filled("filename");
    let name = name.ok_or_else(|| SimResponse::text(400, "No provided filename!"))?;
    let content = file(region, &call.user, name)?;
    Ok(SimResponse::new(200, "application/octet-stream", content.clone()))
}

/// Handles `GET files/NAME/`.
pub(super) fn read_file(region: &mut Region, call: &Call<'_>) -> HandlerResult {
    let content = file(region, &call.user, call.part(0))?;
    Ok(SimResponse::json(&file_json(call.part(0), Some(content))))
}

/// Handles `DELETE files/NAME/`.
pub(super) fn delete_file(region: &mut Region, call: &Call<'_>) -> HandlerResult {
    file(region, &call.user, call.part(0))?;
    region.files.remove(&(call.user.clone(), call.part(0).to_owned()));
    Ok(SimResponse::no_content())
}
