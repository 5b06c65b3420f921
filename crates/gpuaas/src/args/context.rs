//! Arguments of `gpuaas context`.

use std::path::PathBuf;

use clap::{Args, Subcommand};
use gpuaas_client::arguments::{ConfigArgs, Format};

/// `gpuaas context`.
#[derive(Debug, Subcommand)]
pub enum ContextCommand {
    /// Add a context, or change the one of that name; the first one is in use at once.
    Add(ContextAddArgs),
    /// Have commands use a context where nothing else is said.
    Use(ContextNameArgs),
    /// List contexts, and say which one is in use.
    List(ContextListArgs),
    /// Remove a context; the control plane is not asked.
    Remove(ContextNameArgs),
}

/// `gpuaas context add`.
#[derive(Debug, Clone, Args)]
pub struct ContextAddArgs {
    /// Name of the context: letters, digits, `.`, `_` and `-`.
    #[arg(value_parser = context_name)]
    pub name: String,
    /// The control plane.
    #[arg(long, value_name = "URL")]
    pub server: String,
    /// File that holds the admin token; it is read at each command.
    #[arg(long, value_name = "FILE")]
    pub token_file: Option<PathBuf>,
    /// File of what is trusted for an https control plane, PEM: a copy of `ca.pem` of its data
    /// folder [default: this system's authorities].
    #[arg(long, value_name = "FILE")]
    pub server_ca_file: Option<PathBuf>,
    /// Where the contexts are.
    #[command(flatten)]
    pub config: ConfigArgs,
}

/// `gpuaas context use` and `gpuaas context remove`.
#[derive(Debug, Clone, Args)]
pub struct ContextNameArgs {
    /// Name of the context.
    pub name: String,
    /// Where the contexts are.
    #[command(flatten)]
    pub config: ConfigArgs,
}

/// `gpuaas context list`.
#[derive(Debug, Clone, Args)]
pub struct ContextListArgs {
    /// How to print them on stdout.
    #[arg(short = 'o', long = "output", value_enum, default_value_t, value_name = "FORMAT")]
    pub format: Format,
    /// Where the contexts are.
    #[command(flatten)]
    pub config: ConfigArgs,
}

fn context_name(text: &str) -> Result<String, String> {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "._-".contains(c);
    if text.is_empty() || text.starts_with('-') || !text.chars().all(is_plain) {
        return Err("use letters, digits, `.`, `_` and `-`".to_owned());
    }
    Ok(text.to_owned())
}
