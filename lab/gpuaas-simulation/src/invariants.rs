//! What must hold in every simulation, whatever goes wrong in it.
//!
//! Each invariant is checked where it can break, so that a check after every tick costs little. A
//! change that reaches MAAS is compared with the journal when it arrives, and a run when a control
//! plane has released it. All of them are checked after each event and at the end.
//! [`InvariantChecker`] keeps what one check cannot read: which intent has made its call, what people
//! did, and since when a control plane runs.

use std::collections::{BTreeMap, BTreeSet};

use gpuaas_client::failure::{Failure, store_failure};
use gpuaas_core::decide::change_guard::{MACHINE_SECONDS, changes_machine, is_free_status};
use gpuaas_core::effect::Intent;
use gpuaas_core::node_state;
use gpuaas_core::record::{NodeRecord, ReportKind, RunRecord};
use gpuaas_core::run_state::MachineOrigin;
use gpuaas_engine::Clock as _;
use gpuaas_store::{ListedNode, NodeFilter, Page, StoreError, StoredTimelineEvent, TokenPurpose};
use gpuaas_types::machine::maas_status;
use gpuaas_types::spec::ReleaseMode;
use gpuaas_types::{
    AttemptId, EffectKind, NodeId, NodeState, RunId, RunKind, RunStatus, Step, Timestamp,
};
use maas_sim::{HostView, LogEntry, Stats};

use crate::simulation::Simulation;
use crate::transport::ArrivedChange;

/// Seconds beyond its deadline at which a run that still waits is stuck: clocks step, control
/// planes are away, and the last look is a while after the deadline.
const SLACK_SECONDS: f64 = 3600.0;
/// Seconds after which a run that is due and not looked at is forgotten.
const FORGOTTEN_SECONDS: f64 = 900.0;
/// Seconds by which the clocks of control planes are wrong at most, and a little more.
const CLOCKS_DIFFER_SECONDS: f64 = 180.0;
/// Seconds for which a look in the step of a change counts.
const IN_STEP_SECONDS: f64 = 300.0;
/// The MAAS user that control planes ask as.
const MAAS_USER: &str = "admin";
/// Steps at whose changes the machine carries no system, or this run has not deployed one yet.
const WITHOUT_SYSTEM: &[Step] = &[
    Step::RegisterScripts,
    Step::Commission,
    Step::PrepareStorage,
    Step::RoceLinks,
    Step::MachineTag,
    Step::PowerOff,
    Step::Deploy,
];
/// Lines of history of one node.
const LINES: i64 = 1_000_000;

/// How the runs of a fleet ended.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct RunOutcomes {
    /// Runs that were begun.
    pub begun: usize,
    /// Succeeded, or cancelled as asked.
    pub intended: usize,
    /// Parked with a reason.
    pub parked: usize,
}

/// See the module text.
#[derive(Debug, Default)]
pub struct InvariantChecker {
    /// Intents that have made their call.
    called: BTreeSet<AttemptId>,
    /// When a person last did something to a machine, by its name on the rack.
    people: BTreeMap<String, Timestamp>,
    /// Runs whose end was looked at.
    over: BTreeSet<RunId>,
    /// Since when a control plane has been running.
    up_since: Option<Timestamp>,
    /// Times that a person did something to a machine.
    human_actions: usize,
    /// Changes of machines that were not ours to change.
    touched_not_ours: usize,
}

impl InvariantChecker {
    /// Times that a person did something to a machine.
    #[must_use]
    pub const fn human_actions(&self) -> usize {
        self.human_actions
    }

    /// Changes of machines that others had, had locked or had renamed.
    #[must_use]
    pub const fn machines_touched_not_ours(&self) -> usize {
        self.touched_not_ours
    }

    /// A person did something to a machine, with or without success.
    pub fn record_human_action(&mut self, machine: &str, at: Timestamp) {
        self.human_actions += 1;
        self.people.insert(machine.to_owned(), at);
    }

    fn interfered(&self, machine: &str, since: Timestamp) -> bool {
        self.people.get(machine).is_some_and(|at| *at >= since)
    }

