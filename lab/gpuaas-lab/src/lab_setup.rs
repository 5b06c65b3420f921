//! Sets up the folder, region and store of a lab: a new one, or one that was killed before.

use std::net::{SocketAddr, TcpListener};
use std::time::Duration;

use clap::Parser as _;
use gpuaas_client::failure::{Failure, store_failure};
use gpuaas_client::terminal::Terminal;
use gpuaas_engine::ClockChoice;
use gpuaas_engine::{Clock, Pauses, RealClock};
use gpuaas_store::ScratchDatabase;
use gpuaas_types::codes::CommandCode;
use tokio::time::interval;

use crate::arguments::{LabArgs, MachineClass, Speed};
use crate::control_plane::{self, ControlPlanePlan};
use crate::hosts::options::HostMode;
use crate::hosts::options::{HostLoss, PROCESS_HOSTS};
use crate::record::MachineInventory;
use crate::region::write_whole;
use crate::scenario::{InitialRegion, Scenario};
use crate::simulator::{Simulator, SimulatorPlan};
use crate::state::{API_KEY_FILE, LabFolder, LabRequest, LabState};

/// Names of the lab that the first machines stand for.
const NAMES: [&str; 3] = ["j22u11", "j22u15", "j27u15"];
const LOOK: Duration = Duration::from_millis(50);

/// A lab that can go on.
pub struct LabSetup {
    /// Its folder, locked.
    pub folder: LabFolder,
    /// What is remembered of it.
    pub state: LabState,
    /// What goes wrong in it.
    pub scenario: &'static Scenario,
    /// The region.
    pub simulator: Simulator,
    /// The clock that everything runs on.
    pub clock: ClockChoice,
    /// What the machines are.
    pub class: MachineClass,
    /// Its own database on a server.
    pub database: Option<ScratchDatabase>,
    /// Whether it was begun by an earlier process.
    pub resumed: bool,
}

impl LabSetup {
    /// Begins a lab in `folder`, or finds the unfinished one there.
    ///
    /// # Errors
    /// `lab_unfinished` where another lab is unfinished there; what keeps a simulator or a database
    /// from starting.
    pub async fn prepare(
        args: &LabArgs,
        folder: LabFolder,
        terminal: &mut Terminal,
    ) -> Result<Self, Failure> {
        let request = request(args);
        Scenario::by_name(&request.scenario)?;
        if let Some(state) = folder.unfinished()? {
            match Simulator::find(&state.simulator).await? {
                Some(simulator)
                    if request == state.asked || Some(&request) == default_request().as_ref() =>
                {
                    terminal.message(&format!("resuming the lab with {}", state.asked));
                    return Self::resume(args, folder, state, simulator);
                }
                Some(_) => return Err(unfinished(&folder, &state.asked)),
                None => terminal.message(&format!(
                    "the simulator of the lab with {} no longer runs: starting a new lab",
                    state.asked
                )),
            }
        }
        Self::begin(args, request, folder).await
    }

    fn resume(
        args: &LabArgs,
        folder: LabFolder,
        state: LabState,
        simulator: Simulator,
    ) -> Result<Self, Failure> {
        control_plane::kill_leftovers(&folder.join("control-plane"));
        let database = match &args.database {
            Some(url) => Some(
                ScratchDatabase::existing(url, &database_name(&folder)).map_err(store_failure)?,
            ),
            None => None,
        };
        write_whole(&folder.join(API_KEY_FILE), simulator.api_key(), 0o600)?;
        let clock = state
            .clock
            .parse()
            .map_err(|why: String| Failure::local(CommandCode::LabFolderUnusable, why))?;
        Ok(Self {
            scenario: Scenario::by_name(&state.asked.scenario)?,
            class: class_of(&state.asked.speed),
            folder,
            state,
            simulator,
            clock,
            database,
            resumed: true,
        })
    }

