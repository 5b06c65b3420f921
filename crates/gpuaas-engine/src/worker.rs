//! Claims due runs in batches and carries each as far as it goes.
//!
//! The loop is the whole of the engine's authority: load, decide, do, record. What it holds in
//! memory between two commits is only what the next commit will say, so a crash at any line
//! leaves the run as of its last commit: due again, or with an intent that has no outcome.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use gpuaas_core::effect::{Effect, Outcome};
use gpuaas_core::policy::normalise_distro_series;
use gpuaas_core::record::RunRecord;
use gpuaas_core::snapshot::Decision;
use gpuaas_core::steps;
use gpuaas_store::{Claimed, NewTask, RunClass, StoreError};
use gpuaas_types::agent::TaskSpec;
use gpuaas_types::api::{Owner, Park, Source, Wait};
use gpuaas_types::{RunStatus, Step, TaskId, Timestamp};
use tokio::task::JoinSet;

use crate::batch;
use crate::bundles;
use crate::engine::Shared;
use crate::journal::Journal;
use crate::moments::Moment;
use crate::perform;
use crate::reads;
use crate::site::{CallError, Site};

/// Decisions in one claim before the run is given back. Far above what a real run takes; a
/// decision that does not move would otherwise hold its worker for ever.
const MAX_DECISIONS: u32 = 400;
/// Seconds for which a task may wait for its agent.
const TASK_SECONDS: f64 = 3600.0;
/// Seconds between looks for runs that another replica made due.
const IDLE_SECONDS: f64 = 1.0;

/// Claims and works until the engine stops.
pub(crate) async fn run(shared: Arc<Shared>) {
    let mut working = JoinSet::new();
    let mut due = shared.store.due_signal();
    let mut stop = shared.stopping();
    loop {
        while working.try_join_next().is_some() {}
        let free = shared.config.parallel_runs.saturating_sub(working.len());
        let now = shared.clock.now();
        due.mark_unchanged();
        let claimed = claim(&shared, free).await;
        let claimed = claimed.unwrap_or_else(|error| {
            tracing::warn!(%error, "cannot claim work");
            Vec::new()
        });
        let idle = claimed.is_empty();
        for run in claimed {
            let shared = Arc::clone(&shared);
            working.spawn(async move { take_up(&shared, run).await });
        }
        if *stop.borrow() {
            break;
        }
        if idle {
            let at = next_look(&shared, now).await;
            tokio::select! {
                _ = due.changed() => {}
                _ = stop.changed() => break,
                () = shared.clock.sleep_until(at) => {}
                Some(_) = working.join_next(), if free == 0 => {}
            }
        }
    }
    while working.join_next().await.is_some() {}
}

/// Claims due runs, as many as one statement takes.
pub(crate) async fn claim(shared: &Shared, at_most: usize) -> Result<Vec<Claimed>, StoreError> {
    if at_most == 0 {
        return Ok(Vec::new());
    }
    let now = shared.clock.now();
    let until = now.plus_seconds(shared.config.lease_seconds);
    shared.store.claim(now, until, at_most.min(CLAIM_BATCH)).await
}

/// Runs claimed in one statement.
const CLAIM_BATCH: usize = 64;

async fn next_look(shared: &Shared, now: Timestamp) -> Timestamp {
    let latest = now.plus_seconds(IDLE_SECONDS * shared.clock.factor());
    match shared.store.next_due().await {
        Ok(Some(at)) => at.min(latest),
        _ => latest,
    }
}

/// Works on a claimed run and tells the log where it could not be recorded.
pub(crate) async fn take_up(shared: &Shared, claimed: Claimed) {
    let run_id = claimed.run.id;
    let node_id = claimed.node.id;
    match work(shared, claimed).await {
        Ok(()) => {}
        Err(StoreError::LeaseLost) => {
            tracing::info!(%run_id, %node_id, "another worker has the run; nothing was written");
        }
        Err(error) => tracing::error!(%run_id, %node_id, %error, "the run could not be recorded"),
    }
}

