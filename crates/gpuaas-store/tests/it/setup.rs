//! Opening, sites, profiles, fabric addresses, audit.

use std::collections::HashMap;
use std::path::Path;

use gpuaas_store::{
    AuditEntry, AuditFilter, ExposeSecret as _, IdempotencyKey, MasterKey, NewAuditEntry, Page,
    ProfileBrief, ReplayKey, SecretOwner, SecretString, Store, StoreError,
};
use gpuaas_types::api::{BundlePin, OnboardAccepted, SiteStatus};
use gpuaas_types::filter::FilterList;
use gpuaas_types::spec::{ProfileSpec, RoceAssignmentSpec, SiteSpec};
use gpuaas_types::{AuditAction, ProfileId, RoceAssignmentId, SiteId};
use sqlx::{Connection as _, Row as _};

use crate::fixture::{
    API_KEY, BMC_PASSWORD, Fixture, NOON, at, by_test, code, id, key, on_each_database, site_spec,
    written_by,
};

#[test]
fn what_was_written_is_there_after_reopening() {
    on_each_database(|database| async move {
        let fixture = Fixture::new(database).await;
        let (node_id, run_id) = fixture.node("j22u11").await;
        fixture.store.close().await;

        let store = fixture.database.open().await;
        assert_eq!(store.node(node_id).await.unwrap().hostname, "j22u11");
        let claimed = store.claim(NOON, at(60.0), 10).await.unwrap();
        assert_eq!(claimed[0].run.id, run_id);
        assert_eq!(store.site_api_key(fixture.site_id).await.unwrap().expose_secret(), API_KEY);
        let password = store.bmc_password(node_id).await.unwrap().unwrap();
        assert_eq!(password.expose_secret(), BMC_PASSWORD);
        store.close().await;
    });
}

#[test]
fn one_control_plane_at_a_time_starts_on_a_shared_database() {
    on_each_database(|database| async move {
        let (store, other) = (database.open().await, database.open().await);
        let lock = store.lock_startup().await.unwrap();
        let mut next = Box::pin(other.lock_startup());
        let waits = futures::poll!(next.as_mut()).is_pending();
        assert_eq!(waits, store.engine() == "postgresql", "a file has one process anyway");
        lock.release().await;
        if waits {
            next.await.unwrap().release().await;
        }
    });
}

#[test]
fn another_master_key_is_refused() {
    on_each_database(|database| async move {
        database.open().await.close().await;
        let other = MasterKey::from_bytes([9; 32]);
        let refused = Store::open(&database.url, other).await.unwrap_err();
        assert_eq!(refused.code(), "master_key_wrong");
        assert!(!refused.hint().is_empty());
        Store::open(&database.url, key()).await.unwrap().close().await;
    });
}

#[tokio::test]
async fn a_store_in_memory_is_empty_and_its_own() {
    let one = Store::in_memory(key()).await.unwrap();
    let other = Store::in_memory(key()).await.unwrap();
    let spec = ProfileSpec::default();
    one.create_profile(NOON, ProfileId(id()), "h200", &spec, &[], by_test()).await.unwrap();
    assert_eq!(one.profiles().await.unwrap().len(), 1);
    assert!(other.profiles().await.unwrap().is_empty());
    assert_eq!(one.engine(), "sqlite");
}

fn contains_clear_text(folder: &Path, secrets: &[&str]) -> bool {
    std::fs::read_dir(folder).unwrap().any(|entry| {
        let bytes = std::fs::read(entry.unwrap().path()).unwrap();
        secrets
            .iter()
            .any(|secret| bytes.windows(secret.len()).any(|window| window == secret.as_bytes()))
    })
}

const HASH: &str = "$6$salt$of-a-login-user";

