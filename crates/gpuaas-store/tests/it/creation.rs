//! Creating the same thing from many places at once: one wins, and the others are told.

use futures::future::join_all;
use gpuaas_store::{
    ExposeSecret as _, NewRunOfNode, NewToken, Page, SecretString, Store, StoreError, TokenPurpose,
    sha256,
};
use gpuaas_types::agent::TaskKeyState;
use gpuaas_types::spec::{ProfileSpec, RoceAssignmentSpec};
use gpuaas_types::{NodeState, ProfileId, RoceAssignmentId, RunStatus, SiteId, TokenId};

use crate::batches::new_batch;
use crate::bundles::bundle;
use crate::fixture::{Fixture, NOON, at, by_test, code, id, new_run, on_each_database, site_spec};

/// Creators, half of them in another control plane.
const CREATORS: usize = 12;

/// The stores that creators use: one per creator, of two control planes.
async fn creators(fixture: &Fixture) -> Vec<Store> {
    let other = fixture.database.open().await;
    (0..CREATORS).map(|n| if n % 2 == 0 { fixture.store.clone() } else { other.clone() }).collect()
}

/// Whether one result is good and each of the others is the conflict `expected`.
fn one_wins<T: std::fmt::Debug>(results: &[Result<T, StoreError>], expected: &str) -> bool {
    let good = results.iter().filter(|result| result.is_ok()).count();
    let told = |error: &StoreError| matches!(error, StoreError::Conflict { code, .. } if *code == expected);
    let refused = results.iter().filter_map(|result| result.as_ref().err());
    assert!(good == 1 && refused.clone().all(told), "{expected}: {results:?}");
    true
}

#[test]
fn one_of_many_makes_a_site_a_profile_or_an_address() {
    on_each_database(|database| async move {
        let fixture = Fixture::new(database).await;
        let stores = creators(&fixture).await;
        let api_key = SecretString::from("a:b:c".to_owned());
        let sites = stores.iter().map(|store| {
            let (spec, status) = (site_spec("south"), Default::default());
            store.create_site(NOON, SiteId(id()), spec, status, &api_key, by_test())
        });
        assert!(one_wins(&join_all(sites).await, "site_name_taken"));
        let south = fixture.store.site_by_name("south").await.unwrap();
        let kept = fixture.store.site_api_key(south.id).await.unwrap();
        assert_eq!(
            kept.expose_secret(),
            api_key.expose_secret(),
            "the row and its secret are of the same creator"
        );

        let spec = ProfileSpec::default();
        let profiles = stores.iter().map(|store| {
            store.create_profile(NOON, ProfileId(id()), "b300", &spec, &[], by_test())
        });
        assert!(one_wins(&join_all(profiles).await, "profile_name_taken"));

        let addresses = stores.iter().enumerate().map(|(n, store)| {
            let address = RoceAssignmentSpec {
                site: "north".to_owned(),
                hostname: format!("host{n}"),
                interface: "rdma0".to_owned(),
                subnet_cidr: "10.8.0.0/24".to_owned(),
                ip_address: "10.8.0.1".to_owned(),
            };
            store.add_roce_assignment(
                NOON,
                RoceAssignmentId(id()),
                fixture.site_id,
                address,
                by_test(),
            )
        });
        assert!(one_wins(&join_all(addresses).await, "roce_address_taken"));
    });
}

