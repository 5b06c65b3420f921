//! `gpuaas bench outage`: a region goes away in every way and comes back; how long after that do
//! runs go on, and does one park that need not?
//!
//! Everything happens on the virtual clock. Machines are named one after the other, so that the
//! outage meets runs at all their steps. Counted are the runs that it met: those that wait for the
//! region when it ends, those with a call under way, and those whose machine changed meanwhile.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use gpuaas_client::failure::{Exit, Failure, store_failure};
use gpuaas_client::terminal::Terminal;
use gpuaas_engine::{Clock as _, POLL_SECONDS};
use gpuaas_lab::bench::added::Spread;
use gpuaas_store::{ListedNode, NodeFilter, RunBrief, SecretString};
use gpuaas_types::codes::{CommandCode, WaitCode};
use gpuaas_types::{NodeState, RunId, RunStatus, Step, Timestamp};
use maas_sim::H200;
use serde::Serialize;

use crate::arguments::BenchOutageArgs;
use crate::plan::SimulationPlan;
use crate::simulation::Simulation;
use crate::tick::Tick;
use crate::transport::OutageKind;

/// Virtual seconds from one machine to the next.
const APART_SECONDS: f64 = 5.0;
/// Part of the fleet that has been named when the outage begins.
const BEGUN_PART: f64 = 0.8;
/// Virtual seconds between two looks at which runs go on.
const LOOK_SECONDS: f64 = 0.2;
/// Virtual seconds after the outage in which a run that goes on at all does.
const WATCHED_SECONDS: f64 = 600.0;
/// Virtual seconds after which a fleet counts as stuck.
const LIMIT_SECONDS: f64 = 2.0 * 86_400.0;

/// What one outage did.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct OutageCase {
    /// How the region was away.
    pub kind: OutageKind,
    /// For how long.
    pub seconds: f64,
    /// Runs that it met.
    pub runs: usize,
    /// Nodes of the fleet.
    pub nodes: usize,
    /// Nodes that became active.
    pub active: usize,
    /// Seconds from the end of the outage until a run that it met went on.
    pub resumed_seconds: Spread,
    /// Runs that parked.
    pub parked_needlessly: usize,
    /// Codes of these parks.
    pub parked_codes: BTreeMap<String, usize>,
}

/// The result of `gpuaas bench outage`.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct OutageReport {
    /// The clock by which seconds are counted.
    pub clock: &'static str,
    /// Runs that an outage met, of all cases.
    pub runs: usize,
    /// Nodes of all cases.
    pub nodes: usize,
    /// Nodes that became active, of all cases.
    pub active: usize,
    /// Seconds from the end of an outage until a run that it met went on, of all cases.
    pub resumed_seconds: Spread,
    /// Runs that parked: nothing was wrong with any machine.
    pub parked_needlessly: usize,
    /// Each outage.
    pub cases: Vec<OutageCase>,
}

/// Runs the benchmark.
///
/// # Errors
/// `nodes_not_active` when a node did not become active; what keeps a simulation from being made.
pub async fn run(args: BenchOutageArgs, terminal: &mut Terminal) -> Result<(), Failure> {
    let mut wanted = Vec::new();
    for kind in OutageKind::ALL {
        wanted.extend(args.seconds.iter().map(|seconds| (kind, *seconds)));
    }
    let report = measure(wanted, args.nodes, args.seed).await?;
    terminal.data(&if args.json {
        gpuaas_lab::bench::report::json(&report)?
    } else {
        report.table()
    })?;
    if report.active == report.nodes {
        return Ok(());
    }
    let detail = format!("{} of {} nodes are active", report.active, report.nodes);
    Err(Failure::new(Exit::Parked, CommandCode::NodesNotActive, detail))
}

