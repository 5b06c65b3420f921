//! How a run ended, as far as it must be the same whatever disturbed it, and what is wrong with
//! its history.

use std::collections::{BTreeMap, BTreeSet};

use gpuaas_engine::Failpoint;
use gpuaas_simulation::breakpoint::PassedFailpoint;
use gpuaas_store::StoreError;
use gpuaas_types::{EffectKind, NodeState, RunStatus, Step, Timestamp};
use maas_sim::LogEntry;
use serde_json::{Value, json};

use super::setup::StartedRun;

/// Lines of a timeline that tell of a disturbance, or of one try among several.
const OF_TRIES: [&str; 3] = ["deploy_started", "outcome_settled", "unknown_outcome"];

/// Code of a line that tells what MAAS' feed says.
const FEED: &str = "maas_event";
/// End of the line by which MAAS gives up a deployment.
const DEPLOYMENT_TIMED_OUT: &str = "Node operation 'Deploying' timed out after 5 minutes.";
/// Virtual seconds without a look where a watcher is lost, besides the looks: its right to watch and
/// the pause of whoever wants to watch next.
const UNWATCHED_SECONDS: f64 = 30.0 + 15.0;
/// How many times the usual time is between two looks at most: while hosts go on by themselves the
/// feed is looked at half as often.
const LOOKS_APART: f64 = 2.0;
/// Virtual seconds that a look may take.
const LOOK_SECONDS: f64 = 1.0;

