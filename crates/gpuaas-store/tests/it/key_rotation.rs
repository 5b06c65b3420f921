//! From one master key to the next, interrupted anywhere.

use gpuaas_store::{
    ExposeSecret as _, KeptResponse, KeyRing, MasterKey, NewAuditEntry, ReplayKey, SecretString,
    Store,
};
use gpuaas_types::{AuditAction, SiteId};
use serde_json::json;

use crate::approvals::new as new_approval;
use crate::fixture::{
    API_KEY, BMC_PASSWORD, Fixture, TestDatabase, at, code, key, on_each_database,
};

const NODES: usize = 7;

fn next() -> MasterKey {
    MasterKey::from_bytes([43; 32])
}

fn ring() -> KeyRing {
    KeyRing::new(key(), [next()])
}

fn entry(action: AuditAction) -> NewAuditEntry {
    NewAuditEntry { actor: "ann".to_owned(), action, subject: next().id_hex(), detail: json!({}) }
}

fn replay() -> ReplayKey {
    ReplayKey { caller: "ada".to_owned(), key: "k1".to_owned() }
}

fn response() -> KeptResponse {
    KeptResponse { status: 201, content_type: None, etag: None, body: "hush".to_owned() }
}

/// What a database holds that is sealed, in each table.
struct Planted {
    site_id: SiteId,
    nodes: Vec<gpuaas_types::NodeId>,
    approval: gpuaas_types::ApprovalId,
}

async fn plant(fixture: &Fixture) -> Planted {
    let mut nodes = Vec::new();
    for number in 0..NODES {
        nodes.push(fixture.node(&format!("j22u{number}")).await.0);
    }
    let store = &fixture.store;
    store.begin_replayable(at(0.0), &replay(), [1; 32], 90.0).await.unwrap();
    store.end_replayable(&replay(), [1; 32], Some(response())).await.unwrap();
    let approval =
        store.hold_request(at(0.0), new_approval(fixture, None, "j22u11")).await.unwrap();
    Planted { site_id: fixture.site_id, nodes, approval }
}

async fn opens_all(store: &Store, planted: &Planted) {
    let api_key = store.site_api_key(planted.site_id).await.unwrap();
    assert_eq!(api_key.expose_secret(), API_KEY);
    for node in &planted.nodes {
        let password = store.bmc_password(*node).await.unwrap().unwrap();
        assert_eq!(password.expose_secret(), BMC_PASSWORD);
    }
    let kept = store.begin_replayable(at(1.0), &replay(), [1; 32], 90.0).await.unwrap();
    assert_eq!(kept, Some(response()));
    store.held_request(planted.approval).await.unwrap();
}

async fn open(database: &TestDatabase, keys: impl Into<KeyRing>) -> Store {
    Store::open(&database.url, keys).await.unwrap()
}

/// Each round opens the database anew, as after `kill -9`, and dies after one more transaction.
#[test]
fn a_rotation_that_is_killed_after_any_transaction_goes_on() {
    on_each_database(|database| async move {
        let fixture = Fixture::new(database).await;
        let planted = plant(&fixture).await;
        let database = fixture.database;
        fixture.store.close().await;
        let total = NODES as u64 + 3;
        for round in 0..total {
            let store = open(&database, ring()).await;
            let begun = store
                .begin_key_rotation(
                    at(0.0),
                    &next().id_hex(),
                    entry(AuditAction::MasterKeyRotate),
                    false,
                )
                .await;
            assert_eq!(begun.unwrap(), round == 0);
            opens_all(&store, &planted).await;
            assert_eq!(store.rewrap_batch(1).await.unwrap(), 1, "round {round}");
            opens_all(&store, &planted).await;
            store.close().await;
            // One of the two keys is not enough meanwhile.
            for alone in [key(), next()] {
                assert_eq!(code(Store::open(&database.url, alone).await), "master_key_wrong");
            }
        }
        let store = open(&database, ring()).await;
        assert_eq!(store.rewrap_batch(9).await.unwrap(), 0);
        assert_eq!(
            store.end_key_rotation(at(2.0), entry(AuditAction::MasterKeyRetire)).await.unwrap(),
            total
        );
        assert_eq!(
            store.end_key_rotation(at(3.0), entry(AuditAction::MasterKeyRetire)).await.unwrap(),
            total
        );
        let counts = store.sealed_counts().await.unwrap();
        assert_eq!(
            counts.iter().map(|count| count.table).collect::<Vec<_>>(),
            ["approval", "request_replay", "secret"]
        );
        assert!(counts.iter().all(|count| count.key_id == next().id_hex()));
        let state = store.master_keys().await.unwrap();
        assert_eq!((state.sealing.clone(), state.moving()), (next().id_hex(), None));
        assert_eq!(state.former[0].ended_at, Some(at(2.0)));
        let entries = store.audit_entries(crate::fixture::SETUP_ENTRIES, 99).await.unwrap();
        let actions: Vec<_> = entries.iter().map(|one| one.entry.action.as_str()).collect();
        assert_eq!(actions, ["approval.ask", "master_key.rotate", "master_key.retire"]);
        assert_eq!(entries[2].entry.detail["values"], total);
        let again = store
            .begin_key_rotation(
                at(4.0),
                &key().id_hex(),
                entry(AuditAction::MasterKeyRotate),
                false,
            )
            .await;
        assert_eq!(code(again), "master_key_retired");
        store.close().await;
        assert_eq!(code(Store::open(&database.url, key()).await), "master_key_wrong");
        let store = open(&database, next()).await;
        opens_all(&store, &planted).await;
        store.close().await;
    });
}

