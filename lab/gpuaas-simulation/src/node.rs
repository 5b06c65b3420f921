//! A node: the callbacks of its bootstrap and the requests of its agent.
//!
//! It sends nothing more once its diagnostics are reported, unless the plan says so: a long
//! simulation would otherwise spend its time on the heartbeats of nodes in service.

use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, PoisonError};

use gpuaas_artifact::BootstrapInputs;
use gpuaas_core::decide::host_reboot::REASONS_FINDING;
use gpuaas_core::record::{Report, ReportKind};
use gpuaas_engine::Clock as _;
use gpuaas_lab::hosts::options::BootTimes;
use gpuaas_node_agent::slice::carry_out;
use gpuaas_store::{
    NewAgentCredential, NewEnrollment, ReceivedHeartbeat, StoreError, TokenRejection, sha256,
};
use gpuaas_types::agent::{
    BootstrapPhase, Finding, ProgressStatus, REBOOT_NEEDED, Task, TaskResult, TaskSpec,
};
use gpuaas_types::slice::SliceTask;
use gpuaas_types::{IdSource as _, NodeId, RunId, TokenId};
use maas_sim::SimRng;

use crate::plan::RETRY_SECONDS;
use crate::shared_state::{AgentCredentialRecord, HostFault, SharedState};

const VERSION: &str = "0.1.0";
/// First pause between two questions for tasks, in seconds; doubles up to the longest.
const FIRST_POLL_SECONDS: f64 = 0.25;
const LONGEST_POLL_SECONDS: f64 = 60.0;
/// Part of the tasks of slices amid which the agent is ended: they are done, and nobody hears of it.
const INTERRUPTED_SLICE_TASKS: f64 = 0.05;
/// Tries of a callback, as the bootstrap scripts make.
const CALLBACK_TRIES: u32 = 3;

/// Who an agent is once the control plane took it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct EnrolledAgent {
    pub(crate) node_id: NodeId,
    pub(crate) run_id: RunId,
    /// Decides how its tasks end.
    pub(crate) seed: u64,
}

/// A system at its first boot.
pub(crate) struct BootingNode {
    pub(crate) shared: Arc<SharedState>,
    pub(crate) inputs: BootstrapInputs,
    pub(crate) times: BootTimes,
    pub(crate) rng: SimRng,
    pub(crate) lost_callbacks: f64,
    pub(crate) enrolled: Arc<Mutex<Option<EnrolledAgent>>>,
}

impl BootingNode {
    /// The bootstrap, then the agent.
    pub(crate) async fn run(mut self) {
        let site_seconds = self.draw(self.times.site_seconds);
        let node_seconds = self.draw(self.times.node_seconds);
        self.report_progress(BootstrapPhase::SiteBootstrap, ProgressStatus::Started).await;
        self.shared.sleep(site_seconds).await;
        if self.fails(BootstrapPhase::SiteBootstrap).await {
            return;
        }
        self.report_progress(BootstrapPhase::SiteBootstrap, ProgressStatus::Succeeded).await;
        self.report_progress(BootstrapPhase::NodeBootstrap, ProgressStatus::Started).await;
        self.shared.sleep(node_seconds).await;
        if self.fails(BootstrapPhase::NodeBootstrap).await {
            return;
        }
        let Some(enrolled) = self.enroll().await else { return };
        *self.enrolled.lock().unwrap_or_else(PoisonError::into_inner) = Some(enrolled);
        self.shared.send_heartbeat(enrolled).await;
        self.try_token_again(enrolled).await;
        if self.shared.host_fault() == Some(HostFault::TokenCopied) {
            self.enroll_with_another_key(enrolled).await;
        }
        self.report_progress(BootstrapPhase::NodeBootstrap, ProgressStatus::Succeeded).await;
        run_agent(self.shared, enrolled).await;
    }

    /// Whether a phase fails by a fault of the host, which it calls back.
    async fn fails(&mut self, phase: BootstrapPhase) -> bool {
        let fails = self.shared.host_fault() == Some(HostFault::BootstrapFails(phase));
        if fails {
            self.report_progress(phase, ProgressStatus::Failed).await;
        }
        fails
    }

    fn draw(&mut self, (low, high): (f64, f64)) -> f64 {
        low + (high - low) * self.rng.uniform()
    }

