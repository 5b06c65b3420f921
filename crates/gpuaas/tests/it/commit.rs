//! The commit that `gpuaas --version` names in a release.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use std::path::Path;
use std::process::Command;

#[path = "../../build_commit.rs"]
mod build_commit;

fn git(folder: &Path, line: &str) -> String {
    let mut git = Command::new("git");
    git.args(["-c", "user.name=ann", "-c", "user.email=ann@example.org"]);
    let output = git.args(line.split(' ')).current_dir(folder).output().unwrap();
    assert!(output.status.success(), "git {line}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap().trim().to_owned()
}

#[test]
fn a_clone_and_a_worktree_name_their_commit_and_what_differs() {
    let dir = tempfile::tempdir().unwrap();
    assert_eq!(build_commit::commit(dir.path()), None, "no repository");
    let clone = dir.path().join("clone");
    std::fs::create_dir(&clone).unwrap();
    git(&clone, "init --quiet");
    std::fs::write(clone.join("file"), "one").unwrap();
    git(&clone, "add file");
    git(&clone, "commit --quiet -m one");
    git(&clone, "worktree add --quiet ../beside");
    let short = git(&clone, "rev-parse --short HEAD");
    for folder in [&clone, &dir.path().join("beside")] {
        assert_eq!(build_commit::commit(folder).as_ref(), Some(&short));
        let watched = build_commit::watched(folder);
        assert_eq!(watched.len(), 2);
        assert!(watched.iter().all(|path| path.is_file()), "{watched:?}");
    }
    std::fs::write(clone.join("file"), "two").unwrap();
    assert_eq!(build_commit::commit(&clone), Some(format!("{short}+")));
}

#[test]
fn the_version_begins_with_the_packages() {
    let output = Command::new(env!("CARGO_BIN_EXE_gpuaas")).arg("--version").output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(said.starts_with(concat!("gpuaas ", env!("CARGO_PKG_VERSION"))), "{said}");
}