/// Carries one claimed run until it waits, parks or ends.
///
/// # Errors
/// What the store says; the run is then due again when its lease ends.
async fn work(shared: &Shared, claimed: Claimed) -> Result<(), StoreError> {
    let (site_id, profile_id, revision) =
        (claimed.run.site_id, claimed.run.profile_id, claimed.run.profile_revision);
    let profile = shared.profile(profile_id, revision).await?;
    let roce = if profile.spec.enable_phase2_roce {
        let assigned = shared.store.roce_of_host(site_id, &claimed.node.hostname).await?;
        assigned.into_iter().map(|resource| resource.spec).collect()
    } else {
        Vec::new()
    };
    let site = shared.sites.get(site_id).await;
    let spec = match &site {
        Ok(site) => site.record.spec.clone(),
        Err(_) => shared.store.site(site_id).await?.spec,
    };
    let watched = claimed.run.step != Step::Accept
        || shared.store.is_watched(site_id, shared.clock.now()).await?;
    let moments = shared.moments.clone();
    let mut journal = Journal::new(claimed, spec, profile, roce, watched, moments);
    if let Ok(site) = &site {
        journal.maas_user.clone_from(&site.record.status.maas_user);
    }
    journal.pass(Moment::Claimed).await;
    let (store, bundles) = (&shared.store, &shared.bundles);
    let reference = &journal.profile().commissioning_bundle_ref;
    if !reference.is_empty() {
        let found = bundles::look(store, bundles, |catalog| catalog.commissioning(reference)).await;
        journal.commissioning =
            found.ok().map(|scripts| scripts.into_iter().map(|s| s.script).collect());
    }
    let class = RunClass { site_id, profile_id, kind: journal.run.kind };
    let image = normalise_distro_series(&journal.profile().distro_series);
    journal.pace = shared.paces.of(&shared.store, &*shared.clock, class, image).await;
    let mut deployed = batch::deploys(&journal.run);
    let mut knows_checks = false;
    for _ in 0..MAX_DECISIONS {
        if journal.run.step == Step::PrereqChecks && !knows_checks {
            journal.host_checks = perform::host_checks(shared, &journal).await;
            knows_checks = true;
        }
        let now = shared.clock.now();
        let decision = gpuaas_core::decide(&journal.snapshot(now));
        let flow = if batch::at_gate(&journal, &decision) {
            gate(shared, &site, &mut journal).await?
        } else {
            step(shared, &site, &mut journal, decision, now).await?
        };
        let deploys = batch::deploys(&journal.run);
        if deployed && !deploys {
            journal.gave_place_back = true;
        }
        deployed = deploys;
        if flow == Flow::Released {
            if journal.gave_place_back {
                batch::wake_next(shared, &journal).await?;
            }
            return Ok(());
        }
    }
    let now = shared.clock.now();
    let text = format!("{MAX_DECISIONS} decisions in one go did not bring the run to a halt");
    park(&mut journal, internal_park("decision_loop", text, now));
    journal.commit(&shared.store, now, true).await
}

/// Takes the run into the deploying part if there is a place, and records that before anyone else
/// counts.
async fn gate(
    shared: &Shared,
    site: &Result<Arc<Site>, CallError>,
    journal: &mut Journal,
) -> Result<Flow, StoreError> {
    let place = shared.batch_gate.lock().await;
    journal.batch = batch::queue(shared, journal).await?;
    let now = shared.clock.now();
    let decision = gpuaas_core::decide(&journal.snapshot(now));
    if !matches!(decision, Decision::Advance { .. }) {
        drop(place);
        return step(shared, site, journal, decision, now).await;
    }
    batch::note_place(journal, now);
    let flow = step(shared, site, journal, decision, now).await?;
    journal.run.status = RunStatus::Running;
    journal.run.wait = None;
    journal.run.lease_until = now.plus_seconds(shared.config.lease_seconds);
    journal.commit(&shared.store, now, false).await?;
    Ok(flow)
}

