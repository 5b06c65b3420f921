//! Compiled third-party crates, shared by every checkout of this machine.
//!
//! A fresh clone compiles some 350 crates that no change of ours touches. What cargo made of them is
//! kept in `~/.cache/gpuaas/third-party/COMPILER`, and placed into a target folder that has none of
//! it yet. Cargo's own fingerprints decide what of it counts: a crate of another version, with other
//! features or another compiler is compiled as without the cache. The workspace's own crates are
//! never kept.

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::metadata::Workspace;
use crate::proc;

/// Profiles whose third-party crates are shared: tests and tools, and the laboratory.
const PROFILES: [&str; 2] = ["debug", "lab"];
/// What cargo keeps below a profile's folder.
const PARTS: [&str; 3] = [".fingerprint", "build", "deps"];
/// Switches the cache off when set to 0.
const SWITCH: &str = "GPUAAS_SHARE_THIRD_PARTY";

/// Places what other checkouts compiled. Does nothing where the target folder has third-party crates
/// already, or nothing is kept; a failure costs time and nothing else, so it is a note.
pub(crate) fn restore(workspace: &Workspace) {
    let Some(kept) = folder(workspace).filter(|folder| folder.is_dir()) else { return };
    for profile in PROFILES {
        let (from, to) = (kept.join(profile), workspace.target.join(profile));
        if !from.is_dir() || has_marker(&to) {
            continue;
        }
        let placed = PARTS.iter().try_for_each(|part| link_tree(&from.join(part), &to.join(part)));
        match placed.and_then(|()| fs::write(to.join(MARKER), "")) {
            Ok(()) => {
                eprintln!("note: third-party crates ({profile}) come from {}", from.display())
            }
            Err(error) => eprintln!("note: third-party crates are compiled: {error}"),
        }
    }
}

/// Keeps what this checkout compiled, in the place of what was kept before.
pub(crate) fn save(workspace: &Workspace) {
    let Some(kept) = folder(workspace) else { return };
    let own: BTreeSet<String> = workspace.crates.iter().flat_map(own_names).collect();
    for profile in PROFILES {
        let (from, to) = (workspace.target.join(profile), kept.join(profile));
        if !from.join("deps").is_dir() || is_as_kept(&from, &to, &own) {
            continue;
        }
        let new = kept.join(format!("{profile}.new-{}", std::process::id()));
        let saved = PARTS
            .iter()
            .try_for_each(|part| save_part(&from.join(part), &new.join(part), &own))
            .and_then(|()| swap(&new, &to));
        if let Err(error) = saved {
            fs::remove_dir_all(&new).ok();
            eprintln!("note: third-party crates are not kept: {error}");
        }
    }
}

/// In a target folder: what was kept is placed there, or was compiled there.
const MARKER: &str = ".third-party-placed";

fn has_marker(profile: &Path) -> bool {
    profile.join(MARKER).exists()
}

/// One folder for each compiler: its crates are of no use to another.
fn folder(workspace: &Workspace) -> Option<PathBuf> {
    if proc::env(SWITCH).is_some_and(|value| value == "0") {
        return None;
    }
    let mut rustc = Command::new(proc::env("RUSTC").unwrap_or_else(|| "rustc".into()));
    let version = proc::quiet(rustc.arg("-vV").current_dir(&workspace.root)).ok()?;
    let field = |name: &str| {
        version
            .lines()
            .find_map(|line| line.strip_prefix(name))
            .map(|value| value.trim().to_owned())
    };
    let (release, commit) = (field("release:")?, field("commit-hash:")?);
    let commit: String = commit.chars().take(9).collect();
    let home = std::env::home_dir()?;
    Some(home.join(".cache/gpuaas/third-party").join(format!("{release}-{commit}")))
}

/// The names of a crate of ours in cargo's files.
fn own_names(krate: &crate::metadata::Crate) -> [String; 2] {
    [krate.name.clone(), krate.name.replace('-', "_")]
}

/// Name of the crate that a file or a folder of cargo belongs to: `libserde-0123456789abcdef.rlib`,
/// `serde-0123456789abcdef`, `serde-0123456789abcdef.d`.
fn crate_of(file: &str) -> Option<&str> {
    let stem = file.split('.').next()?;
    let (name, hash) = stem.rsplit_once('-')?;
    let is_hash = hash.len() == 16 && hash.bytes().all(|byte| byte.is_ascii_hexdigit());
    is_hash.then_some(name)
}

/// Tests and executables of the workspace have names of their own, so only names that a fingerprint
/// of a third-party crate vouches for are kept.
fn is_third_party(file: &str, own: &BTreeSet<String>) -> bool {
    let Some(name) = crate_of(file) else { return false };
    let library = name.strip_prefix("lib").unwrap_or(name);
    !own.contains(name) && !own.contains(library) && name != "it"
}

