//! `docs/reference/cli.md`: every command, written from clap's tree.
//!
//! The page is checked in, and [`page_is_current`] fails where it is not what the tree says.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::path::PathBuf;

use clap::{Arg, Args as _, Command};
use gpuaas_client::arguments::ApiArgs;
use gpuaas_client::failure::EXIT_CODES;

const COMMAND: &str = "cargo test -p gpuaas write_reference -- --ignored";

fn path() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../docs/reference/cli.md")
}

#[test]
fn page_is_current() {
    let written = std::fs::read_to_string(path()).unwrap_or_default();
    assert!(written == page(), "docs/reference/cli.md is stale; write it with: {COMMAND}");
}

#[test]
#[ignore = "writes docs/reference/cli.md"]
fn write_reference() {
    std::fs::write(path(), page()).unwrap();
}

#[test]
fn hidden_commands_are_not_on_the_page() {
    fn check(page: &str, command: &Command) {
        for inner in command.get_subcommands().filter(|inner| inner.get_name() != "help") {
            let name = inner.get_bin_name().unwrap_or_default();
            let is_there = page.contains(&format!("\n## {name}\n"));
            assert!(is_there != inner.is_hide_set(), "{name}");
            if !inner.is_hide_set() {
                check(page, inner);
            }
        }
    }
    check(&page(), &tree());
}

#[test]
fn every_argument_says_what_it_is() {
    fn check(command: &Command) {
        let name = command.get_bin_name().unwrap_or_default();
        assert!(command.get_about().is_some(), "{name} has no text");
        for arg in command.get_arguments().filter(|arg| is_shown(arg)) {
            assert!(arg.get_help().is_some(), "{name}: {} has no text", arg.get_id());
        }
        command.get_subcommands().filter(|inner| inner.get_name() != "help").for_each(check);
    }
    check(&tree());
}

fn tree() -> Command {
    let mut command = super::tree();
    command.build();
    command
}

fn page() -> String {
    let command = tree();
    let mut page = format!(
        "# Command line\n\nEvery command of `gpuaas` with its arguments. Data goes to standard \
         output, everything else to standard error.\n\nWritten from the code by `{COMMAND}`.\n"
    );
    page.push_str("\n## Exit codes\n\n| exit | meaning |\n|---|---|\n");
    for line in EXIT_CODES.lines().skip(1) {
        let (code, meaning) = line.trim().split_once("  ").unwrap();
        writeln!(page, "| {code} | {meaning} |").unwrap();
    }
    page.push_str("\n## Options of every command\n");
    let of_all = command.get_arguments().filter(|arg| arg.is_global_set());
    table(&mut page, of_all);
    let mut asking = ApiArgs::augment_args(Command::new("asking"));
    asking.build();
    page.push_str("\n## Options of commands that ask a control plane\n");
    table(&mut page, asking.get_arguments());
    let shared: BTreeSet<&str> = asking.get_arguments().map(|arg| arg.get_id().as_str()).collect();
    section(&mut page, &command, &shared);
    page
}

/// Hidden commands are not on the page, just as they are not in the help.
fn section(page: &mut String, command: &Command, shared: &BTreeSet<&str>) {
    if command.get_name() == "help" || command.is_hide_set() {
        return;
    }
    let name = command.get_bin_name().unwrap_or(command.get_name());
    let about = command.get_about().map(ToString::to_string).unwrap_or_default();
    let usage = command.clone().render_usage().to_string();
    let usage = usage.trim_start_matches("Usage: ");
    write!(page, "\n## {name}\n\n{}.\n\n```\n{usage}\n", about.trim_end_matches('.')).unwrap();
    let path = name.strip_prefix("gpuaas ").unwrap_or_default();
    let shown = super::example(path).map(|line| format!("\n$ {line}\n")).unwrap_or_default();
    writeln!(page, "{shown}```").unwrap();
    let is_own = |arg: &&Arg| !arg.is_global_set() && !shared.contains(arg.get_id().as_str());
    table(page, command.get_arguments().filter(is_own));
    for inner in command.get_subcommands() {
        section(page, inner, shared);
    }
}

fn is_shown(arg: &Arg) -> bool {
    !arg.is_hide_set() && !matches!(arg.get_id().as_str(), "help" | "version")
}

fn table<'a>(page: &mut String, args: impl Iterator<Item = &'a Arg>) {
    let rows: Vec<String> = args.filter(|arg| is_shown(arg)).map(row).collect();
    if !rows.is_empty() {
        page.push_str("\n| argument | default | environment | meaning |\n|---|---|---|---|\n");
        page.push_str(&rows.concat());
    }
}

fn row(arg: &Arg) -> String {
    let takes = arg.get_action().takes_values();
    let defaults: Vec<_> =
        arg.get_default_values().iter().map(|one| one.to_string_lossy()).collect();
    let default = if !takes || defaults.is_empty() {
        if arg.is_required_set() { "required".to_owned() } else { String::new() }
    } else {
        format!("`{}`", defaults.join(" "))
    };
    let env = arg.get_env().map(|name| format!("`{}`", name.to_string_lossy())).unwrap_or_default();
    let help = arg.get_help().map(ToString::to_string).unwrap_or_default();
    let values: Vec<String> = arg
        .get_possible_values()
        .iter()
        .filter(|value| takes && !value.is_hide_set())
        .map(|value| format!("`{}`", value.get_name()))
        .collect();
    let values =
        if values.is_empty() { String::new() } else { format!("; one of {}", values.join(", ")) };
    let written = arg.to_string().replace("<", "").replace(">", "");
    let short = arg.get_short().map(|short| format!("`-{short}`, ")).unwrap_or_default();
    let meaning = format!("{help}{values}").replace('|', "\\|");
    format!("| {short}`{}` | {default} | {env} | {meaning} |\n", written.replace('|', "\\|"))
}
