//! A claimed run in the hands of a worker: the unit of work between two commits.
//!
//! Every commit is one transaction that names the worker's fencing token. The outcome of one
//! effect and the intent of the next share a commit, so a run costs about one write per effect.

use std::sync::Arc;

use gpuaas_core::decide::change_guard::GuardedEffect;
use gpuaas_core::effect::{Intent, Outcome};
use gpuaas_core::recheck::next_recheck_at;
use gpuaas_core::record::{NodeRecord, Report, RunRecord};
use gpuaas_core::run_state::PowerReading;
use gpuaas_core::snapshot::{DeployQueue, Note, Snapshot};
use gpuaas_store::{
    LeasedRun, NewTask, NewToken, NodeChange, RunWrite, Store, StoreError, Transition,
};
use gpuaas_types::api::{CheckResult, Park, Source, TimelineEvent, Wait};
use gpuaas_types::codes::TimelineCode;
use gpuaas_types::machine::{MachineView, Observation};
use gpuaas_types::spec::{ProfileSpec, SiteSpec};
use gpuaas_types::{AttemptId, IdSource, NodeState, RunStatus, Step, Timestamp};

use crate::loops::failpoint::{Failpoint, Failpoints};
use crate::run::context::RunContext;

/// The snapshot that a run is decided on, and the writes that wait for the next commit.
pub(crate) struct RunSession {
    /// The run, as it will be written.
    pub(crate) run: RunRecord,
    /// Its node, as it will be.
    pub(crate) node: NodeRecord,
    /// The latest observation.
    pub(crate) observation: Option<Observation>,
    /// What was prepared for this run's decisions when it was claimed.
    pub(crate) context: RunContext,
    /// Runs that go before this one into the deploying part; none: not counted.
    pub(crate) deploy_queue: Option<DeployQueue>,
    reports: Vec<Report>,
    failpoints: Option<Arc<dyn Failpoints>>,
    /// How the run rested when the log last told of it.
    logged: RestState,
    timeline: Vec<TimelineEvent>,
    transitions: Vec<Transition>,
    attempts: Vec<Intent>,
    node_change: NodeChange,
    read: Option<Observation>,
    tokens: Vec<NewToken>,
    /// Whether the system that was given tokens and a certificate is gone.
    revokes_tokens: bool,
    tasks: Vec<NewTask>,
    tokens_expire_at: Option<Timestamp>,
}

impl RunSession {
    /// A session for a claimed run with nothing to write yet.
    #[must_use]
    pub(crate) fn new(
        claimed: LeasedRun,
        context: RunContext,
        failpoints: Option<Arc<dyn Failpoints>>,
    ) -> Self {
        Self {
            logged: RestState::new(&claimed.run),
            run: claimed.run,
            node: claimed.node,
            observation: claimed.observation,
            context,
            deploy_queue: None,
            reports: claimed.reports,
            failpoints,
            timeline: Vec::new(),
            transitions: Vec::new(),
            attempts: Vec::new(),
            node_change: NodeChange::default(),
            read: None,
            tokens: Vec::new(),
            revokes_tokens: false,
            tasks: Vec::new(),
            tokens_expire_at: None,
        }
    }

