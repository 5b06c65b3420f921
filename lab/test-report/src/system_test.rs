//! System tests: they boot a machine or take minutes, and run again only when what they cover changed.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;
use std::time::SystemTime;

use crate::digest;
use crate::record::{HAS_SKIPPED, print_line, record, test_name, variable};

/// Names the folder with the passes of system tests; unset: nothing is cached.
pub const PASSES_FOLDER: &str = "GPUAAS_TEST_PASSES";
/// Passes that are kept of each test: several branches stay cached beside each other.
const KEPT_PASSES: usize = 8;
/// Covered by every test: other versions of libraries are another program.
const ALWAYS: [&str; 2] = ["Cargo.lock", "lab/test-report/src"];

/// A system test that is running. A pass is stored by [`SystemTest::passed`] and by nothing else,
/// so a test that fails, skips or is killed runs again.
#[must_use = "call `passed` at the end of the test"]
pub struct SystemTest {
    /// Where its pass is stored; none: passes are not cached in this run.
    pass: Option<PathBuf>,
}

impl SystemTest {
    /// Starts the test, unless it already passed with the same bytes: then it is recorded as cached
    /// and none is returned.
    ///
    /// `covers` are the files and folders whose content the result depends on, relative to the
    /// workspace: bundles, crates, images, the test's own file. An entry with `!` excludes a path
    /// below them.
    ///
    /// # Panics
    /// A covered path does not exist: the test would never run again when it should.
    #[expect(clippy::panic, reason = "a test fails by panicking")]
    pub fn begin(covers: &[&str]) -> Option<Self> {
        let root = workspace();
        let covers = [&ALWAYS, covers].concat();
        let digest = digest::of_files(&root, &covers)
            .unwrap_or_else(|error| panic!("cannot read the covered paths: {error}"));
        let pass = variable(PASSES_FOLDER)
            .map(|folder| PathBuf::from(folder).join(file_name(&test_name())).join(&digest));
        if let Some(pass) = pass.as_deref().filter(|pass| pass.is_file()) {
            print_line(&format!("cached: passed earlier with the same files ({})", pass.display()));
            record("cached", &digest, "");
            return None;
        }
        Some(Self { pass })
    }

    /// Stores the pass, unless a part of the test was skipped.
    pub fn passed(self) {
        if HAS_SKIPPED.load(Ordering::SeqCst) {
            return;
        }
        let Some(pass) = self.pass else { return };
        let Some(folder) = pass.parent() else { return };
        let stored = fs::create_dir_all(folder).and_then(|()| fs::write(&pass, ""));
        match stored {
            Ok(()) => forget_old_passes(folder),
            Err(error) => print_line(&format!("note: cannot cache the pass: {error}")),
        }
    }
}

/// The workspace of this build.
fn workspace() -> PathBuf {
    let own = Path::new(env!("CARGO_MANIFEST_DIR"));
    own.ancestors().nth(2).unwrap_or(own).to_owned()
}

/// Test names have `::`, `$` and spaces.
fn file_name(test: &str) -> String {
    test.chars().map(|c| if c.is_ascii_alphanumeric() || c == '_' { c } else { '-' }).collect()
}

fn forget_old_passes(folder: &Path) {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let mut passes: Vec<(SystemTime, PathBuf)> = entries
        .filter_map(|entry| Some((entry.metadata().ok()?.modified().ok()?, entry.path())))
        .collect();
    passes.sort();
    let old = passes.len().saturating_sub(KEPT_PASSES);
    for (_, pass) in passes.into_iter().take(old) {
        fs::remove_file(pass).ok();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_a_folder_for_passes_a_test_always_runs() {
        let test = SystemTest { pass: None };
        test.passed();
        assert!(workspace().join("Cargo.lock").is_file());
    }

    #[test]
    fn only_the_latest_passes_are_kept() {
        let dir = tempfile::tempdir().unwrap();
        for number in 0..KEPT_PASSES + 3 {
            let test = SystemTest { pass: Some(dir.path().join(number.to_string())) };
            test.passed();
        }
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), KEPT_PASSES);
        assert!(dir.path().join((KEPT_PASSES + 2).to_string()).exists());
    }

    #[test]
    fn test_names_become_file_names() {
        assert_eq!(file_name("gpuaas-systems::it a::b"), "gpuaas-systems--it-a--b");
    }
}
