//! How simulated hosts are run, and what they may lose.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

use clap::ValueEnum;
use gpuaas_engine::Pauses;
use maas_sim::{HardwareClass, SimRng};

use crate::clock::SharedClock;

/// What runs on a simulated host once it is deployed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum HostMode {
    /// Run the real bootstrap scripts and the agent executable, in a folder per host.
    Process,
    /// Run only the agent's protocol code, inside this process.
    Fleet,
    /// Run nothing; store the user-data as `user-data` in the host's folder.
    None,
}

/// Machines up to which the hosts' software runs as processes, where nothing else was asked.
pub const PROCESS_HOSTS: usize = 8;

/// How simulated hosts are run.
#[derive(Clone)]
pub struct HostsOptions {
    /// What runs on a host.
    pub mode: HostMode,
    /// Folder of the hosts' root folders.
    pub dir: PathBuf,
    /// Time of the region, in which a bootstrap takes what was drawn for it. Agents that are
    /// processes live on the machine's own clock.
    pub clock: SharedClock,
    /// Makes that clock stand still while processes compute; none: it runs on.
    pub pauses: Option<Pauses>,
    /// Seed of what hosts draw.
    pub seed: u64,
    /// How long the bootstrap of a host takes.
    pub times: BootTimes,
    /// Names of machines that are real but for their hardware.
    pub real_hosts: Vec<String>,
    /// The system that those boot; none: the one that was made beside this executable.
    pub rootfs: Option<PathBuf>,
    /// What hosts have lost by the time their agents are installed.
    pub lost: Vec<HostLoss>,
    /// Whether scripts run that are not those which this executable renders.
    pub any_scripts: bool,
}

/// What a host may lose.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Loss {
    /// What joins it to the fabric.
    Fabric,
    /// One of its GPUs.
    Gpu,
    /// The kernel options that its deployment should have carried.
    KernelOptions,
}

impl Loss {
    const ALL: [(&str, Self); 3] =
        [("fabric", Self::Fabric), ("gpu", Self::Gpu), ("kernel-options", Self::KernelOptions)];
}

/// A host that loses something, as `NAME=WHAT`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HostLoss {
    /// The machine's name.
    pub host: String,
    /// Which part of the host is lost.
    pub loss: Loss,
}

impl FromStr for HostLoss {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (host, what) = text.split_once('=').ok_or("expected NAME=WHAT")?;
        let known = Loss::ALL.iter().find(|(name, _)| *name == what);
        let (_, loss) = known.ok_or("expected NAME=fabric, NAME=gpu or NAME=kernel-options")?;
        Ok(Self { host: host.to_owned(), loss: *loss })
    }
}

impl fmt::Display for HostLoss {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = Loss::ALL.iter().find(|(_, loss)| *loss == self.loss).map(|(name, _)| *name);
        write!(f, "{}={}", self.host, name.unwrap_or_default())
    }
}

/// How long the bootstrap of a host takes, in seconds, evenly drawn between two bounds.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct BootTimes {
    /// The site bundle.
    pub site_seconds: (f64, f64),
    /// The installation of the agent.
    pub node_seconds: (f64, f64),
}

impl BootTimes {
    /// What belongs to hardware of `class`, times `scale`.
    #[must_use]
    pub fn of_class(class: &HardwareClass, scale: f64) -> Self {
        if class.name == maas_sim::ZERO.name {
            return Self { site_seconds: (0.0, 0.0), node_seconds: (0.0, 0.0) };
        }
        Self {
            site_seconds: (120.0 * scale, 240.0 * scale),
            node_seconds: (20.0 * scale, 40.0 * scale),
        }
    }

    /// The same with a site bundle that takes only this part of the time.
    #[must_use]
    pub fn with_site_part(self, part: f64) -> Self {
        let (low, high) = self.site_seconds;
        Self { site_seconds: (low * part, high * part), ..self }
    }

    /// What `seed` draws for the host of this name.
    #[must_use]
    pub fn draw(&self, seed: u64, hostname: &str) -> DrawnTimes {
        let mut rng = SimRng::for_name(seed, &format!("boot/{hostname}"));
        let mut draw = |(low, high): (f64, f64)| low + (high - low) * rng.uniform();
        DrawnTimes { site_seconds: draw(self.site_seconds), node_seconds: draw(self.node_seconds) }
    }
}

/// How long the bootstrap of one host takes, in seconds.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct DrawnTimes {
    /// The site bundle.
    pub site_seconds: f64,
    /// The installation of the agent.
    pub node_seconds: f64,
}
