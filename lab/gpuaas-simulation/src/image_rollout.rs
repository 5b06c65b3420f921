//! Images of a site while machines deploy: the next one is approved, rolled back, and the one before is
//! asked to be deleted; and what is advised where an image fails in its kernel.
//!
//! Everything an operator does here is a command of `gpuaas`, through the executable's own parser and
//! the admin API. Images are uploaded as people do it in MAAS, and approved as the region has them.

use std::collections::BTreeMap;

use gpuaas_client::failure::{Failure, store_failure};
use gpuaas_engine::Clock as _;
use gpuaas_types::api::NodeView;
use gpuaas_types::codes::CommandCode;
use gpuaas_types::{NodeId, RunId, RunStatus};
use maas_sim::{Fault, FaultKind, HostView};
use serde_json::Value;

use crate::plan::SimulationPlan;
use crate::recovery::{CommandLine, Operators};
use crate::simulation::Simulation;
use crate::tick::Tick;

/// Virtual seconds after which a run counts as stuck.
const LIMIT_SECONDS: f64 = 24.0 * 3600.0;
/// Virtual seconds between two steps of the operator, in which machines come along.
const APART_SECONDS: f64 = 240.0;
/// The image that nodes have, and the next one.
const IMAGES: [&str; 2] = ["h200-20261001-60303ae22b99", "h200-20261123-9f86d081884c"];

/// What became of a run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RolledOutRun {
    /// Hostname of the node.
    pub host: String,
    /// How it ended.
    pub status: RunStatus,
    /// Image that its pinned revision of the profile names.
    pub pinned_image: String,
    /// SHA-256 that it names.
    pub pinned_sha256: String,
    /// Image that MAAS says the machine has.
    pub deployed_image: String,
    /// What the check before the deployment saw.
    pub evidence: String,
}

/// What became of machines that deployed while their image was changed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ImageRollout {
    /// Runs, by host.
    pub runs: Vec<RolledOutRun>,
    /// Runs that deployed at once, at most.
    pub deploying_at_once: usize,
    /// Image that the profile named after the rollback.
    pub rolled_back_to: String,
    /// What was answered to whoever asked to delete each image.
    pub refusals: Vec<String>,
}

/// What became of a run whose image failed in its kernel.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AdvisedRollback {
    /// The rollback that `gpuaas explain` advised, as it was run.
    pub rollback: String,
    /// The command after it.
    pub retry: String,
    /// How the run ended.
    pub status: RunStatus,
    /// Image that MAAS says the machine has.
    pub deployed_image: String,
}

fn broken(text: impl Into<String>) -> Failure {
    Failure::local(CommandCode::CaseNotMade, text)
}

/// A simulation with its operator, and the nodes that were asked for.
struct Rollout {
    simulation: Simulation,
    shell: Box<dyn CommandLine>,
    waiting: Vec<HostView>,
    runs: BTreeMap<String, (RunId, NodeId)>,
    deploying_at_once: usize,
}

impl Rollout {
    async fn new(machines: usize, operators: &dyn Operators) -> Result<Self, Failure> {
        let plan = SimulationPlan::calm(16, machines, &maas_sim::H200);
        let mut simulation = Simulation::new(plan).await?;
        let shell = operators.serve(simulation.control_plane_parts()).await?;
        simulation.start(0.0).await?;
        let waiting = simulation.region.with(|region| region.hosts());
        let runs = BTreeMap::new();
        Ok(Self { simulation, shell, waiting, runs, deploying_at_once: 0 })
    }

    async fn run(&mut self, command: &str) -> Result<String, Failure> {
        let said = self.shell.run(command).await;
        self.simulation.operator_acted();
        said.map_err(|refused| broken(format!("{command}: {refused}")))
    }

    /// A person uploads an image, and an approver approves it.
    async fn approve(&mut self, image: &str) -> Result<(), Failure> {
        self.simulation.region.with(|region| region.upload_image(image));
        let command = format!(
            "gpuaas image approve {image} --site simulated --reason tried --lint-waiver simulated"
        );
        self.run(&command).await.map(drop)
    }

    async fn name_in_profile(&mut self, image: &str) -> Result<(), Failure> {
        let command = format!("gpuaas profile set h200 distro_series=custom/{image}");
        self.run(&command).await.map(drop)
    }

    /// Has so many of the machines onboarded.
    async fn onboard(&mut self, count: usize) -> Result<(), Failure> {
        for host in self.waiting.drain(..count.min(self.waiting.len())).collect::<Vec<_>>() {
            let HostView { name, mac_address, bmc_address, .. } = &host;
            let command = format!(
                "gpuaas node onboard {name} --site simulated --profile h200 --mac {mac_address} \
                 --bmc-address {bmc_address} -o json"
            );
            let said = self.run(&command).await?;
            let node: NodeView =
                serde_json::from_str(&said).map_err(|error| broken(format!("{error}: {said}")))?;
            let run = node.run.ok_or_else(|| broken(format!("no run for {}", host.name)))?;
            self.runs.insert(host.name, (run.id, node.id));
        }
        Ok(())
    }

    /// Lets time pass until nothing moves any more, or so many seconds.
    async fn pass(&mut self, seconds: f64) -> Result<(), Failure> {
        let until = self.simulation.clock.now().plus_seconds(seconds);
        while self.simulation.clock.now() < until {
            if self.simulation.tick(until).await? == Tick::Idle {
                break;
            }
        }
        let views = self.simulation.region.with(|region| region.hosts());
        let deploying = views.iter().filter(|view| view.status == Some("Deploying")).count();
        self.deploying_at_once = self.deploying_at_once.max(deploying);
        Ok(())
    }

