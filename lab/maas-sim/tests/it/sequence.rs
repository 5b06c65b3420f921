//! The simulator against a sequence of calls that a real region answered, in its order: status,
//! content type, shape and text of every answer.
//!
//! The file is `GPUAAS_MAAS_SEQUENCE`; without it the test says so and passes. Where the
//! simulator is known to differ, `sequence/listed.txt` says why. That list may only shrink: a
//! difference that is not on it fails, and so does one on it that is gone. Ids, times and tokens
//! are a region's own; those of the two regions are paired as the sequence goes.

#![expect(clippy::expect_used, clippy::disallowed_methods, reason = "test harness")]

mod caller;
mod compare;
mod entry;

use std::collections::{BTreeMap, BTreeSet};

use sha2::{Digest as _, Sha256};

/// Known differences: call, method and path, kind; then the reason.
const LISTED: &str = include_str!("sequence/listed.txt");
/// Least share of the same answers from a region that the list was not made for.
const LEAST_SAME: f64 = 0.95;

struct Listed {
    /// Digest of the file that the calls' numbers are of.
    digest: String,
    lines: BTreeMap<(String, String), String>,
}

fn listed() -> Listed {
    let mut out = Listed { digest: String::new(), lines: BTreeMap::new() };
    for line in LISTED.lines().filter(|l| !l.is_empty() && !l.starts_with('#')) {
        if let Some(digest) = line.strip_prefix("sequence ") {
            digest.trim().clone_into(&mut out.digest);
            continue;
        }
        let (what, reason) = line.split_once(" | ").expect("a line has a reason");
        let words: Vec<&str> = what.split_whitespace().collect();
        let (call, kind) = (words[0].to_owned(), words[words.len() - 1].to_owned());
        assert!(
            words.len() == 4 && !reason.trim().is_empty(),
            "CALL METHOD PATH KIND | WHY: {line}"
        );
        let twice = out.lines.insert((call, kind), reason.to_owned());
        assert!(twice.is_none(), "listed twice: {line}");
    }
    out
}

#[test]
fn the_simulator_answers_as_a_region_did() {
    let Some(path) = std::env::var_os("GPUAAS_MAAS_SEQUENCE") else {
        test_report::skip("sequence", "GPUAAS_MAAS_SEQUENCE names no sequence of calls");
        return;
    };
    let file = std::fs::read_to_string(&path).expect("the sequence");
    let entries = entry::parse(&file);
    assert!(!entries.is_empty(), "{path:?} has no calls");
    let listed = listed();
    let known = listed.digest == hex::encode(Sha256::digest(&file));
    let mut caller = caller::Caller::new();
    let (mut compared, mut same) = (0_usize, 0_usize);
    let mut found: BTreeSet<(String, String)> = BTreeSet::new();
    let mut news = Vec::new();
    for entry in &entries {
        let Some(differences) = caller.play(entry).differences else { continue };
        compared += 1;
        same += usize::from(differences.is_empty());
        let mut seen = BTreeSet::new();
        for (kind, what) in &differences {
            let name = (entry.key.clone(), (*kind).to_owned());
            let what =
                format!("{} {} {} {kind}\n      {what}", entry.key, entry.method, shown(entry));
            let is_listed = known && listed.lines.contains_key(&name);
            if !is_listed && seen.insert(name.clone()) {
                news.push(what);
            } else if !is_listed && let Some(last) = news.last_mut() {
                last.push_str(&format!("\n      {}", what.lines().nth(1).unwrap_or("").trim()));
            }
            found.insert(name);
        }
    }
    let count = if known { listed.lines.len() } else { 0 };
    println!("compared {compared}, same {same}, listed {count}");
    if !known {
        news.iter().for_each(|what| println!("differs: {what}"));
        let share = same as f64 / compared.max(1) as f64;
        assert!(share >= LEAST_SAME, "{:.1} % of the answers are the same", share * 100.0);
        return;
    }
    let gone: Vec<String> = listed
        .lines
        .keys()
        .filter(|name| !found.contains(*name))
        .map(|(call, kind)| format!("{call} {kind}: take it off the list"))
        .collect();
    assert!(news.is_empty() && gone.is_empty(), "{}\n{}", news.join("\n"), gone.join("\n"));
}

/// The path as the list names it: without white space.
fn shown(entry: &entry::Entry) -> String {
    let path = entry.raw_path.as_deref().unwrap_or(&entry.path);
    if path.is_empty() { "/".to_owned() } else { path.replace(' ', "_") }
}
