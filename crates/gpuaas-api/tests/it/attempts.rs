//! Attempts of a bootstrap, from the callback over HTTP to the decision on the run.

use gpuaas_core::{Decision, Snapshot, decide};
use gpuaas_store::{RunWrite, TokenPurpose};
use gpuaas_types::api::{CheckResult, OnboardAccepted};
use gpuaas_types::failure::FailureClass;
use gpuaas_types::machine::{Observation, maas_status};
use gpuaas_types::spec::SiteSpec;
use gpuaas_types::{RunStatus, Step, Timestamp};
use serde_json::{Value, json};

use crate::agents::machine_with;
use crate::rig::Rig;

/// A node whose host boots, and the token of its callbacks.
struct Host {
    rig: Rig,
    node: OnboardAccepted,
    token: String,
}

impl Host {
    async fn new(step: Step) -> Self {
        let rig = Rig::with_site().await;
        let node = rig.onboard("j22u11").await;
        let token = rig.token(TokenPurpose::Bootstrap, node.node_id, node.run_id, None).await;
        let host = Self { rig, node, token };
        host.put(step, RunStatus::Waiting).await;
        host
    }

    /// Writes the run down as a worker would.
    async fn put(&self, step: Step, status: RunStatus) {
        let now = self.rig.now();
        let mut claimed = self.rig.store.claim(now, now.plus_seconds(30.0), 10).await.unwrap();
        let mut record = claimed.remove(0).run;
        (record.step, record.status, record.step_since) = (step, status, now);
        if status == RunStatus::Parked {
            (record.state.parked_at, record.due_at) = (Some(now), Timestamp::NEVER);
        }
        self.rig.store.commit(now, RunWrite::new(record).releasing()).await.unwrap();
    }

    /// Sends a callback a second later; answers whether it was new.
    async fn call_back(&self, phase: &str, status: &str, attempt: Option<u64>) -> bool {
        self.rig.advance(1);
        let mut body = json!({ "phase": phase, "status": status, "message": "no disk" });
        if let Some(attempt) = attempt {
            body["attempt"] = attempt.into();
        }
        let path = format!("/bootstrap/v1/runs/{}/progress", self.node.run_id);
        self.rig.call("POST", &path, Some(&self.token), Some(body)).await.ok()["new"] == true
    }

    async fn resume(&self) {
        self.rig.advance(1);
        let said: Value = json!({ "actor": "ann", "reason": "the disk is there" });
        self.rig.post(&format!("/api/v1/runs/{}/resume", self.node.run_id), said).await.ok();
        self.rig.advance(1);
    }

    /// What is decided on the run as the store has it: the code of the park or of the wait, or the step
    /// that follows.
    async fn decision(&self) -> String {
        let (rig, now) = (&self.rig, self.rig.now());
        let run = rig.store.run(self.node.run_id).await.unwrap();
        let node = rig.store.node(run.node_id).await.unwrap();
        let reports = rig.store.reports(run.id).await.unwrap();
        let profile = rig.store.profile_revision(run.profile_id, run.profile_revision).await;
        let profile = profile.unwrap().spec;
        let site = SiteSpec::new("lab", "http://127.0.0.1:5240/MAAS");
        let seen = Observation::from_read(machine_with(&[]), now);
        assert_eq!(seen.status, maas_status::DEPLOYED);
        let snapshot = Snapshot {
            observation: Some(&seen),
            reports: &reports,
            watched: true,
            ..Snapshot::new(now, &run, &node, &site, &profile)
        };
        let decision = decide(&snapshot);
        match &decision {
            Decision::Park { park, .. } => park.code.clone(),
            Decision::Wait { wait, .. } => wait.code.clone(),
            other => match other.next_step(&run) {
                Some(step) => step.as_str().to_owned(),
                None => format!("{other:?}"),
            },
        }
    }
}

#[tokio::test]
async fn second_failure_after_the_advised_resume_parks_again() {
    for (step, phase, park) in [
        (Step::SiteBootstrap, "site_bootstrap", "site_bootstrap_failed"),
        (Step::NodeBootstrap, "node_bootstrap", "node_bootstrap_failed"),
    ] {
        for numbered in [true, false] {
            let host = Host::new(step).await;
            let attempt = |number: u64| numbered.then_some(number);
            assert!(host.call_back(phase, "failed", attempt(1)).await);
            assert!(!host.call_back(phase, "failed", attempt(1)).await, "its response was lost");
            assert_eq!(host.decision().await, park);
            host.put(step, RunStatus::Parked).await;
            host.resume().await;
            assert_eq!(host.decision().await, "bootstrap_rerun");
            assert!(host.call_back(phase, "failed", attempt(2)).await, "{phase} {numbered}");
            assert_eq!(host.decision().await, park, "{phase} {numbered}");
            assert!(host.rig.wakes.load(std::sync::atomic::Ordering::SeqCst) > 0);
        }
    }
}

