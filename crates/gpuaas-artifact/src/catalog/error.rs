//! Why the catalog has no answer, and what the reader does next.

use std::io;

use gpuaas_bundle::{ArchiveError, InputError, SignatureError};

use crate::lint::LintFinding;

/// Why a reference does not lead to a bundle, or bytes are no bundle.
#[derive(Debug, thiserror::Error)]
pub enum CatalogError {
    /// No bundle of that name and version, or of that digest, and of that kind.
    #[error("bundle not found: {reference}{}", of_kind(.kind))]
    NotFound {
        /// The reference that was searched.
        reference: String,
        /// The kind that was searched; empty for any.
        kind: &'static str,
        /// Every reference of that kind that exists.
        known: Vec<String>,
    },
    /// Neither of the form `name@version` nor a digest.
    #[error("invalid bundle reference {reference:?}: {reason}")]
    InvalidReference {
        /// The reference.
        reference: String,
        /// What is wrong with it.
        reason: &'static str,
    },
    /// Bytes that are no archive of a bundle.
    #[error(transparent)]
    Archive(#[from] ArchiveError),
    /// A bundle that `gpuaas bundle lint` refuses.
    #[error("invalid bundle: {}", .0.iter().map(ToString::to_string).collect::<Vec<_>>().join("; "))]
    Invalid(Vec<LintFinding>),
    /// No trusted key has signed it.
    #[error("{bundle} is not trusted: {source}")]
    Signature {
        /// The bundle's reference, `name@version`.
        bundle: String,
        /// What is wrong with its signature.
        source: SignatureError,
    },
    /// A value of an input that cannot be used.
    #[error("{bundle}: {source}")]
    Input {
        /// The bundle's reference, `name@version`.
        bundle: String,
        /// Which input, and why.
        source: InputError,
    },
    /// Bundles that require each other.
    #[error("bundles require each other: {0}")]
    Circle(String),
    /// The artifact store cannot be written.
    #[error("cannot write to the artifact store: {0}")]
    Io(#[from] io::Error),
}

impl CatalogError {
    /// Stable code for a problem body.
    #[must_use]
    pub const fn code(&self) -> &'static str {
        match self {
            Self::NotFound { .. } => "bundle_not_found",
            Self::InvalidReference { .. } => "bundle_ref_invalid",
            Self::Archive(error) => error.code(),
            Self::Invalid(_) => "bundle_invalid",
            Self::Signature { source, .. } => source.code(),
            Self::Input { source, .. } => source.code(),
            Self::Circle(_) => "bundle_circle",
            Self::Io(_) => "bundle_store_unwritable",
        }
    }

    /// What the reader should do next.
    #[must_use]
    pub fn hint(&self) -> String {
        match self {
            Self::NotFound { known, .. } => format!(
                "use one of: {}; or publish the bundle: `gpuaas bundle publish DIR`",
                known.join(", ")
            ),
            Self::InvalidReference { .. } => {
                "use name@version, such as site-base@1.0.0, or a digest; leave it empty for no bundle".into()
            }
            Self::Archive(_) | Self::Invalid(_) => {
                "run `gpuaas bundle lint DIR` to see what is wrong with the folder, then build the file: `gpuaas bundle build DIR`".into()
            }
            Self::Signature { .. } => {
                "sign it with a key that `gpuaas bundle keys` lists, or trust the key that signed it: `gpuaas bundle trust KEY --name NAME`".into()
            }
            Self::Input { bundle, source: InputError::SecretNotAllowed { name } } => {
                secret_hint(bundle, name)
            }
            Self::Input { source: InputError::SecretMissing { .. }, .. } => {
                "run `gpuaas site secret set SITE BUNDLE INPUT --file FILE` with the bundle that the profile names; \
                 if a required bundle needs the secret, pass it on under requires"
                    .into()
            }
            Self::Input { source: InputError::NotSecret { .. }, .. } => {
                "set it with --input in a profile or with --bundle-input in a site".into()
            }
            Self::Input { source: InputError::SecretLeaked { .. }, .. } => {
                "pass secrets only to inputs that are declared secret".into()
            }
            Self::Input {
                source: InputError::NotPassedOn { .. }
                    | InputError::NotOfOneHost { .. }
                    | InputError::Shared { .. },
                ..
            } => {
                "run `gpuaas site set SITE --host-input HOST:BUNDLE.INPUT=VALUE` to set a value for one host; \
                 an empty VALUE removes it"
                    .into()
            }
            Self::Input { .. } => {
                "run `gpuaas bundle show BUNDLE` (a folder or a file) to list the inputs; set them with --input \
                 in a profile or with --bundle-input in a site"
                    .into()
            }
            Self::Circle(_) => "publish a version of one of them that does not require the others".into(),
            Self::Io(_) => "free up space in the data folder".into(),
        }
    }
}

fn of_kind(kind: &str) -> String {
    if kind.is_empty() { String::new() } else { format!(" (kind {kind})") }
}

/// The hint which command sets a secret of a bundle.
#[must_use]
pub fn secret_hint(bundle: &str, input: &str) -> String {
    let name = bundle.split('@').next().unwrap_or(bundle);
    format!(
        "run `gpuaas site secret set SITE {name} {input} --file FILE` to store it sealed for a site, or \
         `gpuaas profile secret set PROFILE {name} {input} --file FILE` for a profile"
    )
}
