//! What does a node wait for, since when, until when, and what may be done?
//!
//! Everything here is read from data that the decisions left: the run's wait or park, its latest
//! attempts and checks, MAAS' last word and its age, the agent's last sign of life. Each sentence
//! says whose view it is.

use axum::Json;
use axum::extract::State;
use gpuaas_core::elapsed::elapsed_as_text;
use gpuaas_core::node_problem::{advice_of_wait, waits_for_person};
use gpuaas_core::step_duration::{self, ExpectedDuration};
use gpuaas_store::ListedNode;
use gpuaas_types::api::{
    AttemptView, CheckResult, Connectivity, ConnectivityState, EstimateSource, MaasView,
    NodeProblem, NodeView, Park, StepSpan,
};
use gpuaas_types::codes::{NodeProblemCode, WaitCode};
use gpuaas_types::explain::{ExplainedNode, Explanation};
use gpuaas_types::{RunKind, RunStatus, Step, Timestamp};

use crate::ctx::Ctx;
use crate::http::body::Key;
use crate::http::problem::ApiResult;
use crate::identity::approval_waits;
use crate::node;
use crate::node::facts::KnownFacts;
use crate::node::view::find_listed;

/// Attempts named as evidence.
const LATEST_ATTEMPTS: usize = 3;
/// Said of what nobody can rely on any more.
const TOO_OLD: &str = ", too old to rely on";

/// `GET /api/v1/nodes/NODE/explain`.
pub(crate) async fn explain(
    State(ctx): State<Ctx>,
    Key(text): Key,
) -> ApiResult<Json<Explanation>> {
    let listed = find_listed(&ctx, &text).await?;
    Ok(Json(explain_node(&ctx, &listed).await?))
}

/// The explanation of one node.
pub(crate) async fn explain_node(ctx: &Ctx, listed: &ListedNode) -> ApiResult<Explanation> {
    let mut facts = Facts::default();
    if let Some(run) = &listed.run {
        facts.steps = ctx.store.spans(run.id).await?;
        facts.attempts = ctx.store.attempts(run.id).await?;
        facts.checks = ctx.store.run(run.id).await?.state.checks.into_values().collect();
    }
    let now = ctx.now();
    let known = KnownFacts::of_node(ctx, listed).await?;
    facts.stale_seconds = node::facts::stale_seconds(ctx);
    let waiting = approval_waits::of_node(ctx, listed.node.id).await?;
    let view = known.view(ctx, listed, Vec::new());
    let mut said = explanation(view, &facts, now);
    approval_waits::add(&mut said, &waiting);
    Ok(said)
}

