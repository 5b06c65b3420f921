//! Breaks each invariant by hand: an invariant that cannot fail proves nothing.

use gpuaas_core::effect::{Effect, Outcome};
use gpuaas_core::record::{AgentRecord, NodeHardware};
use gpuaas_core::run_state::RunState;
use gpuaas_types::api::{Owner, Park, Source, TimelineEvent};
use gpuaas_types::{AttemptId, ProfileId, SiteId, Step};
use maas_sim::{H200, HumanAction, MachineSpec, Status};
use uuid::Uuid;

use super::*;
use crate::plan::SimulationPlan;
use crate::tick::Tick;

const NOW: Timestamp = Timestamp::from_micros(1_795_190_400_000_000);

fn node(name: &str, state: NodeState, system_id: Option<&str>) -> NodeRecord {
    NodeRecord {
        id: NodeId(Uuid::nil()),
        site_id: SiteId(Uuid::nil()),
        profile_id: ProfileId(Uuid::nil()),
        hostname: name.to_owned(),
        state,
        system_id: system_id.map(str::to_owned),
        hardware: NodeHardware::default(),
        run_id: None,
        heartbeat_at: None,
        agent: AgentRecord::default(),
        revision: 1,
        created_at: NOW,
        updated_at: NOW,
    }
}

fn run(status: RunStatus, due_at: Timestamp) -> RunRecord {
    RunRecord {
        id: RunId(Uuid::nil()),
        node_id: NodeId(Uuid::nil()),
        site_id: SiteId(Uuid::nil()),
        kind: RunKind::Onboard,
        step: Step::Commission,
        status,
        profile_id: ProfileId(Uuid::nil()),
        profile_revision: 1,
        state: RunState::default(),
        wait: None,
        park: None,
        created_at: NOW,
        step_since: NOW,
        ended_at: None,
        due_at,
        wake_seq: 0,
        handled_seq: 0,
        lease_token: 0,
        lease_until: Timestamp::EPOCH,
        traceparent: None,
    }
}

fn line(text: &str) -> StoredTimelineEvent {
    let event = TimelineEvent {
        at: NOW,
        run_id: None,
        step: None,
        source: Source::ControlPlane,
        code: "node_state_changed".to_owned(),
        text: text.to_owned(),
    };
    StoredTimelineEvent { id: 1, event }
}

fn intent(effect: Effect, outcome: Option<Outcome>) -> Intent {
    Intent {
        id: AttemptId(Uuid::nil()),
        step: Step::Deploy,
        effect,
        number: 1,
        at: NOW,
        before: None,
        outcome,
        ended_at: None,
        given_up: None,
        after_unknown: false,
    }
}

#[test]
fn a_forged_history_is_found() {
    use NodeState::{Active, BootstrapIssued, Enrolling, Registered};
    let issued = line("the node is bootstrap_issued (before: registered)");
    let enrolling = line("the node is enrolling (before: bootstrap_issued)");
    let active = line("the node is active (before: enrolling)");
    assert_eq!(history_gaps(&[], Registered), [""; 0]);
    assert_eq!(history_gaps(&[issued.clone(), enrolling.clone()], Enrolling), [""; 0]);
    assert_eq!(history_gaps(std::slice::from_ref(&issued), Active).len(), 1, "the end is missing");
    assert_eq!(history_gaps(&[issued.clone(), active], Active).len(), 1, "the middle is missing");
    let forged = line("the node is active (before: registered)");
    assert_eq!(history_gaps(&[forged], Active).len(), 1, "the table does not allow it");
    assert_eq!(history_gaps(&[issued, line("the node is fine")], BootstrapIssued).len(), 1);
}

#[test]
fn a_call_without_its_own_intent_is_found() {
    let mut checker = InvariantChecker::default();
    let deploy = Effect::Deploy { distro_series: "noble".to_owned(), enable_hw_sync: false };
    let open = intent(deploy.clone(), None);
    assert_eq!(checker.check_intent_of_call(Some(EffectKind::Deploy), Some(&open)), None);
    let again = checker.check_intent_of_call(Some(EffectKind::Deploy), Some(&open)).unwrap();
    assert!(again.contains("twice"), "{again}");
    assert!(checker.check_intent_of_call(Some(EffectKind::Release), Some(&open)).is_some());
    assert!(checker.check_intent_of_call(Some(EffectKind::Deploy), None).is_some());
    let over = Intent { id: AttemptId(Uuid::max()), ..intent(deploy, Some(Outcome::Accepted)) };
    assert!(checker.check_intent_of_call(Some(EffectKind::Deploy), Some(&over)).is_some());
}

