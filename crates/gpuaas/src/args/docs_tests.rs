//! The handbook in `docs`: its commands parse, its links lead somewhere, and the table of contents has
//! every page.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use clap::Parser as _;
use clap::error::ErrorKind;

use super::Cli;

/// Generated from clap's tree; its usage lines are not commands to type.
const FROM_CLAP: &str = "docs/reference/cli.md";

pub(super) fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// Pages with their paths in the repository.
fn pages() -> Vec<(String, String)> {
    let mut pages = Vec::new();
    for name in ["README.md", "ARCHITECTURE.md"] {
        pages.push((name.to_owned(), fs::read_to_string(root().join(name)).unwrap()));
    }
    let mut folders = vec!["docs".to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(root().join(&folder)).unwrap() {
            let entry = entry.unwrap();
            let name = format!("{folder}/{}", entry.file_name().to_string_lossy());
            if entry.file_type().unwrap().is_dir() {
                folders.push(name);
            } else if name.ends_with(".md") {
                let text = fs::read_to_string(entry.path()).unwrap();
                pages.push((name, text));
            }
        }
    }
    pages.sort();
    pages
}

/// Lines of fenced blocks, with continued lines joined, and the text outside the blocks.
fn split_fences(page: &str) -> (Vec<String>, String) {
    let (mut lines, mut text, mut fenced, mut joined) =
        (Vec::new(), String::new(), false, String::new());
    for line in page.lines() {
        if line.trim_start().starts_with("```") {
            fenced = !fenced;
        } else if fenced {
            match line.strip_suffix('\\') {
                Some(part) => joined.push_str(part),
                None => lines.push(std::mem::take(&mut joined) + line),
            }
        } else {
            text.push_str(line);
            text.push('\n');
        }
    }
    assert!(!fenced, "a fenced block has no end");
    (lines, text)
}

/// Commands of a shell line as words, without quotes, redirections and comments.
fn shell_commands(line: &str) -> Vec<Vec<String>> {
    let (mut commands, mut words) = (Vec::new(), Vec::new());
    let (mut word, mut begun, mut quote, mut redirected) = (String::new(), false, None, false);
    let end_word =
        |word: &mut String, begun: &mut bool, words: &mut Vec<String>, out: &mut bool| {
            let one = std::mem::take(word);
            if std::mem::take(begun) && !std::mem::take(out) {
                words.push(one);
            }
        };
    for c in line.chars() {
        match (quote, c) {
            (Some(open), _) if c == open => quote = None,
            (Some(_), _) => word.push(c),
            (None, '"' | '\'') => (quote, begun) = (Some(c), true),
            (None, '#') if !begun => break,
            (None, '>' | '<') => {
                if word.bytes().all(|b| b.is_ascii_digit()) {
                    (word, begun) = (String::new(), false);
                }
                end_word(&mut word, &mut begun, &mut words, &mut redirected);
                redirected = true;
            }
            (None, '|' | '&' | ';' | '(' | ')') => {
                if redirected && !begun && c == '&' {
                    continue;
                }
                end_word(&mut word, &mut begun, &mut words, &mut redirected);
                commands.push(std::mem::take(&mut words));
            }
            (None, c) if c.is_whitespace() => {
                end_word(&mut word, &mut begun, &mut words, &mut redirected);
            }
            (None, c) => {
                word.push(c);
                begun = true;
            }
        }
    }
    end_word(&mut word, &mut begun, &mut words, &mut redirected);
    commands.push(words);
    commands
}

/// Words of a `gpuaas` command, without a prompt, assignments and `sudo` before it.
fn of_gpuaas(words: &[String]) -> Option<&[String]> {
    let before = |word: &&String| {
        matches!(word.as_str(), "$" | "sudo" | "exec" | "until" | "!" | "if" | "then")
            || word.split_once('=').is_some_and(|(name, _)| {
                name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_')
            })
    };
    let at = words.iter().take_while(before).count();
    let ours = &words[at..];
    let command = ours.get(1).is_some_and(|word| word != "...");
    (command && ours[0] == "gpuaas").then_some(ours)
}

/// Faults in the commands of a page. Values may be placeholders. Commands may lack required
/// arguments in running text, but not in a block.
fn faults(name: &str, page: &str) -> Vec<String> {
    let (lines, text) = split_fences(page);
    let mut faults = Vec::new();
    let mut judge = |words: &[String], complete: bool| {
        let Err(error) = Cli::try_parse_from(words) else { return };
        match error.kind() {
            ErrorKind::ValueValidation
            | ErrorKind::InvalidValue
            | ErrorKind::DisplayHelp
            | ErrorKind::DisplayVersion => {}
            ErrorKind::MissingRequiredArgument
            | ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand
                if !complete => {}
            kind => faults.push(format!("{name}: `{}`: {kind}", words.join(" "))),
        }
    };
    for line in lines {
        for words in shell_commands(&line) {
            if let Some(words) = of_gpuaas(&words) {
                judge(words, true);
            }
        }
    }
    for code in text.split('`').skip(1).step_by(2).filter(|code| code.starts_with("gpuaas ")) {
        let whole = code.split_whitespace().collect::<Vec<_>>().join(" ");
        for words in shell_commands(&whole) {
            if let Some(words) = of_gpuaas(&words) {
                judge(words, false);
            }
        }
    }
    faults
}

