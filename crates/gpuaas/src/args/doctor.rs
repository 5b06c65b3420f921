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
    /// Its database, as `gpuaas serve` is started with [default: DATA/gpuaas.db].
    #[arg(long, value_name = "URL", env = "GPUAAS_DATABASE", hide_env_values = true)]
    pub database: Option<String>,
    /// Its master keys.
    #[command(flatten)]
    pub master_key: MasterKeyArgs,
    /// The node agent's executable [default: gpuaas-node-agent beside this executable].
    #[arg(long, value_name = "PATH")]
    pub agent_binary: Option<PathBuf>,
    /// Certificates to look at, PEM, beside those of the data folder; repeat for more.
    #[arg(long = "certificate-file", value_name = "FILE")]
    pub certificate_files: Vec<PathBuf>,
    /// How near its end a certificate may be, in days.
    #[arg(long, value_name = "DAYS", default_value_t = 14)]
    pub certificate_days: u32,
    /// Room that the disk of the data folder has to have.
    #[arg(long, value_name = "BYTES", default_value_t = 1 << 30)]
    pub min_free_bytes: u64,
    /// How to print the answer on stdout.
    #[arg(short = 'o', long = "output", value_enum, default_value_t, value_name = "FORMAT")]
    pub format: Format,
}