#[test]
fn two_owners_of_a_machine_are_found() {
    let one = node("a", NodeState::Active, Some("abc123"));
    let other = node("b", NodeState::Registered, Some("abc123"));
    assert_eq!(owned_twice([&one, &other].into_iter()).len(), 1);
    let left = node("b", NodeState::Retired, Some("abc123"));
    assert!(owned_twice([&one, &left].into_iter()).is_empty());
}

#[test]
fn a_run_that_nobody_looks_at_or_explains_is_found() {
    let never = run(RunStatus::Running, Timestamp::NEVER);
    assert!(unexplained_open_run(&never).is_some());
    assert!(unexplained_open_run(&run(RunStatus::Waiting, NOW)).is_some(), "for what?");
    assert!(unexplained_open_run(&run(RunStatus::Parked, Timestamp::NEVER)).is_some(), "why?");
    let mut parked = run(RunStatus::Parked, Timestamp::NEVER);
    parked.park = Some(Park {
        code: "deploy_failed".to_owned(),
        text: "deployment failed".to_owned(),
        since: NOW,
        owner: Owner::InfraOperator,
        evidence: vec!["MAAS reported Failed deployment 3 s ago".to_owned()],
        next_action: String::new(),
        actions: Vec::new(),
        failure_class: None,
        looks_again_at: None,
    });
    assert!(unexplained_open_run(&parked).is_some(), "and now?");
    if let Some(park) = &mut parked.park {
        park.next_action = "resume".to_owned();
    }
    assert_eq!(unexplained_open_run(&parked), None);

    let checker = InvariantChecker { up_since: Some(NOW), ..InvariantChecker::default() };
    let due = run(RunStatus::Running, NOW);
    assert_eq!(checker.stuck(&due, NOW.plus_seconds(800.0)), None);
    assert!(checker.stuck(&due, NOW.plus_seconds(2000.0)).is_some(), "forgotten");
}

async fn settle(simulation: &mut Simulation, checker: &mut InvariantChecker, seconds: f64) {
    let until = simulation.clock.now().plus_seconds(seconds);
    while simulation.clock.now() < until {
        if simulation.tick(until).await.unwrap() == Tick::Idle {
            simulation.clock.advance_to(until);
        }
        assert_eq!(checker.after_tick(simulation).await.unwrap(), [""; 0]);
    }
}

#[tokio::test]
async fn a_deployment_by_hand_on_top_of_a_deployment_is_found() {
    let mut simulation = Simulation::new(SimulationPlan::calm(1, 1, &H200)).await.unwrap();
    simulation.start(0.0).await.unwrap();
    simulation.onboard_all();
    let mut checker = InvariantChecker::default();
    settle(&mut simulation, &mut checker, 8000.0).await;
    assert_eq!(checker.check_all(&simulation).await.unwrap(), [""; 0]);
    let (lives, broken, _) = checker.check_end(&simulation).await.unwrap();
    assert_eq!((lives.begun, lives.intended, broken.len()), (1, 1, 0), "{broken:?}");

    // Whoever does this bypasses the journal, and the checker is not told that it was a person.
    let name = simulation.region.with(|region| region.hosts())[0].name.clone();
    let now = simulation.clock.now().as_micros();
    simulation.region.with(|region| {
        region.apply_human_action(now, &HumanAction::Delete { machine: name.clone() }).unwrap();
        region.add_machine(MachineSpec::new(&name, Status::Ready));
        region.apply_human_action(now, &HumanAction::Deploy { machine: name.clone() }).unwrap();
    });
    let broken = checker.check_all(&simulation).await.unwrap();
    assert!(broken.iter().any(|text| text.contains("deployed again")), "{broken:?}");
    let (_, broken, _) = checker.check_end(&simulation).await.unwrap();
    assert!(broken.iter().any(|text| text.contains("no node holds it")), "{broken:?}");
}
