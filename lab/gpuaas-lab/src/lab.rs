//! `gpuaas lab`: the main job end to end, with nothing installed.
//!
//! A simulated region with machines runs as a process of its own ([`crate::simulator`]); the control plane
//! runs here on the embedded store ([`crate::control_plane`]); and the lab does what an operator does, over the
//! same HTTP API ([`crate::operator`]). Nothing of the control plane knows that it is in a lab: it is told
//! a site's URL and a clock. So a first-time user starts the same code as the tests.
//!
//! # Time
//! Region and control plane share a paced clock: both compute it from the wall by one epoch and one
//! factor, so it runs on while a process computes. All seconds that are shown are seconds
//! of that clock, except where the wall is named.
//!
//! # Killed and started again
//! The store holds everything that the control plane must know, and [`crate::state`] the few facts beside
//! it. A killed lab leaves its region running for a while; the next one in the same folder finds it,
//! listens on the same port (nodes were told that address) and goes on. Where the scenario kills the
//! control plane itself, it runs in a process of its own and [`crate::kill_loop`] does it.

use std::path::{Path, PathBuf};
use std::time::Duration;

use gpuaas_client::ApiClient;
use gpuaas_client::executables::own_executable;
use gpuaas_client::failure::{Failure, store_failure};
use gpuaas_client::signals;
use gpuaas_client::terminal::Terminal;
use gpuaas_engine::ClockChoice;
use gpuaas_engine::{Clock as _, RealClock};
use gpuaas_types::api::NodeView;
use gpuaas_types::codes::CommandCode;
use tokio::time::interval;

use crate::arguments::LabArgs;
use crate::clock::SharedClock;
use crate::control_plane::{ControlPlaneLauncher, ControlPlaneProcess, InProcessControlPlane};
use crate::kill_loop::KillPlan;
use crate::lab_setup::LabSetup;
use crate::operator::{Arrivals, SITE};
use crate::progress::LabProgress;
use crate::record::MachineInventory;
use crate::scenario::{MachineSelector, ScenarioAction};
use crate::scenario_actions::ActionContext;
use crate::screen::{self, LabAddresses};
use crate::state::{API_KEY_FILE, LabFolder};
use crate::summary::{EndedNode, LabSummary};
use crate::{kill_loop, leases, operator, outcome, scenario, watch};

const FOLDER: &str = "gpuaas-lab";
/// Simulated seconds that an onboarding takes about.
const RUN_SECONDS: f64 = 2000.0;
/// How often a lab that is kept shows its region that somebody is there.
const PRESENCE: Duration = Duration::from_secs(60);

/// `gpuaas lab`.
///
/// # Errors
/// `nodes_not_active` when a node did not become active; what keeps a lab from starting.
pub async fn run(
    args: LabArgs,
    launcher: &dyn ControlPlaneLauncher,
    terminal: &mut Terminal,
) -> Result<(), Failure> {
    let folder = args.data.clone().unwrap_or_else(|| PathBuf::from(FOLDER));
    if let Some(name) = &args.scenario {
        scenario::Scenario::by_name(name)?.fits(args.machines())?;
    }
    if args.real_hosts > 0 {
        crate::hosts::check_systemd_hosts(args.rootfs.as_deref())?;
    }
    run_in_folder(&args, LabFolder::lock(&folder)?, launcher, terminal).await
}

fn interrupted() -> Failure {
    Failure::local(
        CommandCode::LabInterrupted,
        "the machines and their state are kept for ten minutes",
    )
    .hint("resume it with `gpuaas lab`")
}

async fn run_in_folder(
    args: &LabArgs,
    folder: LabFolder,
    launcher: &dyn ControlPlaneLauncher,
    terminal: &mut Terminal,
) -> Result<(), Failure> {
    let mut setup = LabSetup::prepare(args, folder, terminal).await?;
    print_header(&setup, terminal);
    let mut control = LabControlPlane::start(&setup, launcher).await?;
    print_console(&control.client(), terminal).await;
    let ended = tokio::select! {
        ended = run_scenario(&mut setup, &mut control, terminal) => ended?,
        () = signals::stop()? => return Err(interrupted()),
    };
    let inventory = setup.simulator.machine_inventory().await?;
    let record = setup.simulator.record().await?;
    let wall_seconds = RealClock.now().seconds_since(setup.state.begun_at);
    let mut summary =
        LabSummary::summarize(&ended, &inventory, &setup.state.before, &record, wall_seconds);
    if setup.scenario.has_leases() {
        let machines = setup.machines().await?;
        let hosts: Vec<&str> = machines.iter().map(|machine| machine.name.as_str()).collect();
        summary.leases = leases::gather(&control.client(), &hosts).await?;
        terminal.message(&format!("\n{}", leases::draw_times(&summary.leases)));
    }
    print_result(&setup, &control, &ended, &summary, terminal);
    if setup.scenario.name != scenario::PLAIN.name {
        let first = first_nodes(&setup, &control.client()).await?;
        terminal.message(&format!("\n{}", outcome::draw(setup.scenario, &summary, &first)));
    }
    if args.json {
        let text = serde_json::to_string_pretty(&summary)
            .map_err(|error| Failure::local(CommandCode::AnswerUnprintable, error.to_string()))?;
        terminal.data(&text)?;
    }
    let verdict = summary.verdict(&ended, &inventory, setup.scenario, setup.evaluated_hosts());
    if args.keep {
        print_console(&control.client(), terminal).await;
        keep_running(&setup, terminal).await?;
    } else if !args.json {
        terminal.message(&screen::next(&program()));
    }
    take_down(setup, control, verdict.is_ok(), terminal).await?;
    verdict
}

