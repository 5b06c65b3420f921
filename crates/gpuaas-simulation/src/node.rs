//! A node: its bootstrap and its agent, as far as the control plane hears of them.
//!
//! It goes silent once its diagnostics are handed in: heartbeats of a fleet in service would be all
//! that a long simulation does.

use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, PoisonError};

use gpuaas_artifact::BootstrapInputs;
use gpuaas_core::record::{Report, ReportKind};
use gpuaas_engine::Clock as _;
use gpuaas_lab::hosts::options::BootTimes;
use gpuaas_store::{AgentCredential, Enroll, Heartbeat, StoreError, sha256};
use gpuaas_types::agent::{BootstrapPhase, Finding, ProgressStatus, Task, TaskResult, TaskSpec};
use gpuaas_types::{IdSource as _, NodeId, RunId, TokenId};
use maas_sim::SimRng;

use crate::plan::AWAY_SECONDS;
use crate::shared_state::{Credential, Plane};

const VERSION: &str = "0.1.0";
/// First pause between two questions for tasks, in seconds; doubles up to the longest.
const POLL_SECONDS: f64 = 0.25;
const LONGEST_POLL_SECONDS: f64 = 60.0;
/// Tries of a callback, as the bootstrap scripts make.
const CALLBACK_TRIES: u32 = 3;

/// Who an agent is once the control plane took it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Enrolled {
    pub(crate) node_id: NodeId,
    pub(crate) run_id: RunId,
    /// Decides how its tasks end.
    pub(crate) seed: u64,
}

/// A system at its first boot.
pub(crate) struct Newborn {
    pub(crate) plane: Arc<Plane>,
    pub(crate) inputs: BootstrapInputs,
    pub(crate) times: BootTimes,
    pub(crate) chance: SimRng,
    pub(crate) lost_callbacks: f64,
    pub(crate) enrolled: Arc<Mutex<Option<Enrolled>>>,
}

impl Newborn {
    /// The bootstrap, then the agent.
    pub(crate) async fn live(mut self) {
        let site_seconds = self.draw(self.times.site_seconds);
        let node_seconds = self.draw(self.times.node_seconds);
        self.say(BootstrapPhase::SiteBootstrap, ProgressStatus::Started).await;
        self.plane.wait(site_seconds).await;
        self.say(BootstrapPhase::SiteBootstrap, ProgressStatus::Succeeded).await;
        self.say(BootstrapPhase::NodeBootstrap, ProgressStatus::Started).await;
        self.plane.wait(node_seconds).await;
        let Some(enrolled) = self.enroll().await else { return };
        *self.enrolled.lock().unwrap_or_else(PoisonError::into_inner) = Some(enrolled);
        self.plane.beat(enrolled).await;
        self.try_token_again(enrolled).await;
        self.say(BootstrapPhase::NodeBootstrap, ProgressStatus::Succeeded).await;
        agent(self.plane, enrolled).await;
    }

    fn draw(&mut self, (low, high): (f64, f64)) -> f64 {
        low + (high - low) * self.chance.uniform()
    }

    async fn say(&mut self, phase: BootstrapPhase, status: ProgressStatus) {
        if self.chance.uniform() < self.lost_callbacks {
            return;
        }
        for _ in 0..CALLBACK_TRIES {
            if self.plane.up.load(Ordering::SeqCst) {
                let kind = ReportKind::Progress { phase, status, message: String::new() };
                let report =
                    Report { run_id: self.inputs.run_id, at: self.plane.clock.now(), kind };
                if let Err(error) = self.plane.store.add_report(report, Vec::new()).await {
                    tracing::debug!(%error, "callback");
                }
                return;
            }
            self.plane.wait(AWAY_SECONDS).await;
        }
    }

    /// An enrollment, and the hash of the credential that it asks for.
    fn knock(&self) -> (Enroll, [u8; 32]) {
        let now = self.plane.clock.now();
        let ids = &self.plane.ids;
        let id = TokenId::new(&**ids, now);
        let hash = sha256(&ids.uuid(now).to_string());
        let enroll = Enroll {
            hash: sha256(&self.inputs.enrollment_token),
            run_id: self.inputs.run_id,
            key: None,
            agent_version: VERSION.to_owned(),
            hostname: self.inputs.hostname.clone(),
            credential: AgentCredential::Bearer { id, hash },
            timeline: Vec::new(),
        };
        (enroll, hash)
    }

