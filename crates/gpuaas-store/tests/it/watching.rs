//! Watch leases and observations.

use gpuaas_store::{
    MachineRead, NodeChange, ObservedEvent, RunWrite, WatchLease, WatchUpdate, WatchedMachine,
};
use gpuaas_types::machine::{MachineView, Observation, maas_status as status};
use gpuaas_types::{NodeId, NodeState, RunStatus, SiteId, Step, Timestamp};

use crate::fixture::{Fixture, NOON, at, code, event, id, on_each_database};

pub(crate) fn machine(status: i64) -> MachineView {
    let view = serde_json::json!({
        "system_id": "abc123", "hostname": "j22u11", "status": status, "owner": null,
        "power_state": "on", "power_type": "ipmi", "architecture": "amd64/generic",
        "osystem": "", "distro_series": "", "locked": false, "netboot": true,
        "error_description": "", "status_message": null, "enable_hw_sync": false,
        "sync_interval_seconds": null, "boot_interface_id": null, "boot_disk_id": null,
        "disks": [], "complex_storage": 0, "nics": [], "tags": [], "hardware": "Dell XE9680",
        "has_installation_result": false,
    });
    serde_json::from_value(view).unwrap()
}

fn read(node_id: NodeId, status: i64, asked_at: Timestamp) -> WatchUpdate {
    let observation = Observation::from_read(machine(status), asked_at);
    WatchUpdate { reads: vec![MachineRead { node_id, observation }], ..WatchUpdate::default() }
}

fn heard(node_id: NodeId, event_id: i64, status: Option<i64>, at: Timestamp) -> WatchUpdate {
    let event = ObservedEvent { node_id, event_id, status, at, rebooted_at: None, alarm: None };
    let event_cursor = Some(event_id);
    let event_window = vec![event_id.unsigned_abs()];
    WatchUpdate { events: vec![event], event_cursor, event_window, ..WatchUpdate::default() }
}

async fn watch(fixture: &Fixture) -> WatchLease {
    let lease =
        fixture.store.claim_site_watch(NOON, fixture.site_id, "me", at(60.0)).await.unwrap();
    lease.unwrap()
}

#[test]
fn one_watcher_at_a_time() {
    on_each_database(|database| async move {
        let fixture = Fixture::new(database).await;
        let claim = |now, holder| {
            fixture.store.claim_site_watch(
                now,
                fixture.site_id,
                holder,
                Timestamp::plus_seconds(now, 60.0),
            )
        };
        let first = claim(NOON, "first").await.unwrap().unwrap();
        assert_eq!((first.token, first.event_cursor), (1, None));
        assert!(first.event_window.is_empty());
        assert_eq!(claim(at(1.0), "second").await.unwrap(), None);
        fixture.store.renew_site_watch(&first, at(90.0)).await.unwrap();
        assert_eq!(claim(at(89.0), "second").await.unwrap(), None);
        let second = claim(at(90.0), "second").await.unwrap().unwrap();

        let (node_id, run_id) = fixture.node("j22u11").await;
        let mut batch = heard(node_id, 7, Some(status::READY), at(90.0));
        batch.wakes = vec![run_id];
        batch.timeline = vec![(node_id, event(Some(run_id), "maas_event"))];
        let late = fixture.store.apply_watch_update(at(91.0), &first, batch.clone()).await;
        assert_eq!(code(late), "lease_lost");
        assert_eq!(code(fixture.store.renew_site_watch(&first, at(200.0)).await), "lease_lost");
        assert_eq!(fixture.store.event_cursor(fixture.site_id).await.unwrap(), None);
        assert_eq!(fixture.store.observation(node_id).await.unwrap(), None);
        assert_eq!(fixture.store.run(run_id).await.unwrap().wake_seq, 0);

        fixture.store.apply_watch_update(at(91.0), &second, batch).await.unwrap();
        assert_eq!(fixture.store.event_cursor(fixture.site_id).await.unwrap(), Some(7));
        assert_eq!(fixture.store.run(run_id).await.unwrap().wake_seq, 1);
        assert_eq!(fixture.store.timeline_of_run(run_id, 0, 9).await.unwrap().len(), 1);

        fixture.store.release_site_watch(&second).await.unwrap();
        let third = claim(at(92.0), "third").await.unwrap().unwrap();
        assert_eq!((third.token, third.event_cursor), (3, Some(7)));
        assert_eq!(third.event_window, [7]);
        let restarted = claim(at(93.0), "third").await.unwrap().unwrap();
        assert_eq!(restarted.token, 4);
        assert_eq!(code(fixture.store.release_site_watch(&third).await), "lease_lost");
        assert_eq!(code(fixture.store.event_cursor(SiteId(id())).await), "not_found");
    });
}

