//! Static executables, without paths of this machine in them.
//!
//! They are built for the machine's own glibc with `crt-static`: the musl target is often not
//! installed, and its C compiler is another package. A static executable runs on any Linux host,
//! whatever libc it has. The target folder is separate, because these flags would rebuild all else.

use std::ffi::OsString;
use std::fs::File;
use std::io::Read as _;
use std::path::{Path, PathBuf};

use crate::debug_info;
use crate::metadata::Workspace;
use crate::proc;

/// Type of the program header that names a dynamic loader (elf(5)).
const PT_INTERP: u32 = 3;

/// Builds the executable `name` of `package` in `folder` below the target folder, strips it, and returns its path.
///
/// # Errors
/// It does not build, or is not static.
pub(crate) fn build(
    workspace: &Workspace,
    folder: &str,
    (package, name): (&str, &str),
    profile: &str,
) -> Result<PathBuf, String> {
    let target = format!("{}-unknown-linux-gnu", std::env::consts::ARCH);
    let folder = workspace.target.join(folder);
    let places = places(workspace);
    let mut build = proc::cargo();
    build
        .args(["build", "--package", package, "--profile", profile, "--target", &target])
        .arg("--target-dir")
        .arg(&folder)
        .env("CARGO_ENCODED_RUSTFLAGS", rust_flags(&places))
        .env("CFLAGS", c_flags(&places))
        .current_dir(&workspace.root);
    let status = proc::status(&mut build)?;
    if !status.success() {
        return Err(format!("{package} does not build; see above"));
    }
    // Cargo's folder of the profile `dev` has another name.
    let profile = if profile == "dev" { "debug" } else { profile };
    let program = folder.join(target).join(profile).join(name);
    debug_info::split_all(std::slice::from_ref(&program))?;
    if is_dynamic(&program)? {
        return Err(format!("{} is not static", program.display()));
    }
    Ok(program)
}

/// Folders of this machine, and the names that they get in the executables: two checkouts give the
/// same bytes.
fn places(workspace: &Workspace) -> [(PathBuf, &'static str); 2] {
    let home = std::env::home_dir().unwrap_or_default();
    let cargo = proc::env("CARGO_HOME").map_or_else(|| home.join(".cargo"), PathBuf::from);
    [(workspace.root.clone(), "/usr/src/gpuaas"), (cargo, "/usr/src/cargo")]
}

/// Separated by the character that cargo takes for it, so that a path may have spaces.
fn rust_flags(places: &[(PathBuf, &str)]) -> OsString {
    let mut flags = OsString::from("-Ctarget-feature=+crt-static");
    for (path, name) in places {
        flags.push("\x1f--remap-path-prefix=");
        flags.push(path);
        flags.push(format!("={name}"));
    }
    flags
}

fn c_flags(places: &[(PathBuf, &str)]) -> OsString {
    let mut flags = proc::env("CFLAGS").unwrap_or_default();
    for (path, name) in places {
        if !flags.is_empty() {
            flags.push(" ");
        }
        flags.push("-ffile-prefix-map=");
        flags.push(path);
        flags.push(format!("={name}"));
    }
    flags
}

/// Whether an ELF executable names a dynamic loader.
///
/// # Errors
/// The file cannot be read, or is no executable.
pub(crate) fn is_dynamic(program: &Path) -> Result<bool, String> {
    let mut bytes = Vec::new();
    File::open(program)
        .and_then(|file| file.take(4096).read_to_end(&mut bytes))
        .map_err(|error| format!("{}: {error}", program.display()))?;
    program_headers(&bytes)
        .map(|kinds| kinds.contains(&PT_INTERP))
        .ok_or_else(|| format!("{} is no 64-bit ELF executable", program.display()))
}

fn program_headers(elf: &[u8]) -> Option<Vec<u32>> {
    let short = |at: usize| Some(u16::from_le_bytes(elf.get(at..at + 2)?.try_into().ok()?));
    let word = |at: usize| Some(u32::from_le_bytes(elf.get(at..at + 4)?.try_into().ok()?));
    if elf.get(..5)? != b"\x7fELF\x02" {
        return None;
    }
    let begin = usize::try_from(u64::from_le_bytes(elf.get(32..40)?.try_into().ok()?)).ok()?;
    let (size, count) = (usize::from(short(54)?), usize::from(short(56)?));
    (0..count).map(|index| word(begin + index * size)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_dynamic_program_is_known_by_its_headers() {
        // This test is one: it runs with the machine's loader.
        let own = std::env::current_exe().unwrap();
        assert_eq!(is_dynamic(&own), Ok(true));
        assert_eq!(program_headers(b"#!/bin/sh\n"), None);
        let mut elf = vec![0; 64 + 2 * 56];
        elf[..5].copy_from_slice(b"\x7fELF\x02");
        elf[32] = 64;
        elf[54] = 56;
        elf[56] = 2;
        elf[64] = 1;
        elf[64 + 56] = 6;
        assert_eq!(program_headers(&elf), Some(vec![1, 6]));
    }

    #[test]
    fn folders_of_this_machine_get_other_names() {
        let places = [(PathBuf::from("/home/me/a b"), "/usr/src/gpuaas")];
        assert_eq!(
            rust_flags(&places),
            "-Ctarget-feature=+crt-static\x1f--remap-path-prefix=/home/me/a b=/usr/src/gpuaas"
        );
    }
}
