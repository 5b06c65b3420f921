//! `gpuaas key`, and what names master keys elsewhere.

use std::path::PathBuf;

use clap::{Args, Subcommand};
use gpuaas_client::arguments::Format;

use super::shared::ActorArgs;
use crate::master_key::{KeySource, MasterKeySources};

/// What names the master keys of a control plane.
#[derive(Debug, Clone, Default, Args)]
pub struct MasterKeyArgs {
    /// Where the master key is: `file:PATH`, or `credential:NAME` for a credential of systemd; repeat
    /// it for each key that the database may be sealed with [default: file:DATA/master.key].
    #[arg(
        long = "master-key",
        value_name = "SOURCE",
        env = "GPUAAS_MASTER_KEY",
        hide_env_values = true,
        value_delimiter = ','
    )]
    pub master_keys: Vec<KeySource>,
    /// Folder of systemd's credentials.
    #[arg(long, hide = true, env = "CREDENTIALS_DIRECTORY", hide_env_values = true)]
    pub credentials_directory: Option<PathBuf>,
}

impl MasterKeyArgs {
    /// What names the keys.
    #[must_use]
    pub fn sources(&self) -> MasterKeySources {
        MasterKeySources {
            sources: self.master_keys.clone(),
            credentials: self.credentials_directory.clone(),
        }
    }
}

/// `gpuaas key`.
#[derive(Debug, Subcommand)]
pub enum KeyCommand {
    /// Show the master keys: where they are from, and how many values are sealed with each.
    Show(KeyShowArgs),
    /// Seal with another master key from now on, and wrap anew what is sealed; on the control plane's
    /// host, without the API.
    Rotate(KeyRotateArgs),
}

/// Which control plane's database.
#[derive(Debug, Clone, Args)]
pub struct OwnDatabaseArgs {
    /// Data folder of the control plane.
    #[arg(long, value_name = "DIR", default_value = "gpuaas-data")]
    pub data: PathBuf,
    /// Its database, as `gpuaas serve` is started with [default: DATA/gpuaas.db].
    #[arg(long, value_name = "URL", env = "GPUAAS_DATABASE", hide_env_values = true)]
    pub database: Option<String>,
    /// Its master keys.
    #[command(flatten)]
    pub master_key: MasterKeyArgs,
}

/// `gpuaas key show`.
#[derive(Debug, Clone, Args)]
pub struct KeyShowArgs {
    /// Where the keys and the values are.
    #[command(flatten)]
    pub of: OwnDatabaseArgs,
    /// How to print the answer on stdout.
    #[arg(short = 'o', long = "output", value_enum, default_value_t, value_name = "FORMAT")]
    pub format: Format,
}

/// `gpuaas key rotate`.
#[derive(Debug, Clone, Args)]
pub struct KeyRotateArgs {
    /// Where the keys and the values are.
    #[command(flatten)]
    pub of: OwnDatabaseArgs,
    /// Where the next key is, in the form of `--master-key`; a file is made where it is missing
    /// [default: a new key that takes the place of DATA/master.key].
    #[arg(long, value_name = "SOURCE")]
    pub to: Option<KeySource>,
    /// Why; kept in the audit.
    #[arg(long, value_name = "TEXT")]
    pub reason: String,
    /// Who does so.
    #[command(flatten)]
    pub who: ActorArgs,
}
