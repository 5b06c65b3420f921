//! `gpuaas bench idle`: what a fleet that nobody does anything with costs its control plane.
//!
//! Three processes: `gpuaas serve`, the simulated region with its hosts, and this one, which onboards
//! every machine and then only reads `/proc` and two counters. There may be several regions, each a site
//! with its part of the machines: a region has a connection open for each of its agents, and a process
//! has no more files than it is allowed. Each host runs the agent's own code: it
//! enrolls with a key of its own, and from then on sends heartbeats and waits for tasks over TLS with its
//! certificate, from an address of its own of loopback, on the connections that an agent keeps open. The
//! control plane has its own limits and periods. Control planes that share a database have a part of the
//! agents each, and what they use is added up. What is left of the onboarding (polls that began then,
//! handshakes) is not counted: the measured interval begins a heartbeat's period after the last node
//! became active. Memory is read at its end, and is that of a process that has onboarded them all.

use std::path::Path;

use gpuaas_client::ApiClient;
use gpuaas_client::failure::{Exit, Failure, store_failure};
use gpuaas_client::terminal::Terminal;
use gpuaas_engine::{Clock as _, ClockChoice, RealClock};
use gpuaas_store::ScratchDatabase;
use gpuaas_types::NodeState;
use gpuaas_types::agent::HEARTBEAT_INTERVAL_SECONDS;
use gpuaas_types::codes::CommandCode;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use serde::Serialize;

use super::{fleet, usage};
use crate::arguments::{BenchIdleArgs, MachineClass};
use crate::control_plane::{ControlPlanePlan, ControlPlaneProcess};
use crate::hosts::options::HostMode;
use crate::lab_setup::free_port;
use crate::operator::{Arrivals, SITE};
use crate::region::temporary_dir;
use crate::simulator::{Simulator, SimulatorPlan};

/// Open files of a control plane that are for anything else than agents: it keeps some for its operators,
/// for silent connections and for itself.
const OTHER_FILES: u64 = 2_560;
/// Those of a region: the control planes' connections to it, and its own. While agents enroll, each has a
/// second connection for half a minute; a region that lacks files then takes connections later.
const REGION_FILES: u64 = 400;
/// How the lines of the metrics begin that count heartbeats: requests of their own, and polls that stand
/// for one.
const HEARTBEATS: &str = "gpuaas_heartbeats_total{form=";

/// The result of `gpuaas bench idle`.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct IdleReport {
    /// Active nodes.
    pub nodes: usize,
    /// Regions that have a part of them each.
    pub regions: usize,
    /// Control planes that share them.
    pub replicas: usize,
    /// Database: `sqlite` or `postgres`.
    pub database: &'static str,
    /// Length of the measured interval.
    pub seconds: f64,
    /// Share of one core that the control planes used, in percent; a PostgreSQL's is not in it.
    pub cpu_percent_of_core: f64,
    /// The control planes' resident memory at the end.
    pub rss_bytes: u64,
    /// Requests that the regions received in a minute.
    pub maas_calls_per_minute: f64,
    /// Heartbeats that were taken in a second: requests of their own, and polls that stood for one.
    pub heartbeats_per_second: f64,
}

/// What is counted, at one moment.
struct Reading {
    cpu_seconds: f64,
    maas_calls: u64,
    heartbeats: f64,
    at: gpuaas_types::Timestamp,
}

/// What the counters of two readings are apart.
struct Interval {
    begin: Reading,
    end: Reading,
    rss_bytes: u64,
}

/// Runs the benchmark.
///
/// # Errors
/// `benchmark_unusable` where the interval is shorter than a heartbeat's period, this process may not
/// open enough files or the metrics cannot be read;
/// `nodes_not_active`; `usage_unreadable`; what keeps its parts from starting.
pub async fn run(args: BenchIdleArgs, terminal: &mut Terminal) -> Result<(), Failure> {
    check_seconds(args.seconds)?;
    allow_open_files(&args)?;
    let folder = temporary_dir()?;
    let mut regions = Vec::new();
    let report = async {
        for number in 0..args.regions.max(1) {
            regions.push(start_region(&args, number, folder.path()).await?);
        }
        with_database(&args, folder.path(), &regions, terminal).await
    }
    .await;
    for (_, simulator) in regions {
        simulator.stop().await;
    }
    let report = report?;
    terminal.data(&if args.json { super::report::json(&report)? } else { report.table() })
}