    /// What holds after every tick: of what arrived in MAAS and of the runs that were looked at.
    ///
    /// # Errors
    /// The store's.
    pub async fn after_tick(&mut self, simulation: &Simulation) -> Result<Vec<String>, Failure> {
        let mut broken = Vec::new();
        for arrival in simulation.take_arrived_changes() {
            broken.extend(
                self.check_arrived_change(simulation, &arrival).await.map_err(store_failure)?,
            );
        }
        let touched: BTreeSet<RunId> = simulation.take_touched_runs().into_iter().collect();
        for run_id in touched {
            broken.extend(self.check_touched_run(simulation, run_id).await.map_err(store_failure)?);
        }
        Ok(broken)
    }

    /// What holds at every moment, of everything.
    ///
    /// # Errors
    /// The store's.
    pub async fn check_all(&mut self, simulation: &Simulation) -> Result<Vec<String>, Failure> {
        let now = simulation.clock.now();
        match (simulation.is_up(), self.up_since) {
            (false, _) => self.up_since = None,
            (true, None) => self.up_since = Some(now),
            (true, Some(_)) => {}
        }
        self.violations_now(simulation, now).await.map_err(store_failure)
    }

    async fn violations_now(
        &self,
        simulation: &Simulation,
        now: Timestamp,
    ) -> Result<Vec<String>, StoreError> {
        let mut broken = Vec::new();
        broken.extend(simulation.region.with(|region| doubly_deployed(region.stats())));
        if simulation.tokens_taken_twice() > 0 {
            broken.push("an enrollment token was accepted twice".to_owned());
        }
        let listed = simulation.store.list_nodes(NodeFilter::default()).await?;
        broken.extend(owned_twice(listed.iter().map(|listed| &listed.node)));
        for listed in listed {
            let Some(brief) = listed.run.filter(|run| run.status.is_open()) else { continue };
            let run = simulation.store.run(brief.id).await?;
            let name = &listed.node.hostname;
            broken.extend(unexplained_open_run(&run).map(|text| format!("{name}: {text}")));
            broken.extend(self.stuck(&run, now).map(|text| format!("{name}: {text}")));
        }
        Ok(broken)
    }

    /// A run that moves is looked at when it is due, and gives up when it said it would.
    fn stuck(&self, run: &RunRecord, now: Timestamp) -> Option<String> {
        let up_seconds = self.up_since.map_or(0.0, |since| now.seconds_since(since));
        if run.status == RunStatus::Parked || up_seconds < FORGOTTEN_SECONDS {
            return None;
        }
        let late_seconds = now.seconds_since(run.due_at);
        if late_seconds > FORGOTTEN_SECONDS {
            return Some(format!("the run in {} is overdue by {late_seconds:.0} s", run.step));
        }
        let deadline = run.wait.as_ref().and_then(|wait| wait.deadline)?;
        let over_seconds = now.seconds_since(deadline);
        (over_seconds > SLACK_SECONDS)
            .then(|| format!("the run in {} waits {over_seconds:.0} s past its deadline", run.step))
    }

    /// A change in MAAS is somebody's intent, made once, and never of a machine handed over.
    async fn check_arrived_change(
        &mut self,
        simulation: &Simulation,
        arrival: &ArrivedChange,
    ) -> Result<Option<String>, StoreError> {
        let node = match (&arrival.system_id, &arrival.hostname) {
            (Some(id), _) => simulation.store.node_by_system_id(simulation.site_id, id).await?,
            (None, Some(name)) => {
                let found = simulation.store.find_nodes(name).await?;
                found.into_iter().next().map(|listed| listed.node)
            }
            (None, None) => None,
        };
        let run = match node.as_ref().and_then(|node| node.run_id) {
            Some(run_id) => Some(simulation.store.run(run_id).await?),
            None => None,
        };
        let machine = arrival.system_id.as_deref().or(arrival.hostname.as_deref()).unwrap_or("?");
        let intent = run.as_ref().and_then(|run| run.state.intent.as_ref());
        let told = self.check_intent_of_call(arrival.effect, intent);
        let foreign = match (&node, &run) {
            (Some(node), Some(run)) => self.touched_machine(simulation, arrival, node, run),
            _ => None,
        };
        self.touched_not_ours += usize::from(foreign.is_some());
        let handed = simulation.profile().release_mode == ReleaseMode::Handoff
            && run.as_ref().is_some_and(|run| run.kind != RunKind::Onboard);
        Ok(match told {
            Some(text) => Some(format!("{machine}: {text}")),
            None if foreign.is_some() => foreign.map(|text| format!("{machine}: {text}")),
            None if handed => {
                let name = effect_name(arrival.effect);
                Some(format!("{machine}: {name} on a machine that was handed over"))
            }
            None => None,
        })
    }