#[test]
fn one_of_many_makes_a_node_or_a_run_of_it() {
    on_each_database(|database| async move {
        let fixture = Fixture::new(database).await;
        let stores = creators(&fixture).await;
        let same_name =
            stores.iter().map(|store| store.onboard(NOON, fixture.onboarding("j22u11")));
        assert!(one_wins(&join_all(same_name).await, "hostname_taken"));
        let same_bmc = stores.iter().enumerate().map(|(n, store)| {
            let mut asked = fixture.onboarding(&format!("host{n}"));
            asked.node.hardware.bmc_address = Some("10.0.0.9".to_owned());
            store.onboard(NOON, asked)
        });
        assert!(one_wins(&join_all(same_bmc).await, "bmc_address_taken"));

        for claimed in fixture.claim(NOON).await {
            let mut write = gpuaas_store::RunWrite::new(claimed.run).releasing();
            (write.run.status, write.run.ended_at) = (RunStatus::Cancelled, Some(at(1.0)));
            fixture.store.commit(at(1.0), write).await.unwrap();
        }
        let node_id = fixture.store.find_nodes("j22u11").await.unwrap()[0].node.id;
        let runs = stores.iter().map(|store| {
            let from = NodeState::ALL;
            let history = Vec::new();
            store.start_run_from(
                at(2.0),
                NewRunOfNode {
                    node_id,
                    run: new_run(),
                    profile_id: None,
                    from,
                    history,
                    audit: None,
                },
            )
        });
        assert!(one_wins(&join_all(runs).await, "node_has_open_run"));
        assert_eq!(fixture.store.runs_of_node(node_id, Page::first(9)).await.unwrap().len(), 2);
    });
}

#[test]
fn one_of_many_makes_a_batch_with_these_machines() {
    on_each_database(|database| async move {
        let fixture = Fixture::new(database).await;
        let stores = creators(&fixture).await;
        let same_name = stores
            .iter()
            .map(|store| store.create_batch(NOON, new_batch(&fixture, "rack", &["h0"])));
        assert!(one_wins(&join_all(same_name).await, "batch_name_taken"));
        // Each names the same machines, half of them in another order.
        let same_hosts = stores.iter().enumerate().map(|(n, store)| {
            let hosts = if n % 2 == 0 { ["h1", "h2", "h3"] } else { ["h3", "h2", "h1"] };
            store.create_batch(NOON, new_batch(&fixture, &format!("rack-{n}"), &hosts))
        });
        assert!(one_wins(&join_all(same_hosts).await, "hostname_taken"));
        let nodes = fixture.store.list_nodes(Default::default()).await.unwrap();
        assert_eq!(nodes.len(), 4, "of the batches that were refused nothing is left");
    });
}

#[test]
fn one_of_many_makes_a_token_or_publishes_a_version() {
    on_each_database(|database| async move {
        let fixture = Fixture::new(database).await;
        let stores = creators(&fixture).await;
        let tokens = stores.iter().map(|store| {
            let token = NewToken {
                id: TokenId(id()),
                hash: sha256("the same"),
                purpose: TokenPurpose::Admin,
                node_id: None,
                run_id: None,
                single_use: false,
                usable_from: NOON,
                expires_at: None,
            };
            store.add_token(NOON, token)
        });
        assert!(one_wins(&join_all(tokens).await, "already_exists"));

        // The same bytes: whoever is first publishes them, and the others find them published.
        for built_in in [false, true] {
            let digest = format!("same-{built_in}");
            let published = stores
                .iter()
                .map(|store| store.add_bundle(NOON, bundle(&digest, &digest, built_in), None));
            let published = join_all(published).await;
            let new = published.into_iter().filter(|new| *new.as_ref().unwrap()).count();
            assert_eq!(new, 1, "built in: {built_in}");
        }
        let other_bytes = stores.iter().enumerate().map(|(n, store)| {
            store.add_bundle(NOON, bundle("other", &format!("other-{n}"), false), None)
        });
        assert!(one_wins(&join_all(other_bytes).await, "bundle_version_taken"));
    });
}

