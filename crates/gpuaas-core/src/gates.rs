//! The seven completion gates (docs/hosts.md#completion-gates). All of them, always; and
//! how the gates beside them stand, which never hold a run: a node is active when its agent lives,
//! and ready for slices when its host is as its bundles say.

use gpuaas_types::agent::{BootstrapPhase, Gate, GateClass, GateReport, ProgressStatus};
use gpuaas_types::api::{CheckResult, GateView};
use gpuaas_types::machine::maas_status as status;
use gpuaas_types::{NodeState, RunId, Timestamp};

use crate::bootstrap_progress::{SiteBootstrap, latest, site_bootstrap};
use crate::node_state::may_become;
use crate::snapshot::Snapshot;

/// Name of the gate on the site bootstrap.
pub const SITE_BOOTSTRAP: &str = "gate_site_bootstrap";
/// Name of the gate on the node bootstrap.
pub const NODE_BOOTSTRAP: &str = "gate_node_bootstrap";

/// The seven completion gates, in the order of docs/hosts.md#completion-gates.
pub const COMPLETION_GATES: [&str; 7] = [
    "gate_maas_deployed",
    SITE_BOOTSTRAP,
    NODE_BOOTSTRAP,
    "gate_agent_started",
    "gate_first_enrollment",
    "gate_node_row",
    "gate_current_run",
];

/// Seconds after the first heartbeat in which the node bootstrap's last callback may still come.
/// After that its absence is tolerated: the enrolled agent proves what the callback would say.
pub const CALLBACK_GRACE_SECONDS: f64 = 60.0;

/// Whether the node bootstrap's last callback may still come.
#[must_use]
pub fn callback_is_pending(s: &Snapshot<'_>) -> bool {
    let said = latest(s, BootstrapPhase::NodeBootstrap);
    if said.is_some_and(|said| said.status != ProgressStatus::Started) {
        return false;
    }
    let Some(heard) = s.first_heartbeat() else { return false };
    let since = said.map_or(heard.at, |said| said.at.max(heard.at));
    s.now.seconds_since(since) < CALLBACK_GRACE_SECONDS
}

/// Evaluates all seven, in the order of [`COMPLETION_GATES`], each with its evidence.
#[must_use]
pub fn completion_gates(s: &Snapshot<'_>) -> Vec<CheckResult> {
    let verdicts = [
        maas_deployed(s),
        site_bootstrap_gate(s),
        node_bootstrap_gate(s),
        agent_started(s),
        first_enrollment(s),
        node_row(s),
        current_run(s, s.run.id),
    ];
    let named = COMPLETION_GATES.iter().zip(verdicts);
    named.map(|(name, (passed, evidence))| s.check(name, passed, evidence)).collect()
}

/// Whether a gate is passed, and what that rests on.
type Verdict = (bool, String);

fn maas_deployed(s: &Snapshot<'_>) -> Verdict {
    let Some(observation) = s.observation else {
        return (false, "the machine has never been read from MAAS".to_owned());
    };
    let age = s.now.seconds_since(observation.status_at);
    let label = status::label(observation.status);
    let deployed = observation.status == status::DEPLOYED;
    let synced = observation.machine.as_ref().is_some_and(|m| m.enable_hw_sync);
    if deployed && s.profile.require_hw_sync && !synced {
        let text = "MAAS reports Deployed, but without the hardware sync that the profile requires";
        return (false, text.to_owned());
    }
    let sync = if s.profile.require_hw_sync && synced { ", with hardware sync" } else { "" };
    (deployed, format!("MAAS reported {label} {age:.1} s ago{sync}"))
}

fn site_bootstrap_gate(s: &Snapshot<'_>) -> Verdict {
    match site_bootstrap(s) {
        SiteBootstrap::Succeeded { evidence, .. } => (true, evidence),
        SiteBootstrap::Failed(said) => (false, format!("failed at {}", said.at)),
        SiteBootstrap::Running(said) => (false, format!("started at {}, still running", said.at)),
        SiteBootstrap::Unheard => {
            (false, "no callback was received and no agent enrolled".to_owned())
        }
    }
}

