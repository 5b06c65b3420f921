//! `gpuaas bench onboard`: many machines at once, measured.
//!
//! The region with the agents of its hosts is a process of its own behind HTTP; the control plane
//! and the operator's client are here. What is counted, the simulator counted: every request that
//! it received from the registration of the site on. What is timed is timed by the run's clock:
//! from the first request to the moment at which the last node's run ended, as the store has it, so
//! how often this program looks changes nothing.

use std::path::Path;

use gpuaas_client::failure::{Exit, Failure, store_failure};
use gpuaas_client::terminal::Terminal;
use gpuaas_engine::ClockChoice;
use gpuaas_engine::{Clock as _, RealClock};
use gpuaas_store::{ScratchDatabase, Store, StoreCounters};
use gpuaas_types::codes::CommandCode;
use gpuaas_types::{NodeState, Timestamp};

use super::added;
use super::fleet;
use super::report::{OnboardReport, ParkedNode, StatementCount};
use super::usage;
use crate::arguments::{BenchOnboardArgs, Hardware, MachineClass};
use crate::clock::SharedClock;
use crate::control_plane::{ControlPlaneLauncher, ControlPlanePlan, InProcessControlPlane};
use crate::hosts::options::HostMode;
use crate::record::RegionRecord;
use crate::region::temporary_dir;
use crate::simulator::{Simulator, SimulatorPlan};
use crate::summary::EndedNode;
use crate::watch;

/// Simulated seconds per second of the wall, where nothing else was asked.
const FACTOR: f64 = 15.0;
/// Simulated seconds within which all machines are named: less than any needs to be done, so all
/// are in flight at once.
const ARRIVAL_SECONDS: f64 = 300.0;

/// Runs the benchmark.
///
/// # Errors
/// `nodes_not_active` when a node did not become active; what keeps its parts from starting.
pub async fn run(
    args: BenchOnboardArgs,
    launcher: &dyn ControlPlaneLauncher,
    terminal: &mut Terminal,
) -> Result<(), Failure> {
    let folder = temporary_dir()?;
    let clock = choose_clock(&args);
    let simulator = Simulator::start(&SimulatorPlan {
        machines: args.nodes,
        names: &[],
        seed: args.seed,
        class: match args.hardware {
            Hardware::Zero => MachineClass::Zero,
            Hardware::H200 => MachineClass::H200,
        },
        hosts: HostMode::Fleet,
        real_hosts: 0,
        rootfs: None,
        lost: Vec::new(),
        hosts_dir: folder.path().join("hosts"),
        clock: clock.clone(),
        faults: None,
        log: folder.path().join("simulator.log"),
    })
    .await?;
    let report = with_database(&args, clock, folder.path(), simulator, launcher, terminal).await?;
    let text = if args.json { super::report::json(&report)? } else { report.table() };
    terminal.data(&text)?;
    verdict(&report)
}

fn verdict(report: &OnboardReport) -> Result<(), Failure> {
    if report.active == report.nodes {
        return Ok(());
    }
    let detail = format!("{} of {} nodes are active", report.active, report.nodes);
    Err(Failure::new(Exit::Parked, CommandCode::NodesNotActive, detail))
}

fn choose_clock(args: &BenchOnboardArgs) -> ClockChoice {
    match args.hardware {
        Hardware::Zero => ClockChoice::Real,
        Hardware::H200 => ClockChoice::paced(args.factor.unwrap_or(FACTOR), RealClock.now()),
    }
}

async fn scratch_database(args: &BenchOnboardArgs) -> Result<Option<ScratchDatabase>, Failure> {
    let Some(url) = &args.database else { return Ok(None) };
    let name = format!("gpuaas_bench_{}_{}", RealClock.now().as_seconds(), std::process::id());
    ScratchDatabase::create(url, &name).await.map(Some).map_err(store_failure)
}

