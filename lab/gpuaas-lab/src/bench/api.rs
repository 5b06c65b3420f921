//! `gpuaas bench api`: how fast the admin API answers where there are many nodes.
//!
//! The control plane is a process of its own with a fleet that is active and sends heartbeats, and the
//! clients are here, each with one request under way: ten single reads and one page of a hundred nodes
//! for each change of a node, as a console and scripts beside it would ask. They begin a heartbeat's period
//! after the last node became active: what is left of the onboarding is none of theirs.

use std::path::Path;
use std::sync::Arc;

use gpuaas_client::failure::{Failure, store_failure};
use gpuaas_client::terminal::Terminal;
use gpuaas_engine::{Clock as _, ClockChoice, RealClock};
use gpuaas_store::ScratchDatabase;
use gpuaas_types::Timestamp;
use gpuaas_types::codes::CommandCode;
use reqwest::{Client, Method, RequestBuilder};
use serde::Serialize;
use serde_json::{Value, json};
use tokio::task::JoinSet;

use super::fleet;
use crate::arguments::{BenchApiArgs, MachineClass};
use crate::control_plane::{ControlPlanePlan, ControlPlaneProcess};
use crate::hosts::options::HostMode;
use crate::lab_setup::free_port;
use crate::record::MachineInventory;
use crate::region::temporary_dir;
use crate::simulator::{Simulator, SimulatorPlan};

/// Nodes of a page.
const PAGE: usize = 100;
/// Rounds of each client.
const ROUNDS: usize = 200;
/// Single reads of a round.
const READS: usize = 10;
/// Far from any node to the next that is asked for, so that no cache of neighbours helps.
const STRIDE: usize = 7919;

/// The result of `gpuaas bench api`.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ApiReport {
    /// Nodes of the fleet.
    pub nodes: usize,
    /// Clients at once.
    pub clients: usize,
    /// Database: `sqlite` or `postgres`.
    pub database: &'static str,
    /// Time in which half of the pages were answered.
    pub list_p50_ms: f64,
    /// Time in which 99 of 100 pages were answered.
    pub list_p99_ms: f64,
    /// Time in which 99 of 100 reads of a node were answered.
    pub get_p99_ms: f64,
    /// Time in which 99 of 100 changes of a node were answered.
    pub patch_p99_ms: f64,
    /// Requests answered in a second, all clients together.
    pub requests_per_second: f64,
}

/// Seconds of each answer, by what was asked.
#[derive(Debug, Default)]
struct Times {
    list: Vec<f64>,
    get: Vec<f64>,
    patch: Vec<f64>,
}

impl Times {
    fn add(&mut self, other: Self) {
        self.list.extend(other.list);
        self.get.extend(other.get);
        self.patch.extend(other.patch);
    }
}

/// Runs the benchmark.
///
/// # Errors
/// `benchmark_unusable` where a request is refused; what keeps its parts from starting.
pub async fn run(args: BenchApiArgs, terminal: &mut Terminal) -> Result<(), Failure> {
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
    args: &BenchApiArgs,
    folder: &Path,
    simulator: &Simulator,
    terminal: &mut Terminal,
) -> Result<ApiReport, Failure> {
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
    args: &BenchApiArgs,
    folder: &Path,
    database: Option<String>,
    simulator: &Simulator,
    terminal: &mut Terminal,
) -> Result<ApiReport, Failure> {
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
    let asking = Asking {
        http: Client::builder()
            .tls_certs_only([])
            .build()
            .map_err(|error| Failure::local(CommandCode::HttpUnavailable, error.to_string()))?,
        base: format!("http://{}/api/v1/nodes", plan.listen),
        token: token.trim().to_owned(),
    };
    let measured = measure(args.clients, asking, machines).await;
    process.kill();
    let (times, seconds) = measured?;
    Ok(report(args.nodes, args.clients, engine, times, seconds))
}

/// Where requests go, and with which credential.
struct Asking {
    http: Client,
    base: String,
    token: String,
}

impl Asking {
    /// Sends a request and reads its answer. What it takes a client to understand it is not the
    /// server's.
    async fn send(
        &self,
        method: Method,
        rest: &str,
        body: Option<Value>,
    ) -> Result<Vec<u8>, Failure> {
        let url = format!("{}{rest}", self.base);
        let request: RequestBuilder = self.http.request(method, &url).bearer_auth(&self.token);
        let request = match body {
            Some(body) => request.json(&body),
            None => request,
        };
        let unusable =
            |why: String| Failure::local(CommandCode::BenchmarkUnusable, format!("{url}: {why}"));
        let answer = request.send().await.map_err(|error| unusable(error.to_string()))?;
        let status = answer.status();
        let bytes = answer.bytes().await.map_err(|error| unusable(error.to_string()))?;
        if !status.is_success() {
            return Err(unusable(String::from_utf8_lossy(&bytes).into_owned()));
        }
        Ok(bytes.into())
    }

    /// What every page of the list begins after; none: the first one.
    async fn pages(&self) -> Result<Vec<Option<String>>, Failure> {
        let mut pages = vec![None];
        while let Some(last) = pages.last() {
            let listed = self.send(Method::GET, &page(last.as_deref()), None).await?;
            let listed: Value = serde_json::from_slice(&listed).map_err(|error| {
                Failure::local(CommandCode::BenchmarkUnusable, error.to_string())
            })?;
            match listed["next"].as_str() {
                Some(next) => pages.push(Some(next.to_owned())),
                None => break,
            }
        }
        Ok(pages)
    }
}

