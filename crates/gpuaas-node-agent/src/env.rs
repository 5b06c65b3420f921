//! What the agent works with beside the host: its folder, its secrets, its own executable.

use std::ffi::OsString;
use std::path::PathBuf;
use std::sync::Arc;

use tokio_util::sync::CancellationToken;

use crate::protocol::ControlPlane;
use crate::slice::SliceEnv;
use crate::tpm::QuoteSource;

/// How this process was launched, and from which file.
#[derive(Debug, Clone)]
pub struct LaunchCommand {
    /// The executable, by the name that it was launched by.
    pub executable: PathBuf,
    /// The arguments behind that name.
    pub arguments: Vec<OsString>,
}

/// What the agent works with beside the host that it works on.
#[derive(Debug, Clone, Default)]
pub struct AgentEnv {
    /// Folder of the agent's own files; `None`: it writes none.
    pub state_dir: Option<PathBuf>,
    /// Texts that must never leave the host.
    pub secrets: Vec<String>,
    /// How the agent was launched; `None`: it has no executable that could be replaced.
    pub launch: Option<LaunchCommand>,
    /// Where executables are downloaded from.
    pub control_plane: Option<ControlPlane>,
    /// What signs with the machine's hardware; `None`: it has nothing that could.
    pub tpm: Option<Arc<dyn QuoteSource>>,
    /// What the slices of the host share.
    pub slices: SliceEnv,
    /// Cancelled when another executable has replaced this one, which then ends.
    pub restart: CancellationToken,
}
