//! The examples of the help.

use std::collections::BTreeSet;

use clap::{Command, FromArgMatches as _};

use super::examples::EXAMPLES;
use super::{Cli, tree};

/// Paths of the commands without subcommands.
fn leaves(command: &Command, path: &str, all: &mut BTreeSet<String>) {
    for inner in command.get_subcommands() {
        let path = format!("{path} {}", inner.get_name()).trim_start().to_owned();
        if inner.get_name() == "help" || inner.is_hide_set() {
            continue;
        }
        if inner.has_subcommands() {
            leaves(inner, &path, all);
        } else {
            all.insert(path);
        }
    }
}

#[test]
fn every_command_has_an_example_that_parses_as_that_command() {
    let mut wanted = BTreeSet::new();
    leaves(&tree(), "", &mut wanted);
    let given: Vec<String> = EXAMPLES.iter().map(|(path, _)| (*path).to_owned()).collect();
    assert_eq!(given.iter().cloned().collect::<BTreeSet<_>>(), wanted);
    assert_eq!(given.len(), wanted.len(), "no command has two");
    for (path, line) in EXAMPLES {
        let words = words(line);
        let matches = tree().try_get_matches_from(&words).unwrap_or_else(|e| panic!("{line}: {e}"));
        Cli::from_arg_matches(&matches).unwrap_or_else(|e| panic!("{line}: {e}"));
        let mut named = Vec::new();
        let mut inner = &matches;
        while let Some((name, next)) = inner.subcommand() {
            named.push(name);
            inner = next;
        }
        assert_eq!(named.join(" "), *path, "{line}");
    }
}

/// Words of a line as a shell splits it, without expansion.
fn words(line: &str) -> Vec<String> {
    let parts = line.split('"').enumerate();
    let words = parts.flat_map(|(at, part)| match at % 2 {
        0 => part.split_whitespace().map(str::to_owned).collect(),
        _ => vec![part.to_owned()],
    });
    words.collect()
}