    async fn report_progress(&mut self, phase: BootstrapPhase, status: ProgressStatus) {
        if self.rng.uniform() < self.lost_callbacks {
            return;
        }
        for _ in 0..CALLBACK_TRIES {
            if self.shared.up.load(Ordering::SeqCst) {
                let attempt = Some(match phase {
                    BootstrapPhase::SiteBootstrap => 1,
                    BootstrapPhase::NodeBootstrap => 2,
                });
                let kind = ReportKind::Progress { phase, status, attempt, message: String::new() };
                let report =
                    Report { run_id: self.inputs.run_id, at: self.shared.clock.now(), kind };
                if let Err(error) = self.shared.store.add_report(report, Vec::new()).await {
                    tracing::debug!(%error, "callback");
                }
                return;
            }
            self.shared.sleep(RETRY_SECONDS).await;
        }
    }

    /// An enrollment, and the hash of the credential that it asks for.
    fn enroll_request(&self) -> (NewEnrollment, [u8; 32]) {
        let now = self.shared.clock.now();
        let ids = &self.shared.ids;
        let id = TokenId::new(&**ids, now);
        let hash = sha256(&ids.uuid(now).to_string());
        let enroll = NewEnrollment {
            hash: sha256(&self.inputs.enrollment_token),
            run_id: self.inputs.run_id,
            key: None,
            agent_version: VERSION.to_owned(),
            hostname: self.inputs.hostname.clone(),
            credential: NewAgentCredential::Bearer { id, hash },
            timeline: Vec::new(),
        };
        (enroll, hash)
    }

    async fn enroll(&mut self) -> Option<EnrolledAgent> {
        self.shared.until_reachable().await;
        let now = self.shared.clock.now();
        let (request, hash) = self.enroll_request();
        #[expect(clippy::cast_possible_truncation, reason = "any number will do")]
        #[expect(clippy::cast_sign_loss, reason = "it is not negative")]
        let seed = (self.rng.uniform() * 1e15) as u64;
        match self.shared.store.use_enrollment_token(now, request).await {
            Ok(taken) => {
                let (node_id, run_id) = (taken.node_id, taken.run_id);
                let credential = AgentCredentialRecord { node_id, run_id, hash };
                let credentials = &self.shared.credentials;
                credentials.lock().unwrap_or_else(PoisonError::into_inner).push(credential);
                Some(EnrolledAgent { node_id, run_id, seed })
            }
            Err(error) => {
                tracing::debug!(%error, "the control plane rejected the agent");
                None
            }
        }
    }

    /// A token that leaked while its run is open: what the control plane does about a second key.
    async fn enroll_with_another_key(&self, enrolled: EnrolledAgent) {
        let (now, store) = (self.shared.clock.now(), &self.shared.store);
        let thief = NewEnrollment { key: Some([9; 32]), ..self.enroll_request().0 };
        let refused = store.use_enrollment_token(now, thief).await;
        if matches!(refused, Err(StoreError::Token(TokenRejection::OtherKey))) {
            let contest = store.contest_enrollment(now, enrolled.run_id, String::new(), Vec::new());
            if let Err(error) = contest.await {
                tracing::debug!(%error, "a second key was rejected");
            }
        }
    }

    /// A token that leaked: after the first heartbeat it must be worth nothing.
    async fn try_token_again(&self, enrolled: EnrolledAgent) {
        let now = self.shared.clock.now();
        let again = self.shared.store.use_enrollment_token(now, self.enroll_request().0).await;
        if !matches!(again, Err(StoreError::Token(_))) {
            tracing::error!(run = %enrolled.run_id, "an enrollment token was accepted twice");
            self.shared.tokens_taken_twice.fetch_add(1, Ordering::SeqCst);
        }
    }
}

/// The agent of a node that is enrolled, until its diagnostics are handed in; or for ever, where
/// agents go on with their heartbeats.
pub(crate) async fn run_agent(shared: Arc<SharedState>, enrolled: EnrolledAgent) {
    shared.send_heartbeat(enrolled).await;
    serve_tasks(Arc::clone(&shared), enrolled).await;
    if shared.heartbeat_seconds <= 0.0 {
        return;
    }
    loop {
        shared.sleep(shared.heartbeat_seconds).await;
        shared.send_heartbeat(enrolled).await;
        let now = shared.clock.now();
        let tasks = shared.store.pending_tasks(now, enrolled.node_id).await.unwrap_or_default();
        shared.finish_tasks(enrolled, tasks).await;
    }
}

