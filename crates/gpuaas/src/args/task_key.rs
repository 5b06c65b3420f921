//! `gpuaas task-key`.

use clap::{Args, Subcommand};

use super::shared::ListArgs;
use gpuaas_client::arguments::ApiArgs;

/// `gpuaas task-key`.
#[derive(Debug, Subcommand)]
pub enum TaskKeyCommand {
    /// List the keys that sign tasks for agents.
    List(ListArgs),
    /// Make a key that agents learn of before it signs.
    Stage(ListArgs),
    /// Let the staged key sign.
    Activate(TaskKeyActivateArgs),
    /// Withdraw a key that does not sign: what it signed counts no more.
    Retire(TaskKeyRetireArgs),
}

/// `gpuaas task-key activate`.
#[derive(Debug, Clone, Args)]
pub struct TaskKeyActivateArgs {
    /// How long tasks count that the key before it signed, in seconds.
    #[arg(long, value_name = "SECONDS", default_value_t = 3600)]
    pub grace_seconds: u32,
    /// Where to ask and how to print.
    #[command(flatten)]
    pub api: ApiArgs,
}

/// `gpuaas task-key retire`.
#[derive(Debug, Clone, Args)]
pub struct TaskKeyRetireArgs {
    /// The key, as the list shows it.
    pub public_key: String,
    /// Where to ask and how to print.
    #[command(flatten)]
    pub api: ApiArgs,
}
