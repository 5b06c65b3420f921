//! `gpuaas lab`: the main job end to end, with nothing installed.
//!
//! A simulated region with machines runs as a process of its own ([`crate::simulator`]); the control plane
//! runs here on the embedded store ([`crate::control_plane`]); and the lab does what an operator does, over the
//! same HTTP API ([`crate::operator`]). Nothing of the control plane knows that it is in a lab: it is told
//! a site's URL and a clock. What a newcomer starts is therefore also what the tests start.
//!
//! # Time
//! Region and control plane share a paced clock: both compute it from the wall by one epoch and one
//! factor, so it never stands still while somebody computes. All seconds that are shown are seconds
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
use gpuaas_client::failure::Failure;
use gpuaas_client::signals;
use gpuaas_client::terminal::Terminal;
use gpuaas_client::waterfall;
use gpuaas_engine::ClockChoice;
use gpuaas_engine::{Clock as _, RealClock};
use gpuaas_types::api::NodeView;
use tokio::time::interval;

use crate::arguments::LabArgs;
use crate::clock::SharedClock;
use crate::control_plane::{ControlPlaneLauncher, InProcess, Process};
use crate::kill_loop::Kills;
use crate::lab_setup::Stage;
use crate::operator::Arrivals;
use crate::progress::Progress;
use crate::record::Racked;
use crate::scenario::{Act, Which};
use crate::scenario_actions::Place;
use crate::state::Folder;
use crate::store_failure::of_store;
use crate::summary::{Ended, Tally};
use crate::{kill_loop, operator, outcome, scenario, watch};

const FOLDER: &str = "gpuaas-lab";
/// Above this many machines no waterfalls are drawn.
const DRAWN: usize = 8;
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
        scenario::Scenario::named(name)?.fits(args.nodes)?;
    }
    if args.real_hosts > 0 {
        crate::hosts::may_be_real(None)?;
    }
    staged(&args, Folder::lock(&folder)?, launcher, terminal).await
}

fn interrupted() -> Failure {
    Failure::local(
        "lab_interrupted",
        "The lab was interrupted",
        "its machines and its state are kept for ten minutes",
    )
    .hint("gpuaas lab goes on with it")
}

async fn staged(
    args: &LabArgs,
    folder: Folder,
    launcher: &dyn ControlPlaneLauncher,
    terminal: &mut Terminal,
) -> Result<(), Failure> {
    let mut stage = Stage::set(args, folder, terminal).await?;
    announce(&stage, terminal);
    let mut control = Control::start(&stage, launcher).await?;
    let ended = tokio::select! {
        ended = play(&mut stage, &mut control, terminal) => ended?,
        () = signals::stop()? => return Err(interrupted()),
    };
    let racked = stage.simulator.racked().await?;
    let record = stage.simulator.record().await?;
    let wall_seconds = RealClock.now().seconds_since(stage.state.begun_at);
    let tally = Tally::of(&ended, &racked, &stage.state.before, &record, wall_seconds);
    show(&stage, &control, &ended, &tally, terminal);
    if stage.scenario.name != scenario::PLAIN.name {
        let first = first_nodes(&stage, &control.client()).await?;
        terminal.say(&format!("\n{}", outcome::draw(stage.scenario, &tally, &first)));
    }
    if args.json {
        let text = serde_json::to_string_pretty(&tally).map_err(|error| {
            let title = "The answer could not be written down";
            Failure::local("answer_unprintable", title, error.to_string())
        })?;
        terminal.data(&text)?;
    }
    let verdict = tally.verdict(&ended, &racked, stage.scenario);
    if args.keep {
        keep(&stage, terminal).await?;
    }
    leave(stage, control, verdict.is_ok(), terminal).await?;
    verdict
}

/// The control plane of a lab.
enum Control {
    Here(InProcess),
    /// In a process that is killed now and then.
    Killed {
        process: Process,
        client: ApiClient,
        kills: u32,
    },
}

