//! The loop that reports the gates of the host: at once, whenever they change, and now and then.
//! A task that changed the host has them evaluated without delay.

use gpuaas_types::agent::{GateReport, Gates};
use tracing::warn;

use super::state::{Agent, pause_seconds};
use crate::bundle::gate;

/// Pause between two evaluations of the gates, in seconds.
const INTERVAL_SECONDS: f64 = 120.0;
/// Seconds after which unchanged gates are reported again.
const REPEAT_SECONDS: f64 = 1800.0;

/// Reports the gates as they are now, once; the loop tries again where that fails.
pub(super) async fn report_once(agent: &Agent) {
    let gates = gate::evaluate_all(&agent.config.host).await;
    if gates.is_empty() {
        return;
    }
    let body = Gates { run_id: agent.config.run_id, gates };
    if let Err(error) = agent.authenticated().gates(&body).await {
        warn!(%error, "gates");
    }
}

/// Reports the gates for ever, from the first accepted heartbeat on.
pub(super) async fn run(agent: &Agent) {
    agent.first_heartbeat.cancelled().await;
    let mut last_report: Option<(Vec<GateReport>, f64)> = None;
    let mut backoff = agent.backoff("gates");
    loop {
        let gates = gate::evaluate_all(&agent.config.host).await;
        let now = agent.clock.monotonic_seconds();
        let is_reported = last_report
            .as_ref()
            .is_some_and(|(before, at)| *before == gates && now - *at < REPEAT_SECONDS);
        let has_no_gates = last_report.is_none() && gates.is_empty();
        if !is_reported && !has_no_gates {
            let body = Gates { run_id: agent.config.run_id, gates: gates.clone() };
            if let Err(error) = agent.authenticated().gates(&body).await {
                let pause_seconds = pause_seconds(&mut backoff, &error);
                warn!(%error, pause_seconds, "gates");
                agent.clock.sleep(pause_seconds).await;
                continue;
            }
            backoff.reset();
            last_report = Some((gates, now));
        }
        tokio::select! {
            () = agent.clock.sleep(INTERVAL_SECONDS) => {}
            () = agent.host_changed.notified() => {}
        }
    }
}
