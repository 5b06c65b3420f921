//! Release executables: stripped, their debug information in a file beside them.
//!
//! Cargo can throw debug information away (`strip`) or put a part of it aside
//! (`split-debuginfo`), which leaves line tables and symbols in the executable. `objcopy` puts all
//! of it into `NAME.debug` and a link to that file into the executable (`.gnu_debuglink`), which
//! gdb and the backtraces of the standard library follow. The place of a panic needs neither.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::proc;

/// Section of a stripped executable that names its file of debug information.
const LINK: &str = ".gnu_debuglink";

/// Sizes of an executable, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Sizes {
    /// The executable, stripped.
    pub(crate) executable: u64,
    /// The file of debug information beside it.
    pub(crate) debug_info: u64,
}

/// Splits each executable and prints its sizes; says so where this machine has no objcopy.
///
/// # Errors
/// A sentence, where an executable cannot be read or written.
pub(crate) fn split_all(programs: &[PathBuf]) -> Result<(), String> {
    if proc::find("objcopy").is_none() {
        eprintln!("note: no objcopy (package binutils): executables keep their debug information");
        return Ok(());
    }
    for program in programs {
        let Sizes { executable, debug_info } = split(program)?;
        let mb = |bytes: u64| bytes.div_ceil(100_000) as f64 / 10.0;
        eprintln!(
            "{}: {:.1} MB, its debug information beside it: {:.1} MB",
            program.display(),
            mb(executable),
            mb(debug_info)
        );
    }
    Ok(())
}

/// Moves the debug information of `program` into `program.debug`. One that was split before is
/// left as it is.
///
/// # Errors
/// A sentence, where a file cannot be read or written, or objcopy refuses.
pub(crate) fn split(program: &Path) -> Result<Sizes, String> {
    let failed = |error: std::io::Error| format!("{}: {error}", program.display());
    let debug_file = beside(program, "debug");
    let bytes = fs::read(program).map_err(failed)?;
    let sections = sections(&bytes)
        .ok_or_else(|| format!("{} is no 64-bit ELF executable", program.display()))?;
    if !(sections.contains(&LINK) && debug_file.is_file()) {
        let stripped = beside(program, "stripped");
        objcopy(&["--only-keep-debug"], program, &debug_file)?;
        let link = format!("--add-gnu-debuglink={}", debug_file.display());
        objcopy(&["--strip-all", &link], program, &stripped)?;
        // Into the file that is there: cargo has a second name for it, and would put the other
        // one back when it next looks.
        fs::copy(&stripped, program).map_err(failed)?;
        fs::remove_file(&stripped).map_err(failed)?;
    }
    let size = |path: &Path| fs::metadata(path).map(|file| file.len()).map_err(failed);
    Ok(Sizes { executable: size(program)?, debug_info: size(&debug_file)? })
}

fn beside(program: &Path, extension: &str) -> PathBuf {
    let mut name = program.as_os_str().to_owned();
    name.push(".");
    name.push(extension);
    PathBuf::from(name)
}

fn objcopy(options: &[&str], from: &Path, to: &Path) -> Result<(), String> {
    proc::quiet(Command::new("objcopy").args(options).arg(from).arg(to)).map(drop)
}

/// Names of the sections of a 64-bit ELF file (elf(5)); none: it is no such file.
fn sections(elf: &[u8]) -> Option<Vec<&str>> {
    let number = |at: usize, width: usize| {
        let bytes = elf.get(at..at.checked_add(width)?)?;
        let value = bytes.iter().rev().fold(0u64, |sum, byte| sum << 8 | u64::from(*byte));
        usize::try_from(value).ok()
    };
    if elf.get(..5)? != b"\x7fELF\x02" {
        return None;
    }
    let (table, size) = (number(40, 8)?, number(58, 2)?);
    let (count, names) = (number(60, 2)?, number(62, 2)?);
    let header = |index: usize| table.checked_add(index.checked_mul(size)?);
    let texts = elf.get(number(header(names)? + 24, 8)?..)?;
    let name = |index| {
        let rest = texts.get(number(header(index)?, 4)?..)?;
        std::str::from_utf8(rest.split(|byte| *byte == 0).next()?).ok()
    };
    (0..count).map(name).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn debug_information_lies_beside_a_stripped_executable() {
        if ["objcopy", "cc"].iter().any(|tool| proc::find(tool).is_none()) {
            eprintln!("SKIPPED: there is no cc and objcopy");
            return;
        }
        let folder = std::env::temp_dir().join(format!("xtask-split-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        let (source, program) = (folder.join("main.c"), folder.join("main"));
        fs::write(&source, "int main(void) { return 7; }\n").unwrap();
        proc::quiet(Command::new("cc").arg("-g").arg("-o").arg(&program).arg(&source)).unwrap();
        let other_name = folder.join("second-name");
        fs::hard_link(&program, &other_name).unwrap();

        let sizes = split(&program).unwrap();
        assert_eq!(split(&program).unwrap(), sizes, "once is enough");
        let bytes = fs::read(&program).unwrap();
        assert_eq!(fs::read(&other_name).unwrap(), bytes);
        let names = sections(&bytes).unwrap();
        assert!(names.contains(&LINK) && names.contains(&".text"), "{names:?}");
        assert!(!names.iter().any(|name| name.starts_with(".debug_") || *name == ".symtab"));
        let debug = fs::read(folder.join("main.debug")).unwrap();
        assert!(sections(&debug).unwrap().contains(&".debug_line"));
        let ended = Command::new(&program).status().unwrap();
        assert_eq!(ended.code(), Some(7));
        if proc::find("gdb").is_some() {
            let mut gdb = Command::new("gdb");
            let said = proc::quiet(gdb.args(["-batch", "-ex", "info line main"]).arg(&program));
            assert!(said.unwrap().contains("Line 1 of \""), "gdb finds the line by the link");
        }
        fs::remove_dir_all(&folder).unwrap();
    }

    #[test]
    fn what_is_no_executable_is_told() {
        assert_eq!(sections(b"#!/bin/sh\n"), None);
        assert_eq!(sections(b"\x7fELF\x02 and then nothing"), None);
        assert!(split(Path::new("/no/such/program")).unwrap_err().contains("/no/such/program"));
    }
}
