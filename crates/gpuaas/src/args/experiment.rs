//! Arguments of `gpuaas experiment`.

use std::path::PathBuf;

use clap::{Args, Subcommand};
use gpuaas_client::arguments::ApiArgs;
use gpuaas_types::experiment::PrimaryMeasure;

use super::shared::{ActorArgs, PlannedArgs, ShowArgs};

/// `gpuaas experiment`.
#[derive(Debug, Subcommand)]
pub enum ExperimentCommand {
    /// Deploy nodes that are drawn at random with two images, and compare them; shows its plan first.
    Start(Box<ExperimentStartArgs>),
    /// Begin what may begin by now: what could not before, and the second run of each pair.
    Next(ExperimentStopArgs),
    /// Show what was planned, how far it is, and what the runs say once all have ended.
    Show(ShowArgs),
    /// List experiments, the newest first.
    List(ExperimentListArgs),
    /// Begin nothing of it any more; what has ended is judged.
    Stop(ExperimentStopArgs),
    /// Compare times of earlier runs that a file holds.
    Import(ExperimentImportArgs),
}

/// `gpuaas experiment start`.
#[derive(Debug, Clone, Args)]
pub struct ExperimentStartArgs {
    /// Name of the experiment.
    #[arg(value_name = "NAME")]
    pub name: String,
    /// An image: once for A, which B is compared with, once for B.
    #[arg(long = "image", value_name = "IMAGE", required = true, num_args = 1)]
    pub images: Vec<String>,
    /// Profile of the nodes; active ones of it are deployed again.
    #[arg(long, value_name = "NAME")]
    pub profile: String,
    /// Site of the nodes.
    #[arg(long, value_name = "NAME")]
    pub site: String,
    /// Nodes in all, half of them for each image.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(2..=200))]
    pub nodes: u32,
    /// Deploy each node with both images, in an order that is drawn.
    #[arg(long)]
    pub pairs: bool,
    /// The measure that it is about: time_to_active or time_to_slice_ready.
    #[arg(long, value_name = "MEASURE", default_value = "time_to_active")]
    pub primary: PrimaryMeasure,
    /// Seconds of a difference that does not matter.
    #[arg(long, value_name = "SECONDS", default_value_t = 30.0)]
    pub margin: f64,
    /// Seed of the assignment [default: one is drawn and shown].
    #[arg(long, value_name = "NUMBER")]
    pub seed: Option<u64>,
    /// Why, and whether to ask.
    #[command(flatten)]
    pub planned: PlannedArgs,
    /// Where to ask and how to print.
    #[command(flatten)]
    pub api: ApiArgs,
}

/// `gpuaas experiment list`.
#[derive(Debug, Clone, Args)]
pub struct ExperimentListArgs {
    /// Only of this site; a role for some sites wants one.
    #[arg(long, value_name = "NAME")]
    pub site: Option<String>,
    /// Where to ask and how to print.
    #[command(flatten)]
    pub api: ApiArgs,
}

/// `gpuaas experiment stop` and `experiment next`.
#[derive(Debug, Clone, Args)]
pub struct ExperimentStopArgs {
    /// Name of the experiment.
    #[arg(value_name = "NAME")]
    pub name: String,
    /// Why; kept in the audit.
    #[arg(long, value_name = "TEXT")]
    pub reason: String,
    /// Who says so.
    #[command(flatten)]
    pub who: ActorArgs,
    /// Where to ask and how to print.
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
    /// Site that it is of.
    #[arg(long, value_name = "NAME")]
    pub site: String,
    /// Why; kept in the audit.
    #[arg(long, value_name = "TEXT")]
    pub reason: String,
    /// Who says so.
    #[command(flatten)]
    pub who: ActorArgs,
    /// Where to ask and how to print.
    #[command(flatten)]
    pub api: ApiArgs,
}
