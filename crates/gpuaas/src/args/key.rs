//! `gpuaas key`, and what names master keys elsewhere.

use std::path::PathBuf;

use clap::{Args, Subcommand};
use gpuaas_client::arguments::Format;

use super::shared::ActorArgs;
use crate::master_key::{KeySource, MasterKeySources};
use crate::vault::VaultOptions;

/// Options that locate the master keys of a control plane.
#[derive(Debug, Clone, Default, Args)]
pub struct MasterKeyArgs {
    /// Source of the master key: `file:PATH`, `credential:NAME` for a systemd credential, or
    /// `vault-transit:MOUNT/KEY` for a file in the data folder that Vault decrypts; repeat for each
    /// key that may seal values in the database [default: file:DATA/master.key].
    #[arg(
        long = "master-key",
        value_name = "SOURCE",
        env = "GPUAAS_MASTER_KEY",
        hide_env_values = true,
        value_delimiter = ','
    )]
    pub master_keys: Vec<KeySource>,
    /// Folder of systemd credentials.
    #[arg(long, hide = true, env = "CREDENTIALS_DIRECTORY", hide_env_values = true)]
    pub credentials_directory: Option<PathBuf>,
    /// Vault that holds master keys and API keys of regions, such as https://vault.example:8200;
    /// requires a role.
    #[arg(long, value_name = "URL", env = "GPUAAS_VAULT_URL", hide_env_values = true)]
    pub vault_url: Option<String>,
    /// Role ID to log in to Vault (AppRole).
    #[arg(long, value_name = "ID", env = "GPUAAS_VAULT_ROLE_ID", hide_env_values = true)]
    pub vault_role_id: Option<String>,
    /// File with the role's secret ID.
    #[arg(long, value_name = "FILE", env = "GPUAAS_VAULT_SECRET_ID_FILE", hide_env_values = true)]
    pub vault_secret_id_file: Option<PathBuf>,
    /// PEM file of certificate authorities to trust for Vault [default: this system's authorities].
    #[arg(long, value_name = "FILE", env = "GPUAAS_VAULT_CA_FILE", hide_env_values = true)]
    pub vault_ca_file: Option<PathBuf>,
    /// Vault namespace, if any.
    #[arg(long, value_name = "NAME", env = "GPUAAS_VAULT_NAMESPACE", hide_env_values = true)]
    pub vault_namespace: Option<String>,
}

impl MasterKeyArgs {
    /// Sources of the master keys.
    #[must_use]
    pub fn sources(&self) -> MasterKeySources {
        MasterKeySources {
            sources: self.master_keys.clone(),
            credentials: self.credentials_directory.clone(),
            vault: self.vault(),
        }
    }

    fn vault(&self) -> Option<VaultOptions> {
        Some(VaultOptions {
            url: self.vault_url.clone()?,
            role_id: self.vault_role_id.clone()?,
            secret_id_file: self.vault_secret_id_file.clone()?,
            ca_file: self.vault_ca_file.clone(),
            namespace: self.vault_namespace.clone(),
        })
    }
}

/// `gpuaas key`.
#[derive(Debug, Subcommand)]
pub enum KeyCommand {
    /// Show the master keys, their sources, and how many values each one seals.
    Show(KeyShowArgs),
    /// Switch to another master key, and reseal all values with it; run on the control plane's
    /// host, without the API.
    Rotate(KeyRotateArgs),
}

/// Database of a control plane on this host.
#[derive(Debug, Clone, Args)]
pub struct OwnDatabaseArgs {
    /// Data folder of the control plane.
    #[arg(long, value_name = "DIR", default_value = "gpuaas-data")]
    pub data: PathBuf,
    /// Database of the control plane, as given to `gpuaas serve` [default: DATA/gpuaas.db].
    #[arg(long, value_name = "URL", env = "GPUAAS_DATABASE", hide_env_values = true)]
    pub database: Option<String>,
    /// Master key options.
    #[command(flatten)]
    pub master_key: MasterKeyArgs,
}

/// `gpuaas key show`.
#[derive(Debug, Clone, Args)]
pub struct KeyShowArgs {
    /// Database and master key options.
    #[command(flatten)]
    pub of: OwnDatabaseArgs,
    /// Output format on stdout.
    #[arg(short = 'o', long = "output", value_enum, default_value_t, value_name = "FORMAT")]
    pub format: Format,
}

/// `gpuaas key rotate`.
#[derive(Debug, Clone, Args)]
pub struct KeyRotateArgs {
    /// Database and master key options.
    #[command(flatten)]
    pub of: OwnDatabaseArgs,
    /// Source of the next key, in the form of `--master-key`; a missing file is created [default
    /// for an embedded database: a new key that replaces DATA/master.key].
    #[arg(long, value_name = "SOURCE")]
    pub to: Option<KeySource>,
    /// Continue even if other control planes of the database lack the next key; those will stop.
    #[arg(long)]
    pub force: bool,
    /// Reason, recorded in the audit log.
    #[arg(long, value_name = "TEXT")]
    pub reason: String,
    /// Actor recorded for the change.
    #[command(flatten)]
    pub who: ActorArgs,
}
