//! A fabric manager in memory: a board with eight GPUs, and what goes wrong with it.

use async_trait::async_trait;
use gpuaas_types::topology::FabricPartition;
use parking_lot::Mutex;

use super::fabric_manager::FabricManager;
use super::host::SliceHostError;

/// Partitions of a board with eight GPUs, as its fabric manager lists them, by module id.
const PARTITIONS: [&[u32]; 15] = [
    &[1, 2, 3, 4, 5, 6, 7, 8],
    &[1, 2, 3, 4],
    &[5, 6, 7, 8],
    &[1, 3],
    &[2, 4],
    &[5, 7],
    &[6, 8],
    &[1],
    &[2],
    &[3],
    &[4],
    &[5],
    &[6],
    &[7],
    &[8],
];

#[derive(Debug)]
struct State {
    active: [bool; PARTITIONS.len()],
    refuses: bool,
    stays: bool,
    calls: u32,
}

/// A fabric manager in memory.
#[derive(Debug)]
pub struct StandInFabricManager {
    state: Mutex<State>,
    turn: tokio::sync::Mutex<()>,
}

impl Default for StandInFabricManager {
    fn default() -> Self {
        let state =
            State { active: [false; PARTITIONS.len()], refuses: false, stays: false, calls: 0 };
        Self { state: Mutex::new(state), turn: tokio::sync::Mutex::default() }
    }
}

impl StandInFabricManager {
    /// Whether it refuses each activation, and whether partitions stay active in spite of what it says.
    pub fn set_faults(&self, refuses: bool, stays: bool) {
        let mut state = self.state.lock();
        (state.refuses, state.stays) = (refuses, stays);
    }

    /// Starts anew, and forgets which partitions were active.
    pub fn restart(&self) {
        self.state.lock().active = [false; PARTITIONS.len()];
    }

    /// Makes a partition active for nobody, as one that was left behind.
    pub fn leave_active(&self, id: u32) {
        if let Some(active) = self.state.lock().active.get_mut(id as usize) {
            *active = true;
        }
    }

    /// Numbers of the partitions that are active.
    #[must_use]
    pub fn active(&self) -> Vec<u32> {
        let state = self.state.lock();
        (0..).zip(state.active).filter(|(_, active)| *active).map(|(id, _)| id).collect()
    }

    /// Activations and deactivations that were asked for.
    #[must_use]
    pub fn calls(&self) -> u32 {
        self.state.lock().calls
    }
}

fn refused(id: u32, status: i32) -> SliceHostError {
    let message = format!("fmpm failed: partition {id}, fmReturn: {status}");
    SliceHostError::new("tool_failed", message)
}

#[async_trait]
impl FabricManager for StandInFabricManager {
    fn turn(&self) -> &tokio::sync::Mutex<()> {
        &self.turn
    }

    async fn partitions(&self) -> Result<Vec<FabricPartition>, SliceHostError> {
        let active = self.state.lock().active;
        let all = (0..).zip(PARTITIONS).zip(active);
        let partition = |((id, modules), active): ((u32, &[u32]), bool)| FabricPartition {
            id,
            modules: modules.to_vec(),
            active,
        };
        Ok(all.map(partition).collect())
    }

    async fn activate(&self, id: u32) -> Result<(), SliceHostError> {
        let mut state = self.state.lock();
        state.calls += 1;
        let modules = PARTITIONS.get(id as usize).ok_or_else(|| refused(id, -1))?;
        // FM_ST_IN_USE: one of its GPUs is in a partition that is active.
        let overlaps = PARTITIONS
            .iter()
            .zip(state.active)
            .any(|(other, active)| active && other.iter().any(|module| modules.contains(module)));
        if state.refuses || overlaps {
            return Err(refused(id, -7));
        }
        state.active[id as usize] = true;
        Ok(())
    }

    async fn deactivate(&self, id: u32) -> Result<(), SliceHostError> {
        let mut state = self.state.lock();
        state.calls += 1;
        let stays = state.stays;
        let active = state.active.get_mut(id as usize).ok_or_else(|| refused(id, -1))?;
        // FM_ST_UNINITIALIZED: it is not active.
        if !*active {
            return Err(refused(id, -4));
        }
        *active = stays;
        Ok(())
    }
}
