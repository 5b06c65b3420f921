//! The loop that looks for slices whose parts do not fit together; heartbeats say what it found.

use tracing::warn;

use super::state::Agent;
use crate::slice;

/// Pause between two looks, in seconds.
const INTERVAL_SECONDS: f64 = 120.0;

/// Looks at the host before the agent does anything else to it.
pub(super) async fn run_once(agent: &Agent) {
    let (host, slices) = (&agent.config.host, &agent.config.env.slices);
    if let Err(error) = slice::resume_guest_calls(host, slices).await {
        warn!(%error, "cannot listen yet for guests that have not called");
    }
    let found = slice::reconcile_at_start(host, slices).await;
    for one in &found {
        warn!(discrepancy = %one, "slice discrepancy on this host");
    }
    agent.set_slice_discrepancies(found);
}

/// Looks at the host now and then, for ever, and changes nothing.
pub(super) async fn run(agent: &Agent) {
    if agent.config.host.root().is_none() {
        return;
    }
    loop {
        agent.clock.sleep(INTERVAL_SECONDS).await;
        let (host, slices) = (&agent.config.host, &agent.config.env.slices);
        agent.set_slice_discrepancies(slice::discrepancies(host, slices).await);
    }
}