/// Whether the kept folder has the fingerprints of all third-party crates of this one.
fn is_as_kept(from: &Path, to: &Path, own: &BTreeSet<String>) -> bool {
    let names = |profile: &Path| -> BTreeSet<String> {
        let entries = fs::read_dir(profile.join(".fingerprint")).into_iter().flatten().flatten();
        let names = entries.filter_map(|entry| entry.file_name().into_string().ok());
        names.filter(|name| is_third_party(name, own)).collect()
    };
    names(from).is_subset(&names(to))
}

fn save_part(from: &Path, to: &Path, own: &BTreeSet<String>) -> io::Result<()> {
    fs::create_dir_all(to)?;
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        if entry.file_name().to_str().is_some_and(|name| is_third_party(name, own)) {
            link_tree(&entry.path(), &to.join(entry.file_name()))?;
        }
    }
    Ok(())
}

fn swap(new: &Path, to: &Path) -> io::Result<()> {
    if to.exists() {
        let old = to.with_extension(format!("old-{}", std::process::id()));
        fs::rename(to, &old)?;
        fs::rename(new, to)?;
        return fs::remove_dir_all(old);
    }
    fs::rename(new, to)
}

/// Links the files below `from` at the same places below `to`, and leaves what is there. A file that
/// cannot be linked, as on another file system, is copied. Times stay: cargo compares them.
fn link_tree(from: &Path, to: &Path) -> io::Result<()> {
    let metadata = fs::symlink_metadata(from)?;
    if metadata.is_dir() {
        fs::create_dir_all(to)?;
        for entry in fs::read_dir(from)? {
            let entry = entry?;
            link_tree(&entry.path(), &to.join(entry.file_name()))?;
        }
        return Ok(());
    }
    if to.exists() {
        return Ok(());
    }
    // Compilers place their output by renaming, which leaves other links alone. Build scripts and
    // cargo itself write into files that are there, so those are copies.
    let is_output =
        from.extension().is_some_and(|end| end == "rlib" || end == "rmeta" || end == "so");
    if is_output && fs::hard_link(from, to).is_ok() {
        return Ok(());
    }
    fs::copy(from, to)?;
    let times = fs::FileTimes::new().set_modified(metadata.modified()?);
    fs::File::options()
        .append(true)
        .open(to)
        .and_then(|file| file.set_times(times))
        .or_else(|_| fs::File::open(to).and_then(|file| file.set_times(times)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn own() -> BTreeSet<String> {
        ["gpuaas", "gpuaas-core", "gpuaas_core"].map(str::to_owned).into()
    }

    #[test]
    fn files_of_our_own_crates_are_never_kept() {
        let own = own();
        for third in
            ["libserde-0123456789abcdef.rlib", "ring-0123456789abcdef", "serde-0123456789abcdef.d"]
        {
            assert!(is_third_party(third, &own), "{third}");
        }
        for ours in [
            "libgpuaas_core-0123456789abcdef.rlib",
            "gpuaas-core-0123456789abcdef",
            "gpuaas-0123456789abcdef",
            "it-0123456789abcdef",
            "gpuaas",
            "serde.d",
        ] {
            assert!(!is_third_party(ours, &own), "{ours}");
        }
    }

    #[test]
    fn what_is_kept_is_placed_with_its_times() {
        let dir = tempfile::tempdir().unwrap();
        let path = |name: &str| dir.path().join(name);
        for (part, name) in [
            ("deps", "libserde-0123456789abcdef.rlib"),
            (".fingerprint/serde-0123456789abcdef", "lib"),
        ] {
            fs::create_dir_all(path("from").join(part)).unwrap();
            fs::write(path("from").join(part).join(name), "x").unwrap();
        }
        fs::write(path("from/deps/libgpuaas_core-0123456789abcdef.rlib"), "x").unwrap();
        fs::create_dir_all(path("from/build")).unwrap();
        for part in PARTS {
            save_part(&path("from").join(part), &path("kept").join(part), &own()).unwrap();
        }
        assert!(is_as_kept(&path("from"), &path("kept"), &own()));
        assert!(!path("kept/deps/libgpuaas_core-0123456789abcdef.rlib").exists());
        link_tree(&path("kept"), &path("to")).unwrap();
        let time = |name: &str| {
            fs::metadata(path(name).join(".fingerprint/serde-0123456789abcdef/lib"))
                .unwrap()
                .modified()
                .unwrap()
        };
        assert_eq!(time("from"), time("to"));
        swap(&path("to"), &path("kept")).unwrap();
        assert!(path("kept/deps").is_dir() && !path("to").exists());
    }
}
