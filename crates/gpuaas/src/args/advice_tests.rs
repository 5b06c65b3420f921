//! Every command named in a table of codes must parse with this executable.

use std::collections::BTreeSet;

use clap::Parser as _;
use clap::error::ErrorKind;
use gpuaas_types::codes::{
    DOCTOR_CHECKS, NODE_PROBLEMS, PARKS, PROBLEMS, SLOT_BLOCKERS, TIMELINE, WAITS, advised_commands,
};

use super::Cli;

/// All texts of the tables that operators can see.
fn advice() -> Vec<&'static str> {
    let mut texts: Vec<&str> = PROBLEMS.iter().map(|row| row.next_action).collect();
    texts.extend(PARKS.iter().map(|row| row.next_action));
    texts.extend(WAITS.iter().map(|row| row.next_action));
    texts.extend(TIMELINE.iter().map(|row| row.next_action));
    texts.extend(SLOT_BLOCKERS.iter().map(|row| row.next_action));
    texts.extend(DOCTOR_CHECKS.iter().map(|row| row.next_action));
    texts.extend(NODE_PROBLEMS.iter().map(|row| row.next_action));
    texts
}

/// Commands in backticks that start with `gpuaas`.
fn commands() -> BTreeSet<&'static str> {
    let in_backticks = advice().into_iter().flat_map(|text| text.split('`').skip(1).step_by(2));
    in_backticks.filter(|text| text.starts_with("gpuaas ")).collect()
}

/// Whether a command parses. Placeholders stand for values, and required arguments may be missing;
/// an unknown command or option is an error.
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

/// The actions that a node problem offers; the operator fills in only the reason.
#[test]
fn every_action_of_a_problem_is_a_whole_command() {
    for row in NODE_PROBLEMS {
        let actions = advised_commands(&row.advice("j22u11", "lab"), "j22u11");
        assert!(!actions.is_empty(), "{}", row.code);
        for action in actions {
            let command = action.command.split_whitespace();
            if let Err(error) = Cli::try_parse_from(command) {
                panic!("{}: {}: {error}", row.code, action.command);
            }
        }
    }
}

#[test]
fn a_command_that_is_not_there_is_seen() {
    assert!(is_taken("gpuaas node repair NODE").is_err());
    assert!(is_taken("gpuaas run resume RUN --newest-profile").is_err());
    assert!(is_taken("gpuaas run resume RUN --latest-profile --reason WHY").is_ok());
}

/// Faults in the commands of a text. A command must be in backticks, exist and have all required
/// arguments; `{}` and words in capitals stand for values.
#[cfg(feature = "bench")]
fn faults(text: &str) -> Vec<String> {
    use clap::CommandFactory as _;

    if !text.contains("gpuaas ") || text.starts_with("gpuaas ") && is_complete(text).is_ok() {
        return Vec::new();
    }
    static NAMES: std::sync::LazyLock<Vec<String>> = std::sync::LazyLock::new(|| {
        Cli::command().get_subcommands().map(|one| one.get_name().to_owned()).collect()
    });
    let names = &*NAMES;
    let mut faults = Vec::new();
    for (index, part) in text.split('`').enumerate() {
        if index % 2 == 1 && part.starts_with("gpuaas ") {
            faults.extend(is_complete(part).err());
        } else if index % 2 == 0 {
            let mentions = part.match_indices("gpuaas ").filter(|(at, _)| {
                let next = part[at + "gpuaas ".len()..].split([' ', ',', ';', '.', ':']).next();
                next.is_some_and(|next| names.iter().any(|name| name == next))
            });
            faults.extend(mentions.map(|(at, _)| format!("no backticks around: {}", &part[at..])));
        }
    }
    faults
}

/// Like [`is_taken`], but requires all arguments.
#[cfg(feature = "bench")]
fn is_complete(command: &str) -> Result<(), String> {
    let mut filled = String::new();
    let mut depth = 0;
    for c in command.chars() {
        match c {
            '{' => depth += 1,
            '}' => {
                depth -= 1;
                filled.push('X');
            }
            c if depth == 0 => filled.push(c),
            _ => {}
        }
    }
    let Err(error) = Cli::try_parse_from(filled.split_whitespace()) else { return Ok(()) };
    match error.kind() {
        ErrorKind::ValueValidation | ErrorKind::InvalidValue => Ok(()),
        kind => Err(format!("`{command}`: {kind}")),
    }
}

#[cfg(feature = "bench")]
#[test]
fn every_command_in_the_sources_stands_in_backticks_and_is_complete() {
    let texts = super::source_texts::source_texts(&super::docs_tests::root());
    let commands = texts.iter().filter(|one| one.text.contains("`gpuaas ")).count();
    assert!(texts.len() > 3000 && commands > 80, "{} texts, {commands} with one", texts.len());
    // Lines to paste are whole lines, and a test of their own parses each.
    let wrong: Vec<String> = texts
        .iter()
        .filter(|one| !one.place.contains("args/examples.rs:"))
        .flat_map(|one| {
            faults(&one.text).into_iter().map(move |fault| format!("{}: {fault}", one.place))
        })
        .collect();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[cfg(feature = "bench")]
#[test]
fn a_command_that_lacks_something_is_seen() {
    for bad in [
        "look with gpuaas node list",
        "`gpuaas roce add`",
        "`gpuaas run cancel {}`",
        "then `gpuaas node repair {host}`",
    ] {
        assert_eq!(faults(bad).len(), 1, "{bad}");
    }
    for good in [
        "gpuaas run resume RUN --reason WHY",
        "`gpuaas run cancel {} --reason WHY` ends it",
        "see gpuaas serving",
        "the user gpuaas of the host",
    ] {
        assert_eq!(faults(good), Vec::<String>::new(), "{good}");
    }
}

#[cfg(feature = "bench")]
#[test]
fn every_command_of_an_alert_is_complete() {
    let rules = include_str!("../../../../ops/prometheus/gpuaas.rules.yaml");
    let next = rules.lines().filter_map(|line| line.trim().strip_prefix("next: "));
    let parts = next.flat_map(|text| text.trim_matches('"').split("; ").map(str::trim));
    let commands: Vec<&str> = parts.filter(|part| part.starts_with("gpuaas ")).collect();
    assert!(commands.len() > 10, "{commands:?}");
    let wrong: Vec<String> = commands.into_iter().filter_map(|c| is_complete(c).err()).collect();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
