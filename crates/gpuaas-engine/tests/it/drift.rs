//! People behind the control plane's back, and events that never came.

use std::sync::Arc;

use crate::common::Harness;
use gpuaas_types::spec::ProfileSpec;
use gpuaas_types::{DriftAction, DriftKind, NodeId, NodeState, RunStatus};
use maas_sim::{Fault, FaultKind, HumanAction, PacedSimClock, SimOptions, ZERO};

async fn active(harness: &Harness) -> Vec<(String, NodeId)> {
    let mut accepted = Vec::new();
    for host in &harness.hosts {
        accepted.push((host.name.clone(), harness.onboard(host).await));
    }
    let mut nodes = Vec::new();
    for (name, accepted) in accepted {
        let run = harness.rest(accepted.run_id).await;
        assert_eq!(run.status, RunStatus::Succeeded, "{name}: {:?}", run.park);
        nodes.push((name, accepted.node_id));
    }
    nodes
}

fn zero(machines: usize) -> SimOptions {
    SimOptions { machines, class: &ZERO, scale: 0.0, ..SimOptions::default() }
}

#[expect(clippy::unwrap_used, reason = "a test")]
async fn codes(harness: &Harness, node: NodeId) -> Vec<String> {
    let lines = harness.store.timeline_of_node(node, 0, 10_000).await.unwrap();
    lines.into_iter().map(|line| line.event.code).collect()
}

/// Deploys it, as soon as MAAS lets a person.
async fn deploy(harness: &Harness, machine: &str) {
    let action = HumanAction::Deploy { machine: machine.to_owned() };
    harness
        .until(async || harness.sim.with(|region| region.apply_human_action(0, &action)).is_ok())
        .await;
}

async fn redeploy(harness: &Harness, machine: &str) {
    harness.human(&HumanAction::Release { machine: machine.to_owned() });
    deploy(harness, machine).await;
}

/// No sweep runs here: the feed of a quiet site is read on, and its machines are listed.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_people_do_on_a_quiet_site_is_seen_without_a_sweep() {
    let harness = Harness::with(zero(2), ProfileSpec::default(), 20.0).await;
    let nodes = active(&harness).await;
    let engine = harness.restart_sweeping(0.0).await;
    let (released, deleted) = (&nodes[0], &nodes[1]);
    harness.human(&HumanAction::Release { machine: released.0.clone() });
    harness.human(&HumanAction::Delete { machine: deleted.0.clone() });
    let drift = harness.drift_until(2).await;
    let kinds: std::collections::BTreeMap<_, _> =
        drift.iter().map(|listed| (listed.hostname.clone(), listed.drift.kind)).collect();
    assert_eq!(kinds[&released.0], DriftKind::ReleasedByHand);
    assert_eq!(kinds[&deleted.0], DriftKind::Vanished);
    // The region was asked for the exceptions before its feed was read on.
    let told = async || {
        let lines = harness.store.timeline_of_node(released.1, 0, 10_000).await.unwrap();
        lines.iter().any(|line| line.event.text.contains("User releasing node: (admin)"))
    };
    harness.until(told).await;
    let of_admin = |seen: &[gpuaas_store::ListedDrift]| {
        seen.iter().any(|row| row.drift.maas_user.as_deref() == Some("admin"))
    };
    harness.drift_when(of_admin).await;
    engine.stop().await;
}

