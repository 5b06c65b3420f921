//! The boot resource endpoints, with the chunked upload.

use serde_json::{Map, Value, json};

use super::call::{Call, HandlerResult};
use crate::images::{Image, sha256_hex};
use crate::region::Region;
use crate::times;
use crate::wire::{SimResponse, TEXT_BARE};

const SUBARCHES: &str =
    "generic,hwe-p,hwe-q,hwe-r,hwe-s,hwe-t,hwe-u,hwe-v,hwe-w,ga-16.04,ga-18.04,ga-20.04,ga-22.04";

/// Handles `(parameter, stored file type, file name)`.
const FILETYPES: &[(&str, &str, &str)] = &[
    ("tgz", "root-tgz", "root.tgz"),
    ("tbz", "root-tbz", "root.tbz"),
    ("txz", "root-txz", "root.txz"),
    ("ddtgz", "root-dd", "root-dd.tgz"),
    ("ddtbz", "root-dd.tar.bz2", "root-dd.tar.bz2"),
    ("ddtxz", "root-dd.tar.xz", "root-dd.tar.xz"),
    ("ddtar", "root-dd.tar", "root-dd.tar"),
    ("ddbz2", "root-dd.bz2", "root-dd.bz2"),
    ("ddgz", "root-dd.gz", "root-dd.gz"),
    ("ddxz", "root-dd.xz", "root-dd.xz"),
    ("ddraw", "root-dd.raw", "root-dd.raw"),
];

fn summary(image: &Image) -> Map<String, Value> {
    let mut out = Map::new();
    let uri = format!("/MAAS/api/2.0/boot-resources/{}/", image.id);
    let mut put = |key: &str, value: Value| {
        out.insert(key.to_owned(), value);
    };
    put("id", json!(image.id));
    put("type", json!(if image.uploaded { "Uploaded" } else { "Synced" }));
    put("name", json!(image.name));
    put("architecture", json!(image.architecture));
    put("resource_uri", json!(uri));
    put("last_deployed", json!(image.last_deployed_us.map(times::iso_no_zone)));
    if image.uploaded {
        put("subarches", json!("generic"));
        put("title", json!(image.title));
        // One named like a system needs no other to boot.
        if !image.name.contains('/') {
            put("base_image", json!(image.base_image));
        }
    } else {
        put("subarches", json!(SUBARCHES));
        put("platform", json!("generic"));
        put("supported_platforms", json!("generic"));
    }
    out
}

fn full(image: &Image, controllers: u32) -> Value {
    let mut out = summary(image);
    let mut sets = Map::new();
    for (version, list) in &image.sets {
        let complete = list.iter().all(|f| f.complete);
        let size: u64 = list.iter().map(|f| f.size).sum();
        let received: u64 = list.iter().map(|f| f.received).sum();
        let mut files = Map::new();
        for file in list {
            let mut row = json!({"filename": file.name, "filetype": file.filetype, "sha256": file.sha256,
                "filename_on_disk": file.sha256.get(..7), "size": file.size, "complete": file.complete});
            if !file.complete {
                row["progress"] = json!(file.progress(controllers));
                row["upload_uri"] =
                    json!(format!("/MAAS/api/2.0/boot-resources/{}/upload/{}/", image.id, file.id));
            }
            files.insert(file.name.clone(), row);
        }
        let label = if image.uploaded { "uploaded" } else { "stable" };
        let mut set = json!({"version": version, "label": label, "size": size, "complete": complete, "files": files});
        if !complete {
            let all = size.max(1) as f64 * f64::from(controllers);
            set["progress"] = json!(100.0 * received as f64 / all);
        }
        sets.insert(version.clone(), set);
    }
    out.insert("sets".to_owned(), Value::Object(sets));
    Value::Object(out)
}

/// Handles `GET boot-resources/`.
pub(super) fn list(region: &mut Region, call: &Call<'_>) -> HandlerResult {
    let uploaded = match call.query.filled("type") {
        None => None,
        Some("synced") => Some(false),
        Some("uploaded") => Some(true),
        Some(other) => {
            let text = format!(
                "'{other}' is not a valid boot resource type. Available types: ['synced', 'uploaded']"
            );
            return Err(SimResponse::text(400, text));
        }
    };
    let rows = region.images.list.iter().filter(|i| uploaded.is_none_or(|u| i.uploaded == u));
    Ok(SimResponse::json(&rows.map(|i| Value::Object(summary(i))).collect()))
}

/// Handles `GET boot-resources/ID/`.
pub(super) fn read(region: &mut Region, call: &Call<'_>) -> HandlerResult {
    region.images.copy(region.now);
    let controllers = region.images.controllers();
    let found = region.images.by_id(call.part(0));
    found
        .map(|i| SimResponse::json(&full(i, controllers)))
        .ok_or_else(|| SimResponse::not_found("BootResource"))
}

/// Handles `DELETE boot-resources/ID/`: an unknown id is a 500 in the real region.
pub(super) fn delete(region: &mut Region, call: &Call<'_>) -> HandlerResult {
    if call.part(0).parse::<i64>().is_err() {
        let text = format!("Field 'id' expected a number but got '{}'.", call.part(0));
        return Err(SimResponse::text(500, text));
    }
    let before = region.images.list.len();
    region.images.list.retain(|i| i.id.to_string() != call.part(0));
    if region.images.list.len() == before {
        return Err(SimResponse::text(500, "BootResource matching query does not exist."));
    }
    Ok(SimResponse::no_content())
}