/// Starts a region with its part of the machines; answers the name of its site with it.
async fn start_region(
    args: &BenchIdleArgs,
    number: usize,
    folder: &Path,
) -> Result<(String, Simulator), Failure> {
    let regions = args.regions.max(1);
    let one_more = usize::from(number < args.nodes % regions);
    let simulator = Simulator::start(&SimulatorPlan {
        machines: args.nodes / regions + one_more,
        names: &[],
        seed: args.seed.wrapping_add(u64::try_from(number).unwrap_or_default()),
        class: MachineClass::Zero,
        hosts: HostMode::Fleet,
        real_hosts: 0,
        rootfs: None,
        lost: Vec::new(),
        hosts_dir: folder.join(format!("hosts-{number}")),
        clock: ClockChoice::Real,
        faults: None,
        log: folder.join(format!("simulator-{number}.log")),
    })
    .await?;
    let name = if number == 0 { SITE.to_owned() } else { format!("{SITE}-{}", number + 1) };
    Ok((name, simulator))
}

/// A shorter interval may have no heartbeat in it: agents that enrolled together send theirs together.
fn check_seconds(seconds: f64) -> Result<(), Failure> {
    if seconds >= f64::from(HEARTBEAT_INTERVAL_SECONDS) {
        return Ok(());
    }
    let detail = format!(
        "{seconds} s is shorter than the agents' heartbeat interval of {HEARTBEAT_INTERVAL_SECONDS} s"
    );
    Err(Failure::usage(CommandCode::BenchmarkUnusable, detail)
        .hint("use a multiple of the heartbeat interval, such as --seconds 60"))
}

/// Has the processes that are started from here open as many files as they need. An agent keeps one
/// connection; a region and a control plane have their part of the agents each.
fn allow_open_files(args: &BenchIdleArgs) -> Result<(), Failure> {
    let nodes = args.nodes;
    let part_of = |parts: usize| u64::try_from(nodes.div_ceil(parts.max(1))).unwrap_or(u64::MAX);
    let of_region = part_of(args.regions).saturating_add(REGION_FILES);
    let of_control_plane = part_of(args.replicas).saturating_add(OTHER_FILES);
    let (who, wanted, option) = if of_region >= of_control_plane {
        ("a region", of_region, "--regions")
    } else {
        ("a control plane", of_control_plane, "--replicas with a --database")
    };
    let limit = getrlimit(Resource::Nofile);
    let most = limit.maximum.unwrap_or(u64::MAX);
    if most < wanted {
        let detail = format!(
            "{who} needs {wanted} open files for its share of {nodes} nodes, but the limit is {most}"
        );
        return Err(Failure::local(CommandCode::BenchmarkUnusable, detail).hint(format!(
            "raise the hard limit (`ulimit -Hn`), use fewer nodes, or use more {option}"
        )));
    }
    if limit.current.is_some_and(|current| current < wanted) {
        let raised = Rlimit { current: limit.maximum, ..limit };
        setrlimit(Resource::Nofile, raised).map_err(|error| {
            let detail = format!("cannot raise the limit on open files: {error}");
            Failure::local(CommandCode::BenchmarkUnusable, detail)
        })?;
    }
    Ok(())
}

async fn with_database(
    args: &BenchIdleArgs,
    folder: &Path,
    regions: &[(String, Simulator)],
    terminal: &mut Terminal,
) -> Result<IdleReport, Failure> {
    let Some(url) = &args.database else {
        return with_control_plane(args, folder, None, regions, terminal).await;
    };
    let name = format!("gpuaas_bench_{}_{}", RealClock.now().as_seconds(), std::process::id());
    let database = ScratchDatabase::create(url, &name).await.map_err(store_failure)?;
    let url = Some(database.url().to_owned());
    let report = with_control_plane(args, folder, url, regions, terminal).await;
    database.drop_database().await.map_err(store_failure)?;
    report
}

async fn with_control_plane(
    args: &BenchIdleArgs,
    folder: &Path,
    database: Option<String>,
    regions: &[(String, Simulator)],
    terminal: &mut Terminal,
) -> Result<IdleReport, Failure> {
    let engine = if database.is_some() { "postgres" } else { "sqlite" };
    let plan = ControlPlanePlan {
        listen: free_port()?,
        node_listen: Some(free_port()?),
        data: folder.join("control-plane"),
        database,
        clock: ClockChoice::Real,
        sweeps: false,
        nats: None,
    };
    let mut first = ControlPlaneProcess::new(plan.clone(), folder.join("serve.log"));
    let client = first.start().await?;
    let mut processes = fleet::start_others(&plan, args.replicas, folder).await?;
    processes.insert(0, first);
    let measured = measure(args, &client, &processes, regions, terminal).await;
    drop(processes);
    Ok(report(args, engine, &measured?))
}

