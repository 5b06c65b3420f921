//! `gpuaas bench agent`: what the agent costs a host.
//!
//! One node is onboarded by a control plane in this process, with hardware that takes no time; its
//! host is this machine. The agent's executable is started as its unit would start it, with the
//! configuration that the node bootstrap writes, on this machine's own `/`, and only its state is
//! kept elsewhere. Once the node is active there is nothing to do but heartbeats and task polls, and
//! that is what is measured, over an interval of the wall clock.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::{Duration, Instant};

use gpuaas_artifact::{BootstrapInputs, parse_user_data};
use gpuaas_client::executables::find_agent;
use gpuaas_client::failure::{Exit, Failure};
use gpuaas_client::terminal::Terminal;
use gpuaas_engine::ClockChoice;
use gpuaas_engine::{Clock as _, RealClock};
use gpuaas_node_agent::protocol::ControlPlane;
use gpuaas_types::NodeState;
use gpuaas_types::agent::{BootstrapPhase, BootstrapProgress, ProgressStatus};
use gpuaas_types::codes::CommandCode;
use maas_sim::{Notice, SimOptions, SimServer, ZERO};
use serde::Serialize;
use serde_json::json;
use tokio::process::{Child, Command};
use tokio::time::{interval, timeout};

use super::usage;
use crate::arguments::BenchAgentArgs;
use crate::clock::SharedClock;
use crate::control_plane::{ControlPlaneLauncher, ControlPlanePlan, InProcessControlPlane};
use crate::operator::{self, Arrivals, SITE};
use crate::record::MachineInventory;
use crate::region::temporary_dir;
use crate::watch;

/// Longest time to a deployed host, and from there to an active node: both are seconds.
const PATIENCE_SECONDS: u64 = 120;
/// How often the facts are read; the middle one counts.
const FACTS_RUNS: usize = 5;

/// The result of `gpuaas bench agent`.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct AgentBenchReport {
    /// Length of the executable.
    pub binary_bytes: u64,
    /// Resident memory after the idle interval.
    pub idle_rss_bytes: u64,
    /// Share of one core that it used in the idle interval, in percent.
    pub idle_cpu_percent: f64,
    /// From the start of the process to the first heartbeat that was accepted.
    pub enroll_milliseconds: f64,
    /// `gpuaas-node-agent facts --root /`, start and end of the process included.
    pub facts_milliseconds: f64,
}

/// Runs the benchmark.
///
/// # Errors
/// `agent_missing`; `agent_not_ready` when the agent did not enroll or its node did not become
/// active; what keeps a control plane or a region from starting.
pub async fn run(
    args: BenchAgentArgs,
    launcher: &dyn ControlPlaneLauncher,
    terminal: &mut Terminal,
) -> Result<(), Failure> {
    let agent = find_agent(args.agent_binary.as_deref())?;
    let idle = Duration::from_secs_f64(args.seconds);
    let report = measure(&agent, idle, launcher).await?;
    terminal.data(&if args.json { super::report::json(&report)? } else { report.table() })
}

async fn measure(
    agent: &Path,
    idle: Duration,
    launcher: &dyn ControlPlaneLauncher,
) -> Result<AgentBenchReport, Failure> {
    let binary_bytes = std::fs::metadata(agent).map_err(|e| not_ready(&e.to_string()))?.len();
    let facts_milliseconds = facts(agent).await?;
    let folder = temporary_dir()?;
    let options = SimOptions { machines: 1, class: &ZERO, scale: 0.0, ..SimOptions::default() };
    let clock = SharedClock::choose(&ClockChoice::Real);
    let options = SimOptions { clock: std::sync::Arc::new(clock), ..options };
    let listen = options.listen;
    let started = SimServer::start(options).await;
    let mut region = started.map_err(|error| Failure::cannot_listen(listen, &error))?;
    let plan = ControlPlanePlan {
        listen: ([127, 0, 0, 1], 0).into(),
        node_listen: Some(([127, 0, 0, 1], 0).into()),
        data: folder.path().join("control-plane"),
        database: None,
        nats: None,
        clock: ClockChoice::Real,
        sweeps: false,
    };
    let plane = InProcessControlPlane::start(launcher, &plan).await?;
    let measured = async {
        let inputs = deployed(&plane, &mut region).await?;
        report_progress(&inputs, BootstrapPhase::SiteBootstrap, ProgressStatus::Started).await?;
        report_progress(&inputs, BootstrapPhase::SiteBootstrap, ProgressStatus::Succeeded).await?;
        report_progress(&inputs, BootstrapPhase::NodeBootstrap, ProgressStatus::Started).await?;
        let mut host = StartedAgent::new(agent, folder.path(), &inputs)?;
        let enroll_milliseconds = host.ready().await?;
        report_progress(&inputs, BootstrapPhase::NodeBootstrap, ProgressStatus::Succeeded).await?;
        active(&plane).await?;
        let (idle_rss_bytes, idle_cpu_percent) = host.idle(idle).await?;
        Ok(AgentBenchReport {
            binary_bytes,
            idle_rss_bytes,
            idle_cpu_percent,
            enroll_milliseconds,
            facts_milliseconds,
        })
    };
    let report = measured.await;
    plane.stop().await;
    region.shutdown().await;
    report
}

