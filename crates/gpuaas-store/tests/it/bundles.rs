//! Bundles, approvals and keys, and what agents say of gates.

use gpuaas_store::{
    BundleKey, ExposeSecret as _, NewAuditEntry, NewBundle, SecretOwner, SecretString,
};
use gpuaas_types::agent::{Gate, GateClass, GateReport};
use gpuaas_types::{AuditAction, SiteId};

use crate::fixture::{Fixture, NOON, at, by_test, code, event, id, on_each_database, written_by};

pub(crate) fn bundle(name: &str, digest: &str, built_in: bool) -> NewBundle {
    NewBundle {
        digest: digest.to_owned(),
        reference: format!("{name}@1.0.0"),
        built_in,
        archive: vec![0, 159, 146, 150],
        envelope: serde_json::json!({ "payload": "x" }),
        published_by: "ann".to_owned(),
    }
}

fn approved_by(actor: &str) -> gpuaas_store::NewAuditEntry {
    written_by(actor)
}

#[test]
fn a_bundle_is_kept_once_and_its_version_never_changes() {
    on_each_database(|database| async move {
        let fixture = Fixture::new(database).await;
        let store = &fixture.store;
        assert!(store.add_bundle(NOON, bundle("a", "1", false), None).await.unwrap());
        assert!(!store.add_bundle(at(1.0), bundle("a", "1", false), None).await.unwrap());
        let other = store.add_bundle(NOON, bundle("a", "2", false), None).await;
        assert_eq!(code(other), "bundle_version_taken");
        // What comes with a control plane may change with it; what was published may not take its
        // place.
        assert!(store.add_bundle(NOON, bundle("b", "3", true), None).await.unwrap());
        assert!(store.add_bundle(NOON, bundle("b", "4", true), None).await.unwrap());
        assert_eq!(
            code(store.add_bundle(NOON, bundle("b", "5", false), None).await),
            "bundle_version_taken"
        );
        let kept = store.bundles_after(0).await.unwrap();
        let digests: Vec<&str> = kept.iter().map(|one| one.bundle.digest.as_str()).collect();
        assert_eq!(digests, ["1", "3", "4"]);
        assert_eq!((&kept[0].bundle, kept[0].published_at), (&bundle("a", "1", false), NOON));
        assert_eq!(store.bundles_after(kept[1].id).await.unwrap().len(), 1);
    });
}

#[test]
fn a_bundle_is_approved_for_a_site() {
    on_each_database(|database| async move {
        let fixture = Fixture::new(database).await;
        let (store, site) = (&fixture.store, fixture.site_id);
        store.add_bundle(NOON, bundle("a", "1", false), None).await.unwrap();
        for actor in ["ann", "bob"] {
            store
                .approve_bundles(NOON, site, vec![("1".to_owned(), approved_by(actor))])
                .await
                .unwrap();
        }
        let approvals = store.bundle_approvals().await.unwrap();
        assert_eq!(approvals.len(), 1, "{approvals:?}");
        let first = &approvals[0];
        assert_eq!((first.site.as_str(), first.digest.as_str()), ("north", "1"));
        assert_eq!((first.approved_by.as_str(), first.approved_at), ("ann", NOON));
        let nobody = SiteId(id());
        assert_eq!(
            code(
                store
                    .approve_bundles(NOON, nobody, vec![("1".to_owned(), approved_by("ann"))])
                    .await
            ),
            "refers_to_nothing"
        );
        assert_eq!(
            code(
                store.approve_bundles(NOON, site, vec![("2".to_owned(), approved_by("ann"))]).await
            ),
            "refers_to_nothing"
        );
        assert!(store.withdraw_bundle(NOON, site, "1", by_test()).await.unwrap());
        assert!(!store.withdraw_bundle(NOON, site, "1", by_test()).await.unwrap());
        assert!(store.bundle_approvals().await.unwrap().is_empty());
    });
}

#[test]
fn keys_are_kept_and_the_own_one_is_made_once() {
    on_each_database(|database| async move {
        let fixture = Fixture::new(database).await;
        let store = &fixture.store;
        let key = |until| BundleKey { name: "ops".into(), public_key: "k".into(), until };
        store.trust_bundle_key(NOON, key(None), by_test()).await.unwrap();
        store.trust_bundle_key(NOON, key(Some(at(5.0))), by_test()).await.unwrap();
        assert_eq!(store.bundle_keys().await.unwrap(), [key(Some(at(5.0)))]);
        let propose = |text: &str| SecretString::from(text.to_owned());
        let first = store.ensure_signing_key(&propose("one")).await.unwrap();
        let again = store.ensure_signing_key(&propose("two")).await.unwrap();
        assert_eq!((first.expose_secret(), again.expose_secret()), ("one", "one"));
    });
}