#[test]
fn secrets_are_not_in_the_database_in_clear() {
    on_each_database(|database| async move {
        let fixture = Fixture::new(database).await;
        fixture.node("j22u11").await;
        let (owner, hash) =
            (SecretOwner::Site(fixture.site_id), SecretString::from(HASH.to_owned()));
        let set = fixture.store.set_input_secret(
            NOON,
            owner,
            "h200-ib",
            "password",
            &hash,
            written_by("ann"),
        );
        set.await.unwrap();
        if fixture.store.engine() == "sqlite" {
            let folder = fixture.database.folder.path();
            assert!(
                contains_clear_text(folder, &["j22u11"]),
                "the search should find what is in clear"
            );
            assert!(!contains_clear_text(folder, &[API_KEY, BMC_PASSWORD, HASH]));
            fixture.store.close().await;
            assert!(!contains_clear_text(folder, &[API_KEY, BMC_PASSWORD, HASH]));
        } else {
            let mut direct = sqlx::PgConnection::connect(&fixture.database.url).await.unwrap();
            let dump = sqlx::query(
                "SELECT (SELECT string_agg(t::text, '') FROM secret t) \
                 || (SELECT string_agg(t::text, '') FROM site t) \
                 || (SELECT string_agg(t::text, '') FROM node t) \
                 || (SELECT string_agg(t::text, '') FROM input_secret t)",
            );
            let dump: String = dump.fetch_one(&mut direct).await.unwrap().get(0);
            assert!(dump.contains("j22u11") && dump.contains("h200-ib"));
            for secret in [API_KEY, BMC_PASSWORD, HASH] {
                let hex: String = secret.bytes().map(|byte| format!("{byte:02x}")).collect();
                assert!(!dump.contains(secret) && !dump.contains(&hex));
            }
        }
    });
}

#[tokio::test]
async fn a_bad_place_is_refused_with_a_hint() {
    let folder = tempfile::tempdir().unwrap();
    let missing = folder.path().join("no/such/folder/gpuaas.db");
    for (url, expected) in [
        ("mysql://root@localhost/x", "database_url_invalid"),
        ("sqlite::memory:", "database_url_invalid"),
        ("", "database_url_invalid"),
        ("postgres://user:hush@host:notaport/x", "database_url_invalid"),
        ("postgres://user:hush@127.0.0.1:1/x", "database_unreachable"),
        (missing.to_str().unwrap(), "database_unwritable"),
    ] {
        let refused = Store::open(url, key()).await.unwrap_err();
        assert_eq!(refused.code(), expected, "{url}");
        assert!(!refused.hint().is_empty(), "{url}");
        assert!(!refused.to_string().contains("hush"), "{refused}");
    }
    let not_ours = folder.path().join("text.db");
    std::fs::write(&not_ours, "this is no database, but long enough to be taken for one").unwrap();
    let refused = Store::open(not_ours.to_str().unwrap(), key()).await.unwrap_err();
    assert!(matches!(refused, StoreError::Open { .. }), "{refused:?}");
}

#[test]
fn sites_have_unique_names_and_a_status() {
    on_each_database(|database| async move {
        let fixture = Fixture::new(database).await;
        let secret = SecretString::from("x".to_owned());
        let status = SiteStatus::default();
        let again = fixture.store.create_site(
            NOON,
            SiteId(id()),
            site_spec("north"),
            status.clone(),
            &secret,
            by_test(),
        );
        assert_eq!(code(again.await), "site_name_taken");
        let south = SiteId(id());
        fixture
            .store
            .create_site(NOON, south, site_spec("south"), status, &secret, by_test())
            .await
            .unwrap();
        let names: Vec<String> =
            fixture.store.sites().await.unwrap().into_iter().map(|site| site.spec.name).collect();
        assert_eq!(names, ["north", "south"]);

        fixture.store.set_site_health(at(5.0), south, "ok", "").await.unwrap();
        let site = fixture.store.site_by_name("south").await.unwrap();
        assert_eq!((site.status.health.as_str(), site.status.answered_at), ("ok", Some(at(5.0))));
        assert_eq!((site.revision, site.updated_at), (1, at(5.0)));
        assert_eq!(fixture.store.site(south).await.unwrap(), site);
        assert_eq!(code(fixture.store.site_by_name("west").await), "not_found");
        assert_eq!(code(fixture.store.site_api_key(SiteId(id())).await), "not_found");
        let missing = fixture.store.set_site_health(at(5.0), SiteId(id()), "ok", "").await;
        assert_eq!(code(missing), "not_found");
    });
}