/// What is known besides the node's view.
#[derive(Debug, Default)]
struct Facts {
    steps: Vec<StepSpan>,
    attempts: Vec<AttemptView>,
    checks: Vec<CheckResult>,
    /// Seconds after which what MAAS said is too old to rely on.
    stale_seconds: f64,
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
        (Some(park), _) => text.push(format!("Parked: {}.", park.text)),
        (None, Some(wait)) => text.push(format!("Waiting for {}.", wait.text)),
        (None, None) => {}
    }
    text.extend(limits(expected_by, expected_from, deadline, now));
    text.push(maas_says(&node.maas, facts.stale_seconds));
    text.push(agent_says(&node));
    text.extend(node.gates.iter().map(|gate| format!("Gate {}.", gate.text)));
    text.extend(node.problems.iter().filter(|problem| !is_of_run(problem)).map(problem_says));
    let acted_on = problem_to_act_on(&node);
    let next_action = next_action(&node, late);
    text.extend(park.and_then(|park| recheck_says(park, now)));
    text.push(format!("Next: {next_action}."));
    Explanation {
        step,
        waiting_for: node.waiting_for.clone(),
        code: park
            .map(|park| &park.code)
            .or(wait.map(|wait| &wait.code))
            .or(acted_on.map(|problem| &problem.code))
            .cloned(),
        since: park
            .map(|park| park.since)
            .or(wait.map(|wait| wait.since))
            .or(step_since.filter(|_| open.is_some()))
            .or(acted_on.map(|problem| problem.since)),
        expected_by,
        expected_from,
        deadline,
        mark: node.mark,
        owner: park.map(|park| park.owner).or(acted_on.map(|problem| problem.owner)),
        next_action,
        actions: park
            .map(|park| &park.actions)
            .or(acted_on.map(|p| &p.actions))
            .cloned()
            .unwrap_or_default(),
        evidence: evidence(&node, facts),
        text,
        problems: node.problems.clone(),
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
    let name = format!("{} (site {}) is {}", node.hostname, node.site, node.state);
    let Some(run) = &node.run else {
        return match &node.waiting_for {
            Some(turn) => format!("{name}; it is waiting for {turn}."),
            None => format!("{name}; it has never had a run."),
        };
    };
    let place = match facts.steps.last() {
        Some(span) if run.status.is_open() => {
            let bucket = run.step.row().bucket;
            let time = elapsed_as_text(now.seconds_since(span.from));
            format!("has been {} at step {} (bucket {bucket}) for {time}", run.status, run.step)
        }
        _ => match run.status {
            RunStatus::Succeeded => "succeeded".to_owned(),
            RunStatus::Failed => format!("failed at step {}", run.step),
            RunStatus::Cancelled => format!("was cancelled at step {}", run.step),
            open => format!("is {open} at step {}", run.step),
        },
    };
    format!("{name}; its {} run {place}.", run.kind)
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
        format!("Expected within {}", elapsed_as_text(ahead))
    } else {
        format!("Overdue by {}", elapsed_as_text(-ahead))
    };
    if let Some(from) = from {
        text.push_str(&format!(" ({})", step_duration::basis_as_text(from)));
    }
    if let Some(deadline) = deadline {
        let left = deadline.seconds_since(now).max(0.0);
        text.push_str(&format!("; the run parks in {}", elapsed_as_text(left)));
    }
    text.push('.');
    Some(text)
}

/// That a parked run looks again by itself, and when.
fn recheck_says(park: &Park, now: Timestamp) -> Option<String> {
    let ahead = park.looks_again_at?.seconds_since(now);
    let when =
        if ahead > 0.0 { format!("in {}", elapsed_as_text(ahead)) } else { "now".to_owned() };
    Some(format!(
        "The run checks MAAS again {when}; it resumes automatically once the cause is fixed in \
         MAAS."
    ))
}

fn maas_says(maas: &MaasView, stale_seconds: f64) -> String {
    match (&maas.system_id, &maas.status_name, maas.observed_seconds_ago) {
        (Some(id), Some(status), Some(age)) => {
            let old = if age > stale_seconds { TOO_OLD } else { "" };
            let age = elapsed_as_text(age);
            format!("MAAS: {status} (machine {id}), read {age} ago{old}.")
        }
        (Some(id), _, _) => format!("MAAS: machine {id} has not been read yet."),
        (None, _, _) => "MAAS: no machine is bound to the node yet.".to_owned(),
    }
}

/// A problem with its code and its age.
fn problem_says(problem: &NodeProblem) -> String {
    let NodeProblem { text, code, since, observed_at, observed_seconds_ago, stale, .. } = problem;
    let begun = observed_at.seconds_since(*since) + observed_seconds_ago;
    let (begun, seen) = (elapsed_as_text(begun), elapsed_as_text(*observed_seconds_ago));
    let old = if *stale { TOO_OLD } else { "" };
    format!("{text} ({code}, first seen {begun} ago, last {seen} ago{old}).")
}

/// Whether the lines about the run say it already.
fn is_of_run(problem: &NodeProblem) -> bool {
    problem.code == NodeProblemCode::RunParked || problem.code == NodeProblemCode::RunLate
}

/// The first problem of a node without an open run.
fn problem_to_act_on(node: &NodeView) -> Option<&NodeProblem> {
    let open = node.run.as_ref().is_some_and(|run| run.status.is_open());
    node.problems.first().filter(|_| !open)
}

fn agent_says(node: &NodeView) -> String {
    let Connectivity { state, heard_seconds_ago, .. } = node.connectivity;
    let age = elapsed_as_text(heard_seconds_ago.unwrap_or_default());
    let boots = node.wait.as_ref().is_some_and(|wait| WaitCode::HostReboot == *wait.code);
    if boots && heard_seconds_ago.is_some() {
        return format!("Agent: last heartbeat {age} ago; it is silent while its host reboots.");
    }
    match state {
        ConnectivityState::Never => "Agent: no heartbeat yet.".to_owned(),
        ConnectivityState::Online => format!("Agent: last heartbeat {age} ago."),
        ConnectivityState::Offline => format!("Agent: last heartbeat {age} ago{TOO_OLD}."),
    }
}

