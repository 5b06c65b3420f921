//! Arguments of `gpuaas node converge-telemetry`.

use clap::Args;

use gpuaas_client::arguments::Format;

/// `gpuaas node converge-telemetry`.
#[derive(Debug, Clone, Args)]
pub struct ConvergeTelemetryArgs {
    /// Host name or address, as ssh takes it.
    #[arg(long, value_name = "HOST", value_parser = single_word)]
    pub host: String,
    /// User to log in as; root, or one who may sudo without a password.
    #[arg(long, value_name = "USER", value_parser = single_word)]
    pub user: String,
    /// An option of ssh, as after its -o: StrictHostKeyChecking=accept-new.
    #[arg(long = "ssh-option", value_name = "OPTION", value_parser = ssh_option)]
    pub ssh_options: Vec<String>,
    /// Networks that may read telemetry, for a host that no bundle has set up [default: those that
    /// the host has, else its management network].
    #[arg(long, value_name = "CIDR", value_delimiter = ',')]
    pub allow: Vec<String>,
    /// Say what is wrong and what would be changed, and change nothing.
    #[arg(long)]
    pub dry_run: bool,
    /// Seconds that it may take, packages included.
    #[arg(long, value_name = "SECONDS", default_value_t = 900)]
    pub timeout: u64,
    /// How to print.
    #[arg(short, long, value_enum, default_value_t)]
    pub output: Format,
}

/// A host or a user. What begins with a dash would be an option of ssh.
fn single_word(text: &str) -> Result<String, String> {
    let plain = |c: char| c.is_ascii_alphanumeric() || "._-:[]%".contains(c);
    if text.is_empty() || text.starts_with('-') || !text.chars().all(plain) {
        return Err(format!("{text:?} is neither a name nor an address"));
    }
    Ok(text.to_owned())
}

fn ssh_option(text: &str) -> Result<String, String> {
    match text.split_once(['=', ' ']) {
        Some((name, _)) if name.chars().all(|c| c.is_ascii_alphanumeric()) && !name.is_empty() => {
            Ok(text.to_owned())
        }
        _ => Err(format!("{text:?} is not NAME=VALUE")),
    }
}
