//! `gpuaas bench busy`: a region that answers late and carries out all the same; is any call made twice,
//! and does a run park because of it?
//!
//! Each call waits 5 to 40 s before the region carries it out, in order or overtaking one another. Some
//! changes wait longer than their caller does, so that nobody hears the answer. Every few minutes a proxy
//! answers all reads with 504, which opens the circuit while changes are under way. Every machine is
//! onboarded and then reimaged, on the virtual clock.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use gpuaas_client::failure::{Exit, Failure, store_failure};
use gpuaas_client::terminal::Terminal;
use gpuaas_engine::{Clock as _, POLL_SECONDS, RealClock};
use gpuaas_store::{ListedNode, NodeFilter, Page};
use gpuaas_types::codes::CommandCode;
use gpuaas_types::{NodeState, RunKind, RunStatus, Timestamp};
use maas_sim::{Fault, FaultKind, H200, LogEntry};
use serde::Serialize;

use crate::arguments::BenchBusyArgs;
use crate::plan::SimulationPlan;
use crate::simulation::Simulation;
use crate::tick::Tick;

/// Virtual seconds from one machine to the next.
const APART_SECONDS: f64 = 30.0;
/// Virtual seconds after which a fleet counts as stuck, for onboarding and for reimaging.
const LIMIT_SECONDS: f64 = 3.0 * 86_400.0;
/// How long a call waits before it is carried out, at least and at most.
const CALL_SECONDS: (f64, f64) = (5.0, 40.0);
/// How long some changes wait: longer than a caller waits for most answers, and short enough for their
/// signature to be good when their turn comes.
const LONG_SECONDS: (f64, f64) = (95.0, 280.0);
/// Changes of which some wait that long, and how many of them.
const LONG_CHANGES: [&str; 4] =
    ["machines.create", "machine.commission", "machine.deploy", "machine.release"];
const LONG_PART: f64 = 0.15;
/// Virtual seconds from one time in which all reads get lost to the next, and how long each is.
const LOST_EVERY_SECONDS: f64 = 600.0;
const LOST_SECONDS: f64 = 90.0;
/// Reads that get lost.
const READS: [&str; 2] = ["machine.read", "events.query"];

/// In which order calls that came one after the other are carried out.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum QueueOrder {
    /// As they came.
    InOrder,
    /// Shorter ones overtake.
    Overtaking,
}

/// One fleet at a busy region.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct BusyCase {
    /// In which order calls were carried out.
    pub order: QueueOrder,
    /// Nodes of the fleet.
    pub nodes: usize,
    /// Runs that were begun: an onboarding and a reimage of each node.
    pub runs: usize,
    /// Runs that succeeded.
    pub succeeded: usize,
    /// Runs that parked: nothing was wrong with any machine.
    pub parked: usize,
    /// Codes of these parks.
    pub parked_codes: BTreeMap<String, usize>,
    /// Runs that neither ended nor parked, by node: step and wait.
    pub unfinished: BTreeMap<String, String>,
    /// Changes that were sent.
    pub changes: usize,
    /// Changes that were sent again although MAAS had carried them out, or still would.
    pub duplicated: usize,
    /// Changes that MAAS refused.
    pub refused: usize,
    /// Changes whose answer did not come in time.
    pub unanswered: usize,
    /// Times that the circuit opened.
    pub circuit_opened: usize,
    /// Seconds of the virtual clock.
    pub simulated_seconds: f64,
}

/// The result of `gpuaas bench busy`.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct BusyReport {
    /// Runs of all cases.
    pub runs: usize,
    /// Runs that succeeded, of all cases.
    pub succeeded: usize,
    /// Runs that parked, of all cases.
    pub parked: usize,
    /// Changes that were sent twice, of all cases.
    pub duplicated: usize,
    /// Seconds of the wall clock.
    pub wall_seconds: f64,
    /// Each order.
    pub cases: Vec<BusyCase>,
}

/// Runs the benchmark.
///
/// # Errors
/// `nodes_not_active` where a run did not succeed or a change was sent twice; what keeps a simulation
/// from being made.
pub async fn run(args: BenchBusyArgs, terminal: &mut Terminal) -> Result<(), Failure> {
    let began = RealClock.now();
    let (nodes, seed) = (args.nodes, args.seed);
    let cases = gpuaas_lab::bench::isolated_thread::run_isolated(async move || {
        let mut cases = Vec::new();
        for order in [QueueOrder::InOrder, QueueOrder::Overtaking] {
            cases.push(live_through(order, nodes, seed).await?);
        }
        Ok(cases)
    })
    .await?;
    let mut report = summarize(cases);
    report.wall_seconds = RealClock.now().seconds_since(began);
    terminal.data(&if args.json {
        gpuaas_lab::bench::report::json(&report)?
    } else {
        report.table()
    })?;
    if report.succeeded == report.runs && report.duplicated == 0 {
        return Ok(());
    }
    let BusyReport { runs, succeeded, duplicated, .. } = report;
    let detail =
        format!("{succeeded} of {runs} runs succeeded, {duplicated} MAAS calls were duplicated");
    Err(Failure::new(Exit::Parked, CommandCode::NodesNotActive, detail))
}

