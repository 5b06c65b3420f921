//! Settings of an engine.

use gpuaas_artifact::Artifact;

use crate::node::trust::NodeAnchors;

/// Seconds between two looks at the event feed of a site whose runs MAAS holds up, unless an engine is
/// told otherwise: what happens is seen 0.3 s later on average.
pub const POLL_SECONDS: f64 = 0.6;
/// Seconds between two looks at the event feed of a site that is only followed, unless an engine is
/// told otherwise.
pub const IDLE_POLL_SECONDS: f64 = 5.0;

/// What an engine is told.
#[derive(Debug, Clone)]
pub struct EngineConfig {
    /// Base URL under which nodes reach the control plane, without a trailing slash.
    pub advertise_url: String,
    /// What nodes shall trust of the control plane's own.
    pub node_anchors: NodeAnchors,
    /// The node agent that deployed systems fetch.
    pub agent: Artifact,
    /// Runs worked on at once by this process.
    pub parallel_runs: usize,
    /// Seconds for which a claimed run belongs to its worker; renewed while a call lasts.
    pub lease_seconds: f64,
    /// Seconds between two looks at a site's event feed.
    pub poll_seconds: f64,
    /// Seconds between two looks at the event feed of a site where nothing moves and nodes are in
    /// service: what people do to their machines is seen so soon. 0: such a site is not watched.
    pub idle_poll_seconds: f64,
    /// Seconds for which a site belongs to its watcher; renewed while it lives. A site whose
    /// watcher was killed is not watched for that long.
    pub watch_lease_seconds: f64,
    /// Seconds between two comparisons of a site's machines with what is remembered of them; 0:
    /// none are made.
    pub sweep_seconds: f64,
    /// Seconds between two looks at the mark that control planes keep in a site's region; 0: it is
    /// not looked at, and a region is known by its address.
    pub mark_seconds: f64,
    /// Seconds between two looks for agents that have become silent or are heard again; 0: none
    /// are made.
    pub agent_watch_seconds: f64,
}

impl EngineConfig {
    /// Usual values for a control plane at `advertise_url`.
    #[must_use]
    pub fn new(advertise_url: &str, agent: Artifact) -> Self {
        Self {
            advertise_url: advertise_url.trim_end_matches('/').to_owned(),
            node_anchors: NodeAnchors::default(),
            agent,
            parallel_runs: 96,
            lease_seconds: 45.0,
            poll_seconds: POLL_SECONDS,
            idle_poll_seconds: IDLE_POLL_SECONDS,
            watch_lease_seconds: 2.0,
            sweep_seconds: 900.0,
            mark_seconds: 60.0,
            agent_watch_seconds: 10.0,
        }
    }
}
