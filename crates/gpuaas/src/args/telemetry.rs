//! Arguments of `gpuaas node converge-telemetry`.

use clap::Args;

use gpuaas_client::arguments::Format;

/// `gpuaas node converge-telemetry`.
#[derive(Debug, Clone, Args)]
pub struct ConvergeTelemetryArgs {
    /// Hostname or address to connect to over ssh.
    #[arg(long, value_name = "HOST", value_parser = single_word)]
    pub host: String,
    /// User to log in as: root, or a user with passwordless sudo.
    #[arg(long, value_name = "USER", value_parser = single_word)]
    pub user: String,
    /// Option for ssh -o, such as StrictHostKeyChecking=accept-new.
    #[arg(long = "ssh-option", value_name = "OPTION", value_parser = ssh_option)]
    pub ssh_options: Vec<String>,
    /// Networks that may read telemetry, for a host that no bundle has configured [default: the
    /// networks configured on the host, or else its management network].
    #[arg(long, value_name = "CIDR", value_delimiter = ',')]
    pub allow: Vec<String>,
    /// Show problems and planned changes, and change nothing.
    #[arg(long)]
    pub dry_run: bool,
    /// Maximum duration in seconds, including package installation.
    #[arg(long, value_name = "SECONDS", default_value_t = 900)]
    pub timeout: u64,
    /// Output format.
    #[arg(short, long, value_enum, default_value_t)]
    pub output: Format,
}

/// A host or user name. A leading dash is rejected, since ssh would read it as an option.
fn single_word(text: &str) -> Result<String, String> {
    let plain = |c: char| c.is_ascii_alphanumeric() || "._-:[]%".contains(c);
    if text.is_empty() || text.starts_with('-') || !text.chars().all(plain) {
        return Err(format!("expected a name or an address, not {text:?}"));
    }
    Ok(text.to_owned())
}

fn ssh_option(text: &str) -> Result<String, String> {
    match text.split_once(['=', ' ']) {
        Some((name, _)) if name.chars().all(|c| c.is_ascii_alphanumeric()) && !name.is_empty() => {
            Ok(text.to_owned())
        }
        _ => Err(format!("expected NAME=VALUE, not {text:?}")),
    }
}
