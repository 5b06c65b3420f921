//! The values that a bundle ran with last, stored on the host for repairs and for gates.
//!
//! All of them are stored, one that a person set for a single run too: the host is as that run made
//! it, so the gates check for that value and a repair restores it. A value goes when another is
//! set, or with the host at its next deployment.
//!
//! `NAME.inputs` has what may be shown, `NAME.secrets` the rest. Both belong to root (0600, replaced
//! whole), as does the user-data that the values came from. They are two files so that code that
//! prints the one never reads the other.

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::path::Path;

use gpuaas_bundle::{InputError, Inputs, Manifest};
use host_facts::HostRoot;

use super::manifest_file::read_manifest;
use crate::{atomic_file, paths};

/// Extension of the file with the secret values.
const SECRETS: &str = "secrets";

/// Stores the values that a bundle is about to run with in `state`, the folder of the markers.
/// Writes only what differs, so that a second run changes nothing.
pub(super) fn store(state: &Path, manifest: &Manifest, values: &Inputs) -> io::Result<()> {
    let secret = |name: &str| manifest.inputs.get(name).is_some_and(|input| input.secret);
    let (secrets, open): (Inputs, Inputs) =
        values.clone().into_iter().partition(|(name, _)| secret(name));
    write_if_changed(&state.join(format!("{}.inputs", manifest.name)), &open)?;
    let path = state.join(format!("{}.{SECRETS}", manifest.name));
    if !secrets.is_empty() {
        return write_if_changed(&path, &secrets);
    }
    // An earlier version of the bundle may have had some.
    atomic_file::remove_if_there(&path)
}

/// Whether the stored values are exactly these.
pub(super) fn equal(state: &Path, manifest: &Manifest, values: &Inputs) -> bool {
    read_all(state, manifest) == *values
}

fn write_if_changed(path: &Path, values: &Inputs) -> io::Result<()> {
    let text = serde_json::to_vec_pretty(values).unwrap_or_default();
    if fs::read(path).is_ok_and(|old| old == text) && atomic_file::is_private(path) {
        return Ok(());
    }
    atomic_file::replace(path, &text)
}

/// The values to run a bundle with again: the stored ones, overridden by what a bundle in the folder
/// `bundles` that requires it, and ran itself, hands down.
///
/// The override matters where somebody ran the required bundle on its own. A bundle that is
/// installed and never ran, as in an image for several roles, hands down nothing.
pub(super) fn effective_values(root: &HostRoot, bundles: &Path, manifest: &Manifest) -> Inputs {
    let mut values = known_values(root, manifest);
    for other in manifests_in(bundles) {
        let mut requires = other.requires.iter();
        let Some(requirement) = requires
            .find(|one| one.bundle.split_once('@').is_some_and(|(name, _)| name == manifest.name))
        else {
            continue;
        };
        if !root.join(paths::BUNDLE_STATE).join(format!("{}.inputs", other.name)).is_file() {
            continue;
        }
        // Values that cannot be resolved were never handed down.
        let stored = other.resolve(&known_values(root, &other));
        if let Ok(given) = stored.and_then(|stored| other.values_for(requirement, &stored)) {
            values.extend(given);
        }
    }
    values.retain(|name, _| manifest.inputs.contains_key(name));
    values
}

/// Names of the bundles that the host was given: those that its first boot was delivered, and those
/// that the launcher began to run on it.
pub(super) fn given_names(root: &HostRoot) -> BTreeSet<String> {
    let boot: serde_json::Value = fs::read(root.join(paths::BOOTSTRAP_FILE))
        .ok()
        .and_then(|text| serde_json::from_slice(&text).ok())
        .unwrap_or_default();
    let delivered = boot["bundle"]["bundles"].as_array().into_iter().flatten();
    let delivered = delivered.filter_map(|bundle| bundle["artifact"]["name"].as_str());
    let mut names: BTreeSet<String> = delivered.map(str::to_owned).collect();
    names.extend(names_with_inputs(root));
    names
}

fn names_with_inputs(root: &HostRoot) -> Vec<String> {
    let Ok(entries) = fs::read_dir(root.join(paths::BUNDLE_STATE)) else { return Vec::new() };
    let files = entries.flatten().filter_map(|entry| entry.file_name().into_string().ok());
    files.filter_map(|file| Some(file.strip_suffix(".inputs")?.to_owned())).collect()
}

/// Forgets what is stored of all bundles but `delivered`: an image brought it, and it is of another
/// host.
pub(super) fn forget_others(root: &HostRoot, delivered: &[&str]) -> io::Result<()> {
    let state = root.join(paths::BUNDLE_STATE);
    for name in names_with_inputs(root) {
        if delivered.contains(&name.as_str()) {
            continue;
        }
        for extension in ["inputs", SECRETS, "done", "validation"] {
            atomic_file::remove_if_there(&state.join(format!("{name}.{extension}")))?;
        }
    }
    Ok(())
}

/// The manifests of the bundles in a folder, by name.
fn manifests_in(folder: &Path) -> Vec<Manifest> {
    let Ok(entries) = fs::read_dir(folder) else { return Vec::new() };
    let mut bundles: Vec<Manifest> =
        entries.flatten().filter_map(|entry| read_manifest(&entry.path()).ok()).collect();
    bundles.sort_by(|a, b| a.name.cmp(&b.name));
    bundles
}

/// The values to check a bundle's effects with; its defaults where it did not run.
///
/// # Errors
/// A stored value is not of its input's type.
pub(super) fn values_for_checks(
    root: &HostRoot,
    manifest: &Manifest,
) -> Result<Inputs, InputError> {
    let mut values = known_values(root, manifest);
    // A secret that is not stored cannot be checked for; the rest can.
    for (name, input) in &manifest.inputs {
        if input.secret && input.default.is_none() && !values.contains_key(name) {
            values.insert(name.clone(), String::new());
        }
    }
    manifest.resolve(&values)
}

/// Every secret value that is stored on the host: none of them may leave it.
pub(crate) fn secret_values(root: &HostRoot) -> Vec<String> {
    let Ok(entries) = fs::read_dir(root.join(paths::BUNDLE_STATE)) else { return Vec::new() };
    let paths = entries.flatten().map(|entry| entry.path());
    let secrets = paths.filter(|path| path.extension().is_some_and(|end| end == SECRETS));
    secrets.flat_map(|path| read(&path).into_values()).collect()
}

fn read_all(state: &Path, manifest: &Manifest) -> Inputs {
    let file = |extension: &str| read(&state.join(format!("{}.{extension}", manifest.name)));
    let mut values = file("inputs");
    values.extend(file(SECRETS));
    values
}

/// The stored values of inputs that the manifest has: an older version may have had others.
fn known_values(root: &HostRoot, manifest: &Manifest) -> Inputs {
    let mut values = read_all(&root.join(paths::BUNDLE_STATE), manifest);
    values.retain(|name, _| manifest.inputs.contains_key(name));
    values
}

fn read(path: &Path) -> Inputs {
    fs::read(path).ok().and_then(|text| serde_json::from_slice(&text).ok()).unwrap_or_default()
}
