//! A claimed run in the hands of a worker: the snapshot it decides on, and the writes that wait
//! for the next commit.
//!
//! Every commit is one transaction that names the worker's fencing token. The outcome of one
//! effect and the intent of the next share a commit, so a run costs about one write per effect.

use std::sync::Arc;

use gpuaas_core::effect::{Effect, Intent, Outcome};
use gpuaas_core::pace::Pace;
use gpuaas_core::record::{NodeRecord, Report, RunRecord};
use gpuaas_core::snapshot::{BatchQueue, Note, Snapshot};
use gpuaas_core::steps;
use gpuaas_store::{
    Claimed, NewTask, NewToken, NodeChange, ProfileRevision, RunWrite, Store, StoreError,
    Transition,
};
use gpuaas_types::agent::HostCheck;
use gpuaas_types::api::{CheckResult, Source, TimelineEvent};
use gpuaas_types::machine::{MachineView, Observation};
use gpuaas_types::scripts::MaasScript;
use gpuaas_types::spec::{ProfileSpec, RoceAssignmentSpec, SiteSpec};
use gpuaas_types::{AttemptId, IdSource, NodeState, Step, Timestamp};

use crate::moments::{Moment, Moments};

/// See the module text.
pub(crate) struct Journal {
    /// The run, as it will be written.
    pub(crate) run: RunRecord,
    /// Its node, as it will be.
    pub(crate) node: NodeRecord,
    /// The latest observation.
    pub(crate) observation: Option<Observation>,
    reports: Vec<Report>,
    site: SiteSpec,
    profile: Arc<ProfileRevision>,
    roce: Vec<RoceAssignmentSpec>,
    timeline: Vec<TimelineEvent>,
    transitions: Vec<Transition>,
    attempts: Vec<Intent>,
    watched: bool,
    moments: Option<Arc<dyn Moments>>,
    /// What earlier runs teach of this one's pace.
    pub(crate) pace: Arc<Pace>,
    /// The MAAS user that the site's key belongs to; empty: not known.
    pub(crate) maas_user: String,
    /// What the profile's validation bundle asks of the host, and its site bundle of an active
    /// one; or why that is not known.
    pub(crate) host_checks: Result<Vec<HostCheck>, String>,
    /// Scripts of the profile's commissioning bundle; none: it does not resolve.
    pub(crate) commissioning: Option<Vec<MaasScript>>,
    /// Who goes before this run into the deploying part.
    pub(crate) batch: Option<BatchQueue>,
    /// The run left the deploying part while this worker had it.
    pub(crate) gave_place_back: bool,
    node_change: NodeChange,
    read: Option<Observation>,
    tokens: Vec<NewToken>,
    tasks: Vec<NewTask>,
    tokens_expire_at: Option<Timestamp>,
}

impl Journal {
    /// Takes up a claimed run.
    #[must_use]
    pub(crate) fn new(
        claimed: Claimed,
        site: SiteSpec,
        profile: Arc<ProfileRevision>,
        roce: Vec<RoceAssignmentSpec>,
        watched: bool,
        moments: Option<Arc<dyn Moments>>,
    ) -> Self {
        Self {
            run: claimed.run,
            node: claimed.node,
            observation: claimed.observation,
            reports: claimed.reports,
            site,
            profile,
            roce,
            timeline: Vec::new(),
            transitions: Vec::new(),
            attempts: Vec::new(),
            watched,
            moments,
            pace: Arc::default(),
            maas_user: String::new(),
            host_checks: Ok(Vec::new()),
            commissioning: Some(Vec::new()),
            batch: None,
            gave_place_back: false,
            node_change: NodeChange::default(),
            read: None,
            tokens: Vec::new(),
            tasks: Vec::new(),
            tokens_expire_at: None,
        }
    }

