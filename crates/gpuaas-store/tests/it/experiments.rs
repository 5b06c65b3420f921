//! Experiments: written down once, and the run of each of their nodes.

use gpuaas_store::{ExperimentRun, ImageNote, NewAuditEntry, StoredExperiment, StoredImage};
use gpuaas_types::experiment::{ExperimentArm, ExperimentSpec, ExperimentState, PrimaryMeasure};
use gpuaas_types::image::{ImageEvent, ImagePin, ImageState};
use gpuaas_types::{AuditAction, NodeId, RunStatus, SiteId};
use serde_json::json;

use crate::fixture::{Fixture, NOON, at, code, id, on_each_database};

fn experiment(site_id: SiteId, name: &str) -> StoredExperiment {
    let pin = |image: &str| ImagePin { image: image.to_owned(), sha256: "9f".repeat(32) };
    StoredExperiment {
        name: name.to_owned(),
        site_id,
        site: "north".to_owned(),
        spec: ExperimentSpec {
            profile: "h200".to_owned(),
            images: [pin("custom/a"), pin("custom/b")],
            arm_profiles: ["x-a".to_owned(), "x-b".to_owned()],
            primary: PrimaryMeasure::TimeToActive,
            margin_seconds: 30.0,
            seed: (1 << 53) - 1,
            paired: true,
            planned_n: 1,
            imported: None,
        },
        state: ExperimentState::Running,
        created_by: "ann".to_owned(),
        requester: None,
        reason: "is it faster".to_owned(),
        created_at: NOON,
    }
}

fn entry() -> NewAuditEntry {
    NewAuditEntry {
        actor: "ann".to_owned(),
        action: AuditAction::ExperimentStart,
        subject: "x".to_owned(),
        detail: json!({}),
    }
}

fn run(node_id: NodeId, arm: ExperimentArm, second: bool) -> ExperimentRun {
    let hostname = "j22u11".to_owned();
    ExperimentRun { node_id, hostname, arm, second, run_id: None, status: None }
}

#[test]
fn an_experiment_is_written_down_once_with_its_nodes() {
    on_each_database(|database| async move {
        let fixture = Fixture::new(database).await;
        let (store, site) = (&fixture.store, fixture.site_id);
        let (node, run_id) = fixture.node("j22u11").await;
        let new = experiment(site, "x");
        let runs = [run(node, ExperimentArm::B, false), run(node, ExperimentArm::A, true)];
        store.add_experiment(&new, &runs, entry()).await.unwrap();
        let again = store.add_experiment(&new, &[], entry()).await;
        assert_eq!(code(again), "experiment_name_taken");
        assert_eq!(store.experiment("x").await.unwrap(), new);
        assert!(store.experiment("y").await.is_err());
        assert_eq!(store.experiments(None).await.unwrap(), std::slice::from_ref(&new));
        assert_eq!(store.experiments(Some(site)).await.unwrap(), [new]);
        assert!(store.experiments(Some(SiteId(id()))).await.unwrap().is_empty());

        assert_eq!(store.experiment_runs("x").await.unwrap(), runs);
        let arm = (node, ExperimentArm::A);
        store.note_experiment_run("x", arm, run_id).await.unwrap();
        let found = store.experiment_runs("x").await.unwrap();
        assert_eq!(found[0], runs[0], "the other run of the node is another one");
        let (found, status) = (found[1].run_id, found[1].status);
        assert_eq!((found, status), (Some(run_id), Some(RunStatus::Running)));
    });
}

#[test]
fn an_experiment_ends_once() {
    on_each_database(|database| async move {
        let fixture = Fixture::new(database).await;
        let store = &fixture.store;
        let new = experiment(fixture.site_id, "x");
        store.add_experiment(&new, &[], entry()).await.unwrap();
        let stopped = ExperimentState::Stopped;
        let image = StoredImage {
            site_id: fixture.site_id,
            site: "north".to_owned(),
            name: "b".to_owned(),
            sha256: "9f".repeat(32),
            size_bytes: 0,
            resource_id: None,
            parents: Vec::new(),
            state: ImageState::Canary,
            canary_nodes: Some(1),
            expires_at: None,
            changed_by: "ann".to_owned(),
            changed_at: NOON,
            reason: String::new(),
            revision: 0,
        };
        let event = ImageEvent {
            at: at(1.0),
            actor: "experiment".to_owned(),
            from: Some(ImageState::Canary),
            to: ImageState::Canary,
            reason: "faster".to_owned(),
            statement: json!({ "payload": "" }),
        };
        let first = ImageEvent { reason: "tried".to_owned(), ..event.clone() };
        store.put_image(&image, &first, entry()).await.unwrap();
        let note = ImageNote { site_id: fixture.site_id, name: "b".to_owned(), event };
        let end = |seconds: f64| {
            store.end_experiment(at(seconds), "x", stopped, entry(), vec![note.clone()])
        };
        assert!(end(1.0).await.unwrap());
        assert!(!end(2.0).await.unwrap());
        let events = store.image_events(fixture.site_id, "b").await.unwrap();
        assert_eq!(events, [first, note.event], "what it says is kept once");
        assert_eq!(store.experiment("x").await.unwrap().state, stopped);
    });
}
