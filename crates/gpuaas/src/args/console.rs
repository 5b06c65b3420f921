//! Arguments of `gpuaas console`.

use clap::{Args, Subcommand};
use gpuaas_client::arguments::ApiArgs;

/// `gpuaas console`.
#[derive(Debug, Clone, Subcommand)]
pub enum ConsoleCommand {
    /// Open the console in a browser, already signed in.
    Open(ConsoleOpenArgs),
    /// List the console's pages and actions, each with its command. Contacts no control plane.
    Map(ConsoleMapArgs),
}

/// `gpuaas console map`.
#[derive(Debug, Clone, Args)]
pub struct ConsoleMapArgs {
    /// Print one JSON object on stdout.
    #[arg(long)]
    pub json: bool,
}

/// `gpuaas console open`.
#[derive(Debug, Clone, Args)]
pub struct ConsoleOpenArgs {
    /// Print the URL instead of opening a browser.
    #[arg(long)]
    pub print: bool,
    /// Connection options.
    #[command(flatten)]
    pub api: ApiArgs,
}
