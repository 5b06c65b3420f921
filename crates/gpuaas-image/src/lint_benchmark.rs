//! Faults planted one at a time in a good image, and what the rules say of each.
//!
//! Images are small and made in memory: they look like Ubuntu's and Debian's in what rules read, and
//! are packed and read as real ones are. A rule that misses its fault, one that answers for another
//! one's, and one that speaks up about a good image are counted apart.

use std::collections::BTreeSet;
use std::io::{self, Write as _};

use crate::lint::{LintOptions, lint};

mod planted_fault;
mod sample_disk;
mod sample_image;
mod sample_systems;

pub use planted_fault::{FaultPlant, PlantedFault, faults};
pub use sample_image::SampleImage;

/// What the rules said of planted faults and of good images.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct LintBenchmark {
    /// Faults that were planted, one at a time.
    pub mutations: usize,
    /// Those whose code was reported.
    pub caught: usize,
    /// Codes of those that were not.
    pub missed: Vec<&'static str>,
    /// Those that another code was reported for, instead or as well.
    pub wrong_code: usize,
    /// Codes that were reported of good images, one for each finding.
    pub false_alarms: Vec<&'static str>,
    /// Good images.
    pub good_images: usize,
}

/// Plants every fault, and judges every good image.
///
/// # Errors
/// A temporary file cannot be written or read.
pub fn measure() -> io::Result<LintBenchmark> {
    let mut benchmark = LintBenchmark::default();
    for (archive, options) in sample_systems::good_archives()? {
        benchmark.good_images += 1;
        benchmark.false_alarms.extend(codes(&archive, &options)?);
    }
    for fault in faults() {
        let (archive, options) = fault.planted()?;
        let codes = codes(&archive, &options)?;
        benchmark.mutations += 1;
        match codes.contains(fault.code) {
            true => benchmark.caught += 1,
            false => benchmark.missed.push(fault.code),
        }
        benchmark.wrong_code += usize::from(codes.iter().any(|code| *code != fault.code));
    }
    Ok(benchmark)
}

/// A good image of Debian 12.
///
/// # Errors
/// A thread cannot be started.
pub fn good_debian_archive() -> io::Result<Vec<u8>> {
    sample_systems::bookworm().archive()
}

/// Codes that an archive gets, each once.
fn codes(archive: &[u8], options: &LintOptions) -> io::Result<BTreeSet<&'static str>> {
    let mut file = tempfile::NamedTempFile::new()?;
    file.write_all(archive)?;
    let verdict = lint(file.path(), options)?;
    Ok(verdict.findings.iter().map(|finding| finding.rule.code).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lint::rules;

    #[test]
    fn every_fault_has_its_code_and_good_images_have_none() {
        let benchmark = measure().unwrap();
        assert_eq!(benchmark.missed, Vec::<&str>::new());
        assert_eq!(benchmark.false_alarms, Vec::<&str>::new());
        assert_eq!(
            (benchmark.caught, benchmark.wrong_code),
            (faults().count(), 0),
            "{benchmark:?}"
        );
        assert!(benchmark.mutations >= 25 && benchmark.good_images >= 5, "{benchmark:?}");
    }

    #[test]
    fn a_fault_is_answered_by_its_own_code_alone() {
        for fault in faults() {
            let (archive, options) = fault.planted().unwrap();
            let codes = codes(&archive, &options).unwrap();
            assert_eq!(codes, BTreeSet::from([fault.code]), "{}", fault.about);
        }
    }

    #[test]
    fn every_rule_has_a_fault_that_it_catches() {
        let rules: BTreeSet<&str> = rules().map(|rule| rule.code).collect();
        let planted: BTreeSet<&str> = faults().map(|fault| fault.code).collect();
        assert_eq!(rules, planted);
    }
}
