//! Who the agent is, kept over restarts.
//!
//! The credential is handed out once. A crash between the answer and the file costs nothing: the
//! control plane answers the same token of the same run again until it has seen a heartbeat.

use std::io;
use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};

use gpuaas_types::agent::TaskKeys;
use gpuaas_types::{NodeId, RunId};
use serde::{Deserialize, Serialize};

use crate::files;

/// What an enrollment gave.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Identity {
    /// The run that enrolled this system; another run means another enrollment.
    pub run_id: RunId,
    /// The node that this host is.
    pub node_id: NodeId,
    /// Bearer credential of the agent. Secret.
    pub credential: String,
    /// How often to send a heartbeat, in seconds.
    pub heartbeat_interval_seconds: u32,
    /// Longest task poll, in seconds; 0: ask for tasks after each heartbeat instead.
    pub poll_seconds: u32,
    /// Whose tasks are carried out.
    pub task_keys: TaskKeys,
}

impl std::fmt::Debug for Identity {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Identity")
            .field("run_id", &self.run_id)
            .field("node_id", &self.node_id)
            .finish_non_exhaustive()
    }
}

/// Where an identity is kept.
#[derive(Debug)]
pub enum IdentityStore {
    /// In this file, mode 0600.
    File(PathBuf),
    /// In memory: a stand-in that is restarted enrolls again.
    Memory(Mutex<Option<Identity>>),
}

impl IdentityStore {
    /// An empty store in memory.
    #[must_use]
    pub const fn memory() -> Self {
        Self::Memory(Mutex::new(None))
    }

    /// The identity of `run`, when there is one. A damaged file counts as none.
    #[must_use]
    pub fn load(&self, run: RunId) -> Option<Identity> {
        let identity = match self {
            Self::File(path) => serde_json::from_slice(&std::fs::read(path).ok()?).ok()?,
            Self::Memory(cell) => cell.lock().unwrap_or_else(PoisonError::into_inner).clone()?,
        };
        (identity.run_id == run).then_some(identity)
    }

    /// Keeps `identity`.
    ///
    /// # Errors
    /// The file cannot be written; the one before is still there then.
    pub fn save(&self, identity: &Identity) -> io::Result<()> {
        match self {
            Self::File(path) => files::replace(path, &serde_json::to_vec(identity)?),
            Self::Memory(cell) => {
                *cell.lock().unwrap_or_else(PoisonError::into_inner) = Some(identity.clone());
                Ok(())
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;
    use uuid::Uuid;

    #[test]
    fn a_file_keeps_the_identity_of_one_run() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("deep/identity.json");
        let store = IdentityStore::File(path.clone());
        let (run, other) = (RunId(Uuid::from_u128(1)), RunId(Uuid::from_u128(2)));
        assert!(store.load(run).is_none());
        let identity = Identity {
            run_id: run,
            node_id: NodeId(Uuid::from_u128(3)),
            credential: "c".repeat(43),
            heartbeat_interval_seconds: 30,
            poll_seconds: 20,
            task_keys: TaskKeys::default(),
        };
        store.save(&identity).unwrap();
        store.save(&identity).unwrap();
        assert_eq!(store.load(run), Some(identity.clone()));
        assert!(store.load(other).is_none());
        assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        assert!(!format!("{identity:?}").contains("ccc"));
        std::fs::write(&path, "{\"run_id\":").unwrap();
        assert!(store.load(run).is_none());
    }
}
