//! The Debian package of a tree (deb(5)).

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::path::Path;
use std::process::Command;

use super::contents::Package;
use super::source::Source;
use super::stage::{self, Content, Entry};
use crate::{proc, static_build};

const SCRIPTS: [&str; 3] = ["postinst", "prerm", "postrm"];
/// Shared library to the package that has it.
const LIBRARIES: [(&str, &str); 6] = [
    ("libc.so.6", "libc6"),
    ("libm.so.6", "libc6"),
    ("libpthread.so.0", "libc6"),
    ("libdl.so.2", "libc6"),
    ("ld-linux-x86-64.so.2", "libc6"),
    ("libgcc_s.so.1", "libgcc-s1"),
];
/// Nobody reads mail for it; Debian wants an address.
const MAINTAINER: &str = "GPUaaS maintainers <maintainers@gpuaas.invalid>";

/// Version of a library; (0, 0): any.
type LibraryVersion = (u32, u32);

/// Adds the control files to `tree` and packs it as `file`.
///
/// # Errors
/// A file cannot be written, an executable needs an unknown library, or what dpkg-deb said.
pub(super) fn build(
    package: &Package,
    source: &Source,
    tree: &Path,
    file: &Path,
    quick: bool,
) -> Result<(), String> {
    let mut control = vec![
        Entry::text("DEBIAN/control", control(package, source, tree)?),
        Entry::text("DEBIAN/md5sums", md5sums(package, tree)?),
    ];
    // The laboratory has none.
    let scripts = SCRIPTS.into_iter().filter(|name| package.scripts.join(name).is_file());
    control.extend(
        scripts
            .map(|name| Entry::copy(format!("DEBIAN/{name}"), 0o755, package.scripts.join(name))),
    );
    let conffiles = conffiles(package);
    if !conffiles.is_empty() {
        control.push(Entry::text("DEBIAN/conffiles", conffiles));
    }
    stage::write(tree, &control)?;
    let compression = if quick { ["-Zgzip", "-z1"] } else { ["-Zxz", "-z6"] };
    let mut pack = Command::new("dpkg-deb");
    // With more threads xz writes other bytes.
    pack.args(["--root-owner-group", "--threads-max=1"])
        .args(compression)
        .arg("--build")
        .args([tree, file])
        .env("SOURCE_DATE_EPOCH", source.seconds.to_string());
    proc::quiet(&mut pack).map(drop)
}

fn control(package: &Package, source: &Source, tree: &Path) -> Result<String, String> {
    let mut depends: Vec<String> = package.depends.clone();
    depends.extend(libraries(package)?);
    let mut text = format!(
        "Package: {}\nVersion: {}\nArchitecture: {}\nMaintainer: {MAINTAINER}\nSection: admin\n\
         Priority: optional\nInstalled-Size: {}\n",
        package.name,
        source.version,
        source.architecture,
        installed_kib(package, tree)?,
    );
    let depends = depends.join(", ");
    let own = [("Depends", depends.as_str())];
    let fields = own.iter().chain(package.fields).filter(|(_, value)| !value.is_empty());
    for (name, value) in fields {
        // Writing to a String cannot fail.
        writeln!(text, "{name}: {value}").ok();
    }
    writeln!(text, "Description: {}", package.summary).ok();
    for line in package.description.lines() {
        writeln!(text, " {line}").ok();
    }
    Ok(text)
}

/// Size of the files in KiB, as deb-substvars(5) counts it.
fn installed_kib(package: &Package, tree: &Path) -> Result<u64, String> {
    let mut kib = 0;
    for entry in &package.entries {
        let path = tree.join(&entry.path);
        let file = fs::symlink_metadata(&path);
        let file = file.map_err(|error| format!("{}: {error}", path.display()))?;
        kib += file.len().div_ceil(1024);
    }
    Ok(kib)
}

/// Sums of the files, which `dpkg --verify` compares.
fn md5sums(package: &Package, tree: &Path) -> Result<String, String> {
    let files = package.entries.iter();
    let files = files.filter(|entry| !matches!(entry.content, Content::Link(_)));
    // Sums of configuration are dpkg's own matter.
    let mut files: Vec<&str> = files.map(|entry| entry.path.as_str()).collect();
    files.retain(|path| !path.starts_with("etc/"));
    files.sort_unstable();
    proc::quiet(Command::new("md5sum").arg("--").args(files).current_dir(tree))
}

fn conffiles(package: &Package) -> String {
    let files = package.entries.iter().filter(|entry| entry.path.starts_with("etc/"));
    files.map(|entry| format!("/{}\n", entry.path)).collect()
}

/// Packages of the libraries that executables load; none for static ones.
fn libraries(package: &Package) -> Result<Vec<String>, String> {
    let mut versions: BTreeMap<&str, LibraryVersion> = BTreeMap::new();
    for program in &package.programs {
        if !static_build::is_dynamic(program)? {
            continue;
        }
        let said = proc::quiet(Command::new("objdump").arg("-p").arg(program))?;
        for (name, version) in needed(&said)? {
            let newest = versions.entry(name).or_default();
            *newest = version.max(*newest);
        }
    }
    let relation = |(name, (major, minor)): (&str, LibraryVersion)| match (major, minor) {
        (0, 0) => name.to_owned(),
        _ => format!("{name} (>= {major}.{minor})"),
    };
    Ok(versions.into_iter().map(relation).collect())
}

/// Packages that `objdump -p` names, and the newest version of glibc that each symbol needs.
fn needed(said: &str) -> Result<Vec<(&'static str, LibraryVersion)>, String> {
    let mut found = Vec::new();
    for line in said.lines() {
        let line = line.trim();
        if let Some(library) = line.strip_prefix("NEEDED") {
            let library = library.trim();
            let known = LIBRARIES.iter().find(|(name, _)| *name == library);
            let (_, package) =
                known.ok_or_else(|| format!("no package is known for the library {library}"))?;
            found.push((*package, (0, 0)));
        } else if let Some((_, version)) = line.rsplit_once(" GLIBC_") {
            let mut numbers = version.split('.').map(|number| number.parse().unwrap_or(0));
            let version = (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0));
            found.push(("libc6", version));
        }
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn needed_libraries_become_packages_with_the_newest_version() {
        let said = "\
  NEEDED               libgcc_s.so.1
  NEEDED               libc.so.6
Version References:
  required from libgcc_s.so.1:
    0x0b792650 0x00 05 GCC_3.0
  required from libc.so.6:
    0x069691b4 0x00 10 GLIBC_2.34
    0x09691a75 0x00 02 GLIBC_2.2.5
";
        let found = needed(said).unwrap();
        assert_eq!(found.iter().max_by_key(|(_, version)| *version), Some(&("libc6", (2, 34))));
        assert!(found.contains(&("libgcc-s1", (0, 0))));
        assert!(needed("  NEEDED  libssl.so.3\n").unwrap_err().contains("libssl.so.3"));
    }
}
