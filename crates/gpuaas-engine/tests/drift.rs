//! People behind the control plane's back, and events that never came.

mod common;

use std::collections::BTreeMap;

use common::Harness;
use gpuaas_types::spec::ProfileSpec;
use gpuaas_types::{DriftAction, DriftKind, NodeId, NodeState, RunStatus};
use maas_sim::{Fault, FaultKind, HumanAction, SimOptions, ZERO};

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

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_people_do_in_maas_is_found_once_and_treated_as_the_site_says() {
    let harness = Harness::with(zero(5), ProfileSpec::default(), 40.0).await;
    let nodes = active(&harness).await;
    let site = harness.store.site(harness.site_id).await.unwrap();
    let mut spec = site.spec;
    spec.drift_policy = BTreeMap::from([
        (DriftKind::Vanished, DriftAction::Quarantine),
        (DriftKind::Renamed, DriftAction::Adopt),
    ]);
    let id = harness.site_id;
    harness.store.update_site(harness.now(), id, spec, site.status, None).await.unwrap();
    let human = |action: HumanAction| {
        harness.sim.with(|region| region.human(0, &action)).unwrap();
    };
    human(HumanAction::Release { machine: nodes[0].0.clone() });
    human(HumanAction::Rename { machine: nodes[1].0.clone(), to: "renamed-by-ann".to_owned() });
    human(HumanAction::Delete { machine: nodes[2].0.clone() });
    let engine = harness.restart_sweeping(4.0).await;

    let seen = harness.drift_until(2).await;
    let kind = |node: NodeId| seen.iter().find(|d| d.node_id == node).map(|d| d.drift.kind);
    assert_eq!(kind(nodes[0].1), Some(DriftKind::ReleasedByHand));
    assert_eq!(kind(nodes[2].1), Some(DriftKind::Vanished));
    let store = &harness.store;
    assert_eq!(store.node(nodes[0].1).await.unwrap().state, NodeState::Active);
    assert_eq!(store.node(nodes[1].1).await.unwrap().hostname, "renamed-by-ann");
    assert_eq!(store.node(nodes[2].1).await.unwrap().state, NodeState::Quarantined);

    human(HumanAction::Deploy { machine: nodes[0].0.clone() });
    let of_first = |seen: &[gpuaas_store::ListedDrift]| {
        seen.iter().any(|d| {
            d.node_id == nodes[0].1
                && d.drift.kind == DriftKind::DeployedByHand
                && d.drift.found.contains("installation")
        })
    };
    harness.drift_when(of_first).await;
    let first = codes(&harness, nodes[0].1).await;
    let count = |code: &str| first.iter().filter(|c| *c == code).count();
    assert!(count("drift_resolved") >= 1, "{first:?}");
    assert!(count("drift_found") <= 3, "a line per change, not per sweep: {first:?}");
    for (_, untouched) in &nodes[3..] {
        assert!(!codes(&harness, *untouched).await.iter().any(|code| code.starts_with("drift")));
    }
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