    async fn begin(args: &LabArgs, asked: LabRequest, folder: LabFolder) -> Result<Self, Failure> {
        folder.clear()?;
        let scenario = Scenario::by_name(&asked.scenario)?;
        let class = class_of(&asked.speed);
        let clock = match args.speed {
            Speed::Max => ClockChoice::Real,
            Speed::Times(factor) => {
                let path = folder.join("clock-pauses");
                let pauses = Pauses::open(&path).map_err(|error| {
                    let detail = format!("{}: {error}", path.display());
                    Failure::local(CommandCode::LabFolderUnusable, detail)
                })?;
                ClockChoice::Paced { factor, epoch: RealClock.now(), pauses: Some(pauses) }
            }
        };
        let faults = folder.join("faults.json");
        write(&faults, &scenario.fault_file([NAMES[0], NAMES[1]], class))?;
        let names = &NAMES[..NAMES.len().min(asked.nodes)];
        let hosts = if asked.nodes <= PROCESS_HOSTS { HostMode::Process } else { HostMode::Fleet };
        // A fleet of stand-ins has no keys; as soon as one host is real, all of them do.
        let stand_ins = hosts == HostMode::Fleet && asked.real_hosts == 0;
        let node_listen = if stand_ins { None } else { Some(free_port()?) };
        let simulator = Simulator::start(&SimulatorPlan {
            machines: asked.nodes,
            names,
            seed: asked.seed,
            class,
            hosts,
            real_hosts: asked.real_hosts,
            rootfs: args.rootfs.as_deref(),
            lost: host_losses(scenario, names),
            hosts_dir: folder.join("hosts"),
            clock: clock.clone(),
            faults: Some(faults),
            log: folder.join("simulator.log"),
        })
        .await?;
        prepare_region(scenario.before, &simulator).await?;
        let before =
            simulator.machine_inventory().await?.into_iter().filter_map(|m| m.system_id).collect();
        let database = match &args.database {
            Some(url) => {
                let name = database_name(&folder);
                Some(ScratchDatabase::create(url, &name).await.map_err(store_failure)?)
            }
            None => None,
        };
        let state = LabState {
            asked,
            clock: clock.to_string(),
            simulator: simulator.at().clone(),
            listen: free_port()?,
            node_listen,
            before,
            begun_at: RealClock.now(),
            actions_done: 0,
        };
        folder.remember(&state)?;
        write_whole(&folder.join(API_KEY_FILE), simulator.api_key(), 0o600)?;
        Ok(Self { folder, state, scenario, simulator, clock, class, database, resumed: false })
    }

    /// How many machines, from the first on, have an agent that evaluates the gates of a host.
    pub fn evaluated_hosts(&self) -> usize {
        let asked = &self.state.asked;
        if asked.nodes <= PROCESS_HOSTS { asked.nodes } else { asked.real_hosts }
    }

    /// Remembers that one more act of the scenario is over.
    ///
    /// # Errors
    /// `lab_folder_unusable`.
    pub fn action_done(&mut self) -> Result<(), Failure> {
        self.state.actions_done += 1;
        self.folder.remember(&self.state)
    }

    /// How to start the control plane of this lab.
    #[must_use]
    pub fn plane(&self) -> ControlPlanePlan {
        ControlPlanePlan {
            listen: self.state.listen,
            node_listen: self.state.node_listen,
            data: self.folder.join("control-plane"),
            database: self.database.as_ref().map(|database| database.url().to_owned()),
            nats: None,
            clock: self.clock.clone(),
            sweeps: self.scenario.needs_sweeps(),
        }
    }

    /// The machines to onboard: as many as were asked for, in rack order.
    ///
    /// # Errors
    /// When the simulator does not answer.
    pub async fn machines(&self) -> Result<Vec<MachineInventory>, Failure> {
        let mut inventory = self.simulator.machine_inventory().await?;
        inventory.truncate(self.state.asked.nodes);
        Ok(inventory)
    }

    /// Seconds of the lab's clock per second of the wall.
    #[must_use]
    pub const fn factor(&self) -> f64 {
        match self.clock {
            ClockChoice::Real | ClockChoice::File(_) => 1.0,
            ClockChoice::Paced { factor, .. } => factor,
        }
    }
}

fn host_losses(scenario: &Scenario, names: &[&str]) -> Vec<HostLoss> {
    let Some((loss, which)) = scenario.loses else { return Vec::new() };
    let those = names.iter().enumerate().filter(|(index, _)| which.includes(*index));
    those.map(|(_, name)| HostLoss { host: (*name).to_owned(), loss }).collect()
}

