//! House rules that no compiler checks: file length, silenced lints, loose ends, leaked paths.
//!
//! Exceptions live in `xtask/ratchet.txt` and may only shrink: an entry that is larger than the
//! file needs fails like a new offence does, so an improvement cannot be lost again.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::Command;

use crate::metadata::Workspace;
use crate::proc;

const MAX_LINES: usize = 800;
const RATCHET: &str = "xtask/ratchet.txt";

/// Files that people write and read; the length rule and the loose-end rule look at these.
const SOURCES: [&str; 9] = [".rs", ".sh", ".sql", ".toml", ".html", ".css", ".js", ".py", "/run"];

/// One rule broken `count` times by one file.
#[derive(Debug, PartialEq, Eq)]
struct Offence {
    rule: &'static str,
    path: String,
    count: usize,
    advice: &'static str,
}

/// Rule and path to the largest count that is still admitted.
type Ratchet = BTreeMap<(String, String), usize>;

/// Checks every file that git knows or would add.
///
/// # Errors
/// A sentence, where git or the exceptions file cannot be read.
pub(crate) fn check(workspace: &Workspace) -> Result<Vec<String>, String> {
    let ratchet = read_ratchet(
        &fs::read_to_string(workspace.root.join(RATCHET))
            .map_err(|error| format!("cannot read {RATCHET}: {error}"))?,
    )?;
    let mut offences = Vec::new();
    for path in files(&workspace.root)? {
        // A picture or a file that was just deleted has no text to judge.
        if let Ok(text) = fs::read_to_string(workspace.root.join(&path)) {
            offences.extend(judge(&path, &text));
        }
    }
    let mut broken = compare(&offences, &ratchet);
    broken.extend(manifests(workspace));
    Ok(broken)
}

fn files(root: &Path) -> Result<Vec<String>, String> {
    let mut git = Command::new("git");
    git.args(["ls-files", "-z", "--cached", "--others", "--exclude-standard"]);
    let listed = proc::quiet(git.current_dir(root))
        .map_err(|said| format!("the house check asks git for the files: {}", said.trim()))?;
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
    let mut add = |rule, count, advice| {
        if count > 0 {
            let path = path.to_owned();
            offences.push(Offence { rule, path, count, advice });
        }
    };
    let count = |hit: &dyn Fn(&str) -> bool| text.lines().filter(|line| hit(line)).count();
    let source = SOURCES.iter().any(|end| path.ends_with(end));
    if source {
        let lines = text.lines().count();
        let over = if lines > MAX_LINES { lines } else { 0 };
        add("lines", over, "split it: 800 lines is the limit");
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

fn read_ratchet(text: &str) -> Result<Ratchet, String> {
    let mut ratchet = Ratchet::new();
    for (number, line) in text.lines().enumerate() {
        let line = line.trim();
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        let entry = line.split_once(" - ").and_then(|(entry, _why)| {
            let mut words = entry.split_whitespace();
            let key = (words.next()?.to_owned(), words.next()?.to_owned());
            Some((key, words.next()?.parse().ok()?))
        });
        let (key, count) = entry.ok_or_else(|| {
            let at = number + 1;
            format!("{RATCHET}:{at}: expected `RULE PATH COUNT - why`")
        })?;
        ratchet.insert(key, count);
    }
    Ok(ratchet)
}

fn compare(offences: &[Offence], ratchet: &Ratchet) -> Vec<String> {
    let mut left = ratchet.clone();
    let mut broken = Vec::new();
    for offence in offences {
        let (rule, path, count) = (offence.rule, &offence.path, offence.count);
        match left.remove(&(rule.to_owned(), path.clone())) {
            Some(limit) if count < limit => broken.push(format!(
                "{path}: better than {RATCHET} says; lower its `{rule}` entry from {limit} to {count}"
            )),
            Some(limit) if count == limit => {}
            Some(limit) => broken.push(format!(
                "{path}: {rule} {count}, {RATCHET} admits {limit}: {}",
                offence.advice
            )),
            None => broken.push(format!("{path}: {rule} {count}: {}", offence.advice)),
        }
    }
    for ((rule, path), _) in left {
        broken.push(format!("{path}: keeps `{rule}` now; take its entry out of {RATCHET}"));
    }
    broken
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

    #[test]
    fn the_ratchet_only_turns_one_way() {
        let offence = |count| {
            vec![Offence { rule: "lines", path: "a.rs".to_owned(), count, advice: "split it" }]
        };
        let ratchet = read_ratchet("# why\n\nlines a.rs 900 - one table\n").unwrap();
        assert!(compare(&offence(900), &ratchet).is_empty());
        assert!(compare(&offence(901), &ratchet)[0].contains("split it"));
        assert!(compare(&offence(880), &ratchet)[0].contains("lower its `lines` entry"));
        assert!(compare(&[], &ratchet)[0].contains("take its entry out"));
        assert!(compare(&offence(900), &Ratchet::new())[0].contains("split it"));
    }

    #[test]
    fn an_entry_without_a_reason_is_refused() {
        let message = read_ratchet("lines a.rs 900\n").unwrap_err();
        assert!(message.contains("ratchet.txt:1"), "{message}");
    }
}