async fn measure(
    args: &BenchIdleArgs,
    client: &ApiClient,
    processes: &[ControlPlaneProcess],
    regions: &[(String, Simulator)],
    terminal: &mut Terminal,
) -> Result<Interval, Failure> {
    let measured: Vec<MeasuredProcess> =
        processes.iter().map(MeasuredProcess::new).collect::<Result<_, _>>()?;
    let mut machines = Vec::new();
    for (_, simulator) in regions {
        machines.push(simulator.machine_inventory().await?);
    }
    let named: Vec<_> = regions.iter().map(|(name, region)| (name.clone(), region)).collect();
    fleet::add_sites_and_profile(client, &named).await?;
    let named = regions.iter().zip(&machines);
    let sites: Vec<_> =
        named.map(|((name, _), machines)| (name.clone(), machines.as_slice())).collect();
    let arrivals = Arrivals { clock: &RealClock, begin: RealClock.now(), apart_seconds: 0.0 };
    fleet::onboard_sites(client, &sites, arrivals, terminal).await?;
    let nodes = client.nodes(None, None).await?.items;
    let active = nodes.iter().filter(|node| node.state == NodeState::Active).count();
    if active < args.nodes {
        let detail = format!("{active} of {} nodes are active", args.nodes);
        return Err(Failure::new(Exit::Parked, CommandCode::NodesNotActive, detail));
    }
    drop((nodes, machines));
    fleet::settle().await;
    let begin = Reading::take(&measured, regions).await?;
    fleet::pass(args.seconds).await;
    // Memory first: what the end's own requests take is not the fleet's.
    let rss_bytes = measured.iter().map(|one| usage::rss_bytes(one.pid)).sum::<Result<u64, _>>()?;
    let end = Reading::take(&measured, regions).await?;
    Ok(Interval { begin, end, rss_bytes })
}

/// A control plane that is measured.
struct MeasuredProcess {
    pid: u32,
    metrics: Metrics,
}

impl MeasuredProcess {
    fn new(process: &ControlPlaneProcess) -> Result<Self, Failure> {
        let pid = process.pid().ok_or_else(|| unusable("a control plane has exited"))?;
        Ok(Self { pid, metrics: Metrics::new(process.plan())? })
    }
}

impl Reading {
    async fn take(
        processes: &[MeasuredProcess],
        regions: &[(String, Simulator)],
    ) -> Result<Self, Failure> {
        let mut maas_calls = 0;
        for (_, simulator) in regions {
            maas_calls += simulator.record().await?.calls();
        }
        let mut heard = 0.0;
        for process in processes {
            heard += heartbeats(&process.metrics.read().await?);
        }
        let used = processes.iter().map(|one| usage::cpu_seconds_of(one.pid));
        let (cpu_seconds, at) = (used.sum::<Result<f64, _>>()?, RealClock.now());
        Ok(Self { cpu_seconds, maas_calls, heartbeats: heard, at })
    }
}

/// The control plane's metrics, as a Prometheus reads them.
struct Metrics {
    http: reqwest::Client,
    url: String,
    token: String,
}

impl Metrics {
    fn new(plan: &ControlPlanePlan) -> Result<Self, Failure> {
        let token = std::fs::read_to_string(plan.token_file())
            .map_err(|error| Failure::local(CommandCode::TokenUnreadable, error.to_string()))?;
        let http = reqwest::Client::builder()
            .timeout(std::time::Duration::from_secs(60))
            .tls_certs_only([])
            .build()
            .map_err(|error| Failure::local(CommandCode::HttpUnavailable, error.to_string()))?;
        let url = format!("http://{}/metrics", plan.listen);
        Ok(Self { http, url, token: token.trim().to_owned() })
    }

    async fn read(&self) -> Result<String, Failure> {
        let failed = |error: reqwest::Error| unusable(&error.to_string());
        let answer = self.http.get(&self.url).bearer_auth(&self.token).send().await;
        let answer = answer.and_then(reqwest::Response::error_for_status).map_err(failed)?;
        answer.text().await.map_err(failed)
    }
}

/// Heartbeats that were taken since the process began.
fn heartbeats(metrics: &str) -> f64 {
    let lines = metrics.lines().filter(|line| line.starts_with(HEARTBEATS));
    let count = |line: &str| line.rsplit_once(' ').and_then(|(_, count)| count.parse::<f64>().ok());
    lines.filter_map(count).sum()
}

