//! `gpuaas site secret` and `gpuaas profile secret`.

use std::path::PathBuf;

use clap::{Args, Subcommand};

use super::shared::{ActorArgs, ShowArgs};
use gpuaas_client::arguments::ApiArgs;

/// Actions on secret inputs of bundles.
#[derive(Debug, Subcommand)]
pub enum SecretCommand {
    /// Store a sealed value for a secret bundle input; later deployments use it.
    Set(SecretSetArgs),
    /// List secret inputs with a value, who set them and when, without the values.
    List(ShowArgs),
    /// Delete a value; hosts deployed with it keep it.
    Delete(SecretDeleteArgs),
}

/// `gpuaas site secret set`.
#[derive(Debug, Clone, Args)]
pub struct SecretSetArgs {
    /// Name of the site or profile.
    pub name: String,
    /// Bundle name without version.
    pub bundle: String,
    /// Name of the input.
    pub input: String,
    /// File with the value; `-` reads stdin. A trailing line break is removed.
    #[arg(long, value_name = "FILE")]
    pub file: PathBuf,
    /// Actor recorded for the change.
    #[command(flatten)]
    pub who: ActorArgs,
    /// Connection and output options.
    #[command(flatten)]
    pub api: ApiArgs,
}

/// `gpuaas site secret delete`.
#[derive(Debug, Clone, Args)]
pub struct SecretDeleteArgs {
    /// Name of the site or profile.
    pub name: String,
    /// Bundle name without version.
    pub bundle: String,
    /// Name of the input.
    pub input: String,
    /// Actor recorded for the change.
    #[command(flatten)]
    pub who: ActorArgs,
    /// Connection and output options.
    #[command(flatten)]
    pub api: ApiArgs,
}
