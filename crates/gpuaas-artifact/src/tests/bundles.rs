//! The bundles of this repository: each is fine, and they fit together.
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use crate::read_folder;
use gpuaas_bundle::{Archive, Input, InputType, Inputs, Manifest};

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../bundles")
}

/// Every folder with a manifest, read as a build would.
fn bundles() -> BTreeMap<String, Archive> {
    let read = |path: PathBuf| {
        let archive =
            read_folder(&path).unwrap_or_else(|error| panic!("{}:\n{error}", path.display()));
        assert_eq!(path.file_name().unwrap().to_str().unwrap(), archive.manifest.name);
        (archive.manifest.reference(), archive)
    };
    let entries = std::fs::read_dir(folder()).unwrap().map(|entry| entry.unwrap().path());
    entries.filter(|path| path.join("bundle.yaml").is_file()).map(read).collect()
}

#[test]
fn every_bundle_is_fine_and_built_the_same_twice() {
    let (one, two) = (bundles(), bundles());
    assert!(one.len() >= 2, "{:?}", one.keys());
    for (reference, archive) in one {
        let bytes = archive.write().unwrap();
        assert_eq!(Archive::read(&bytes).unwrap(), archive, "{reference}");
        assert_eq!(archive.digest().unwrap(), two[&reference].digest().unwrap(), "{reference}");
    }
}

/// Values as on a site that sets what it has to: a network, and for a secret an empty text.
fn values(manifest: &Manifest) -> Inputs {
    let missing = manifest.inputs.iter().filter(|(_, input)| input.default.is_none());
    let value = |input: &Input| match input.kind {
        InputType::Cidr => "10.9.0.0/16".to_owned(),
        _ => String::new(),
    };
    let set = missing.map(|(name, input)| (name.clone(), value(input))).collect();
    manifest.resolve(&set).unwrap_or_else(|error| panic!("{}: {error}", manifest.reference()))
}

#[test]
fn what_a_bundle_requires_exists_and_takes_what_it_is_given() {
    let bundles = bundles();
    for archive in bundles.values() {
        let manifest = &archive.manifest;
        for requirement in &manifest.requires {
            let required = &bundles[&requirement.bundle].manifest;
            let given = manifest.values_for(requirement, &values(manifest)).unwrap();
            let reference = &requirement.bundle;
            let values = required.resolve(&given).unwrap_or_else(|e| panic!("{reference}: {e}"));
            required.checks(&values).unwrap_or_else(|fault| panic!("{reference}: {fault}"));
        }
    }
}