fn summarize(cases: Vec<BusyCase>) -> BusyReport {
    let sum = |of: fn(&BusyCase) -> usize| cases.iter().map(of).sum();
    BusyReport {
        runs: sum(|case| case.runs),
        succeeded: sum(|case| case.succeeded),
        parked: sum(|case| case.parked),
        duplicated: sum(|case| case.duplicated),
        wall_seconds: 0.0,
        cases,
    }
}

async fn live_through(order: QueueOrder, nodes: usize, seed: u64) -> Result<BusyCase, Failure> {
    let calm = SimulationPlan::calm(seed, nodes, &H200);
    let plan = SimulationPlan { apart_seconds: APART_SECONDS, poll_seconds: POLL_SECONDS, ..calm };
    let mut simulation = Simulation::new(plan).await?;
    let begin = simulation.clock.now();
    simulation.region.with(|region| {
        for fault in busy_faults(order) {
            region.inject(fault);
        }
    });
    simulation.start(0.0).await?;
    simulation.onboard_all();
    let mut fleet = BusyFleet {
        simulation,
        lost_reads: Vec::new(),
        changes_at: begin,
        circuit_opened: 0,
        was_away: false,
    };
    fleet.run_until_rest().await?;
    for node in listed(&fleet.simulation).await? {
        if node.node.state != NodeState::Active {
            continue;
        }
        let begun = fleet.simulation.begin_run(node.node.id, RunKind::Reimage).await?;
        if let Ok(run_id) = begun {
            fleet.simulation.serve_tasks(node.node.id, run_id);
        }
        let until = fleet.simulation.clock.now().plus_seconds(APART_SECONDS);
        fleet.run_until(until).await?;
    }
    fleet.run_until_rest().await?;
    fleet.judge(order, nodes, begin).await
}

fn busy_faults(order: QueueOrder) -> Vec<Fault> {
    let mut faults = Vec::new();
    for endpoint in LONG_CHANGES {
        let held = Fault::new(FaultKind::Held).at(endpoint);
        let held = held.lasting_between(LONG_SECONDS.0, LONG_SECONDS.1);
        faults.push(Fault { probability: Some(LONG_PART), ..held });
    }
    let kind = match order {
        QueueOrder::InOrder => FaultKind::Queued,
        QueueOrder::Overtaking => FaultKind::Held,
    };
    faults.push(Fault::new(kind).lasting_between(CALL_SECONDS.0, CALL_SECONDS.1));
    faults
}

struct BusyFleet {
    simulation: Simulation,
    /// Numbers of the faults by which reads get lost, while they do.
    lost_reads: Vec<u64>,
    /// When reads begin to get lost, or get through again.
    changes_at: Timestamp,
    circuit_opened: usize,
    was_away: bool,
}

impl BusyFleet {
    /// Goes on until no run is due any more.
    async fn run_until_rest(&mut self) -> Result<(), Failure> {
        let limit = self.simulation.clock.now().plus_seconds(LIMIT_SECONDS);
        while self.simulation.clock.now() < limit {
            let next = self.simulation.clock.now().plus_seconds(LOST_EVERY_SECONDS).min(limit);
            self.run_until(next).await?;
            if !self.simulation.has_due_run() {
                break;
            }
        }
        Ok(())
    }

    async fn run_until(&mut self, until: Timestamp) -> Result<(), Failure> {
        while self.simulation.clock.now() < until {
            if self.simulation.clock.now() >= self.changes_at {
                self.lose_reads_or_not();
            }
            if self.simulation.tick(until.min(self.changes_at)).await? == Tick::Idle {
                self.simulation.clock.advance_to(until);
            }
            let away = self.simulation.is_region_away().await;
            self.circuit_opened += usize::from(away && !self.was_away);
            self.was_away = away;
        }
        Ok(())
    }