#[derive(PartialEq, Eq)]
enum Flow {
    On,
    Released,
}

async fn step(
    shared: &Shared,
    site: &Result<Arc<Site>, CallError>,
    journal: &mut Journal,
    decision: Decision,
    now: Timestamp,
) -> Result<Flow, StoreError> {
    match decision {
        Decision::Read(read) => match site {
            Ok(site) => {
                let (run, lease) = (journal.run.clone(), Lease::of(shared, journal));
                hold(shared, &run, &lease, reads::read(shared, site, journal, read)).await;
            }
            Err(error) => return unusable_site(shared, journal, error, now).await,
        },
        Decision::Do(effect) => match site {
            Ok(site) => return attempt(shared, site, journal, effect).await,
            Err(error) => return unusable_site(shared, journal, error, now).await,
        },
        Decision::Settle { happened } => settle(journal, happened, now),
        Decision::Adopt { system_id, origin } => {
            journal.run.memory.origin = Some(origin);
            journal.bind(&system_id);
            return bind(shared, journal, now).await;
        }
        Decision::IssueTask(spec) => issue(shared, journal, spec, now),
        Decision::Advance { to, at, notes, checks } => {
            journal.checks(checks);
            journal.notes(at, notes);
            journal.advance(to, at, now);
        }
        Decision::Wait { wait, recheck_at } => {
            rest(journal, wait, recheck_at);
            journal.commit(&shared.store, now, true).await?;
            return Ok(Flow::Released);
        }
        Decision::Park { park: parked, checks } => {
            journal.checks(checks);
            park(journal, parked);
            journal.commit(&shared.store, now, true).await?;
            return Ok(Flow::Released);
        }
        Decision::Finish { status, notes, checks } => {
            journal.checks(checks);
            journal.notes(now, notes);
            finish(journal, status, now);
            journal.commit(&shared.store, now, true).await?;
            return Ok(Flow::Released);
        }
    }
    Ok(Flow::On)
}

/// Writes the intent, makes the call, notes the outcome. The outcome is committed with whatever
/// comes next; if the process dies before that, the intent is probed.
async fn attempt(
    shared: &Shared,
    site: &Site,
    journal: &mut Journal,
    effect: Effect,
) -> Result<Flow, StoreError> {
    let now = shared.clock.now();
    let prepared = match perform::prepare(shared, journal, &effect).await {
        Ok(prepared) => prepared,
        Err(text) => {
            park(journal, internal_park("effect_not_prepared", text, now));
            journal.commit(&shared.store, now, true).await?;
            return Ok(Flow::Released);
        }
    };
    if matches!(effect, Effect::Deploy { .. }) {
        journal.note(now, Source::ControlPlane, "deploy_started", "deployment submitted");
    }
    let intent = journal.begin(effect, &*shared.ids, now);
    journal.run.status = RunStatus::Running;
    journal.run.wait = None;
    journal.run.lease_until = now.plus_seconds(shared.config.lease_seconds);
    journal.commit(&shared.store, now, false).await?;
    journal.pass(Moment::Call).await;
    let (run, lease) = (journal.run.clone(), Lease::of(shared, journal));
    let call = perform::perform(shared, site, journal, &lease, &intent, prepared);
    hold(shared, &run, &lease, call).await;
    journal.pass(Moment::Called).await;
    if let Some(outcome) = journal.run.memory.intent.as_ref().and_then(|i| i.outcome.clone()) {
        note_outcome(journal, &outcome, shared.clock.now());
    }
    Ok(Flow::On)
}

/// How long a worker may count on its run.
///
/// The store keeps a worker that was away too long from writing, but not from calling: between the
/// commit of an intent and its call a process may stand still for minutes (a suspended machine, a
/// queue for the region), another worker finds that nothing happened and does it itself, and then
/// the first one wakes up and does it again. So the lease is looked at once more right before the
/// request leaves.
pub(crate) struct Lease {
    until_micros: AtomicI64,
    margin_seconds: f64,
}