fn next_action(node: &NodeView, late: bool) -> String {
    if let Some(park) = &node.park {
        return park.next_action.clone();
    }
    let status = node.run.as_ref().map(|run| run.status);
    match status {
        Some(status) if status.is_open() && (late || waits_for_person(node.wait.as_ref())) => {
            advice_of_wait(node.wait.as_ref(), &node.hostname, &node.site).1
        }
        Some(status) if status.is_open() => {
            "nothing to do, the run continues automatically".to_owned()
        }
        Some(RunStatus::Failed | RunStatus::Cancelled) => {
            format!("read the timeline, fix the cause, then run {}", again(node))
        }
        None if node.waiting_for.is_some() => {
            "run `gpuaas batch list` to see the progress of its batch and whether it was \
             stopped"
                .to_owned()
        }
        _ => problem_to_act_on(node)
            .map_or_else(|| "nothing to do".to_owned(), |problem| problem.next_action.clone()),
    }
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

fn evidence(node: &NodeView, facts: &Facts) -> Vec<String> {
    let parked = node.park.iter().flat_map(|park| park.evidence.iter().cloned());
    let failed = facts
        .checks
        .iter()
        .filter(|check| !check.passed)
        .map(|check| format!("check {} failed: {}", check.name, check.evidence));
    let unverified = facts
        .checks
        .iter()
        .filter(|check| check.passed && !check.verified)
        .map(|check| format!("check {} is not verified: {}", check.name, check.evidence));
    let skipped = facts.attempts.len().saturating_sub(LATEST_ATTEMPTS);
    let tried = facts.attempts.iter().skip(skipped).map(|attempt| {
        let outcome = attempt.outcome.as_deref().unwrap_or("in flight");
        let detail =
            if attempt.detail.is_empty() { String::new() } else { format!(", {}", attempt.detail) };
        format!(
            "{} at step {}, attempt {}, {}: {outcome}{detail}",
            attempt.effect, attempt.step, attempt.number, attempt.intended_at
        )
    });
    let red =
        node.gates.iter().flat_map(|gate| gate.failing.iter().map(move |check| (gate, check)));
    let red = red.map(|(gate, check)| {
        let name = gate.gate.as_str();
        format!("{name}: {}: expected {}, found {}", check.name, check.expected, check.seen)
    });
    parked.chain(failed).chain(unverified).chain(red).chain(tried).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use gpuaas_types::api::{EstimateBasis, Owner, RunSummary, Wait};
    use gpuaas_types::codes::advised_commands;
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
            hardware: gpuaas_types::machine::HardwareView::default(),
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
            problems: Vec::new(),
            connectivity: Connectivity::default(),
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
            timeline_is_cut: false,
        }
    }

    fn facts() -> Facts {
        Facts {
            steps: vec![StepSpan { step: Step::Deploy, from: at(100.0), until: None }],
            stale_seconds: 3600.0,
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
        j22u11 (site lab) is bootstrap_issued; its onboard run has been waiting at step deploy (bucket image_deploy) for 5 min 0 s.
        Waiting for MAAS to write the image.
        Expected within 25 min 0 s (1.5 x p95 of 37 runs of this profile and image); the run parks in 2 h 55 min.
        MAAS: Deploying (machine abc123), read 4 s ago.
        Agent: no heartbeat yet.
        Next: nothing to do, the run continues automatically.
        ");
        let late = explanation(node, &facts(), at(2000.0));
        assert!(
            late.text[2].starts_with("Overdue by 1 min 40 s (1.5 x p95 of"),
            "{}",
            late.text[2]
        );
        assert!(late.next_action.starts_with("check the machine"));
    }

    /// The agent is silent for as long as firmware and kernel take, which is nobody's fault.
    #[test]
    fn a_host_that_is_being_started_again() {
        let mut node = node(RunStatus::Waiting);
        node.state = NodeState::Enrolling;
        node.run = node.run.map(|run| RunSummary { step: Step::HostReboot, ..run });
        node.connectivity = Connectivity {
            state: ConnectivityState::Offline,
            heard_seconds_ago: Some(250.0),
            ..Connectivity::default()
        };
        node.wait = Some(Wait {
            code: WaitCode::HostReboot.into(),
            text: "the host to reboot and its agent to check it".to_owned(),
            since: at(100.0),
            expected_by: Some(at(1000.0)),
            expected_from: None,
            deadline: Some(at(7300.0)),
        });
        let steps = vec![StepSpan { step: Step::HostReboot, from: at(100.0), until: None }];
        let facts = Facts { steps, ..facts() };
        let said = explanation(node.clone(), &facts, at(400.0));
        for line in [
            "Waiting for the host to reboot and its agent to check it.",
            "Agent: last heartbeat 4 min 10 s ago; it is silent while its host reboots.",
            "Next: nothing to do, the run continues automatically.",
        ] {
            assert!(said.text.iter().any(|text| text == line), "{line}: {:?}", said.text);
        }
        assert_eq!(said.code.as_deref(), Some("host_reboot"));
        let late = explanation(node, &facts, at(1100.0));
        assert_eq!(late.next_action, "check the host's console");
    }

    #[test]
    fn an_active_node_that_was_released_by_hand() {
        let mut node = node(RunStatus::Succeeded);
        node.state = NodeState::Active;
        let problem = |code: NodeProblemCode, since, seen, stale, text: &str| NodeProblem {
            code: code.into(),
            source: code.row().source,
            owner: code.row().owner,
            since: at(since),
            observed_at: at(seen),
            observed_seconds_ago: 400.0 - seen,
            stale,
            text: text.to_owned(),
            next_action: code.row().advice("j22u11", "lab"),
            actions: advised_commands(&code.row().advice("j22u11", "lab"), "j22u11"),
        };
        let released = "MAAS: Ready, expected Deployed";
        let silent = "GPUaaS: the agent has been silent";
        node.problems = vec![
            problem(NodeProblemCode::ReleasedByHand, 340.0, 396.0, false, released),
            problem(NodeProblemCode::AgentSilent, 100.0, 100.0, true, silent),
        ];
        let said = explanation(node, &facts(), at(400.0));
        let line = "expected Deployed (released_by_hand, first seen 1 min 0 s ago";
        assert!(said.text.iter().any(|text| text.contains(line)), "{:?}", said.text);
        let old =
            "been silent (agent_silent, first seen 5 min 0 s ago, last 5 min 0 s ago, too old";
        assert!(said.text.iter().any(|text| text.contains(old)), "{:?}", said.text);
        assert!(said.next_action.starts_with("find out who released it"), "{}", said.next_action);
        assert_eq!(said.actions[0].command, "gpuaas node reimage j22u11");
        assert_eq!((said.owner, said.problems.len()), (Some(Owner::InfraOperator), 2));
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
            failure_class: None,
            looks_again_at: None,
        });
        let said = explanation(node, &facts(), at(400.0));
        assert_eq!((said.owner, said.deadline), (Some(Owner::InfraOperator), None));
        assert_eq!(said.since, Some(at(300.0)));
        assert_eq!(said.evidence, ["curtin: no disk"]);
        assert_eq!(said.text.last().unwrap(), "Next: replace the disk, then resume the run.");
        assert!(
            !said.text.iter().any(|line| line.contains("checks MAAS again")),
            "{:?}",
            said.text
        );
    }

    #[test]
    fn a_parked_run_that_looks_again_by_itself_says_so() {
        let mut node = node(RunStatus::Parked);
        node.park = Some(Park {
            code: "machine_locked".to_owned(),
            text: "machine abc123 is locked in MAAS".to_owned(),
            since: at(300.0),
            owner: Owner::InfraOperator,
            evidence: Vec::new(),
            next_action: "unlock it, then resume the run".to_owned(),
            actions: Vec::new(),
            failure_class: None,
            looks_again_at: Some(at(420.0)),
        });
        let said = explanation(node, &facts(), at(400.0));
        let line = "The run checks MAAS again in 20 s; it resumes automatically once the cause is \
                    fixed in MAAS.";
        assert!(said.text.iter().any(|text| text.ends_with(line)), "{:?}", said.text);
    }
}
