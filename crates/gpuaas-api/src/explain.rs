//! What does a node wait for, since when, until when, and what may be done?
//!
//! Everything here is read from data that the decisions left: the run's wait or park, its latest
//! attempts and checks, MAAS' last word and its age, the agent's last sign of life. Each sentence
//! says whose view it is.

use axum::Json;
use axum::extract::State;
use gpuaas_core::step_duration::{self, ExpectedDuration};
use gpuaas_store::ListedNode;
use gpuaas_types::agent::GateClass;
use gpuaas_types::api::{
    AttemptView, CheckResult, Drift, EstimateSource, GateView, MaasView, NodeView, StepSpan,
};
use gpuaas_types::codes::WaitCode;
use gpuaas_types::explain::{ExplainedNode, Explanation};
use gpuaas_types::{RunKind, RunStatus, Step, Timestamp};

use crate::body::Key;
use crate::ctx::Ctx;
use crate::gates::GateReports;
use crate::node_view::{find_node, node_view};
use crate::problem::ApiResult;

/// Attempts named as evidence.
const LATEST_ATTEMPTS: usize = 3;

/// `GET /api/v1/nodes/NODE/explain`.
pub(crate) async fn explain(
    State(ctx): State<Ctx>,
    Key(text): Key,
) -> ApiResult<Json<Explanation>> {
    let id = find_node(&ctx, &text).await?;
    let listed = ctx.store.listed_node(id).await?;
    Ok(Json(explain_node(&ctx, listed).await?))
}

/// The explanation of one node.
pub(crate) async fn explain_node(ctx: &Ctx, listed: ListedNode) -> ApiResult<Explanation> {
    let mut facts = Facts::default();
    if let Some(run) = &listed.run {
        facts.steps = ctx.store.spans(run.id).await?;
        facts.attempts = ctx.store.attempts(run.id).await?;
        facts.checks = ctx.store.run(run.id).await?.state.checks.into_values().collect();
    }
    let now = ctx.now();
    let gates = GateReports::read(ctx, [listed.node.id]).await?.view(ctx, &listed.node);
    let drift = ctx.store.drift_of_node(listed.node.id).await?;
    let view = NodeView { gates, drift, ..node_view(listed, Vec::new(), now) };
    Ok(explanation(view, &facts, now))
}

/// What is known besides the node's view.
#[derive(Debug, Default)]
struct Facts {
    steps: Vec<StepSpan>,
    attempts: Vec<AttemptView>,
    checks: Vec<CheckResult>,
}

fn explanation(node: NodeView, facts: &Facts, now: Timestamp) -> Explanation {
    let open = node.run.as_ref().filter(|run| run.status.is_open());
    let step = open.map(|run| run.step);
    let step_since = facts.steps.last().map(|span| span.from);
    let row = step.map(Step::row);
    let limit = |seconds: u32| step_since.map(|at| at.plus_seconds(f64::from(seconds)));
    let (wait, park) = (node.wait.as_ref(), node.park.as_ref());
    let parked = park.is_some();
    let (expected_by, expected_from) = match (wait, step) {
        _ if parked => (None, None),
        (Some(wait), _) => (wait.expected_by, wait.expected_from),
        (None, Some(step)) => {
            let expected = ExpectedDuration::from_table(step);
            (step_since.map(|at| at.plus_seconds(expected.seconds)), Some(expected.from))
        }
        (None, None) => (None, None),
    };
    let deadline = wait
        .map_or_else(|| row.and_then(|row| limit(row.deadline_seconds)), |wait| wait.deadline)
        .filter(|_| !parked);
    let late = expected_by.is_some_and(|at| now > at);
    let mut text = vec![we_believe(&node, facts, now)];
    match (park, wait) {
        (Some(park), _) => text.push(format!("We believe: it stopped because {}.", park.text)),
        (None, Some(wait)) => text.push(format!("We believe: it waits for {}.", wait.text)),
        (None, None) => {}
    }
    text.extend(limits(expected_by, expected_from, deadline, now));
    text.push(maas_says(&node.maas));
    text.extend(node.drift.iter().map(|drift| drift_says(drift, now)));
    text.push(agent_says(&node, now));
    text.extend(node.gates.iter().map(|gate| format!("We believe: {}.", gate.text)));
    let next_action = next_action(&node, late);
    text.push(format!("Next: {next_action}."));
    Explanation {
        step,
        waiting_for: node.waiting_for.clone(),
        code: park.map(|park| park.code.clone()).or_else(|| wait.map(|wait| wait.code.clone())),
        since: park
            .map(|park| park.since)
            .or(wait.map(|wait| wait.since))
            .or(step_since.filter(|_| open.is_some())),
        expected_by,
        expected_from,
        deadline,
        mark: node.mark,
        owner: park.map(|park| park.owner),
        next_action,
        actions: park.map(|park| park.actions.clone()).unwrap_or_default(),
        evidence: evidence(&node, facts),
        text,
        node: ExplainedNode {
            id: node.id,
            hostname: node.hostname,
            site: node.site,
            state: node.state,
        },
        run: node.run,
        maas: node.maas,
    }
}

