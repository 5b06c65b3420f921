//! Heartbeats that are written together.

use gpuaas_store::{ReceivedHeartbeat, RunWrite, TokenPurpose};
use gpuaas_types::{NodeId, RunId, Step};

use crate::fixture::{Fixture, NOON, at, code, event, heartbeat, id, on_each_database, token};

/// Of an agent that says what keeps it from its work.
fn beat(node_id: NodeId, run_id: RunId, troubles: &str) -> ReceivedHeartbeat {
    ReceivedHeartbeat {
        troubles: troubles.to_owned(),
        first: Some(event(Some(run_id), "first_heartbeat")),
        changed: Some(event(Some(run_id), &format!("troubles_{troubles}"))),
        ..heartbeat(node_id, run_id)
    }
}

#[test]
fn heartbeats_that_say_nothing_new_share_a_write() {
    on_each_database(|database| async move {
        let fixture = Fixture::new(database).await;
        let store = &fixture.store;
        let mut nodes = Vec::new();
        for hostname in ["j22u11", "j22u13", "j22u15"] {
            let (node_id, run_id) = fixture.node(hostname).await;
            assert!(store.note_heartbeat(at(1.0), beat(node_id, run_id, "")).await.unwrap());
            nodes.push((node_id, run_id));
        }
        assert_eq!(store.write_noted_heartbeats().await.unwrap(), 0, "they were written at once");

        let before = store.counters().write_groups;
        for seconds in [31.0, 61.0] {
            for (node_id, run_id) in &nodes {
                let beat = beat(*node_id, *run_id, "");
                assert!(!store.note_heartbeat(at(seconds), beat).await.unwrap());
            }
        }
        assert_eq!(store.counters().write_groups, before);
        assert_eq!(store.write_noted_heartbeats().await.unwrap(), 0);
        assert_eq!(store.counters().write_groups, before + 1);
        for (node_id, _) in &nodes {
            assert_eq!(store.node(*node_id).await.unwrap().heartbeat_at, Some(at(61.0)));
        }
        // Nobody is taken for silent at 61 s: the look at 150 s counts from the last heartbeat.
        let quiet = store.connectivity_subjects(at(61.0)).await.unwrap();
        assert!(quiet.is_empty(), "{quiet:?}");
        assert_eq!(store.connectivity_subjects(at(61.5)).await.unwrap().len(), 3);
    });
}

#[test]
fn a_heartbeat_that_says_something_new_is_written_at_once() {
    on_each_database(|database| async move {
        let fixture = Fixture::new(database).await;
        let (store, replica) = (&fixture.store, fixture.database.open().await);
        let (node_id, run_id) = fixture.node("j22u11").await;
        let note =
            |seconds, troubles| store.note_heartbeat(at(seconds), beat(node_id, run_id, troubles));
        assert!(note(1.0, "").await.unwrap());
        assert!(!note(2.0, "disk_full").await.unwrap());
        let node = store.node(node_id).await.unwrap();
        assert_eq!((node.heartbeat_at, &*node.agent.troubles), (Some(at(2.0)), "disk_full"));

        // Meanwhile the agent told another control plane that it is well, which is news once more here.
        assert!(!replica.note_heartbeat(at(3.0), beat(node_id, run_id, "")).await.unwrap());
        assert!(!note(4.0, "disk_full").await.unwrap());
        assert_eq!(store.write_noted_heartbeats().await.unwrap(), 0);
        let node = store.node(node_id).await.unwrap();
        assert_eq!((node.heartbeat_at, &*node.agent.troubles), (Some(at(4.0)), "disk_full"));
        let history = store.timeline_of_run(run_id, 0, 10).await.unwrap();
        let codes: Vec<_> = history.iter().map(|row| row.event.code.as_str()).collect();
        let troubled = "troubles_disk_full";
        assert_eq!(codes, ["first_heartbeat", troubled, "troubles_", troubled]);

        // A heartbeat that another control plane took later is not undone.
        assert!(!note(5.0, "disk_full").await.unwrap());
        assert!(
            !replica.note_heartbeat(at(9.0), beat(node_id, run_id, "disk_full")).await.unwrap()
        );
        store.write_noted_heartbeats().await.unwrap();
        assert_eq!(store.node(node_id).await.unwrap().heartbeat_at, Some(at(9.0)));

        // What is noted when the store is closed is written.
        assert!(!note(11.0, "disk_full").await.unwrap());
        store.close().await;
        assert_eq!(replica.node(node_id).await.unwrap().heartbeat_at, Some(at(11.0)));
        assert_eq!(code(note(12.0, "").await), "database_unavailable");
    });
}

#[test]
fn the_next_system_of_a_run_is_heard_for_the_first_time() {
    on_each_database(|database| async move {
        let fixture = Fixture::new(database).await;
        let store = &fixture.store;
        let (node_id, run_id) = fixture.node("j22u11").await;
        let note = |seconds| store.note_heartbeat(at(seconds), beat(node_id, run_id, ""));
        assert!(note(1.0).await.unwrap());
        // It is deployed over within its run, and its next system says the same.
        let mut write = RunWrite::new(fixture.claim_one(NOON).await.run).releasing();
        write.run.due_at = at(900.0);
        write.tokens = vec![token((node_id, run_id), "boot", TokenPurpose::Bootstrap)];
        write.run.state.enter_step(Step::ReleaseForRetry);
        store.commit(at(2.0), write).await.unwrap();
        assert_eq!(store.node(node_id).await.unwrap().heartbeat_at, None);
        assert!(!note(3.0).await.unwrap());
        assert_eq!(store.write_noted_heartbeats().await.unwrap(), 1);
        assert_eq!(store.node(node_id).await.unwrap().heartbeat_at, Some(at(3.0)));
        assert_eq!(fixture.claim_one(at(3.0)).await.reports.len(), 1, "and its run is woken");

        // Of a run that is not there, nothing is kept.
        let unknown = beat(NodeId(id()), RunId(id()), "");
        assert_eq!(code(store.note_heartbeat(at(4.0), unknown).await), "not_found");
    });
}

#[test]
fn a_heartbeat_may_be_taken_again_where_it_is_known() {
    on_each_database(|database| async move {
        let fixture = Fixture::new(database).await;
        let (store, replica) = (&fixture.store, fixture.database.open().await);
        let (node_id, run_id) = fixture.node("j22u11").await;
        let again = |seconds, run_id, well: bool| {
            let is_said = move |_: &str, troubles: &str| troubles.is_empty() == well;
            store.repeat_heartbeat(at(seconds), node_id, run_id, is_said)
        };
        assert!(!again(0.5, run_id, true), "nothing was heard yet");
        store.note_heartbeat(at(1.0), beat(node_id, run_id, "")).await.unwrap();
        assert!(!again(31.0, run_id, false) && !again(31.0, RunId(id()), true));
        assert!(!replica.repeat_heartbeat(at(31.0), node_id, run_id, |_, _| true));

        let before = store.counters().write_groups;
        assert!(again(31.0, run_id, true));
        assert_eq!(store.counters().write_groups, before);
        store.write_noted_heartbeats().await.unwrap();
        let node = store.node(node_id).await.unwrap();
        assert_eq!((node.heartbeat_at, &*node.agent.troubles), (Some(at(31.0)), ""));
        let history = store.timeline_of_run(run_id, 0, 10).await.unwrap();
        let codes: Vec<_> = history.iter().map(|row| row.event.code.as_str()).collect();
        assert_eq!(codes, ["first_heartbeat"]);
    });
}
