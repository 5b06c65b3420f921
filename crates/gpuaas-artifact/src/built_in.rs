//! The bundles of this repository, as part of the executable.

use gpuaas_bundle::Archive;
use gpuaas_bundle::manifest::SOURCE_NAME;

use crate::lint::LintFinding;
use crate::source::read_files;

/// Files of one bundle: path below its folder, bytes.
type Files = &'static [(&'static str, &'static [u8])];

/// Every folder of `bundles/` with a manifest.
pub(crate) const BUNDLES: &[Files] = include!(concat!(env!("OUT_DIR"), "/built_in.rs"));

/// The archive of these files, as `gpuaas bundle build` makes it of their folder.
pub(crate) fn archive(files: Files) -> Result<Archive, Vec<LintFinding>> {
    let is_manifest = |(path, _): &&(&str, &[u8])| *path == SOURCE_NAME;
    let manifest = files.iter().find(is_manifest).map_or(&[][..], |(_, bytes)| bytes);
    let others = files.iter().filter(|file| !is_manifest(file));
    let others = others.map(|(path, bytes)| ((*path).to_owned(), bytes.to_vec())).collect();
    read_files(&String::from_utf8_lossy(manifest), others, Vec::new())
}
