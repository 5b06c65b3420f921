//! Arguments of `gpuaas login` and `gpuaas logout`.

use std::path::PathBuf;

use clap::Args;
use gpuaas_client::arguments::{ConfigArgs, ConnectionArgs};

/// Context of the sign-in.
#[derive(Debug, Clone, Args)]
pub struct SignInContextArgs {
    /// Context to sign in to or out of [default: the current one].
    #[arg(long, value_name = "NAME", env = "GPUAAS_CONTEXT", hide_env_values = true)]
    pub context: Option<String>,
    /// Location of the contexts.
    #[command(flatten)]
    pub config: ConfigArgs,
}

impl SignInContextArgs {
    /// Control plane of the context.
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
    /// PEM file of certificate authorities to trust for the identity provider, besides this
    /// system's.
    #[arg(long, value_name = "FILE")]
    pub issuer_ca_file: Option<PathBuf>,
    /// Context of the sign-in.
    #[command(flatten)]
    pub of: SignInContextArgs,
}

/// `gpuaas logout`.
#[derive(Debug, Clone, Args)]
pub struct LogoutArgs {
    /// Context of the sign-in.
    #[command(flatten)]
    pub of: SignInContextArgs,
}