    /// For a time and not for a number of reads: a fleet at rest makes so few of them that the
    /// region would be away for good.
    fn lose_reads_or_not(&mut self) {
        let lost = READS.map(|endpoint| Fault::new(FaultKind::Refused504).at(endpoint));
        let before = std::mem::take(&mut self.lost_reads);
        let lasts = self.simulation.region.with(|region| {
            if before.is_empty() {
                self.lost_reads = lost.map(|fault| region.inject(fault)).into();
                return LOST_SECONDS;
            }
            for id in before {
                region.remove_fault(id);
            }
            LOST_EVERY_SECONDS - LOST_SECONDS
        });
        self.changes_at = self.simulation.clock.now().plus_seconds(lasts);
    }

    async fn judge(
        self,
        order: QueueOrder,
        nodes: usize,
        begin: Timestamp,
    ) -> Result<BusyCase, Failure> {
        let mut case = BusyCase {
            order,
            nodes,
            runs: 2 * nodes,
            succeeded: 0,
            parked: 0,
            parked_codes: BTreeMap::new(),
            unfinished: BTreeMap::new(),
            changes: 0,
            duplicated: 0,
            refused: self.refused(),
            unanswered: 0,
            circuit_opened: self.circuit_opened,
            simulated_seconds: self.simulation.clock.now().seconds_since(begin),
        };
        let store = &self.simulation.store;
        for node in listed(&self.simulation).await? {
            let runs = store.runs_of_node(node.node.id, Page::first(100)).await;
            for run in runs.map_err(store_failure)? {
                case.succeeded += usize::from(run.status == RunStatus::Succeeded);
                if let Some(park) = &run.park {
                    case.parked += 1;
                    *case.parked_codes.entry(park.code.clone()).or_insert(0) += 1;
                }
                if run.ended_at.is_none() && run.park.is_none() {
                    let wait = run.wait.as_ref().map_or_else(String::new, |wait| wait.text.clone());
                    let at = format!("{} {}: {wait}", run.kind, run.step);
                    case.unfinished.insert(node.node.hostname.clone(), at);
                }
                let attempts = store.attempts(run.id).await.map_err(store_failure)?;
                let sent = attempts.iter().filter(|one| one.outcome.as_deref() != Some("not_sent"));
                case.changes += sent.count();
                case.duplicated += attempts.iter().filter(|one| one.number > 1).count();
                let lines = store.timeline_of_node(node.node.id, 0, 100_000).await;
                let lines = lines.map_err(store_failure)?;
                let unknown = lines.iter().filter(|line| {
                    line.event.run_id == Some(run.id) && line.event.code == "unknown_outcome"
                });
                case.unanswered += unknown.count();
            }
        }
        Ok(case)
    }

    fn refused(&self) -> usize {
        self.simulation.region.with(|region| {
            let machines = region.stats().machines.values();
            let refused = machines.flat_map(|machine| &machine.log).filter(|entry| {
                matches!(entry, LogEntry::Call { status, .. } if (400..500).contains(status))
            });
            refused.count()
        })
    }
}

async fn listed(simulation: &Simulation) -> Result<Vec<ListedNode>, Failure> {
    simulation.store.list_nodes(NodeFilter::default()).await.map_err(store_failure)
}

impl BusyReport {
    fn table(&self) -> String {
        let mut text = format!(
            "{:<12}{:>6}{:>11}{:>8}{:>9}{:>12}{:>9}{:>12}{:>9}{:>11}\n",
            "order",
            "runs",
            "succeeded",
            "parked",
            "changes",
            "duplicated",
            "refused",
            "unanswered",
            "circuit",
            "seconds"
        );
        for case in &self.cases {
            let order = format!("{:?}", case.order);
            // Writing to a String cannot fail.
            writeln!(
                text,
                "{order:<12}{:>6}{:>11}{:>8}{:>9}{:>12}{:>9}{:>12}{:>9}{:>11.0}",
                case.runs,
                case.succeeded,
                case.parked,
                case.changes,
                case.duplicated,
                case.refused,
                case.unanswered,
                case.circuit_opened,
                case.simulated_seconds
            )
            .ok();
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn nothing_is_sent_twice(order: QueueOrder) {
        let nodes = 10;
        let case = live_through(order, nodes, 3).await.unwrap();
        assert_eq!(
            (case.runs, case.succeeded, case.parked),
            (2 * nodes, 2 * nodes, 0),
            "{case:#?}"
        );
        assert_eq!((case.duplicated, case.refused), (0, 0), "{case:#?}");
        // It is a busy region: answers were lost, and the circuit was open.
        assert!(case.unanswered > 0 && case.circuit_opened > 0, "{case:#?}");
    }

    #[tokio::test]
    async fn region_with_a_queue_carries_out_each_change_once() {
        nothing_is_sent_twice(QueueOrder::InOrder).await;
    }

    #[tokio::test]
    async fn proxy_that_holds_calls_causes_no_second_change() {
        nothing_is_sent_twice(QueueOrder::Overtaking).await;
    }
}