/// Does the tasks of a node until its run is over or asks for nothing more.
pub(crate) async fn serve_tasks(shared: Arc<SharedState>, enrolled: EnrolledAgent) {
    let mut pause_seconds = FIRST_POLL_SECONDS;
    loop {
        shared.until_reachable().await;
        let now = shared.clock.now();
        let tasks = shared.store.pending_tasks(now, enrolled.node_id).await.unwrap_or_default();
        if tasks.is_empty() {
            shared.sleep(pause_seconds).await;
            pause_seconds = (pause_seconds * 2.0).min(LONGEST_POLL_SECONDS);
            if shared.run_is_over(enrolled.run_id).await {
                return;
            }
            continue;
        }
        let boots = tasks.iter().any(|task| matches!(task.spec, TaskSpec::Reboot { .. }));
        shared.finish_tasks(enrolled, tasks).await;
        if !boots {
            return;
        }
        // Its run has more for it after the boot.
        pause_seconds = FIRST_POLL_SECONDS;
    }
}

impl SharedState {
    /// How a task ends: well, not at all well, or with a finding that is not as it should be.
    fn task_result(&self, enrolled: EnrolledAgent, task: &Task) -> TaskResult {
        let mut rng = SimRng::for_name(enrolled.seed, &task.id.to_string());
        let fault = self.host_fault();
        let succeeded =
            rng.uniform() >= self.failing_tasks / 2.0 && fault != Some(HostFault::TasksFail);
        let sound =
            rng.uniform() >= self.failing_tasks / 2.0 && fault != Some(HostFault::HostIsBad);
        let finding = |name: String, sound: bool| Finding {
            name,
            passed: Some(sound),
            seen: if sound { "as expected" } else { "not there" }.to_owned(),
        };
        let mut findings = vec![finding("kernel_modules".to_owned(), sound)];
        match &task.spec {
            TaskSpec::Validate { checks, .. } => {
                findings.extend(checks.iter().map(|check| finding(check.name(), true)));
            }
            TaskSpec::Reboot { .. } => {
                let sound = fault != Some(HostFault::NeedsReboots);
                findings.push(finding(REASONS_FINDING.to_owned(), sound));
            }
            _ => {}
        }
        TaskResult {
            succeeded,
            message: if succeeded { String::new() } else { "the disk is full".to_owned() },
            findings,
            ..TaskResult::default()
        }
    }

    /// Carries out a part of a slice with the agent's own code; now and then the agent is ended amid it.
    async fn slice_result(
        &self,
        enrolled: EnrolledAgent,
        task: &Task,
        slice: &SliceTask,
    ) -> TaskResult {
        let result = carry_out(&*self.slice_host(enrolled.node_id), slice).await;
        let mut rng = SimRng::for_name(enrolled.seed, &task.id.to_string());
        if rng.uniform() < INTERRUPTED_SLICE_TASKS {
            let code = "task_interrupted".to_owned();
            return TaskResult { code, ..TaskResult::default() };
        }
        result
    }

    /// Does tasks and hands in how they ended.
    async fn finish_tasks(&self, enrolled: EnrolledAgent, tasks: Vec<Task>) {
        for task in tasks {
            let result = match &task.spec {
                TaskSpec::Slice { slice } => self.slice_result(enrolled, &task, slice).await,
                _ => self.task_result(enrolled, &task),
            };
            let now = self.clock.now();
            let sent = self.store.finish_task(now, enrolled.node_id, task.id, result, Vec::new());
            if let Err(error) = sent.await {
                tracing::debug!(%error, "task result");
            }
        }
    }

    async fn sleep(&self, seconds: f64) {
        self.clock.sleep_until(self.clock.now().plus_seconds(seconds)).await;
    }

    async fn send_heartbeat(&self, enrolled: EnrolledAgent) {
        self.until_reachable().await;
        let EnrolledAgent { node_id, run_id, .. } = enrolled;
        let beat = ReceivedHeartbeat {
            node_id,
            run_id,
            agent_version: VERSION.to_owned(),
            troubles: match self.host_fault() {
                Some(HostFault::NeedsReboots) => format!("{REBOOT_NEEDED}a new kernel"),
                _ => String::new(),
            },
            first: None,
            changed: None,
        };
        if let Err(error) = self.store.record_heartbeat(self.clock.now(), beat).await {
            tracing::debug!(%error, "heartbeat");
        }
    }

    /// Whether nothing will be asked of an agent of this run any more.
    async fn run_is_over(&self, run_id: RunId) -> bool {
        use gpuaas_types::RunStatus::{Running, Waiting};
        let run = self.store.run(run_id).await;
        run.is_ok_and(|run| !matches!(run.status, Running | Waiting))
    }
}
