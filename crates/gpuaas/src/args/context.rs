//! Arguments of `gpuaas context`.

use std::path::PathBuf;

use clap::{Args, Subcommand};
use gpuaas_client::arguments::{ConfigArgs, Format};

/// `gpuaas context`.
#[derive(Debug, Subcommand)]
pub enum ContextCommand {
    /// Add or change a context; the first one becomes the current context.
    Add(ContextAddArgs),
    /// Select the context that commands use by default.
    Use(ContextNameArgs),
    /// List contexts, and mark the current one.
    List(ContextListArgs),
    /// Remove a context, without contacting its control plane.
    Remove(ContextNameArgs),
}

/// `gpuaas context add`.
#[derive(Debug, Clone, Args)]
pub struct ContextAddArgs {
    /// Name of the context: letters, digits, `.`, `_` and `-`.
    #[arg(value_parser = context_name)]
    pub name: String,
    /// URL of the control plane.
    #[arg(long, value_name = "URL")]
    pub server: String,
    /// File with the admin token; every command reads it again.
    #[arg(long, value_name = "FILE")]
    pub token_file: Option<PathBuf>,
    /// PEM file of certificate authorities to trust for an https control plane: a copy of `ca.pem`
    /// from its data folder [default: this system's authorities].
    #[arg(long, value_name = "FILE")]
    pub server_ca_file: Option<PathBuf>,
    /// Location of the contexts.
    #[command(flatten)]
    pub config: ConfigArgs,
}

/// `gpuaas context use` and `gpuaas context remove`.
#[derive(Debug, Clone, Args)]
pub struct ContextNameArgs {
    /// Name of the context.
    pub name: String,
    /// Location of the contexts.
    #[command(flatten)]
    pub config: ConfigArgs,
}

/// `gpuaas context list`.
#[derive(Debug, Clone, Args)]
pub struct ContextListArgs {
    /// Output format on stdout.
    #[arg(short = 'o', long = "output", value_enum, default_value_t, value_name = "FORMAT")]
    pub format: Format,
    /// Location of the contexts.
    #[command(flatten)]
    pub config: ConfigArgs,
}

fn context_name(text: &str) -> Result<String, String> {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "._-".contains(c);
    if text.is_empty() || text.starts_with('-') || !text.chars().all(is_plain) {
        return Err("expected letters, digits, `.`, `_` and `-`".to_owned());
    }
    Ok(text.to_owned())
}
