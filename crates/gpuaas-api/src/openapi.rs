//! `GET /api/v1/openapi.json`: the admin API as OpenAPI 3.1 (<https://spec.openapis.org/oas/v3.1.0>).
//!
//! A row of [`table`] names a handler, and what the handler takes and answers is read from its
//! signature, so the document cannot say anything else than the code does.

mod signature;
mod table;

use std::sync::LazyLock;

use axum::http::header::CONTENT_TYPE;
use axum::response::{IntoResponse, Response};
use gpuaas_types::Problem;
use gpuaas_types::access::{OperationRow, operation};
use gpuaas_types::health::{Health, Version};
use schemars::JsonSchema;
use schemars::generate::SchemaSettings;
use serde_json::{Map, Value, json};

use signature::{Schemas, Signature};
use table::Row;

const COMPONENTS: &str = "#/components/schemas/";
const MUTATIONS: [&str; 4] = ["POST", "PUT", "PATCH", "DELETE"];

static TEXT: LazyLock<String> = LazyLock::new(text);

/// `GET /api/v1/openapi.json`.
pub(crate) async fn show() -> Response {
    ([(CONTENT_TYPE, "application/json")], TEXT.as_str()).into_response()
}

/// The document, indented, with a line break at its end.
#[must_use]
pub fn text() -> String {
    format!("{:#}\n", document())
}

fn document() -> Value {
    let settings = || SchemaSettings::draft2020_12().with(|settings| settings.meta_schema = None);
    let mut schemas = Schemas {
        sent: settings().for_deserialize().into_generator(),
        answered: settings().for_serialize().into_generator(),
    };
    let mut paths = Map::new();
    for row in table::rows() {
        add(&mut paths, row.path, row.method, described(&row, &mut schemas));
    }
    for (path, summary, answer) in open_operations(&mut schemas) {
        add(&mut paths, path, "GET", open(path, summary, answer));
    }
    let problem = schemas.answered.subschema_for::<Problem>().to_value();
    let mut document = json!({
        "openapi": "3.1.0",
        "info": {
            "title": "GPUaaS",
            "version": "1",
            "summary": "Onboards GPU servers through Canonical MAAS and takes them out of service",
            "license": { "name": "See LICENSE in the repository" },
        },
        "servers": [{ "url": "/" }],
        "security": [{ "bearer": [] }],
        "paths": paths,
        "components": {
            "securitySchemes": { "bearer": { "type": "http", "scheme": "bearer" } },
            "responses": { "Problem": {
                "description": "Error: `code` is stable, `hint` says what to do",
                "content": { "application/problem+json": { "schema": problem } },
            } },
        },
    });
    document["components"]["schemas"] = Value::Object(merged(schemas, &mut document["paths"]));
    to_components(&mut document);
    plain_words(&mut document);
    document
}

fn add(paths: &mut Map<String, Value>, path: &str, method: &str, operation: Value) {
    let item = paths.entry(path.to_owned()).or_insert_with(|| json!({}));
    item[method.to_ascii_lowercase()] = operation;
}

fn described(row: &Row, schemas: &mut Schemas) -> Value {
    let Signature { parameters, body, answer, headers } = row.signature(schemas);
    let mut parameters: Vec<Value> = path_parameters(row.path).chain(parameters).collect();
    if MUTATIONS.contains(&row.method) {
        parameters.push(idempotency_key());
    }
    let answered = match answer {
        Some(schema) => json!({ row.media_type: { "schema": schema } }),
        None => json!({ row.media_type: {} }),
    };
    let mut responses = json!({ "default": { "$ref": "#/components/responses/Problem" } });
    for status in row.statuses {
        responses[status.to_string()] = json!({
            "description": row.summary,
            "headers": headers,
            "content": answered,
        });
    }
    let mut described = json!({
        "operationId": format!("{}_{}", row.id, row.method.to_ascii_lowercase()),
        "tags": [tag(row.path)],
        "summary": row.summary,
        "parameters": parameters,
        "responses": responses,
    });
    if row.path.ends_with('/') {
        described["operationId"] = json!(format!("{}_index", row.id));
    }
    if let Some(access) = operation(row.method, served_path(row.path)) {
        described["description"] = json!(access_text(access));
    }
    if let Some(schema) = body {
        described["requestBody"] = json!({
            "required": true,
            "content": { "application/json": { "schema": schema } },
        });
    }
    described
}

/// The path as the router has it.
fn served_path(path: &str) -> &str {
    match path {
        "/api/v1/nodes/{node}/telemetry/{path}" => "/api/v1/nodes/{node}/telemetry/{*path}",
        path => path,
    }
}

fn access_text(row: &OperationRow) -> String {
    format!("Requires the role `{}` {}.", row.role, row.scope.text())
}

fn path_parameters(path: &str) -> impl Iterator<Item = Value> {
    let names = path.split('/').filter_map(|part| part.strip_prefix('{')?.strip_suffix('}'));
    names.map(|name| {
        json!({
            "name": name,
            "in": "path",
            "required": true,
            "description": path_text(name),
            "schema": path_schema(name),
        })
    })
}

fn path_schema(name: &str) -> Value {
    match name {
        "bundle" => json!({ "type": "string", "pattern": "^(.+@.+|sha256:[0-9a-f]{64})$" }),
        _ => json!({ "type": "string", "minLength": 1 }),
    }
}