fn report(args: &BenchIdleArgs, database: &'static str, interval: &Interval) -> IdleReport {
    let Interval { begin, end, rss_bytes } = interval;
    let seconds = end.at.seconds_since(begin.at).max(f64::EPSILON);
    #[expect(clippy::cast_precision_loss, reason = "counts far below 2 to the 52nd")]
    let per_second = |before: u64, after: u64| after.saturating_sub(before) as f64 / seconds;
    IdleReport {
        nodes: args.nodes,
        regions: args.regions.max(1),
        replicas: args.replicas.max(1),
        database,
        seconds,
        cpu_percent_of_core: (end.cpu_seconds - begin.cpu_seconds) / seconds * 100.0,
        rss_bytes: *rss_bytes,
        maas_calls_per_minute: per_second(begin.maas_calls, end.maas_calls) * 60.0,
        heartbeats_per_second: (end.heartbeats - begin.heartbeats) / seconds,
    }
}

fn unusable(why: &str) -> Failure {
    Failure::local(CommandCode::BenchmarkUnusable, why)
}

impl IdleReport {
    #[expect(clippy::cast_precision_loss, reason = "memory of one process")]
    fn table(&self) -> String {
        format!(
            "nodes                  {}\nregions                {}\ncontrol planes         {}\ndatabase               {}\nmeasured for           {:.0} s\n\
             processor              {:.2} % of a core\nmemory                 {:.1} MiB\n\
             MAAS calls per minute  {:.1}\nheartbeats per second  {:.1}\n",
            self.nodes,
            self.regions,
            self.replicas,
            self.database,
            self.seconds,
            self.cpu_percent_of_core,
            self.rss_bytes as f64 / 1_048_576.0,
            self.maas_calls_per_minute,
            self.heartbeats_per_second
        )
    }
}

#[cfg(test)]
mod tests {
    use gpuaas_types::Timestamp;

    use super::*;

    fn args(nodes: usize, regions: usize, replicas: usize) -> BenchIdleArgs {
        BenchIdleArgs {
            nodes,
            seconds: 60.0,
            database: None,
            regions,
            replicas,
            seed: 1,
            json: true,
        }
    }

    fn reading(at: i64, cpu_seconds: f64, maas_calls: u64, heartbeats: f64) -> Reading {
        Reading { cpu_seconds, maas_calls, heartbeats, at: Timestamp::from_micros(at * 1_000_000) }
    }

    #[test]
    fn figures_are_of_the_interval_alone() {
        let (begin, end) = (reading(1000, 40.0, 900, 50.0), reading(1060, 41.2, 912, 10_050.0));
        let report =
            report(&args(5000, 1, 1), "sqlite", &Interval { begin, end, rss_bytes: 3 << 20 });
        assert!((report.cpu_percent_of_core - 2.0).abs() < 1e-9);
        assert!((report.maas_calls_per_minute - 12.0).abs() < 1e-9);
        assert!((report.heartbeats_per_second - 10_000.0 / 60.0).abs() < 1e-9);
        assert_eq!((report.nodes, report.rss_bytes), (5000, 3_145_728));
        assert!(report.table().contains("memory                 3.0 MiB"), "{}", report.table());
    }

    #[test]
    fn heartbeats_are_those_of_either_form() {
        let metrics = "# TYPE gpuaas_heartbeats counter\n\
            gpuaas_heartbeats_total{form=\"request\"} 2.0\ngpuaas_heartbeats_total{form=\"poll\"} 40.0\n";
        assert!((heartbeats(metrics) - 42.0).abs() < 1e-9);
        assert!(heartbeats("# EOF\n").abs() < 1e-9);
    }

    #[test]
    fn an_interval_has_heartbeats_in_it() {
        assert!(check_seconds(30.0).is_ok());
        assert_eq!(check_seconds(29.9).unwrap_err().code(), "benchmark_unusable");
    }

    #[test]
    fn more_nodes_than_files_are_refused() {
        let whose = [(1, usize::MAX, "--regions"), (usize::MAX, 1, "--replicas with a --database")];
        for (regions, replicas, option) in whose {
            let refused = allow_open_files(&args(usize::MAX, regions, replicas)).unwrap_err();
            assert_eq!(refused.code(), "benchmark_unusable");
            let hint = refused.problem.hint;
            assert!(hint.ends_with(option), "{regions} {replicas}: {hint}");
        }
    }
}
