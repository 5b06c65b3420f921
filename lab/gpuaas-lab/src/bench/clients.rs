//! `gpuaas bench clients`: a MAAS that refuses calls and loses answers.
//!
//! The fault mix with which other clients of MAAS lose machines: some calls of every kind are
//! refused, many are done and answered with a gateway's 504. Hardware takes no time; what takes
//! time is probing whether a lost call took effect, so the clock runs faster than the wall.

use gpuaas_client::failure::{Exit, Failure};
use gpuaas_client::terminal::Terminal;
use gpuaas_engine::ClockChoice;
use gpuaas_engine::{Clock as _, RealClock};
use gpuaas_types::NodeState;
use gpuaas_types::codes::CommandCode;
use maas_sim::{Fault, FaultKind};
use serde::Serialize;

use super::fleet;
use super::report::ParkedNode;
use crate::arguments::{BenchClientsArgs, MachineClass};
use crate::clock::SharedClock;
use crate::control_plane::{ControlPlaneLauncher, ControlPlanePlan, InProcessControlPlane};
use crate::hosts::options::HostMode;
use crate::region::temporary_dir;
use crate::simulator::{Simulator, SimulatorPlan};
use crate::summary::{EndedNode, LabSummary};
use crate::watch;

/// Seconds of the run's clock per second of the wall.
const FACTOR: f64 = 10.0;

/// The result of `gpuaas bench clients`.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ClientsReport {
    /// Nodes asked for.
    pub nodes: usize,
    /// Nodes that became active.
    pub active: usize,
    /// Nodes whose run parked.
    pub parked: usize,
    /// Machines in MAAS that no node holds.
    pub orphans: usize,
    /// Deployments on top of a deployment that nobody had released.
    pub double_deploys: u32,
    /// Requests that MAAS received, per node.
    pub maas_calls_per_node: f64,
    /// Seconds of the wall clock.
    pub wall_seconds: f64,
    /// Why nodes are not active.
    pub not_active: Vec<ParkedNode>,
}

/// Runs the benchmark.
///
/// # Errors
/// `nodes_not_active` or `stray_deployments` when a machine was lost; what keeps its parts from
/// starting.
pub async fn run(
    args: BenchClientsArgs,
    launcher: &dyn ControlPlaneLauncher,
    terminal: &mut Terminal,
) -> Result<(), Failure> {
    let folder = temporary_dir()?;
    let clock = ClockChoice::paced(FACTOR, RealClock.now());
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
        clock: clock.clone(),
        faults: None,
        log: folder.path().join("simulator.log"),
    })
    .await?;
    let plan = ControlPlanePlan {
        listen: ([127, 0, 0, 1], 0).into(),
        node_listen: None,
        data: folder.path().join("control-plane"),
        database: None,
        nats: None,
        clock: clock.clone(),
        sweeps: false,
    };
    let measured = match InProcessControlPlane::start(launcher, &plan).await {
        Ok(plane) => {
            let measured = measure(&args, &plane, clock, &simulator, terminal).await;
            plane.stop_with(simulator).await;
            measured
        }
        Err(failure) => {
            simulator.stop().await;
            Err(failure)
        }
    };
    let report = measured?;
    terminal.data(&if args.json { super::report::json(&report)? } else { report.table() })?;
    report.verdict()
}

fn mix(args: &BenchClientsArgs) -> Vec<Fault> {
    [(FaultKind::Unavailable503, args.refuse), (FaultKind::Accepted504, args.accept_then_504)]
        .into_iter()
        .filter(|(_, part)| *part > 0.0)
        .map(|(kind, part)| Fault { probability: Some(part), ..Fault::new(kind) })
        .collect()
}

async fn measure(
    args: &BenchClientsArgs,
    plane: &InProcessControlPlane,
    choice: ClockChoice,
    simulator: &Simulator,
    terminal: &mut Terminal,
) -> Result<ClientsReport, Failure> {
    let client = &plane.client;
    let machines = simulator.machine_inventory().await?;
    let before = simulator.record().await?;
    // A person adds the site and sees at once whether MAAS answered.
    fleet::add_site_and_profile(client, simulator).await?;
    simulator.inject(&mix(args)).await?;
    let clock = SharedClock::choose(&choice).0;
    let begin = RealClock.now();
    fleet::onboard_all(client, &machines, clock.as_ref(), 0.0, terminal).await?;
    let wall_seconds = RealClock.now().seconds_since(begin);
    let ended = watch::gather(client).await?;
    let inventory = simulator.machine_inventory().await?;
    let record = simulator.record().await?.since(&before);
    let summary = LabSummary::summarize(&ended, &inventory, &[], &record, wall_seconds);
    #[expect(clippy::cast_precision_loss, reason = "counts far below 2 to the 52nd")]
    let maas_calls_per_node = record.calls() as f64 / args.nodes.max(1) as f64;
    Ok(ClientsReport {
        nodes: summary.nodes,
        active: summary.active,
        parked: summary.parked,
        orphans: summary.orphans,
        double_deploys: summary.double_deploys,
        maas_calls_per_node,
        wall_seconds,
        not_active: ended.iter().filter_map(not_active).collect(),
    })
}

fn not_active(ended: &EndedNode) -> Option<ParkedNode> {
    if ended.node.state == NodeState::Active {
        return None;
    }
    let node = ended.node.hostname.clone();
    Some(match &ended.node.park {
        Some(park) => ParkedNode { node, code: park.code.clone(), text: park.text.clone() },
        None => {
            let text = ended.node.waiting_for.clone().unwrap_or_default();
            ParkedNode { node, code: ended.run.step.to_string(), text }
        }
    })
}

impl ClientsReport {
    fn table(&self) -> String {
        let mut text = format!(
            "nodes active         {} of {}\nparked               {}\norphans              {}\n\
             double deploys       {}\nMAAS calls per node  {:.1}\nwall time            {:.1} s\n",
            self.active,
            self.nodes,
            self.parked,
            self.orphans,
            self.double_deploys,
            self.maas_calls_per_node,
            self.wall_seconds
        );
        for parked in &self.not_active {
            text.push_str(&format!("\n{} ({}): {}", parked.node, parked.code, parked.text));
        }
        text
    }

    fn verdict(&self) -> Result<(), Failure> {
        if self.active < self.nodes {
            let detail = format!("{} of {} nodes are active", self.active, self.nodes);
            return Err(Failure::new(Exit::Parked, CommandCode::NodesNotActive, detail));
        }
        if self.orphans > 0 || self.double_deploys > 0 {
            let detail = format!(
                "{} orphaned machines, {} double deployments",
                self.orphans, self.double_deploys
            );
            return Err(Failure::local(CommandCode::StrayDeployments, detail));
        }
        Ok(())
    }
}
