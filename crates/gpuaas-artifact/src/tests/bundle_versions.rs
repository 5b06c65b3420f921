//! A version of a bundle that is built in has one content.
//!
//! Nodes pin a bundle by its name and version, and a control plane that is updated keeps what it has:
//! other content under the same version would be two bundles of one name. `bundles/versions.txt` has
//! each version's digest, as `gpuaas bundle build` prints it.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use gpuaas_types::built_in_bundle::BUILT_IN_BUNDLES;

use crate::{CheckedBundle, built_in_archives};

const WRITE: &str = "cargo test -p gpuaas-artifact bundle_versions -- --ignored";
const HEAD: &str = "# name@version digest: what each version of a bundle in this repository is. Versions are\n\
                    # added and never changed.\n";

fn file() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../bundles/versions.txt")
}

/// `name@version` to digest, as the file has it.
fn written() -> BTreeMap<String, String> {
    let text = fs::read_to_string(file()).unwrap_or_default();
    let lines = text.lines().filter(|line| !line.starts_with('#'));
    lines
        .map(|line| line.split_once(' ').unwrap())
        .map(|(bundle, digest)| (bundle.to_owned(), digest.to_owned()))
        .collect()
}

/// The same, as it is built in.
fn built() -> BTreeMap<String, String> {
    let archives = built_in_archives().unwrap();
    let bundles = archives.iter().map(|archive| CheckedBundle::read(archive).unwrap());
    bundles.map(|bundle| (bundle.reference(), bundle.digest.to_string())).collect()
}

/// The file with what is new; refuses to give a version another content.
fn with_new(
    mut known: BTreeMap<String, String>,
    built: BTreeMap<String, String>,
) -> Result<BTreeMap<String, String>, String> {
    for (bundle, digest) in built {
        match known.get(&bundle) {
            Some(first) if *first != digest => {
                return Err(format!(
                    "{bundle} has another content than when it was written down ({digest}, not \
                     {first}): raise `version` in its bundle.yaml, in built_in_bundle.rs and in `requires`, then {WRITE}"
                ));
            }
            _ => known.insert(bundle, digest),
        };
    }
    Ok(known)
}

#[test]
fn a_version_keeps_its_content() {
    let known = written();
    let wanted = with_new(known.clone(), built()).unwrap_or_else(|why| panic!("{why}"));
    assert!(known == wanted, "bundles/versions.txt lacks a version; write it with: {WRITE}");
}

/// Presets, help and tests take a version from there.
#[test]
fn the_table_for_code_has_each_version() {
    let built: Vec<String> = built().into_keys().collect();
    assert_eq!(built, BUILT_IN_BUNDLES, "crates/gpuaas-types/src/built_in_bundle.rs");
}

#[test]
fn other_content_under_a_known_version_is_refused() {
    let row = |digest: &str| BTreeMap::from([("a@1.0.0".to_owned(), digest.to_owned())]);
    assert_eq!(with_new(row("x"), row("x")), Ok(row("x")));
    assert_eq!(with_new(BTreeMap::new(), row("x")), Ok(row("x")));
    let refused = with_new(row("x"), row("y")).unwrap_err();
    assert!(refused.contains("a@1.0.0") && refused.contains("raise `version`"), "{refused}");
}

#[test]
#[ignore = "writes bundles/versions.txt"]
fn write_versions() {
    let all = with_new(written(), built()).unwrap_or_else(|why| panic!("{why}"));
    let rows: String = all.iter().map(|(bundle, digest)| format!("{bundle} {digest}\n")).collect();
    fs::write(file(), format!("{HEAD}{rows}")).unwrap();
}