async fn measure(
    wanted: Vec<(OutageKind, f64)>,
    nodes: usize,
    seed: u64,
) -> Result<OutageReport, Failure> {
    let (wanted, next) = (Arc::new(wanted), Arc::new(AtomicUsize::new(0)));
    let workers = std::thread::available_parallelism().map_or(1, usize::from);
    let workers = (0..workers).map(|_| {
        let (wanted, next) = (Arc::clone(&wanted), Arc::clone(&next));
        gpuaas_lab::bench::isolated_thread::run_isolated(async move || {
            let mut done = Vec::new();
            loop {
                let index = next.fetch_add(1, Ordering::SeqCst);
                let Some((kind, seconds)) = wanted.get(index) else { return Ok(done) };
                done.push((index, live_through(*kind, *seconds, nodes, seed).await?));
            }
        })
    });
    let mut lived = Vec::new();
    for of_worker in futures::future::join_all(workers).await {
        lived.extend(of_worker?);
    }
    lived.sort_by_key(|(index, _)| *index);
    let resumed: Vec<f64> =
        lived.iter().flat_map(|(_, (_, resumed))| resumed.iter().copied()).collect();
    let cases: Vec<OutageCase> = lived.into_iter().map(|(_, (case, _))| case).collect();
    let sum = |of: fn(&OutageCase) -> usize| cases.iter().map(of).sum();
    Ok(OutageReport {
        clock: "virtual",
        runs: sum(|case| case.runs),
        nodes: sum(|case| case.nodes),
        active: sum(|case| case.active),
        resumed_seconds: Spread::from_seconds(&resumed),
        parked_needlessly: sum(|case| case.parked_needlessly),
        cases,
    })
}

/// Where a run stands.
#[derive(Debug, Clone, PartialEq)]
struct RunProgress {
    step: Step,
    status: RunStatus,
    wait: Option<(String, Timestamp)>,
    /// What MAAS was last known to say of its machine.
    maas_status: Option<i64>,
}

impl RunProgress {
    fn new(node: &ListedNode, run: &RunBrief) -> Self {
        let wait = run.wait.as_ref().map(|wait| (wait.code.clone(), wait.since));
        Self { step: run.step, status: run.status, wait, maas_status: node.maas_status }
    }

    fn waits_for_region(&self) -> bool {
        const CODES: [WaitCode; 5] = [
            WaitCode::MaasUnavailable,
            WaitCode::UnknownOutcome,
            WaitCode::SiteCircuitOpen,
            WaitCode::SiteKeyRefused,
            WaitCode::SiteClockWrong,
        ];
        self.wait.as_ref().is_some_and(|(code, _)| CODES.iter().any(|known| *code == *known))
    }
}

async fn live_through(
    kind: OutageKind,
    seconds: f64,
    nodes: usize,
    seed: u64,
) -> Result<(OutageCase, Vec<f64>), Failure> {
    let calm = SimulationPlan::calm(seed, nodes, &H200);
    let plan = SimulationPlan { apart_seconds: APART_SECONDS, poll_seconds: POLL_SECONDS, ..calm };
    let mut simulation = Simulation::new(plan).await?;
    let begin = simulation.clock.now();
    simulation.start(0.0).await?;
    simulation.onboard_all();
    #[expect(clippy::cast_precision_loss, reason = "a number of machines")]
    let from = begin.plus_seconds(APART_SECONDS * nodes as f64 * BEGUN_PART);
    tick_until(&mut simulation, from).await?;
    let new_key = simulation.begin_outage(kind);
    let end = simulation.clock.now().plus_seconds(seconds);
    tick_until(&mut simulation, end).await?;
    let met = runs_met(&simulation).await?;
    simulation.end_outage(new_key).await?;
    let resumed = watch_resumption(&mut simulation, &met, end).await?;
    let limit = begin.plus_seconds(LIMIT_SECONDS);
    while simulation.tick(limit).await? != Tick::Idle && simulation.clock.now() < limit {
        if !simulation.has_due_run() {
            break;
        }
    }
    let listed = listed(&simulation, false).await?;
    let parks = listed.iter().filter_map(|node| node.run.as_ref()?.park.as_ref());
    let mut parked_codes = BTreeMap::new();
    for park in parks {
        *parked_codes.entry(park.code.clone()).or_insert(0) += 1;
    }
    let case = OutageCase {
        kind,
        seconds,
        runs: met.len(),
        nodes,
        active: listed.iter().filter(|node| node.node.state == NodeState::Active).count(),
        resumed_seconds: Spread::from_seconds(&resumed),
        parked_needlessly: parked_codes.values().sum(),
        parked_codes,
    };
    Ok((case, resumed))
}

async fn tick_until(simulation: &mut Simulation, until: Timestamp) -> Result<(), Failure> {
    while simulation.clock.now() < until {
        if simulation.tick(until).await? == Tick::Idle {
            simulation.clock.advance_to(until);
        }
    }
    Ok(())
}

async fn listed(simulation: &Simulation, open: bool) -> Result<Vec<ListedNode>, Failure> {
    let filter = NodeFilter { open, ..NodeFilter::default() };
    simulation.store.list_nodes(filter).await.map_err(store_failure)
}