#[test]
fn the_own_key_is_replaced_once_and_signatures_with_it() {
    on_each_database(|database| async move {
        let fixture = Fixture::new(database).await;
        let store = &fixture.store;
        let [one, two, three] =
            ["one", "two", "three"].map(|text| SecretString::from(text.to_owned()));
        store.ensure_signing_key(&one).await.unwrap();
        let keys = || {
            let key =
                |name: &str, until| BundleKey { name: name.into(), public_key: name.into(), until };
            vec![key("1", Some(at(9.0))), key("2", None)]
        };
        let entry = || NewAuditEntry {
            actor: "ann".to_owned(),
            action: AuditAction::BundleKeyRotate,
            subject: "2".to_owned(),
            detail: serde_json::json!({}),
        };
        assert!(store.rotate_signing_key(NOON, &one, &two, keys(), entry()).await.unwrap());
        assert!(!store.rotate_signing_key(NOON, &one, &three, Vec::new(), entry()).await.unwrap());
        let kept = store.ensure_signing_key(&three).await.unwrap();
        assert_eq!(kept.expose_secret(), "two");
        assert_eq!(store.bundle_keys().await.unwrap(), keys());

        store.add_bundle(NOON, bundle("a", "1", false), None).await.unwrap();
        let envelope = serde_json::json!({ "payload": "y" });
        store.sign_bundle_anew("1", &envelope).await.unwrap();
        let signed = &store.bundles_after(0).await.unwrap()[0].bundle;
        assert_eq!(signed, &NewBundle { envelope: envelope.clone(), ..bundle("a", "1", false) });
        assert_eq!(code(store.sign_bundle_anew("2", &envelope).await), "not_found");
    });
}

#[test]
fn a_secret_of_an_input_is_kept_for_its_owner() {
    on_each_database(|database| async move {
        let fixture = Fixture::new(database).await;
        let store = &fixture.store;
        let (site, profile) =
            (SecretOwner::Site(fixture.site_id), SecretOwner::Profile(fixture.profile_id));
        let set = async |at, owner, bundle, input, value: &str, by| {
            let value = SecretString::from(value.to_owned());
            store.set_input_secret(at, owner, bundle, input, &value, written_by(by)).await.unwrap()
        };
        let values = async |owner, bundle| {
            let values = store.input_secret_values(owner, bundle).await.unwrap();
            let plain =
                |(input, value): (String, SecretString)| (input, value.expose_secret().to_owned());
            values.into_iter().map(plain).collect::<Vec<_>>()
        };
        set(NOON, site, "h200-ib", "password", "one", "ann").await;
        set(NOON, site, "h200-ib", "key", "k", "ann").await;
        set(NOON, site, "other", "password", "o", "ann").await;
        set(NOON, profile, "h200-ib", "password", "p", "ann").await;
        let view = set(at(5.0), site, "h200-ib", "password", "two", "bob").await;
        assert_eq!((view.set_by.as_str(), view.set_at), ("bob", at(5.0)));
        let listed = store.input_secrets(site).await.unwrap();
        let names: Vec<(&str, &str)> =
            listed.iter().map(|one| (one.bundle.as_str(), one.input.as_str())).collect();
        assert_eq!(names, [("h200-ib", "key"), ("h200-ib", "password"), ("other", "password")]);
        assert_eq!(listed[1], view);
        let of = |input: &str, value: &str| (input.to_owned(), value.to_owned());
        assert_eq!(values(site, "h200-ib").await, [of("key", "k"), of("password", "two")]);
        assert_eq!(values(profile, "h200-ib").await, [of("password", "p")]);
        assert!(values(SecretOwner::Site(SiteId(id())), "h200-ib").await.is_empty());
        assert!(
            store.delete_input_secret(NOON, site, "h200-ib", "password", by_test()).await.unwrap()
        );
        assert!(
            !store.delete_input_secret(NOON, site, "h200-ib", "password", by_test()).await.unwrap()
        );
        assert_eq!(values(site, "h200-ib").await, [of("key", "k")]);
        assert_eq!(store.input_secrets(site).await.unwrap().len(), 2);
        assert_eq!(values(profile, "h200-ib").await, [of("password", "p")]);
    });
}

fn report(passed: bool) -> GateReport {
    let class = (!passed).then_some(GateClass::HostSetupIncomplete);
    GateReport { gate: Gate::SliceReady, passed, class, checks: Vec::new() }
}

#[test]
fn the_latest_word_on_a_gate_is_kept_with_its_beginning() {
    on_each_database(|database| async move {
        let fixture = Fixture::new(database).await;
        let store = &fixture.store;
        let (node_id, run_id) = fixture.node("j22u11").await;
        let say = |seconds, passed| {
            let changed = move |before: Option<&GateReport>, after: &GateReport| {
                let new = before.is_none_or(|before| before.passed != after.passed);
                new.then(|| event(Some(run_id), "gate"))
            };
            store.set_gates(at(seconds), node_id, run_id, vec![report(passed)], changed)
        };
        for (seconds, passed) in [(0.0, false), (10.0, false), (20.0, true)] {
            say(seconds, passed).await.unwrap();
        }
        let gates = store.gates([node_id]).await.unwrap();
        let gate = &gates[&node_id][&Gate::SliceReady];
        assert_eq!((&gate.report, gate.since, gate.at), (&report(true), at(20.0), at(20.0)));
        say(30.0, true).await.unwrap();
        let gates = store.gates([node_id]).await.unwrap();
        let gate = &gates[&node_id][&Gate::SliceReady];
        assert_eq!((gate.since, gate.at, gate.run_id), (at(20.0), at(30.0), run_id));
        store.append_timeline(node_id, vec![event(Some(run_id), "phase")]).await.unwrap();
        let lines = store.timeline_of_node(node_id, 0, 99).await.unwrap();
        let codes: Vec<&str> = lines.iter().map(|line| line.event.code.as_str()).collect();
        assert_eq!(codes, ["accepted", "gate", "gate", "phase"]);
        assert!(store.gates([]).await.unwrap().is_empty());
    });
}
