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
    /// Hostname, node ID, MAAS system ID or MAC.
    #[arg(value_name = "HOST")]
    pub node: String,
    /// Task to run.
    #[command(subcommand)]
    pub kind: NodeTaskKind,
}

/// Tasks that an agent can run.
#[derive(Debug, Clone, Subcommand)]
pub enum NodeTaskKind {
    /// Start, stop, restart, enable or disable a service.
    Service {
        /// Action: start, stop, restart, enable or disable.
        #[arg(value_parser = action)]
        action: ServiceAction,
        /// Systemd unit, such as nginx.service.
        unit: String,
        /// Task options.
        #[command(flatten)]
        options: TaskOptions,
    },
    /// Rerun the bundles and restart the units named by failing gate checks.
    RepairDrift {
        /// Only this gate; repeat for more: active, slice_ready, telemetry.
        #[arg(long = "gate", value_name = "GATE")]
        gates: Vec<Gate>,
        /// Task options.
        #[command(flatten)]
        options: TaskOptions,
    },
    /// Configure certificates and mirrors of a registry for containerd and Docker.
    RefreshTrust {
        /// Registry, as HOST or HOST:PORT.
        #[arg(long, value_name = "HOST")]
        registry: String,
        /// PEM file of certificate authorities to trust for the registry.
        #[arg(long, value_name = "FILE")]
        ca_file: Option<PathBuf>,
        /// Mirror that containerd tries first; repeat for more.
        #[arg(long = "mirror", value_name = "URL")]
        mirrors: Vec<String>,
        /// Task options.
        #[command(flatten)]
        options: TaskOptions,
    },
    /// Update only the given installed packages.
    UpdatePackages {
        /// Package, as NAME or NAME=VERSION.
        #[arg(required = true, value_name = "PACKAGE", value_parser = package)]
        packages: Vec<PackageTarget>,
        /// Package that may also change; repeat for more.
        #[arg(long, value_name = "NAME")]
        along: Vec<String>,
        /// Package that must not change; repeat for more.
        #[arg(long, value_name = "NAME")]
        hold: Vec<String>,
        /// Fetch package lists first.
        #[arg(long)]
        refresh_lists: bool,
        /// Seconds to wait for another package manager to finish.
        #[arg(long, value_name = "SECONDS", default_value_t = 300)]
        lock_seconds: u32,
        /// Task options.
        #[command(flatten)]
        options: TaskOptions,
    },
    /// Collect units, journals, kernel messages, PCI functions and facts, without secrets.
    Diagnostics {
        /// Unit whose state and journal to collect; repeat for more.
        #[arg(long = "unit", value_name = "UNIT")]
        units: Vec<String>,
        /// Number of last lines per journal.
        #[arg(long, value_name = "LINES", default_value_t = 500)]
        journal_lines: u32,
        /// Maximum size of the unpacked archive in bytes.
        #[arg(long, value_name = "BYTES", default_value_t = 4 << 20)]
        most_bytes: u32,
        /// File for the archive, written once it is available.
        #[arg(long = "to", alias = "save", value_name = "FILE", requires = "wait")]
        save: Option<PathBuf>,
        /// Task options.
        #[command(flatten)]
        options: TaskOptions,
    },
    /// Update the agent [default: to the control plane's own version].
    AgentUpdate {
        /// Published bundle of kind node_agent that is approved for the site, as name@version or
        /// digest.
        #[arg(long, value_name = "BUNDLE")]
        bundle: Option<String>,
        /// Seconds within which the updated agent must send a heartbeat.
        #[arg(long, value_name = "SECONDS", default_value_t = 120)]
        confirm_seconds: u32,
        /// Task options.
        #[command(flatten)]
        options: TaskOptions,
    },
}

/// Options of every task.
#[derive(Debug, Clone, Args)]
pub struct TaskOptions {
    /// Make the agent show what it would do and change nothing.
    #[arg(long)]
    pub dry_run: bool,
    /// Reason, recorded in the history.
    #[arg(long, value_name = "TEXT", default_value = "requested on the command line")]
    pub reason: String,
    /// Actor recorded for the change.
    #[command(flatten)]
    pub who: ActorArgs,
    /// Seconds within which the agent must start.
    #[arg(long, value_name = "SECONDS", default_value_t = 900)]
    pub within: u32,
    /// Idempotency key: repeating the request with the same key and arguments creates no second
    /// task.
    #[arg(long, value_name = "KEY")]
    pub key: Option<String>,
    /// Wait for the result; exit with code 5 if the task was not carried out.
    #[arg(long)]
    pub wait: bool,
    /// Maximum wait in seconds.
    #[arg(long, value_name = "SECONDS", default_value_t = 7200, requires = "wait")]
    pub timeout: u64,
    /// Connection and output options.
    #[command(flatten)]
    pub api: ApiArgs,
}

fn action(text: &str) -> Result<ServiceAction, String> {
    let known = ServiceAction::ALL.into_iter().find(|action| action.as_str() == text);
    known.ok_or_else(|| {
        format!("expected one of {}", ServiceAction::ALL.map(ServiceAction::as_str).join(", "))
    })
}

fn package(text: &str) -> Result<PackageTarget, String> {
    match text.split_once('=') {
        Some((_, "")) => Err("expected NAME or NAME=VERSION".to_owned()),
        Some((name, version)) => {
            Ok(PackageTarget { name: name.to_owned(), version: Some(version.to_owned()) })
        }
        None => Ok(PackageTarget { name: text.to_owned(), version: None }),
    }
}

/// `gpuaas node tasks`.
#[derive(Debug, Clone, Args)]
pub struct NodeTasksArgs {
    /// Hostname, node ID, MAAS system ID or MAC.
    #[arg(value_name = "HOST")]
    pub node: String,
    /// Filter expression, such as `kind=service succeeded=false`: docs/reference/filters.md.
    #[arg(long, value_name = "FILTER", value_parser = filter_of(FilterList::Tasks))]
    pub filter: Option<ListFilter>,
    /// Refresh on every event, until interrupted.
    #[arg(long)]
    pub watch: bool,
    /// Connection and output options.
    #[command(flatten)]
    pub api: ApiArgs,
}
