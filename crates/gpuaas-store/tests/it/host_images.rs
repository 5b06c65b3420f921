//! Host images of sites: what is kept of them, and what names them.

use gpuaas_store::{ImageUses, NewAuditEntry, NodeChange, RunWrite, StoredImage};
use gpuaas_types::image::{ImageEvent, ImageState, ImageVerdict};
use gpuaas_types::spec::ProfileSpec;
use gpuaas_types::{AuditAction, NodeState, ProfileId, RunStatus, SiteId, Timestamp};
use serde_json::json;

use crate::fixture::{Fixture, NOON, at, by_test, code, id, on_each_database};

const NAME: &str = "h200-20261120-9f86d081884c";

fn image(site_id: SiteId, name: &str, state: ImageState) -> StoredImage {
    StoredImage {
        site_id,
        site: "north".to_owned(),
        name: name.to_owned(),
        sha256: "9f".repeat(32),
        size_bytes: 6_000_000_000,
        resource_id: Some(11),
        parents: vec!["ab".repeat(32)],
        state,
        canary_nodes: None,
        expires_at: Some(at(3600.0)),
        changed_by: "ann".to_owned(),
        changed_at: NOON,
        reason: "tried".to_owned(),
        revision: 0,
    }
}

fn event(at: Timestamp, from: Option<ImageState>, to: ImageState) -> ImageEvent {
    let statement = json!({ "payload": "x" });
    ImageEvent { at, actor: "ann".to_owned(), from, to, reason: "tried".to_owned(), statement }
}

fn entry() -> NewAuditEntry {
    NewAuditEntry {
        actor: "ann".to_owned(),
        action: AuditAction::ImageRecord,
        subject: NAME.to_owned(),
        detail: json!({}),
    }
}

async fn put(fixture: &Fixture, name: &str, state: ImageState) -> StoredImage {
    let new = image(fixture.site_id, name, state);
    fixture.store.put_image(&new, &event(NOON, None, state), entry()).await.unwrap();
    fixture.store.image(fixture.site_id, name).await.unwrap().unwrap()
}

/// A node of a profile of its own that names `distro_series`.
async fn node_with(fixture: &Fixture, hostname: &str, distro_series: &str) -> ProfileId {
    let spec = ProfileSpec { distro_series: distro_series.to_owned(), ..ProfileSpec::default() };
    let profile_id = ProfileId(id());
    let profile = format!("of-{hostname}");
    fixture.store.create_profile(NOON, profile_id, &profile, &spec, &[], by_test()).await.unwrap();
    let mut new = fixture.onboarding(hostname);
    new.node.profile_id = profile_id;
    fixture.store.onboard(NOON, new).await.unwrap();
    profile_id
}

/// Ends the run of the one node that is due.
async fn succeed(fixture: &Fixture, now: Timestamp) {
    let claimed = fixture.claim_one(now).await;
    let mut run = claimed.run;
    (run.status, run.ended_at) = (RunStatus::Succeeded, Some(now));
    let mut write = RunWrite::new(run).releasing();
    write.node = Some(NodeChange {
        state: Some(NodeState::Active),
        system_id: Some(format!("m-{}", claimed.node.hostname)),
    });
    fixture.store.commit(now, write).await.unwrap();
}

#[test]
fn an_image_is_changed_by_whoever_saw_it_as_it_is() {
    on_each_database(|database| async move {
        let fixture = Fixture::new(database).await;
        let (store, site) = (&fixture.store, fixture.site_id);
        let stored = put(&fixture, NAME, ImageState::Uploaded).await;
        assert_eq!(stored, StoredImage { revision: 1, ..image(site, NAME, ImageState::Uploaded) });
        let again = image(site, NAME, ImageState::Uploaded);
        let line = event(NOON, None, ImageState::Uploaded);
        let taken = store.put_image(&again, &line, entry()).await;
        assert_eq!(code(taken), "revision_changed", "it is stored already");

        let approved = StoredImage { state: ImageState::Approved, ..stored.clone() };
        let line = event(at(1.0), Some(ImageState::Uploaded), ImageState::Approved);
        store.put_image(&approved, &line, entry()).await.unwrap();
        let late = StoredImage { state: ImageState::Revoked, ..stored };
        assert_eq!(code(store.put_image(&late, &line, entry()).await), "revision_changed");

        let found = store.image(site, NAME).await.unwrap().unwrap();
        assert_eq!((found.state, found.revision), (ImageState::Approved, 2));
        let events = store.image_events(site, NAME).await.unwrap();
        assert_eq!(events.len(), 2);
        assert_eq!(events[1], line);
        put(&fixture, "other", ImageState::Built).await;
        let all = store.images(None).await.unwrap();
        let names: Vec<&str> = all.iter().map(|one| one.name.as_str()).collect();
        assert_eq!(names, [NAME, "other"]);
        assert_eq!(store.images(Some(site)).await.unwrap(), all);
        assert!(store.images(Some(SiteId(id()))).await.unwrap().is_empty());
    });
}