#[test]
fn every_command_of_the_handbook_parses() {
    let pages = pages();
    let blocks = pages.iter().flat_map(|(_, page)| split_fences(page).0);
    let commands = blocks.filter(|line| line.starts_with("gpuaas ")).count();
    assert!(commands > 60, "{commands} commands in blocks");
    let checked = pages.iter().filter(|(name, _)| name != FROM_CLAP);
    let wrong: Vec<String> = checked.flat_map(|(name, page)| faults(name, page)).collect();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn wrong_command_in_a_page_is_reported() {
    for bad in [
        "```sh\ngpuaas node repair j22u11\n```\n",
        "```sh\n$ gpuaas node list | gpuaas node reboot x\n```\n",
        "```sh\ngpuaas run resume RUN\n```\n",
        "```sh\nGPUAAS_TOKEN=x gpuaas node list --colour > list # why\n```\n",
        "Use `gpuaas run resume RUN --newest-profile`.\n",
    ] {
        assert_eq!(faults("page.md", bad).len(), 1, "{bad}");
    }
    let good = "```sh\ngpuaas run resume RUN --reason \"the BMC; is back\" > out 2>&1 # done\n\
                gpuaas node onboard j22u11 --site lab \\\n  --profile h200\n```\n\
                `gpuaas run resume` and `gpuaas\nnode list --stuck`\n";
    assert_eq!(faults("page.md", good), Vec::<String>::new());
}

/// Targets of a page's links, except links to other hosts.
fn links(page: &str) -> Vec<String> {
    let (_, text) = split_fences(page);
    let targets = text.split("](").skip(1).filter_map(|rest| rest.split(')').next());
    let local = targets.filter(|to| !to.contains("://") && !to.starts_with("mailto:"));
    local.map(str::to_owned).collect()
}

/// Anchor that mdBook and GitHub generate for a heading.
fn anchor(heading: &str) -> String {
    let kept = heading.trim().to_lowercase();
    let kept = kept.chars().filter(|c| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_'));
    kept.map(|c| if c == ' ' { '-' } else { c }).collect()
}

fn has_anchor(page: &str, wanted: &str) -> bool {
    let (_, text) = split_fences(page);
    let headings = text.lines().filter(|line| line.starts_with('#'));
    headings.map(|line| anchor(line.trim_start_matches('#'))).any(|one| one == wanted)
}

fn dead_link(name: &str, page: &str, to: &str) -> Option<String> {
    let (path, wanted) = to.split_once('#').map_or((to, None), |(path, one)| (path, Some(one)));
    let target = match path {
        "" => root().join(name),
        path => root().join(name).parent()?.join(path),
    };
    let missing = || Some(format!("{name}: {to}"));
    if !target.exists() {
        return missing();
    }
    match (wanted, path) {
        (Some(wanted), "") if !has_anchor(page, wanted) => missing(),
        (Some(wanted), path) if path.ends_with(".md") => {
            let there = fs::read_to_string(target).ok()?;
            if has_anchor(&there, wanted) { None } else { missing() }
        }
        _ => None,
    }
}

#[test]
fn every_relative_link_leads_somewhere() {
    let pages = pages();
    let dead = pages.iter().flat_map(|(name, page)| {
        links(page).into_iter().filter_map(move |to| dead_link(name, page, &to))
    });
    let dead: Vec<String> = dead.collect();
    assert!(dead.is_empty(), "{}", dead.join("\n"));
    assert!(dead_link("README.md", "", "docs/no-such-page.md").is_some());
    assert!(dead_link("README.md", "# One\n", "#two").is_some());
}

#[test]
fn every_page_is_in_the_table_of_contents() {
    let summary = fs::read_to_string(root().join("docs/SUMMARY.md")).unwrap();
    let listed: Vec<String> = links(&summary);
    let unique: BTreeSet<&String> = listed.iter().collect();
    assert_eq!(unique.len(), listed.len(), "a page is listed twice");
    for (name, _) in pages() {
        let Some(page) = name.strip_prefix("docs/").filter(|page| *page != "SUMMARY.md") else {
            continue;
        };
        assert!(listed.iter().any(|one| one == page), "docs/SUMMARY.md does not list {page}");
    }
    let book = fs::read_to_string(root().join("book.toml")).unwrap();
    assert!(
        book.contains("src = \"docs\"") && Path::new(&root()).join("docs/introduction.md").exists()
    );
}
