//! Exceptions to the rules of the sources, in `xtask/ratchet.txt`: they may only shrink.
//!
//! An entry that is larger than its file needs fails like a new offence does, so an improvement
//! cannot be lost again.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

const FILE: &str = "xtask/ratchet.txt";

/// One rule broken `count` times by one file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Offence {
    pub(crate) rule: &'static str,
    pub(crate) path: String,
    pub(crate) count: usize,
    pub(crate) advice: String,
}

/// Rule and path to the largest count that is still admitted.
#[derive(Debug, Default)]
pub(crate) struct Ratchet(BTreeMap<(String, String), usize>);

/// Reads the exceptions of the workspace at `root`.
///
/// # Errors
/// A sentence that names the file, and the line that is not `RULE PATH COUNT - why`.
pub(crate) fn load(root: &Path) -> Result<Ratchet, String> {
    let text = fs::read_to_string(root.join(FILE))
        .map_err(|error| format!("cannot read {FILE}: {error}"))?;
    Ratchet::parse(&text)
}

impl Ratchet {
    fn parse(text: &str) -> Result<Self, String> {
        let mut ratchet = Self::default();
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
                format!("{FILE}:{at}: expected `RULE PATH COUNT - why`")
            })?;
            ratchet.0.insert(key, count);
        }
        Ok(ratchet)
    }

    /// What is broken beyond the exceptions, as sentences; of the exceptions, only those of
    /// `rules` are held against `offences`.
    pub(crate) fn compare(&self, offences: &[Offence], rules: &[&str]) -> Vec<String> {
        let mut left = self.0.clone();
        left.retain(|(rule, _), _| rules.contains(&rule.as_str()));
        let mut broken = Vec::new();
        for Offence { rule, path, count, advice } in offences {
            match left.remove(&((*rule).to_owned(), path.clone())) {
                Some(limit) if *count < limit => broken.push(format!(
                    "{path}: better than {FILE} says; lower its `{rule}` entry from {limit} to {count}"
                )),
                Some(limit) if *count == limit => {}
                Some(limit) => {
                    broken.push(format!("{path}: {rule} {count}, {FILE} admits {limit}: {advice}"));
                }
                None => broken.push(format!("{path}: {rule} {count}: {advice}")),
            }
        }
        for ((rule, path), _) in left {
            broken.push(format!("{path}: obeys `{rule}` now; take its entry out of {FILE}"));
        }
        broken
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn offence(count: usize) -> Vec<Offence> {
        let advice = "split it".to_owned();
        vec![Offence { rule: "lines", path: "a.rs".to_owned(), count, advice }]
    }

    #[test]
    fn the_ratchet_only_turns_one_way() {
        let ratchet = Ratchet::parse("# why\n\nlines a.rs 900 - one table\n").unwrap();
        let compare = |offences: &[Offence]| ratchet.compare(offences, &["lines"]);
        assert!(compare(&offence(900)).is_empty());
        assert!(compare(&offence(901))[0].contains("split it"));
        assert!(compare(&offence(880))[0].contains("lower its `lines` entry"));
        assert!(compare(&[])[0].contains("take its entry out"));
        assert!(Ratchet::default().compare(&offence(900), &["lines"])[0].contains("split it"));
    }

    #[test]
    fn exceptions_of_other_rules_are_left_to_their_check() {
        let ratchet = Ratchet::parse("word a.rs 2 - a name of the protocol\n").unwrap();
        assert!(ratchet.compare(&[], &["lines"]).is_empty());
        assert_eq!(ratchet.compare(&[], &["word"]).len(), 1);
    }

    #[test]
    fn an_entry_without_a_reason_is_refused() {
        let message = Ratchet::parse("lines a.rs 900\n").unwrap_err();
        assert!(message.contains("ratchet.txt:1"), "{message}");
    }
}