/// Another control plane that has both keys, and has not heard which one seals by now.
#[test]
fn a_value_of_a_former_key_is_refused_and_the_next_one_is_of_the_new_key() {
    on_each_database(|database| async move {
        let fixture = Fixture::new(database).await;
        let (one, other) =
            (open(&fixture.database, ring()).await, open(&fixture.database, ring()).await);
        one.begin_key_rotation(
            at(0.0),
            &next().id_hex(),
            entry(AuditAction::MasterKeyRotate),
            false,
        )
        .await
        .unwrap();
        let secret = SecretString::from("new".to_owned());
        let set = || other.ensure_signing_key(&secret);
        assert_eq!(code(set().await), "database_unavailable");
        set().await.unwrap();
        assert_eq!(
            code(one.end_key_rotation(at(1.0), entry(AuditAction::MasterKeyRetire)).await),
            "sealed_values_left"
        );
        assert_eq!(one.rewrap_batch(100).await.unwrap(), 1, "the site's key");
        assert_eq!(
            one.end_key_rotation(at(2.0), entry(AuditAction::MasterKeyRetire)).await.unwrap(),
            2
        );
        let third = MasterKey::from_bytes([44; 32]).id_hex();
        let unknown = one
            .begin_key_rotation(at(3.0), &third, entry(AuditAction::MasterKeyRotate), false)
            .await;
        assert_eq!(code(unknown), "master_key_wrong");
        one.close().await;
        other.close().await;
    });
}

/// Asked before a secret is needed, and where a secret is refused.
#[test]
fn a_control_plane_without_the_key_that_seals_is_told_so() {
    on_each_database(|database| async move {
        let fixture = Fixture::new(database).await;
        let (former, both) =
            (open(&fixture.database, key()).await, open(&fixture.database, ring()).await);
        for store in [&former, &both] {
            store.check_master_keys().await.unwrap();
        }
        fixture.store.close().await;
        let rotates = open(&fixture.database, ring()).await;
        former.renew_control_plane("1.0", 60).await.unwrap();
        both.renew_control_plane("1.1", 60).await.unwrap();
        let begin = async |force| {
            rotates
                .begin_key_rotation(
                    at(0.0),
                    &next().id_hex(),
                    entry(AuditAction::MasterKeyRotate),
                    force,
                )
                .await
        };
        if rotates.engine() != "sqlite" {
            let refused = begin(false).await.unwrap_err();
            assert_eq!(refused.code(), "control_planes_lack_key");
            let said = refused.to_string();
            assert!(said.contains("(1.0)") && !said.contains("(1.1)"), "{said}");
        }
        assert!(begin(true).await.unwrap());
        let secret = SecretString::from("new".to_owned());
        for _ in 0..2 {
            assert_eq!(code(former.ensure_signing_key(&secret).await), "master_key_changed");
            assert_eq!(code(former.check_master_keys().await), "master_key_changed");
        }
        both.check_master_keys().await.unwrap();
        both.ensure_signing_key(&secret).await.unwrap();
        let refused = Store::open(&fixture.database.url, key()).await.unwrap_err();
        assert!(refused.hint().contains("--master-key FORMER --master-key NEXT"), "{refused:?}");
        for store in [former, both, rotates] {
            store.close().await;
        }
    });
}

#[test]
fn one_rotation_at_a_time() {
    on_each_database(|database| async move {
        let fixture = Fixture::new(database).await;
        let third = MasterKey::from_bytes([44; 32]);
        let keys = KeyRing::new(key(), [next(), third.clone()]);
        let store = open(&fixture.database, keys).await;
        store
            .begin_key_rotation(
                at(0.0),
                &next().id_hex(),
                entry(AuditAction::MasterKeyRotate),
                false,
            )
            .await
            .unwrap();
        let second = store
            .begin_key_rotation(
                at(1.0),
                &third.id_hex(),
                entry(AuditAction::MasterKeyRotate),
                false,
            )
            .await;
        assert_eq!(code(second), "key_rotation_unfinished");
        store.close().await;
    });
}