fn path_text(name: &str) -> &'static str {
    match name {
        "node" => "Hostname, MAC address, BMC address, ID or unique ID prefix of the node",
        "run" => "ID or unique ID prefix of the run, or the hostname of its node",
        "bundle" => "NAME, NAME@VERSION or digest",
        "site" | "profile" => "Name or ID",
        "task" => "ID",
        "batch" => "Name",
        "input" => "Name of the input",
        "path" => "Path of the file in the node's telemetry",
        _ => "Name",
    }
}

fn idempotency_key() -> Value {
    json!({
        "name": "Idempotency-Key",
        "in": "header",
        "required": false,
        "description": "A repeated request with the same key gets the first response again; \
                        `X-Idempotency-Key` is accepted too",
        "schema": { "type": "string", "pattern": "^[!-~]{1,200}$" },
    })
}

/// The resource that the path is about.
fn tag(path: &str) -> &str {
    let path = path.strip_prefix("/api/v1/").unwrap_or_else(|| path.trim_start_matches('/'));
    let path = path.strip_prefix("admin/").unwrap_or(path);
    path.split('/').next().unwrap_or(path)
}

fn open_operations(schemas: &mut Schemas) -> [(&'static str, &'static str, Value); 5] {
    fn schema<T: JsonSchema>(schemas: &mut Schemas) -> Value {
        schemas.answered.subschema_for::<T>().to_value()
    }
    [
        ("/healthz", "Check that the process works", schema::<Health>(schemas)),
        (
            "/readyz",
            "Check that the process and its database answer requests",
            schema::<Health>(schemas),
        ),
        ("/api/v1/health", "Same as `/readyz`", schema::<Health>(schemas)),
        ("/api/v1/version", "Show the version of the control plane", schema::<Version>(schemas)),
        ("/api/v1/openapi.json", "Show this document", json!({ "type": "object" })),
    ]
}

/// An operation that wants no credential.
fn open(path: &str, summary: &str, schema: Value) -> Value {
    let name = path.rsplit('/').next().unwrap_or(path).trim_end_matches(".json");
    json!({
        "operationId": format!("{name}_get"),
        "tags": ["control plane"],
        "summary": summary,
        "security": [],
        "responses": {
            "200": {
                "description": summary,
                "content": { "application/json": { "schema": schema } },
            },
            "default": { "$ref": "#/components/responses/Problem" },
        },
    })
}

/// The named schemas of both directions. Where a name has two forms, what is sent gets `Sent`
/// behind it, in its name and in what refers to it.
fn merged(schemas: Schemas, paths: &mut Value) -> Map<String, Value> {
    let Schemas { mut sent, mut answered } = schemas;
    let mut all: Map<String, Value> = answered.take_definitions(true).into_iter().collect();
    let sent: Map<String, Value> = sent.take_definitions(true).into_iter().collect();
    // A form that refers to one with two forms has two as well.
    let mut twice: Vec<String> = Vec::new();
    loop {
        let differs = |name: &String, schema: &Value| {
            all.get(name).is_some_and(|other| other != schema)
                || refers_to(schema, &twice) && all.contains_key(name)
        };
        let found: Vec<String> = sent
            .iter()
            .filter(|(name, schema)| !twice.contains(name) && differs(name, schema))
            .map(|(name, _)| name.clone())
            .collect();
        if found.is_empty() {
            break;
        }
        twice.extend(found);
    }
    for (name, mut schema) in sent {
        rename(&mut schema, &twice);
        let name = if twice.contains(&name) { format!("{name}Sent") } else { name };
        all.insert(name, schema);
    }
    for operation in paths.as_object_mut().into_iter().flat_map(Map::values_mut) {
        for operation in operation.as_object_mut().into_iter().flat_map(Map::values_mut) {
            for part in ["parameters", "requestBody"] {
                if let Some(part) = operation.get_mut(part) {
                    rename(part, &twice);
                }
            }
        }
    }
    all
}

fn refers_to(schema: &Value, names: &[String]) -> bool {
    match schema {
        Value::Object(fields) => fields.iter().any(|(key, value)| match value.as_str() {
            Some(text) if key == "$ref" => names.iter().any(|name| is_reference(text, name)),
            _ => refers_to(value, names),
        }),
        Value::Array(items) => items.iter().any(|item| refers_to(item, names)),
        _ => false,
    }
}

fn is_reference(text: &str, name: &str) -> bool {
    text.rsplit('/').next() == Some(name)
}

fn each_string(value: &mut Value, change: &mut impl FnMut(&str, &mut String)) {
    match value {
        Value::Object(fields) => {
            for (key, value) in fields.iter_mut() {
                match value {
                    Value::String(text) => change(key, text),
                    value => each_string(value, change),
                }
            }
        }
        Value::Array(items) => items.iter_mut().for_each(|item| each_string(item, change)),
        _ => {}
    }
}

fn rename(schema: &mut Value, names: &[String]) {
    each_string(schema, &mut |key, text| {
        if key == "$ref" && names.iter().any(|name| is_reference(text, name)) {
            text.push_str("Sent");
        }
    });
}

fn to_components(schema: &mut Value) {
    each_string(schema, &mut |key, text| {
        if key == "$ref"
            && let Some(name) = text.strip_prefix("#/$defs/")
        {
            *text = format!("{COMPONENTS}{name}");
        }
    });
}

/// Takes the links of the sources' own documentation out of the texts.
fn plain_words(document: &mut Value) {
    each_string(document, &mut |key, text| {
        if key == "description" {
            *text = text.replace("[`", "`").replace("`]", "`");
        }
    });
}
