//! Signed statements about an archive, each a file beside it: what was tried with those very bytes.
//!
//! A statement is in-toto's (v1) in a DSSE envelope, as the provenance is. What happened to an image at a
//! site is signed by the control plane and kept there.

use std::fs;
use std::io::{BufWriter, Write as _};
use std::path::{Path, PathBuf};

use gpuaas_bundle::{Envelope, PublicKey, SignatureError, SigningKey, TrustedKey};
use gpuaas_client::failure::{Exit, Failure};
use gpuaas_engine::{Clock as _, RealClock};
use gpuaas_image::lineage::{STATEMENT_PAYLOAD_TYPE, archive_statement};
use gpuaas_types::codes::CommandCode;
use serde::Serialize;
use serde_json::Value;

use super::report::json;
use crate::input_file::read_file;

/// Ends the name of each statement's file.
const ENDING: &str = ".intoto.json";

/// A statement as `image show` prints it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(super) struct ShownStatement {
    /// Its file.
    pub(super) file: PathBuf,
    /// What it says something about, such as `urn:gpuaas:image-lint:v1`.
    pub(super) predicate_type: String,
    /// Whether what was tried ended well; none: the statement does not say.
    pub(super) passed: Option<bool>,
    /// Key of its signature.
    pub(super) key_id: String,
    /// Who signed it, where the key is one that `--trust` names and the signature fits.
    pub(super) signed_by: Option<String>,
    /// Why it counts for nothing: a code of a signature, or `statement_of_other_bytes`. None: it is about
    /// this archive and signed by a trusted key.
    pub(super) fault: Option<String>,
}

/// The key that statements are signed with.
///
/// # Errors
/// A file that is no key.
pub(super) fn signing_key(path: &Path) -> Result<SigningKey, Failure> {
    SigningKey::from_pem(&read_file(path)?).map_err(|error| {
        let detail = format!("{}: {error}", path.display());
        Failure::usage(CommandCode::FileUnreadable, detail)
            .hint("use a private key created by `gpuaas bundle key FILE`")
    })
}

/// SHA-256 of an archive, in hex digits.
///
/// # Errors
/// `image_unreadable`.
pub(super) fn archive_digest(file: &Path) -> Result<String, Failure> {
    let digest = fs::File::open(file).and_then(|file| maas_upload::digest_of(&file));
    let digest = digest.map_err(|error| {
        Failure::local(CommandCode::ImageUnreadable, format!("{}: {error}", file.display()))
            .hint("use an existing archive, such as one built with `gpuaas image build RECIPE`")
    })?;
    Ok(digest.sha256)
}

/// Writes a statement beside an archive, as `FILE.KIND.intoto.json`. `tried` is the digest of what it is
/// about.
///
/// # Errors
/// A file that is no key; `image_changed` where the archive is another by now; when the statement cannot
/// be written.
pub(super) fn write_statement(
    file: &Path,
    (kind, predicate_type): (&str, &str),
    key: &Path,
    (tried, predicate): (&str, &Value),
) -> Result<PathBuf, Failure> {
    let (name, key, digest) = (base_name(file), signing_key(key)?, archive_digest(file)?);
    if digest != tried {
        let detail = format!(
            "{} changed during the check: sha256 was {tried}, now it is {digest}",
            file.display()
        );
        return Err(Failure::local(CommandCode::ImageChanged, detail)
            .hint("make sure that nothing writes to the file, and repeat the command"));
    }
    let mut predicate = predicate.clone();
    if let Some(fields) = predicate.as_object_mut() {
        fields.insert("at".to_owned(), RealClock.now().to_string().into());
        fields.insert("builder".to_owned(), env!("CARGO_PKG_VERSION").into());
    }
    let statement = archive_statement(&name, tried, predicate_type, predicate);
    let path = beside(file, &format!("{kind}{ENDING}"));
    write_signed(&path, &key, &statement)?;
    Ok(path)
}

/// Signs a statement into a file.
///
/// # Errors
/// When it cannot be written.
pub(super) fn write_signed(
    path: &Path,
    key: &SigningKey,
    statement: &Value,
) -> Result<(), Failure> {
    let envelope = key
        .sign_payload(STATEMENT_PAYLOAD_TYPE, statement)
        .map_err(|error| Failure::local(CommandCode::AnswerUnprintable, error.to_string()))?;
    write_beside(path, &json(&envelope)?)
}

