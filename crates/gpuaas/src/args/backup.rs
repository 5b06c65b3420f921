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
    /// Database of the control plane, as given to `gpuaas serve` [default: DATA/gpuaas.db].
    #[arg(long, value_name = "URL", env = "GPUAAS_DATABASE", hide_env_values = true)]
    pub database: Option<String>,
    /// Master key options.
    #[command(flatten)]
    pub master_key: MasterKeyArgs,
    /// Key file that seals the master key and the admin token in the backup; created if missing.
    /// Store it apart from the backup [default: the backup contains neither].
    #[arg(long, value_name = "FILE")]
    pub key_file: Option<PathBuf>,
    /// Number of backups to keep in the parent folder, including the new one; older ones are
    /// deleted once the new one is complete [default: keep all].
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub keep: Option<u32>,
}

/// `gpuaas restore`.
#[derive(Debug, Clone, Args)]
pub struct RestoreArgs {
    /// Folder written by `gpuaas backup`.
    #[arg(value_name = "BACKUP")]
    pub backup: PathBuf,
    /// Data folder to create; it must not contain a database or a key yet.
    #[arg(long, value_name = "DIR", default_value = "gpuaas-data")]
    pub data: PathBuf,
    /// Key file given to `gpuaas backup --key-file`.
    #[arg(long, value_name = "FILE", conflicts_with = "master_key_file")]
    pub key_file: Option<PathBuf>,
    /// Master key, if you stored it apart from the backup.
    #[arg(long, value_name = "FILE")]
    pub master_key_file: Option<PathBuf>,
    /// Confirm that the backed-up control plane will never run again, and manage its regions'
    /// machines immediately. Without this option, each region is first checked for another control
    /// plane that still answers.
    #[arg(long)]
    pub original_is_gone: bool,
    /// Reason, recorded in the audit log.
    #[arg(long, value_name = "TEXT")]
    pub reason: String,
    /// Actor recorded for the change.
    #[command(flatten)]
    pub who: ActorArgs,
}