#[test]
fn an_operator_changes_a_site_and_its_key() {
    on_each_database(|database| async move {
        let fixture = Fixture::new(database).await;
        let (store, site_id) = (&fixture.store, fixture.site_id);
        let spec = SiteSpec { pxe_vlan: Some(7), ..site_spec("north") };
        let status = SiteStatus { maas_user: "ann".to_owned(), ..SiteStatus::default() };
        let changed = store.update_site(
            at(5.0),
            (site_id, None),
            spec.clone(),
            status.clone(),
            None,
            by_test(),
        );
        let changed = changed.await.unwrap();
        assert_eq!((changed.revision, changed.updated_at), (2, at(5.0)));
        assert_eq!((&changed.spec, &changed.status), (&spec, &status));
        assert_eq!(store.site_api_key(site_id).await.unwrap().expose_secret(), API_KEY);
        let key = SecretString::from("a:b:c".to_owned());
        let changed = store
            .update_site(
                at(6.0),
                (site_id, None),
                spec.clone(),
                status.clone(),
                Some(&key),
                by_test(),
            )
            .await;
        assert_eq!(changed.unwrap().revision, 3);
        assert_eq!(store.site_api_key(site_id).await.unwrap().expose_secret(), key.expose_secret());
        let reference = Some("vault:secret/maas/north#api_key".parse().unwrap());
        let kept = SiteSpec { api_key_ref: reference, ..spec.clone() };
        let given = Some(&key);
        store
            .update_site(at(7.0), (site_id, None), kept, status.clone(), given, by_test())
            .await
            .unwrap();
        assert_eq!(code(store.site_api_key(site_id).await), "not_found", "it is kept elsewhere");
        let missing = store
            .update_site(at(6.0), (SiteId(id()), None), spec, status, Some(&key), by_test())
            .await;
        assert_eq!(code(missing), "not_found");
    });
}

#[test]
fn a_profile_revision_never_changes() {
    on_each_database(|database| async move {
        let fixture = Fixture::new(database).await;
        let first = ProfileSpec::default();
        let second = ProfileSpec {
            require_hw_sync: true,
            offline_after_seconds: 77,
            ..ProfileSpec::default()
        };
        let pin =
            |bundle: &str, digest: &str| BundlePin { bundle: bundle.into(), digest: digest.into() };
        let pins = [pin("below@1", "1"), pin("site@1", "2")];
        let profile = fixture
            .store
            .set_profile(at(1.0), "h200", None, &second, &pins, by_test())
            .await
            .unwrap();
        assert_eq!((profile.id, profile.revision), (fixture.profile_id, 2));
        assert_eq!(profile.status.site_bootstrap_bundle_digest, "2");
        assert_eq!(profile.status.bundle_pins, pins);
        assert_eq!(fixture.store.profile(fixture.profile_id).await.unwrap(), profile);
        assert_eq!(fixture.store.profiles().await.unwrap(), vec![profile]);
        let briefs = fixture.store.profile_briefs([fixture.profile_id, ProfileId(id())]).await;
        let offline_after_seconds = second.offline_after_seconds;
        let brief = ProfileBrief { offline_after_seconds, bundle_pins: pins.to_vec() };
        assert_eq!(briefs.unwrap(), HashMap::from([(fixture.profile_id, brief)]));

        let old = fixture.store.profile_revision(fixture.profile_id, 1).await.unwrap();
        assert_eq!((old.spec, old.name.as_str(), old.bundle_pins), (first, "h200", Vec::new()));
        let new = fixture.store.profile_revision(fixture.profile_id, 2).await.unwrap();
        assert_eq!((new.spec, new.bundle_pins), (second.clone(), pins.to_vec()));
        assert_eq!(code(fixture.store.profile_revision(fixture.profile_id, 3).await), "not_found");
        assert_eq!(
            code(fixture.store.set_profile(NOON, "h100", None, &second, &[], by_test()).await),
            "not_found"
        );
        let again =
            fixture.store.create_profile(NOON, ProfileId(id()), "h200", &second, &[], by_test());
        assert_eq!(code(again.await), "profile_name_taken");
    });
}

