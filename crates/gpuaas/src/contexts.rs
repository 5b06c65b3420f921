//! `gpuaas context`: which control planes there are, and which one commands ask.

use std::path::{Path, PathBuf};

use gpuaas_client::contexts::{Context, ContextFile};
use gpuaas_client::failure::Failure;
use gpuaas_client::output;
use gpuaas_client::terminal::{Style, Terminal};
use gpuaas_client::{ApiClient, Trust};
use gpuaas_types::api::List;
use gpuaas_types::codes::CommandCode;
use serde::Serialize;

use crate::args::{ContextAddArgs, ContextCommand, ContextNameArgs};
use crate::input_file::{read_file, read_secret};

/// One context as it is listed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
struct ContextRow {
    name: String,
    server: String,
    token_file: Option<String>,
    in_use: bool,
}

/// `gpuaas context`.
///
/// # Errors
/// `context_not_found`, `context_file_unusable`; `server_url_invalid` and `file_unreadable` of what is
/// to be added.
pub(crate) fn run(command: ContextCommand, terminal: &mut Terminal) -> Result<(), Failure> {
    match command {
        ContextCommand::Add(args) => add(args, terminal),
        ContextCommand::Use(ContextNameArgs { name, config }) => {
            let file = ContextFile::below(config.config_home.as_deref());
            let mut contexts = file.load()?;
            let server = contexts.find(&name)?.server.clone();
            contexts.current = Some(name.clone());
            file.save(&contexts)?;
            terminal.message(&format!("current context: {name} ({server})"));
            Ok(())
        }
        ContextCommand::List(args) => {
            let contexts = ContextFile::below(args.config.config_home.as_deref()).load()?;
            let rows =
                contexts.contexts.into_iter().map(|(name, Context { server, token_file, .. })| {
                    let in_use = contexts.current.as_deref() == Some(name.as_str());
                    let token_file = token_file.map(|path| path.display().to_string());
                    ContextRow { name, server, token_file, in_use }
                });
            output::print(terminal, args.format, &List::whole(rows.collect()), table)
        }
        ContextCommand::Remove(ContextNameArgs { name, config }) => {
            let file = ContextFile::below(config.config_home.as_deref());
            let mut contexts = file.load()?;
            contexts.find(&name)?;
            contexts.contexts.remove(&name);
            let was_in_use = contexts.current.as_deref() == Some(name.as_str());
            if was_in_use {
                contexts.current = None;
            }
            file.save(&contexts)?;
            terminal.message(&match was_in_use {
                true => format!("removed {name}; there is no current context now"),
                false => format!("removed {name}"),
            });
            Ok(())
        }
    }
}

fn add(args: ContextAddArgs, terminal: &mut Terminal) -> Result<(), Failure> {
    let ContextAddArgs { name, server, token_file, server_ca_file: ca_file, config } = args;
    let trust = ca_file.as_deref().map(read_file).transpose()?;
    let trust = trust.map_or(Trust::System, |pem| Trust::Only(pem.into_bytes()));
    ApiClient::with_trust(&server, "", &trust)?;
    let token_file = token_file
        .map(|path| {
            read_secret(&path)?;
            absolute(&path)
        })
        .transpose()?;
    let ca_file = ca_file.as_deref().map(absolute).transpose()?;
    let file = ContextFile::below(config.config_home.as_deref());
    let mut contexts = file.load()?;
    let is_first = contexts.contexts.is_empty();
    contexts.contexts.insert(name.clone(), Context { server, token_file, ca_file, login: None });
    if is_first {
        contexts.current = Some(name.clone());
    }
    file.save(&contexts)?;
    terminal.message(&match contexts.current.as_deref() == Some(name.as_str()) {
        true => format!("saved {name} as the current context"),
        false => {
            format!("saved {name}; run `gpuaas context use {name}` to make it the current context")
        }
    });
    Ok(())
}

fn absolute(path: &Path) -> Result<PathBuf, Failure> {
    std::path::absolute(path).map_err(|error| {
        let detail = format!("{}: {error}", path.display());
        Failure::usage(CommandCode::FileUnreadable, detail)
    })
}

fn table(list: &List<ContextRow>, style: Style) -> String {
    let rows = list.items.iter().map(|row| {
        let in_use = if row.in_use { "yes" } else { "" };
        vec![
            row.name.clone(),
            row.server.clone(),
            in_use.to_owned(),
            output::or_dash(row.token_file.as_deref()),
        ]
    });
    let header = ["CONTEXT", "SERVER", "IN USE", "TOKEN FILE"];
    output::table_dropping(style, &header, &["TOKEN FILE"], rows)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::{Command, parse};

    fn typed(home: &std::path::Path, line: &str) -> (Result<(), Failure>, String, String) {
        let home = format!("--config-home={}", home.display());
        let words = line.split(' ').chain([home.as_str()]);
        let Command::Context(command) = parse(words).unwrap().command else {
            panic!("{line} is no command about contexts");
        };
        let (mut terminal, captured) = Terminal::captured();
        let ended = run(command, &mut terminal);
        (ended, captured.stdout(), captured.stderr())
    }

    #[test]
    fn contexts_are_added_used_listed_and_removed() {
        let dir = tempfile::tempdir().unwrap();
        let token = dir.path().join("token");
        std::fs::write(&token, "t\n").unwrap();
        let typed = |line: &str| typed(dir.path(), line);
        let add = format!(
            "gpuaas context add east --server https://e.example --token-file {}",
            token.display()
        );
        assert_eq!(typed(&add).2, "saved east as the current context\n");
        let (ended, _, said) = typed("gpuaas context add west --server w.example:8080");
        assert!(ended.is_ok() && said.contains("gpuaas context use west"), "{said}");
        typed("gpuaas context use west").0.unwrap();
        let (_, listed, _) = typed("gpuaas context list");
        let lines: Vec<Vec<&str>> =
            listed.lines().map(|line| line.split_whitespace().collect()).collect();
        assert_eq!(lines[1], ["east", "https://e.example", token.to_str().unwrap()]);
        assert_eq!(lines[2], ["west", "w.example:8080", "yes", "-"]);
        assert_eq!(typed("gpuaas context list -o name").1, "east\nwest\n");
        assert!(typed("gpuaas context remove west").2.contains("no current context"));
        let failure = typed("gpuaas context use west").0.unwrap_err();
        assert_eq!(failure.code(), "context_not_found");
        let failure = typed("gpuaas context add x --server ftp://x").0.unwrap_err();
        assert_eq!(failure.code(), "server_url_invalid");
        let failure = typed("gpuaas context add x --server x --token-file /no/such").0.unwrap_err();
        assert_eq!(failure.code(), "file_unreadable");
        assert_eq!(typed("gpuaas context list -o name").1, "east\n", "nothing was added");
    }
}