/// The statements beside an archive of that digest, by name.
pub(super) fn statements(file: &Path, digest: &str, trusted: &[TrustedKey]) -> Vec<ShownStatement> {
    let folder = match file.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder,
        _ => Path::new("."),
    };
    let begin = format!("{}.", base_name(file));
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let mut paths: Vec<PathBuf> = entries
        .map(|entry| entry.path())
        .filter(|path| {
            let name = base_name(path);
            name.starts_with(&begin) && name.ends_with(ENDING)
        })
        .collect();
    paths.sort();
    paths.into_iter().map(|path| shown(path, digest, trusted)).collect()
}

fn shown(path: PathBuf, digest: &str, trusted: &[TrustedKey]) -> ShownStatement {
    let mut shown = ShownStatement {
        file: path,
        predicate_type: String::new(),
        passed: None,
        key_id: String::new(),
        signed_by: None,
        fault: None,
    };
    let envelope = match fs::read(&shown.file).map(|text| Envelope::parse(&text)) {
        Ok(Ok(envelope)) => envelope,
        Ok(Err(error)) => {
            shown.fault = Some(error.code().to_owned());
            return shown;
        }
        Err(_) => {
            shown.fault = Some(CommandCode::FileUnreadable.as_str().to_owned());
            return shown;
        }
    };
    shown.key_id = envelope.signatures.first().map(|one| one.keyid.clone()).unwrap_or_default();
    let statement = envelope.unverified_payload::<Value>(STATEMENT_PAYLOAD_TYPE);
    let statement = statement.unwrap_or_default();
    shown.predicate_type = statement["predicateType"].as_str().unwrap_or_default().to_owned();
    shown.passed = statement["predicate"]["passed"].as_bool();
    let subjects = statement["subject"].as_array().into_iter().flatten();
    let is_about = subjects.into_iter().any(|one| one["digest"]["sha256"] == digest);
    let now = RealClock.now();
    match envelope.verify_signature(trusted, now) {
        Ok(signer) => shown.signed_by = Some(signer),
        Err(error) => shown.fault = Some(error.code().to_owned()),
    }
    if !is_about {
        shown.fault = Some("statement_of_other_bytes".to_owned());
    }
    shown
}

/// Public keys as `bundle key` prints them, each named by its id.
///
/// # Errors
/// A text that is no key.
pub(super) fn trusted_keys(texts: &[String]) -> Result<Vec<TrustedKey>, Failure> {
    let key = |text: &String| {
        let key: PublicKey = text.parse().map_err(|error: SignatureError| {
            let title = "Invalid public key";
            Failure::coded(Exit::Usage, error.code(), title, format!("--trust {text}: {error}"))
                .hint("use a public key as printed by `gpuaas bundle key FILE`")
        })?;
        Ok(TrustedKey { name: key.id(), key, until: None })
    };
    texts.iter().map(key).collect()
}

/// The last part of a path.
pub(super) fn base_name(path: &Path) -> String {
    path.file_name().unwrap_or_default().to_string_lossy().into_owned()
}

/// The archive's path with another end behind it.
pub(super) fn beside(path: &Path, end: &str) -> PathBuf {
    path.with_file_name(format!("{}.{end}", base_name(path)))
}

/// Writes a file that is complete or as it was.
///
/// # Errors
/// `image_unwritable`.
pub(super) fn write_beside(path: &Path, text: &str) -> Result<(), Failure> {
    let folder = match path.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder,
        _ => Path::new("."),
    };
    let written = tempfile::NamedTempFile::new_in(folder).and_then(|file| {
        let mut writer = BufWriter::new(file.as_file());
        writer.write_all(text.as_bytes())?;
        writer.flush()?;
        drop(writer);
        file.persist(path).map_err(|error| error.error)?;
        fs::set_permissions(path, std::os::unix::fs::PermissionsExt::from_mode(0o644))
    });
    written.map_err(|error| {
        Failure::local(CommandCode::ImageUnwritable, format!("{}: {error}", path.display()))
            .hint("make the archive's folder writable, and free up space there")
    })
}
