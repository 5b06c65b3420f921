//! What nodes and operators share with the control planes, across their crashes.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use gpuaas_engine::{Clock as _, VirtualClock};
use gpuaas_node_agent::slice::StandInHost;
use gpuaas_store::Store;
use gpuaas_types::agent::BootstrapPhase;
use gpuaas_types::{NodeId, RunId};

use crate::plan::RETRY_SECONDS;
use crate::seeded_ids::SeededIds;

/// Runs that somebody has looked at.
#[derive(Default)]
pub(crate) struct TouchedRuns(Mutex<Vec<RunId>>);

impl TouchedRuns {
    pub(crate) fn add(&self, run_id: RunId) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push(run_id);
    }

    pub(crate) fn take(&self) -> Vec<RunId> {
        std::mem::take(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// The credential of an agent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AgentCredentialRecord {
    /// Whose it is.
    pub node_id: NodeId,
    /// Run that it was made in.
    pub run_id: RunId,
    /// SHA-256 of it, as the store keeps it.
    pub hash: [u8; 32],
}

/// What nodes and operators share with the control plane.
pub(crate) struct SharedState {
    pub(crate) store: Store,
    pub(crate) clock: VirtualClock,
    pub(crate) ids: Arc<SeededIds>,
    pub(crate) up: AtomicBool,
    /// Enrollment tokens that were taken a second time after their first heartbeat.
    pub(crate) tokens_taken_twice: AtomicUsize,
    /// Of every agent that was ever taken.
    pub(crate) credentials: Mutex<Vec<AgentCredentialRecord>>,
    pub(crate) failing_tasks: f64,
    /// Seconds between two heartbeats of an agent whose run is over; 0: it sends none.
    pub(crate) heartbeat_seconds: f64,
    /// Hosts of slices by node, each from the first part of a slice that its agent is given to the end
    /// of its system.
    pub(crate) slice_hosts: Mutex<BTreeMap<NodeId, Arc<StandInHost>>>,
    /// What goes wrong on hosts until somebody mends it.
    pub(crate) host_fault: Mutex<Option<HostFault>>,
}

/// What goes wrong on every host.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HostFault {
    /// The bootstrap calls back that this phase failed, and ends.
    BootstrapFails(BootstrapPhase),
    /// Somebody asks to enroll with a copy of the agent's token once the agent is enrolled.
    TokenCopied,
    /// The agent cannot do its tasks.
    TasksFail,
    /// The agent does its tasks and finds that the host is not as it should be.
    HostIsBad,
    /// The host asks to be started again, and asks for it still after a boot.
    NeedsReboots,
}

impl SharedState {
    /// The host of a node's slices.
    pub(crate) fn slice_host(&self, node_id: NodeId) -> Arc<StandInHost> {
        let mut hosts = self.slice_hosts.lock().unwrap_or_else(PoisonError::into_inner);
        Arc::clone(hosts.entry(node_id).or_default())
    }

    /// The system of a node is gone, and what its slices were with it.
    pub(crate) fn drop_slice_host(&self, node_id: Option<NodeId>) {
        let mut hosts = self.slice_hosts.lock().unwrap_or_else(PoisonError::into_inner);
        node_id.map(|id| hosts.remove(&id));
    }

    /// What is wrong with hosts just now.
    pub(crate) fn host_fault(&self) -> Option<HostFault> {
        *self.host_fault.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns once the control plane answers.
    pub(crate) async fn until_reachable(&self) {
        while !self.up.load(Ordering::SeqCst) {
            self.clock.sleep_until(self.clock.now().plus_seconds(RETRY_SECONDS)).await;
        }
    }
}