    /// Whose machine a call changed that was not the run's to change. What a person did after the step
    /// began, or a moment ago, no look can have shown for certain.
    fn touched_machine(
        &self,
        simulation: &Simulation,
        arrival: &ArrivedChange,
        node: &NodeRecord,
        run: &RunRecord,
    ) -> Option<String> {
        let shown = arrival.shown.as_ref()?;
        let effect = arrival.effect.filter(|kind| changes_machine(*kind))?;
        let acted = self.people.get(&machine_of(simulation, node)?.name)?;
        let at = |seconds: f64| arrival.at.plus_seconds(-seconds - CLOCKS_DIFFER_SECONDS);
        let began = run.step_since.plus_seconds(-CLOCKS_DIFFER_SECONDS);
        if *acted >= began.min(at(MACHINE_SECONDS)).max(at(IN_STEP_SECONDS)) {
            return None;
        }
        let claimed = run.state.origin == Some(MachineOrigin::Claimed);
        let renamed = !claimed && !shown.hostname.eq_ignore_ascii_case(&node.hostname);
        let tried = run.state.tries.get(&EffectKind::Deploy).copied().unwrap_or_default();
        let first = effect != EffectKind::Deploy || tried <= 1;
        let system = WITHOUT_SYSTEM.contains(&run.step) && first;
        let why = match &shown.owner {
            Some(owner) if owner != MAAS_USER => format!("a machine owned by {owner}"),
            _ if shown.locked => "a locked machine".to_owned(),
            _ if renamed => format!("a machine named {}", shown.hostname),
            _ if system && !is_free_status(run.kind, shown.status) => {
                format!(
                    "a machine with someone else's system (status {})",
                    maas_status::label(shown.status)
                )
            }
            _ => return None,
        };
        let (kind, step) = (run.kind, run.step);
        Some(format!("{effect} on {why}, by the {kind} run in {step}"))
    }

    /// What is wrong with a call that MAAS got, given the intent that stands in the journal.
    fn check_intent_of_call(
        &mut self,
        effect: Option<EffectKind>,
        intent: Option<&Intent>,
    ) -> Option<String> {
        let name = effect_name(effect);
        match intent {
            // Given up by whoever took the run over, while the call was on its way.
            Some(intent) if Some(intent.effect.kind()) == effect && intent.is_open() => {
                let again = !self.called.insert(intent.id);
                again.then(|| format!("{name} was sent twice for intent {}", intent.id))
            }
            Some(other) => {
                let outcome = other.outcome.as_ref().map_or("open", |outcome| outcome.name());
                let latest = other.effect.kind();
                Some(format!("{name} without an intent; the latest intent is {latest} ({outcome})"))
            }
            None => Some(format!("{name} without an intent")),
        }
    }