#[test]
fn an_image_that_something_names_is_not_deleted() {
    on_each_database(|database| async move {
        let fixture = Fixture::new(database).await;
        let (store, site) = (&fixture.store, fixture.site_id);
        let stored = put(&fixture, NAME, ImageState::Approved).await;
        let uses = async || store.image_uses(site, NAME).await.unwrap();
        assert!(uses().await.is_empty());

        node_with(&fixture, "other", "custom/another").await;
        succeed(&fixture, at(1.0)).await;
        // Either spelling names it.
        node_with(&fixture, "j22u11", &format!("custom/{NAME}")).await;
        let named = |list: &[&str]| list.iter().map(|one| (*one).to_owned()).collect::<Vec<_>>();
        let expected = ImageUses {
            nodes: named(&["j22u11"]),
            runs: named(&["j22u11"]),
            batches: vec![],
            profiles: named(&["of-j22u11"]),
        };
        assert_eq!(uses().await, expected);
        succeed(&fixture, at(2.0)).await;
        node_with(&fixture, "j22u15", NAME).await;
        assert_eq!(uses().await.nodes, ["j22u11", "j22u15"]);
        assert_eq!(uses().await.runs, ["j22u15"]);

        let line = event(at(3.0), Some(ImageState::Approved), ImageState::Revoked);
        let gone = StoredImage { state: ImageState::Revoked, ..stored };
        let refused = store.delete_image(&gone, &line, entry()).await.unwrap_err().to_string();
        assert!(refused.contains("nodes deployed with it: j22u11, j22u15"), "{refused}");
        assert!(refused.contains("profiles: of-j22u11, of-j22u15"), "{refused}");
        let found = store.image(site, NAME).await.unwrap().unwrap();
        assert_eq!(found.state, ImageState::Approved, "nothing was changed");
        let parked = store.parked_with_image(site, NAME).await.unwrap();
        assert_eq!(parked, Vec::<String>::new());
    });
}

#[test]
fn a_deleted_image_gives_its_name_to_no_other() {
    on_each_database(|database| async move {
        let fixture = Fixture::new(database).await;
        let (store, site) = (&fixture.store, fixture.site_id);
        let stored = put(&fixture, NAME, ImageState::Uploaded).await;
        let line = event(at(3.0), Some(ImageState::Uploaded), ImageState::Revoked);
        let gone = StoredImage { state: ImageState::Revoked, ..stored };
        store.delete_image(&gone, &line, entry()).await.unwrap();
        assert_eq!(store.image(site, NAME).await.unwrap(), None);
        assert!(store.images(None).await.unwrap().is_empty());
        let deleted = store.deleted_image(site, NAME).await.unwrap().unwrap();
        assert_eq!(deleted.state, ImageState::Revoked);
        let again = image(site, NAME, ImageState::Uploaded);
        let line = event(NOON, None, ImageState::Uploaded);
        assert_eq!(code(store.put_image(&again, &line, entry()).await), "revision_changed");
        // What was built on it is known by its digest.
        let parents = [again.sha256.clone(), "00".repeat(32)];
        let revoked = store.revoked_digest(&parents).await.unwrap();
        assert_eq!(revoked, Some(again.sha256));
        assert_eq!(store.revoked_digest(&parents[1..]).await.unwrap(), None);
        assert_eq!(store.revoked_digest(&[]).await.unwrap(), None);
    });
}

#[test]
fn nodes_of_a_canary_are_counted_in_the_order_of_their_runs() {
    on_each_database(|database| async move {
        let fixture = Fixture::new(database).await;
        let (store, site) = (&fixture.store, fixture.site_id);
        put(&fixture, NAME, ImageState::Canary).await;
        for host in ["a", "b", "c"] {
            node_with(&fixture, host, NAME).await;
        }
        let mut runs: Vec<_> = store.moving_runs(site).await.unwrap();
        runs.sort_unstable();
        let before = async |run| store.nodes_with_image_before(site, NAME, run).await.unwrap();
        assert_eq!(
            (before(runs[0]).await, before(runs[1]).await, before(runs[2]).await),
            (0, 1, 2)
        );
        // One that has it counts before all that are still to get it.
        let last = fixture.store.claim(at(1.0), at(61.0), 10).await.unwrap();
        let last = last.into_iter().find(|one| one.run.id == runs[2]).unwrap();
        let mut run = last.run;
        (run.status, run.ended_at) = (RunStatus::Succeeded, Some(at(1.0)));
        store.commit(at(1.0), RunWrite::new(run).releasing()).await.unwrap();
        assert_eq!((before(runs[0]).await, before(runs[1]).await), (1, 2));
    });
}

#[test]
fn images_of_a_profile_are_those_of_its_revisions() {
    on_each_database(|database| async move {
        let fixture = Fixture::new(database).await;
        let store = &fixture.store;
        let next = ProfileSpec {
            distro_series: "custom/b".to_owned(),
            image_sha256: "22".repeat(32),
            ..ProfileSpec::default()
        };
        store.set_profile(at(1.0), "h200", None, &next, &[], by_test()).await.unwrap();
        let images = store.images_of_profile("h200").await.unwrap();
        let expected = [("custom/b", "22".repeat(32)), ("ubuntu/noble", String::new())];
        let images: Vec<_> = images.iter().map(|(n, d)| (n.as_str(), d.clone())).collect();
        assert_eq!(images, expected);
    });
}

#[test]
fn the_last_verdict_on_a_digest_counts_at_its_site_alone() {
    on_each_database(|database| async move {
        let fixture = Fixture::new(database).await;
        let (site, digest) = (fixture.site_id, "9f".repeat(32));
        let store = &fixture.store;
        assert_eq!(store.image_verdict(site, &digest).await.unwrap(), None);
        for errors in [2, 0] {
            let verdict = ImageVerdict {
                sha256: digest.clone(),
                errors,
                warnings: 1,
                codes: vec!["kernel_missing".to_owned()],
                file_type: "tgz".to_owned(),
                linted_by: "gpuaas 0.1.0".to_owned(),
                actor: "ann".to_owned(),
                at: NOON,
            };
            store.put_image_verdict(site, &verdict, entry()).await.unwrap();
            assert_eq!(store.image_verdict(site, &digest).await.unwrap(), Some(verdict));
        }
        assert_eq!(store.image_verdict(site, &"ab".repeat(32)).await.unwrap(), None);
        assert_eq!(store.image_verdict(SiteId(id()), &digest).await.unwrap(), None);
    });
}
