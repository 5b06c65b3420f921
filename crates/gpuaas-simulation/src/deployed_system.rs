//! A deployed system: which deployment of a machine it is, and the task that stands for its agent.

use std::sync::{Arc, Mutex, PoisonError};

use gpuaas_types::NodeId;

use crate::executor::{Crew, Group};
use crate::node;
use crate::shared_state::Plane;

/// A deployed system.
pub(crate) struct System {
    pub(crate) deployment: u64,
    pub(crate) life: u64,
    pub(crate) on: bool,
    pub(crate) enrolled: Arc<Mutex<Option<node::Enrolled>>>,
}

impl System {
    pub(crate) fn enrolled(&self) -> Option<node::Enrolled> {
        *self.enrolled.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn node_id(&self) -> Option<NodeId> {
        self.enrolled().map(|enrolled| enrolled.node_id)
    }

    /// Lets its agent, if it has one, run again.
    pub(crate) fn revive(&mut self, crew: &mut Crew, plane: &Arc<Plane>) {
        if let (Some(enrolled), false) = (self.enrolled(), crew.has(self.life)) {
            self.life = crew.add(Group::World, node::agent(Arc::clone(plane), enrolled));
        }
    }
}
