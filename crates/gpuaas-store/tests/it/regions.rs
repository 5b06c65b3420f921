//! Sites of one region: a second one is refused, and a machine belongs to one node of all of them.

use futures::future::join_all;
use gpuaas_store::{
    LeasedRun, NewAuditEntry, NodeChange, ObservedEvent, RunWrite, SecretString, Store, WatchUpdate,
};
use gpuaas_types::api::SiteStatus;
use gpuaas_types::spec::SiteSpec;
use gpuaas_types::{AuditAction, NodeState, RunStatus, SiteId};
use rand::{Rng as _, SeedableRng as _};
use rand_chacha::ChaCha8Rng;

use crate::fixture::{Fixture, NOON, at, by_test, code, id, on_each_database, site_spec};

const REGION: &str = "0198c5a0-0000-7000-8000-000000000001";

fn known_as(region: &str) -> SiteStatus {
    SiteStatus { region: region.to_owned(), ..SiteStatus::default() }
}

fn key() -> SecretString {
    SecretString::from("a:b:c".to_owned())
}

async fn add(store: &Store, spec: SiteSpec, region: &str) -> Result<SiteId, String> {
    let made =
        store.create_site(NOON, SiteId(id()), spec, known_as(region), &key(), by_test()).await;
    made.map(|site| site.id).map_err(|error| format!("{}: {error}", error.code()))
}

/// A run of a new node at `site_id`, claimed.
async fn claimed(fixture: &Fixture, site_id: SiteId, hostname: &str) -> LeasedRun {
    let mut asked = fixture.onboarding(hostname);
    asked.node.site_id = site_id;
    fixture.store.onboard(NOON, asked).await.unwrap();
    fixture.claim_one(NOON).await
}

fn bind(claimed: &LeasedRun, machine: &str) -> RunWrite {
    let mut write = RunWrite::new(claimed.run.clone());
    write.node = Some(NodeChange { state: None, system_id: Some(machine.to_owned()) });
    write
}

fn detach(claimed: &LeasedRun) -> RunWrite {
    let mut write = RunWrite::new(claimed.run.clone());
    write.run.status = RunStatus::Cancelled;
    write.node = Some(NodeChange { state: Some(NodeState::Detached), system_id: None });
    write
}

#[test]
fn a_second_site_of_a_region_is_refused() {
    on_each_database(|database| async move {
        let fixture = Fixture::new(database).await;
        let store = &fixture.store;
        let url = |text: &str| SiteSpec { url: text.to_owned(), ..site_spec("second") };
        let spelled = url("HTTP://North.Example:5240/MAAS/");
        let refused = add(store, spelled.clone(), "").await.unwrap_err();
        assert!(refused.starts_with("region_taken: "), "{refused}");
        assert!(refused.contains("site north"), "{refused}");
        assert_eq!(store.sites().await.unwrap().len(), 1, "nothing of it is kept");

        assert_eq!(store.set_site_region(at(1.0), fixture.site_id, REGION).await.unwrap(), None);
        assert_eq!(store.site(fixture.site_id).await.unwrap().status.region, REGION);
        let elsewhere = url("http://10.0.0.1:5240/MAAS");
        let refused = add(store, elsewhere.clone(), REGION).await.unwrap_err();
        assert!(refused.starts_with("region_taken: "), "{refused}");
        assert!(add(store, spelled, "another").await.is_err(), "the address is still the same");
        let second = add(store, elsewhere.clone(), "another").await.unwrap();

        let moved = store.update_site(
            at(2.0),
            (second, None),
            elsewhere.clone(),
            known_as(REGION),
            None,
            by_test(),
        );
        assert_eq!(code(moved.await), "region_taken");
        assert_eq!(store.site(second).await.unwrap().status.region, "another");
        let entry = NewAuditEntry {
            actor: "ann".to_owned(),
            action: AuditAction::SiteRemove,
            subject: "north".to_owned(),
            detail: serde_json::Value::Null,
        };
        store.remove_site(at(3.0), fixture.site_id, entry).await.unwrap();
        store
            .update_site(at(4.0), (second, None), elsewhere, known_as(REGION), None, by_test())
            .await
            .unwrap();
        let missing = store.set_site_region(at(5.0), SiteId(id()), REGION).await;
        assert_eq!(code(missing), "not_found");
    });
}

