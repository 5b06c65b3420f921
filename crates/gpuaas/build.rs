//! Puts the commit that a release is built of beside its version.
//!
//! Only for optimised builds: a build of every day would be made again after each commit.

#![expect(clippy::disallowed_methods, reason = "cargo speaks to a build script through it")]

use std::path::Path;

mod build_commit;

fn main() {
    let version = std::env::var("CARGO_PKG_VERSION").unwrap_or_default();
    let optimised = std::env::var("PROFILE").is_ok_and(|profile| profile == "release");
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-changed=build_commit.rs");
    let here = Path::new(".");
    let commit = if optimised { build_commit::commit(here) } else { None };
    if optimised {
        for path in build_commit::watched(here) {
            println!("cargo::rerun-if-changed={}", path.display());
        }
    }
    let text = commit.map_or_else(|| version.clone(), |commit| format!("{version} ({commit})"));
    println!("cargo::rustc-env=GPUAAS_VERSION={text}");
}