    /// What the command to delete an image is answered.
    async fn refused_deletion(&mut self, image: &str) -> Result<String, Failure> {
        let command = format!("gpuaas image delete {image} --site simulated --yes --reason old");
        match self.run(&command).await {
            Err(refused) => Ok(refused.to_string()),
            Ok(_) => Err(broken(format!("{image} was deleted although machines use it"))),
        }
    }

    async fn outcome(&self, host: &str) -> Result<RolledOutRun, Failure> {
        let Some((run_id, node_id)) = self.runs.get(host).copied() else {
            return Err(broken(format!("{host} was not onboarded")));
        };
        let store = &self.simulation.store;
        let run = store.run(run_id).await.map_err(store_failure)?;
        let pinned = store.profile_revision(run.profile_id, run.profile_revision).await;
        let pinned = pinned.map_err(store_failure)?.spec;
        let seen = store.observation(node_id).await.map_err(store_failure)?;
        let deployed = seen.and_then(|seen| seen.machine).map(|machine| machine.distro_series);
        let check = run.state.checks.get("image_available_and_approved");
        Ok(RolledOutRun {
            host: host.to_owned(),
            status: run.status,
            pinned_image: pinned.distro_series,
            pinned_sha256: pinned.image_sha256,
            deployed_image: deployed.unwrap_or_default(),
            evidence: check.map(|check| check.evidence.clone()).unwrap_or_default(),
        })
    }
}

/// Has 50 machines deployed while the next image is uploaded, approved and named by the profile, while
/// the profile goes back to the one before, and while both are asked to be deleted.
///
/// # Errors
/// What keeps the simulation from being made; a command that is refused and should not be.
pub async fn run_image_rollout(operators: &dyn Operators) -> Result<ImageRollout, Failure> {
    let [before, next] = IMAGES;
    let mut rollout = Rollout::new(50, operators).await?;
    rollout.approve(before).await?;
    rollout.name_in_profile(before).await?;
    rollout.onboard(20).await?;
    rollout.pass(APART_SECONDS * 8.0).await?;
    rollout.approve(next).await?;
    rollout.onboard(5).await?;
    rollout.name_in_profile(next).await?;
    rollout.onboard(15).await?;
    let mut refusals = vec![rollout.refused_deletion(before).await?];
    rollout.pass(APART_SECONDS).await?;
    let rollback = "gpuaas image rollback --profile h200 --site simulated --reason slow -o json";
    let said = rollout.run(rollback).await?;
    let said: Value = serde_json::from_str(&said).map_err(|error| broken(error.to_string()))?;
    rollout.onboard(10).await?;
    for image in [before, next] {
        rollout.pass(APART_SECONDS).await?;
        refusals.push(rollout.refused_deletion(image).await?);
    }
    rollout.pass(LIMIT_SECONDS).await?;
    refusals.push(rollout.refused_deletion(next).await?);
    let mut runs = Vec::new();
    for host in rollout.runs.keys() {
        runs.push(rollout.outcome(host).await?);
    }
    Ok(ImageRollout {
        runs,
        deploying_at_once: rollout.deploying_at_once,
        rolled_back_to: said["to"]["image"].as_str().unwrap_or_default().to_owned(),
        refusals,
    })
}

/// Has a machine deployed whose image fails as its kernel is installed, and follows what `gpuaas
/// explain` then advises.
///
/// # Errors
/// What keeps the simulation from being made; an explanation that advises no rollback; a command that
/// is refused.
pub async fn run_advised_rollback(operators: &dyn Operators) -> Result<AdvisedRollback, Failure> {
    let [image, _] = IMAGES;
    let mut rollout = Rollout::new(1, operators).await?;
    rollout.approve(image).await?;
    rollout.name_in_profile(image).await?;
    let mut fault = Fault::new(FaultKind::DeployFailed).times(1);
    fault.message = Some("curtin: installing-kernel: DKMS build failed".to_owned());
    rollout.simulation.region.with(|region| region.inject(fault));
    rollout.onboard(1).await?;
    rollout.pass(LIMIT_SECONDS).await?;
    let host = rollout.runs.keys().next().cloned().unwrap_or_default();
    let said = rollout.run(&format!("gpuaas explain {host} -o json")).await?;
    let said: Value = serde_json::from_str(&said).map_err(|error| broken(error.to_string()))?;
    let advice = said["next_action"].as_str().unwrap_or_default();
    let mut commands = advice.split('`').filter(|text| text.starts_with("gpuaas "));
    let mut next = |verb: &str| {
        let found = commands.find(|text| text.split(' ').nth(2) == Some(verb));
        found.map(|text| text.replace("WHY", "dkms").replace("RUN", &host))
    };
    let none = || broken(format!("the advice contains no rollback: {advice}"));
    let rollback = next("rollback").ok_or_else(none)?;
    let retry = next("retry").ok_or_else(none)?;
    rollout.run(&rollback).await?;
    rollout.run(&retry).await?;
    rollout.pass(LIMIT_SECONDS).await?;
    let RolledOutRun { status, deployed_image, .. } = rollout.outcome(&host).await?;
    Ok(AdvisedRollback { rollback, retry, status, deployed_image })
}
