//! What a host keeps of the values that a bundle ran with, for whoever runs it again or looks at its
//! effects.
//!
//! All of them are kept, also one that a person set for one run: the host is as that run made it, so
//! that is what the gates have to look for, and what a repair brings back. It goes when another
//! value is set, or with the host at its next deployment.
//!
//! `NAME.inputs` is what may be shown, `NAME.secrets` the rest. Both are files of root's (0600,
//! replaced whole), as is the user-data from which the values came; apart, so that what prints
//! the one never meets the other.

use std::fs;
use std::io;
use std::path::Path;

use gpuaas_bundle::{InputError, Inputs, Manifest};
use host_facts::HostRoot;

use super::read_manifest;
use crate::checks::MARKERS;
use crate::files;

const SECRETS: &str = "secrets";

/// Keeps the values that a bundle is about to run with, in the folder of the markers. Writes only
/// what differs: a second run changes nothing.
pub(super) fn keep(state: &Path, manifest: &Manifest, values: &Inputs) -> io::Result<()> {
    let secret = |name: &str| manifest.inputs.get(name).is_some_and(|input| input.secret);
    let (secrets, open): (Inputs, Inputs) =
        values.clone().into_iter().partition(|(name, _)| secret(name));
    place(&state.join(format!("{}.inputs", manifest.name)), &open)?;
    let path = state.join(format!("{}.{SECRETS}", manifest.name));
    if !secrets.is_empty() {
        return place(&path, &secrets);
    }
    // Of another version, which had some.
    match fs::remove_file(&path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

/// Whether a bundle ran with exactly these values at last.
pub(super) fn are(state: &Path, manifest: &Manifest, values: &Inputs) -> bool {
    all(state, manifest) == *values
}

fn place(path: &Path, values: &Inputs) -> io::Result<()> {
    let text = serde_json::to_vec_pretty(values).unwrap_or_default();
    if fs::read(path).is_ok_and(|old| old == text) && files::is_private(path) {
        return Ok(());
    }
    files::replace(path, &text)
}

/// The values to run a bundle with again: those that it ran with at last, and over them what a
/// bundle in the folder `bundles` that requires it, and ran itself, gives it.
///
/// The second matters where somebody ran the required bundle alone as if it were the whole host's.
/// A bundle that is installed and never ran, as in an image for hosts of either kind, gives nothing.
pub(super) fn values(root: &HostRoot, bundles: &Path, manifest: &Manifest) -> Inputs {
    let mut values = set(root, manifest);
    for other in beside(bundles) {
        let mut requires = other.requires.iter();
        let Some(requirement) = requires
            .find(|one| one.bundle.split_once('@').is_some_and(|(name, _)| name == manifest.name))
        else {
            continue;
        };
        if !root.join(MARKERS).join(format!("{}.inputs", other.name)).is_file() {
            continue;
        }
        // What cannot be resolved, nobody was given.
        let kept = other.resolve(&set(root, &other));
        if let Ok(given) = kept.and_then(|kept| other.given(requirement, &kept)) {
            values.extend(given);
        }
    }
    values.retain(|name, _| manifest.inputs.contains_key(name));
    values
}

/// The bundles in a folder, by name.
fn beside(folder: &Path) -> Vec<Manifest> {
    let Ok(entries) = fs::read_dir(folder) else { return Vec::new() };
    let mut bundles: Vec<Manifest> =
        entries.flatten().filter_map(|entry| read_manifest(&entry.path()).ok()).collect();
    bundles.sort_by(|a, b| a.name.cmp(&b.name));
    bundles
}

/// The values to look at a bundle's effects with; its defaults where it did not run.
pub(super) fn looked_with(root: &HostRoot, manifest: &Manifest) -> Result<Inputs, InputError> {
    let mut set = set(root, manifest);
    // What nobody kept cannot be looked for; the rest can.
    for (name, input) in &manifest.inputs {
        if input.secret && input.default.is_none() && !set.contains_key(name) {
            set.insert(name.clone(), String::new());
        }
    }
    manifest.resolve(&set)
}

/// The values of every secret that the host keeps: none of them may leave it.
pub(crate) fn secrets(root: &HostRoot) -> Vec<String> {
    let Ok(entries) = fs::read_dir(root.join(MARKERS)) else { return Vec::new() };
    let paths = entries.flatten().map(|entry| entry.path());
    let kept = paths.filter(|path| path.extension().is_some_and(|end| end == SECRETS));
    kept.flat_map(|path| read(&path).into_values()).collect()
}

fn all(state: &Path, manifest: &Manifest) -> Inputs {
    let of = |end: &str| read(&state.join(format!("{}.{end}", manifest.name)));
    let mut all = of("inputs");
    all.extend(of(SECRETS));
    all
}

fn set(root: &HostRoot, manifest: &Manifest) -> Inputs {
    let mut set = all(&root.join(MARKERS), manifest);
    // An older version of the bundle may have had other inputs.
    set.retain(|name, _| manifest.inputs.contains_key(name));
    set
}

fn read(path: &Path) -> Inputs {
    fs::read(path).ok().and_then(|text| serde_json::from_slice(&text).ok()).unwrap_or_default()
}
