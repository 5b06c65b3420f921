//! `gpuaas node task`.

use std::path::PathBuf;

use clap::{Args, Subcommand};
use gpuaas_types::agent::{Gate, PackageTarget, ServiceAction};
use gpuaas_types::filter::{FilterList, ListFilter};

use super::shared::{ActorArgs, filter_of};
use gpuaas_client::arguments::ApiArgs;

/// `gpuaas node task`.
#[derive(Debug, Clone, Args)]
pub struct NodeTaskArgs {
    /// Hostname, node id, MAAS system id or MAC.
    #[arg(value_name = "HOST")]
    pub node: String,
    /// What its agent is to do.
    #[command(subcommand)]
    pub kind: NodeTaskKind,
}

/// What an agent may be told to do.
#[derive(Debug, Clone, Subcommand)]
pub enum NodeTaskKind {
    /// Start, stop, restart, enable or disable a service.
    Service {
        /// start, stop, restart, enable or disable.
        #[arg(value_parser = action)]
        action: ServiceAction,
        /// The systemd unit, such as nginx.service.
        unit: String,
        /// How to ask.
        #[command(flatten)]
        options: TaskOptions,
    },
    /// Run the bundles and restart the units that the failing checks of its gates name.
    RepairDrift {
        /// Only this gate; repeat for more: active, slice_ready, telemetry.
        #[arg(long = "gate", value_name = "GATE")]
        gates: Vec<Gate>,
        /// How to ask.
        #[command(flatten)]
        options: TaskOptions,
    },
    /// Write certificates and mirrors of a registry for containerd and Docker.
    RefreshTrust {
        /// The registry, HOST or HOST:PORT.
        #[arg(long, value_name = "HOST")]
        registry: String,
        /// File with the certificate authorities that it is trusted by, PEM.
        #[arg(long, value_name = "FILE")]
        ca_file: Option<PathBuf>,
        /// Where containerd asks first; repeat for more.
        #[arg(long = "mirror", value_name = "URL")]
        mirrors: Vec<String>,
        /// How to ask.
        #[command(flatten)]
        options: TaskOptions,
    },
    /// Bring installed packages to the wanted versions, and no others.
    UpdatePackages {
        /// NAME or NAME=VERSION.
        #[arg(required = true, value_name = "PACKAGE", value_parser = package)]
        packages: Vec<PackageTarget>,
        /// A package that may change along with them; repeat for more.
        #[arg(long, value_name = "NAME")]
        along: Vec<String>,
        /// A package that must stay as it is; repeat for more.
        #[arg(long, value_name = "NAME")]
        hold: Vec<String>,
        /// Fetch the lists of packages first.
        #[arg(long)]
        refresh_lists: bool,
        /// Seconds to wait for another one that installs packages.
        #[arg(long, value_name = "SECONDS", default_value_t = 300)]
        lock_seconds: u32,
        /// How to ask.
        #[command(flatten)]
        options: TaskOptions,
    },
    /// Pack up units, journals, kernel messages, PCI functions and facts, without secrets.
    Diagnostics {
        /// A unit whose state and journal to return; repeat for more.
        #[arg(long = "unit", value_name = "UNIT")]
        units: Vec<String>,
        /// Last lines of each journal.
        #[arg(long, value_name = "LINES", default_value_t = 500)]
        journal_lines: u32,
        /// Largest archive in bytes, unpacked.
        #[arg(long, value_name = "BYTES", default_value_t = 4 << 20)]
        most_bytes: u32,
        /// Write the archive to this file, once it is there.
        #[arg(long = "to", alias = "save", value_name = "FILE", requires = "wait")]
        save: Option<PathBuf>,
        /// How to ask.
        #[command(flatten)]
        options: TaskOptions,
    },
    /// Put a newer version of the agent in its place [default: the control plane's own].
    AgentUpdate {
        /// A published bundle of kind node_agent, name@version or digest, approved for the site.
        #[arg(long, value_name = "BUNDLE")]
        bundle: Option<String>,
        /// Seconds in which it has to get a heartbeat through.
        #[arg(long, value_name = "SECONDS", default_value_t = 120)]
        confirm_seconds: u32,
        /// How to ask.
        #[command(flatten)]
        options: TaskOptions,
    },
}

/// How a task is asked for.
#[derive(Debug, Clone, Args)]
pub struct TaskOptions {
    /// Have the agent only say what it would do.
    #[arg(long)]
    pub dry_run: bool,
    /// Why; kept in the history.
    #[arg(long, value_name = "TEXT", default_value = "asked on the command line")]
    pub reason: String,
    /// Who says so.
    #[command(flatten)]
    pub who: ActorArgs,
    /// Seconds within which the agent has to begin.
    #[arg(long, value_name = "SECONDS", default_value_t = 900)]
    pub within: u32,
    /// Asking again with the same key and words gives no second task.
    #[arg(long, value_name = "KEY")]
    pub key: Option<String>,
    /// Wait for the result; exit code 5 where the task was not carried out.
    #[arg(long)]
    pub wait: bool,
    /// Seconds to wait at most.
    #[arg(long, value_name = "SECONDS", default_value_t = 7200, requires = "wait")]
    pub timeout: u64,
    /// Where to ask and how to print.
    #[command(flatten)]
    pub api: ApiArgs,
}

fn action(text: &str) -> Result<ServiceAction, String> {
    let known = ServiceAction::ALL.into_iter().find(|action| action.as_str() == text);
    known.ok_or_else(|| {
        format!("use one of {}", ServiceAction::ALL.map(ServiceAction::as_str).join(", "))
    })
}

fn package(text: &str) -> Result<PackageTarget, String> {
    match text.split_once('=') {
        Some((_, "")) => Err("write NAME or NAME=VERSION".to_owned()),
        Some((name, version)) => {
            Ok(PackageTarget { name: name.to_owned(), version: Some(version.to_owned()) })
        }
        None => Ok(PackageTarget { name: text.to_owned(), version: None }),
    }
}

/// `gpuaas node tasks`.
#[derive(Debug, Clone, Args)]
pub struct NodeTasksArgs {
    /// Hostname, node id, MAAS system id or MAC.
    #[arg(value_name = "HOST")]
    pub node: String,
    /// Only what this lets pass, such as `kind=service succeeded=false`: docs/reference/filters.md.
    #[arg(long, value_name = "FILTER", value_parser = filter_of(FilterList::Tasks))]
    pub filter: Option<ListFilter>,
    /// Look again whenever something happens, until interrupted.
    #[arg(long)]
    pub watch: bool,
    /// Where to ask and how to print.
    #[command(flatten)]
    pub api: ApiArgs,
}