fn request(args: &LabArgs) -> LabRequest {
    LabRequest {
        nodes: args.machines(),
        speed: match args.speed {
            Speed::Max => "max".to_owned(),
            Speed::Times(factor) => factor.to_string(),
        },
        seed: args.seed,
        scenario: args.scenario.clone().unwrap_or_else(|| "plain".to_owned()),
        real_hosts: args.real_hosts.min(args.machines()),
    }
}

/// What a bare `gpuaas lab` asks for: whoever types that goes on with whatever is unfinished.
fn default_request() -> Option<LabRequest> {
    #[derive(clap::Parser)]
    struct Bare {
        #[command(flatten)]
        lab: LabArgs,
    }
    Bare::try_parse_from(["lab"]).ok().map(|bare| request(&bare.lab))
}

fn class_of(speed: &str) -> MachineClass {
    if speed == "max" { MachineClass::Zero } else { MachineClass::H200 }
}

fn unfinished(folder: &LabFolder, asked: &LabRequest) -> Failure {
    Failure::usage(
        CommandCode::LabUnfinished,
        format!("{} contains an unfinished lab with {asked}", folder.path().display()),
    )
    .hint(
        "finish it with `gpuaas lab` without options, use another --data DIR, or remove the folder",
    )
}

/// A name of this folder's own, so that two labs on one server do not meet.
fn database_name(folder: &LabFolder) -> String {
    use std::hash::{DefaultHasher, Hash as _, Hasher as _};
    let mut hasher = DefaultHasher::new();
    folder.path().hash(&mut hasher);
    format!("gpuaas_lab_{:016x}", hasher.finish())
}

/// A port that is free now. Taken before the control plane starts, because nodes are told its
/// address and it must be the same after a restart.
pub(crate) fn free_port() -> Result<SocketAddr, Failure> {
    TcpListener::bind(("127.0.0.1", 0))
        .and_then(|listener| listener.local_addr())
        .map_err(|error| Failure::local(CommandCode::NoFreePort, error.to_string()))
}

fn write(path: &std::path::Path, text: &str) -> Result<(), Failure> {
    std::fs::write(path, text).map_err(|error| {
        let detail = format!("{}: {error}", path.display());
        Failure::local(CommandCode::LabFolderUnusable, detail)
    })
}

/// What someone did in MAAS before.
async fn prepare_region(before: InitialRegion, simulator: &Simulator) -> Result<(), Failure> {
    let inventory = simulator.machine_inventory().await?;
    let Some(first) = inventory.first() else { return Ok(()) };
    match before {
        InitialRegion::Nothing => Ok(()),
        InitialRegion::TwinOfFirst => {
            let old = format!("{}-old", first.name);
            simulator.enlist(&old, &first.mac_address).await?;
            simulator.enlist(&first.name, "02:00:5e:00:53:01").await
        }
        InitialRegion::FirstDeployed => {
            simulator.enlist(&first.name, &first.mac_address).await?;
            simulator.human_action("commission", &first.name).await?;
            until_status(simulator, &first.name, "Ready").await?;
            simulator.human_action("deploy", &first.name).await?;
            until_status(simulator, &first.name, "Deployed").await
        }
    }
}

async fn until_status(simulator: &Simulator, name: &str, status: &str) -> Result<(), Failure> {
    let mut looks = interval(LOOK);
    loop {
        looks.tick().await;
        let inventory = simulator.machine_inventory().await?;
        let machine = inventory.iter().find(|machine| machine.name == name);
        match machine.and_then(|machine| machine.status.as_deref()) {
            Some(now) if now == status => return Ok(()),
            Some(now) if now.starts_with("Failed") => {
                let detail = format!("{name} is {now}, expected {status}");
                return Err(Failure::local(CommandCode::ScenarioUnset, detail));
            }
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bare_lab_asks_for_the_defaults() {
        let bare = default_request().unwrap();
        assert_eq!((bare.nodes, bare.seed, bare.scenario.as_str()), (3, 1, "plain"));
    }

    #[test]
    fn max_speed_means_machines_that_take_no_time() {
        assert_eq!(class_of("max"), MachineClass::Zero);
        assert_eq!(class_of("30"), MachineClass::H200);
    }
}
