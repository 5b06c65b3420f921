//! Silences of agents, and their ends.

use gpuaas_core::connectivity::{
    ConnectivityChange, Presence, connectivity_of, decide_connectivity,
};
use gpuaas_store::{
    CertificateEnding, ConnectivityNote, ConnectivitySubject, NewAgentCredential, NewCertificate,
    NewEnrollment, NewToken, ReceivedHeartbeat, TokenPurpose, sha256,
};
use gpuaas_types::api::ConnectivityState;
use gpuaas_types::{NodeId, NodeState, RunId, TokenId};

use crate::drift::serving;
use crate::fixture::{Fixture, NOON, at, by_test, event, id, new_run, on_each_database};

const ALLOWED: f64 = 300.0;

async fn beat(fixture: &Fixture, node_id: NodeId, run_id: RunId, seconds: f64) {
    let heartbeat = ReceivedHeartbeat {
        node_id,
        run_id,
        agent_version: "1.0".to_owned(),
        troubles: "disk_full".to_owned(),
        first: Some(event(Some(run_id), "first_heartbeat")),
        changed: None,
    };
    fixture.store.record_heartbeat(at(seconds), heartbeat).await.unwrap();
}

/// What a look at `seconds` decides about the one subject there is.
async fn decide_now(fixture: &Fixture, seconds: f64) -> Option<ConnectivityNote> {
    let subjects = fixture.store.connectivity_subjects(at(seconds - ALLOWED)).await.unwrap();
    let ConnectivitySubject { node_id, presence, profile_id } = subjects.first()?.clone();
    assert_eq!((subjects.len(), profile_id), (1, fixture.profile_id));
    let change = decide_connectivity(&presence, ALLOWED, NOON, at(seconds))?;
    let (code, text) = change.event(&presence, ALLOWED, at(seconds));
    let mut line = event(None, code.as_str());
    (line.text, line.at) = (text, at(seconds));
    Some(ConnectivityNote { node_id, presence, change, event: line })
}

async fn codes(fixture: &Fixture, node_id: NodeId) -> Vec<String> {
    let lines = fixture.store.timeline_of_node(node_id, 0, 99).await.unwrap();
    lines.into_iter().map(|line| line.event.code).filter(|code| code.contains("agent_")).collect()
}

#[test]
fn a_silence_and_its_end_are_one_line_each_whoever_looks() {
    on_each_database(|database| async move {
        let fixture = Fixture::new(database).await;
        let store = &fixture.store;
        let node_id = serving(&fixture, "j22u11").await;
        let run_id = store.node(node_id).await.unwrap().run_id.unwrap();
        beat(&fixture, node_id, run_id, 10.0).await;
        let agent = store.node(node_id).await.unwrap().agent;
        assert_eq!((agent.online_since, agent.silent_since), (Some(at(10.0)), None));
        assert_eq!(agent.troubles, "disk_full");
        assert_eq!(decide_now(&fixture, 310.0).await, None);

        // Two replicas decide on the same heartbeat; a third one decided before it came.
        let note = decide_now(&fixture, 320.0).await.unwrap();
        let twice = vec![note.clone(), note.clone()];
        assert_eq!(store.note_connectivity(at(320.0), twice).await.unwrap(), 1);
        assert_eq!(store.note_connectivity(at(321.0), vec![note]).await.unwrap(), 0);
        assert_eq!(decide_now(&fixture, 9000.0).await, None, "what was noted is not noted again");
        let node = store.node(node_id).await.unwrap();
        assert_eq!((node.state, node.agent.silent_since), (NodeState::Offline, Some(at(10.0))));
        let seen = connectivity_of(&node, at(9000.0));
        assert_eq!((seen.state, seen.since), (ConnectivityState::Offline, Some(at(10.0))));
        assert_eq!(codes(&fixture, node_id).await, ["agent_offline"]);

        beat(&fixture, node_id, run_id, 9010.0).await;
        let back = decide_now(&fixture, 9015.0).await.unwrap();
        let twice = vec![back.clone(), back];
        assert_eq!(store.note_connectivity(at(9015.0), twice).await.unwrap(), 1);
        let node = store.node(node_id).await.unwrap();
        assert_eq!((node.state, node.agent.silent_since), (NodeState::Active, None));
        let seen = connectivity_of(&node, at(9015.0));
        assert_eq!((seen.state, seen.since), (ConnectivityState::Online, Some(at(9010.0))));
        assert_eq!(codes(&fixture, node_id).await, ["agent_offline", "agent_online"]);
        let lines = store.timeline_of_node(node_id, 0, 99).await.unwrap();
        let text = &lines.last().unwrap().event.text;
        assert!(text.contains("silent for 2 h 30 min"), "{text}");
    });
}