/// A failing site bootstrap makes the node bootstrap report a failure as well.
#[tokio::test]
async fn node_failure_after_a_mended_site_bootstrap_parks() {
    let host = Host::new(Step::SiteBootstrap).await;
    host.call_back("site_bootstrap", "failed", Some(1)).await;
    host.call_back("node_bootstrap", "failed", Some(2)).await;
    assert_eq!(host.decision().await, "site_bootstrap_failed");
    host.put(Step::SiteBootstrap, RunStatus::Parked).await;
    host.resume().await;
    host.call_back("site_bootstrap", "succeeded", Some(3)).await;
    assert_eq!(host.decision().await, "node_bootstrap");
    host.put(Step::NodeBootstrap, RunStatus::Waiting).await;
    assert_eq!(host.decision().await, "node_bootstrap");
    assert!(host.call_back("node_bootstrap", "failed", Some(4)).await);
    assert_eq!(host.decision().await, "node_bootstrap_failed");
}

#[tokio::test]
async fn failure_after_a_success_leaves_the_gate_shut() {
    let host = Host::new(Step::NodeBootstrap).await;
    for (status, attempt) in [("failed", 1), ("succeeded", 2), ("failed", 3)] {
        assert!(host.call_back("site_bootstrap", status, Some(attempt)).await, "{attempt}");
    }
    assert!(!host.call_back("site_bootstrap", "succeeded", Some(2)).await, "a late repeat");
    assert_eq!(host.decision().await, "site_bootstrap_failed");
    host.put(Step::Confirmation, RunStatus::Waiting).await;
    assert_eq!(host.decision().await, "completion_gate_failed");
}

/// A failed bootstrap opens no gate, whoever answers for it; an override of another check is a problem of
/// the node while it lasts.
#[tokio::test]
async fn completion_gates_cannot_be_overridden() {
    let host = Host::new(Step::Confirmation).await;
    host.call_back("site_bootstrap", "failed", Some(1)).await;
    let run = host.node.run_id;
    let skip = async |check: &str| {
        let body =
            json!({ "actor": "ann", "reason": "it is fine", "check": check, "seconds": 600 });
        host.rig.post(&format!("/api/v1/runs/{run}/skip-check"), body).await
    };
    for gate in gpuaas_core::gates::COMPLETION_GATES {
        let refused = skip(gate).await;
        assert_eq!(
            (refused.status, refused.code().as_str()),
            (409, "gate_not_skippable"),
            "{gate}"
        );
    }
    assert_eq!(host.decision().await, "completion_gate_failed");
    let now = host.rig.now();
    let mut claimed = host.rig.store.claim(now, now.plus_seconds(30.0), 10).await.unwrap();
    let mut record = claimed.remove(0).run;
    let check = CheckResult {
        name: "mount /data".to_owned(),
        passed: false,
        verified: true,
        evidence: "not mounted".to_owned(),
        at: now,
    };
    record.state.checks.insert(check.name.clone(), check);
    host.rig.store.commit(now, RunWrite::new(record).releasing()).await.unwrap();
    skip("mount /data").await.ok();
    let problems = async || {
        let node = host.rig.get("/api/v1/nodes/j22u11").await.ok();
        let problems = node["problems"].as_array().unwrap().clone();
        problems.into_iter().find(|problem| problem["code"] == "check_overridden")
    };
    let text = problems().await.unwrap()["text"].as_str().unwrap().to_owned();
    assert!(text.contains("mount /data") && text.contains("ann"), "{text}");
    host.rig.advance(601);
    assert!(problems().await.is_none());
}

/// The class is a field of the run: of its view, of the list, of its filter and of a metric. No text that a
/// host writes has a part in it.
#[tokio::test]
async fn failed_run_is_listed_and_counted_by_its_class() {
    let host = Host::new(Step::FirstBoot).await;
    host.call_back("site_bootstrap", "failed", Some(1)).await;
    let now = host.rig.now();
    let mut claimed = host.rig.store.claim(now, now.plus_seconds(30.0), 10).await.unwrap();
    let mut record = claimed.remove(0).run;
    (record.status, record.due_at) = (RunStatus::Parked, Timestamp::NEVER);
    record.state.failure_class = Some(FailureClass::FirstBoot);
    host.rig.store.commit(now, RunWrite::new(record).releasing()).await.unwrap();
    let get = async |path: &str| host.rig.get(path).await;
    let run = get(&format!("/api/v1/runs/{}", host.node.run_id)).await.ok();
    assert_eq!(run["failure_class"], "first_boot");
    for (class, runs) in [("first_boot", 1), ("datasource", 0)] {
        let list = get(&format!("/api/v1/runs?filter=failure_class%3D{class}")).await.ok();
        assert_eq!(list["items"].as_array().unwrap().len(), runs, "{list}");
    }
    let metrics = String::from_utf8(get("/metrics").await.bytes).unwrap();
    let counted = metrics.lines().find(|line| line.starts_with("gpuaas_failed_runs{"));
    let counted = counted.unwrap();
    assert!(
        counted.contains("failure_class=\"first_boot\"") && counted.ends_with(" 1.0"),
        "{counted}"
    );
}