/// The control plane of a lab.
enum LabControlPlane {
    Here(InProcessControlPlane),
    /// In a process that is killed now and then.
    Killed {
        process: Box<ControlPlaneProcess>,
        client: ApiClient,
        kills: u32,
    },
}

impl LabControlPlane {
    async fn start(setup: &LabSetup, launcher: &dyn ControlPlaneLauncher) -> Result<Self, Failure> {
        if setup.scenario.kills == 0 {
            return InProcessControlPlane::start(launcher, &setup.plane()).await.map(Self::Here);
        }
        let log = setup.folder.join("control-plane.log");
        let mut process = Box::new(ControlPlaneProcess::new(setup.plane(), log));
        let client = process.start().await?;
        Ok(Self::Killed { process, client, kills: 0 })
    }

    fn client(&self) -> ApiClient {
        match self {
            Self::Here(here) => here.client.clone(),
            Self::Killed { client, .. } => client.clone(),
        }
    }
}

/// Onboards the machines and plays what is left of the scenario's acts.
async fn run_scenario(
    setup: &mut LabSetup,
    control: &mut LabControlPlane,
    terminal: &mut Terminal,
) -> Result<Vec<EndedNode>, Failure> {
    let client = control.client();
    let machines = setup.machines().await?;
    onboard(setup, control, &machines, terminal).await?;
    let clock = SharedClock::choose(&setup.clock).0;
    let actions = setup.scenario.actions;
    let mut progress = LabProgress::new(terminal.interactive());
    while let Some(action) = actions.get(setup.state.actions_done) {
        action_context(setup, &client, &machines).perform(*action).await?;
        let shown = |nodes: &[NodeView]| progress.show(nodes, clock.now(), terminal);
        watch::until_settled(&client, machines.len(), &RealClock, shown).await?;
        setup.action_done()?;
    }
    progress.end();
    watch::until_gates_reported(&client).await;
    watch::gather(&client).await
}

fn action_context<'a>(
    setup: &'a LabSetup,
    client: &'a ApiClient,
    machines: &'a [MachineInventory],
) -> ActionContext<'a> {
    let reason = format!("scenario {}", setup.scenario.name);
    ActionContext { client, simulator: &setup.simulator, machines, reason }
}

/// The first nodes with their histories, as far as the scenario is about them.
async fn first_nodes(setup: &LabSetup, client: &ApiClient) -> Result<Vec<NodeView>, Failure> {
    let about_second =
        setup.scenario.actions.iter().any(|action| action.on() == MachineSelector::Second);
    let count = if about_second { 2 } else { 1 };
    let mut nodes = Vec::new();
    for machine in setup.machines().await?.iter().take(count) {
        nodes.push(client.node(&machine.name).await?);
    }
    Ok(nodes)
}

async fn onboard(
    setup: &mut LabSetup,
    control: &mut LabControlPlane,
    machines: &[MachineInventory],
    terminal: &mut Terminal,
) -> Result<(), Failure> {
    let client = control.client();
    let clock = SharedClock::choose(&setup.clock).0;
    let real = setup.state.asked.real_hosts > 0;
    let inputs = if real { operator::inputs_of_real_hosts() } else { operator::SiteInputs::new() };
    let (url, api_key) = (setup.simulator.maas_url(), setup.simulator.api_key());
    operator::add_site(&client, SITE, (&url, api_key), inputs).await?;
    let fields = setup.scenario.profile_fields()?;
    operator::add_profile(&client, setup.scenario.preset, fields).await?;
    if setup.scenario.roce {
        for (index, machine) in machines.iter().enumerate() {
            let addresses = scenario::fabric_addresses(setup.class, index);
            operator::add_fabric(&client, &machine.name, addresses).await?;
        }
    }
    let arrivals = Arrivals { clock: clock.as_ref(), begin: clock.now(), apart_seconds: 0.0 };
    // Where the control plane is killed, one machine comes late: see `kill_loop::kill_repeatedly`.
    let late = usize::from(matches!(control, LabControlPlane::Killed { .. })).min(machines.len());
    let (early, late) = machines.split_at(machines.len() - late);
    operator::onboard(&client, SITE, early, arrivals).await?;
    let mut progress = LabProgress::new(terminal.interactive());
    let settled = watch::until_settled(&client, machines.len(), &RealClock, |nodes| {
        progress.show(nodes, clock.now(), terminal);
    });
    match control {
        LabControlPlane::Here(_) => {
            let mut settled = std::pin::pin!(settled);
            let next = setup.scenario.actions.get(setup.state.actions_done);
            if let Some(action @ ScenarioAction::Meanwhile { .. }) = next {
                let context = action_context(setup, &client, machines);
                tokio::select! {
                    done = context.perform(*action) => done?,
                    _ = &mut settled => return Err(scenario_not_reached("the onboarding ended before the scenario could interfere")),
                }
                setup.action_done()?;
            }
            settled.await?;
        }
        LabControlPlane::Killed { process, kills, .. } => {
            let plan = KillPlan {
                count: setup.scenario.kills,
                seed: setup.state.asked.seed,
                mean_seconds: mean_pause(setup),
            };
            let late = operator::onboard(&client, SITE, late, arrivals);
            tokio::select! {
                settled = settled => settled?,
                failure = kill_loop::kill_repeatedly(process, plan, kills, late) => return Err(failure),
            }
            process.start().await?;
        }
    }
    progress.end();
    Ok(())
}