/// The runs that the outage keeps from going on at this moment.
async fn runs_met(simulation: &Simulation) -> Result<BTreeMap<RunId, RunProgress>, Failure> {
    let mut met = BTreeMap::new();
    for node in listed(simulation, true).await? {
        let Some(run) = &node.run else { continue };
        let place = RunProgress::new(&node, run);
        let said = node.maas_status;
        let is = node.node.system_id.as_ref().and_then(|id| {
            let status = simulation.region.with(|region| region.status_of(id));
            status.map(maas_sim::Status::code)
        });
        let changed = said.is_some() && is.is_some() && said != is;
        if place.waits_for_region() || run.status == RunStatus::Running || changed {
            met.insert(run.id, place);
        }
    }
    Ok(met)
}

/// Seconds from `end` until each run went on.
async fn watch_resumption(
    simulation: &mut Simulation,
    met: &BTreeMap<RunId, RunProgress>,
    end: Timestamp,
) -> Result<Vec<f64>, Failure> {
    let mut left = met.clone();
    let mut resumed = Vec::new();
    let last = end.plus_seconds(WATCHED_SECONDS);
    while !left.is_empty() && simulation.clock.now() < last {
        let next = simulation.clock.now().plus_seconds(LOOK_SECONDS);
        tick_until(simulation, next).await?;
        let now: BTreeMap<RunId, RunProgress> = listed(simulation, true)
            .await?
            .iter()
            .filter_map(|node| node.run.as_ref().map(|run| (run.id, RunProgress::new(node, run))))
            .collect();
        let seconds = simulation.clock.now().seconds_since(end);
        left.retain(|run, before| {
            let waits =
                now.get(run).is_some_and(|place| place == before || place.waits_for_region());
            if !waits {
                resumed.push(seconds);
            }
            waits
        });
    }
    resumed.extend(left.iter().map(|_| WATCHED_SECONDS));
    Ok(resumed)
}

impl Simulation {
    /// The region goes away. Answers the key that an operator will give the site once it was
    /// revoked.
    fn begin_outage(&self, kind: OutageKind) -> Option<String> {
        self.network.set_outage(Some(kind));
        (kind == OutageKind::KeyRevoked)
            .then(|| self.region.with(maas_sim::Region::replace_api_key))
    }

    /// The region is back, or the operator gives its site the key that it takes.
    async fn end_outage(&mut self, new_key: Option<String>) -> Result<(), Failure> {
        self.network.set_outage(None);
        let Some(key) = new_key else { return Ok(()) };
        let site = self.store.site(self.site_id).await.map_err(store_failure)?;
        let (now, key) = (self.clock.now(), SecretString::from(key));
        let changed = self
            .store
            .update_site(
                now,
                (site.id, None),
                site.spec,
                site.status,
                Some(&key),
                gpuaas_store::NewAuditEntry::in_test(),
            )
            .await;
        changed.map(drop).map_err(store_failure)
    }
}

impl OutageReport {
    fn table(&self) -> String {
        let mut text = format!(
            "{:<16}{:>8}{:>6}{:>9}{:>9}{:>9}{:>8}{:>8}\n",
            "outage", "seconds", "runs", "p50 s", "p95 s", "max s", "active", "parked"
        );
        for case in &self.cases {
            let kind = format!("{:?}", case.kind);
            let spread = &case.resumed_seconds;
            // Writing to a String cannot fail.
            writeln!(
                text,
                "{kind:<16}{:>8}{:>6}{:>9.1}{:>9.1}{:>9.1}{:>8}{:>8}",
                case.seconds,
                case.runs,
                spread.p50,
                spread.p95,
                spread.max,
                case.active,
                case.parked_needlessly
            )
            .ok();
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A small version of the benchmark: each way to be away, for as long as it takes the circuit
    /// to open.
    #[tokio::test]
    async fn outages_end_when_they_end_and_park_nothing() {
        let wanted = OutageKind::ALL.iter().map(|kind| (*kind, 40.0)).collect();
        let report = measure(wanted, 8, 2).await.unwrap();
        assert_eq!((report.nodes, report.active), (56, 56), "{report:#?}");
        assert_eq!(report.parked_needlessly, 0, "{report:#?}");
        assert!(report.runs > 0, "{report:#?}");
        assert!(report.resumed_seconds.p95 <= 10.0, "{report:#?}");
    }
}
