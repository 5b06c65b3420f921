//! Tasks that this host has carried out, remembered until they expire.
//!
//! A signed task is good until it expires, so whoever kept a copy could have it carried out again:
//! a reset, a restart, an update. The agent therefore remembers, over its restarts, which ones are
//! behind it.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};

use gpuaas_types::{TaskId, Timestamp};
use parking_lot::Mutex;

use crate::atomic_file;

/// Seconds for which a task is remembered after its expiry: more than a clock may be corrected by.
const MARGIN_SECONDS: f64 = 900.0;
/// Tasks that are remembered at most; the ones that expire first are forgotten first.
const MAX_TASKS: usize = 4096;

/// The file `carried-out.json` of the agent's folder; in memory only for a simulated host.
#[derive(Debug)]
pub(crate) struct CarriedOutTasks {
    path: Option<PathBuf>,
    expiries: Mutex<BTreeMap<TaskId, Timestamp>>,
}

impl CarriedOutTasks {
    /// The tasks that are remembered in `state_dir`. A damaged file counts as empty.
    pub(crate) fn load(state_dir: Option<&Path>) -> Self {
        let path = state_dir.map(|folder| folder.join("carried-out.json"));
        let read = |path: &PathBuf| serde_json::from_slice(&std::fs::read(path).ok()?).ok();
        let expiries = path.as_ref().and_then(read).unwrap_or_default();
        Self { path, expiries: Mutex::new(expiries) }
    }

    /// Whether this task is behind the host.
    pub(crate) fn contains(&self, id: TaskId) -> bool {
        self.expiries.lock().contains_key(&id)
    }

    /// Remembers a task until it has expired.
    ///
    /// # Errors
    /// The file cannot be written; the task is remembered until this process ends then.
    pub(crate) fn add(&self, id: TaskId, expires_at: Timestamp, now: Timestamp) -> io::Result<()> {
        let mut expiries = self.expiries.lock();
        expiries.retain(|_, expiry| now.seconds_since(*expiry) <= MARGIN_SECONDS);
        while expiries.len() >= MAX_TASKS {
            let soonest = expiries.iter().min_by_key(|(_, expiry)| **expiry).map(|(id, _)| *id);
            soonest.map(|id| expiries.remove(&id));
        }
        expiries.insert(id, expires_at);
        match &self.path {
            Some(path) => atomic_file::replace(path, &serde_json::to_vec(&*expiries)?),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use uuid::Uuid;

    #[test]
    fn a_task_is_remembered_over_restarts_until_it_has_expired() {
        let dir = tempfile::tempdir().unwrap();
        let load = || CarriedOutTasks::load(Some(dir.path()));
        let at = |seconds| Timestamp::EPOCH.plus_seconds(seconds);
        let id = |number| TaskId(Uuid::from_u128(number));
        load().add(id(1), at(1000.0), at(10.0)).unwrap();
        load().add(id(2), at(9000.0), at(1000.0 + MARGIN_SECONDS)).unwrap();
        assert!(load().contains(id(1)) && load().contains(id(2)) && !load().contains(id(3)));
        load().add(id(3), at(9000.0), at(1001.0 + MARGIN_SECONDS)).unwrap();
        assert!(!load().contains(id(1)) && load().contains(id(2)), "it has expired");
        let tasks = load();
        tasks.expiries.lock().extend((10..10 + MAX_TASKS as u128).map(|n| (id(n), at(9500.0))));
        tasks.add(id(4), at(9999.0), at(2000.0)).unwrap();
        assert_eq!(tasks.expiries.lock().len(), MAX_TASKS);
        assert!(tasks.contains(id(4)) && !tasks.contains(id(2)), "the first to expire goes first");
        std::fs::write(dir.path().join("carried-out.json"), "{").unwrap();
        assert!(!load().contains(id(4)));
    }
}
