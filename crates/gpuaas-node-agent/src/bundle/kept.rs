//! What a host keeps of the values that a bundle ran with, for whoever runs it again or looks at its
//! effects.
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

/// The values that the bundle in `folder` ran with, to run it with them again.
///
/// # Errors
/// The host keeps no value of a secret that has no default, because an older version of the
/// launcher ran the bundle; or the bundle cannot be read.
pub(crate) fn values(root: &HostRoot, folder: &Path) -> Result<Inputs, String> {
    let manifest = read_manifest(folder).map_err(|error| error.to_string())?;
    manifest.resolve(&set(root, &manifest)).map_err(|error| match error {
        InputError::SecretMissing { name } => {
            format!("its input {name} is a secret, which the host does not keep")
        }
        other => other.to_string(),
    })
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
