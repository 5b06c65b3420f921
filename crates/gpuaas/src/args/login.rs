//! Arguments of `gpuaas login` and `gpuaas logout`.

use std::path::PathBuf;

use clap::Args;
use gpuaas_client::arguments::{ConfigArgs, ConnectionArgs};

/// Whose sign-in it is.
#[derive(Debug, Clone, Args)]
pub struct SignInContextArgs {
    /// Context to sign in for [default: the one in use].
    #[arg(long, value_name = "NAME", env = "GPUAAS_CONTEXT", hide_env_values = true)]
    pub context: Option<String>,
    /// Where the contexts are.
    #[command(flatten)]
    pub config: ConfigArgs,
}

impl SignInContextArgs {
    /// The control plane of the context.
    #[must_use]
    pub fn connection(&self) -> ConnectionArgs {
        ConnectionArgs {
            context: self.context.clone(),
            config: self.config.clone(),
            ..ConnectionArgs::default()
        }
    }
}

/// `gpuaas login`.
#[derive(Debug, Clone, Args)]
pub struct LoginArgs {
    /// File of what is trusted for the identity provider beside this system's authorities, PEM.
    #[arg(long, value_name = "FILE")]
    pub issuer_ca_file: Option<PathBuf>,
    /// Whose sign-in it is.
    #[command(flatten)]
    pub of: SignInContextArgs,
}

/// `gpuaas logout`.
#[derive(Debug, Clone, Args)]
pub struct LogoutArgs {
    /// Whose sign-in it is.
    #[command(flatten)]
    pub of: SignInContextArgs,
}
