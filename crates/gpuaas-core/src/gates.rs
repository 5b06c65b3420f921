//! The seven completion gates (seed 3, "Post-Deploy Completion Gates"). All of them, always.

use gpuaas_types::agent::{Phase, ProgressStatus};
use gpuaas_types::api::CheckResult;
use gpuaas_types::machine::maas_status as status;
use gpuaas_types::{NodeState, RunId};

use crate::decide::boot::{enrolled, first_heartbeat, progress};
use crate::decide::check;
use crate::node_state::may_become;
use crate::snapshot::Snapshot;

/// Name of the gate on the node bootstrap.
pub const NODE_BOOTSTRAP: &str = "gate_node_bootstrap";

/// Seconds after the first heartbeat in which the node bootstrap's last callback may still come.
/// After that its absence is tolerated: the enrolled agent proves what the callback would say.
pub const CALLBACK_GRACE_SECONDS: f64 = 60.0;

/// Whether the node bootstrap's last callback may still come.
#[must_use]
pub fn callback_may_come(s: &Snapshot<'_>) -> bool {
    progress(s, Phase::NodeBootstrap, ProgressStatus::Failed).is_none()
        && first_heartbeat(s).is_some_and(|r| s.now.seconds_since(r.at) < CALLBACK_GRACE_SECONDS)
}

/// Evaluates all seven, in the seed's order, each with its evidence.
#[must_use]
pub fn completion(s: &Snapshot<'_>) -> Vec<CheckResult> {
    vec![
        maas_deployed(s),
        bootstrap(s, "gate_site_bootstrap", Phase::SiteBootstrap),
        bootstrap(s, NODE_BOOTSTRAP, Phase::NodeBootstrap),
        agent_started(s),
        first_enrollment(s),
        node_row(s),
        current_run(s, s.run.id),
    ]
}

fn maas_deployed(s: &Snapshot<'_>) -> CheckResult {
    let name = "gate_maas_deployed";
    let Some(observation) = s.observation else {
        return check(s, name, false, "the machine was never read");
    };
    let age = s.now.seconds_since(observation.status_at);
    let label = status::label(observation.status);
    let deployed = observation.status == status::DEPLOYED;
    let synced = observation.machine.as_ref().is_some_and(|m| m.enable_hw_sync);
    if deployed && s.profile.require_hw_sync && !synced {
        return check(
            s,
            name,
            false,
            "MAAS says Deployed, but without the hardware sync that the profile requires",
        );
    }
    check(s, name, deployed, format!("MAAS said {label} {age:.1} s ago"))
}

fn bootstrap(s: &Snapshot<'_>, name: &str, phase: Phase) -> CheckResult {
    let at = |status| progress(s, phase, status).map(|r| r.at);
    match (at(ProgressStatus::Succeeded), at(ProgressStatus::Failed)) {
        (Some(good), bad) if bad.is_none_or(|bad| bad <= good) => {
            check(s, name, true, format!("succeeded at {good}"))
        }
        (_, Some(bad)) => check(s, name, false, format!("failed at {bad}")),
        _ if phase == Phase::SiteBootstrap && at(ProgressStatus::Started).is_none() => {
            proven_by_agent(s, name)
        }
        _ if !callback_may_come(s) => proven_by_agent(s, name),
        _ => check(s, name, false, "no callback yet"),
    }
}

/// A lost callback is tolerated: the node bootstrap runs only after the site bootstrap succeeded,
/// and it is the node bootstrap that starts the agent.
fn proven_by_agent(s: &Snapshot<'_>, name: &str) -> CheckResult {
    match first_heartbeat(s) {
        Some(report) => check(
            s,
            name,
            true,
            format!("no callback came; the agent's heartbeat at {} proves it", report.at),
        ),
        None => check(s, name, false, "no callback came and the agent is silent"),
    }
}

fn agent_started(s: &Snapshot<'_>) -> CheckResult {
    match first_heartbeat(s) {
        Some(report) => check(s, "gate_agent_started", true, format!("heartbeat at {}", report.at)),
        None => check(s, "gate_agent_started", false, "no heartbeat"),
    }
}

fn first_enrollment(s: &Snapshot<'_>) -> CheckResult {
    match enrolled(s) {
        Some(report) => {
            check(s, "gate_first_enrollment", true, format!("enrolled at {}", report.at))
        }
        None => check(s, "gate_first_enrollment", false, "not enrolled"),
    }
}

fn node_row(s: &Snapshot<'_>) -> CheckResult {
    let state = s.node.state;
    let passed = may_become(state, NodeState::Active) && state != NodeState::Quarantined;
    check(s, "gate_node_row", passed, format!("the node is {state}"))
}

fn current_run(s: &Snapshot<'_>, run: RunId) -> CheckResult {
    let stray = s.reports.iter().filter(|r| r.run_id != run).count();
    let passed = s.node.run_id == Some(run) && stray == 0;
    let evidence = match s.node.run_id {
        Some(id) if id == run => format!("run {run}, {stray} reports of other runs"),
        Some(id) => format!("the node's run is {id}, this is {run}"),
        None => "the node names no run".to_owned(),
    };
    check(s, "gate_current_run", passed, evidence)
}
