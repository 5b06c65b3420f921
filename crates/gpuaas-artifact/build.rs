//! Puts the bundles of this repository into the crate, as a table of their files.

#![expect(clippy::disallowed_methods, reason = "cargo speaks to a build script through it")]

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::{env, fs, io};

fn main() -> io::Result<()> {
    let missing = |name: &str| io::Error::other(format!("cargo sets {name}"));
    let here = env::var("CARGO_MANIFEST_DIR").map_err(|_| missing("CARGO_MANIFEST_DIR"))?;
    let out = env::var("OUT_DIR").map_err(|_| missing("OUT_DIR"))?;
    let bundles = Path::new(&here).join("../../bundles").canonicalize()?;
    println!("cargo::rerun-if-changed={}", bundles.display());
    let mut table = String::from("&[\n");
    for folder in children(&bundles)? {
        if folder.join("bundle.yaml").is_file() {
            table.push_str("    &[\n");
            files(&folder, &folder, &mut table)?;
            table.push_str("    ],\n");
        }
    }
    table.push_str("]\n");
    fs::write(Path::new(&out).join("built_in.rs"), table)
}

fn children(folder: &Path) -> io::Result<Vec<PathBuf>> {
    let entries: io::Result<Vec<_>> =
        fs::read_dir(folder)?.map(|entry| entry.map(|entry| entry.path())).collect();
    let mut entries = entries?;
    entries.sort();
    Ok(entries)
}

/// A line for each file below `folder` that is not hidden.
fn files(bundle: &Path, folder: &Path, table: &mut String) -> io::Result<()> {
    for path in children(folder)? {
        if path.file_name().is_some_and(|name| name.to_string_lossy().starts_with('.')) {
            continue;
        }
        if path.is_dir() {
            files(bundle, &path, table)?;
        } else {
            let name = path.strip_prefix(bundle).map_err(io::Error::other)?;
            let line = format!("        ({:?}, include_bytes!({:?})),\n", name, path);
            table.write_str(&line).map_err(io::Error::other)?;
        }
    }
    Ok(())
}