    async fn enroll(&mut self) -> Option<Enrolled> {
        self.plane.reached().await;
        let now = self.plane.clock.now();
        let (knock, hash) = self.knock();
        #[expect(clippy::cast_possible_truncation, reason = "any number will do")]
        #[expect(clippy::cast_sign_loss, reason = "it is not negative")]
        let seed = (self.chance.uniform() * 1e15) as u64;
        match self.plane.store.use_enrollment_token(now, knock).await {
            Ok(taken) => {
                let (node_id, run_id) = (taken.node_id, taken.run_id);
                let credential = Credential { node_id, run_id, hash };
                let credentials = &self.plane.credentials;
                credentials.lock().unwrap_or_else(PoisonError::into_inner).push(credential);
                Some(Enrolled { node_id, run_id, seed })
            }
            Err(error) => {
                tracing::debug!(%error, "the agent was refused");
                None
            }
        }
    }

    /// A token that leaked: after the first heartbeat it must be worth nothing.
    async fn try_token_again(&self, enrolled: Enrolled) {
        let now = self.plane.clock.now();
        let again = self.plane.store.use_enrollment_token(now, self.knock().0).await;
        if !matches!(again, Err(StoreError::Token(_))) {
            tracing::error!(run = %enrolled.run_id, "an enrollment token worked twice");
            self.plane.tokens_taken_twice.fetch_add(1, Ordering::SeqCst);
        }
    }
}

/// The agent of a node that is enrolled, until its diagnostics are handed in.
pub(crate) async fn agent(plane: Arc<Plane>, enrolled: Enrolled) {
    plane.beat(enrolled).await;
    serve(plane, enrolled).await;
}

/// Does the tasks of a node until its run is over or asks for nothing more.
pub(crate) async fn serve(plane: Arc<Plane>, enrolled: Enrolled) {
    let mut pause_seconds = POLL_SECONDS;
    loop {
        plane.reached().await;
        let now = plane.clock.now();
        let tasks = plane.store.pending_tasks(now, enrolled.node_id).await.unwrap_or_default();
        if tasks.is_empty() {
            plane.wait(pause_seconds).await;
            pause_seconds = (pause_seconds * 2.0).min(LONGEST_POLL_SECONDS);
            if plane.is_over(enrolled.run_id).await {
                return;
            }
            continue;
        }
        for task in tasks {
            let result = plane.result(enrolled, &task);
            let now = plane.clock.now();
            let sent = plane.store.finish_task(now, enrolled.node_id, task.id, result, Vec::new());
            if let Err(error) = sent.await {
                tracing::debug!(%error, "task result");
            }
        }
        return;
    }
}

impl Plane {
    /// How a task ends: well, not at all well, or with a finding that is not as it should be.
    fn result(&self, enrolled: Enrolled, task: &Task) -> TaskResult {
        let mut chance = SimRng::for_name(enrolled.seed, &task.id.to_string());
        let succeeded = chance.uniform() >= self.failing_tasks / 2.0;
        let sound = chance.uniform() >= self.failing_tasks / 2.0;
        let finding = |name: String, sound: bool| Finding {
            name,
            passed: Some(sound),
            seen: if sound { "as it should be" } else { "not there" }.to_owned(),
        };
        let mut findings = vec![finding("kernel_modules".to_owned(), sound)];
        if let TaskSpec::Validate { checks, .. } = &task.spec {
            findings.extend(checks.iter().map(|check| finding(check.name(), true)));
        }
        TaskResult {
            succeeded,
            message: if succeeded { String::new() } else { "the disk is full".to_owned() },
            findings,
            ..TaskResult::default()
        }
    }

    async fn wait(&self, seconds: f64) {
        self.clock.sleep_until(self.clock.now().plus_seconds(seconds)).await;
    }

    async fn beat(&self, enrolled: Enrolled) {
        self.reached().await;
        let Enrolled { node_id, run_id, .. } = enrolled;
        let beat = Heartbeat {
            node_id,
            run_id,
            agent_version: VERSION.to_owned(),
            troubles: String::new(),
            first: None,
            changed: None,
        };
        if let Err(error) = self.store.heartbeat(self.clock.now(), beat).await {
            tracing::debug!(%error, "heartbeat");
        }
    }

    /// Whether nothing will be asked of an agent of this run any more.
    async fn is_over(&self, run_id: RunId) -> bool {
        use gpuaas_types::RunStatus::{Running, Waiting};
        let run = self.store.run(run_id).await;
        run.is_ok_and(|run| !matches!(run.status, Running | Waiting))
    }
}
