//! `cargo xtask slow-tests`: which tests of the last run took longest.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::SystemTime;

use crate::metadata::{Depth, Workspace};
use crate::outcome::Outcome;

pub(crate) const HELP: &str = "\
Print the twenty tests that took longest in the last run of `cargo xtask test`, with or without
--fast, in seconds, and the sum over all of its tests.

Usage: cargo xtask slow-tests";

/// The runner's profiles, each of which leaves a report below the target folder.
const PROFILES: [&str; 2] = ["default", "fast"];
const SHOWN: usize = 20;

pub(crate) fn run() -> Outcome {
    let workspace = Workspace::load(Depth::Own)?;
    let Some(path) = latest(&workspace.target) else {
        return Err("no run has left a report: cargo xtask test".to_owned());
    };
    let text = fs::read_to_string(&path)
        .map_err(|error| format!("cannot read {}: {error}", path.display()))?;
    let tests = parse(&text).map_err(|error| format!("{}: {error}", path.display()))?;
    let sum: f64 = tests.iter().map(|test| test.seconds).sum();
    for test in tests.iter().take(SHOWN) {
        println!("{:>8.1} s  {}", test.seconds, test.name);
    }
    println!("{:>8.1} s  all {} tests together", sum, tests.len());
    Ok(ExitCode::SUCCESS)
}

fn latest(target: &Path) -> Option<PathBuf> {
    let written =
        |path: &PathBuf| -> Option<SystemTime> { fs::metadata(path).ok()?.modified().ok() };
    let reports = PROFILES.iter().map(|profile| report(target, profile));
    reports.filter(|path| path.exists()).max_by_key(written)
}

/// Where the runner leaves the report of a profile.
pub(crate) fn report(target: &Path, profile: &str) -> PathBuf {
    target.join("nextest").join(profile).join("junit.xml")
}

/// The tests of the last run with a profile; none if it left no report, as when nothing was built.
///
/// # Errors
/// The report cannot be read.
pub(crate) fn read(target: &Path, profile: &str) -> Result<Vec<Timed>, String> {
    let path = report(target, profile);
    if !path.exists() {
        return Ok(Vec::new());
    }
    let failed = |error: String| format!("{}: {error}", path.display());
    let text = fs::read_to_string(&path).map_err(|error| failed(error.to_string()))?;
    parse(&text).map_err(failed)
}

/// One test of a report.
#[derive(Debug, PartialEq)]
pub(crate) struct Timed {
    name: String,
    seconds: f64,
    pub(crate) failed: bool,
}

/// The tests of a JUnit report, the slowest first.
fn parse(text: &str) -> Result<Vec<Timed>, String> {
    let document = roxmltree::Document::parse(text).map_err(|error| error.to_string())?;
    let cases = document.descendants().filter(|node| node.has_tag_name("testcase"));
    let mut tests: Vec<Timed> = cases
        .map(|case| {
            let attribute = |name| case.attribute(name).unwrap_or_default();
            Timed {
                name: format!("{} {}", attribute("classname"), attribute("name")),
                seconds: attribute("time").parse().unwrap_or(0.0),
                failed: case
                    .children()
                    .any(|child| child.has_tag_name("failure") || child.has_tag_name("error")),
            }
        })
        .collect();
    tests.sort_by(|a, b| b.seconds.total_cmp(&a.seconds));
    Ok(tests)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_slowest_comes_first() {
        let report = r#"<?xml version="1.0"?><testsuites><testsuite name="a">
            <testcase name="quick" classname="a" time="0.1"/>
            <testcase name="slow" classname="a::b" time="12.5"><failure/></testcase>
            </testsuite></testsuites>"#;
        let tests = parse(report).unwrap();
        assert_eq!(tests[0], Timed { name: "a::b slow".to_owned(), seconds: 12.5, failed: true });
        assert_eq!((tests.len(), tests[1].failed), (2, false));
        assert!(parse("no report").is_err());
    }
}
