//! What a lab leaves on disk, so that it can be killed and started again.
//!
//! The control plane's state is its store. What else must be known to go on is in `lab.json`: where
//! the simulator lives on, the clock both share, the port that nodes were told, what was asked. It
//! is written before the first machine is named, and removed when the lab has ended; a folder
//! without it begins anew. A lock file, held for as long as a lab runs, keeps two labs out of one
//! folder.

use std::fs::{File, TryLockError};
use std::io::ErrorKind;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use gpuaas_client::failure::Failure;
use gpuaas_types::Timestamp;
use gpuaas_types::codes::CommandCode;
use serde::{Deserialize, Serialize};

const STATE: &str = "lab.json";
const LOCK: &str = "lab.lock";
/// API key of the region's administrator, for its user alone.
pub const API_KEY_FILE: &str = "maas-api-key";
/// Everything that a lab makes in its folder, besides the lock.
const OURS: [&str; 8] = [
    "clock-pauses",
    STATE,
    "control-plane",
    "hosts",
    "faults.json",
    "simulator.log",
    "control-plane.log",
    API_KEY_FILE,
];

/// What makes two labs the same lab.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LabRequest {
    /// How many machines the lab has.
    pub nodes: usize,
    /// `max`, or the factor as text.
    pub speed: String,
    /// The seed of the lab's region.
    pub seed: u64,
    /// The scenario's name.
    pub scenario: String,
    /// Machines whose hosts are whole systems.
    #[serde(default)]
    pub real_hosts: usize,
}

impl std::fmt::Display for LabRequest {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let plural = if self.nodes == 1 { "" } else { "s" };
        write!(
            f,
            "{} machine{plural} (scenario {}, speed {}, seed {})",
            self.nodes, self.scenario, self.speed, self.seed
        )
    }
}

/// Where the simulator lives.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SimulatorAddress {
    /// The process id of the region.
    pub pid: u32,
    /// Where the region answers, `http://HOST:PORT`.
    pub url: String,
    /// API key of the region's administrator; empty in what an earlier version wrote.
    #[serde(default)]
    pub api_key: String,
}

/// An unfinished lab.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct LabState {
    /// What was asked.
    pub asked: LabRequest,
    /// The shared clock, as the command line writes it.
    pub clock: String,
    /// The simulator.
    pub simulator: SimulatorAddress,
    /// Where the control plane listens.
    pub listen: SocketAddr,
    /// Where nodes look for it, over TLS; none: they are stand-ins.
    #[serde(default)]
    pub node_listen: Option<SocketAddr>,
    /// Identifiers of machines that were in MAAS before.
    pub before: Vec<String>,
    /// When the first request was made, by the wall clock.
    pub begun_at: Timestamp,
    /// How many acts of the scenario are over.
    #[serde(default)]
    pub actions_done: usize,
}

/// A lab's folder, locked.
#[derive(Debug)]
pub struct LabFolder {
    path: PathBuf,
    _lock: File,
}

impl LabFolder {
    /// Makes the folder where it is missing, and locks it.
    ///
    /// # Errors
    /// `lab_running` while another lab runs in it; `lab_folder_unusable`.
    pub fn lock(path: &Path) -> Result<Self, Failure> {
        std::fs::create_dir_all(path).map_err(|error| unusable(path, &error))?;
        let file = File::create(path.join(LOCK)).map_err(|error| unusable(path, &error))?;
        match file.try_lock() {
            Ok(()) => {
                let path = path.canonicalize().map_err(|error| unusable(path, &error))?;
                Ok(Self { path, _lock: file })
            }
            Err(TryLockError::WouldBlock) => {
                Err(Failure::local(CommandCode::LabRunning, path.display().to_string())
                    .hint("wait for it, stop it, or use another --data DIR"))
            }
            Err(TryLockError::Error(error)) => Err(unusable(path, &error)),
        }
    }

    /// A file or folder in it.
    #[must_use]
    pub fn join(&self, name: &str) -> PathBuf {
        self.path.join(name)
    }

    /// Where it is.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The unfinished lab in it.
    ///
    /// # Errors
    /// `lab_folder_unusable` where the record is there and cannot be read.
    pub fn unfinished(&self) -> Result<Option<LabState>, Failure> {
        let path = self.join(STATE);
        match std::fs::read_to_string(&path) {
            Ok(text) => serde_json::from_str(&text).map(Some).map_err(|error| {
                unusable(&path, &error).hint("remove this file to start a new lab")
            }),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
            Err(error) => Err(unusable(&path, &error)),
        }
    }

