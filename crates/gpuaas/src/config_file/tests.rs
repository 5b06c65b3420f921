//! The file by its parser, and the sample and the schema that are checked in.

use std::collections::BTreeSet;
use std::fs;
use std::path::PathBuf;

use serde_json::json;

use super::*;
use crate::args::{Cli, Command as Typed, ServeArgs, parse};

fn reference(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../docs/reference").join(name)
}

fn words(line: &str) -> Vec<OsString> {
    line.split_whitespace().map(OsString::from).collect()
}

/// What `line` means with a file of this text.
fn with_file(text: &str, line: &str) -> Result<ServeArgs, Failure> {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("serve.yaml");
    fs::write(&file, text).unwrap();
    let args = expand(words(&line.replace("FILE", file.to_str().unwrap())))?;
    let Cli { command: Typed::Serve(args), .. } = parse(args).unwrap() else { panic!("{line}") };
    Ok(*args)
}

#[test]
fn what_is_typed_wins_over_the_file_and_the_file_over_defaults() {
    let text = "listen: 127.0.0.1:9000\nnode-certificate-days: 7\ndata: /var/lib/gpuaas\n";
    let args = with_file(text, "gpuaas --log info serve --data here --config FILE").unwrap();
    assert_eq!(args.listen.to_string(), "127.0.0.1:9000");
    assert_eq!(args.node_listen.to_string(), "127.0.0.1:8443");
    assert!((args.node_certificate_days - 7.0).abs() < 1e-9);
    assert_eq!(args.data, PathBuf::from("here"));
    let args =
        with_file("{\"retention-export\": \"x\"}", "gpuaas serve --retention-days=3 --config=FILE");
    assert!(args.unwrap().retention().is_some(), "half typed and half in the file");
    let other = words("gpuaas node list --site serve");
    assert_eq!(expand(other.clone()).unwrap(), other);
}

#[test]
fn an_option_that_may_be_repeated_takes_a_list() {
    let text = "oidc-issuer: https://idp.example\noidc-audience: gpuaas\n\
                oidc-role: [admins=admin, 'ops=operator@lab,prod']\ntls-names: [a.example, b.example]\n";
    let args = with_file(text, "gpuaas serve --config FILE").unwrap();
    assert_eq!(args.oidc.oidc_role.len(), 2);
    assert_eq!(args.tls_names, ["a.example", "b.example"]);
}

#[test]
fn a_file_that_is_wrong_is_refused_with_what_it_may_have() {
    for (text, part) in [
        ("lisen: 127.0.0.1:1\n", "listen"),
        ("new-admin-token: true\n", "advertise"),
        ("config: other.yaml\n", "advertise"),
        ("clock: real\n", "advertise"),
        ("listen: [a, b]\n", "a text or a number"),
        ("tls-names: {a: b}\n", "a list of texts"),
        ("- listen\n", "serve.yaml"),
    ] {
        let failure = with_file(text, "gpuaas serve --config FILE").unwrap_err();
        assert_eq!(failure.code(), "config_file_invalid", "{text}");
        assert!(failure.problem.detail.contains(part), "{text}: {failure}");
        assert!(failure.problem.hint.contains("docs/reference/serve.yaml"), "{failure}");
    }
    let failure = expand(words("gpuaas serve --config /no/such/file")).unwrap_err();
    assert_eq!(failure.code(), "file_unreadable");
    // A value is refused by the option's own parser.
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("serve.yaml");
    fs::write(&file, "listen: everywhere\n").unwrap();
    let line = format!("gpuaas serve --config {}", file.display());
    let error = parse(expand(words(&line)).unwrap()).unwrap_err();
    assert!(error.to_string().contains("--listen"), "{error}");
}

#[test]
fn the_sample_stands_as_it_is_and_with_all_of_it_in_force() {
    let sample = fs::read_to_string(reference("serve.yaml")).unwrap();
    let args = with_file(&sample, "gpuaas serve --config FILE").unwrap();
    assert_eq!(args.listen.to_string(), "127.0.0.1:8080");
    let is_setting = |line: &str| line.split_once(": ").is_some_and(|(key, _)| !key.contains(' '));
    let whole: String = sample
        .lines()
        .map(|line| line.strip_prefix("# ").filter(|rest| is_setting(rest)).unwrap_or(line))
        .map(|line| format!("{line}\n"))
        .collect();
    let args = with_file(&whole, "gpuaas serve --config FILE").unwrap();
    assert!(args.retention().is_some() && args.advertise.is_some());
    let settings: BTreeMap<String, Value> = serde_saphyr::from_str(&whole).unwrap();
    let serve = serve();
    let known: BTreeSet<&str> = options(&serve).filter_map(Arg::get_long).collect();
    assert_eq!(settings.keys().map(String::as_str).collect::<BTreeSet<_>>(), known);
}

/// JSON Schema of the file, from the options themselves.
fn schema() -> String {
    let serve = serve();
    let property = |option: &Arg| {
        let help = option.get_help().map(ToString::to_string).unwrap_or_default();
        let name =
            option.get_value_names().and_then(|names| names.first()).map(|name| name.as_str());
        let kind = match (is_flag(option), name) {
            (true, _) => json!("boolean"),
            (_, Some("DAYS")) => json!("number"),
            _ if matches!(option.get_action(), ArgAction::Append) => json!(["string", "array"]),
            _ => json!("string"),
        };
        (
            option.get_long().unwrap_or_default().to_owned(),
            json!({ "type": kind, "description": help }),
        )
    };
    let properties: BTreeMap<String, Value> = options(&serve).map(property).collect();
    let schema = json!({
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "gpuaas serve --config",
        "type": "object",
        "additionalProperties": false,
        "properties": properties,
    });
    format!("{}\n", serde_json::to_string_pretty(&schema).unwrap())
}

const COMMAND_LINE: &str = "cargo test -p gpuaas --lib write_reference -- --ignored";

#[test]
fn the_schema_is_current_and_says_yes_to_the_sample() {
    let written = fs::read_to_string(reference("serve.schema.json")).unwrap_or_default();
    assert!(written == schema(), "docs/reference/serve.schema.json is stale: {COMMAND_LINE}");
    let schema: Value = serde_json::from_str(&written).unwrap();
    let sample = fs::read_to_string(reference("serve.yaml")).unwrap();
    let settings: BTreeMap<String, Value> = serde_saphyr::from_str(&sample).unwrap();
    for (key, value) in &settings {
        let kind = schema["properties"][key]["type"].as_str().unwrap_or_default();
        let is_of_kind = match kind {
            "number" => value.is_number(),
            "boolean" => value.is_boolean(),
            _ => value.is_string(),
        };
        assert!(is_of_kind, "{key} is no {kind}");
    }
}

#[test]
#[ignore = "writes docs/reference/serve.schema.json"]
fn write_reference() {
    fs::write(reference("serve.schema.json"), schema()).unwrap();
}
