//! `gpuaas migrate-store`.

use std::path::PathBuf;

use clap::Args;
use gpuaas_client::arguments::Format;

use super::key::MasterKeyArgs;
use super::shared::ActorArgs;

/// `gpuaas migrate-store`.
#[derive(Debug, Clone, Args)]
pub struct MigrateStoreArgs {
    /// Data folder of the control plane, which is stopped.
    #[arg(long, value_name = "DIR", default_value = "gpuaas-data")]
    pub from: PathBuf,
    /// The PostgreSQL database, which is empty: postgres://USER:PASSWORD@HOST:PORT/DATABASE.
    #[arg(long, value_name = "URL", env = "GPUAAS_DATABASE", hide_env_values = true)]
    pub to: String,
    /// Its master keys.
    #[command(flatten)]
    pub master_key: MasterKeyArgs,
    /// Take a database on another host although the connection is not known to be with it.
    #[arg(long)]
    pub insecure_database: bool,
    /// Only print what would be moved; the control plane may run.
    #[arg(long)]
    pub dry_run: bool,
    /// The folder was moved before, and that database will never be used again: move it once more.
    #[arg(long)]
    pub earlier_is_gone: bool,
    /// Why; kept in the audit.
    #[arg(long, value_name = "TEXT", default_value = "several control planes")]
    pub reason: String,
    /// Who does so.
    #[command(flatten)]
    pub who: ActorArgs,
    /// How to print the answer on stdout.
    #[arg(short = 'o', long = "output", value_enum, default_value_t, value_name = "FORMAT")]
    pub format: Format,
}
