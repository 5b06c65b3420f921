//! Reads of one answer each, and values that the master key makes.

use gpuaas_core::record::{Report, ReportKind};
use gpuaas_store::{ExposeSecret as _, RunWrite};
use gpuaas_types::{RunStatus, TaskId};

use crate::fixture::{Fixture, NOON, at, id, on_each_database};

#[test]
fn overrides_and_moments_are_those_of_the_runs_asked_for() {
    on_each_database(|database| async move {
        let fixture = Fixture::new(database).await;
        let store = &fixture.store;
        let (node_id, run_id) = fixture.node("j22u11").await;
        assert!(store.check_overrides([run_id]).await.unwrap().is_empty());
        assert!(store.run_moments([run_id]).await.unwrap().is_empty());
        for (actor, seconds) in [("ada", 1.0), ("bob", 2.0)] {
            let kind = ReportKind::CheckSkipped {
                check: "pxe".to_owned(),
                actor: actor.to_owned(),
                reason: "known".to_owned(),
                until: at(900.0),
            };
            store.add_report(Report { run_id, at: at(seconds), kind }, Vec::new()).await.unwrap();
        }
        let overrides = store.check_overrides([run_id]).await.unwrap();
        let of_run: Vec<(&str, &str)> =
            overrides[&run_id].iter().map(|one| (&*one.check, &*one.actor)).collect();
        assert_eq!(of_run, [("pxe", "bob")], "the latest of each check");
        let mut write = RunWrite::new(fixture.claim_one(at(5.0)).await.run);
        (write.run.status, write.run.ended_at) = (RunStatus::Succeeded, Some(at(5.0)));
        store.commit(at(5.0), write.releasing()).await.unwrap();
        let moments = store.run_moments([run_id]).await.unwrap();
        assert_eq!(moments[&run_id].ended, Some(at(5.0)));
        assert!(store.task_spec(node_id, TaskId(id())).await.unwrap().is_none());
        store.check_certificate_count(NOON, node_id).await.unwrap();
    });
}

#[test]
fn sealed_texts_and_derived_keys_are_for_one_purpose() {
    on_each_database(|database| async move {
        let fixture = Fixture::new(database).await;
        let store = &fixture.store;
        let sealed = store.sealed_text("pass", "content").unwrap();
        let opened = |purpose: &str, text: &str| {
            store.open_text(purpose, text).map(|text| text.expose_secret().to_owned())
        };
        assert_eq!(opened("pass", &sealed).as_deref(), Some("content"));
        assert_eq!(opened("other", &sealed), None);
        assert_eq!(opened("pass", "not hexadecimal"), None);
        assert_eq!(store.derived_key("console"), store.derived_key("console"));
        assert_ne!(store.derived_key("console"), store.derived_key("other"));
    });
}
