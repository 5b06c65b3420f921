//! Advice is code: each command that a table of codes names is one that this executable takes.

use std::collections::BTreeSet;

use clap::Parser as _;
use clap::error::ErrorKind;
use gpuaas_types::codes::{PARKS, PROBLEMS, TIMELINE, WAITS};

use super::Cli;

/// Every text of the tables that an operator may be shown.
fn advice() -> Vec<&'static str> {
    let mut texts: Vec<&str> = PROBLEMS.iter().map(|row| row.next_action).collect();
    texts.extend(PARKS.iter().map(|row| row.next_action));
    texts.extend(WAITS.iter().map(|row| row.next_action));
    texts.extend(TIMELINE.iter().map(|row| row.next_action));
    texts
}

/// The commands in backticks, `gpuaas` first.
fn commands() -> BTreeSet<&'static str> {
    let in_backticks = advice().into_iter().flat_map(|text| text.split('`').skip(1).step_by(2));
    in_backticks.filter(|text| text.starts_with("gpuaas ")).collect()
}

/// A placeholder stands for a value, and advice may leave out what a command wants besides; a
/// command or an option that is not there is an error.
fn is_taken(command: &str) -> Result<(), String> {
    let Err(error) = Cli::try_parse_from(command.split_whitespace()) else { return Ok(()) };
    match error.kind() {
        ErrorKind::ValueValidation
        | ErrorKind::InvalidValue
        | ErrorKind::MissingRequiredArgument
        | ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand => Ok(()),
        kind => Err(format!("`{command}`: {kind}")),
    }
}

#[test]
fn every_command_in_the_advice_is_one_of_ours() {
    let commands = commands();
    assert!(commands.len() > 40, "{} commands: are they still in backticks?", commands.len());
    let wrong: Vec<String> = commands.into_iter().filter_map(|c| is_taken(c).err()).collect();
    assert_eq!(wrong, Vec::<String>::new());
}

#[test]
fn a_command_that_is_not_there_is_seen() {
    assert!(is_taken("gpuaas node repair NODE").is_err());
    assert!(is_taken("gpuaas run resume RUN --newest-profile").is_err());
    assert!(is_taken("gpuaas run resume RUN --latest-profile --reason WHY").is_ok());
}
