//! `gpuaas run`.

use clap::{Args, Subcommand};

use super::shared::{ActorArgs, ShowArgs};
use gpuaas_client::arguments::ApiArgs;

/// `gpuaas run`.
#[derive(Debug, Subcommand)]
pub enum RunCommand {
    /// Show a run: where every second went, what was tried, what was checked.
    Show(ShowArgs),
    /// Let a parked run go on, once its cause is gone.
    Resume(ContinueArgs),
    /// Let a parked run try again: what was tried in its step does not count any more.
    Retry(ContinueArgs),
    /// End a run. A machine that it is deploying is released first.
    Cancel(CancelArgs),
    /// Answer for a check that does not pass; the run goes on, and your word expires.
    SkipCheck(SkipCheckArgs),
}

/// `gpuaas run cancel`.
#[derive(Debug, Clone, Args)]
pub struct CancelArgs {
    /// Leave the machine in MAAS as it is, whatever it is doing, and do not ask MAAS.
    #[arg(long)]
    pub leave_machine: bool,
    /// The run, who and why.
    #[command(flatten)]
    pub said: ResumeArgs,
}

/// `gpuaas run skip-check`.
#[derive(Debug, Clone, Args)]
pub struct SkipCheckArgs {
    /// Name of the check, as gpuaas run show prints it.
    #[arg(long, value_name = "NAME")]
    pub check: String,
    /// Seconds for which your word holds, at most a week.
    #[arg(long = "for", value_name = "SECONDS", default_value_t = 86_400)]
    pub seconds: u32,
    /// The run, who and why.
    #[command(flatten)]
    pub said: ResumeArgs,
}

/// `gpuaas run resume` and `gpuaas run retry`.
#[derive(Debug, Clone, Args)]
pub struct ContinueArgs {
    /// Pin the run to the latest revision of its profile: for a cause that lies in the profile.
    #[arg(long)]
    pub latest_profile: bool,
    /// The run, who and why.
    #[command(flatten)]
    pub said: ResumeArgs,
}

/// A run, and who wants what of it and why.
#[derive(Debug, Clone, Args)]
pub struct ResumeArgs {
    /// Run id.
    pub id: String,
    /// Why; kept in the history.
    #[arg(long)]
    pub reason: String,
    /// Who says so.
    #[command(flatten)]
    pub who: ActorArgs,
    /// Where to ask and how to print.
    #[command(flatten)]
    pub api: ApiArgs,
}
