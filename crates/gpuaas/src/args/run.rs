//! `gpuaas run`.

use clap::{Args, Subcommand};
use gpuaas_types::RunStatus;
use gpuaas_types::filter::{FilterList, ListFilter};

use super::shared::{ActorArgs, WatchedShowArgs, filter_of};
use gpuaas_client::arguments::ApiArgs;

/// `gpuaas run`.
#[derive(Debug, Subcommand)]
pub enum RunCommand {
    /// Show a run: time per step, attempts and checks.
    Show(WatchedShowArgs),
    /// List runs, newest first.
    List(RunListArgs),
    /// Wait until a run has ended or is parked.
    Wait(RunWaitArgs),
    /// Resume a parked run after you fixed the cause.
    Resume(ContinueArgs),
    /// Retry a parked run, and reset the attempts of its step.
    Retry(ContinueArgs),
    /// Cancel a run. A machine in deployment is released first.
    Cancel(CancelArgs),
    /// Override a failing check so that the run continues; the override expires.
    SkipCheck(SkipCheckArgs),
    /// Allow a parked run to take over a machine in use; the machine's data is lost.
    TakeOver(TakeOverArgs),
}

/// `gpuaas run take-over`.
#[derive(Debug, Clone, Args)]
pub struct TakeOverArgs {
    /// Show the machine that would be taken over and change nothing.
    #[arg(long)]
    pub dry_run: bool,
    /// Skip the confirmation.
    #[arg(long)]
    pub yes: bool,
    /// Run, actor and reason.
    #[command(flatten)]
    pub said: ResumeArgs,
}

/// `gpuaas run list`.
#[derive(Debug, Clone, Args)]
pub struct RunListArgs {
    /// Only runs of this site.
    #[arg(long)]
    pub site: Option<String>,
    /// Only runs of this node: hostname, node ID, MAAS system ID or MAC.
    #[arg(long, value_name = "HOST")]
    pub node: Option<String>,
    /// Only runs with this status.
    #[arg(long, value_name = "STATUS", value_parser = run_status)]
    pub status: Option<RunStatus>,
    /// Only open runs.
    #[arg(long)]
    pub open: bool,
    /// Filter expression, such as `status=parked created>2026-11-01`: docs/reference/filters.md.
    #[arg(long, value_name = "FILTER", value_parser = filter_of(FilterList::Runs))]
    pub filter: Option<ListFilter>,
    /// Refresh on every event, until interrupted.
    #[arg(long)]
    pub watch: bool,
    /// Only runs after this one in the list.
    #[arg(long, value_name = "RUN")]
    pub after: Option<String>,
    /// Maximum number of items.
    #[arg(long, value_name = "N", default_value_t = 100)]
    pub limit: u32,
    /// Connection and output options.
    #[command(flatten)]
    pub api: ApiArgs,
}

fn run_status(text: &str) -> Result<RunStatus, String> {
    text.parse().map_err(|_| {
        let all: Vec<&str> = RunStatus::ALL.iter().map(|status| status.as_str()).collect();
        format!("expected one of {}", all.join(", "))
    })
}

/// `gpuaas run wait`.
#[derive(Debug, Clone, Args)]
pub struct RunWaitArgs {
    /// Run ID, or hostname of its node.
    #[arg(value_name = "RUN")]
    pub run: String,
    /// Maximum wait in seconds.
    #[arg(long, value_name = "SECONDS", default_value_t = 7200)]
    pub timeout: u64,
    /// Connection and output options.
    #[command(flatten)]
    pub api: ApiArgs,
}

/// `gpuaas run cancel`.
#[derive(Debug, Clone, Args)]
pub struct CancelArgs {
    /// Leave the machine unchanged in MAAS, and do not contact MAAS.
    #[arg(long)]
    pub leave_machine: bool,
    /// Run, actor and reason.
    #[command(flatten)]
    pub said: ResumeArgs,
}

/// `gpuaas run skip-check`.
#[derive(Debug, Clone, Args)]
pub struct SkipCheckArgs {
    /// Name of the check, as shown by `gpuaas run show RUN`.
    #[arg(long, value_name = "NAME")]
    pub check: String,
    /// Seconds until the override expires, at most one week.
    #[arg(long = "for", value_name = "SECONDS", default_value_t = 86_400)]
    pub seconds: u32,
    /// Run, actor and reason.
    #[command(flatten)]
    pub said: ResumeArgs,
}

/// `gpuaas run resume` and `gpuaas run retry`.
#[derive(Debug, Clone, Args)]
pub struct ContinueArgs {
    /// Pin the run to the latest revision of its profile; use this if the profile caused the
    /// problem.
    #[arg(long)]
    pub latest_profile: bool,
    /// Run, actor and reason.
    #[command(flatten)]
    pub said: ResumeArgs,
}

/// A run, with actor and reason.
#[derive(Debug, Clone, Args)]
pub struct ResumeArgs {
    /// Run ID, or hostname of its node.
    #[arg(value_name = "RUN")]
    pub id: String,
    /// Reason, recorded in the history.
    #[arg(long)]
    pub reason: String,
    /// Actor recorded for the change.
    #[command(flatten)]
    pub who: ActorArgs,
    /// Connection and output options.
    #[command(flatten)]
    pub api: ApiArgs,
}
