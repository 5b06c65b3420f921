//! Why a bundle is not run.

use std::io;
use std::path::PathBuf;

use gpuaas_bundle::InputError;

/// Why a bundle was not run.
#[derive(Debug, thiserror::Error)]
pub enum BundleError {
    /// The folder holds no bundle.
    #[error("{path} is not a bundle folder: {reason}")]
    NoBundle {
        /// The folder.
        path: PathBuf,
        /// What is wrong with it.
        reason: String,
    },
    /// A value of an input that cannot be used.
    #[error("{bundle}: {source}")]
    Input {
        /// The bundle's reference, `name@version`.
        bundle: String,
        /// Which input, and why.
        source: InputError,
    },
    /// A required bundle is not on the host.
    #[error("{bundle} requires {required}, but {folder} does not contain it")]
    NotThere {
        /// `name@version` of the bundle that requires it.
        bundle: String,
        /// `name@version` of the required bundle.
        required: String,
        /// The folder that was searched.
        folder: PathBuf,
    },
    /// Bundles that require each other.
    #[error("bundles require each other: {0}")]
    Circle(String),
    /// Another launcher holds the lock of this host.
    #[error("another launcher is already running a bundle on this host")]
    Busy,
    /// A file of the host cannot be written.
    #[error("{path}: {source}")]
    Io {
        /// The file.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
}
