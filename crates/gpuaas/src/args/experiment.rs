//! Arguments of `gpuaas experiment`.

use std::path::PathBuf;

use clap::{Args, Subcommand};
use gpuaas_client::arguments::ApiArgs;
use gpuaas_types::experiment::PrimaryMeasure;

use super::shared::{ActorArgs, PlannedArgs, ShowArgs};

/// `gpuaas experiment`.
#[derive(Debug, Subcommand)]
pub enum ExperimentCommand {
    /// Deploy randomly chosen nodes with two images, and compare the images; shows its plan first.
    Start(Box<ExperimentStartArgs>),
    /// Start all runs that can start now: runs that could not start before, and the second run of
    /// each pair.
    Next(ExperimentStopArgs),
    /// Show the plan, the progress, and the result once all runs have ended.
    Show(ShowArgs),
    /// List experiments, newest first.
    List(ExperimentListArgs),
    /// Start no further runs; judge the runs that have ended.
    Stop(ExperimentStopArgs),
    /// Import times of earlier runs from a file, and compare them.
    Import(ExperimentImportArgs),
}

/// `gpuaas experiment start`.
#[derive(Debug, Clone, Args)]
pub struct ExperimentStartArgs {
    /// Name of the experiment.
    #[arg(value_name = "NAME")]
    pub name: String,
    /// Image; give it twice: first A (the baseline), then B.
    #[arg(long = "image", value_name = "IMAGE", required = true, num_args = 1)]
    pub images: Vec<String>,
    /// Profile of the nodes; active nodes with this profile are redeployed.
    #[arg(long, value_name = "NAME")]
    pub profile: String,
    /// Site of the nodes.
    #[arg(long, value_name = "NAME")]
    pub site: String,
    /// Total number of nodes, half for each image.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(2..=200))]
    pub nodes: u32,
    /// Deploy each node with both images, in random order.
    #[arg(long)]
    pub pairs: bool,
    /// Measure to compare: time_to_active or time_to_slice_ready.
    #[arg(long, value_name = "MEASURE", default_value = "time_to_active")]
    pub primary: PrimaryMeasure,
    /// Largest difference in seconds that does not matter.
    #[arg(long, value_name = "SECONDS", default_value_t = 30.0)]
    pub margin: f64,
    /// Random seed of the assignment [default: a random one, which is shown].
    #[arg(long, value_name = "NUMBER")]
    pub seed: Option<u64>,
    /// Reason and confirmation options.
    #[command(flatten)]
    pub planned: PlannedArgs,
    /// Connection and output options.
    #[command(flatten)]
    pub api: ApiArgs,
}

/// `gpuaas experiment list`.
#[derive(Debug, Clone, Args)]
pub struct ExperimentListArgs {
    /// Only for this site; required if your role is limited to some sites.
    #[arg(long, value_name = "NAME")]
    pub site: Option<String>,
    /// Connection and output options.
    #[command(flatten)]
    pub api: ApiArgs,
}

/// `gpuaas experiment stop` and `experiment next`.
#[derive(Debug, Clone, Args)]
pub struct ExperimentStopArgs {
    /// Name of the experiment.
    #[arg(value_name = "NAME")]
    pub name: String,
    /// Reason, recorded in the audit log.
    #[arg(long, value_name = "TEXT")]
    pub reason: String,
    /// Actor recorded for the change.
    #[command(flatten)]
    pub who: ActorArgs,
    /// Connection and output options.
    #[command(flatten)]
    pub api: ApiArgs,
}

/// `gpuaas experiment import`.
#[derive(Debug, Clone, Args)]
pub struct ExperimentImportArgs {
    /// JSON file: `arms`, two objects with `image`, `digest`, `conditions` (class, profile,
    /// maas_version) and `runs` (host, failed, buckets in seconds, time_to_active).
    #[arg(value_name = "FILE")]
    pub file: PathBuf,
    /// Name of the experiment.
    #[arg(long, value_name = "NAME")]
    pub name: String,
    /// Site of the runs.
    #[arg(long, value_name = "NAME")]
    pub site: String,
    /// Reason, recorded in the audit log.
    #[arg(long, value_name = "TEXT")]
    pub reason: String,
    /// Actor recorded for the change.
    #[command(flatten)]
    pub who: ActorArgs,
    /// Connection and output options.
    #[command(flatten)]
    pub api: ApiArgs,
}
