//! `gpuaas backup` and `gpuaas restore`.

use std::path::PathBuf;

use clap::Args;

use super::key::MasterKeyArgs;
use super::shared::ActorArgs;

/// `gpuaas backup`.
#[derive(Debug, Clone, Args)]
pub struct BackupArgs {
    /// Folder to write; it must not exist yet.
    #[arg(long, value_name = "DIR")]
    pub to: PathBuf,
    /// Data folder of the control plane.
    #[arg(long, value_name = "DIR", default_value = "gpuaas-data")]
    pub data: PathBuf,
    /// Its database, as `gpuaas serve` is started with [default: DATA/gpuaas.db].
    #[arg(long, value_name = "URL", env = "GPUAAS_DATABASE", hide_env_values = true)]
    pub database: Option<String>,
    /// Its master keys.
    #[command(flatten)]
    pub master_key: MasterKeyArgs,
    /// File of a key that the master key and the admin token are sealed with in the backup; it is
    /// made where it is missing, and belongs elsewhere than the backup [default: leave both out].
    #[arg(long, value_name = "FILE")]
    pub key_file: Option<PathBuf>,
    /// Backups to keep of those in the folder that the new one is in, itself among them; older ones
    /// are deleted once it is whole [default: all of them].
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub keep: Option<u32>,
}

/// `gpuaas restore`.
#[derive(Debug, Clone, Args)]
pub struct RestoreArgs {
    /// Folder that `gpuaas backup` wrote.
    #[arg(value_name = "BACKUP")]
    pub backup: PathBuf,
    /// Data folder to make; it may not have a database or a key yet.
    #[arg(long, value_name = "DIR", default_value = "gpuaas-data")]
    pub data: PathBuf,
    /// The file that `gpuaas backup --key-file` named.
    #[arg(long, value_name = "FILE", conflicts_with = "master_key_file")]
    pub key_file: Option<PathBuf>,
    /// The master key itself, where it was kept apart.
    #[arg(long, value_name = "FILE")]
    pub master_key_file: Option<PathBuf>,
    /// The control plane that the backup is of will never run again: change the machines of its
    /// regions from here at once. Without it, each region shows first whether another one answers.
    #[arg(long)]
    pub original_is_gone: bool,
    /// Why; kept in the audit.
    #[arg(long, value_name = "TEXT")]
    pub reason: String,
    /// Who does so.
    #[command(flatten)]
    pub who: ActorArgs,
}