fn scenario_not_reached(why: &str) -> Failure {
    Failure::local(CommandCode::ScenarioUnset, why)
}

/// Between two kills, so that all of them fall into the run.
fn mean_pause(setup: &LabSetup) -> f64 {
    match setup.clock {
        ClockChoice::Real | ClockChoice::File(_) => 0.1,
        ClockChoice::Paced { factor, .. } => {
            RUN_SECONDS / factor / f64::from(setup.scenario.kills + 2)
        }
    }
}

fn print_header(setup: &LabSetup, terminal: &mut Terminal) {
    let asked = (!setup.resumed).then(|| setup.state.asked.to_string());
    terminal.message(&screen::header(asked.as_deref(), &setup.clock, &addresses(setup)));
}

/// The console's address; a lab goes on without it.
async fn print_console(client: &ApiClient, terminal: &mut Terminal) {
    match client.console_address().await {
        Ok((url, seconds)) => terminal.message(&screen::console(&url, seconds)),
        Err(failure) => tracing::warn!(%failure, "cannot get the console's address"),
    }
}

fn addresses(setup: &LabSetup) -> LabAddresses {
    let plane = setup.plane();
    let token_file = plane.token_file();
    let token_file = token_file.canonicalize().unwrap_or(token_file);
    LabAddresses {
        region: setup.simulator.maas_url(),
        api_key_file: setup.folder.join(API_KEY_FILE).display().to_string(),
        control_plane: format!("http://{}", plane.listen),
        token_file: token_file.display().to_string(),
    }
}

fn print_result(
    setup: &LabSetup,
    control: &LabControlPlane,
    ended: &[EndedNode],
    summary: &LabSummary,
    terminal: &mut Terminal,
) {
    let how = (&setup.clock, setup.scenario.actions.is_empty());
    terminal.message(&screen::result(ended, summary, how, terminal.style()));
    if let LabControlPlane::Killed { kills, .. } = control {
        terminal.message(&format!("the control plane was killed {kills} times"));
    }
}

/// This program, as it can be typed in any folder.
fn program() -> String {
    own_executable().map_or_else(|_| "gpuaas".to_owned(), |path| path.display().to_string())
}

/// Leaves everything running until an interrupt.
async fn keep_running(setup: &LabSetup, terminal: &mut Terminal) -> Result<(), Failure> {
    let mut stop = std::pin::pin!(signals::stop()?);
    let first = setup.machines().await?.first().map(|machine| machine.name.clone());
    let first = first.unwrap_or_default();
    terminal.message(&screen::left_running(&addresses(setup), &program(), &first));
    let mut presence = interval(PRESENCE);
    loop {
        tokio::select! {
            () = &mut stop => return Ok(()),
            _ = presence.tick() => {
                // Asked only so that it does not think itself alone.
                setup.simulator.ask_version().await.ok();
            }
        }
    }
}

/// Takes the lab down. Its files are kept where something went wrong.
async fn take_down(
    setup: LabSetup,
    control: LabControlPlane,
    well: bool,
    terminal: &mut Terminal,
) -> Result<(), Failure> {
    let LabSetup { folder, simulator, database, .. } = setup;
    match control {
        LabControlPlane::Here(here) => here.stop_with(simulator).await,
        LabControlPlane::Killed { mut process, .. } => {
            process.kill();
            simulator.stop().await;
        }
    }
    folder.forget()?;
    if well {
        if let Some(database) = database {
            database.drop_database().await.map_err(store_failure)?;
        }
        return folder.remove();
    }
    report_remains(folder.path(), terminal);
    Ok(())
}

fn report_remains(path: &Path, terminal: &mut Terminal) {
    terminal.message(&format!("the lab's store and logs remain in {}", path.display()));
}
