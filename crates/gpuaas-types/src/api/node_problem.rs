//! Whether a node's agent is heard, and what is wrong with a node.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::park::{Owner, ParkAction};
use crate::source::Source;
use crate::string_enum::string_enum;
use crate::time::Timestamp;

string_enum!(
    /// Whether the control plane hears a node's agent.
    ConnectivityState {
        /// No heartbeat ever came.
        Never = "never",
        /// Heartbeats come.
        Online = "online",
        /// None came for longer than the node's profile allows.
        Offline = "offline",
    }
);

/// Whether the control plane hears a node's agent, and since when.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Connectivity {
    /// Heard, silent, or never heard.
    pub state: ConnectivityState,
    /// Online: the first heartbeat after the latest silence, or after the enrollment. Offline: the
    /// last heartbeat. None: never heard, or not known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub since: Option<Timestamp>,
    /// Age of the last heartbeat, in seconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub heard_seconds_ago: Option<f64>,
}

impl Default for Connectivity {
    /// An agent that was never heard.
    fn default() -> Self {
        Self { state: ConnectivityState::Never, since: None, heard_seconds_ago: None }
    }
}

/// Something that is wrong with a node, from the table [`crate::codes::NODE_PROBLEMS`].
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct NodeProblem {
    /// Stable code, such as `agent_silent`.
    pub code: String,
    /// Whose view it is.
    pub source: Source,
    /// Who has to act.
    pub owner: Owner,
    /// Since when it is so, as far as is known.
    pub since: Timestamp,
    /// When it was last seen.
    pub observed_at: Timestamp,
    /// Age of that look, in seconds.
    pub observed_seconds_ago: f64,
    /// That look is too long ago to rely on.
    pub stale: bool,
    /// One sentence that says whose view it is.
    pub text: String,
    /// What to do next.
    pub next_action: String,
    /// The commands of `next_action`, in its order.
    #[serde(default)]
    pub actions: Vec<ParkAction>,
}