/// What each policy makes of each kind.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_people_do_in_maas_is_reported() {
    each_kind_under(DriftAction::Report).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_people_do_in_maas_quarantines() {
    each_kind_under(DriftAction::Quarantine).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_people_do_in_maas_is_adopted_where_it_can_be() {
    each_kind_under(DriftAction::Adopt).await;
}

/// Does to one node each what people do, sweeps, and compares with what `action` promises.
#[expect(clippy::unwrap_used, reason = "a test")]
async fn each_kind_under(action: DriftAction) {
    use DriftKind::{DeployedByHand, PoweredOff, ReleasedByHand, Renamed, Retagged, Vanished};
    let kinds = [ReleasedByHand, DeployedByHand, Vanished, Renamed, Retagged, PoweredOff];
    let profile = ProfileSpec { require_hw_sync: true, ..ProfileSpec::default() };
    let factor = 100.0;
    let options =
        SimOptions { clock: Arc::new(PacedSimClock::new(factor)), ..zero(kinds.len() + 1) };
    let harness = Harness::with(options, profile, factor).await;
    harness.sim.with(|region| region.set_setting("hardware_sync_interval", "2m".into()));
    let nodes = active(&harness).await;
    harness
        .change_site(|spec| {
            spec.drift_policy = DriftKind::ALL.iter().map(|kind| (*kind, action)).collect()
        })
        .await;
    let human = |action: HumanAction| harness.human(&action);
    for (kind, (name, _)) in kinds.iter().zip(&nodes) {
        let machine = name.clone();
        match kind {
            ReleasedByHand => human(HumanAction::Release { machine }),
            DeployedByHand => redeploy(&harness, &machine).await,
            Vanished => human(HumanAction::Delete { machine }),
            Renamed => human(HumanAction::Rename { machine, to: "by-ann".to_owned() }),
            Retagged => human(HumanAction::Tag { machine, tag: "gold".to_owned() }),
            _ => human(HumanAction::PowerOff { machine }),
        }
    }
    let engine = harness.restart_sweeping(20.0).await;
    let adopted = |kind| action == DriftAction::Adopt && matches!(kind, Renamed | Retagged);
    // A machine that is off does not report its hardware either.
    let listed = kinds.into_iter().filter(|kind| !adopted(*kind)).count() + 1;
    let mut seen = harness.drift_until(listed).await;
    assert_eq!(seen.len(), listed, "one of a kind: {seen:?}");
    seen.retain(|row| row.drift.kind != DriftKind::HwSyncStale);
    assert_eq!(seen.len(), listed - 1, "{seen:?}");
    for (kind, (_, id)) in kinds.into_iter().zip(&nodes) {
        let row = seen.iter().find(|row| row.node_id == *id);
        let did = if action == DriftAction::Adopt { DriftAction::Report } else { action };
        let expected = (!adopted(kind)).then_some((kind, did));
        assert_eq!(row.map(|row| (row.drift.kind, row.drift.action)), expected);
        let lines = codes(&harness, *id).await;
        let said = if adopted(kind) { "drift_adopted" } else { "drift_found" };
        // MAAS says Releasing before it says Ready, and Deploying before Deployed.
        let count = lines.iter().filter(|code| *code == said).count();
        // A machine that is off also stops reporting its hardware.
        assert!((1..=3).contains(&count), "{kind}: {lines:?}");
        let state = harness.store.node(*id).await.unwrap().state;
        let wanted = match action {
            DriftAction::Quarantine => NodeState::Quarantined,
            _ => NodeState::Active,
        };
        assert_eq!(state, wanted, "{kind}");
    }
    let renamed = harness.store.node(nodes[3].1).await.unwrap().hostname;
    assert_eq!(renamed == "by-ann", action == DriftAction::Adopt, "{renamed}");
    let tagged = harness.store.observation(nodes[4].1).await.unwrap().unwrap().machine.unwrap();
    let gold = tagged.tags.iter().any(|tag| tag == "gold");
    assert_eq!(gold, action == DriftAction::Adopt, "{:?}", tagged.tags);
    let (_, untouched) = &nodes[kinds.len()];
    assert!(!codes(&harness, *untouched).await.iter().any(|code| code.starts_with("drift")));
    engine.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_difference_that_becomes_another_is_a_line_per_change() {
    let harness = Harness::with(zero(1), ProfileSpec::default(), 40.0).await;
    let (name, id) = active(&harness).await.remove(0);
    harness.human(&HumanAction::Release { machine: name.clone() });
    let engine = harness.restart_sweeping(4.0).await;
    assert_eq!(harness.drift_until(1).await[0].drift.kind, DriftKind::ReleasedByHand);
    deploy(&harness, &name).await;
    harness
        .drift_when(|seen| {
            seen.iter().any(|row| {
                row.drift.kind == DriftKind::DeployedByHand
                    && row.drift.found.contains("installation")
            })
        })
        .await;
    let lines = codes(&harness, id).await;
    let count = |code: &str| lines.iter().filter(|line| *line == code).count();
    assert!(count("drift_resolved") >= 1, "{lines:?}");
    assert!(count("drift_found") <= 3, "a line per change, not per sweep: {lines:?}");
    engine.stop().await;
    assert_eq!(harness.store.node(id).await.unwrap().state, NodeState::Active);
}

/// What a control plane from before installations were numbered remembers of a node.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_old_node_is_not_deployed_by_hand_and_its_installation_is_learned() {
    let harness = Harness::with(zero(1), ProfileSpec::default(), 40.0).await;
    let (name, id) = active(&harness).await.remove(0);
    let remembered = async || {
        let seen = harness.store.observation(id).await.unwrap().unwrap();
        seen.machine.unwrap().installation_id
    };
    let known = remembered().await;
    assert!(known.is_some(), "the run read the machine when it was deployed");
    harness.forget_installation(id).await;
    assert_eq!(remembered().await, None);
    let engine = harness.restart_sweeping(4.0).await;
    harness.until(async || remembered().await == known).await;
    assert!(!codes(&harness, id).await.iter().any(|code| code.starts_with("drift")));
    redeploy(&harness, &name).await;
    let of_another = |seen: &[gpuaas_store::ListedDrift]| {
        seen.iter().any(|row| row.drift.expected.contains("installation"))
    };
    harness.drift_when(of_another).await;
    engine.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_sweep_that_finds_what_the_feed_missed_raises_the_alarm_and_the_run_goes_on() {
    let harness = Harness::with(zero(1), ProfileSpec::default(), 200.0).await;
    let host = &harness.hosts[0];
    harness.sim.with(|region| region.inject(Fault::new(FaultKind::EventsGap).on(&host.name)));
    let engine = harness.restart_sweeping(100.0).await;
    let accepted = harness.onboard(host).await;
    let run = harness.rest(accepted.run_id).await;
    assert_eq!(run.status, RunStatus::Succeeded, "{:?}", run.park);
    let lines = codes(&harness, accepted.node_id).await;
    assert!(lines.iter().any(|code| code == "missed_work"), "{lines:?}");
    let site = harness.store.site(harness.site_id).await.unwrap();
    assert!(site.status.missed_work >= 1);
    engine.stop().await;
}