    async fn check_touched_run(
        &mut self,
        simulation: &Simulation,
        run_id: RunId,
    ) -> Result<Vec<String>, StoreError> {
        let run = match simulation.store.run(run_id).await {
            Ok(run) => run,
            // A request that was refused has made nothing.
            Err(StoreError::NotFound { .. }) => return Ok(Vec::new()),
            Err(error) => return Err(error),
        };
        let node = simulation.store.node(run.node_id).await?;
        let mut broken: Vec<String> = unexplained_open_run(&run).into_iter().collect();
        if !run.kind.row().steps.contains(&run.step) {
            broken.push(format!(
                "a {} run is in {}, which is not one of its steps",
                run.kind, run.step
            ));
        }
        if !run.status.is_open() && self.over.insert(run_id) {
            broken.extend(self.check_ended_run(simulation, &node, &run).await?);
        }
        Ok(broken.into_iter().map(|text| format!("{}: {text}", node.hostname)).collect())
    }

    /// What a run's end says is so, at the moment at which it ends.
    async fn check_ended_run(
        &self,
        simulation: &Simulation,
        node: &NodeRecord,
        run: &RunRecord,
    ) -> Result<Vec<String>, StoreError> {
        let mut broken: Vec<String> =
            unbalanced_buckets(simulation, run).await?.into_iter().collect();
        let reports = simulation.store.reports(run.id).await?;
        let cancelled =
            reports.iter().any(|r| matches!(r.kind, ReportKind::CancelRequested { .. }));
        let ends = run.kind.row().ends_in;
        match run.status {
            RunStatus::Succeeded if node.state != ends => {
                broken.push(format!(
                    "the {} run succeeded, but the node is {}",
                    run.kind, node.state
                ));
            }
            RunStatus::Succeeded | RunStatus::Cancelled => {}
            other => broken.push(format!("a {} run ended as {other}", run.kind)),
        }
        if run.status == RunStatus::Cancelled && !cancelled {
            broken.push(format!("a {} run was cancelled without a request", run.kind));
        }
        let machine = machine_of(simulation, node);
        let name = machine.as_ref().map_or(node.hostname.as_str(), |machine| &machine.name);
        if run.status != RunStatus::Succeeded || self.interfered(name, run.created_at) {
            return Ok(broken);
        }
        let is_ours = machine.as_ref().is_some_and(has_system);
        let handoff = simulation.profile().release_mode == ReleaseMode::Handoff;
        match run.kind {
            RunKind::Decommission if is_ours && !handoff => {
                broken.push("the node is retired, but its machine still has a system".to_owned());
            }
            RunKind::Onboard | RunKind::Reimage if machine.is_some() && !is_ours => {
                broken.push("the node is active, but its machine is not deployed".to_owned());
            }
            _ => {}
        }
        Ok(broken)
    }

    /// What holds once nothing moves any more: how lives ended, what is broken, one line per life.
    ///
    /// # Errors
    /// The store's.
    pub async fn check_end(
        &self,
        simulation: &Simulation,
    ) -> Result<(RunOutcomes, Vec<String>, Vec<String>), Failure> {
        self.violations_at_end(simulation).await.map_err(store_failure)
    }

    async fn violations_at_end(
        &self,
        simulation: &Simulation,
    ) -> Result<(RunOutcomes, Vec<String>, Vec<String>), StoreError> {
        let (mut lives, mut broken, mut ends) = (RunOutcomes::default(), Vec::new(), Vec::new());
        let mut left = BTreeSet::new();
        let listed = simulation.store.list_nodes(NodeFilter::default()).await?;
        for listed in &listed {
            let name = &listed.node.hostname;
            let mut report = |text: String| broken.push(format!("{name}: {text}"));
            for run in simulation.store.runs_of_node(listed.node.id, Page::first(1000)).await? {
                lives.begun += 1;
                ends.push(format!("{name}: {}", ending(&run)));
                match run.status {
                    RunStatus::Succeeded | RunStatus::Cancelled => lives.intended += 1,
                    RunStatus::Parked => lives.parked += 1,
                    other => {
                        let wait = run.wait.as_ref().map(|wait| format!(": {}", wait.text));
                        let wait = wait.unwrap_or_default();
                        report(format!("the run is still {other} in {}{wait}", run.step));
                    }
                }
                if leaves_machine(simulation, &run).await? {
                    left.insert(name.clone());
                }
            }
            let lines = simulation.store.timeline_of_node(listed.node.id, 0, LINES).await?;
            history_gaps(&lines, listed.node.state).into_iter().for_each(&mut report);
        }
        broken.extend(self.unowned_machines(simulation, &listed, &left));
        broken.extend(surviving_credentials(simulation, &listed).await?);
        Ok((lives, broken, ends))
    }