#[test]
fn knowledge_never_goes_backwards() {
    on_each_database(|database| async move {
        let fixture = Fixture::new(database).await;
        let (node_id, _) = fixture.node("j22u11").await;
        let lease = watch(&fixture).await;
        let apply = |batch| fixture.store.apply_watch_update(NOON, &lease, batch);
        let seen = || async { fixture.store.observation(node_id).await.unwrap().unwrap() };

        apply(read(node_id, status::READY, at(10.0))).await.unwrap();
        assert_eq!(seen().await, Observation::from_read(machine(status::READY), at(10.0)));

        apply(heard(node_id, 5, Some(status::DEPLOYING), at(20.0))).await.unwrap();
        let now = seen().await;
        assert_eq!((now.status, now.status_at, now.event_id), (status::DEPLOYING, at(20.0), 5));
        assert_eq!(now.machine.unwrap().status, status::READY);

        apply(heard(node_id, 4, Some(status::ALLOCATED), at(30.0))).await.unwrap();
        apply(heard(node_id, 5, Some(status::ALLOCATED), at(30.0))).await.unwrap();
        assert_eq!(seen().await.status, status::DEPLOYING, "an older event changes nothing");

        // Asked before the event, answered after it: new details, but the event's status.
        apply(read(node_id, status::ALLOCATED, at(15.0))).await.unwrap();
        let now = seen().await;
        assert_eq!((now.status, now.status_at), (status::DEPLOYING, at(20.0)));
        assert_eq!((now.machine.unwrap().status, now.read_at), (status::ALLOCATED, at(15.0)));
        assert_eq!(now.event_id, 5);

        apply(read(node_id, status::READY, at(12.0))).await.unwrap();
        assert_eq!(seen().await.read_at, at(15.0), "an older read changes nothing");

        apply(read(node_id, status::DEPLOYED, at(40.0))).await.unwrap();
        assert_eq!(seen().await.status, status::DEPLOYED);
    });
}

#[test]
fn a_reboot_is_remembered() {
    on_each_database(|database| async move {
        let fixture = Fixture::new(database).await;
        let (node_id, _) = fixture.node("j22u11").await;
        let lease = watch(&fixture).await;
        let mut reboot = heard(node_id, 9, None, at(20.0));
        reboot.events[0].rebooted_at = Some(at(19.0));
        reboot.events[0].alarm = Some("curtin: linux-generic".to_owned());
        fixture.store.apply_watch_update(NOON, &lease, reboot.clone()).await.unwrap();
        assert_eq!(fixture.store.observation(node_id).await.unwrap(), None);
        let ready = heard(node_id, 3, Some(status::DEPLOYING), at(5.0));
        fixture.store.apply_watch_update(NOON, &lease, ready).await.unwrap();
        fixture.store.apply_watch_update(NOON, &lease, reboot).await.unwrap();
        let later = read(node_id, status::DEPLOYING, at(30.0));
        fixture.store.apply_watch_update(NOON, &lease, later).await.unwrap();
        let seen = fixture.store.observation(node_id).await.unwrap().unwrap();
        assert_eq!((seen.rebooted_at, seen.event_id), (Some(at(19.0)), 9));
        let alarm = seen.alarm.unwrap();
        assert_eq!((alarm.at, alarm.text.as_str()), (at(20.0), "curtin: linux-generic"));
        assert_eq!((seen.status, seen.status_at), (status::DEPLOYING, at(30.0)));
    });
}

#[test]
fn a_worker_writes_what_it_read() {
    on_each_database(|database| async move {
        let fixture = Fixture::new(database).await;
        let (node_id, _) = fixture.node("j22u11").await;
        let mut write = RunWrite::new(fixture.claim_one(NOON).await.run).releasing();
        write.run.due_at = at(60.0);
        write.observation = Some(Observation::from_read(machine(status::NEW), at(1.0)));
        write.observation.as_mut().unwrap().vanished = true;
        fixture.store.commit(at(2.0), write.clone()).await.unwrap();
        let claimed = fixture.claim_one(at(60.0)).await;
        assert_eq!(claimed.observation, write.observation);
        let listed = fixture.store.listed_node(node_id).await.unwrap();
        assert_eq!((listed.maas_status, listed.maas_status_at), (Some(0), Some(at(1.0))));
    });
}

