//! `gpuaas migrate-store`.

use std::path::PathBuf;

use clap::Args;
use gpuaas_client::arguments::Format;

use super::key::MasterKeyArgs;
use super::shared::ActorArgs;

/// `gpuaas migrate-store`.
#[derive(Debug, Clone, Args)]
pub struct MigrateStoreArgs {
    /// Data folder of the stopped control plane.
    #[arg(long, value_name = "DIR", default_value = "gpuaas-data")]
    pub from: PathBuf,
    /// Empty PostgreSQL database to move to: postgres://USER:PASSWORD@HOST:PORT/DATABASE.
    #[arg(long, value_name = "URL", env = "GPUAAS_DATABASE", hide_env_values = true)]
    pub to: String,
    /// Master key options.
    #[command(flatten)]
    pub master_key: MasterKeyArgs,
    /// Allow a PostgreSQL server on another host without `sslmode=verify-full`.
    #[arg(long)]
    pub insecure_database: bool,
    /// Show what would be moved and change nothing; the control plane can keep running.
    #[arg(long)]
    pub dry_run: bool,
    /// Move again, although this folder was moved before; confirms that the earlier target database
    /// will never be used again.
    #[arg(long)]
    pub earlier_is_gone: bool,
    /// Reason, recorded in the audit log.
    #[arg(long, value_name = "TEXT", default_value = "several control planes")]
    pub reason: String,
    /// Actor recorded for the change.
    #[command(flatten)]
    pub who: ActorArgs,
    /// Output format on stdout.
    #[arg(short = 'o', long = "output", value_enum, default_value_t, value_name = "FORMAT")]
    pub format: Format,
}
