//! `gpuaas key`, and what names master keys elsewhere.

use std::path::PathBuf;

use clap::{Args, Subcommand};
use gpuaas_client::arguments::Format;

use super::shared::ActorArgs;
use crate::master_key::{KeySource, MasterKeySources};
use crate::vault::VaultOptions;

/// What names the master keys of a control plane.
#[derive(Debug, Clone, Default, Args)]
pub struct MasterKeyArgs {
    /// Where the master key is: `file:PATH`, `credential:NAME` for a credential of systemd, or
    /// `vault-transit:MOUNT/KEY` for a file of the data folder that a Vault decrypts; repeat it for
    /// each key that the database may be sealed with [default: file:DATA/master.key].
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
    /// The Vault of master keys and of regions' API keys that are in one, such as
    /// https://vault.example:8200; with a role.
    #[arg(long, value_name = "URL", env = "GPUAAS_VAULT_URL", hide_env_values = true)]
    pub vault_url: Option<String>,
    /// Identifier of the role that signs in there (AppRole).
    #[arg(long, value_name = "ID", env = "GPUAAS_VAULT_ROLE_ID", hide_env_values = true)]
    pub vault_role_id: Option<String>,
    /// File of the role's secret id.
    #[arg(long, value_name = "FILE", env = "GPUAAS_VAULT_SECRET_ID_FILE", hide_env_values = true)]
    pub vault_secret_id_file: Option<PathBuf>,
    /// What the Vault is trusted by, PEM [default: the authorities of this system].
    #[arg(long, value_name = "FILE", env = "GPUAAS_VAULT_CA_FILE", hide_env_values = true)]
    pub vault_ca_file: Option<PathBuf>,
    /// Namespace of the Vault, where it has such.
    #[arg(long, value_name = "NAME", env = "GPUAAS_VAULT_NAMESPACE", hide_env_values = true)]
    pub vault_namespace: Option<String>,
}

impl MasterKeyArgs {
    /// What names the keys.
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
    /// [default, for an embedded database: a new key that takes the place of DATA/master.key].
    #[arg(long, value_name = "SOURCE")]
    pub to: Option<KeySource>,
    /// Go on though control planes that share the database do not have the next key: they end.
    #[arg(long)]
    pub force: bool,
    /// Why; kept in the audit.
    #[arg(long, value_name = "TEXT")]
    pub reason: String,
    /// Who does so.
    #[command(flatten)]
    pub who: ActorArgs,
}