/// What the node's deployed system was handed.
async fn deployed(
    plane: &InProcessControlPlane,
    region: &mut maas_sim::SimHandle,
) -> Result<BootstrapInputs, Failure> {
    let client = &plane.client;
    let url = region.url();
    let inputs = operator::SiteInputs::new();
    operator::add_site(client, SITE, (&url, &region.api_key), inputs).await?;
    operator::add_profile(client, "", serde_json::Map::new()).await?;
    let hosts = region.region.with(|region| region.hosts());
    let inventory: Vec<MachineInventory> = hosts
        .into_iter()
        .map(|host| MachineInventory {
            name: host.name,
            mac_address: host.mac_address,
            bmc_address: host.bmc_address,
            system_id: None,
            hostname: None,
            status: None,
            on: host.on,
        })
        .collect();
    let clock = RealClock;
    let begin = clock.now();
    let arrivals = Arrivals { clock: &clock, begin, apart_seconds: 0.0 };
    operator::onboard(client, SITE, &inventory, arrivals).await?;
    let boot = async {
        while let Some(notice) = region.notices.recv().await {
            if let Notice::FirstBoot(boot) = notice {
                return Some(boot);
            }
        }
        None
    };
    let boot = timeout(Duration::from_secs(PATIENCE_SECONDS), boot).await.ok().flatten();
    let boot = boot.ok_or_else(|| not_ready("MAAS deployed no machine"))?;
    Ok(parse_user_data(&boot.user_data).map_err(|error| not_ready(&error.to_string()))?.inputs)
}

/// A callback of the bootstrap scripts.
async fn report_progress(
    inputs: &BootstrapInputs,
    phase: BootstrapPhase,
    status: ProgressStatus,
) -> Result<(), Failure> {
    let progress = BootstrapProgress { phase, status, message: String::new(), attempt: None };
    let anchor = inputs.control_plane_ca_pem.as_deref().map(str::as_bytes);
    let plane = ControlPlane::new(&inputs.control_plane_url, anchor);
    let plane = plane.map_err(|error| not_ready(&error.to_string()))?;
    let told = plane.progress(inputs.run_id, &inputs.bootstrap_token, &progress).await;
    told.map_err(|error| not_ready(&error.to_string()))
}

async fn active(plane: &InProcessControlPlane) -> Result<(), Failure> {
    let settled = watch::until_settled(&plane.client, 1, &RealClock, |_| {});
    timeout(Duration::from_secs(PATIENCE_SECONDS), settled)
        .await
        .map_err(|_| not_ready("its node did not become active in time"))??;
    let nodes = plane.client.nodes(None, None).await?.items;
    let states: Vec<NodeState> = nodes.iter().map(|node| node.state).collect();
    if states == [NodeState::Active] {
        return Ok(());
    }
    Err(not_ready(&format!("unexpected node states {states:?}: expected one active node")))
}

/// A running agent.
struct StartedAgent {
    child: Child,
    pid: u32,
    at: Instant,
    ready_file: PathBuf,
    log: PathBuf,
}

