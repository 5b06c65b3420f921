//! `gpuaas bench console`: what the console's pages cost with many nodes.
//!
//! The control plane is a process of its own with an active fleet, of which some nodes are being
//! reimaged. Clients request each page and the same data from the API in turns, so that both are
//! measured under the same load. Statements are counted at the control plane, one page at a time.

mod live;
mod pages;
mod visitor;

use std::path::Path;

use gpuaas_client::ApiClient;
use gpuaas_client::failure::{Failure, store_failure};
use gpuaas_client::terminal::Terminal;
use gpuaas_engine::{Clock as _, ClockChoice, RealClock};
use gpuaas_store::ScratchDatabase;
use gpuaas_types::codes::CommandCode;
use serde::Serialize;
use serde_json::json;

use self::live::Live;
use self::pages::PageCost;
use self::visitor::Visitor;
use super::{fleet, usage};
use crate::arguments::{BenchConsoleArgs, MachineClass};
use crate::control_plane::{ControlPlanePlan, ControlPlaneProcess};
use crate::hosts::options::HostMode;
use crate::lab_setup::free_port;
use crate::record::MachineInventory;
use crate::region::temporary_dir;
use crate::simulator::{Simulator, SimulatorPlan};

/// Most runs that are started before the measurement; a fleet of ten times as many has that many.
const MOST_RUNS: usize = 1000;

/// The result of `gpuaas bench console`.
#[derive(Debug, Clone, Serialize)]
pub struct ConsoleReport {
    /// Nodes of the fleet.
    pub nodes: usize,
    /// Clients that request pages at once.
    pub clients: usize,
    /// Database: `sqlite` or `postgres`.
    pub database: &'static str,
    /// Open runs before and after the pages were measured.
    pub runs_in_flight: [u64; 2],
    /// Each page.
    pub pages: Vec<PageCost>,
    /// Bytes on the wire of the first page with everything that it loads.
    pub first_visit_wire_bytes: usize,
    /// Requests of the same.
    pub first_visit_requests: usize,
    /// Pages that stay open while nodes change.
    pub live: Live,
    /// Most memory that the control plane had.
    pub peak_rss_bytes: u64,
}

/// Runs the benchmark.
///
/// # Errors
/// `benchmark_unusable` if a page or a request is refused; what keeps its parts from starting.
pub async fn run(args: BenchConsoleArgs, terminal: &mut Terminal) -> Result<(), Failure> {
    let folder = temporary_dir()?;
    let simulator = Simulator::start(&SimulatorPlan {
        machines: args.nodes,
        names: &[],
        seed: args.seed,
        class: MachineClass::Zero,
        hosts: HostMode::Fleet,
        real_hosts: 0,
        rootfs: None,
        lost: Vec::new(),
        hosts_dir: folder.path().join("hosts"),
        clock: ClockChoice::Real,
        faults: None,
        log: folder.path().join("simulator.log"),
    })
    .await?;
    let report = with_database(&args, folder.path(), &simulator, terminal).await;
    simulator.stop().await;
    let report = report?;
    terminal.data(&if args.json { super::report::json(&report)? } else { report.table() })
}

async fn with_database(
    args: &BenchConsoleArgs,
    folder: &Path,
    simulator: &Simulator,
    terminal: &mut Terminal,
) -> Result<ConsoleReport, Failure> {
    let Some(url) = &args.database else {
        return with_control_plane(args, folder, None, simulator, terminal).await;
    };
    let name = format!("gpuaas_bench_{}_{}", RealClock.now().as_seconds(), std::process::id());
    let database = ScratchDatabase::create(url, &name).await.map_err(store_failure)?;
    let url = Some(database.url().to_owned());
    let report = with_control_plane(args, folder, url, simulator, terminal).await;
    database.drop_database().await.map_err(store_failure)?;
    report
}

