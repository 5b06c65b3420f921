//! What tests told beyond passed and failed: skips and cached passes (`lab/test-report`).
//!
//! `xtask/skips.txt` names the skips that are allowed on a fully equipped machine. With `--strict`,
//! as in CI, any other skip fails the run, and so does an entry that no test needs any more.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

/// The allowed skips, a line each: `NEED TEST - reason`.
const ALLOWED: &str = "xtask/skips.txt";
/// Needs that a clone without the recordings of a region cannot meet.
const RECORDED: [&str; 2] = ["recordings", "sequence"];

/// One skip: what was lacking, in which test, and why.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Skip {
    need: String,
    test: String,
    reason: String,
}

/// All records of one run.
#[derive(Debug, Default)]
pub(crate) struct Records {
    pub(crate) skips: BTreeSet<Skip>,
    pub(crate) cached: BTreeSet<String>,
    /// Tests that a fast run left out.
    pub(crate) left_out: BTreeSet<String>,
}

/// The folder that tests write their records to, empty.
///
/// # Errors
/// The folder cannot be made.
pub(crate) fn prepare(target: &Path) -> Result<PathBuf, String> {
    let folder = target.join("test-report");
    if folder.exists() {
        fs::remove_dir_all(&folder).map_err(|error| format!("{}: {error}", folder.display()))?;
    }
    fs::create_dir_all(&folder).map_err(|error| format!("{}: {error}", folder.display()))?;
    Ok(folder)
}

impl Records {
    /// Reads what the tests of a run wrote.
    ///
    /// # Errors
    /// A record cannot be read: it would count as a pass.
    pub(crate) fn read(folder: &Path) -> Result<Self, String> {
        let failed = |error: std::io::Error| format!("{}: {error}", folder.display());
        let mut records = Self::default();
        for entry in fs::read_dir(folder).map_err(failed)? {
            let text = fs::read_to_string(entry.map_err(failed)?.path()).map_err(failed)?;
            for line in text.lines() {
                records.add(line)?;
            }
        }
        Ok(records)
    }

    fn add(&mut self, line: &str) -> Result<(), String> {
        let fields: Vec<&str> = line.splitn(4, '\t').collect();
        let [kind, test, subject, text] = fields[..] else {
            return Err(format!("a test wrote the record `{line}`: expected four fields"));
        };
        match kind {
            "skip" => drop(self.skips.insert(Skip {
                need: subject.to_owned(),
                test: test.to_owned(),
                reason: text.to_owned(),
            })),
            "cached" => drop(self.cached.insert(test.to_owned())),
            "slow" => drop(self.left_out.insert(test.to_owned())),
            _ => return Err(format!("a test wrote a record of the unknown kind `{kind}`")),
        }
        Ok(())
    }

    /// The skips, the tests left out and the counts, as lines.
    pub(crate) fn summary(&self) -> Vec<String> {
        let skip = |skip: &Skip| format!("skipped: {} ({}): {}", skip.test, skip.need, skip.reason);
        let mut lines: Vec<String> = self.skips.iter().map(skip).collect();
        if !self.left_out.is_empty() {
            lines.push(format!("left out as slow: {} tests", self.left_out.len()));
        }
        lines
    }

    /// How many tests skipped, wholly or in part.
    pub(crate) fn skipped_tests(&self) -> usize {
        self.skips.iter().map(|skip| &skip.test).collect::<BTreeSet<_>>().len()
    }

    /// What a strict run objects to. `has_recordings` says whether the run was given the recordings
    /// of a region; `is_whole` whether all tests ran, so that a stale entry shows.
    ///
    /// # Errors
    /// The list cannot be read.
    pub(crate) fn objections(
        &self,
        root: &Path,
        has_recordings: bool,
        is_whole: bool,
    ) -> Result<Vec<String>, String> {
        let text = fs::read_to_string(root.join(ALLOWED))
            .map_err(|error| format!("cannot read {ALLOWED}: {error}"))?;
        let allowed = parse(&text)?;
        Ok(self.compare(&allowed, has_recordings, is_whole))
    }

    fn compare(
        &self,
        allowed: &BTreeSet<(String, String)>,
        has_recordings: bool,
        is_whole: bool,
    ) -> Vec<String> {
        let skipped: BTreeSet<(String, String)> =
            self.skips.iter().map(|skip| (skip.need.clone(), skip.test.clone())).collect();
        let excused = |need: &str| !has_recordings && RECORDED.contains(&need);
        let mut objections: Vec<String> = skipped
            .difference(allowed)
            .filter(|(need, _)| !excused(need))
            .map(|(need, test)| {
                format!("{test} skipped for lack of {need}, which {ALLOWED} does not allow")
            })
            .collect();
        if is_whole {
            objections.extend(allowed.difference(&skipped).map(|(need, test)| {
                format!(
                    "{ALLOWED} allows {test} to skip for lack of {need}: it ran, remove the line"
                )
            }));
        }
        objections
    }
}

fn parse(text: &str) -> Result<BTreeSet<(String, String)>, String> {
    let lines = text.lines().enumerate().map(|(number, line)| (number + 1, line.trim()));
    let entries = lines.filter(|(_, line)| !line.is_empty() && !line.starts_with('#'));
    entries
        .map(|(number, line)| {
            line.split_once(" - ")
                .and_then(|(entry, _)| entry.trim().split_once(' '))
                .map(|(need, test)| (need.to_owned(), test.trim().to_owned()))
                .ok_or_else(|| format!("{ALLOWED}:{number}: expected `NEED TEST - reason`"))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn records(lines: &[&str]) -> Records {
        let mut records = Records::default();
        lines.iter().for_each(|line| records.add(line).unwrap());
        records
    }

    #[test]
    fn a_skip_that_is_not_allowed_is_named() {
        let records = records(&["skip\ta::it one\tgpu\tno GPU", "cached\tb two\tdigest\t"]);
        let none = BTreeSet::new();
        let objections = records.compare(&none, true, true);
        assert_eq!(
            objections,
            ["a::it one skipped for lack of gpu, which xtask/skips.txt does not allow"]
        );
        let allowed = parse("# why\ngpu a::it one - needs hardware\n").unwrap();
        assert!(records.compare(&allowed, true, true).is_empty());
        assert_eq!((records.skipped_tests(), records.cached.len()), (1, 1));
    }

    #[test]
    fn an_entry_that_no_test_needs_has_to_go() {
        let allowed = parse("gpu a::it one - needs hardware").unwrap();
        let objections = records(&[]).compare(&allowed, true, true);
        assert!(objections[0].contains("remove the line"), "{objections:?}");
        assert!(records(&[]).compare(&allowed, true, false).is_empty(), "a part of the suite");
    }

    #[test]
    fn a_clone_without_recordings_may_skip_what_needs_them() {
        let records = records(&["skip\ta one\trecordings\tno folder"]);
        let none = BTreeSet::new();
        assert!(records.compare(&none, false, true).is_empty());
        assert_eq!(records.compare(&none, true, true).len(), 1);
    }

    #[test]
    fn a_broken_record_or_entry_is_an_error() {
        assert!(Records::default().add("skip\ta").is_err());
        assert!(Records::default().add("maybe\ta\tb\tc").is_err());
        assert!(parse("gpu").is_err());
    }
}
