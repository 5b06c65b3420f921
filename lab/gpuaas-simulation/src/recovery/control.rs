//! A control plane that another one took the region from: its run waits, an operator follows the
//! advice, and the run goes on.

use gpuaas_client::failure::{Failure, store_failure};
use gpuaas_core::control_mark::{ControlClaim, ControlMark};
use gpuaas_core::record::RunRecord;
use gpuaas_engine::Clock as _;
use gpuaas_types::codes::{CommandCode, WaitCode, advised_commands};
use gpuaas_types::{RunId, RunStatus};
use serde_json::Value;

use super::act::{CommandLine, Operators};
use crate::plan::SimulationPlan;
use crate::simulation::Simulation;
use crate::tick::Tick;

/// Virtual seconds between two looks at the mark.
const MARK_SECONDS: f64 = 60.0;
/// Virtual seconds after which a run counts as stuck.
const LIMIT_SECONDS: f64 = 8.0 * 3600.0;
/// The tag that carries the mark (docs/maas.md#tags).
const TAG: &str = "gpuaas-control-plane";

/// What became of a run whose control plane had yielded.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct YieldedRun {
    /// The command that was advised, as it was run.
    pub command: String,
    /// How the run stands in the end.
    pub status: RunStatus,
}

fn broken(text: impl Into<String>) -> Failure {
    Failure::local(CommandCode::CaseNotMade, text)
}

/// Lets another control plane take the region while a run commissions its machine, follows what
/// `gpuaas explain` then advises, and says what became of the run.
///
/// # Errors
/// What keeps the simulation from being made; a run that does not wait for control, or whose
/// explanation advises no command; what the command was answered.
pub async fn run_after_yielding(operators: &dyn Operators) -> Result<YieldedRun, Failure> {
    let plan = SimulationPlan {
        mark_seconds: MARK_SECONDS,
        ..SimulationPlan::calm(1, 1, &maas_sim::H200)
    };
    let mut simulation = Simulation::new(plan).await?;
    let shell = operators.serve(simulation.control_plane_parts()).await?;
    simulation.start(0.0).await?;
    let host = simulation.region.with(|region| region.hosts()).remove(0);
    let onboarded = simulation.onboard_host(&host).await?;
    let (run_id, _) = onboarded.map_err(broken)?;
    until(&mut simulation, run_id, |run| run.step == gpuaas_types::Step::Commission).await?;
    give_region_to_another(&simulation)?;
    let waits = |run: &RunRecord| {
        run.wait.as_ref().is_some_and(|wait| WaitCode::SiteControlledElsewhere == *wait.code)
    };
    until(&mut simulation, run_id, waits).await?;
    let command = advised(&*shell, &host.name).await?;
    // The operator answers what the command asks.
    let answered = format!("{command} --yes");
    shell.run(&answered).await.map_err(|refused| broken(format!("{command}: {refused}")))?;
    simulation.operator_acted();
    let run = until(&mut simulation, run_id, |run| !run.status.is_open()).await?;
    Ok(YieldedRun { command, status: run.status })
}

/// The first command that `gpuaas explain` advises, with a reason.
async fn advised(shell: &dyn CommandLine, host: &str) -> Result<String, Failure> {
    let text = shell.run(&format!("gpuaas explain {host} -o json")).await.map_err(broken)?;
    let said: Value = serde_json::from_str(&text).map_err(|error| broken(error.to_string()))?;
    let advice = said["next_action"].as_str().unwrap_or_default();
    let action = advised_commands(advice, host).into_iter().next();
    let action =
        action.ok_or_else(|| broken(format!("the advice contains no command: {advice}")))?;
    Ok(action.command.replace("WHY", "ours"))
}

/// Writes the mark as another control plane does to which an operator gave the region.
fn give_region_to_another(simulation: &Simulation) -> Result<(), Failure> {
    let now = simulation.clock.now();
    simulation.region.with(|region| {
        let comment = region.tag_comment(TAG).unwrap_or_default();
        let mark: ControlMark =
            comment.parse().map_err(|_| broken("the region has no valid control mark"))?;
        let term = mark.claim.as_ref().map_or(0, |claim| claim.term) + 1;
        let claim = ControlClaim {
            plane: "other".to_owned(),
            writer: "another".to_owned(),
            term,
            count: 1,
            since: now,
            at: now,
        };
        let mark = ControlMark { region: mark.region, claim: Some(claim) };
        let form = format!("comment={}", mark.to_string().replace(' ', "+").replace(';', "%3B"));
        let path = format!("tags/{TAG}/");
        let written = region.call_as_person(now.as_micros(), "PUT", &path, &form);
        written.map(drop).map_err(|error| broken(error.to_string()))
    })
}

/// Lets time pass until the run is as `enough` says.
async fn until(
    simulation: &mut Simulation,
    run_id: RunId,
    enough: impl Fn(&RunRecord) -> bool,
) -> Result<RunRecord, Failure> {
    let limit = simulation.clock.now().plus_seconds(LIMIT_SECONDS);
    loop {
        let run = simulation.store.run(run_id).await.map_err(store_failure)?;
        if enough(&run) {
            return Ok(run);
        }
        if simulation.clock.now() >= limit || !run.status.is_open() {
            return Err(broken(format!("{} at {}: {:?}", run.status, run.step, run.wait)));
        }
        if simulation.tick(limit).await? == Tick::Idle {
            return Err(broken(format!(
                "the simulation is idle, but the run still waits: {:?}",
                run.wait
            )));
        }
    }
}