fn roce(hostname: &str, interface: &str, ip_address: &str) -> RoceAssignmentSpec {
    RoceAssignmentSpec {
        site: "north".to_owned(),
        hostname: hostname.to_owned(),
        interface: interface.to_owned(),
        subnet_cidr: "10.8.0.0/24".to_owned(),
        ip_address: ip_address.to_owned(),
    }
}

#[test]
fn a_fabric_address_is_given_once() {
    on_each_database(|database| async move {
        let fixture = Fixture::new(database).await;
        let add = |spec| {
            fixture.store.add_roce_assignment(
                NOON,
                RoceAssignmentId(id()),
                fixture.site_id,
                spec,
                by_test(),
            )
        };
        let first = add(roce("j22u11", "rdma1", "10.8.0.2")).await.unwrap();
        let second = add(roce("j22u11", "rdma0", "10.8.0.1")).await.unwrap();
        let other = add(roce("j22u15", "rdma0", "10.8.0.3")).await.unwrap();
        assert_eq!(code(add(roce("j22u11", "rdma1", "10.8.0.9")).await), "roce_interface_taken");
        let taken = add(roce("j27u15", "rdma0", "10.8.0.2")).await.unwrap_err();
        assert_eq!(taken.code(), "roce_address_taken");
        assert!(taken.to_string().contains("rdma1 of j22u11"), "{taken}");
        let host = fixture.store.roce_assignments_of_host(fixture.site_id, "j22u11").await.unwrap();
        assert_eq!(host, vec![second.clone(), first.clone()]);
        let all = fixture.store.roce_assignments().await.unwrap();
        assert_eq!(all, vec![second, first, other]);
        let filters = [
            ("site=north hostname=j22u11 interface=rdma0,rdma1", 2),
            ("ip=10.8.0.3 created>=1970-01-01", 1),
            ("not subnet~10. or updated<1970-01-01", 0),
        ];
        crate::filters::assert_pass(&fixture, FilterList::Roce, &filters).await;
    });
}

#[test]
fn a_key_stands_for_one_request() {
    on_each_database(|database| async move {
        let fixture = Fixture::new(database).await;
        let key = IdempotencyKey { key: "onboard:1".to_owned(), request_hash: [1; 32] };
        assert_eq!(fixture.store.replayed_response::<OnboardAccepted>(&key).await.unwrap(), None);
        let mut onboarding = fixture.onboarding("j22u11");
        onboarding.idempotency = Some(key.clone());
        let made = fixture.store.onboard(NOON, onboarding).await.unwrap();
        let kept = fixture.store.replayed_response::<OnboardAccepted>(&key).await.unwrap();
        assert_eq!(kept, Some(made.accepted.clone()));
        let other = IdempotencyKey { request_hash: [2; 32], ..key.clone() };
        assert_eq!(
            code(fixture.store.replayed_response::<OnboardAccepted>(&other).await),
            "idempotency_key_reused"
        );
        // It is forgotten when answers of its age are.
        let fresh = ReplayKey { caller: "ann".to_owned(), key: "k2".to_owned() };
        for (days, kept) in [(6.9, Some(made.accepted)), (7.1, None)] {
            let moment = at(days * 86_400.0);
            fixture.store.begin_replayable(moment, &fresh, [3; 32], 90.0).await.unwrap();
            fixture.store.end_replayable(&fresh, [3; 32], None).await.unwrap();
            let key = IdempotencyKey { key: "onboard:1".to_owned(), request_hash: [1; 32] };
            assert_eq!(fixture.store.replayed_response(&key).await.unwrap(), kept, "{days} days");
        }
    });
}