fn we_believe(node: &NodeView, facts: &Facts, now: Timestamp) -> String {
    let name = format!("{} of site {} is {}", node.hostname, node.site, node.state);
    let Some(run) = &node.run else {
        return match &node.waiting_for {
            Some(turn) => format!("We believe: {name}; it waits for {turn}."),
            None => format!("We believe: {name}; it never had a run."),
        };
    };
    let place = match facts.steps.last() {
        Some(span) if run.status.is_open() => {
            let bucket = run.step.row().bucket;
            let time = duration(now.seconds_since(span.from));
            format!("{} at step {} (bucket {bucket}) for {time}", run.status, run.step)
        }
        _ => format!("{} at step {}", run.status, run.step),
    };
    format!("We believe: {name}; its {} run is {place}.", run.kind)
}

fn limits(
    expected_by: Option<Timestamp>,
    from: Option<EstimateSource>,
    deadline: Option<Timestamp>,
    now: Timestamp,
) -> Option<String> {
    let expected_by = expected_by?;
    let ahead = expected_by.seconds_since(now);
    let mut text = if ahead >= 0.0 {
        format!("We believe: it should happen within {}", duration(ahead))
    } else {
        format!("We believe: it is {} late", duration(-ahead))
    };
    if let Some(from) = from {
        text.push_str(&format!(" ({})", step_duration::basis_as_text(from)));
    }
    if let Some(deadline) = deadline {
        let left = deadline.seconds_since(now).max(0.0);
        text.push_str(&format!("; the run parks in {}", duration(left)));
    }
    text.push('.');
    Some(text)
}

fn maas_says(maas: &MaasView) -> String {
    match (&maas.system_id, &maas.status_name, maas.observed_seconds_ago) {
        (Some(id), Some(status), Some(age)) => {
            format!("MAAS says: {status} (machine {id}), as of {} ago.", duration(age))
        }
        (Some(id), _, _) => format!("MAAS says: nothing yet of machine {id}."),
        (None, _, _) => "MAAS says: nothing, no machine is bound to the node yet.".to_owned(),
    }
}

/// A difference between MAAS and what is remembered, with its age.
fn drift_says(drift: &Drift, now: Timestamp) -> String {
    let Drift { kind, expected, found, since, seen_at, .. } = drift;
    let (age, seen) = (duration(now.seconds_since(*since)), now.seconds_since(*seen_at));
    let seen = duration(seen);
    format!(
        "MAAS says: {found}, where {expected} was remembered ({kind}, first seen {age} ago, last {seen} ago)."
    )
}

fn agent_says(node: &NodeView, now: Timestamp) -> String {
    node.heartbeat_at.map_or_else(
        || "The agent says: nothing yet.".to_owned(),
        |at| format!("The agent says: it lives, {} ago.", duration(now.seconds_since(at))),
    )
}

