//! The OpenAPI document against the router, the table of roles and itself.

use std::collections::BTreeSet;
use std::path::Path;

use gpuaas_types::access::OPERATIONS;
use serde_json::Value;

use crate::rig::Rig;

const PAGE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/openapi.json");
/// What opens without a credential.
const OPEN: [&str; 5] =
    ["/healthz", "/readyz", "/api/v1/health", "/api/v1/version", "/api/v1/openapi.json"];

async fn served() -> Value {
    let rig = Rig::new().await;
    let answer = rig.call("GET", "/api/v1/openapi.json", None, None).await;
    assert_eq!(answer.headers["content-type"], "application/json");
    answer.ok()
}

#[tokio::test]
async fn it_has_every_operation_and_no_other() {
    let document = served().await;
    let mut shown = BTreeSet::new();
    let mut names = BTreeSet::new();
    for (path, item) in document["paths"].as_object().unwrap() {
        for (method, operation) in item.as_object().unwrap() {
            let name = operation["operationId"].as_str().unwrap().to_owned();
            assert!(names.insert(name.clone()), "{name} is the name of two operations");
            let open = operation.get("security").is_some();
            assert_eq!(open, OPEN.contains(&path.as_str()), "{path}");
            if !open {
                shown.insert(format!("{} {path}", method.to_uppercase()));
            }
        }
    }
    let known: BTreeSet<String> = OPERATIONS
        .iter()
        .map(|row| format!("{} {}", row.method, row.path.replace("{*", "{")))
        .collect();
    assert_eq!(shown, known);
}

/// Every value under a key, at any depth.
fn all<'v>(value: &'v Value, key: &str, found: &mut Vec<&'v Value>) {
    match value {
        Value::Object(fields) => fields.iter().for_each(|(name, value)| {
            if name == key {
                found.push(value);
            }
            all(value, key, found);
        }),
        Value::Array(items) => items.iter().for_each(|item| all(item, key, found)),
        _ => {}
    }
}

#[tokio::test]
async fn every_reference_leads_somewhere() {
    let document = served().await;
    let mut references = Vec::new();
    all(&document, "$ref", &mut references);
    assert!(references.len() > 100, "{}", references.len());
    for reference in references {
        let pointer = reference.as_str().unwrap().strip_prefix('#').unwrap();
        assert!(document.pointer(pointer).is_some(), "{pointer}");
    }
    let mut texts = Vec::new();
    all(&document, "description", &mut texts);
    let linked = texts.iter().filter_map(|text| text.as_str()).find(|text| text.contains("[`"));
    assert_eq!(linked, None);
}

#[test]
fn the_page_is_current() {
    let page = std::fs::read_to_string(Path::new(PAGE)).unwrap_or_default();
    assert!(
        page == gpuaas_api::openapi::text(),
        "docs/openapi.json is stale: cargo test -p gpuaas-api --test it write_openapi -- --ignored"
    );
}

#[test]
#[ignore = "writes docs/openapi.json"]
fn write_openapi() {
    std::fs::write(Path::new(PAGE), gpuaas_api::openapi::text()).unwrap();
}
