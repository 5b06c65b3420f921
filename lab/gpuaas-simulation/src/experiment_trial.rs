//! An experiment between two images on a simulated fleet, of which one takes longer to write by an
//! amount that is known.

use gpuaas_client::failure::{Failure, store_failure};
use gpuaas_engine::Clock as _;
use gpuaas_types::NodeState;
use gpuaas_types::codes::CommandCode;
use gpuaas_types::experiment::ExperimentView;

use crate::plan::SimulationPlan;
use crate::recovery::{CommandLine, Operators};
use crate::simulation::Simulation;
use crate::tick::Tick;

/// Virtual seconds after which a fleet counts as stuck.
const LIMIT_SECONDS: f64 = 48.0 * 3600.0;
/// The images: A and B.
const IMAGES: [&str; 2] = ["h200-20261001-60303ae22b99", "h200-20261123-9f86d081884c"];

/// What is drawn.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ExperimentTrial {
    /// Seed of the fleet and of the assignment.
    pub seed: u64,
    /// Nodes in all.
    pub nodes: u32,
    /// Seconds that B takes longer to be written than A.
    pub slower_seconds: f64,
    /// Part of the site bundle's time that a host of B takes; 1: as long as with A.
    pub site_part: f64,
    /// Whether each node gets both images.
    pub paired: bool,
}

fn broken(text: impl Into<String>) -> Failure {
    Failure::local(CommandCode::CaseNotMade, text)
}

/// Lets time pass until nothing moves any more.
async fn settle(simulation: &mut Simulation) -> Result<(), Failure> {
    let until = simulation.clock.now().plus_seconds(LIMIT_SECONDS);
    while simulation.clock.now() < until {
        if simulation.tick(until).await? == Tick::Idle {
            return Ok(());
        }
    }
    Err(broken("the fleet did not settle in time"))
}

/// Onboards a fleet, has an operator compare both images on it, and answers what was said after the
/// start and in the end.
///
/// # Errors
/// What keeps the simulation from being made; a node that is not active; a command that is refused.
pub async fn run_experiment_trial(
    trial: ExperimentTrial,
    operators: &dyn Operators,
) -> Result<[ExperimentView; 2], Failure> {
    let nodes = usize::try_from(trial.nodes).unwrap_or_default();
    let calm = SimulationPlan::calm(trial.seed, nodes, &maas_sim::H200);
    let baked_images = [(IMAGES[1].to_owned(), trial.site_part)].into();
    let plan = SimulationPlan { baked_images, ..calm };
    let mut simulation = Simulation::new(plan).await?;
    let shell = operators.serve(simulation.control_plane_parts()).await?;
    simulation.start(0.0).await?;
    for host in simulation.region.with(|region| region.hosts()) {
        simulation.onboard_host(&host).await?.map_err(broken)?;
    }
    settle(&mut simulation).await?;
    let listed = simulation.store.list_nodes(gpuaas_store::NodeFilter::default()).await;
    let listed = listed.map_err(store_failure)?;
    if let Some(one) = listed.iter().find(|one| one.node.state != NodeState::Active) {
        return Err(broken(format!("{} is {}", one.node.hostname, one.node.state)));
    }
    let [a, b] = IMAGES;
    for image in IMAGES {
        simulation.region.with(|region| region.upload_image(image));
        command(
            &mut simulation,
            &*shell,
            &format!("gpuaas image approve {image} --site simulated --reason tried --lint-waiver simulated"),
        )
        .await?;
    }
    let seconds = trial.slower_seconds;
    simulation.region.with(|region| region.set_image_write_seconds(b, seconds));
    let (nodes, seed) = (trial.nodes, trial.seed);
    let start = format!(
        "gpuaas experiment start trial --image {a} --image {b} --profile h200 --site simulated \
         --nodes {nodes} --seed {seed} --yes --reason compare -o json"
    );
    let start = if trial.paired { format!("{start} --pairs") } else { start };
    let begun = view(&command(&mut simulation, &*shell, &start).await?)?;
    settle(&mut simulation).await?;
    // Second runs of pairs begin, and it ends, without anybody's word.
    while shell.advance_experiments().await > 0 {
        simulation.operator_acted();
        settle(&mut simulation).await?;
    }
    let said = command(&mut simulation, &*shell, "gpuaas experiment show trial -o json").await?;
    Ok([begun, view(&said)?])
}

async fn command(
    simulation: &mut Simulation,
    shell: &dyn CommandLine,
    text: &str,
) -> Result<String, Failure> {
    let said = shell.run(text).await;
    simulation.operator_acted();
    said.map_err(|refused| broken(format!("{text}: {refused}")))
}

fn view(said: &str) -> Result<ExperimentView, Failure> {
    serde_json::from_str(said).map_err(|error| broken(error.to_string()))
}