    /// A machine that carries a system of ours is somebody's.
    fn unowned_machines(
        &self,
        simulation: &Simulation,
        listed: &[ListedNode],
        left: &BTreeSet<String>,
    ) -> Vec<String> {
        let mut broken = Vec::new();
        for machine in simulation.region.with(|region| region.hosts()) {
            let excused = left.contains(&machine.name) || self.people.contains_key(&machine.name);
            if excused || !has_system(&machine) {
                continue;
            }
            let holder = listed.iter().find(|listed| {
                in_care(listed.node.state) && listed.node.system_id == machine.system_id
            });
            let status = machine.status.unwrap_or_default();
            match holder {
                None => broken.push(format!("{}: {status}, but no node holds it", machine.name)),
                Some(holder) => {
                    let open = holder.run.as_ref().is_some_and(|run| run.status.is_open());
                    let state = holder.node.state;
                    if !open && state == NodeState::Registered {
                        broken.push(format!("{}: {status}, but its node is {state}", machine.name));
                    }
                }
            }
        }
        broken
    }
}

fn has_system(machine: &HostView) -> bool {
    machine.status.is_some_and(|status| matches!(status, "Deployed" | "Deploying" | "Allocated"))
}

fn machine_of(simulation: &Simulation, node: &NodeRecord) -> Option<HostView> {
    let hosts = simulation.region.with(|region| region.hosts());
    hosts.into_iter().find(|host| host.system_id.is_some() && host.system_id == node.system_id)
}

/// Deployments on top of a deployment. A record that the control plane made anew, once MAAS had
/// none any more, forgot the one before.
fn doubly_deployed(stats: &Stats) -> Vec<String> {
    let made = |entry: &&LogEntry| matches!(entry, LogEntry::Call { endpoint: "machines.create", status, .. } if *status < 300);
    let machines = stats.machines.iter().filter(|(_, machine)| machine.double_deploys > 0);
    let machines = machines.filter(|(_, machine)| machine.log.iter().filter(made).count() < 2);
    machines.map(|(name, _)| format!("{name}: deployed again while already deployed")).collect()
}

const fn in_care(state: NodeState) -> bool {
    !matches!(state, NodeState::Retired | NodeState::Detached | NodeState::Deleted)
}

/// No machine is held by two nodes.
fn owned_twice<'a>(nodes: impl Iterator<Item = &'a NodeRecord>) -> Vec<String> {
    let mut owners: BTreeMap<&str, &str> = BTreeMap::new();
    let mut broken = Vec::new();
    for node in nodes.filter(|node| in_care(node.state)) {
        if let Some(system_id) = &node.system_id
            && let Some(other) = owners.insert(system_id, &node.hostname)
        {
            broken
                .push(format!("machine {system_id} is held by both {other} and {}", node.hostname));
        }
    }
    broken
}

/// An open run says when it is looked at next, or why it stopped and what to do.
fn unexplained_open_run(run: &RunRecord) -> Option<String> {
    match run.status {
        RunStatus::Running | RunStatus::Waiting if run.due_at >= Timestamp::NEVER => {
            Some(format!("the run is {} in {} but is never due", run.status, run.step))
        }
        RunStatus::Waiting if run.wait.is_none() => {
            Some(format!("the run waits in {} without a wait reason", run.step))
        }
        RunStatus::Parked => match &run.park {
            None => Some(format!("the run is parked in {} without a reason", run.step)),
            Some(park) if park.text.is_empty() || park.next_action.is_empty() => {
                Some(format!("the park {} has no text or no next action", park.code))
            }
            Some(park) if park.evidence.is_empty() && run.state.intent.is_some() => {
                Some(format!("the park {} has no evidence", park.code))
            }
            Some(_) => None,
        },
        _ => None,
    }
}