impl Control {
    async fn start(stage: &Stage, launcher: &dyn ControlPlaneLauncher) -> Result<Self, Failure> {
        if stage.scenario.kills == 0 {
            return InProcess::start(launcher, &stage.plane()).await.map(Self::Here);
        }
        let mut process = Process::new(stage.plane(), stage.folder.join("control-plane.log"));
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
async fn play(
    stage: &mut Stage,
    control: &mut Control,
    terminal: &mut Terminal,
) -> Result<Vec<Ended>, Failure> {
    let client = control.client();
    let machines = stage.machines().await?;
    onboard(stage, control, &machines, terminal).await?;
    let clock = SharedClock::choose(stage.clock).0;
    let acts = stage.scenario.acts;
    let mut progress = Progress::new(terminal.interactive());
    while let Some(act) = acts.get(stage.state.acts_done) {
        place(stage, &client, &machines).act(*act).await?;
        let shown = |nodes: &[NodeView]| progress.show(nodes, clock.now(), terminal);
        watch::until_settled(&client, machines.len(), &RealClock, shown).await?;
        stage.act_done()?;
    }
    progress.end();
    watch::until_said(&client).await;
    watch::gather(&client).await
}

fn place<'a>(stage: &'a Stage, client: &'a ApiClient, machines: &'a [Racked]) -> Place<'a> {
    let reason = format!("scenario {}", stage.scenario.name);
    Place { client, simulator: &stage.simulator, machines, reason }
}

/// The first nodes with their histories, as far as the scenario is about them.
async fn first_nodes(stage: &Stage, client: &ApiClient) -> Result<Vec<NodeView>, Failure> {
    let about_second = stage.scenario.acts.iter().any(|act| act.on() == Which::Second);
    let count = if about_second { 2 } else { 1 };
    let mut nodes = Vec::new();
    for machine in stage.machines().await?.iter().take(count) {
        nodes.push(client.node(&machine.name).await?);
    }
    Ok(nodes)
}

async fn onboard(
    stage: &mut Stage,
    control: &mut Control,
    machines: &[Racked],
    terminal: &mut Terminal,
) -> Result<(), Failure> {
    let client = control.client();
    let clock = SharedClock::choose(stage.clock).0;
    let real = stage.state.asked.real_hosts > 0;
    let inputs = if real { operator::inputs_of_real_hosts() } else { operator::SiteInputs::new() };
    let (url, api_key) = (stage.simulator.maas_url(), stage.simulator.api_key());
    operator::add_site(&client, &url, api_key, inputs).await?;
    operator::add_profile(&client, stage.scenario.profile_fields()?).await?;
    if stage.scenario.roce {
        for (index, machine) in machines.iter().enumerate() {
            let addresses = scenario::fabric_of(stage.class, index);
            operator::add_fabric(&client, &machine.name, addresses).await?;
        }
    }
    let arrivals = Arrivals { clock: clock.as_ref(), begin: clock.now(), apart_seconds: 0.0 };
    // Where the control plane is killed, one machine comes late: see `kill_loop::torment`.
    let late = usize::from(matches!(control, Control::Killed { .. })).min(machines.len());
    let (early, late) = machines.split_at(machines.len() - late);
    operator::onboard(&client, early, arrivals).await?;
    let mut progress = Progress::new(terminal.interactive());
    let settled = watch::until_settled(&client, machines.len(), &RealClock, |nodes| {
        progress.show(nodes, clock.now(), terminal);
    });
    match control {
        Control::Here(_) => {
            let mut settled = std::pin::pin!(settled);
            let next = stage.scenario.acts.get(stage.state.acts_done);
            if let Some(act @ Act::Meanwhile { .. }) = next {
                let place = place(stage, &client, machines);
                tokio::select! {
                    done = place.act(*act) => done?,
                    _ = &mut settled => return Err(unset("nothing was left to interfere with")),
                }
                stage.act_done()?;
            }
            settled.await?;
        }
        Control::Killed { process, kills, .. } => {
            let plan = Kills {
                count: stage.scenario.kills,
                seed: stage.state.asked.seed,
                mean_seconds: mean_pause(stage),
            };
            let late = operator::onboard(&client, late, arrivals);
            tokio::select! {
                settled = settled => settled?,
                failure = kill_loop::torment(process, plan, kills, late) => return Err(failure),
            }
            process.start().await?;
        }
    }
    progress.end();
    Ok(())
}