#[test]
fn the_audit_log_pages() {
    on_each_database(|database| async move {
        let fixture = Fixture::empty(database).await;
        for n in 0..5 {
            let entry = NewAuditEntry {
                actor: "ada".to_owned(),
                action: AuditAction::SiteCreate,
                subject: format!("s{n}"),
                detail: serde_json::json!({ "with": "a \u{0} byte" }),
            };
            fixture.store.append_audit_entry(at(f64::from(n)), entry).await.unwrap();
        }
        let page = fixture.store.audit_entries(0, 3).await.unwrap();
        let rest = fixture.store.audit_entries(page[2].id, 3).await.unwrap();
        let subjects: Vec<&str> =
            page.iter().chain(&rest).map(|entry| entry.entry.subject.as_str()).collect();
        assert_eq!(subjects, ["s0", "s1", "s2", "s3", "s4"]);
        assert_eq!(page[1].at, at(1.0));
        assert_eq!(page[0].entry.detail["with"], "a \u{fffd} byte");
    });
}

#[test]
fn the_audit_log_is_filtered() {
    on_each_database(|database| async move {
        let fixture = Fixture::new(database).await;
        let (node_id, run_id) = fixture.node("j22u11").await;
        let (other, _) = fixture.node("j22u15").await;
        let write = |seconds: f64, action: &str, subject: String, detail| {
            let (actor, action) = ("admin".to_owned(), action.parse().unwrap());
            let entry = NewAuditEntry { actor, action, subject, detail };
            fixture.store.append_audit_entry(at(seconds), entry)
        };
        let none = serde_json::json!({});
        let ann = serde_json::json!({ "actor": "ann" });
        write(1.0, "node.change", node_id.to_string(), ann).await.unwrap();
        write(2.0, "run.resume", run_id.to_string(), none.clone()).await.unwrap();
        write(3.0, "node.change", other.to_string(), none.clone()).await.unwrap();
        write(4.0, "site.change", "north".to_owned(), none.clone()).await.unwrap();
        write(5.0, "site.remove", "gone".to_owned(), none.clone()).await.unwrap();
        write(6.0, "bundle.approve", "a@1".to_owned(), serde_json::json!({ "site": "gone" }))
            .await
            .unwrap();
        write(7.0, "profile.create", "north".to_owned(), none).await.unwrap();
        let list = |filter: AuditFilter, page| {
            let listed = fixture.store.audit_page(filter, page);
            async move { listed.await.unwrap() }
        };
        let seconds = |entries: &[AuditEntry]| -> Vec<f64> {
            entries.iter().map(|entry| entry.at.seconds_since(at(0.0))).collect()
        };
        let all = AuditFilter::default();
        let first = list(all.clone(), Page::first(3)).await;
        assert_eq!(seconds(&first), [7.0, 6.0, 5.0]);
        let rest = list(all.clone(), Page { after: Some(first[2].id), limit: 9 }).await;
        assert_eq!(seconds(&rest)[..4], [4.0, 3.0, 2.0, 1.0]);
        let of_node = AuditFilter { node_id: Some(node_id), ..all.clone() };
        let mut found = list(of_node.clone(), Page::first(2)).await;
        assert_eq!(seconds(&found), [2.0, 1.0]);
        let resumed = found.remove(0);
        assert_eq!(
            (resumed.hostname.as_deref(), resumed.site.as_deref()),
            (Some("j22u11"), Some("north"))
        );
        let since = AuditFilter { since: Some(at(2.0)), ..of_node };
        assert_eq!(seconds(&list(since, Page::first(9)).await), [2.0]);
        let of_site = |name: &str| AuditFilter { site: Some(name.to_owned()), ..all.clone() };
        assert_eq!(seconds(&list(of_site("north"), Page::first(4)).await), [4.0, 3.0, 2.0, 1.0]);
        assert_eq!(seconds(&list(of_site("gone"), Page::first(9)).await), [6.0, 5.0]);
        let by = |name: &str| AuditFilter { actor: Some(name.to_owned()), ..all.clone() };
        assert_eq!(seconds(&list(by("ann"), Page::first(9)).await), [1.0]);
        assert!(list(by("bob"), Page::first(9)).await.is_empty());
    });
}