#[test]
fn another_past_of_a_region_is_kept() {
    on_each_database(|database| async move {
        let fixture = Fixture::new(database).await;
        let (store, north) = (&fixture.store, fixture.site_id);
        let run = claimed(&fixture, north, "first").await;
        store.commit(at(1.0), bind(&run, "abc")).await.unwrap();
        let watched = store.claim_site_watch(NOON, north, "w", at(600.0)).await.unwrap().unwrap();
        let event = |event_id, status| ObservedEvent {
            node_id: run.node.id,
            event_id,
            status: Some(status),
            at: at(2.0),
            rebooted_at: None,
            alarm: None,
        };
        let update = |cursor, rewound, events| WatchUpdate {
            event_cursor: Some(cursor),
            rewound,
            events,
            ..WatchUpdate::default()
        };
        let status = async || store.observation(run.node.id).await.unwrap().unwrap().status;
        let first = update(90, false, vec![event(90, 9)]);
        store.apply_watch_update(at(2.0), &watched, first).await.unwrap();
        let old = update(90, false, vec![event(12, 4)]);
        store.apply_watch_update(at(3.0), &watched, old).await.unwrap();
        assert_eq!(status().await, 9, "an event that was overtaken");
        store.apply_watch_update(at(4.0), &watched, update(11, true, Vec::new())).await.unwrap();
        assert_eq!(store.event_cursor(north).await.unwrap(), Some(11));
        let new = update(12, false, vec![event(12, 4)]);
        store.apply_watch_update(at(5.0), &watched, new).await.unwrap();
        assert_eq!(status().await, 4, "ids begin again where the feed ends");

        store.set_site_past(at(6.0), north, "restored").await.unwrap();
        let site = store.site(north).await.unwrap();
        let past = site.status.past.clone().unwrap();
        assert_eq!((past.at, past.text.as_str()), (at(6.0), "restored"));
        let asked = SiteStatus::default();
        let changed = store
            .update_site(at(7.0), (north, None), site.spec, asked, None, by_test())
            .await
            .unwrap();
        assert_eq!(changed.status.past, Some(past), "an operator's change keeps it");
        assert_eq!(code(store.set_site_past(NOON, SiteId(id()), "x").await), "not_found");
    });
}

#[test]
fn one_of_many_makes_the_site_of_a_region() {
    on_each_database(|database| async move {
        let fixture = Fixture::new(database).await;
        let other = fixture.database.open().await;
        let made = (0..8).map(|n| {
            let store = if n % 2 == 0 { &fixture.store } else { &other };
            add(store, site_spec(&format!("site{n}")), REGION)
        });
        let made = join_all(made).await;
        assert_eq!(made.iter().filter(|one| one.is_ok()).count(), 1, "{made:?}");
        let refused = made.iter().filter_map(|one| one.as_ref().err());
        assert!(refused.clone().all(|text| text.starts_with("region_taken")), "{made:?}");
    });
}

#[test]
fn a_machine_belongs_to_one_node_of_all_sites_of_its_region() {
    on_each_database(|database| async move {
        let fixture = Fixture::new(database).await;
        let (store, north) = (&fixture.store, fixture.site_id);
        let south = add(store, site_spec("south"), "").await.unwrap();
        let first = claimed(&fixture, north, "first").await;
        let second = claimed(&fixture, south, "second").await;
        store.commit(at(1.0), bind(&first, "abc")).await.unwrap();
        assert_eq!(store.node_by_system_id(south, "abc").await.unwrap(), None);
        assert_eq!(store.set_site_region(at(2.0), north, REGION).await.unwrap(), None);
        let other = store.set_site_region(at(2.0), south, REGION).await.unwrap();
        assert_eq!(other.as_deref(), Some("north"), "each had its own address");

        let holder = store.node_by_system_id(south, "abc").await.unwrap().unwrap();
        assert_eq!((holder.id, holder.site_id), (first.node.id, north));
        let refused = store.commit(at(3.0), bind(&second, "abc")).await.unwrap_err();
        assert_eq!(refused.code(), "machine_held");
        assert!(refused.to_string().contains("first of site north"), "{refused}");
        store.commit(at(3.0), bind(&second, "xyz")).await.unwrap();
        let mut same_bmc = fixture.onboarding("third");
        same_bmc.node.site_id = south;
        same_bmc.node.hardware = fixture.onboarding("first").node.hardware;
        assert_eq!(code(store.onboard(NOON, same_bmc).await), "bmc_address_taken");

        store.commit(at(4.0), detach(&first)).await.unwrap();
        let mut third = fixture.onboarding("third");
        third.node.site_id = south;
        store.onboard(NOON, third).await.unwrap();
        let third = fixture.claim_one(at(5.0)).await;
        store.commit(at(5.0), bind(&third, "abc")).await.unwrap();
    });
}

