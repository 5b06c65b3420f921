//! A bundle as a file or a folder of this machine, its signature beside it, and the failures that
//! both sides of the commands share.

use std::fs;
use std::path::{Path, PathBuf};

use gpuaas_artifact::{LintFinding, SourceError, read_folder};
use gpuaas_bundle::{
    Archive, Digest, Envelope, Manifest, PublicKey, SigningKey, Statement, TrustedKey,
};
use gpuaas_client::failure::{Exit, Failure};
use gpuaas_engine::{Clock as _, RealClock};
use gpuaas_types::Timestamp;
use gpuaas_types::codes::CommandCode;

pub(super) fn signature_failure(error: &gpuaas_bundle::SignatureError) -> Failure {
    Failure::coded(Exit::Local, error.code(), "The bundle is not trusted", error.to_string())
        .hint("do not use it; get the bundle, its signature and the key from its publisher again")
}

pub(super) fn sign(
    key: &SigningKey,
    manifest: &Manifest,
    digest: Digest,
    expires_at: Option<Timestamp>,
) -> Result<Envelope, Failure> {
    let (bundle, signed_at) = (manifest.reference(), RealClock.now());
    let statement = Statement { bundle, digest, signed_at, expires_at };
    key.sign(&statement).map_err(|error| signature_failure(&error))
}

pub(super) fn read_key(path: &Path) -> Result<SigningKey, Failure> {
    let text = fs::read_to_string(path).map_err(|error| unreadable(path, &error))?;
    SigningKey::from_pem(&text).map_err(|error| signature_failure(&error))
}

pub(super) fn signature_of(file: &Path) -> PathBuf {
    let mut name = file.as_os_str().to_owned();
    name.push(".sig");
    name.into()
}

pub(super) fn archive_failure(path: &Path, error: &gpuaas_bundle::ArchiveError) -> Failure {
    let detail = format!("{}: {error}", path.display());
    Failure::coded(Exit::Local, error.code(), "The bundle was rejected", detail)
}

/// A bundle from its folder or from the file of a build, and its bytes.
pub(super) fn open(path: &Path) -> Result<(Archive, Vec<u8>), Failure> {
    if path.is_dir() {
        let archive = from_folder(path)?;
        let bytes = archive.write().map_err(|error| archive_failure(path, &error))?;
        return Ok((archive, bytes));
    }
    let bytes = fs::read(path).map_err(|error| unreadable(path, &error))?;
    let archive = Archive::read(&bytes).map_err(|error| archive_failure(path, &error))?;
    Ok((archive, bytes))
}

/// Whose signature it is, when it is that of the key and of these bytes.
pub(super) fn signer(
    key: &str,
    text: &[u8],
    manifest: &Manifest,
    bytes: &[u8],
) -> Result<String, Failure> {
    let key: PublicKey = key.parse().map_err(|error| signature_failure(&error))?;
    let trusted = [TrustedKey { name: key.id(), key, until: None }];
    let verified = Envelope::parse(text).and_then(|envelope| {
        envelope.verify(&trusted, &manifest.reference(), bytes, RealClock.now())
    });
    verified.map_err(|error| signature_failure(&error))
}

pub(super) fn unreadable(path: &Path, error: &std::io::Error) -> Failure {
    let detail = format!("{}: {error}", path.display());
    Failure::local(CommandCode::FileUnreadable, detail)
}

pub(super) fn from_folder(folder: &Path) -> Result<Archive, Failure> {
    read_folder(folder).map_err(|error| match error {
        SourceError::Io { path, source } => {
            unreadable(&path, &source).hint("use a bundle folder, which contains a bundle.yaml")
        }
        SourceError::Invalid(findings) => lint_failure(folder, &findings),
    })
}

pub(super) fn lint_failure(folder: &Path, findings: &[LintFinding]) -> Failure {
    let lines: Vec<String> = findings.iter().map(ToString::to_string).collect();
    Failure::local(
        CommandCode::BundleInvalid,
        format!("{}\n{}", folder.display(), lines.join("\n")),
    )
    .hint("fix the lines above; `gpuaas bundle new DIR` creates a valid bundle to start from")
}
