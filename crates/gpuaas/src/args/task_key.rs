//! `gpuaas task-key`.

use clap::{Args, Subcommand};

use super::shared::ListArgs;
use gpuaas_client::arguments::ApiArgs;

/// `gpuaas task-key`.
#[derive(Debug, Subcommand)]
pub enum TaskKeyCommand {
    /// List the keys that sign tasks for agents.
    List(ListArgs),
    /// Create the next key; agents learn to accept it before it signs.
    Stage(ListArgs),
    /// Sign tasks with the staged key from now on.
    Activate(TaskKeyActivateArgs),
    /// Retire a key that no longer signs; tasks signed with it become invalid.
    Retire(TaskKeyRetireArgs),
}

/// `gpuaas task-key activate`.
#[derive(Debug, Clone, Args)]
pub struct TaskKeyActivateArgs {
    /// Seconds for which tasks signed with the former key stay valid.
    #[arg(long, value_name = "SECONDS", default_value_t = 3600)]
    pub grace_seconds: u32,
    /// Connection and output options.
    #[command(flatten)]
    pub api: ApiArgs,
}

/// `gpuaas task-key retire`.
#[derive(Debug, Clone, Args)]
pub struct TaskKeyRetireArgs {
    /// Key to retire, as shown by `gpuaas task-key list`.
    pub public_key: String,
    /// Connection and output options.
    #[command(flatten)]
    pub api: ApiArgs,
}