async fn with_control_plane(
    args: &BenchConsoleArgs,
    folder: &Path,
    database: Option<String>,
    simulator: &Simulator,
    terminal: &mut Terminal,
) -> Result<ConsoleReport, Failure> {
    let engine = if database.is_some() { "postgres" } else { "sqlite" };
    let plan = ControlPlanePlan {
        listen: free_port()?,
        node_listen: None,
        data: folder.join("control-plane"),
        database,
        clock: ClockChoice::Real,
        sweeps: false,
        nats: None,
    };
    let mut process = ControlPlaneProcess::new(plan.clone(), folder.join("serve.log"));
    let client = process.start().await?;
    let machines = simulator.machine_inventory().await?;
    fleet::add_site_and_profile(&client, simulator).await?;
    fleet::onboard_all(&client, &machines, &RealClock, 0.0, terminal).await?;
    fleet::settle().await;
    let token = std::fs::read_to_string(plan.token_file())
        .map_err(|error| Failure::local(CommandCode::TokenUnreadable, error.to_string()))?;
    let visitor = Visitor::sign_in(plan.listen, token.trim()).await?;
    let pid = process.pid().unwrap_or_default();
    let measured = measure(args, &client, &visitor, &machines, pid).await;
    process.kill();
    let mut report = measured?;
    report.database = engine;
    Ok(report)
}

async fn measure(
    args: &BenchConsoleArgs,
    client: &ApiClient,
    visitor: &Visitor,
    machines: &[MachineInventory],
    pid: u32,
) -> Result<ConsoleReport, Failure> {
    let (first_visit_wire_bytes, first_visit_requests) = visitor.first_visit().await?;
    // Counted before the reimages begin: the engine's own statements are few then.
    let mut pages = pages::counted(visitor, client, machines).await?;
    let runs = (machines.len() / 10).min(MOST_RUNS);
    start_runs(visitor, &machines[machines.len() - runs..]).await?;
    let before = visitor.open_runs().await?;
    pages::timed(visitor, args.clients, &mut pages).await?;
    let after = visitor.open_runs().await?;
    let live = live::measure(visitor, args.watchers, machines, pid).await?;
    Ok(ConsoleReport {
        nodes: machines.len(),
        clients: args.clients,
        database: "",
        runs_in_flight: [before, after],
        pages,
        first_visit_wire_bytes,
        first_visit_requests,
        live,
        peak_rss_bytes: usage::peak_rss_bytes(pid)?,
    })
}

/// Reimages these machines; none is waited for.
async fn start_runs(visitor: &Visitor, machines: &[MachineInventory]) -> Result<(), Failure> {
    for machine in machines {
        let path = format!("/api/v1/nodes/{}/runs", machine.name);
        let body = json!({ "kind": "reimage", "actor": "bench", "reason": "measured" });
        visitor.change(reqwest::Method::POST, &path, &body).await?;
    }
    Ok(())
}

/// The value below which `percent` of 100 values are, in milliseconds.
fn percentile_ms(seconds: &mut [f64], percent: usize) -> f64 {
    seconds.sort_by(f64::total_cmp);
    let rank = (seconds.len() * percent).div_ceil(100).max(1);
    seconds.get(rank - 1).map_or(0.0, |seconds| seconds * 1000.0)
}

fn unusable(why: impl std::fmt::Display) -> Failure {
    Failure::local(CommandCode::BenchmarkUnusable, why.to_string())
}

impl ConsoleReport {
    fn table(&self) -> String {
        use std::fmt::Write as _;
        let mut text = format!(
            "nodes           {}\nruns in flight  {} to {}\ndatabase        {}\n\
             first visit     {} bytes, {} requests\nmemory          {} MB at most\n\n\
             {:32} {:>8} {:>8} {:>8} {:>8} {:>8} {:>8} {:>10}\n",
            self.nodes,
            self.runs_in_flight[0],
            self.runs_in_flight[1],
            self.database,
            self.first_visit_wire_bytes,
            self.first_visit_requests,
            self.peak_rss_bytes / 1_000_000,
            "page",
            "p50 ms",
            "p95 ms",
            "API p95",
            "html",
            "wire",
            "elements",
            "statements"
        );
        for page in &self.pages {
            // Writing to a String cannot fail.
            writeln!(
                text,
                "{:32} {:>8.1} {:>8.1} {:>8.1} {:>8} {:>8} {:>8} {:>10}",
                page.path,
                page.p50_ms,
                page.p95_ms,
                page.api_p95_ms,
                page.html_bytes,
                page.wire_bytes,
                page.elements,
                page.statements
            )
            .ok();
        }
        let live = &self.live;
        write!(
            text,
            "\n{} watchers, {:.0} changes a second: lag p95 {:.2} s, {:.0} bytes a second for each, \
             {:.0} % of a core\n",
            live.watchers,
            live.events_per_second,
            live.lag_p95_ms / 1000.0,
            live.bytes_per_second_per_watcher,
            live.cpu_percent_of_core
        )
        .ok();
        text
    }
}