/// How often, by endpoint and by whether MAAS took it.
type Calls = BTreeMap<(&'static str, bool), usize>;

/// See the module text.
pub(crate) struct End {
    pub(crate) status: RunStatus,
    pub(crate) node: NodeState,
    pub(crate) steps: Vec<Step>,
    /// How often each line of the timeline is there, by code.
    pub(crate) lines: BTreeMap<String, usize>,
    /// How often MAAS' feed says each thing of the machine, heard or not, by text.
    pub(crate) feed: BTreeMap<String, usize>,
    /// Calls that change something.
    pub(crate) calls: Calls,
    /// Results of checks and gates.
    pub(crate) checks: BTreeMap<String, bool>,
    /// What MAAS shows of the machine.
    pub(crate) machine: Value,
}

impl End {
    /// Of a run that does not move any more.
    pub(crate) async fn read(started: &StartedRun) -> Result<Self, StoreError> {
        let store = &started.simulation.store;
        let run = store.run(started.run_id).await?;
        let (mut lines, mut feed) = (BTreeMap::new(), BTreeMap::new());
        for row in store.timeline_of_run(run.id, 0, 10_000).await? {
            let code = row.event.code;
            if code != FEED && !OF_TRIES.contains(&code.as_str()) {
                *lines.entry(code).or_default() += 1;
            }
        }
        for (_, text) in started.feed() {
            *feed.entry(text).or_default() += 1;
        }
        let mut calls = BTreeMap::new();
        let log = started.simulation.region.with(|region| {
            region.stats().machines.get(&started.host).map(|machine| machine.log.clone())
        });
        for entry in log.unwrap_or_default().split_off(started.logged) {
            if let LogEntry::Call { endpoint, status, .. } = entry {
                *calls.entry((endpoint, status < 400)).or_default() += 1;
            }
        }
        for (endpoint, counted) in started.calls_of_region() {
            let before = started.asked.get(endpoint).copied().unwrap_or_default();
            let (taken, refused) = (counted.0 - before.0, counted.1 - before.1);
            for (count, was_taken) in [(taken, true), (refused, false)] {
                if count > 0 {
                    calls.insert((endpoint, was_taken), usize::try_from(count).unwrap());
                }
            }
        }
        let checks = run.state.checks.iter().map(|(name, check)| (name.clone(), check.passed));
        Ok(Self {
            status: run.status,
            node: store.node(started.node_id).await?.state,
            steps: store.spans(run.id).await?.into_iter().map(|span| span.step).collect(),
            lines,
            feed,
            calls,
            checks: checks.collect(),
            machine: machine(started),
        })
    }

    /// The calls as they would be had the disturbance hidden no refusal. What MAAS refused shows
    /// nowhere: where the answer was lost the same is asked once more, and where the call never left
    /// it counts as one in vain, so that MAAS refuses once less. No more than that one is forgiven,
    /// and nothing that MAAS took.
    fn calls_less_hidden(&self, expected: &Self, at: &PassedFailpoint) -> Calls {
        let mut calls = self.calls.clone();
        let effect = at.intent.as_ref().map_or("", |intent| intent.effect.as_str());
        let of_effect = |endpoint: &str| endpoint.rsplit('.').next() == Some(effect);
        for (key, count) in &expected.calls {
            let hidden = match at.moment {
                Failpoint::Call => count - 1,
                Failpoint::Called => count + 1,
                _ => continue,
            };
            let (endpoint, taken) = key;
            if !taken && of_effect(endpoint) && calls.get(key).copied().unwrap_or(0) == hidden {
                calls.insert(*key, *count);
            }
        }
        calls
    }

    /// The feed as it would be had MAAS not given up the deployment meanwhile. A release of which
    /// nobody knows whether it was sent is asked for again only when no region can still carry it out:
    /// later than the time after which MAAS marks a deployment as failed.
    fn feed_less_timeout(&self, expected: &Self, at: &PassedFailpoint) -> BTreeMap<String, usize> {
        let mut feed = self.feed.clone();
        let effect = at.intent.as_ref().map(|intent| intent.effect);
        if at.moment == Failpoint::Call && effect == Some(EffectKind::Release) {
            feed.retain(|text, count| {
                let of_timeout = text.ends_with(DEPLOYMENT_TIMED_OUT) && *count == 1;
                expected.feed.contains_key(text) || !of_timeout
            });
        }
        feed
    }

    /// What is not as `expected` after a disturbance at a moment, one line each.
    pub(crate) fn differences(&self, expected: &Self, at: &PassedFailpoint) -> Vec<String> {
        let mut lines = Vec::new();
        let mut compare = |name: &str, is: String, expected: String| {
            if is != expected {
                lines.push(format!("{name}: {is}, undisturbed: {expected}"));
            }
        };
        compare("run", self.status.to_string(), expected.status.to_string());
        compare("node", self.node.to_string(), expected.node.to_string());
        compare("steps", format!("{:?}", self.steps), format!("{:?}", expected.steps));
        compare("machine", self.machine.to_string(), expected.machine.to_string());
        lines.extend(entries("timeline", &self.lines, &expected.lines));
        lines.extend(entries("MAAS' feed", &self.feed_less_timeout(expected, at), &expected.feed));
        lines.extend(entries("calls", &self.calls_less_hidden(expected, at), &expected.calls));
        lines.extend(entries("check", &self.checks, &expected.checks));
        lines
    }
}

/// Entries that differ, by key.
fn entries<K: Ord + std::fmt::Debug, V: PartialEq + std::fmt::Debug>(
    what: &str,
    is: &BTreeMap<K, V>,
    expected: &BTreeMap<K, V>,
) -> Vec<String> {
    let keys: BTreeSet<&K> = is.keys().chain(expected.keys()).collect();
    let differs = |key: &&K| is.get(key) != expected.get(key);
    keys.into_iter()
        .filter(differs)
        .map(|key| {
            format!("{what} {key:?}: {:?}, undisturbed: {:?}", is.get(key), expected.get(key))
        })
        .collect()
}

/// What MAAS shows of the machine, less what counts or tells the time.
fn machine(started: &StartedRun) -> Value {
    let Some(seen) = started.simulation.region.with(|region| region.machine_json(&started.host))
    else {
        return Value::Null;
    };
    let links: Vec<Value> = seen["interface_set"]
        .as_array()
        .into_iter()
        .flatten()
        .flat_map(|nic| {
            let links = nic["links"].as_array().cloned().unwrap_or_default();
            let name = nic["name"].clone();
            links.into_iter().map(move |link| json!([name, link["mode"], link["ip_address"]]))
        })
        .collect();
    let disks: Vec<Value> = seen["blockdevice_set"]
        .as_array()
        .into_iter()
        .flatten()
        .map(|disk| json!([disk["name"], disk["filesystem"]["fstype"], disk["used_for"]]))
        .collect();
    json!({
        "status": seen["status_name"],
        "owner": seen["owner"],
        "power": seen["power_state"],
        "image": [seen["osystem"], seen["distro_series"]],
        "boot_disk": seen["boot_disk"]["name"],
        "disks": disks,
        "links": links,
    })
}

/// What is wrong with what the node's history tells of MAAS' feed: it has to be the feed itself, in
/// its order, with nothing left out and nothing twice. Only the end may be missing: a node that left
/// is not told of any more, so what was said after the watcher's last look before the run's end is
/// never heard. That look is as old as looks lie apart; where the watcher was lost with its process,
/// as old as it takes until another one watches, whose first look finds only the end.
async fn unheard(
    started: &StartedRun,
    ended: Timestamp,
    disturbed: bool,
) -> Result<Vec<String>, StoreError> {
    let rows = started
        .simulation
        .store
        .timeline_of_node(started.node_id, started.history_before, 10_000)
        .await?;
    let rows = rows.into_iter().filter(|row| row.event.code == FEED);
    // A line that was read late also says when MAAS recorded it.
    let said_by_maas = |text: String| match text.split_once(" (recorded by MAAS at ") {
        Some((said, _)) => said.to_owned(),
        None => text,
    };
    let event_cursor: Vec<String> = rows.map(|row| said_by_maas(row.event.text)).collect();
    let said = started.feed();
    let same = event_cursor
        .iter()
        .zip(&said)
        .take_while(|(event_cursor, (_, said))| *event_cursor == said)
        .count();
    if let Some(other) = event_cursor.get(same) {
        let next = said.get(same);
        return Ok(vec![format!(
            "after {same} lines of the feed it tells {other:?}, not {next:?}"
        )]);
    }
    let apart = LOOKS_APART * started.poll_seconds;
    let lost = if disturbed { UNWATCHED_SECONDS + apart } else { 0.0 };
    let since = ended.plus_seconds(-(apart + LOOK_SECONDS + lost));
    let late = said[same..].iter().filter(|(at, _)| *at < since);
    Ok(late.map(|(at, line)| format!("{line:?}, said at {at}, was never heard")).collect())
}

/// What is wrong with the history of a run that is over, one line each.
pub(crate) async fn faults(
    started: &StartedRun,
    disturbed: bool,
) -> Result<Vec<String>, StoreError> {
    let store = &started.simulation.store;
    let run = store.run(started.run_id).await?;
    let mut wrong = Vec::new();
    let Some(ended) = run.ended_at else {
        let why = run.park.map(|park| format!("{}: {}", park.code, park.text));
        return Ok(vec![format!("the run is {} in {}: {why:?}", run.status, run.step)]);
    };
    wrong.extend(unheard(started, ended, disturbed).await?);
    let spans = store.spans(run.id).await?;
    if spans.first().map(|span| span.from) != Some(run.created_at) {
        wrong.push(format!("its spans do not begin with it: {spans:?}"));
    }
    if spans.windows(2).any(|pair| pair[0].until != Some(pair[1].from)) {
        wrong.push(format!("its spans do not touch: {spans:?}"));
    }
    if spans.windows(2).any(|pair| pair[0].step == pair[1].step) {
        wrong.push(format!("a boundary is there twice: {spans:?}"));
    }
    let sum: f64 = gpuaas_core::buckets::seconds_per_bucket(&spans, ended).values().sum();
    let wall = ended.seconds_since(run.created_at);
    if (sum - wall).abs() > 1e-6 {
        wrong.push(format!("the buckets sum to {sum} s, the run took {wall} s"));
    }
    let attempts = store.attempts(run.id).await?;
    for open in attempts.iter().filter(|attempt| attempt.outcome.is_none()) {
        wrong.push(format!("{} of {} has no outcome", open.effect, open.step));
    }
    let deploys = attempts.iter().filter(|attempt| attempt.effect == EffectKind::Deploy).count();
    let rows = store.timeline_of_run(run.id, 0, 10_000).await?;
    let begun = rows.iter().filter(|row| row.event.code == "deploy_started").count();
    if deploys != begun {
        wrong.push(format!("{begun} deployments in the timeline, {deploys} in the journal"));
    }
    let doubles = started.simulation.region.with(|region| region.stats().double_deploys());
    if doubles > 0 {
        wrong.push(format!("{doubles} deployments on top of a deployment"));
    }
    if started.simulation.tokens_taken_twice() > 0 {
        wrong.push("an enrollment token was accepted twice".to_owned());
    }
    Ok(wrong)
}