impl Lease {
    fn of(shared: &Shared, journal: &Journal) -> Self {
        Self {
            until_micros: AtomicI64::new(journal.run.lease_until.as_micros()),
            margin_seconds: shared.config.lease_seconds / 3.0,
        }
    }

    fn extend(&self, until: Timestamp) {
        self.until_micros.store(until.as_micros(), Ordering::SeqCst);
    }

    /// Whether it is sure at `now` that no other worker has the run, by any clock: a third of the
    /// lease is left for clocks that differ and for the way of the request.
    pub(crate) fn holds(&self, now: Timestamp) -> bool {
        let until = Timestamp::from_micros(self.until_micros.load(Ordering::SeqCst));
        now.plus_seconds(self.margin_seconds) < until
    }
}

/// Keeps the lease while `work` waits for MAAS, which may hold an answer for minutes
/// (docs/maas.md#unknown-outcomes). A lease that is lost meanwhile shows at the next commit.
async fn hold(shared: &Shared, run: &RunRecord, lease: &Lease, work: impl Future<Output = ()>) {
    let mut work = std::pin::pin!(work);
    loop {
        let now = shared.clock.now();
        let renewal = now.plus_seconds(shared.config.lease_seconds / 3.0);
        tokio::select! {
            biased;
            () = &mut work => return,
            () = shared.clock.sleep_until(renewal) => {}
        }
        let now = shared.clock.now();
        let until = now.plus_seconds(shared.config.lease_seconds);
        match shared.store.renew(run.id, run.lease_token, until).await {
            Ok(()) => lease.extend(until),
            Err(error) => tracing::warn!(%error, run_id = %run.id, "the lease was not renewed"),
        }
    }
}

fn note_outcome(journal: &mut Journal, outcome: &Outcome, now: Timestamp) {
    let Some(intent) = &journal.run.memory.intent else {
        return;
    };
    let name = intent.effect.name();
    let (source, code, text) = match outcome {
        Outcome::Accepted => return,
        Outcome::Rejected { text, .. } => {
            (Source::Maas, "effect_rejected", format!("MAAS refused {name}: {text}"))
        }
        Outcome::NotSent { text, .. } => {
            (Source::ControlPlane, "effect_not_sent", format!("{name} was not sent: {text}"))
        }
        Outcome::Unknown { text, .. } => (
            Source::ControlPlane,
            "unknown_outcome",
            format!("no answer to {name}, so we will look whether it happened: {text}"),
        ),
    };
    journal.note(now, source, code, text);
}

fn settle(journal: &mut Journal, happened: bool, now: Timestamp) {
    let name = journal.run.memory.intent.as_ref().map_or("effect", |i| i.effect.name());
    let text = if happened {
        format!("{name} did happen: the machine shows it")
    } else {
        format!("{name} did not happen: the machine is as it was")
    };
    journal.note(now, Source::ControlPlane, "outcome_settled", text.clone());
    if happened {
        journal.end(Outcome::Accepted, now);
    } else {
        journal.end(Outcome::did_not_happen(text), now);
    }
}

/// Commits a binding at once: the store knows whether another node holds the machine.
async fn bind(shared: &Shared, journal: &mut Journal, now: Timestamp) -> Result<Flow, StoreError> {
    journal.run.lease_until = now.plus_seconds(shared.config.lease_seconds);
    match journal.commit(&shared.store, now, false).await {
        Ok(()) => Ok(Flow::On),
        Err(StoreError::Conflict { detail, .. }) => {
            let found = journal.run.memory.found.iter().flat_map(|found| &found.candidates);
            let evidence = found.map(|candidate| {
                let by = candidate.matched_by.join(" and ");
                format!("MAAS knows {} as {}, by {by}", candidate.hostname, candidate.system_id)
            });
            let evidence = evidence.collect();
            journal.unbind();
            park(
                journal,
                Park {
                    code: "machine_held".to_owned(),
                    text: detail,
                    since: now,
                    owner: Owner::PlatformOperator,
                    evidence,
                    next_action: "detach the other node first, or correct the host named here"
                        .to_owned(),
                },
            );
            journal.commit(&shared.store, now, true).await?;
            Ok(Flow::Released)
        }
        Err(error) => Err(error),
    }
}