    /// Remembers an unfinished lab; whole or not at all.
    ///
    /// # Errors
    /// `lab_folder_unusable`.
    pub fn remember(&self, state: &LabState) -> Result<(), Failure> {
        let path = self.join(STATE);
        let next = self.join("lab.json.next");
        let text = serde_json::to_vec_pretty(state).map_err(|error| unusable(&path, &error))?;
        std::fs::write(&next, text)
            .and_then(|()| std::fs::rename(&next, &path))
            .map_err(|error| unusable(&path, &error))
    }

    /// Forgets the lab but keeps its files, to be looked at.
    ///
    /// # Errors
    /// `lab_folder_unusable`.
    pub fn forget(&self) -> Result<(), Failure> {
        remove(&self.join(STATE))
    }

    /// Removes everything that a lab made here, and nothing else.
    ///
    /// # Errors
    /// `lab_folder_unusable`.
    pub fn clear(&self) -> Result<(), Failure> {
        OURS.iter().try_for_each(|name| remove(&self.join(name)))
    }

    /// Removes everything that a lab made here, the folder too where nothing else is in it.
    ///
    /// # Errors
    /// `lab_folder_unusable`.
    pub fn remove(self) -> Result<(), Failure> {
        self.clear()?;
        remove(&self.join(LOCK))?;
        match std::fs::remove_dir(&self.path) {
            Err(error) if error.kind() != ErrorKind::DirectoryNotEmpty => {
                Err(unusable(&self.path, &error))
            }
            _ => Ok(()),
        }
    }
}

fn remove(path: &Path) -> Result<(), Failure> {
    let removed = match path.symlink_metadata() {
        Ok(metadata) if metadata.is_dir() => std::fs::remove_dir_all(path),
        Ok(_) => std::fs::remove_file(path),
        Err(error) => Err(error),
    };
    match removed {
        Err(error) if error.kind() != ErrorKind::NotFound => Err(unusable(path, &error)),
        _ => Ok(()),
    }
}

fn unusable(path: &Path, error: &dyn std::fmt::Display) -> Failure {
    Failure::local(CommandCode::LabFolderUnusable, format!("{}: {error}", path.display()))
        .hint("choose another folder with --data DIR")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn state() -> LabState {
        LabState {
            asked: LabRequest {
                nodes: 3,
                speed: "30".to_owned(),
                seed: 1,
                scenario: "plain".to_owned(),
                real_hosts: 0,
            },
            clock: "paced:30:1795190400000000".to_owned(),
            simulator: SimulatorAddress {
                pid: 42,
                url: "http://127.0.0.1:1234".to_owned(),
                api_key: "a:b:c".to_owned(),
            },
            listen: SocketAddr::from(([127, 0, 0, 1], 8080)),
            node_listen: Some(SocketAddr::from(([127, 0, 0, 1], 8443))),
            before: vec!["abc123".to_owned()],
            begun_at: Timestamp::from_micros(1_795_190_400_000_000),
            actions_done: 2,
        }
    }

    #[test]
    fn a_lab_is_remembered_until_it_is_forgotten() {
        let dir = tempfile::tempdir().unwrap();
        let folder = LabFolder::lock(&dir.path().join("lab")).unwrap();
        assert_eq!(folder.unfinished().unwrap(), None);
        folder.remember(&state()).unwrap();
        assert_eq!(folder.unfinished().unwrap(), Some(state()));
        assert_eq!(LabFolder::lock(folder.path()).unwrap_err().code(), "lab_running");
        folder.forget().unwrap();
        assert_eq!(folder.unfinished().unwrap(), None);
    }

    #[test]
    fn only_what_a_lab_made_is_removed() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("lab");
        let folder = LabFolder::lock(&path).unwrap();
        std::fs::create_dir_all(folder.join("hosts/j22u11")).unwrap();
        std::fs::write(folder.join("notes.txt"), "mine").unwrap();
        folder.remember(&state()).unwrap();
        folder.remove().unwrap();
        assert!(path.join("notes.txt").exists());
        assert!(!path.join("hosts").exists());
        std::fs::remove_file(path.join("notes.txt")).unwrap();
        LabFolder::lock(&path).unwrap().remove().unwrap();
        assert!(!path.exists());
    }

    #[test]
    fn a_lab_is_named_by_what_was_asked() {
        assert_eq!(state().asked.to_string(), "3 machines (scenario plain, speed 30, seed 1)");
    }
}