fn node_bootstrap_gate(s: &Snapshot<'_>) -> Verdict {
    // The scripts may have run more than once: their latest attempt counts.
    let said = latest(s, BootstrapPhase::NodeBootstrap);
    match said.map(|said| (said.status, said.at)) {
        Some((ProgressStatus::Succeeded, at)) => (true, format!("succeeded at {at}")),
        Some((ProgressStatus::Failed, at)) => (false, format!("failed at {at}")),
        _ if callback_is_pending(s) => (false, "no callback yet".to_owned()),
        _ => proven_by_agent(s),
    }
}

/// A lost callback is tolerated: the node bootstrap starts the agent.
fn proven_by_agent(s: &Snapshot<'_>) -> Verdict {
    match s.first_heartbeat() {
        Some(report) => (
            true,
            format!(
                "no callback was received, but the agent's heartbeat at {} proves success",
                report.at
            ),
        ),
        None => (false, "no callback was received and the agent is silent".to_owned()),
    }
}

fn agent_started(s: &Snapshot<'_>) -> Verdict {
    match s.first_heartbeat() {
        Some(report) => (true, format!("heartbeat at {}", report.at)),
        None => (false, "no heartbeat".to_owned()),
    }
}

fn first_enrollment(s: &Snapshot<'_>) -> Verdict {
    match s.enrollment() {
        Some(report) => (true, format!("enrolled at {}", report.at)),
        None => (false, "not enrolled".to_owned()),
    }
}

fn node_row(s: &Snapshot<'_>) -> Verdict {
    let state = s.node.state;
    let passed = may_become(state, NodeState::Active) && state != NodeState::Quarantined;
    (passed, format!("the node is {state}"))
}

fn current_run(s: &Snapshot<'_>, run: RunId) -> Verdict {
    let stray = s.reports.iter().filter(|r| r.run_id != run).count();
    let passed = s.node.run_id == Some(run) && stray == 0;
    let evidence = match s.node.run_id {
        Some(id) if id == run => format!("run {run}, {stray} reports from other runs"),
        Some(id) => format!("the node belongs to run {id}, but this is run {run}"),
        None => "the node has no run".to_owned(),
    };
    (passed, evidence)
}

/// The agent's latest report of a gate.
#[derive(Debug, Clone, Copy)]
pub struct LatestGateReport<'a> {
    /// The agent's verdict, with every check.
    pub report: &'a GateReport,
    /// Since when its reports say the same.
    pub since: Timestamp,
    /// When it last reported.
    pub at: Timestamp,
}

/// How a gate of a node stands. None: nothing asks for it.
///
/// ```
/// use gpuaas_core::gates::gate_view;
/// use gpuaas_types::NodeState;
/// use gpuaas_types::agent::{Gate, GateClass};
///
/// let wanted = true;
/// let view = gate_view(Gate::SliceReady, wanted, NodeState::Active, false, None);
/// let view = view.ok_or("a bundle asks for the gate")?;
/// assert_eq!((view.open, view.class), (false, Some(GateClass::AgentFault)));
///
/// assert!(gate_view(Gate::SliceReady, false, NodeState::Active, false, None).is_none());
/// # Ok::<(), &str>(())
/// ```
///
/// `wanted`: a bundle of the node's profile asks something of a host for it. `silent`: the agent of
/// the deployed system has not reported for long, so its reports are history.
#[must_use]
pub fn gate_view(
    gate: Gate,
    wanted: bool,
    state: NodeState,
    silent: bool,
    latest: Option<LatestGateReport<'_>>,
) -> Option<GateView> {
    if !wanted && latest.is_none() {
        return None;
    }
    let name = gate.as_str();
    let view = |open, class, text: String| GateView {
        gate,
        open,
        class,
        text,
        since: latest.map(|latest| latest.since),
        said_at: latest.map(|latest| latest.at),
        failing: latest.map(|latest| failing_checks(latest.report)).unwrap_or_default(),
    };
    let fault = Some(GateClass::AgentFault);
    Some(match latest {
        _ if state != NodeState::Active => {
            view(false, None, format!("{name} is closed: the node is {state}"))
        }
        None => view(false, fault, format!("{name} is closed: the agent has not reported it")),
        Some(_) if silent => view(
            false,
            fault,
            format!("{name} is closed: the agent is silent, so its state is unknown"),
        ),
        Some(LatestGateReport { report, .. }) if report.checks.is_empty() => {
            view(false, None, format!("{name} is not evaluated: its agent has no host to check"))
        }
        Some(LatestGateReport { report, .. }) if report.passed => {
            view(true, None, format!("{name} is open: {} checks pass", report.checks.len()))
        }
        Some(LatestGateReport { report, .. }) => {
            let names: Vec<String> =
                failing_checks(report).into_iter().map(|check| check.name).collect();
            let class = report.class.map_or("not evaluated", GateClass::as_str);
            let (red, all) = (names.len(), report.checks.len());
            let names = names.join(", ");
            let text = format!("{name} is closed ({class}): {red} of {all} checks fail: {names}");
            view(false, report.class, text)
        }
    })
}

