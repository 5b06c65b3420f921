//! What must hold in every world, whatever goes wrong in it.

use std::collections::BTreeMap;

use gpuaas_core::record::RunRecord;
use gpuaas_store::{NodeFilter, StoreError};
use gpuaas_types::{RunStatus, Timestamp};
use maas_sim::LogEntry;

use crate::failure::Failure;
use crate::serve::of_store;
use crate::world::World;

/// How the runs of a fleet ended.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Lives {
    /// All.
    pub begun: usize,
    /// Succeeded.
    pub intended: usize,
    /// Parked with a reason.
    pub parked: usize,
}

/// Calls that destroy or take a machine, and the effects that own them.
const OWNED: [(&str, &str); 4] = [
    ("machines.create", "create_machine"),
    ("machine.commission", "commission"),
    ("machine.deploy", "deploy"),
    ("machine.release", "release"),
];

/// What holds at every moment.
///
/// # Errors
/// The store's.
pub async fn always(world: &World) -> Result<Vec<String>, Failure> {
    of_moment(world).await.map_err(of_store)
}

async fn of_moment(world: &World) -> Result<Vec<String>, StoreError> {
    let mut broken = Vec::new();
    let doubles = world.region.with(|region| region.stats().double_deploys());
    if doubles > 0 {
        broken.push(format!("{doubles} deployments on top of a deployment"));
    }
    if world.tokens_taken_twice() > 0 {
        broken.push("an enrollment token worked twice".to_owned());
    }
    let mut owners: BTreeMap<String, String> = BTreeMap::new();
    for listed in world.store.list_nodes(NodeFilter::default()).await? {
        let name = listed.node.hostname;
        if let Some(system_id) = listed.node.system_id
            && let Some(other) = owners.insert(system_id.clone(), name.clone())
        {
            broken.push(format!("machine {system_id} is held by {other} and {name}"));
        }
        if let Some(brief) = listed.run {
            let run = world.store.run(brief.id).await?;
            broken.extend(unanswered(&run).map(|text| format!("{name}: {text}")));
        }
    }
    Ok(broken)
}

/// An open run says when it is looked at next, or why it stopped and what to do.
fn unanswered(run: &RunRecord) -> Option<String> {
    match run.status {
        RunStatus::Running | RunStatus::Waiting if run.due_at >= Timestamp::NEVER => {
            Some(format!("the run is {} in {} and never due", run.status, run.step))
        }
        RunStatus::Parked => match &run.park {
            None => Some(format!("the run is parked in {} without a reason", run.step)),
            Some(park) if park.text.is_empty() || park.next_action.is_empty() => {
                Some(format!("the park {} does not say what to do", park.code))
            }
            Some(_) => None,
        },
        _ => None,
    }
}

/// What holds once nothing moves any more: how lives ended, what is broken, one line per life.
///
/// # Errors
/// The store's.
pub async fn at_the_end(
    world: &World,
    people: u32,
) -> Result<(Lives, Vec<String>, Vec<String>), Failure> {
    of_end(world, people).await.map_err(of_store)
}

async fn of_end(
    world: &World,
    people: u32,
) -> Result<(Lives, Vec<String>, Vec<String>), StoreError> {
    let (mut lives, mut broken, mut ends) = (Lives::default(), Vec::new(), Vec::new());
    for listed in world.store.list_nodes(NodeFilter::default()).await? {
        let name = &listed.node.hostname;
        let mut intents: BTreeMap<String, u32> = BTreeMap::new();
        for run in world.store.runs_of_node(listed.node.id).await? {
            lives.begun += 1;
            ends.push(format!("{name}: {}", ending(&run)));
            match run.status {
                RunStatus::Succeeded => lives.intended += 1,
                RunStatus::Parked => lives.parked += 1,
                other => broken.push(format!("{name}: the run is still {other} in {}", run.step)),
            }
            broken.extend(uncounted(world, &run).await?.map(|text| format!("{name}: {text}")));
            for attempt in world.store.attempts(run.id).await? {
                *intents.entry(attempt.effect).or_default() += 1;
            }
        }
        broken.extend(unowned(world, name, &intents, people));
    }
    Ok((lives, broken, ends))
}

fn ending(run: &RunRecord) -> String {
    match &run.park {
        Some(park) => format!("parked in {}: {}: {}", run.step, park.code, park.text),
        None => format!("{} in {}", run.status, run.step),
    }
}

/// The spans of a run touch, and their sum is its wall time.
async fn uncounted(world: &World, run: &RunRecord) -> Result<Option<String>, StoreError> {
    let Some(ended) = run.ended_at else { return Ok(None) };
    let spans = world.store.spans(run.id).await?;
    let sum: f64 = gpuaas_core::buckets::seconds_per_bucket(&spans, ended).values().sum();
    let wall = ended.seconds_since(run.created_at);
    let touching = spans.windows(2).all(|pair| pair[0].until == Some(pair[1].from));
    if (sum - wall).abs() < 1e-6 && touching {
        return Ok(None);
    }
    Ok(Some(format!("the buckets sum to {sum} s, the run took {wall} s")))
}

/// Every call that MAAS saw has its own intent, and no intent more than one deployment.
fn unowned(world: &World, name: &str, intents: &BTreeMap<String, u32>, people: u32) -> Vec<String> {
    let Some(stats) = world.region.with(|region| region.stats().machines.get(name).cloned()) else {
        return Vec::new();
    };
    let mut broken = Vec::new();
    let intended = |effect: &str| intents.get(effect).copied().unwrap_or_default();
    for (endpoint, effect) in OWNED {
        let is_it = |entry: &&LogEntry| matches!(entry, LogEntry::Call { endpoint: e, .. } if *e == endpoint);
        let calls = u32::try_from(stats.log.iter().filter(is_it).count()).unwrap_or(u32::MAX);
        if calls > intended(effect) {
            broken.push(format!(
                "{name}: {calls} calls of {endpoint}, and {} intents of {effect}",
                intended(effect)
            ));
        }
    }
    if stats.deploys > intended("deploy") + people {
        broken.push(format!(
            "{name}: {} deployments, and {} intents",
            stats.deploys,
            intended("deploy")
        ));
    }
    broken
}