#[test]
fn control_planes_that_start_together_agree_on_their_keys() {
    on_each_database(|database| async move {
        let fixture = Fixture::new(database).await;
        let stores = creators(&fixture).await;
        let propose = |n: usize| SecretString::from(format!("proposal {n}"));
        let all_same = |kept: Vec<Result<SecretString, StoreError>>| {
            let kept: Vec<SecretString> = kept.into_iter().map(Result::unwrap).collect();
            let first = kept[0].expose_secret();
            assert!(
                kept.iter().all(|one| one.expose_secret() == first),
                "each has the key that is kept"
            );
        };
        let signing = stores
            .iter()
            .enumerate()
            .map(|(n, store)| async move { store.ensure_signing_key(&propose(n)).await });
        all_same(join_all(signing).await);
        let authority = stores
            .iter()
            .enumerate()
            .map(|(n, store)| async move { store.ensure_node_authority(&propose(n)).await });
        all_same(join_all(authority).await);

        let first = stores.iter().enumerate().map(|(n, store)| async move {
            store.add_task_key(NOON, &format!("key {n}"), &propose(n), None).await
        });
        let first: Vec<_> = join_all(first).await.into_iter().map(Result::unwrap).collect();
        assert_eq!(first.iter().filter(|state| state.is_some()).count(), 1, "{first:?}");
        let keys = fixture.store.task_keys().await.unwrap();
        assert_eq!((keys.keys.len(), keys.revision), (1, 1));
        let winner = first.iter().position(Option::is_some).unwrap();
        assert_eq!(keys.keys[0].public_key, format!("key {winner}"));
        let secret = fixture.store.task_key_secret(&keys.keys[0].public_key).await.unwrap();
        assert_eq!(secret.expose_secret(), propose(winner).expose_secret());

        let staged = stores.iter().enumerate().map(|(n, store)| async move {
            store.add_task_key(NOON, &format!("next {n}"), &propose(n), Some(by_test())).await
        });
        assert!(one_wins(&join_all(staged).await, "task_key_staged"));
        let activated =
            stores.iter().map(|store| store.activate_task_key(NOON, at(60.0), by_test()));
        assert!(one_wins(&join_all(activated).await, "no_task_key_staged"));
    });
}

#[test]
fn a_task_key_is_staged_then_signs_then_retires() {
    on_each_database(|database| async move {
        let fixture = Fixture::new(database).await;
        let store = &fixture.store;
        assert_eq!(store.task_keys().await.unwrap(), Default::default());
        let secret = |text: &str| SecretString::from(text.to_owned());
        let add =
            async |name: &str| store.add_task_key(NOON, name, &secret(name), Some(by_test())).await;
        let states = async || {
            let keys = store.task_keys().await.unwrap();
            let states: Vec<_> =
                keys.keys.into_iter().map(|key| (key.public_key, key.state, key.until)).collect();
            (states, keys.revision)
        };
        assert_eq!(add("a").await.unwrap(), Some(TaskKeyState::Active));
        assert_eq!(store.add_task_key(NOON, "x", &secret("x"), None).await.unwrap(), None);
        assert_eq!(
            code(store.activate_task_key(NOON, at(60.0), by_test()).await),
            "no_task_key_staged"
        );
        assert_eq!(add("b").await.unwrap(), Some(TaskKeyState::Staged));
        assert_eq!(code(add("c").await), "task_key_staged");
        store.activate_task_key(NOON, at(60.0), by_test()).await.unwrap();
        let (a, b) = ("a".to_owned(), "b".to_owned());
        let expected = vec![
            (a.clone(), TaskKeyState::Grace, Some(at(60.0))),
            (b.clone(), TaskKeyState::Active, None),
        ];
        assert_eq!(states().await, (expected, 4), "the revision grows with every change");
        assert_eq!(code(store.retire_task_key(NOON, "b", by_test()).await), "task_key_active");
        assert_eq!(code(store.retire_task_key(NOON, "x", by_test()).await), "not_found");
        store.retire_task_key(NOON, "a", by_test()).await.unwrap();
        let (after, revision) = states().await;
        assert_eq!(revision, 5);
        assert_eq!(after[0], (b, TaskKeyState::Active, None));
        assert_eq!((&after[1].0, after[1].1), (&a, TaskKeyState::Retired));
        assert_eq!(store.task_key_secret("b").await.unwrap().expose_secret(), "b");
        assert_eq!(code(store.task_key_secret("x").await), "not_found");
    });
}