fn unset(why: &str) -> Failure {
    Failure::local("scenario_unset", "The scenario was not reached", why)
}

/// Between two kills, so that all of them fall into the run.
fn mean_pause(stage: &Stage) -> f64 {
    match stage.clock {
        ClockChoice::Real => 0.1,
        ClockChoice::Paced { factor, .. } => {
            RUN_SECONDS / factor / f64::from(stage.scenario.kills + 2)
        }
    }
}

fn announce(stage: &Stage, terminal: &mut Terminal) {
    if !stage.resumed {
        terminal.say(&format!("lab of {}", stage.state.asked));
    }
    terminal.say(&match stage.clock {
        ClockChoice::Real => "hardware takes no time; seconds are real".to_owned(),
        ClockChoice::Paced { factor, .. } => {
            format!("seconds are simulated: the clock runs {factor} times as fast as the wall")
        }
    });
    urls(stage, terminal);
}

fn urls(stage: &Stage, terminal: &mut Terminal) {
    let plane = stage.plane();
    terminal.say(&format!("  MAAS region    {}/", stage.simulator.maas_url()));
    terminal.say(&format!("  MAAS API key   {}", stage.simulator.api_key()));
    terminal.say(&format!("  control plane  http://{}", plane.listen));
    terminal.say(&format!("  admin token    {}", plane.token_file().display()));
}

fn show(stage: &Stage, control: &Control, ended: &[Ended], tally: &Tally, terminal: &mut Terminal) {
    let style = terminal.style();
    if ended.len() <= DRAWN {
        for one in ended {
            terminal.say("");
            terminal.say(&waterfall::draw(&one.run, style));
        }
    }
    terminal.say("");
    terminal.say(&waterfall::bucket_table(&tally.runs, style));
    let clock = match stage.clock {
        ClockChoice::Real => String::new(),
        ClockChoice::Paced { factor, .. } => {
            format!(" (simulated seconds, {factor} times the wall)")
        }
    };
    let Tally { active, nodes, wall_seconds, .. } = tally;
    let what = match stage.scenario.acts {
        [] => format!("{active} of {nodes} machines active"),
        _ => format!("{nodes} machines went through the scenario"),
    };
    terminal.say(&format!("\n{what} in {wall_seconds:.1} s of the wall{clock}"));
    if let Control::Killed { kills, .. } = control {
        terminal.say(&format!("the control plane was killed {kills} times"));
    }
}

/// Leaves everything running until an interrupt.
async fn keep(stage: &Stage, terminal: &mut Terminal) -> Result<(), Failure> {
    let mut stop = std::pin::pin!(signals::stop()?);
    terminal.say("\nkept running until Ctrl-C:");
    urls(stage, terminal);
    terminal.say(&format!(
        "  try            gpuaas node list --server http://{} --token-file {}",
        stage.state.listen,
        stage.plane().token_file().display()
    ));
    let mut presence = interval(PRESENCE);
    loop {
        tokio::select! {
            () = &mut stop => return Ok(()),
            _ = presence.tick() => {
                // Asked only so that it does not think itself alone.
                stage.simulator.ask_version().await.ok();
            }
        }
    }
}

/// Takes the lab down. Its files are kept where something went wrong.
async fn leave(
    stage: Stage,
    control: Control,
    well: bool,
    terminal: &mut Terminal,
) -> Result<(), Failure> {
    let Stage { folder, simulator, database, .. } = stage;
    match control {
        Control::Here(here) => here.stop_with(simulator).await,
        Control::Killed { mut process, .. } => {
            process.kill();
            simulator.stop().await;
        }
    }
    folder.forget()?;
    if well {
        if let Some(database) = database {
            database.drop_it().await.map_err(of_store)?;
        }
        return folder.remove();
    }
    left_behind(folder.path(), terminal);
    Ok(())
}

fn left_behind(path: &Path, terminal: &mut Terminal) {
    terminal.say(&format!("its store and logs are left in {}", path.display()));
}
