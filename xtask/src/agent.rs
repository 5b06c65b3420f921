//! `cargo xtask agent`: the node agent as nodes get it.
//!
//! One static executable, so that it runs on any Linux host whatever libc that has. It is built for
//! the machine's own glibc with `crt-static`: the musl target is often not installed, and ring wants
//! a C compiler for it. A static executable cannot load NVML; the agent asks nvidia-smi where there
//! is one. Its target folder is its own, because other flags would rebuild everything else.

use std::fs::{self, File};
use std::io::Read as _;
use std::path::{Path, PathBuf};

use crate::debug_info;
use crate::metadata::{Depth, Workspace};
use crate::outcome::Outcome;
use crate::proc;

pub(crate) const HELP: &str = "\
Build the node agent as nodes get it: one static executable, and print where it is.

Usage: cargo xtask agent

Give it to a control plane with `gpuaas serve --agent-binary FILE`.";

const PACKAGE: &str = "gpuaas-node-agent";
const PROFILE: &str = "agent";
/// What it may weigh: every node fetches it at every deployment.
const MAX_BYTES: u64 = 10_000_000;

pub(crate) fn run(args: &[String]) -> Outcome {
    if let Some(unknown) = args.first() {
        return Err(format!("there is no argument `{unknown}`; see cargo xtask agent --help"));
    }
    let program = build(&Workspace::load(Depth::Own)?)?;
    println!("{}", program.display());
    Ok(std::process::ExitCode::SUCCESS)
}

/// Builds it and returns its path.
pub(crate) fn build(workspace: &Workspace) -> Result<PathBuf, String> {
    let target = format!("{}-unknown-linux-gnu", std::env::consts::ARCH);
    let folder = workspace.target.join("agent");
    let mut build = proc::cargo();
    build
        .args(["build", "--package", PACKAGE, "--profile", PROFILE, "--target", &target])
        .arg("--target-dir")
        .arg(&folder)
        .env("RUSTFLAGS", "-C target-feature=+crt-static")
        .current_dir(&workspace.root);
    let status = proc::status(&mut build)?;
    if !status.success() {
        return Err("the agent does not build; see above".to_owned());
    }
    let program = folder.join(target).join(PROFILE).join(PACKAGE);
    debug_info::split_all(std::slice::from_ref(&program))?;
    let bytes = fs::metadata(&program).map_err(|e| format!("{}: {e}", program.display()))?.len();
    if bytes > MAX_BYTES {
        return Err(format!("the agent has {bytes} bytes, and {MAX_BYTES} is the limit"));
    }
    if wants_an_interpreter(&program)? {
        return Err(format!("{} is not static", program.display()));
    }
    Ok(program)
}

/// Whether an ELF executable names a dynamic loader (elf(5), PT_INTERP).
fn wants_an_interpreter(program: &Path) -> Result<bool, String> {
    let mut bytes = Vec::new();
    File::open(program)
        .and_then(|file| file.take(4096).read_to_end(&mut bytes))
        .map_err(|error| format!("{}: {error}", program.display()))?;
    program_headers(&bytes)
        .map(|kinds| kinds.contains(&3))
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
        assert_eq!(wants_an_interpreter(&own), Ok(true));
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
}
