//! Arguments of `gpuaas console`.

use clap::{Args, Subcommand};
use gpuaas_client::arguments::ApiArgs;

/// `gpuaas console`.
#[derive(Debug, Clone, Subcommand)]
pub enum ConsoleCommand {
    /// Open the console in a browser, signed in.
    Open(ConsoleOpenArgs),
}

/// `gpuaas console open`.
#[derive(Debug, Clone, Args)]
pub struct ConsoleOpenArgs {
    /// Print the address and start no browser.
    #[arg(long)]
    pub print: bool,
    /// The control plane.
    #[command(flatten)]
    pub api: ApiArgs,
}
