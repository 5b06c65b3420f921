//! Rules of the sources that no compiler checks: file length, silenced lints, loose ends, leaked
//! paths, fixed ports.

use std::fs;
use std::path::Path;
use std::process::Command;

use crate::fixed_ports;
use crate::metadata::Workspace;
use crate::orphans;
use crate::proc;
use crate::ratchet::{self, Offence};

const MAX_LINES: usize = 600;
/// The rules of this module, as `xtask/ratchet.txt` names them.
const RULES: [&str; 5] = ["lines", "loose-end", "allow", "path", "port"];

/// Files that people write and read; the length rule and the loose-end rule look at these.
const SOURCES: [&str; 9] = [".rs", ".sh", ".sql", ".toml", ".html", ".css", ".js", ".py", "/run"];

/// Checks every file that git knows or would add.
///
/// # Errors
/// A sentence, where git or the exceptions file cannot be read.
pub(crate) fn check(workspace: &Workspace) -> Result<Vec<String>, String> {
    let mut offences = Vec::new();
    let files = files(&workspace.root)?;
    for path in &files {
        // A picture or a file that was just deleted has no text to judge.
        if let Ok(text) = fs::read_to_string(workspace.root.join(path)) {
            offences.extend(judge(path, &text));
        }
    }
    let mut broken = ratchet::load(&workspace.root)?.compare(&offences, &RULES);
    broken.extend(manifests(workspace));
    broken.extend(orphans::check(&workspace.root, &files));
    Ok(broken)
}

/// Every file that git knows or would add, as paths below `root`.
///
/// # Errors
/// A sentence, where git cannot be asked.
pub(crate) fn files(root: &Path) -> Result<Vec<String>, String> {
    let mut git = Command::new("git");
    git.args(["ls-files", "-z", "--cached", "--others", "--exclude-standard"]);
    let listed = proc::quiet(git.current_dir(root)).map_err(|said| {
        format!("the check of the sources asks git for the files: {}", said.trim())
    })?;
    let paths = listed.split('\0').filter(|path| !path.is_empty());
    Ok(paths.map(str::to_owned).collect())
}

fn manifests(workspace: &Workspace) -> Vec<String> {
    let mut broken = Vec::new();
    for krate in &workspace.crates {
        if krate.license.as_deref().is_none_or(str::is_empty) {
            broken.push(format!("{}: no SPDX `license` in Cargo.toml", krate.name));
        }
        let text = fs::read_to_string(&krate.manifest).unwrap_or_default();
        if !text.contains("[lints]\nworkspace = true") {
            broken.push(format!("{}: Cargo.toml leaves the workspace lints out", krate.name));
        }
    }
    broken
}

/// The patterns are put together here so that this file does not break its own rules.
fn judge(path: &str, text: &str) -> Vec<Offence> {
    let mut offences = Vec::new();
    let mut add = |rule, count, advice: &str| {
        if count > 0 {
            let path = path.to_owned();
            offences.push(Offence { rule, path, count, advice: advice.to_owned() });
        }
    };
    let count = |hit: &dyn Fn(&str) -> bool| text.lines().filter(|line| hit(line)).count();
    let source = SOURCES.iter().any(|end| path.ends_with(end));
    if source {
        let lines = text.lines().count();
        let over = if lines > MAX_LINES { lines } else { 0 };
        add("lines", over, "split it: 600 lines is the limit");
        add(
            "loose-end",
            count(&|line| loose_end(line)),
            "finish it, or open an issue and take the mark out",
        );
    }
    // A module that several test executables share is used in part by each, so an expectation
    // that one fulfils the next would not.
    if path.ends_with(".rs") && !path.contains("/tests/common/") {
        let silenced = [concat!("#[al", "low("), concat!("#![al", "low(")];
        add(
            "allow",
            count(&|line| silenced.iter().any(|mark| line.contains(mark))),
            "write #[expect(..., reason = \"...\")], which says when it is no longer needed",
        );
    }
    // The rule's own examples.
    if !path.ends_with("/fixed_ports.rs") {
        let advice = "listen on port 0: another program may have that port";
        add("port", count(&|line| fixed_ports::is_fixed(path, line)), advice);
    }
    add("path", count(&|line| names_a_local_path(line)), "it names a folder of somebody's machine");
    offences
}

fn loose_end(line: &str) -> bool {
    let marks = [concat!("to", "do!"), concat!("FIX", "ME"), concat!("X", "XX")];
    marks.iter().any(|mark| {
        line.match_indices(mark).any(|(at, _)| {
            let before = line[..at].chars().next_back();
            let after = line[at + mark.len()..].chars().next();
            let word = |c: Option<char>| c.is_some_and(|c| c.is_alphanumeric() || c == '_');
            !word(before) && !word(after)
        })
    })
}

fn names_a_local_path(line: &str) -> bool {
    let mark = concat!("/wo", "rk/");
    line.match_indices(mark).any(|(at, _)| {
        let before = line[..at].chars().next_back();
        !before.is_some_and(|c| c.is_alphanumeric() || "_-.}".contains(c))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rules(path: &str, text: &str) -> Vec<(&'static str, usize)> {
        let offences = judge(path, text);
        offences.iter().map(|o| (o.rule, o.count)).collect()
    }

    #[test]
    fn clean_text_passes() {
        assert_eq!(rules("a.rs", "fn main() {}\n"), []);
        assert_eq!(rules("a.rs", "#[expect(dead_code, reason = \"why\")]\n"), []);
    }

    #[test]
    fn each_rule_sees_its_own_offence() {
        let silenced = concat!("#[al", "low(dead_code)]\n#![al", "low(unused)]\n");
        assert_eq!(rules("a.rs", silenced), [("allow", 2)]);
        let stub = concat!("fn f() { to", "do!() }\n// FIX", "ME later\n");
        assert_eq!(rules("a.rs", stub), [("loose-end", 2)]);
        let leak = concat!("see /wo", "rk/main\n");
        assert_eq!(rules("notes.md", leak), [("path", 1)]);
        let long = "x\n".repeat(MAX_LINES + 1);
        assert_eq!(rules("a.sql", &long), [("lines", MAX_LINES + 1)]);
    }

    #[test]
    fn what_only_looks_alike_passes() {
        assert_eq!(rules("a.sh", "mktemp /tmp/lab.XXXXXX\n"), []);
        assert_eq!(rules("a.md", "https://example.org/work/item\n"), []);
        let shared = concat!("#![al", "low(dead_code, reason = \"shared\")]\n");
        assert_eq!(rules("crates/a/tests/common/mod.rs", shared), []);
        assert_eq!(rules("data.json", &"x\n".repeat(MAX_LINES + 1)), []);
    }
}
