//! The crates in an executable, and the list of them that it carries.
//!
//! The list has the public format of cargo-auditable: compressed JSON in the section `.dep-v0`, which
//! `cargo audit bin` and other scanners read. `cargo metadata`, which cargo-auditable asks, resolves the
//! features of the whole workspace with its tests; `cargo tree` resolves those of the build
//! (docs/adr/0057-packages.md).

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;
use std::process::Command;

use serde::{Deserialize, Serialize};

use super::stage;
use crate::proc;

/// Section of the executable.
const SECTION: &str = ".dep-v0";
/// Compresses the first file to the second one, as RFC 1950 has it.
const DEFLATE: &str = "import sys, zlib; [_, a, b] = sys.argv; \
                       open(b, 'wb').write(zlib.compress(open(a, 'rb').read(), 9))";

/// The crates of one executable, sorted by name and version.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Dependencies {
    pub(super) packages: Vec<Crate>,
    /// 1: procedural macros and what they need count as `build`.
    format: u32,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Crate {
    pub(super) name: String,
    pub(super) version: String,
    /// `crates.io`, `git` or `local`.
    pub(super) source: String,
    #[serde(default, skip_serializing_if = "Kind::is_runtime")]
    pub(super) kind: Kind,
    /// Places in the list.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(super) dependencies: Vec<usize>,
    /// The executable's own crate.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(super) root: bool,
    /// SPDX expression. Not in the embedded list.
    #[serde(skip)]
    pub(super) license: String,
}

/// Whether a crate's code is in the executable, or only ran to build it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Kind {
    #[default]
    Runtime,
    Build,
}

impl Kind {
    fn is_runtime(&self) -> bool {
        *self == Self::Runtime
    }
}

impl Dependencies {
    /// Asks cargo which crates it builds for the executable `package`.
    ///
    /// # Errors
    /// What cargo said, or its answer has another form.
    pub(super) fn resolve(root: &Path, package: &str) -> Result<Self, String> {
        let target = format!("{}-unknown-linux-gnu", std::env::consts::ARCH);
        let tree = |edges: &str| {
            let mut cargo = proc::cargo();
            cargo.args(["tree", "--locked", "--quiet", "--package", package, "--edges", edges]);
            cargo.args(["--target", &target, "--prefix", "depth", "--format", " {p}|{l}"]);
            proc::quiet(cargo.current_dir(root))
        };
        Self::parse(&tree("normal,build")?, &tree("normal,no-proc-macro")?)
    }

    /// `all` is the tree of what is built, `runtime` the tree of what is in the executable.
    fn parse(all: &str, runtime: &str) -> Result<Self, String> {
        let (all, runtime) = (Graph::parse(all)?, Graph::parse(runtime)?);
        let place: BTreeMap<&Key, usize> =
            all.needs.keys().enumerate().map(|(place, key)| (key, place)).collect();
        let packages = all.needs.iter().map(|(key, needs)| {
            let kind = if runtime.needs.contains_key(key) { Kind::Runtime } else { Kind::Build };
            Crate {
                name: key.name.clone(),
                version: key.version.clone(),
                source: key.source.to_owned(),
                kind,
                dependencies: needs.iter().filter_map(|need| place.get(need).copied()).collect(),
                root: all.root.as_ref() == Some(key),
                license: all.licenses.get(key).cloned().unwrap_or_default(),
            }
        });
        Ok(Self { packages: packages.collect(), format: 1 })
    }

    /// Adds the list to `program`. Files for that are written below `folder`.
    ///
    /// # Errors
    /// What objcopy or python3 said.
    pub(super) fn embed(&self, program: &Path, folder: &Path) -> Result<(), String> {
        let [plain, packed, with] =
            ["list.json", "list.zlib", "with-list"].map(|name| folder.join(name));
        let json = serde_json::to_string(self).map_err(|error| error.to_string())?;
        fs::write(&plain, json).map_err(|error| format!("{}: {error}", plain.display()))?;
        proc::quiet(Command::new("python3").args(["-c", DEFLATE]).args([&plain, &packed]))?;
        let mut objcopy = Command::new("objcopy");
        // An executable of cargo-auditable has a list already.
        objcopy.arg(format!("--remove-section={SECTION}"));
        objcopy.arg(format!("--add-section={SECTION}={}", packed.display()));
        proc::quiet(objcopy.args([program, &with]))?;
        stage::copy(&with, program)?;
        for file in [plain, packed, with] {
            fs::remove_file(&file).map_err(|error| format!("{}: {error}", file.display()))?;
        }
        Ok(())
    }
}

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Key {
    name: String,
    version: String,
    source: &'static str,
}