fn next_action(node: &NodeView, late: bool) -> String {
    if let Some(park) = &node.park {
        return park.next_action.clone();
    }
    let status = node.run.as_ref().map(|run| run.status);
    match status {
        Some(status) if status.is_open() && late => of_wait(node),
        Some(status) if status.is_open() => "nothing to do, the run goes on by itself".to_owned(),
        Some(RunStatus::Failed | RunStatus::Cancelled) => {
            format!("read the timeline, remove the cause, then {}", again(node))
        }
        None if node.waiting_for.is_some() => {
            "`gpuaas batch list` says how far its batch is, and whether it was stopped".to_owned()
        }
        _ => {
            let drifted =
                node.drift.first().map(|drift| gpuaas_core::drift::next_action(drift.kind));
            let shut = || node.gates.iter().find_map(gate_action);
            drifted.or_else(shut).unwrap_or("nothing to do").to_owned()
        }
    }
}

/// What to do about a wait that is longer than expected.
fn of_wait(node: &NodeView) -> String {
    let row = node.wait.as_ref().and_then(|wait| WaitCode::from_code(&wait.code));
    let advice = row.map_or(
        "read the log of the control plane: the run is due, and nobody works on it",
        |code| code.row().next_action,
    );
    advice.replace("SITE", &node.site).replace("NODE", &node.hostname)
}

/// The command that begins a run again which ended early.
fn again(node: &NodeView) -> String {
    let NodeView { hostname, site, profile, .. } = node;
    match node.run.as_ref().map(|run| run.kind) {
        Some(RunKind::Decommission) => format!("`gpuaas node decommission {hostname}`"),
        Some(RunKind::Reimage) => format!("`gpuaas node reimage {hostname}`"),
        Some(RunKind::SoftReset) => format!("`gpuaas node soft-reset {hostname}`"),
        Some(RunKind::StorageCleanup) => format!("`gpuaas node storage-cleanup {hostname}`"),
        Some(RunKind::Detach) => format!("`gpuaas node detach {hostname}`"),
        Some(RunKind::Remove) => format!("`gpuaas node remove {hostname}`"),
        Some(RunKind::Onboard) | None => {
            format!("`gpuaas node onboard {hostname} --site {site} --profile {profile}`")
        }
    }
}

/// What to do about a gate that is shut.
fn gate_action(gate: &GateView) -> Option<&'static str> {
    gate.class.map(|class| match class {
        GateClass::HostBaselineIncomplete => {
            "run the bundle again on the host (bootstrap.sh of the site's bundle), which runs its \
             baseline first; the agent is not at fault"
        }
        GateClass::HostSetupIncomplete => {
            "repair what fails on the host, or run the site's bundle there again"
        }
        GateClass::AgentFault => "look at gpuaas-node-agent.service on the host",
    })
}

fn evidence(node: &NodeView, facts: &Facts) -> Vec<String> {
    let parked = node.park.iter().flat_map(|park| park.evidence.iter().cloned());
    let failed = facts
        .checks
        .iter()
        .filter(|check| !check.passed)
        .map(|check| format!("check {} does not pass: {}", check.name, check.evidence));
    let skipped = facts.attempts.len().saturating_sub(LATEST_ATTEMPTS);
    let tried = facts.attempts.iter().skip(skipped).map(|attempt| {
        let outcome = attempt.outcome.as_deref().unwrap_or("in flight");
        let detail =
            if attempt.detail.is_empty() { String::new() } else { format!(", {}", attempt.detail) };
        format!(
            "{} at step {}, try {}, {}: {outcome}{detail}",
            attempt.effect, attempt.step, attempt.number, attempt.intended_at
        )
    });
    let red =
        node.gates.iter().flat_map(|gate| gate.failing.iter().map(move |check| (gate, check)));
    let red = red.map(|(gate, check)| {
        let name = gate.gate.as_str();
        format!("{name}: {} should show {}, and shows: {}", check.name, check.expected, check.seen)
    });
    parked.chain(failed).chain(red).chain(tried).collect()
}

