//! `gpuaas serve --config FILE`: options of a service that are kept in a file.
//!
//! A key is the name of an option, and its value is read by that option's own parser: the file is
//! turned into arguments behind those that were typed. So there is one list of options, one form of
//! each value and one text for what is wrong with it. What was typed wins, then the environment, then
//! the file.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::Path;

use clap::parser::ValueSource;
use clap::{Arg, ArgAction, Command};
use gpuaas_client::failure::Failure;
use gpuaas_types::codes::CommandCode;
use serde_json::Value;

use crate::args::tree;
use crate::input_file::read_file;

const COMMAND: &str = "serve";
/// Options that a file cannot have: the file itself, and what is done once.
const TYPED_ONLY: [&str; 4] = ["config", "new-admin-token", "help", "version"];

/// The arguments with what the file says that they name.
///
/// # Errors
/// `file_unreadable`, `config_file_invalid`.
pub(crate) fn expand(mut args: Vec<OsString>) -> Result<Vec<OsString>, Failure> {
    let Some(at) = args.iter().position(|arg| arg == COMMAND) else { return Ok(args) };
    let typed = &args[at + 1..];
    let Some(path) = value_of("config", typed) else { return Ok(args) };
    let path = Path::new(&path);
    let settings: BTreeMap<String, Value> = serde_saphyr::from_str(&read_file(path)?)
        .map_err(|error| invalid(path, &error.to_string()))?;
    let serve = serve();
    let mut added = Vec::new();
    for (key, value) in &settings {
        let option = options(&serve).find(|option| option.get_long() == Some(key));
        let option = option.ok_or_else(|| invalid(path, &unknown(&serve, key)))?;
        if !is_typed(key, typed) && !is_in_environment(option) {
            added.extend(arguments(option, key, value).map_err(|why| invalid(path, &why))?);
        }
    }
    args.extend(added);
    Ok(args)
}

fn serve() -> Command {
    let mut tree = tree();
    tree.build();
    tree.find_subcommand(COMMAND).cloned().unwrap_or_default()
}

/// Options that a file may have.
pub(crate) fn options(serve: &Command) -> impl Iterator<Item = &Arg> {
    serve.get_arguments().filter(|arg| {
        let is_typed_only = arg.get_long().is_none_or(|name| TYPED_ONLY.contains(&name));
        !arg.is_hide_set() && !arg.is_global_set() && !is_typed_only
    })
}

fn is_flag(option: &Arg) -> bool {
    matches!(option.get_action(), ArgAction::SetTrue)
}

/// The value behind `--NAME`, in either form.
fn value_of(name: &str, typed: &[OsString]) -> Option<OsString> {
    let (flag, begin) = (format!("--{name}"), format!("--{name}="));
    typed.iter().enumerate().find_map(|(index, arg)| {
        if arg.to_str() == Some(&flag) {
            return typed.get(index + 1).cloned();
        }
        arg.to_str()?.strip_prefix(&begin).map(OsString::from)
    })
}

fn is_typed(name: &str, typed: &[OsString]) -> bool {
    let (flag, begin) = (format!("--{name}"), format!("--{name}="));
    typed.iter().filter_map(|arg| arg.to_str()).any(|arg| arg == flag || arg.starts_with(&begin))
}

/// Whether the environment says something of an option. It is read by clap, as everywhere.
fn is_in_environment(option: &Arg) -> bool {
    if option.get_env().is_none() {
        return false;
    }
    let id = option.get_id().as_str();
    let alone = Command::new(COMMAND).arg(option.clone());
    let matches = alone.try_get_matches_from([COMMAND]);
    matches.is_ok_and(|found| found.value_source(id) == Some(ValueSource::EnvVariable))
}

/// A setting as it would be typed.
fn arguments(option: &Arg, key: &str, value: &Value) -> Result<Vec<OsString>, String> {
    let is_repeated = matches!(option.get_action(), ArgAction::Append);
    match (value, is_flag(option)) {
        (Value::Bool(said), true) => {
            Ok(said.then(|| format!("--{key}").into()).into_iter().collect())
        }
        (_, true) => Err(format!("{key}: expected true or false")),
        (Value::String(text), false) => Ok(vec![format!("--{key}={text}").into()]),
        (Value::Number(number), false) => Ok(vec![format!("--{key}={number}").into()]),
        (Value::Array(texts), false) if is_repeated && texts.iter().all(Value::is_string) => {
            let texts = texts.iter().filter_map(Value::as_str);
            Ok(texts.map(|text| format!("--{key}={text}").into()).collect())
        }
        (_, false) if is_repeated => Err(format!("{key}: expected a text or a list of texts")),
        (_, false) => Err(format!("{key}: expected a text or a number")),
    }
}

fn unknown(serve: &Command, key: &str) -> String {
    let names: Vec<&str> = options(serve).filter_map(Arg::get_long).collect();
    format!("unknown option {key:?}: expected one of {}", names.join(", "))
}

fn invalid(path: &Path, why: &str) -> Failure {
    Failure::usage(CommandCode::ConfigFileInvalid, format!("{}: {why}", path.display())).hint(
        "use options of `gpuaas serve` without leading dashes, such as `listen: 127.0.0.1:8080`; \
         see docs/reference/serve.yaml for a sample",
    )
}

#[cfg(test)]
mod tests;