#[test]
fn a_heartbeat_or_a_run_that_came_meanwhile_drops_the_note() {
    on_each_database(|database| async move {
        let fixture = Fixture::new(database).await;
        let store = &fixture.store;
        let node_id = serving(&fixture, "j22u11").await;
        let run_id = store.node(node_id).await.unwrap().run_id.unwrap();
        beat(&fixture, node_id, run_id, 10.0).await;
        let late = decide_now(&fixture, 320.0).await.unwrap();
        beat(&fixture, node_id, run_id, 319.0).await;
        assert_eq!(store.note_connectivity(at(320.0), vec![late]).await.unwrap(), 0);
        assert_eq!(codes(&fixture, node_id).await, Vec::<String>::new());

        // A run that began after the decision keeps the node's state.
        let note = decide_now(&fixture, 700.0).await.unwrap();
        store.start_run(at(700.0), node_id, new_run(), vec![]).await.unwrap();
        assert_eq!(store.note_connectivity(at(701.0), vec![note]).await.unwrap(), 1);
        let node = store.node(node_id).await.unwrap();
        assert_eq!((node.state, node.agent.silent_since), (NodeState::Active, Some(at(319.0))));
        let subjects = store.connectivity_subjects(at(0.0)).await.unwrap();
        assert!(subjects[0].presence.has_open_run);
        // A state that follows by itself is noted once as well.
        let presence = Presence { has_open_run: false, ..subjects[0].presence };
        let change = ConnectivityChange { turned: None, state: Some(NodeState::Offline) };
        let line = event(None, "node_state_changed");
        let note = ConnectivityNote { node_id, presence, change, event: line };
        assert_eq!(store.note_connectivity(at(702.0), vec![note]).await.unwrap(), 0);
    });
}

#[test]
fn one_control_plane_at_a_time_looks_and_a_gap_is_known() {
    on_each_database(|database| async move {
        let fixture = Fixture::new(database).await;
        let store = &fixture.store;
        let claim = |seconds| store.claim_agent_watch(at(seconds), 10.0, 40.0);
        assert_eq!(claim(0.0).await.unwrap(), Some(at(0.0)));
        assert_eq!(claim(9.0).await.unwrap(), None);
        assert_eq!(claim(10.0).await.unwrap(), Some(at(0.0)));
        assert_eq!(claim(10.0).await.unwrap(), None);
        assert_eq!(claim(50.0).await.unwrap(), Some(at(0.0)), "a restart that takes 40 s");
        assert_eq!(claim(91.0).await.unwrap(), Some(at(91.0)), "nobody listened for 41 s");
        assert_eq!(claim(101.0).await.unwrap(), Some(at(91.0)));
    });
}

#[test]
fn the_latest_certificate_of_each_node_is_found() {
    on_each_database(|database| async move {
        let fixture = Fixture::new(database).await;
        let store = &fixture.store;
        let mut nodes = Vec::new();
        for (number, name) in ["j22u11", "j22u12"].into_iter().enumerate() {
            let (node_id, run_id) = fixture.node(name).await;
            let hash = sha256(name);
            let token = NewToken {
                id: TokenId(id()),
                hash,
                purpose: TokenPurpose::Enrollment,
                node_id: Some(node_id),
                run_id: Some(run_id),
                single_use: true,
                usable_from: NOON,
                expires_at: None,
            };
            store.add_token(NOON, token).await.unwrap();
            let issued = |seconds: f64, serial: &str| NewCertificate {
                fingerprint: sha256(serial),
                serial: serial.to_owned(),
                not_before: at(seconds),
                not_after: at(seconds + 100.0),
                authority: 1,
            };
            let first = format!("a{number}");
            let enroll = NewEnrollment {
                hash,
                run_id,
                key: None,
                agent_version: "1.0".to_owned(),
                hostname: name.to_owned(),
                credential: NewAgentCredential::Certificate(issued(0.0, &first)),
                timeline: Vec::new(),
            };
            store.use_enrollment_token(at(1.0), enroll).await.unwrap();
            let second = issued(66.0, &format!("b{number}"));
            store.renew_certificate(at(66.0), sha256(&first), second, vec![]).await.unwrap();
            nodes.push(node_id);
        }
        let (without, _) = fixture.node("j22u13").await;
        store.revoke_certificates(at(70.0), nodes[1], "stolen", vec![], by_test()).await.unwrap();
        let found = store.latest_certificates([nodes[0], nodes[1], without]).await.unwrap();
        assert_eq!(found.len(), 2);
        assert_eq!(
            (found[&nodes[0]].serial.as_str(), found[&nodes[0]].not_after),
            ("b0", at(166.0))
        );
        let (ending, at_70, _) = found[&nodes[1]].ended.clone().unwrap();
        assert_eq!((ending, at_70), (CertificateEnding::Revoked, at(70.0)));
        assert!(store.latest_certificates([without]).await.unwrap().is_empty());
    });
}
