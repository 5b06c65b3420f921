//! The host that the agent works on: a real one, one that a program emulates below a folder, or the
//! fixed facts of a simulated one.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use host_facts::HostRoot;
use serde_json::Value;

/// Environment variable with the path of the host emulator: the program that answers for the
/// kernel and the daemons of a host that is a folder.
pub const EMULATOR_VARIABLE: &str = "GPUAAS_FIXTURE_KERNEL";

/// What the agent works on.
#[derive(Debug, Clone)]
pub enum Host {
    /// The files below a root. Its programs are run only where the root is `/`.
    Root(HostRoot),
    /// The files below a folder, and the host emulator that answers for its programs:
    /// `PROGRAM ask COMMAND...` prints what the command prints there (`host.sh` has the rest).
    Emulated(HostRoot, PathBuf),
    /// Fixed facts of a simulated host that has no files.
    Fixed(Arc<Value>),
}

impl Host {
    /// The host at `root`; `emulator` answers for it unless `root` is this machine's own `/`.
    #[must_use]
    pub fn at(root: HostRoot, emulator: Option<PathBuf>) -> Self {
        match emulator {
            Some(emulator) if root.path() != Path::new("/") => Self::Emulated(root, emulator),
            _ => Self::Root(root),
        }
    }

    /// Host facts as JSON, as far as they are in files. Gates need no more than these.
    pub async fn facts(&self) -> Value {
        match self {
            Self::Fixed(facts) => facts.as_ref().clone(),
            Self::Root(root) | Self::Emulated(root, _) => {
                let root = root.clone();
                let facts = tokio::task::spawn_blocking(move || root.read()).await;
                facts.ok().and_then(|facts| serde_json::to_value(facts).ok()).unwrap_or_default()
            }
        }
    }

    /// The root of the host's files; `None` for a simulated host without files.
    #[must_use]
    pub const fn root(&self) -> Option<&HostRoot> {
        match self {
            Self::Root(root) | Self::Emulated(root, _) => Some(root),
            Self::Fixed(_) => None,
        }
    }

    /// Seconds since the host booted (`/proc/uptime`); `None` where the host does not say.
    #[must_use]
    pub fn uptime_seconds(&self) -> Option<f64> {
        match self {
            Self::Fixed(facts) => facts.get("uptime_seconds")?.as_f64(),
            Self::Root(root) | Self::Emulated(root, _) => root.uptime_seconds(),
        }
    }
}

/// The host emulator that `environment` names in [`EMULATOR_VARIABLE`], if any.
#[must_use]
pub fn emulator_from_env(environment: &BTreeMap<String, String>) -> Option<PathBuf> {
    environment.get(EMULATOR_VARIABLE).filter(|path| !path.is_empty()).map(PathBuf::from)
}