    /// What a decision at `now` may look at.
    #[must_use]
    pub(crate) fn snapshot(&self, now: Timestamp) -> Snapshot<'_> {
        Snapshot {
            observation: self.observation.as_ref(),
            reports: &self.reports,
            deploy_queue: self.deploy_queue,
            ..self.context.snapshot(now, &self.run, &self.node)
        }
    }

    /// The pinned profile.
    #[must_use]
    pub(crate) fn profile(&self) -> &ProfileSpec {
        &self.context.profile.spec
    }

    /// The site as written by the operator.
    #[must_use]
    pub(crate) fn site(&self) -> &SiteSpec {
        &self.context.site
    }

    /// Adds to the timeline.
    pub(crate) fn note(
        &mut self,
        at: Timestamp,
        source: Source,
        code: TimelineCode,
        text: impl Into<String>,
    ) {
        self.timeline.push(TimelineEvent {
            at,
            run_id: Some(self.run.id),
            step: Some(self.run.step),
            source,
            code: code.into(),
            text: text.into(),
        });
    }

    /// Drops what was to be added to the timeline and is not committed yet.
    pub(crate) fn forget_notes(&mut self) {
        self.timeline.clear();
    }

    /// Adds a decision's notes, with the boundary's time.
    pub(crate) fn add_notes(&mut self, at: Timestamp, notes: Vec<Note>) {
        for note in notes {
            self.note(at, Source::ControlPlane, note.code, note.text);
        }
    }

    /// Keeps the latest result of each check.
    pub(crate) fn add_checks(&mut self, checks: Vec<CheckResult>) {
        for check in checks {
            self.run.state.checks.insert(check.name.clone(), check);
        }
    }

    /// Goes on to the next step as of `at`, clamped into the current step, so that the spans of a
    /// run touch and their sum is its wall time.
    pub(crate) fn advance(&mut self, to: Step, at: Timestamp, now: Timestamp) {
        let at = at.clamp(self.run.step_since, now.max(self.run.step_since));
        let cause = format!("{} is done", self.run.step);
        self.transitions.push(Transition { step: to, at, cause });
        let released = [Step::ReleaseAdopted, Step::Release, Step::ReleaseForRetry];
        if released.contains(&self.run.step) && to != Step::ReleaseForCancel {
            self.forget_released_system();
        }
        self.run.step = to;
        self.run.step_since = at;
        self.run.state.enter_step(to);
        if let Some(state) = to.row().node_state {
            self.set_node_state(state, at);
        }
    }

    /// What was deployed is gone: with the next commit nothing that it was given counts any more.
    fn forget_released_system(&mut self) {
        self.revokes_tokens = true;
        self.run.state.host_values = None;
    }

    /// Changes the node's own state, where the table of transitions allows it.
    pub(crate) fn set_node_state(&mut self, state: NodeState, at: Timestamp) {
        let before = self.node.state;
        if state != before && gpuaas_core::node_state::may_become(before, state) {
            self.node.state = state;
            self.node_change.state = Some(state);
            self.run.state.state_before.get_or_insert(before);
            let text = format!("the node is {state} (before: {before})");
            self.note(at, Source::ControlPlane, TimelineCode::NodeStateChanged, text);
        }
    }

    /// Binds the machine to the node.
    pub(crate) fn bind_machine(&mut self, system_id: &str) {
        self.node.system_id = Some(system_id.to_owned());
        self.node_change.system_id = Some(system_id.to_owned());
    }

    /// Keeps what the search said of the machine's power, for the first change of it.
    pub(crate) fn keep_power_of_candidate(&mut self, system_id: &str) {
        let Some(found) = &self.run.state.found else { return };
        let candidate = found.candidates.iter().find(|one| one.system_id == system_id);
        let facts = candidate.and_then(|one| one.facts.as_ref()?.power.clone());
        if let Some(facts) = facts {
            self.run.state.power = Some(PowerReading { asked_at: found.asked_at, facts });
        }
    }

    /// Takes a binding back that the store refused.
    pub(crate) fn unbind_machine(&mut self) {
        self.node.system_id = None;
        self.node_change.system_id = None;
    }

    /// The moment of a read that was asked at `asked_at`: later than all that this run knows, also
    /// where the clock has stepped back. A read that looked older would be asked for for ever.
    pub(crate) fn read_time(&self, asked_at: Timestamp) -> Timestamp {
        let state = &self.run.state;
        let ended = state.intent.as_ref().map(|i| i.ended_at.unwrap_or(i.at).plus_seconds(1e-6));
        let heard = self.observation.as_ref().map(|o| o.status_at);
        [ended, heard, state.reads_count_since()]
            .into_iter()
            .flatten()
            .fold(asked_at.max(self.run.step_since), Timestamp::max)
    }

    /// Notes a full read of the machine, asked at `asked_at`.
    pub(crate) fn observe(&mut self, machine: MachineView, asked_at: Timestamp) {
        let mut seen = Observation::from_read(machine, self.read_time(asked_at));
        if let Some(old) = &self.observation {
            seen.event_id = old.event_id;
            seen.rebooted_at = old.rebooted_at;
            seen.alarm.clone_from(&old.alarm);
        }
        self.set_observation(seen);
    }

    /// Notes a whole observation.
    pub(crate) fn set_observation(&mut self, seen: Observation) {
        self.read = Some(seen.clone());
        self.observation = Some(seen);
    }

    /// Writes an intent into the journal; durable with the next commit.
    pub(crate) fn begin_intent(
        &mut self,
        guarded: GuardedEffect,
        ids: &dyn IdSource,
        now: Timestamp,
    ) -> Intent {
        let effect = guarded.into_effect();
        let before = self.observation.as_ref().map(|o| o.status);
        let intent = self.run.state.next_intent(
            self.run.step,
            effect,
            AttemptId::new(ids, now),
            before,
            now,
        );
        self.run.state.record_intent(intent.clone());
        self.attempts.push(intent.clone());
        intent
    }

    /// Completes the current intent.
    pub(crate) fn end_intent(&mut self, outcome: Outcome, now: Timestamp) {
        let Some(ended) = self.run.state.record_outcome(outcome, now).cloned() else {
            return;
        };
        self.attempts.retain(|attempt| attempt.id != ended.id);
        self.attempts.push(ended);
    }

    /// A worker that is gone has begun a call, and whoever has the run now will not hear its answer. The
    /// call may have left until now, so from now on counts how long it may still be carried out.
    pub(crate) fn give_up_lost_call(&mut self, now: Timestamp) {
        let lost = |intent: &&Intent| intent.outcome.is_none();
        let Some(intent) = self.run.state.intent.as_ref().filter(lost) else { return };
        let (kind, at) = (intent.effect.kind(), now.max(intent.at));
        let text = "the process that made the call ended before the answer arrived".to_owned();
        let line = format!("no answer to {kind}, so GPUaaS will check whether it happened: {text}");
        self.note(at, Source::ControlPlane, TimelineCode::UnknownOutcome, line);
        self.end_intent(Outcome::Unknown { code: "caller_gone".to_owned(), text }, at);
    }

    /// The run waits: nothing is to be done until an event or `recheck_at`.
    pub(crate) fn wait(&mut self, wait: Wait, recheck_at: Timestamp) {
        self.run.status = RunStatus::Waiting;
        self.run.wait = Some(wait);
        self.run.park = None;
        self.run.due_at = recheck_at;
    }

    /// The run is at work: it waits for nothing, and its worker has it until `lease_until`.
    pub(crate) fn resume_work(&mut self, lease_until: Timestamp) {
        self.run.status = RunStatus::Running;
        self.run.wait = None;
        self.run.lease_until = lease_until;
    }

    /// The run parks until an operator acts. What its node was given has an end from now on.
    pub(crate) fn park(&mut self, park: Park) {
        let ttl = f64::from(self.profile().enrollment_token_ttl_seconds);
        self.tokens_expire_at = Some(park.since.plus_seconds(ttl));
        let parked = park_run(&mut self.run, &self.node.hostname, park);
        self.timeline.push(parked);
    }

    /// The run is over, with `status`.
    pub(crate) fn finish(&mut self, status: RunStatus, now: Timestamp) {
        if self.run.step == Step::ReleaseForCancel {
            self.forget_released_system();
        }
        self.run.status = status;
        self.run.wait = None;
        self.run.park = None;
        self.run.ended_at = Some(now.max(self.run.step_since));
        if self.run.state.intent.as_ref().is_some_and(|intent| intent.outcome.is_none()) {
            let code = "run_over".to_owned();
            let text = "the run ended before the outcome was known".to_owned();
            self.end_intent(Outcome::Unknown { code, text }, now);
        }
        self.run.due_at = Timestamp::NEVER;
        match status {
            RunStatus::Succeeded => {
                self.run.state.failure_class = None;
                self.set_node_state(self.run.kind.row().ends_in, now);
            }
            RunStatus::Cancelled => {
                if let Some(state) = gpuaas_core::node_state::state_after_cancel(&self.run) {
                    self.set_node_state(state, now);
                }
            }
            _ => {}
        }
    }

    /// Hands secrets to the store with the next commit.
    pub(crate) fn add_tokens(&mut self, tokens: Vec<NewToken>) {
        self.tokens = tokens;
    }

    /// Withdraws with the next commit what earlier deployments of the run were given.
    pub(crate) fn revoke_tokens(&mut self, count: i64, now: Timestamp) {
        self.revokes_tokens = true;
        let text = format!("{count} tokens of an earlier deployment revoked");
        self.note(now, Source::ControlPlane, TimelineCode::TokensWithdrawn, text);
    }

    /// Gives the agent a task with the next commit.
    pub(crate) fn add_task(&mut self, task: NewTask) {
        self.run.state.task_id = Some(task.id);
        self.tasks.push(task);
    }

    /// Calls the hook of `failpoint`, where a test or a simulation has set one.
    pub(crate) async fn reach(&self, failpoint: Failpoint) {
        if let Some(failpoints) = &self.failpoints {
            failpoints.reach(&self.run, failpoint).await;
        }
    }

    /// Calls the hook of a decision, where a test has set one.
    pub(crate) fn reach_decision(&self) {
        if let Some(failpoints) = &self.failpoints {
            failpoints.reach_decision(&self.run);
        }
    }

    /// Whether a test has the decision made again without an end.
    pub(crate) fn repeats_decision(&self) -> bool {
        self.failpoints.as_ref().is_some_and(|failpoints| failpoints.repeats_decision(&self.run))
    }

    /// Writes everything since the last commit. With `release` the lease is given back.
    ///
    /// # Errors
    /// [`StoreError::LeaseLost`] when another worker has the run; nothing was written.
    pub(crate) async fn commit(
        &mut self,
        store: &Store,
        now: Timestamp,
        release: bool,
    ) -> Result<(), StoreError> {
        let write = self.take_write(release);
        self.commit_write(store, now, write).await
    }

    /// Gives a parked run back that stays parked: nobody is woken for it.
    ///
    /// # Errors
    /// [`StoreError::LeaseLost`] when another worker has the run; nothing was written.
    pub(crate) async fn commit_unchanged(
        &mut self,
        store: &Store,
        now: Timestamp,
    ) -> Result<(), StoreError> {
        let write = self.take_write(true).staying_parked();
        self.commit_write(store, now, write).await
    }

    async fn commit_write(
        &mut self,
        store: &Store,
        now: Timestamp,
        write: RunWrite,
    ) -> Result<(), StoreError> {
        self.reach(Failpoint::Commit).await;
        let node_state = write.node.as_ref().and_then(|change| change.state);
        let steps: Vec<Step> = write.transitions.iter().map(|entered| entered.step).collect();
        let written = store.commit(now, write).await;
        if written.is_ok() {
            self.log_changes(&steps, node_state);
        }
        self.reach(Failpoint::Committed).await;
        written
    }

    /// What was added since the last commit.
    fn take_write(&mut self, release: bool) -> RunWrite {
        let change = std::mem::take(&mut self.node_change);
        RunWrite {
            run: self.run.clone(),
            release,
            node: Some(change).filter(|c| *c != NodeChange::default()),
            timeline: std::mem::take(&mut self.timeline),
            transitions: std::mem::take(&mut self.transitions),
            attempts: std::mem::take(&mut self.attempts),
            observation: self.read.take(),
            tokens: std::mem::take(&mut self.tokens),
            revokes_tokens: std::mem::take(&mut self.revokes_tokens),
            keeps_tokens: self.run.state.intent.as_ref().is_some_and(|last| last.after_unknown),
            tokens_expire_at: self.tokens_expire_at.take(),
            tasks: std::mem::take(&mut self.tasks),
            stays_parked: false,
        }
    }

    /// One line for each state that the last commit changed.
    fn log_changes(&mut self, steps: &[Step], node_state: Option<NodeState>) {
        for step in steps {
            tracing::info!(entered = step.as_str(), "step entered");
        }
        if let Some(state) = node_state {
            tracing::info!(node_state = state.as_str(), "node state changed");
        }
        let resting = RestState::new(&self.run);
        if resting == self.logged {
            return;
        }
        let RestState { status, code } = &resting;
        match status {
            RunStatus::Waiting => tracing::info!(code, "run waits"),
            RunStatus::Parked => tracing::info!(code, "run parked"),
            RunStatus::Running => tracing::debug!("run works"),
            ended => tracing::info!(status = ended.as_str(), "run ended"),
        }
        self.logged = resting;
    }
}

