//! The agent's configuration file, as the node bootstrap writes it.

use std::io;
use std::path::{Path, PathBuf};

use gpuaas_types::RunId;
use host_facts::HostRoot;
use serde::Deserialize;

use crate::agent::AgentConfig;
use crate::env::AgentEnv;
use crate::host::Host;
use crate::identity::IdentityStore;
use crate::protocol::{ControlPlane, SetupError};

/// `/etc/gpuaas/agent.json`. Paths in it are absolute paths of the host.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AgentFile {
    /// The run that deployed this system.
    pub run_id: RunId,
    /// Short hostname of the node.
    pub hostname: String,
    /// Base URL of the control plane.
    pub control_plane_url: String,
    /// Single-use token of the enrollment. Secret.
    pub enrollment_token: String,
    /// Certificate authorities of the control plane, PEM.
    #[serde(default)]
    pub ca_file: Option<PathBuf>,
    /// Whether the control plane's certificate may be of the system's authorities too: where it has
    /// no anchor of its own.
    #[serde(default)]
    pub trust_system: bool,
    /// Folder of the identity.
    #[serde(default = "state_dir")]
    pub state_dir: PathBuf,
    /// Folder of `ready.json`, emptied at boot.
    #[serde(default = "run_dir")]
    pub run_dir: PathBuf,
}

fn state_dir() -> PathBuf {
    PathBuf::from("/var/lib/gpuaas/agent")
}

fn run_dir() -> PathBuf {
    PathBuf::from("/run/gpuaas")
}

/// Why the agent cannot be configured.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// A file cannot be read.
    #[error("cannot read {path}: {source}")]
    Read {
        /// The file.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// The configuration is not what it should be.
    #[error("invalid agent configuration {path}: {reason}")]
    Malformed {
        /// The file.
        path: PathBuf,
        /// Line, column and kind of the error; no value of the file.
        reason: String,
    },
    /// Over plain http the enrollment token could be read, and there is no certificate to get.
    #[error(
        "invalid control plane URL {url}: expected https, since the agent authenticates with a \
         certificate"
    )]
    PlainUrl {
        /// The control plane's URL, as the file has it.
        url: String,
    },
    /// HTTP cannot be set up.
    #[error(transparent)]
    Setup(#[from] SetupError),
}

impl AgentFile {
    /// Reads the file at `path`, a path of this process.
    ///
    /// # Errors
    /// It cannot be read, is no JSON, lacks a field or has one too many.
    pub fn read(path: &Path) -> Result<Self, ConfigError> {
        let bytes = read(path)?;
        serde_json::from_slice(&bytes).map_err(|error| ConfigError::Malformed {
            path: path.to_owned(),
            reason: error.to_string(),
        })
    }

    /// The arguments of [`crate::agent::run`] for the host at `root`; see [`Host::at`] for
    /// `emulator`.
    ///
    /// # Errors
    /// The control plane is to be reached in plain text; the certificate file cannot be read or
    /// holds no certificate.
    pub fn open(
        self,
        root: &HostRoot,
        emulator: Option<PathBuf>,
    ) -> Result<(AgentConfig, ControlPlane), ConfigError> {
        if !self.control_plane_url.starts_with("https://") {
            return Err(ConfigError::PlainUrl { url: self.control_plane_url });
        }
        let ca_file = self.ca_file.map(|path| root.join(path));
        let ca_pem = ca_file.as_deref().map(read).transpose()?;
        let control_plane = if self.trust_system {
            ControlPlane::with_system_roots(&self.control_plane_url, ca_pem.as_deref())?
        } else {
            ControlPlane::new(&self.control_plane_url, ca_pem.as_deref())?
        };
        let env = AgentEnv {
            state_dir: Some(root.join(&self.state_dir)),
            secrets: vec![self.enrollment_token.clone()],
            ..AgentEnv::default()
        };
        let config = AgentConfig {
            run_id: self.run_id,
            hostname: self.hostname,
            enrollment_token: self.enrollment_token,
            identity: IdentityStore::File(root.join(self.state_dir).join("identity.json")),
            ready_file: Some(root.join(self.run_dir).join("ready.json")),
            ready: None,
            host: Host::at(root.clone(), emulator),
            ca_file,
            env,
            max_backoff_seconds: 60.0,
        };
        Ok((config, control_plane))
    }
}

fn read(path: &Path) -> Result<Vec<u8>, ConfigError> {
    std::fs::read(path).map_err(|source| ConfigError::Read { path: path.to_owned(), source })
}
