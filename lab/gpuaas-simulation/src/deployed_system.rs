//! A deployed system: the deployment of a machine that it is from, and the task of its agent.

use std::sync::{Arc, Mutex, PoisonError};

use gpuaas_artifact::BootstrapInputs;
use gpuaas_types::NodeId;

use crate::executor::{Executor, TaskOwner};
use crate::node;
use crate::shared_state::SharedState;

/// A deployed system.
pub(crate) struct DeployedSystem {
    pub(crate) deployment: u64,
    pub(crate) task_id: u64,
    pub(crate) on: bool,
    pub(crate) enrolled: Arc<Mutex<Option<node::EnrolledAgent>>>,
    /// What its bootstrap was told.
    pub(crate) inputs: BootstrapInputs,
}

impl DeployedSystem {
    pub(crate) fn enrolled(&self) -> Option<node::EnrolledAgent> {
        *self.enrolled.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn node_id(&self) -> Option<NodeId> {
        self.enrolled().map(|enrolled| enrolled.node_id)
    }

    /// Lets its agent, if it has one, run again.
    pub(crate) fn restart_agent(&mut self, executor: &mut Executor, shared: &Arc<SharedState>) {
        if let (Some(enrolled), false) = (self.enrolled(), executor.contains(self.task_id)) {
            self.task_id = executor
                .spawn(TaskOwner::Environment, node::run_agent(Arc::clone(shared), enrolled));
        }
    }
}
