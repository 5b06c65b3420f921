//! `gpuaas doctor`.

use std::path::PathBuf;

use clap::Args;
use gpuaas_client::arguments::Format;

use super::key::MasterKeyArgs;

/// `gpuaas doctor`.
#[derive(Debug, Clone, Args)]
pub struct DoctorArgs {
    /// Data folder of the control plane.
    #[arg(long, value_name = "DIR", default_value = "gpuaas-data")]
    pub data: PathBuf,
    /// Database of the control plane, as given to `gpuaas serve` [default: DATA/gpuaas.db].
    #[arg(long, value_name = "URL", env = "GPUAAS_DATABASE", hide_env_values = true)]
    pub database: Option<String>,
    /// Master key options.
    #[command(flatten)]
    pub master_key: MasterKeyArgs,
    /// Executable of the node agent [default: gpuaas-node-agent next to this executable].
    #[arg(long, value_name = "PATH")]
    pub agent_binary: Option<PathBuf>,
    /// PEM file of more certificates to check, besides those in the data folder; repeat for more.
    #[arg(long = "certificate-file", value_name = "FILE")]
    pub certificate_files: Vec<PathBuf>,
    /// Report certificates that expire within this many days.
    #[arg(long, value_name = "DAYS", default_value_t = 14)]
    pub certificate_days: u32,
    /// Free space required on the disk of the data folder.
    #[arg(long, value_name = "BYTES", default_value_t = 1 << 30)]
    pub min_free_bytes: u64,
    /// Output format on stdout.
    #[arg(short = 'o', long = "output", value_enum, default_value_t, value_name = "FORMAT")]
    pub format: Format,
}
