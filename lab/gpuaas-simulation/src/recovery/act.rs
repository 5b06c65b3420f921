//! What people do in a case, and who runs the operator's command lines.

use async_trait::async_trait;
use gpuaas_client::failure::Failure;
use gpuaas_types::Step;
use gpuaas_types::codes::WaitCode;
use maas_sim::Fault;

use crate::control_plane_parts::ControlPlaneParts;
use crate::shared_state::HostFault;

/// Runs command lines of `gpuaas` against one control plane.
#[async_trait(?Send)]
pub trait CommandLine {
    /// Runs `command`, the executable's name included. Answers what it printed on stdout.
    ///
    /// # Errors
    /// What it printed on stderr where it failed or is not a command.
    async fn run(&self, command: &str) -> Result<String, String>;

    /// Has the control plane look once at what goes on in experiments by itself. Answers how many runs
    /// began and experiments ended.
    async fn advance_experiments(&self) -> usize;
}

/// Gives a simulation's control plane its admin API and its operators a command line.
#[async_trait(?Send)]
pub trait Operators: Send + Sync {
    /// The command line of an operator.
    ///
    /// # Errors
    /// What keeps the API from being served.
    async fn serve(&self, parts: ControlPlaneParts) -> Result<Box<dyn CommandLine>, Failure>;
}

/// Something that happens or that somebody does. In texts `{id}` stands for MAAS' identifier of the
/// host's machine, `{host}` for the host's name, `{bmc}` for the address of its BMC, `{nic}` for the id of its first fabric interface, `{run}`
/// for the run and `{folder}` for a folder of the simulation's own.
#[derive(Debug, Clone)]
pub enum Act {
    /// Something goes wrong with a call or a machine.
    Fault(Fault),
    /// Nothing goes wrong with calls and machines any more.
    ClearFaults,
    /// Something goes wrong on hosts, or nothing does any more.
    Host(Option<HostFault>),
    /// Somebody runs the boot scripts of every host again.
    RunBootScripts,
    /// The boot network's DHCP is on or off.
    Dhcp(bool),
    /// The host of this name is in MAAS, Ready; the flag says whether it is locked.
    Ready(&'static str, bool),
    /// MAAS knows the host's hardware as Ready under this name.
    ReadyAs(&'static str),
    /// The host of this name boots from the network and is enlisted.
    Enlist(&'static str),
    /// A person gives a machine another hostname in MAAS: from, to.
    Rename(&'static str, &'static str),
    /// A person deletes every machine of this hostname in MAAS.
    Delete(&'static str),
    /// A person uploads an image of this name to MAAS.
    Upload(&'static str),
    /// A person aborts what the machine of this hostname does.
    Abort(&'static str),
    /// A person calls MAAS: method, path below the API's root, form.
    Maas(&'static str, &'static str, &'static str),
    /// The same as another user, who deploys the machine.
    DeployAs(&'static str),
    /// A person waits until MAAS shows this status.
    UntilMaas(&'static str),
    /// A backup of MAAS is made.
    BackUpMaas,
    /// MAAS is restored from that backup.
    RestoreMaas,
    /// Time passes, in seconds.
    Seconds(f64),
    /// An operator runs a command.
    Command(&'static str),
    /// An operator writes a file below the simulation's folder: name, text.
    Write(&'static str, &'static str),
}

/// When something happens during a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum When {
    /// The run is at this step.
    Step(Step),
    /// The run waits for what has this code.
    Wait(WaitCode),
    /// MAAS shows this status.
    Maas(&'static str),
    /// MAAS knows the machine.
    InMaas,
}