fn ending(run: &RunRecord) -> String {
    match &run.park {
        Some(park) => format!("{} parked in {}: {}: {}", run.kind, run.step, park.code, park.text),
        None => format!("{} {} in {}", run.kind, run.status, run.step),
    }
}

/// The spans of a run touch, and their sum is its wall time.
async fn unbalanced_buckets(
    simulation: &Simulation,
    run: &RunRecord,
) -> Result<Option<String>, StoreError> {
    let Some(ended) = run.ended_at else { return Ok(None) };
    let spans = simulation.store.spans(run.id).await?;
    let sum: f64 = gpuaas_core::buckets::seconds_per_bucket(&spans, ended).values().sum();
    let wall = ended.seconds_since(run.created_at);
    let touching = spans.windows(2).all(|pair| pair[0].until == Some(pair[1].from));
    if (sum - wall).abs() < 1e-6 && touching {
        return Ok(None);
    }
    Ok(Some(format!("the buckets sum to {sum} s, but the run took {wall} s")))
}

/// Whether a run was told to leave its machine as it is, or is made of that.
async fn leaves_machine(simulation: &Simulation, run: &RunRecord) -> Result<bool, StoreError> {
    let handoff = simulation.profile().release_mode == ReleaseMode::Handoff;
    if run.kind == RunKind::Detach || handoff && run.kind == RunKind::Decommission {
        return Ok(true);
    }
    let reports = simulation.store.reports(run.id).await?;
    Ok(reports
        .iter()
        .any(|r| matches!(r.kind, ReportKind::CancelRequested { leave_machine: true, .. })))
}

/// The history of a node tells each change of its state, each of them one that the table allows,
/// and ends in the state that it is in.
fn history_gaps(lines: &[StoredTimelineEvent], state: NodeState) -> Vec<String> {
    let mut broken = Vec::new();
    let mut at = NodeState::Registered;
    for line in lines.iter().filter(|line| line.event.code == "node_state_changed") {
        let Some((to, from)) = change(&line.event.text) else {
            broken.push(format!("unexpected history text {:?}", line.event.text));
            continue;
        };
        if from != at {
            broken.push(format!("the history says the node left state {from}, but it was {at}"));
        }
        if !node_state::may_become(from, to) {
            broken.push(format!("the history changes {from} to {to}, which is not allowed"));
        }
        at = to;
    }
    if at != state {
        broken.push(format!("the history ends with {at}, but the node is {state}"));
    }
    broken
}

fn change(text: &str) -> Option<(NodeState, NodeState)> {
    let (to, from) = text.strip_prefix("the node is ")?.split_once(" (before: ")?;
    let from = from.split_once(')')?.0;
    Some((to.parse().ok()?, from.parse().ok()?))
}

/// What an agent holds works for one agent of a node in care, and for none of a node that left.
async fn surviving_credentials(
    simulation: &Simulation,
    listed: &[ListedNode],
) -> Result<Vec<String>, StoreError> {
    let now = simulation.clock.now();
    let mut working: BTreeMap<NodeId, u32> = BTreeMap::new();
    for credential in simulation.credentials() {
        match simulation.store.check_token(now, credential.hash, TokenPurpose::Agent).await {
            Ok(_) => *working.entry(credential.node_id).or_default() += 1,
            Err(StoreError::Token(_)) => {}
            Err(error) => return Err(error),
        }
    }
    let mut broken = Vec::new();
    for ListedNode { node, .. } in listed {
        let most = u32::from(in_care(node.state));
        let count = working.get(&node.id).copied().unwrap_or_default();
        if count > most {
            let (name, state) = (&node.hostname, node.state);
            broken.push(format!(
                "{name}: the node is {state}, but {count} agent credentials are valid"
            ));
        }
    }
    Ok(broken)
}

/// How an effect is named in a violation; none: a change that the journal knows nothing of.
fn effect_name(effect: Option<EffectKind>) -> &'static str {
    effect.map_or("a change that is not a known effect", EffectKind::as_str)
}

#[cfg(test)]
mod tests;
