//! Puts the commit that a release is built of beside its version.
//!
//! Only for optimised builds: a build of every day would be made again after each commit.

#![expect(clippy::disallowed_methods, reason = "cargo speaks to a build script through it")]

use std::process::Command;

fn main() {
    let version = std::env::var("CARGO_PKG_VERSION").unwrap_or_default();
    let optimised = std::env::var("PROFILE").is_ok_and(|profile| profile == "release");
    println!("cargo::rerun-if-changed=build.rs");
    let commit = if optimised { commit() } else { None };
    let text = commit.map_or_else(|| version.clone(), |commit| format!("{version} ({commit})"));
    println!("cargo::rustc-env=GPUAAS_VERSION={text}");
}

/// The short commit, with a `+` where files differ from it; none outside of a repository.
fn commit() -> Option<String> {
    for path in ["../../.git/HEAD", "../../.git/index"] {
        println!("cargo::rerun-if-changed={path}");
    }
    let git = Command::new("git").args(["describe", "--always", "--dirty=+"]).output().ok()?;
    let text = String::from_utf8(git.stdout).ok()?;
    let commit = text.trim();
    (git.status.success() && !commit.is_empty()).then(|| commit.to_owned())
}