/// Names of operating systems, which no image may have.
const RESERVED: &[&str] = &["ubuntu", "centos", "rhel", "windows", "esxi", "custom"];

fn check(call: &Call<'_>) -> Result<(), SimResponse> {
    let form = &call.form;
    let mut errors = Vec::new();
    let required = || "This field is required.".to_owned();
    match form.filled("name") {
        None => errors.push(("name", required())),
        Some(name) => {
            let bare = name.strip_prefix("custom/").unwrap_or(name);
            if RESERVED.contains(&bare) {
                errors.push(("name", format!("{bare} is a reserved name")));
            }
        }
    }
    match form.filled("architecture") {
        None => errors.push(("architecture", required())),
        Some("amd64/generic" | "arm64/generic") => {}
        Some(other) => errors.push((
            "architecture",
            format!("'{other}' is not a valid architecture.  It should be one of: 'amd64/generic', 'arm64/generic'."),
        )),
    }
    if let Some(base) = form.filled("base_image")
        && !matches!(base, "ubuntu/jammy" | "ubuntu/noble" | "ubuntu/focal")
    {
        errors.push((
            "base_image",
            "custom images require a valid non-custom OS type base image".to_owned(),
        ));
    }
    if let Some(other) =
        form.filled("filetype").filter(|t| !FILETYPES.iter().any(|(name, ..)| name == t))
    {
        let text = format!("Select a valid choice. {other} is not one of the available choices.");
        errors.push(("filetype", text));
    }
    if form.files.is_empty() {
        match form.filled("sha256").map(str::len) {
            None => errors.push(("sha256", required())),
            Some(64) => {}
            Some(n) => {
                let word = if n < 64 { "least" } else { "most" };
                let text = format!("Ensure this value has at {word} 64 characters (it has {n}).");
                errors.push(("sha256", text));
            }
        }
        match form.filled("size").map(str::parse::<u64>) {
            None => errors.push(("size", required())),
            Some(Err(_)) => errors.push(("size", "Enter a whole number.".to_owned())),
            Some(Ok(_)) => {}
        }
    }
    if errors.is_empty() { Ok(()) } else { Err(SimResponse::invalid_fields(&errors)) }
}

/// Handles `POST boot-resources/`: announces a file, or brings it along.
pub(super) fn create(region: &mut Region, call: &Call<'_>) -> HandlerResult {
    check(call)?;
    let form = &call.form;
    let name = form.get("name").unwrap_or("");
    let name = name.strip_prefix("custom/").unwrap_or(name);
    let asked = form.filled("filetype").unwrap_or("tgz");
    let (_, filetype, filename) =
        FILETYPES.iter().find(|(n, ..)| *n == asked).unwrap_or(&FILETYPES[0]);
    let content = form.files.first().map(|f| f.content.clone());
    let (sha, size) = match &content {
        Some(bytes) => (sha256_hex(bytes), bytes.len() as u64),
        None => (
            form.get("sha256").unwrap_or("").to_owned(),
            form.filled("size").and_then(|s| s.parse().ok()).unwrap_or(0),
        ),
    };
    let default_base = format!("ubuntu/{}", region.settings.text("commissioning_distro_series"));
    let image = region.images.add_upload(
        name,
        form.get("architecture").unwrap_or(""),
        form.get("title").unwrap_or(""),
        form.filled("base_image").unwrap_or(&default_base),
        filename,
        filetype,
        &sha,
        size,
        &times::compact_date(region.now),
    );
    if let (Some(bytes), Some(file)) =
        (content, image.sets.last_mut().and_then(|(_, files)| files.first_mut()))
    {
        file.append_chunk(&bytes, region.now).map_err(|text| SimResponse::text(400, text))?;
    }
    let id = image.id.to_string();
    region.images.copy(region.now);
    let controllers = region.images.controllers();
    let image = region.images.by_id(&id).ok_or_else(|| SimResponse::not_found("BootResource"))?;
    let mut response = SimResponse::json(&full(image, controllers));
    response.status = 201;
    Ok(response)
}

/// Handles `PUT boot-resources/ID/upload/FILE/`: the next chunk.
pub(super) fn upload(region: &mut Region, call: &Call<'_>) -> HandlerResult {
    let image = region.images.list.iter_mut().find(|i| i.id.to_string() == call.part(0));
    let files = image
        .ok_or_else(|| SimResponse::not_found("BootResource"))?
        .sets
        .iter_mut()
        .flat_map(|(_, f)| f);
    let file = files.into_iter().find(|f| f.id.to_string() == call.part(1));
    let file = file.ok_or_else(|| SimResponse::not_found("BootResourceFile"))?;
    file.append_chunk(&call.request.body, region.now)
        .map_err(|text| SimResponse::text(400, text))?;
    region.images.copy(region.now);
    Ok(SimResponse::new(200, TEXT_BARE, "OK"))
}

/// Handles `op=is_importing`.
pub(super) fn is_importing(_: &mut Region, _: &Call<'_>) -> HandlerResult {
    Ok(SimResponse::json(&Value::Bool(false)))
}

/// Handles `op=import`.
pub(super) fn import(_: &mut Region, _: &Call<'_>) -> HandlerResult {
    Ok(SimResponse::text(200, "Import of boot resources started"))
}

/// Handles `op=stop_import`.
pub(super) fn stop_import(_: &mut Region, _: &Call<'_>) -> HandlerResult {
    Ok(SimResponse::text(200, "Import of boot resources is being stopped"))
}