async fn with_database(
    args: &BenchOnboardArgs,
    clock: ClockChoice,
    folder: &Path,
    simulator: Simulator,
    launcher: &dyn ControlPlaneLauncher,
    terminal: &mut Terminal,
) -> Result<OnboardReport, Failure> {
    let database = match scratch_database(args).await {
        Ok(database) => database,
        Err(failure) => {
            simulator.stop().await;
            return Err(failure);
        }
    };
    let plan = ControlPlanePlan {
        listen: ([127, 0, 0, 1], 0).into(),
        node_listen: None,
        data: folder.join("control-plane"),
        database: database.as_ref().map(|database| database.url().to_owned()),
        nats: None,
        clock: clock.clone(),
        sweeps: false,
    };
    let report = match InProcessControlPlane::start(launcher, &plan).await {
        Ok(plane) => {
            if args.statements {
                plane.store().count_statement_texts();
            }
            let report = match fleet::start_others(&plan, args.replicas, folder).await {
                Ok(others) => {
                    let report = measure(&plane, clock, &simulator, terminal).await;
                    drop(others);
                    report.map(|report| OnboardReport { replicas: args.replicas.max(1), ..report })
                }
                Err(failure) => Err(failure),
            };
            plane.stop_with(simulator).await;
            report
        }
        Err(failure) => {
            simulator.stop().await;
            Err(failure)
        }
    };
    if let Some(database) = database {
        database.drop_database().await.map_err(store_failure)?;
    }
    report
}

/// What was read when the work had ended.
struct Measured {
    ended: Vec<EndedNode>,
    record: RegionRecord,
    begin: Timestamp,
    cpu_seconds: f64,
    factor: f64,
    peak_rss_bytes: u64,
    simulator_peak_rss_bytes: u64,
    database: DatabaseUse,
}

/// What the work cost the database.
struct DatabaseUse {
    engine: &'static str,
    transactions: u64,
    statements: u64,
    texts: Vec<(String, u64)>,
}

impl DatabaseUse {
    fn since(store: &Store, before: StoreCounters) -> Self {
        let now = store.counters();
        let mut texts: Vec<(String, u64)> = store.statement_texts().into_iter().collect();
        texts.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
        Self {
            engine: store.engine(),
            transactions: now.transactions - before.transactions,
            statements: now.statements - before.statements,
            texts,
        }
    }
}

async fn measure(
    plane: &InProcessControlPlane,
    clock: ClockChoice,
    simulator: &Simulator,
    terminal: &mut Terminal,
) -> Result<OnboardReport, Failure> {
    let client = &plane.client;
    let shared = SharedClock::choose(&clock).0;
    let machines = simulator.machine_inventory().await?;
    let before = simulator.record().await?;
    fleet::add_site_and_profile(client, simulator).await?;
    let counted_before = plane.store().counters();
    let cpu_before = usage::own_cpu_seconds()?;
    let begin = shared.now();
    let apart_seconds = apart_seconds(&clock, machines.len());
    fleet::onboard_all(client, &machines, shared.as_ref(), apart_seconds, terminal).await?;
    let cpu_seconds = usage::own_cpu_seconds()? - cpu_before;
    let database = DatabaseUse::since(plane.store(), counted_before);
    let measured = Measured {
        record: simulator.record().await?.since(&before),
        peak_rss_bytes: usage::peak_rss_bytes(std::process::id())?,
        simulator_peak_rss_bytes: usage::peak_rss_bytes(simulator.at().pid)?,
        ended: watch::gather(client).await?,
        begin,
        cpu_seconds,
        factor: shared.factor(),
        database,
    };
    Ok(measured.report(machines.len()))
}

/// Simulated seconds between the requests for two machines.
#[expect(clippy::cast_precision_loss, reason = "a number of machines")]
fn apart_seconds(clock: &ClockChoice, machines: usize) -> f64 {
    match clock {
        ClockChoice::Real | ClockChoice::File(_) => 0.0,
        ClockChoice::Paced { .. } => ARRIVAL_SECONDS / machines.max(1) as f64,
    }
}