#[test]
fn a_machine_that_two_nodes_held_before_is_let_go_by_one() {
    on_each_database(|database| async move {
        let fixture = Fixture::new(database).await;
        let (store, north) = (&fixture.store, fixture.site_id);
        let south = add(store, site_spec("south"), "").await.unwrap();
        let first = claimed(&fixture, north, "first").await;
        let second = claimed(&fixture, south, "second").await;
        for one in [&first, &second] {
            store.commit(at(1.0), bind(one, "abc")).await.unwrap();
        }
        store.set_site_region(at(2.0), north, REGION).await.unwrap();
        let other = store.set_site_region(at(2.0), south, REGION).await.unwrap();
        assert_eq!(other.as_deref(), Some("north"));
        // Both can still be worked on; neither can be bound again while the other is there.
        for one in [&first, &second] {
            let mut write = RunWrite::new(one.run.clone());
            write.node =
                Some(NodeChange { state: Some(NodeState::BootstrapIssued), system_id: None });
            store.commit(at(3.0), write).await.unwrap();
            assert_eq!(code(store.commit(at(3.0), bind(one, "abc")).await), "machine_held");
        }
        store.commit(at(4.0), detach(&first)).await.unwrap();
        store.commit(at(5.0), bind(&second, "abc")).await.unwrap();
    });
}

/// Two sites of one region and two control planes bind and leave machines at random, many at once.
#[test]
fn at_no_moment_has_a_machine_two_owners() {
    on_each_database(|database| async move {
        let fixture = Fixture::new(database).await;
        let (store, north) = (&fixture.store, fixture.site_id);
        let other = fixture.database.open().await;
        let south = add(store, site_spec("south"), "").await.unwrap();
        for site in [north, south] {
            store.set_site_region(NOON, site, REGION).await.unwrap();
        }
        let mut random = ChaCha8Rng::seed_from_u64(11);
        let mut holding: Vec<(LeasedRun, String)> = Vec::new();
        let (mut bound, mut refused) = (0, 0);
        for round in 0..12 {
            let mut asked = Vec::new();
            for n in 0..6 {
                let site = if random.random_bool(0.5) { north } else { south };
                let run = claimed(&fixture, site, &format!("r{round}n{n}")).await;
                asked.push((run, format!("m{}", random.random_range(0..5))));
            }
            let commits = asked.iter().enumerate().map(|(n, (run, machine))| {
                let store = if n % 2 == 0 { store } else { &other };
                store.commit(at(1.0), bind(run, machine))
            });
            for ((run, machine), result) in asked.iter().zip(join_all(commits).await) {
                match result {
                    Ok(()) => {
                        bound += 1;
                        holding.push((run.clone(), machine.clone()));
                    }
                    Err(error) => {
                        refused += 1;
                        assert_eq!(error.code(), "machine_held");
                        store.commit(at(1.0), detach(run)).await.unwrap();
                    }
                }
            }
            let mut machines: Vec<&String> = holding.iter().map(|(_, machine)| machine).collect();
            machines.sort_unstable();
            let count = machines.len();
            machines.dedup();
            assert_eq!(machines.len(), count, "round {round}: {holding:?}");
            for (run, machine) in &holding {
                let holder = store.node_by_system_id(south, machine).await.unwrap().unwrap();
                assert_eq!(holder.id, run.node.id);
            }
            while !holding.is_empty() && random.random_bool(0.6) {
                let (run, _) = holding.swap_remove(random.random_range(0..holding.len()));
                store.commit(at(2.0), detach(&run)).await.unwrap();
            }
        }
        assert!(bound > 12 && refused > 12, "{bound} bound, {refused} refused");
    });
}

#[test]
fn a_site_from_before_regions_had_names_gets_one_when_the_store_is_opened() {
    on_each_database(|database| async move {
        let fixture = Fixture::new(database).await;
        if fixture.store.engine() != "sqlite" {
            return;
        }
        let path = fixture.database.folder.path().join("gpuaas.db");
        let raw = rusqlite::Connection::open(path).unwrap();
        raw.execute_batch("UPDATE site SET region = NULL, region_url = NULL").unwrap();
        let spec = SiteSpec { name: "third".to_owned(), ..site_spec("north") };
        let again = fixture.database.open().await;
        let refused = add(&again, spec, "").await.unwrap_err();
        assert!(refused.contains("site north"), "{refused}");
        add(&again, site_spec("second"), "").await.unwrap();
    });
}
