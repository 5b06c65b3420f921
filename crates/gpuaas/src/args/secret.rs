//! `gpuaas site secret` and `gpuaas profile secret`.

use std::path::PathBuf;

use clap::{Args, Subcommand};

use super::shared::{ActorArgs, ShowArgs};
use gpuaas_client::arguments::ApiArgs;

/// What is done with secret inputs of bundles.
#[derive(Debug, Subcommand)]
pub enum SecretCommand {
    /// Seal a value for a secret input of a bundle; deployments from now on get it.
    Set(SecretSetArgs),
    /// List which secret inputs have a value, by whom and since when; never the values.
    List(ShowArgs),
    /// Forget a value; hosts that were deployed with it keep it.
    Delete(SecretDeleteArgs),
}

/// `gpuaas site secret set`.
#[derive(Debug, Clone, Args)]
pub struct SecretSetArgs {
    /// The site or the profile.
    pub name: String,
    /// The bundle, by its name alone.
    pub bundle: String,
    /// The input.
    pub input: String,
    /// File that holds the value; `-` reads stdin. A line end behind it is left out.
    #[arg(long, value_name = "FILE")]
    pub file: PathBuf,
    /// Who says so.
    #[command(flatten)]
    pub who: ActorArgs,
    /// Where to ask and how to print.
    #[command(flatten)]
    pub api: ApiArgs,
}

/// `gpuaas site secret delete`.
#[derive(Debug, Clone, Args)]
pub struct SecretDeleteArgs {
    /// The site or the profile.
    pub name: String,
    /// The bundle, by its name alone.
    pub bundle: String,
    /// The input.
    pub input: String,
    /// Who says so.
    #[command(flatten)]
    pub who: ActorArgs,
    /// Where to ask and how to print.
    #[command(flatten)]
    pub api: ApiArgs,
}