impl Measured {
    #[expect(clippy::cast_precision_loss, reason = "counts far below 2 to the 52nd")]
    fn report(self, nodes: usize) -> OnboardReport {
        let of_active: Vec<&EndedNode> =
            self.ended.iter().filter(|e| e.node.state == NodeState::Active).collect();
        let last = self.ended.iter().filter_map(|e| e.run.ended_at).max().unwrap_or(self.begin);
        let wall_seconds = last.seconds_since(self.begin) / self.factor;
        let transitions: Vec<_> = of_active
            .iter()
            .filter_map(|e| Some((self.record.machines.get(&e.node.hostname)?, &e.run)))
            .flat_map(|(machine, run)| added::added_by_machine(&machine.log, run))
            .collect();
        let (added_seconds, added_seconds_by_transition) = added::spreads(&transitions);
        let per_node = |value: f64| value / nodes.max(1) as f64;
        OnboardReport {
            nodes,
            replicas: 1,
            active: of_active.len(),
            nodes_per_minute: if wall_seconds > 0.0 {
                of_active.len() as f64 * 60.0 / wall_seconds
            } else {
                0.0
            },
            maas_calls_per_node: per_node(self.record.calls() as f64),
            maas_bytes_per_node: per_node(self.record.bytes() as f64),
            maas_calls_by_endpoint: self
                .record
                .endpoints
                .iter()
                .map(|(label, row)| (label.clone(), row.calls))
                .collect(),
            added_seconds,
            added_seconds_by_transition,
            clock_factor: self.factor,
            cpu_seconds_per_node: per_node(self.cpu_seconds),
            peak_rss_bytes: self.peak_rss_bytes,
            simulator_peak_rss_bytes: self.simulator_peak_rss_bytes,
            wall_seconds,
            database: self.database.engine,
            database_transactions_per_node: per_node(self.database.transactions as f64),
            database_statements_per_node: per_node(self.database.statements as f64),
            database_statements: self
                .database
                .texts
                .into_iter()
                .map(|(text, count)| StatementCount { per_node: per_node(count as f64), text })
                .collect(),
            parked: self.ended.iter().filter_map(parked).collect(),
        }
    }
}

fn parked(ended: &EndedNode) -> Option<ParkedNode> {
    if ended.node.state == NodeState::Active {
        return None;
    }
    let (code, text) = match &ended.node.park {
        Some(park) => (park.code.clone(), park.text.clone()),
        None => (
            ended.run.step.to_string(),
            ended
                .node
                .waiting_for
                .clone()
                .unwrap_or_else(|| "the run is not waiting for anything".to_owned()),
        ),
    };
    Some(ParkedNode { node: ended.node.hostname.clone(), code, text })
}

#[cfg(test)]
mod tests {
    use super::*;
    use gpuaas_testkit::views;

    #[test]
    fn figures_come_from_the_records() {
        let mut active =
            EndedNode { node: views::commissioning_node(), run: views::finished_run() };
        active.node.state = NodeState::Active;
        let begin = active.run.created_at;
        active.run.ended_at = Some(begin.plus_seconds(60.0));
        let stuck = EndedNode { node: views::parked_node(), run: views::finished_run() };
        let mut run_ended = stuck.clone();
        run_ended.run.ended_at = None;
        let record: RegionRecord = serde_json::from_str(
            r#"{"endpoints": {"events.query": {"calls": 22, "bytes_in": 0, "bytes_out": 2000}},
                "machines": {}}"#,
        )
        .unwrap();
        let report = Measured {
            ended: vec![active, run_ended],
            record,
            begin,
            cpu_seconds: 1.0,
            factor: 2.0,
            peak_rss_bytes: 1,
            simulator_peak_rss_bytes: 2,
            database: DatabaseUse {
                engine: "sqlite",
                transactions: 3,
                statements: 9,
                texts: vec![("SELECT 1".to_owned(), 4)],
            },
        }
        .report(2);
        assert!((report.database_transactions_per_node - 1.5).abs() < 1e-9);
        assert!((report.database_statements_per_node - 4.5).abs() < 1e-9);
        assert!((report.database_statements[0].per_node - 2.0).abs() < 1e-9);
        assert_eq!((report.nodes, report.active), (2, 1));
        assert!((report.wall_seconds - 30.0).abs() < 1e-9);
        assert!((report.nodes_per_minute - 2.0).abs() < 1e-9);
        assert!((report.maas_calls_per_node - 11.0).abs() < 1e-9);
        assert!((report.maas_bytes_per_node - 1000.0).abs() < 1e-9);
        assert!((report.cpu_seconds_per_node - 0.5).abs() < 1e-9);
        assert_eq!(report.parked[0].code, "two_candidates");
        assert_eq!(verdict(&report).unwrap_err().exit, Exit::Parked);
    }
}
