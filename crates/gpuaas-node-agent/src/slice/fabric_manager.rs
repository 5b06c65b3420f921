//! NVIDIA's fabric manager, which has NVSwitches join the GPUs of a partition and no others.
//!
//! Only its client is known here (`fmpm`, for the library of the fabric manager's API): `-l` lists,
//! `-a` activates, `-d` deactivates. It says an error in a line of text and in its exit status, which some
//! builds leave at 0, so nothing that it answers is believed before the list says the same.

use async_trait::async_trait;
use gpuaas_types::topology::FabricPartition;
use host_facts::topology::queries::{FABRIC_CLIENT, fabric_partitions};
use tokio::sync::Mutex;

use super::error::SliceHostError;
use crate::command::CommandRunner;

/// Longest time of a call, in seconds. An activation trains links.
const CALL_SECONDS: u64 = 120;

/// What keeps the GPUs of guests apart on NVSwitches.
#[async_trait]
pub trait FabricManager: Send + Sync {
    /// Held by whoever looks at partitions to change them: what it sees stays so meanwhile.
    fn turn(&self) -> &Mutex<()>;
    /// Each partition, active or not.
    async fn partitions(&self) -> Result<Vec<FabricPartition>, SliceHostError>;
    /// Has the switches join the GPUs of a partition; whether they do is in the list.
    async fn activate(&self, id: u32) -> Result<(), SliceHostError>;
    /// Has the switches part them again; whether they did is in the list.
    async fn deactivate(&self, id: u32) -> Result<(), SliceHostError>;
}

/// The fabric manager that this host's client reaches.
pub(super) struct FabricClient<'a> {
    pub(super) runner: CommandRunner<'a>,
    pub(super) turn: &'a Mutex<()>,
}

#[async_trait]
impl FabricManager for FabricClient<'_> {
    fn turn(&self) -> &Mutex<()> {
        self.turn
    }

    async fn partitions(&self) -> Result<Vec<FabricPartition>, SliceHostError> {
        let output = self.runner.query(FABRIC_CLIENT, &["-l"], CALL_SECONDS).await?;
        fabric_partitions(&output.stdout).ok_or_else(|| {
            let line = output.stdout.lines().next().unwrap_or_default();
            let message = format!("{FABRIC_CLIENT} -l printed no partitions: {line}");
            SliceHostError::new("fabric_manager_silent", message)
        })
    }

    async fn activate(&self, id: u32) -> Result<(), SliceHostError> {
        self.runner.run(FABRIC_CLIENT, &["-a", &id.to_string()], CALL_SECONDS).await?;
        Ok(())
    }

    async fn deactivate(&self, id: u32) -> Result<(), SliceHostError> {
        self.runner.run(FABRIC_CLIENT, &["-d", &id.to_string()], CALL_SECONDS).await?;
        Ok(())
    }
}