impl StartedAgent {
    fn new(agent: &Path, folder: &Path, inputs: &BootstrapInputs) -> Result<Self, Failure> {
        let failed = |error: std::io::Error| not_ready(&error.to_string());
        let config = folder.join("agent.json");
        let anchor = folder.join("ca.pem");
        let ca_pem = inputs.control_plane_ca_pem.as_deref().unwrap_or_default();
        std::fs::write(&anchor, ca_pem).map_err(failed)?;
        let document = json!({
            "run_id": inputs.run_id,
            "hostname": inputs.hostname,
            "control_plane_url": inputs.control_plane_url,
            "enrollment_token": inputs.enrollment_token,
            "ca_file": anchor,
            "state_dir": folder.join("state"),
            "run_dir": folder.join("run"),
        });
        std::fs::write(&config, document.to_string()).map_err(failed)?;
        let log = folder.join("agent.log");
        let out = std::fs::File::create(&log).map_err(failed)?;
        let at = monotonic();
        let child = Command::new(agent)
            .args(["run", "--host-root", "/", "--config"])
            .arg(&config)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(out)
            .kill_on_drop(true)
            .spawn()
            .map_err(failed)?;
        let pid = child.id().ok_or_else(|| not_ready("it exited immediately"))?;
        Ok(Self { child, pid, at, ready_file: folder.join("run/ready.json"), log })
    }

    /// Milliseconds until the agent says that a heartbeat was accepted.
    async fn ready(&mut self) -> Result<f64, Failure> {
        let said = || std::fs::read_to_string(&self.log).unwrap_or_default();
        let mut looks = interval(Duration::from_millis(1));
        while !self.ready_file.is_file() {
            looks.tick().await;
            if let Ok(Some(status)) = self.child.try_wait() {
                return Err(not_ready(&format!("it exited with {status}: {}", said())));
            }
            if self.at.elapsed() > Duration::from_secs(PATIENCE_SECONDS) {
                return Err(not_ready(&format!(
                    "the control plane accepted no heartbeat in time: {}",
                    said()
                )));
            }
        }
        Ok(self.at.elapsed().as_secs_f64() * 1000.0)
    }

    /// Memory, and processor time in percent, while there is nothing to do.
    async fn idle(&self, wall: Duration) -> Result<(u64, f64), Failure> {
        let (before, begin) = (usage::cpu_seconds_of(self.pid)?, monotonic());
        let clock = RealClock;
        clock.sleep_until(clock.now().plus_seconds(wall.as_secs_f64())).await;
        let used = usage::cpu_seconds_of(self.pid)? - before;
        let percent = used / begin.elapsed().as_secs_f64() * 100.0;
        Ok((usage::rss_bytes(self.pid)?, percent))
    }
}

/// Milliseconds that the middle of some readings of this machine's facts took.
async fn facts(agent: &Path) -> Result<f64, Failure> {
    let mut took = Vec::with_capacity(FACTS_RUNS);
    for _ in 0..FACTS_RUNS {
        let begin = monotonic();
        let mut command = Command::new(agent);
        command.args(["facts", "--root", "/"]).stdin(Stdio::null()).kill_on_drop(true);
        let output = timeout(Duration::from_secs(PATIENCE_SECONDS), command.output()).await;
        let output = output
            .map_err(|_| not_ready("it did not finish reading facts in time"))?
            .map_err(|error| not_ready(&error.to_string()))?;
        if !output.status.success() {
            return Err(not_ready(&String::from_utf8_lossy(&output.stderr)));
        }
        took.push(begin.elapsed().as_secs_f64() * 1000.0);
    }
    took.sort_by(f64::total_cmp);
    Ok(took[FACTS_RUNS / 2])
}

#[expect(clippy::disallowed_methods, reason = "what a process takes is wall time by nature")]
fn monotonic() -> Instant {
    Instant::now()
}

fn not_ready(why: &str) -> Failure {
    Failure::new(Exit::Local, CommandCode::AgentNotReady, why)
}

impl AgentBenchReport {
    #[expect(clippy::cast_precision_loss, reason = "bytes of one program")]
    fn table(&self) -> String {
        const MIB: f64 = 1_048_576.0;
        let mut text = String::new();
        let mut row = |name: &str, value: String| {
            // Writing to a String cannot fail.
            writeln!(text, "{name:<22}{value}").ok();
        };
        row("executable", format!("{:.1} MiB", self.binary_bytes as f64 / MIB));
        row("memory, idle", format!("{:.1} MiB", self.idle_rss_bytes as f64 / MIB));
        row("processor, idle", format!("{:.3} % of a core", self.idle_cpu_percent));
        row("enrolled after", format!("{:.0} ms", self.enroll_milliseconds));
        row("facts read in", format!("{:.0} ms", self.facts_milliseconds));
        text
    }
}