/// Seconds as a person says them.
fn duration(seconds: f64) -> String {
    let whole = seconds.max(0.0).round();
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "casts saturate")]
    let whole = whole as u64;
    match (whole / 3600, whole / 60 % 60, whole % 60) {
        (0, 0, s) => format!("{s} s"),
        (0, m, s) => format!("{m} min {s} s"),
        (h, m, _) => format!("{h} h {m} min"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use gpuaas_types::api::{EstimateBasis, Owner, Park, RunSummary, Wait};
    use gpuaas_types::{NodeId, NodeState, RunId};

    fn at(seconds: f64) -> Timestamp {
        Timestamp::EPOCH.plus_seconds(seconds)
    }

    fn node(status: RunStatus) -> NodeView {
        let id = uuid::Uuid::nil();
        NodeView {
            id: NodeId(id),
            hostname: "j22u11".to_owned(),
            site: "lab".to_owned(),
            profile: "h200".to_owned(),
            state: NodeState::BootstrapIssued,
            run: Some(RunSummary {
                id: RunId(id),
                kind: RunKind::Onboard,
                step: Step::Deploy,
                status,
            }),
            waiting_for: None,
            wait: None,
            park: None,
            mark: None,
            drift: Vec::new(),
            gates: Vec::new(),
            maas: MaasView {
                system_id: Some("abc123".to_owned()),
                status_name: Some("Deploying".to_owned()),
                observed_seconds_ago: Some(4.0),
            },
            heartbeat_at: None,
            revision: 1,
            created_at: at(0.0),
            updated_at: at(0.0),
            timeline: Vec::new(),
        }
    }

    fn facts() -> Facts {
        Facts {
            steps: vec![StepSpan { step: Step::Deploy, from: at(100.0), until: None }],
            ..Facts::default()
        }
    }

    #[test]
    fn a_waiting_run() {
        let mut node = node(RunStatus::Waiting);
        node.wait = Some(Wait {
            code: "maas_deploying".to_owned(),
            text: "MAAS to write the image".to_owned(),
            since: at(100.0),
            expected_by: Some(at(1900.0)),
            expected_from: Some(EstimateSource { basis: EstimateBasis::ProfileAndImage, runs: 37 }),
            deadline: Some(at(10900.0)),
        });
        let said = explanation(node.clone(), &facts(), at(400.0));
        insta::assert_snapshot!(said.text.join("\n"), @r"
        We believe: j22u11 of site lab is bootstrap_issued; its onboard run is waiting at step deploy (bucket image_deploy) for 5 min 0 s.
        We believe: it waits for MAAS to write the image.
        We believe: it should happen within 25 min 0 s (1.5 x p95 of 37 runs of this profile and image); the run parks in 2 h 55 min.
        MAAS says: Deploying (machine abc123), as of 4 s ago.
        The agent says: nothing yet.
        Next: nothing to do, the run goes on by itself.
        ");
        let late = explanation(node, &facts(), at(2000.0));
        assert!(
            late.text[2].starts_with("We believe: it is 1 min 40 s late (1.5 x p95 of"),
            "{}",
            late.text[2]
        );
        assert!(late.next_action.starts_with("look at the machine"));
    }

    #[test]
    fn an_active_node_that_was_released_by_hand() {
        let mut node = node(RunStatus::Succeeded);
        node.state = NodeState::Active;
        node.drift.push(Drift {
            kind: gpuaas_types::DriftKind::ReleasedByHand,
            expected: "Deployed".to_owned(),
            found: "MAAS says Ready".to_owned(),
            action: gpuaas_types::DriftAction::Report,
            since: at(340.0),
            seen_at: at(396.0),
        });
        let said = explanation(node, &facts(), at(400.0));
        let line = "where Deployed was remembered (released_by_hand, first seen 1 min 0 s ago";
        assert!(said.text.iter().any(|text| text.contains(line)), "{:?}", said.text);
        assert!(said.next_action.starts_with("find out who released it"), "{}", said.next_action);
    }

    #[test]
    fn a_parked_run() {
        let mut node = node(RunStatus::Parked);
        node.park = Some(Park {
            code: "deploy_failed".to_owned(),
            text: "MAAS failed to deploy 3 times".to_owned(),
            since: at(300.0),
            owner: Owner::InfraOperator,
            evidence: vec!["curtin: no disk".to_owned()],
            next_action: "replace the disk, then resume the run".to_owned(),
            actions: Vec::new(),
        });
        let said = explanation(node, &facts(), at(400.0));
        assert_eq!((said.owner, said.deadline), (Some(Owner::InfraOperator), None));
        assert_eq!(said.since, Some(at(300.0)));
        assert_eq!(said.evidence, ["curtin: no disk"]);
        assert_eq!(said.text.last().unwrap(), "Next: replace the disk, then resume the run.");
    }
}
