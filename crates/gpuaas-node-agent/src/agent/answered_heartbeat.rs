//! The last heartbeat, where polls may stand for the next ones.

use gpuaas_types::agent::HeartbeatRequest;

/// A heartbeat that was answered with nothing for the agent to do.
#[derive(Debug, Clone)]
pub(super) struct AnsweredHeartbeat {
    /// What the agent said in it.
    pub(super) heartbeat: HeartbeatRequest,
    /// What a poll calls it.
    pub(super) digest: String,
}
