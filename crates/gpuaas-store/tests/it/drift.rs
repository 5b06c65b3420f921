//! What a sweep writes.

use std::collections::HashMap;

use gpuaas_core::drift::Difference;
use gpuaas_store::{MissedObservation, NodeChange, RunWrite, SweepFinding};
use gpuaas_types::agent::{Gate, GateClass, GateReport};
use gpuaas_types::api::SiteStatus;
use gpuaas_types::machine::{MachineView, Observation, maas_status as status};
use gpuaas_types::{DriftAction, DriftKind, NodeId, NodeState, RunStatus, Timestamp};
use uuid::Uuid;

use crate::fixture::{Fixture, NOON, at, by_test, on_each_database};
use crate::watching::machine;

/// A node in service whose machine was read at noon.
pub(crate) async fn serving(fixture: &Fixture, hostname: &str) -> NodeId {
    let (node_id, _) = fixture.node(hostname).await;
    let mut write = RunWrite::new(fixture.claim_one(NOON).await.run).releasing();
    write.run.status = RunStatus::Succeeded;
    write.run.due_at = Timestamp::NEVER;
    let system_id = Some(format!("id-{hostname}"));
    write.node = Some(NodeChange { state: Some(NodeState::Active), system_id });
    write.observation = Some(Observation::from_read(machine(status::DEPLOYED), NOON));
    fixture.store.commit(NOON, write).await.unwrap();
    node_id
}

fn found(node_id: NodeId, differences: &[(DriftKind, &str, DriftAction)]) -> SweepFinding {
    let difference = |(kind, found, action): &(DriftKind, &str, DriftAction)| {
        let (expected, found) = ("before".to_owned(), (*found).to_owned());
        (Difference { kind: *kind, expected, found }, *action)
    };
    SweepFinding {
        node_id,
        asked_at: at(100.0),
        status: Some(status::READY),
        differences: differences.iter().map(difference).collect(),
        not_looked_at: Vec::new(),
        maas_user: None,
        remember: None,
        adopted: Vec::new(),
        hostname: None,
    }
}

#[test]
fn a_difference_is_a_row_and_a_line_while_it_lasts() {
    on_each_database(|database| async move {
        let fixture = Fixture::new(database).await;
        let store = &fixture.store;
        let node_id = serving(&fixture, "j22u11").await;
        let codes = || async {
            let lines = store.timeline_of_node(node_id, 0, 99).await.unwrap();
            lines.into_iter().map(|line| line.event.code).filter(|c| c != "accepted").collect()
        };
        let record = |seconds, finding| store.record_sweep(at(seconds), vec![finding]);
        let released = found(node_id, &[(DriftKind::ReleasedByHand, "Ready", DriftAction::Report)]);
        record(100.0, released.clone()).await.unwrap();
        record(200.0, released).await.unwrap();
        let listed = store.list_drift(Some(fixture.site_id), None).await.unwrap();
        assert_eq!(listed.len(), 1);
        assert_eq!((listed[0].hostname.as_str(), listed[0].site.as_str()), ("j22u11", "north"));
        let drift = &listed[0].drift;
        let of_nodes = store.drift_of_nodes([node_id, NodeId(Uuid::nil())]).await.unwrap();
        assert_eq!(of_nodes, HashMap::from([(node_id, vec![drift.clone()])]));
        assert_eq!((drift.since, drift.seen_at), (at(100.0), at(200.0)));
        let lines: Vec<String> = codes().await;
        assert_eq!(lines, ["drift_found"]);
        let seen = store.observation(node_id).await.unwrap().unwrap();
        assert_eq!((seen.status, seen.status_at), (status::READY, at(100.0)));

        let deployed =
            found(node_id, &[(DriftKind::DeployedByHand, "jammy", DriftAction::Quarantine)]);
        record(300.0, deployed).await.unwrap();
        assert_eq!(store.node(node_id).await.unwrap().state, NodeState::Quarantined);
        record(400.0, found(node_id, &[])).await.unwrap();
        assert!(store.list_drift(None, None).await.unwrap().is_empty());
        let lines: Vec<String> = codes().await;
        let wanted = ["drift_found", "drift_found", "drift_resolved", "quarantined"];
        assert_eq!(lines[..4], wanted);
        assert_eq!(lines[4..], ["drift_resolved"]);
    });
}

