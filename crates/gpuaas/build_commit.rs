//! The commit that a folder of sources is at. The build script has it, and a test.

use std::path::{Path, PathBuf};
use std::process::Command;

/// The short commit, with a `+` where files differ from it; none outside of a repository.
pub(crate) fn commit(folder: &Path) -> Option<String> {
    git(folder, &["describe", "--always", "--dirty=+"])
}

/// Files that change with the commit. In a worktree they lie elsewhere than in a clone.
pub(crate) fn watched(folder: &Path) -> Vec<PathBuf> {
    let paths = ["HEAD", "index"].map(|name| git(folder, &["rev-parse", "--git-path", name]));
    paths.into_iter().flatten().map(|path| folder.join(path)).collect()
}

fn git(folder: &Path, args: &[&str]) -> Option<String> {
    let output = Command::new("git").args(args).current_dir(folder).output().ok()?;
    let text = String::from_utf8(output.stdout).ok()?;
    let text = text.trim();
    (output.status.success() && !text.is_empty()).then(|| text.to_owned())
}
