//! Arguments that several commands share.

use std::path::PathBuf;

use clap::{Args, ValueEnum};

/// How data is printed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum, Default)]
pub enum Format {
    /// For people: on a terminal that is narrower than it, without the columns that matter least;
    /// through a pipe with all of them, one line a row.
    #[default]
    Table,
    /// The same with every column, however narrow the terminal is.
    Wide,
    /// Names alone, one a line, for scripts.
    Name,
    /// JSON, as the API answers.
    Json,
    /// YAML with the same fields as JSON.
    Yaml,
}

/// Where the control plane is, who asks, and how the answer is printed.
#[derive(Debug, Clone, Args)]
pub struct ApiArgs {
    /// How to print the answer on stdout.
    #[arg(short = 'o', long = "output", value_enum, default_value_t, value_name = "FORMAT")]
    pub format: Format,
    /// Where, and who.
    #[command(flatten)]
    pub connection: ConnectionArgs,
}

/// Where the control plane is, and who asks.
#[derive(Debug, Clone, Default, Args)]
pub struct ConnectionArgs {
    /// The control plane [default: that of the context in use, else http://127.0.0.1:8080].
    #[arg(
        long,
        value_name = "URL",
        env = "GPUAAS_SERVER",
        hide_env_values = true,
        help_heading = "Connection"
    )]
    pub server: Option<String>,
    /// Context to take server and token from, see `gpuaas context`.
    #[arg(
        long,
        value_name = "NAME",
        env = "GPUAAS_CONTEXT",
        hide_env_values = true,
        conflicts_with = "server",
        help_heading = "Connection"
    )]
    pub context: Option<String>,
    /// Admin token.
    #[arg(
        long,
        value_name = "TOKEN",
        env = "GPUAAS_TOKEN",
        hide_env_values = true,
        help_heading = "Connection"
    )]
    pub token: Option<String>,
    /// File that holds the admin token [default: gpuaas-data/admin-token, where it exists].
    #[arg(
        long,
        value_name = "FILE",
        env = "GPUAAS_TOKEN_FILE",
        hide_env_values = true,
        help_heading = "Connection"
    )]
    pub token_file: Option<PathBuf>,
    /// File of what is trusted for an https control plane, PEM, in the place of this system's
    /// authorities: `ca.pem` of its data folder [default: gpuaas-data/ca.pem, where it exists, for
    /// one on this host].
    #[arg(
        long,
        value_name = "FILE",
        env = "GPUAAS_SERVER_CA_FILE",
        hide_env_values = true,
        help_heading = "Connection"
    )]
    pub server_ca_file: Option<PathBuf>,
    /// Where the contexts are.
    #[command(flatten)]
    pub config: ConfigArgs,
}

/// Where a user's settings are.
#[derive(Debug, Clone, Default, Args)]
pub struct ConfigArgs {
    /// Folder of the user's settings.
    #[arg(long, value_name = "DIR", env = "XDG_CONFIG_HOME", hide = true)]
    pub config_home: Option<PathBuf>,
}

/// A finite number above 0, for clap.
///
/// # Errors
/// A sentence that names the text.
pub fn positive(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(value) if value > 0.0 && value.is_finite() => Ok(value),
        _ => Err(format!("expected a number above 0, found {text:?}")),
    }
}