fn page(after: Option<&str>) -> String {
    let after = after.map_or_else(String::new, |after| format!("&after={after}"));
    format!("?limit={PAGE}{after}")
}

/// What all clients ask of.
struct Fleet {
    asking: Asking,
    pages: Vec<Option<String>>,
    machines: Vec<MachineInventory>,
}

/// Each client is a task of its own: none waits for another one to be served by this process.
async fn measure(
    clients: usize,
    asking: Asking,
    machines: Vec<MachineInventory>,
) -> Result<(Times, f64), Failure> {
    let pages = asking.pages().await?;
    let fleet = Arc::new(Fleet { asking, pages, machines });
    let begin = RealClock.now();
    let mut running = JoinSet::new();
    for client in 0..clients {
        let fleet = Arc::clone(&fleet);
        running.spawn(async move { rounds(client, &fleet, &RealClock).await });
    }
    let mut times = Times::default();
    while let Some(done) = running.join_next().await {
        let done = done
            .map_err(|error| Failure::local(CommandCode::BenchmarkUnusable, error.to_string()))?;
        times.add(done?);
    }
    Ok((times, RealClock.now().seconds_since(begin)))
}

/// What one client does.
async fn rounds(client: usize, fleet: &Fleet, clock: &RealClock) -> Result<Times, Failure> {
    let Fleet { asking, pages, machines } = fleet;
    let mut times = Times::default();
    let since = |begin: Timestamp| clock.now().seconds_since(begin);
    let mut at = client * ROUNDS;
    for round in 0..ROUNDS {
        let begin = clock.now();
        let after = pages[(at * STRIDE) % pages.len()].as_deref();
        asking.send(Method::GET, &page(after), None).await?;
        times.list.push(since(begin));
        for _ in 0..READS {
            at += 1;
            let name = &machines[(at * STRIDE) % machines.len()].name;
            let begin = clock.now();
            asking.send(Method::GET, &format!("/{name}"), None).await?;
            times.get.push(since(begin));
        }
        // Where there are enough of them, no two clients change the same node.
        let own = (client * ROUNDS + round) % machines.len();
        let body = json!({
            "bmc_user": format!("user-{round}"), "actor": "bench", "reason": "measured",
        });
        let begin = clock.now();
        asking.send(Method::PATCH, &format!("/{}", machines[own].name), Some(body)).await?;
        times.patch.push(since(begin));
    }
    Ok(times)
}

fn report(
    nodes: usize,
    clients: usize,
    database: &'static str,
    mut times: Times,
    seconds: f64,
) -> ApiReport {
    let requests = times.list.len() + times.get.len() + times.patch.len();
    #[expect(clippy::cast_precision_loss, reason = "counts far below 2 to the 52nd")]
    let requests = requests as f64;
    ApiReport {
        nodes,
        clients,
        database,
        list_p50_ms: percentile_ms(&mut times.list, 50),
        list_p99_ms: percentile_ms(&mut times.list, 99),
        get_p99_ms: percentile_ms(&mut times.get, 99),
        patch_p99_ms: percentile_ms(&mut times.patch, 99),
        requests_per_second: if seconds > 0.0 { requests / seconds } else { 0.0 },
    }
}

/// The time in which so many of a hundred were answered, in milliseconds.
fn percentile_ms(seconds: &mut [f64], percent: usize) -> f64 {
    seconds.sort_by(f64::total_cmp);
    let rank = (seconds.len() * percent).div_ceil(100).max(1);
    seconds.get(rank - 1).map_or(0.0, |seconds| seconds * 1000.0)
}

impl ApiReport {
    fn table(&self) -> String {
        format!(
            "nodes                {}\nclients              {}\ndatabase             {}\n\
             page of {PAGE}, p50     {:.2} ms\npage of {PAGE}, p99     {:.2} ms\n\
             node read, p99       {:.2} ms\nnode changed, p99    {:.2} ms\n\
             requests per second  {:.0}\n",
            self.nodes,
            self.clients,
            self.database,
            self.list_p50_ms,
            self.list_p99_ms,
            self.get_p99_ms,
            self.patch_p99_ms,
            self.requests_per_second
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_of_what_was_measured() {
        let mut times: Vec<f64> = (1..=200).rev().map(|n| f64::from(n) / 1000.0).collect();
        assert!((percentile_ms(&mut times, 50) - 100.0).abs() < 1e-9);
        assert!((percentile_ms(&mut times, 99) - 198.0).abs() < 1e-9);
        assert!(percentile_ms(&mut [], 99).abs() < 1e-9);
        assert!((percentile_ms(&mut [0.002], 99) - 2.0).abs() < 1e-9);
        let times = Times { list: vec![0.001], get: vec![0.002; 10], patch: vec![0.003] };
        let report = report(5, 1, "sqlite", times, 2.0);
        assert!((report.requests_per_second - 6.0).abs() < 1e-9);
        assert!((report.patch_p99_ms - 3.0).abs() < 1e-9);
        assert!(report.table().contains("node changed, p99    3.00 ms"), "{}", report.table());
        assert_eq!(
            (page(None), page(Some("x"))),
            ("?limit=100".into(), "?limit=100&after=x".into())
        );
    }
}
