//! An image from a recipe: packages, then configuration, then one archive.
//!
//! Two layers, each by the digest of what it is made of. The first is everything that packages and
//! their scripts make, drivers among them; it takes minutes and is kept. The second is the recipe's
//! files, the bundles and what a finished image must not have; it takes seconds, on a copy of the
//! first. What both are made of is one input digest: where the archive of that digest is there, nothing
//! is built.
//!
//! The archive's index of the distribution (`InRelease`, signed) stands for the versions of all
//! packages: it names the digest of every index, and each index those of its packages. Archives beside
//! the distribution's count with their indices and their keys.

mod base;
mod cloud_image;
mod configure;
mod error;
mod layer;
#[cfg(test)]
mod publishing;
mod record;
mod repository;
#[cfg(test)]
mod repository_tests;
mod request;
mod snapshot;
#[cfg(test)]
mod tests;
mod whole_disk;

use std::fs;
use std::io;
use std::path::Path;

use serde::Serialize;
use sha2::{Digest as _, Sha256};

pub use base::{BasePackages, ImageBase, MadePackages, MmdebstrapBase};
pub use cloud_image::CloudImageBase;
pub use error::BuildError;
pub use record::CURTIN_HOOK;
pub use repository::TrustedRepository;
pub use request::{BuildOutcome, BuildRequest, EmbeddedFile};
pub use snapshot::BaseSnapshot;

use crate::lint::{LintOptions, lint};
use crate::pack::{PackOptions, pack_to_file};
use crate::signed_repository::SignedRepository;
use crate::stream_digest::stream_digest;
use configure::configure;
use layer::LayerStore;
use whole_disk::make_whole_disk;

/// Grows when the steps below make something else of the same inputs.
const STEPS: u32 = 2;

/// Builds, or finds that nothing has changed.
///
/// # Errors
/// [`BuildError`]; the target is as it was then.
pub fn build(request: &BuildRequest, base: &dyn ImageBase) -> Result<BuildOutcome, BuildError> {
    if let Some(kind) = request.disk_type {
        whole_disk::check_host(kind)?;
    }
    let store = LayerStore::open(&request.cache)?;
    let base_snapshot = base.snapshot(store.scratch())?;
    let trusted = |one: &SignedRepository| one.trusted(store.scratch());
    let repositories = request.repositories.iter().map(trusted).collect::<Result<Vec<_>, _>>()?;
    let snapshot = with_repositories(&base_snapshot, &repositories);
    let input_digest = digest_of_text(&(&request.plan_digest, &snapshot.digest, STEPS));
    if let Some(known) = store.outcome(&input_digest)?
        && is_archive(&request.target, &known)?
    {
        return Ok(BuildOutcome { reused_layers: 2, built_layers: 0, ..known });
    }
    let packages_key = digest_of_text(&(
        base.name(),
        &snapshot.digest,
        &request.required,
        &request.optional,
        STEPS,
    ));
    let wanted = BasePackages {
        required: &request.required,
        optional: &request.optional,
        repositories: &repositories,
    };
    let (packages, was_there) =
        store.layer(&packages_key, |folder| base.make(&base_snapshot, &wanted, folder))?;
    let tree = store.copy(&packages)?;
    let details = record::ImageDetails {
        request,
        input_digest: &input_digest,
        snapshot: &snapshot,
        optional_missing: &packages.made.optional_missing,
        repositories: &repositories,
    };
    configure(tree.path(), &details)?;
    let options = PackOptions {
        newest_mtime_seconds: Some(snapshot.epoch_seconds),
        ..PackOptions::for_this_machine()
    };
    // A whole disk is judged as the archive that it would be.
    let archive = match request.disk_type {
        Some(_) => store.scratch().join("archive"),
        None => request.target.clone(),
    };
    let summary = pack_to_file(tree.path(), &archive, &options)?;
    judge(request, &archive)?;
    let kernel = kernel_of(tree.path())?;
    let (digest, size_bytes) = match request.disk_type {
        None => (summary.sha256, summary.tgz_bytes),
        Some(kind) => {
            let packed = make_whole_disk(kind, tree.path(), store.scratch(), &request.target)?;
            (packed.sha256, packed.bytes)
        }
    };
    let outcome = BuildOutcome {
        name: request.name.clone(),
        digest,
        input_digest,
        size_bytes,
        tree_bytes: summary.tree_bytes,
        packages: packages.made.packages.len(),
        optional_missing: packages.made.optional_missing,
        kernel,
        reused_layers: u32::from(was_there),
        built_layers: 2 - u32::from(was_there),
    };
    store.keep_outcome(&outcome)?;
    Ok(outcome)
}

/// The state of the base with that of the archives beside it.
fn with_repositories(base: &BaseSnapshot, repositories: &[TrustedRepository]) -> BaseSnapshot {
    if repositories.is_empty() {
        return base.clone();
    }
    let digests: Vec<&str> = repositories.iter().map(|one| one.digest.as_str()).collect();
    let epochs = repositories.iter().map(|one| one.epoch_seconds);
    BaseSnapshot {
        digest: digest_of_text(&(&base.digest, digests)),
        epoch_seconds: epochs.fold(base.epoch_seconds, i64::max),
    }
}

/// The finished archive, by the rules of `gpuaas image lint`.
fn judge(request: &BuildRequest, archive: &Path) -> Result<(), BuildError> {
    let options = LintOptions {
        kernel_arguments: request.kernel_arguments.clone(),
        excused_sources: request.allowed_sources.clone(),
        boot_disk_bytes: request.most_bytes,
        ..LintOptions::default()
    };
    let verdict = lint(archive, &options)?;
    if verdict.passed() {
        return Ok(());
    }
    let findings = verdict.findings.iter();
    let findings = findings.map(|finding| format!("{} {}", finding.rule.code, finding.path));
    Err(BuildError::Faulty(findings.collect()))
}

/// Whether the file is the archive that was built before.
fn is_archive(path: &Path, known: &BuildOutcome) -> io::Result<bool> {
    match fs::File::open(path) {
        Ok(file) if file.metadata()?.len() == known.size_bytes => {
            Ok(stream_digest(file)? == known.digest)
        }
        Ok(_) => Ok(false),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(error) => Err(error),
    }
}

/// Version of the one kernel in `/boot`.
fn kernel_of(tree: &Path) -> io::Result<String> {
    let boot = tree.join("boot");
    if !boot.is_dir() {
        return Ok(String::new());
    }
    for entry in fs::read_dir(boot)? {
        let name = entry?.file_name();
        if let Some(version) = name.to_string_lossy().strip_prefix("vmlinuz-") {
            return Ok(version.to_owned());
        }
    }
    Ok(String::new())
}

/// SHA-256 of a value's JSON, in hex digits.
fn digest_of_text(value: &impl Serialize) -> String {
    // Texts and lists of texts: serde_json writes all of them.
    hex::encode(Sha256::digest(serde_json::to_string(value).unwrap_or_default()))
}