fn failing_checks(report: &GateReport) -> Vec<gpuaas_types::agent::GateCheck> {
    report.checks.iter().filter(|check| !check.passed).cloned().collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::decide::fixture::{Case, id};
    use crate::record::{Report, ReportKind};
    use gpuaas_types::Step;
    use gpuaas_types::agent::GateCheck;

    const AT: Timestamp = Timestamp::EPOCH;

    fn report(class: Option<GateClass>) -> GateReport {
        let check = |name: &str, passed| GateCheck {
            name: name.to_owned(),
            passed,
            expected: "present".to_owned(),
            seen: "it is not there".to_owned(),
            reason: String::new(),
            blocks: Vec::new(),
        };
        let checks = vec![check("agent", true), check("file /etc/x", class.is_none())];
        GateReport { gate: Gate::SliceReady, passed: class.is_none(), class, checks }
    }

    /// Reports are stored by run; one of another run is of another system on the machine.
    #[test]
    fn report_of_another_run_keeps_the_gate_of_the_current_run_shut() {
        let enrolled = ReportKind::Enrolled {
            agent_version: "0.1.0".to_owned(),
            hostname: "j22u11".to_owned(),
        };
        let mut case = Case::new(Step::Confirmation).report(enrolled.clone(), 5.0);
        let verdict = |case: &Case| {
            let all = completion_gates(&case.snapshot());
            let gate = all.into_iter().find(|check| check.name == "gate_current_run").unwrap();
            (gate.passed, gate.evidence)
        };
        let run = case.run.id;
        assert_eq!(verdict(&case), (true, format!("run {run}, 0 reports from other runs")));
        let other = id::<RunId>(7);
        case.reports.push(Report { run_id: other, at: AT, kind: enrolled });
        assert_eq!(verdict(&case), (false, format!("run {run}, 1 reports from other runs")));
        case.reports.pop();
        case.node.run_id = Some(other);
        assert_eq!(
            verdict(&case),
            (false, format!("the node belongs to run {other}, but this is run {run}"))
        );
        case.node.run_id = None;
        assert_eq!(verdict(&case), (false, "the node has no run".to_owned()));
    }

    #[test]
    fn a_gate_is_open_only_on_an_active_node_whose_agent_says_so() {
        let (good, bad) = (report(None), report(Some(GateClass::HostBaselineIncomplete)));
        let stand = |state, silent, report: Option<&GateReport>| {
            let latest = report.map(|report| LatestGateReport { report, since: AT, at: AT });
            let view = gate_view(Gate::SliceReady, true, state, silent, latest).unwrap();
            (view.open, view.class, view.text)
        };
        let (active, fault) = (NodeState::Active, Some(GateClass::AgentFault));
        assert!(stand(active, false, Some(&good)).0);
        let shut = stand(active, false, Some(&bad));
        assert_eq!((shut.0, shut.1), (false, Some(GateClass::HostBaselineIncomplete)));
        let text =
            "slice_ready is closed (host_baseline_incomplete): 1 of 2 checks fail: file /etc/x";
        assert_eq!(shut.2, text);
        assert_eq!(stand(active, false, None).1, fault);
        assert_eq!(stand(active, true, Some(&good)).1, fault);
        let nothing = GateReport { passed: false, checks: Vec::new(), ..bad.clone() };
        let stand_in = stand(active, false, Some(&nothing));
        assert_eq!((stand_in.0, stand_in.1), (false, None), "nobody's fault, and not ready");
        assert!(stand_in.2.contains("not evaluated"), "{}", stand_in.2);
        let early = stand(NodeState::BootstrapIssued, false, Some(&good));
        assert_eq!((early.0, early.1), (false, None));
        assert!(gate_view(Gate::Telemetry, false, active, false, None).is_none());
    }
}