#[test]
fn machines_worth_watching() {
    on_each_database(|database| async move {
        let fixture = Fixture::new(database).await;
        let machines =
            || async { fixture.store.nodes_by_system_id(fixture.site_id).await.unwrap() };
        let (node_id, run_id) = fixture.node("j22u11").await;
        assert!(machines().await.is_empty());
        let claimed = fixture.claim_one(NOON).await;
        let write = |state, system_id: Option<&str>, status| {
            let mut write = RunWrite::new(claimed.run.clone());
            let system_id = system_id.map(str::to_owned);
            write.node = Some(NodeChange { state, system_id });
            write.run.status = status;
            fixture.store.commit(at(1.0), write)
        };
        write(None, Some("abc"), RunStatus::Waiting).await.unwrap();
        let found = machines().await;
        assert_eq!(found["abc"], WatchedMachine { node_id, run_id: Some(run_id) });
        // More machines than a statement takes, and one of them is of this site.
        let many: Vec<String> = (0..300).map(|n| format!("m{n}")).chain(["abc".into()]).collect();
        let among = async |site_id| {
            let many = many.iter().map(String::as_str);
            fixture.store.nodes_with_system_ids(site_id, many).await.unwrap()
        };
        assert_eq!(among(fixture.site_id).await, machines().await);
        assert!(among(SiteId(id())).await.is_empty());
        assert!(fixture.store.nodes_with_system_ids(fixture.site_id, []).await.unwrap().is_empty());
        assert!(!fixture.store.has_nodes_in_service(fixture.site_id).await.unwrap());
        write(Some(NodeState::Active), None, RunStatus::Succeeded).await.unwrap();
        assert!(fixture.store.has_nodes_in_service(fixture.site_id).await.unwrap());
        assert!(!fixture.store.has_nodes_in_service(SiteId(id())).await.unwrap());
        assert!(!fixture.store.has_moving_runs(fixture.site_id).await.unwrap());
        assert_eq!(machines().await["abc"], WatchedMachine { node_id, run_id: None });
        assert!(fixture.store.nodes_by_system_id(SiteId(id())).await.unwrap().is_empty());
        write(Some(NodeState::Deleted), None, RunStatus::Succeeded).await.unwrap();
        assert!(machines().await.is_empty());
    });
}

#[test]
fn small_questions_get_answers() {
    on_each_database(|database| async move {
        let fixture = Fixture::new(database).await;
        let store = &fixture.store;
        let (node_id, run_id) = fixture.node("j22u11").await;
        assert_eq!(store.moving_runs(fixture.site_id).await.unwrap(), [run_id]);
        assert!(store.moving_runs(SiteId(id())).await.unwrap().is_empty());
        assert!(store.has_moving_runs(fixture.site_id).await.unwrap());
        assert!(!store.has_moving_runs(SiteId(id())).await.unwrap());

        let watched = |now| store.is_watched(fixture.site_id, now);
        let lease = watch(&fixture).await;
        assert!(!watched(NOON).await.unwrap(), "the feed was not looked at yet");
        let batch = WatchUpdate { event_cursor: Some(1), ..WatchUpdate::default() };
        store.apply_watch_update(NOON, &lease, batch).await.unwrap();
        assert!(watched(at(59.0)).await.unwrap());
        assert!(!watched(at(60.0)).await.unwrap());

        let claimed = fixture.claim_one(NOON).await;
        let mut write = RunWrite::new(claimed.run);
        write.node = Some(NodeChange { state: None, system_id: Some("abc".to_owned()) });
        store.commit(NOON, write).await.unwrap();
        let holder = store.node_by_system_id(fixture.site_id, "abc").await.unwrap();
        assert_eq!(holder.map(|node| node.id), Some(node_id));
        assert_eq!(store.node_by_system_id(fixture.site_id, "xyz").await.unwrap(), None);

        let ended = store.end_leases_of_dead_owner(at(1.0)).await.unwrap();
        if store.engine() == "sqlite" {
            assert_eq!(ended, 1);
            assert_eq!(fixture.claim_one(at(1.0)).await.run.lease_token, 2);
        } else {
            assert_eq!(ended, 0, "another replica may be at work");
            assert!(fixture.claim(at(1.0)).await.is_empty());
        }

        fixture.node("j22u15").await;
        assert_eq!(store.moving_steps(fixture.site_id).await.unwrap(), [Step::Accept]);
        assert_eq!(store.moving_steps(SiteId(id())).await.unwrap(), []);
    });
}