    /// What a decision may look at.
    #[must_use]
    pub(crate) fn snapshot(&self, now: Timestamp) -> Snapshot<'_> {
        Snapshot {
            now,
            run: &self.run,
            node: &self.node,
            site: &self.site,
            profile: &self.profile.spec,
            roce: &self.roce,
            observation: self.observation.as_ref(),
            reports: &self.reports,
            host_checks: self.host_checks.as_deref().map_err(String::as_str),
            commissioning: self.commissioning.as_deref(),
            batch: self.batch,
            maas_user: &self.maas_user,
            watched: self.watched,
            expected: self.pace.of(self.run.step),
        }
    }

    /// The pinned profile.
    #[must_use]
    pub(crate) fn profile(&self) -> &ProfileSpec {
        &self.profile.spec
    }

    /// The pinned profile with the bundles that it pins.
    #[must_use]
    pub(crate) fn revision(&self) -> &ProfileRevision {
        &self.profile
    }

    /// The site as written by the operator.
    #[must_use]
    pub(crate) fn site(&self) -> &SiteSpec {
        &self.site
    }

    /// Adds to the timeline.
    pub(crate) fn note(
        &mut self,
        at: Timestamp,
        source: Source,
        code: &str,
        text: impl Into<String>,
    ) {
        self.timeline.push(TimelineEvent {
            at,
            run_id: Some(self.run.id),
            step: Some(self.run.step),
            source,
            code: code.to_owned(),
            text: text.into(),
        });
    }

    /// Adds a decision's notes, with the boundary's time.
    pub(crate) fn notes(&mut self, at: Timestamp, notes: Vec<Note>) {
        for note in notes {
            self.note(at, Source::ControlPlane, note.code, note.text);
        }
    }

    /// Keeps the latest result of each check.
    pub(crate) fn checks(&mut self, checks: Vec<CheckResult>) {
        for check in checks {
            self.run.memory.checks.insert(check.name.clone(), check);
        }
    }

    /// Goes on to the next step as of `at`, clamped into the current step, so that the spans of a
    /// run touch and their sum is its wall time.
    pub(crate) fn advance(&mut self, to: Step, at: Timestamp, now: Timestamp) {
        let at = at.clamp(self.run.step_since, now.max(self.run.step_since));
        let cause = format!("{} is done", self.run.step);
        self.transitions.push(Transition { step: to, at, cause });
        self.run.step = to;
        self.run.step_since = at;
        self.run.memory.enter(to);
        if let Some(state) = steps::row(to).node_state {
            self.set_node_state(state, at);
        }
    }

    /// Changes the node's own state, where the table of transitions allows it.
    pub(crate) fn set_node_state(&mut self, state: NodeState, at: Timestamp) {
        let before = self.node.state;
        if state != before && gpuaas_core::node_state::may_become(before, state) {
            self.node.state = state;
            self.node_change.state = Some(state);
            self.run.memory.state_before.get_or_insert(before);
            let text = format!("the node is {state}, it was {before}");
            self.note(at, Source::ControlPlane, "node_state_changed", text);
        }
    }

    /// Binds the machine to the node.
    pub(crate) fn bind(&mut self, system_id: &str) {
        self.node.system_id = Some(system_id.to_owned());
        self.node_change.system_id = Some(system_id.to_owned());
    }

    /// Takes a binding back that the store refused.
    pub(crate) fn unbind(&mut self) {
        self.node.system_id = None;
        self.node_change.system_id = None;
    }

    /// The moment of a read that was asked at `asked_at`: later than all that this run knows, also
    /// where the clock has stepped back. A read that looked older would be asked for for ever.
    pub(crate) fn not_before(&self, asked_at: Timestamp) -> Timestamp {
        let memory = &self.run.memory;
        let ended = memory.intent.as_ref().map(|i| i.ended_at.unwrap_or(i.at).plus_seconds(1e-6));
        let heard = self.observation.as_ref().map(|o| o.status_at);
        [ended, heard, memory.resumed_at]
            .into_iter()
            .flatten()
            .fold(asked_at.max(self.run.step_since), Timestamp::max)
    }

    /// Notes a full read of the machine, asked at `asked_at`.
    pub(crate) fn observe(&mut self, machine: MachineView, asked_at: Timestamp) {
        let mut seen = Observation::from_read(machine, self.not_before(asked_at));
        if let Some(old) = &self.observation {
            seen.event_id = old.event_id;
            seen.rebooted_at = old.rebooted_at;
            seen.alarm.clone_from(&old.alarm);
        }
        self.observe_as(seen);
    }

    /// Notes a whole observation.
    pub(crate) fn observe_as(&mut self, seen: Observation) {
        self.read = Some(seen.clone());
        self.observation = Some(seen);
    }

    /// Writes an intent into the journal; durable with the next commit.
    pub(crate) fn begin(&mut self, effect: Effect, ids: &dyn IdSource, now: Timestamp) -> Intent {
        let intent = Intent {
            id: AttemptId::new(ids, now),
            step: self.run.step,
            number: self.run.memory.next_number(&effect),
            effect,
            at: now,
            before: self.observation.as_ref().map(|o| o.status),
            outcome: None,
            ended_at: None,
        };
        self.run.memory.begin(intent.clone());
        self.attempts.push(intent.clone());
        intent
    }

    /// Completes the current intent.
    pub(crate) fn end(&mut self, outcome: Outcome, now: Timestamp) {
        let Some(ended) = self.run.memory.end(outcome, now).cloned() else {
            return;
        };
        self.attempts.retain(|attempt| attempt.id != ended.id);
        self.attempts.push(ended);
    }

    /// The run parks: what its node was given has an end from now on.
    pub(crate) fn park_tokens(&mut self, now: Timestamp) {
        let ttl = f64::from(self.profile.spec.enrollment_token_ttl_seconds);
        self.tokens_expire_at = Some(now.plus_seconds(ttl));
    }

    /// Hands secrets to the store with the next commit.
    pub(crate) fn mint(&mut self, tokens: Vec<NewToken>) {
        self.tokens = tokens;
    }

    /// Gives the agent a task with the next commit.
    pub(crate) fn issue(&mut self, task: NewTask) {
        self.run.memory.task_id = Some(task.id);
        self.tasks.push(task);
    }

    /// Tells whoever wants to know that the worker has come to `moment`.
    pub(crate) async fn pass(&self, moment: Moment) {
        if let Some(moments) = &self.moments {
            moments.pass(&self.run, moment).await;
        }
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
        self.pass(Moment::Commit).await;
        let change = std::mem::take(&mut self.node_change);
        let write = RunWrite {
            run: self.run.clone(),
            release,
            node: Some(change.clone()).filter(|c| *c != NodeChange::default()),
            timeline: std::mem::take(&mut self.timeline),
            transitions: std::mem::take(&mut self.transitions),
            attempts: std::mem::take(&mut self.attempts),
            observation: self.read.take(),
            tokens: std::mem::take(&mut self.tokens),
            tokens_expire_at: self.tokens_expire_at.take(),
            tasks: std::mem::take(&mut self.tasks),
        };
        let written = store.commit(now, write).await;
        self.pass(Moment::Committed).await;
        written
    }
}
