//! Nodes that a certificate is being signed for. Certificates of a node are counted before one is signed,
//! and another request of the node would count the same ones; so a node has one such request at a time.

use std::collections::HashSet;
use std::sync::Arc;

use gpuaas_types::codes::ProblemCode;
use gpuaas_types::{NodeId, Problem};
use parking_lot::Mutex;

use crate::http::problem::problem;

/// Nodes that a certificate is being signed for.
#[derive(Debug, Default)]
pub(crate) struct Issuing(Arc<Mutex<HashSet<NodeId>>>);

/// A request that a certificate is being signed for; dropping it lets the node's next one begin.
#[derive(Debug)]
pub(crate) struct IssuingTurn {
    nodes: Arc<Mutex<HashSet<NodeId>>>,
    node_id: NodeId,
}

impl Issuing {
    /// Begins a request of a node.
    ///
    /// # Errors
    /// `too_many_requests` while another one of the node is in progress.
    pub(crate) fn begin(&self, node_id: NodeId) -> Result<IssuingTurn, Problem> {
        if self.0.lock().insert(node_id) {
            return Ok(IssuingTurn { nodes: Arc::clone(&self.0), node_id });
        }
        let detail = "another certificate request of this node is in progress";
        let hint = "wait for the answer to the first request, then retry";
        Err(problem(ProblemCode::TooManyRequests).with_detail(detail).with_hint(hint))
    }
}

impl Drop for IssuingTurn {
    fn drop(&mut self) {
        self.nodes.lock().remove(&self.node_id);
    }
}