fn issue(shared: &Shared, journal: &mut Journal, spec: TaskSpec, now: Timestamp) {
    let (code, text) = match &spec {
        TaskSpec::Diagnostics { .. } | TaskSpec::Validate { .. } => {
            ("diagnostics_issued", "diagnostics task")
        }
        TaskSpec::SoftReset {} => ("soft_reset_issued", "soft reset"),
        TaskSpec::StorageCleanup {} => ("storage_cleanup_issued", "storage cleanup"),
        TaskSpec::Operate { operation, .. } => ("operation_issued", operation.kind()),
    };
    journal.issue(NewTask {
        id: TaskId::new(&*shared.ids, now),
        spec,
        expires_at: now.plus_seconds(TASK_SECONDS),
    });
    journal.note(now, Source::ControlPlane, code, format!("{text} handed to the agent"));
}

fn rest(journal: &mut Journal, wait: Wait, recheck_at: Timestamp) {
    journal.run.status = RunStatus::Waiting;
    journal.run.wait = Some(wait);
    journal.run.park = None;
    journal.run.due_at = recheck_at;
}

fn park(journal: &mut Journal, park: Park) {
    journal.note(
        park.since,
        Source::ControlPlane,
        "parked",
        format!("{}: {}", park.code, park.text),
    );
    journal.park_tokens(park.since);
    journal.run.memory.parked_at = Some(park.since);
    journal.run.memory.parked_code = Some(park.code.clone());
    journal.run.status = RunStatus::Parked;
    journal.run.wait = None;
    journal.run.park = Some(park);
    journal.run.due_at = Timestamp::NEVER;
}

fn finish(journal: &mut Journal, status: RunStatus, now: Timestamp) {
    journal.run.status = status;
    journal.run.wait = None;
    journal.run.park = None;
    journal.run.ended_at = Some(now.max(journal.run.step_since));
    if journal.run.memory.intent.as_ref().is_some_and(|intent| intent.outcome.is_none()) {
        let (code, text) = ("run_over".to_owned(), "the run ended before it was known".to_owned());
        journal.end(Outcome::Unknown { code, text }, now);
    }
    journal.run.due_at = Timestamp::NEVER;
    match status {
        RunStatus::Succeeded => journal.set_node_state(steps::kind(journal.run.kind).ends, now),
        RunStatus::Cancelled => {
            if let Some(state) = steps::state_after_cancel(&journal.run) {
                journal.set_node_state(state, now);
            }
        }
        _ => {}
    }
}

fn internal_park(code: &str, text: String, now: Timestamp) -> Park {
    Park {
        code: code.to_owned(),
        text,
        since: now,
        owner: Owner::PlatformOperator,
        evidence: Vec::new(),
        next_action: "correct what the text names, then resume the run".to_owned(),
    }
}

async fn unusable_site(
    shared: &Shared,
    journal: &mut Journal,
    error: &CallError,
    now: Timestamp,
) -> Result<Flow, StoreError> {
    let (row, since) = (steps::row(journal.run.step), journal.run.step_since);
    let expected = journal.pace.of(journal.run.step);
    let wait = Wait {
        code: error.code().to_owned(),
        text: format!("the site cannot be used: {error}"),
        since,
        expected_by: Some(since.plus_seconds(expected.seconds)),
        expected_from: Some(expected.from),
        deadline: Some(since.plus_seconds(f64::from(row.deadline_seconds))),
    };
    rest(journal, wait, now.plus_seconds(60.0));
    journal.commit(&shared.store, now, true).await?;
    Ok(Flow::Released)
}