/// How a run rests, as far as the log tells.
#[derive(Debug, PartialEq, Eq)]
struct RestState {
    status: RunStatus,
    /// What it waits for, or why it is parked; empty otherwise.
    code: String,
}

impl RestState {
    fn new(run: &RunRecord) -> Self {
        let wait = run.wait.as_ref().map(|wait| &wait.code);
        let park = run.park.as_ref().map(|park| &park.code);
        Self { status: run.status, code: park.or(wait).cloned().unwrap_or_default() }
    }
}

/// Parks a run of `node` that a worker has. Answers the event for its timeline.
pub(crate) fn park_run(run: &mut RunRecord, node: &str, mut park: Park) -> TimelineEvent {
    if park.actions.is_empty() {
        park.fill_actions(run.id, node, &[]);
    }
    let event = TimelineEvent {
        at: park.since,
        run_id: Some(run.id),
        step: Some(run.step),
        source: Source::ControlPlane,
        code: TimelineCode::Parked.into(),
        text: format!("{}: {}", park.code, park.text),
    };
    run.state.failure_class = park.failure_class;
    run.state.parked_at = Some(park.since);
    run.state.parked_code = Some(park.code.clone());
    park.looks_again_at = next_recheck_at(&park.code, park.since, park.since);
    run.status = RunStatus::Parked;
    run.wait = None;
    run.due_at = park.looks_again_at.unwrap_or(Timestamp::NEVER);
    run.park = Some(park);
    event
}