/// What `cargo tree` prints, a line for each crate: its depth, name, version, origin and licence.
#[derive(Default)]
struct Graph {
    root: Option<Key>,
    needs: BTreeMap<Key, BTreeSet<Key>>,
    licenses: BTreeMap<Key, String>,
}

impl Graph {
    fn parse(text: &str) -> Result<Self, String> {
        let mut graph = Self::default();
        let mut above: Vec<Key> = Vec::new();
        for line in text.lines() {
            let wrong = || format!("cargo tree answers in another form: {line}");
            let (depth, rest) = line.split_once(' ').ok_or_else(wrong)?;
            let depth: usize = depth.parse().map_err(|_| wrong())?;
            let (package, license) = rest.split_once('|').ok_or_else(wrong)?;
            let key = key(package).ok_or_else(wrong)?;
            above.truncate(depth);
            match above.last() {
                Some(parent) => {
                    graph.needs.entry(parent.clone()).or_default().insert(key.clone());
                }
                None => graph.root = Some(key.clone()),
            }
            graph.needs.entry(key.clone()).or_default();
            // `(*)`: what it needs was printed before.
            let license = license.trim_end_matches("(*)").trim().replace('/', " OR ");
            graph.licenses.insert(key.clone(), license);
            above.push(key);
        }
        Ok(graph)
    }
}

/// `NAME vVERSION`, then `(proc-macro)` and the origin unless it is crates.io.
fn key(package: &str) -> Option<Key> {
    let (name, rest) = package.split_once(" v")?;
    let (version, notes) = rest.split_once(' ').unwrap_or((rest, ""));
    let origin = notes.replace("(proc-macro)", "");
    let source = match origin.trim() {
        "" => "crates.io",
        path if path.starts_with("(/") => "local",
        url if url.starts_with("(http") => "git",
        _ => return None,
    };
    Some(Key { name: name.to_owned(), version: version.to_owned(), source })
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    const INFLATE: &str = "import sys, zlib; \
                           print(zlib.decompress(open(sys.argv[1], 'rb').read()).decode())";

    /// The list that `program` carries.
    pub(in crate::dist) fn embedded(program: &Path, folder: &Path) -> Dependencies {
        let [section, other] = ["section", "other"].map(|name| folder.join(name));
        let mut objcopy = Command::new("objcopy");
        objcopy.arg(format!("--dump-section={SECTION}={}", section.display()));
        proc::quiet(objcopy.args([program, &other])).unwrap();
        let json = proc::quiet(Command::new("python3").args(["-c", INFLATE]).arg(&section));
        serde_json::from_str(&json.unwrap()).unwrap()
    }

    #[test]
    fn build_dependencies_are_told_from_those_in_the_executable() {
        let all = "0 own v0.1.0 (/x/own)|Apache-2.0\n1 macro v1.0.0 (proc-macro)|MIT/Apache-2.0\n\
                   2 shared v2.0.0|MIT\n1 shared v2.0.0|MIT\n2 leaf v0.3.0|MIT\n\
                   1 cc v1.2.0 (https://example.org/cc?rev=1#1)|MIT (*)\n";
        let runtime = "0 own v0.1.0 (/x/own)|\n1 shared v2.0.0|\n2 leaf v0.3.0|\n";
        let list = Dependencies::parse(all, runtime).unwrap();
        let rows = list.packages.iter().map(|one| {
            let Crate { name, source, kind, dependencies, .. } = one;
            format!("{name} {source} {kind:?} {dependencies:?} {}", one.license)
        });
        assert_eq!(
            rows.collect::<Vec<_>>(),
            [
                "cc git Build [] MIT",
                "leaf crates.io Runtime [] MIT",
                "macro crates.io Build [4] MIT OR Apache-2.0",
                "own local Runtime [0, 2, 4] Apache-2.0",
                "shared crates.io Runtime [1] MIT",
            ]
        );
        assert!(list.packages[3].root);
        Dependencies::parse("0 own v1 (elsewhere)|MIT\n", "").unwrap_err();
    }

    /// The tests' features bring the simulator and other databases; the product has neither.
    #[test]
    fn the_control_plane_lists_what_is_built_and_not_what_its_tests_have() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
        let list = Dependencies::resolve(root, "gpuaas").unwrap();
        let has = |name: &str| list.packages.iter().any(|one| one.name == name);
        assert!(has("tokio") && has("rusqlite") && has("gpuaas-engine"));
        assert!(!has("maas-sim") && !has("gpuaas-simulation") && !has("sqlx-mysql"));
        assert!(list.packages.iter().all(|one| !one.license.is_empty()));
    }
}