#[test]
fn a_free_name_and_tags_are_taken_over_and_a_node_with_a_run_is_left_alone() {
    on_each_database(|database| async move {
        let fixture = Fixture::new(database).await;
        let store = &fixture.store;
        let node_id = serving(&fixture, "j22u11").await;
        serving(&fixture, "j22u12").await;
        let mut finding = found(node_id, &[]);
        let mut tagged = machine(status::DEPLOYED);
        tagged.tags = vec!["gold".to_owned()];
        finding.remember = Some(tagged.clone());
        finding.adopted = vec!["tags taken over".to_owned()];
        finding.hostname = Some("j22u12".to_owned());
        store.record_sweep(at(1.0), vec![finding.clone()]).await.unwrap();
        assert_eq!(store.node(node_id).await.unwrap().hostname, "j22u11", "the name is taken");
        assert_eq!(store.observation(node_id).await.unwrap().unwrap().machine, Some(tagged));
        finding.hostname = Some("j22u13".to_owned());
        store.record_sweep(at(2.0), vec![finding]).await.unwrap();
        assert_eq!(store.node(node_id).await.unwrap().hostname, "j22u13");

        let (busy, run_id) = fixture.node("j22u14").await;
        let row = (DriftKind::Vanished, "gone", DriftAction::Quarantine);
        store.record_sweep(at(3.0), vec![found(busy, &[row])]).await.unwrap();
        assert!(store.list_drift(None, None).await.unwrap().is_empty());
        let subjects = store.sweep_subjects(fixture.site_id).await.unwrap();
        assert_eq!(subjects.len(), 2, "a node without a machine cannot be swept");

        let observation = Observation::from_read(machine(status::READY), at(4.0));
        let text = "MAAS says Ready".to_owned();
        let missed = MissedObservation { node_id: busy, run_id, observation, text };
        store.record_missed_observation(at(5.0), fixture.site_id, vec![missed]).await.unwrap();
        assert_eq!(store.run(run_id).await.unwrap().wake_seq, 1);
        assert_eq!(store.observation(busy).await.unwrap().unwrap().status, status::READY);
        store.set_site_health(at(6.0), fixture.site_id, "ok", "").await.unwrap();
        let site = store.site(fixture.site_id).await.unwrap();
        assert_eq!((site.status.missed_work, site.status.answered_at), (1, Some(at(6.0))));
        let asked = SiteStatus::default();
        let changed = store
            .update_site(at(7.0), (site.id, None), site.spec, asked, None, by_test())
            .await
            .unwrap();
        assert_eq!((changed.status.missed_work, changed.status.answered_at), (1, None));
        assert_eq!(changed.revision, site.revision + 1);
    });
}

/// The agent reports what did not change every half an hour only, and knows nothing of tags.
#[test]
fn a_gate_follows_the_tags_that_are_taken_over() {
    on_each_database(|database| async move {
        let fixture = Fixture::new(database).await;
        let store = &fixture.store;
        let node_id = serving(&fixture, "j22u11").await;
        let tag = || vec!["slices".to_owned()];
        let report =
            GateReport { gate: Gate::SliceReady, passed: true, class: None, checks: vec![] };
        let report = report.with_machine_tag("slices", Some(&tag()));
        let run_id = store.node(node_id).await.unwrap().run_id.unwrap();
        let kept = vec![report.clone()];
        store.set_gates(at(1.0), node_id, run_id, kept, |_, _| None).await.unwrap();
        let gate = async || {
            let mut gates = store.gates([node_id]).await.unwrap();
            gates.remove(&node_id).unwrap().remove(&Gate::SliceReady).unwrap()
        };
        let adopt = async |seconds, tags: Vec<String>| {
            let mut finding = found(node_id, &[]);
            finding.remember = Some(MachineView { tags, ..machine(status::DEPLOYED) });
            store.record_sweep(at(seconds), vec![finding]).await.unwrap();
        };
        adopt(2.0, vec!["gold".to_owned()]).await;
        let shut = gate().await;
        assert_eq!((shut.report.passed, shut.since, shut.at), (false, at(2.0), at(1.0)));
        assert_eq!(shut.report.class, Some(GateClass::MachineUntagged));
        adopt(3.0, vec!["silver".to_owned()]).await;
        assert_eq!(gate().await.since, at(2.0), "as shut as it was");
        adopt(4.0, tag()).await;
        let open = gate().await;
        assert_eq!((open.report, open.since), (report, at(4.0)));
        let lines = store.timeline_of_node(node_id, 0, 99).await.unwrap();
        let lines: Vec<_> = lines.into_iter().map(|line| line.event.code).collect();
        let of_gate: Vec<_> =
            lines.iter().filter(|code| code.starts_with("gate_slice_ready")).collect();
        assert_eq!(of_gate.len(), 2, "{lines:?}");
        // What the agent found beside the tag keeps the gate shut.
        let mut faulty = shut.report;
        faulty.class = Some(GateClass::HostSetupIncomplete);
        assert!(!faulty.retagged(&tag()).passed);
    });
}

#[test]
fn a_site_is_swept_once_per_interval() {
    on_each_database(|database| async move {
        let fixture = Fixture::new(database).await;
        let claim = |seconds| fixture.store.claim_sweep(at(seconds), fixture.site_id, 100.0);
        assert!(!claim(0.0).await.unwrap(), "the first sweep waits for an interval");
        assert!(!claim(99.0).await.unwrap());
        assert!(claim(100.0).await.unwrap());
        assert!(!claim(101.0).await.unwrap());
        assert!(claim(200.0).await.unwrap());
    });
}
