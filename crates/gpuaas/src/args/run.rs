//! `gpuaas run`.

use clap::{Args, Subcommand};
use gpuaas_types::RunStatus;
use gpuaas_types::filter::{FilterList, ListFilter};

use super::shared::{ActorArgs, WatchedShowArgs, filter_of};
use gpuaas_client::arguments::ApiArgs;

/// `gpuaas run`.
#[derive(Debug, Subcommand)]
pub enum RunCommand {
    /// Show a run: where every second went, what was tried, what was checked.
    Show(WatchedShowArgs),
    /// List runs, the newest first.
    List(RunListArgs),
    /// Wait until a run is over or parked.
    Wait(RunWaitArgs),
    /// Let a parked run go on, once its cause is gone.
    Resume(ContinueArgs),
    /// Let a parked run try again: what was tried in its step does not count any more.
    Retry(ContinueArgs),
    /// End a run. A machine that it is deploying is released first.
    Cancel(CancelArgs),
    /// Answer for a check that does not pass; the run goes on, and your word expires.
    SkipCheck(SkipCheckArgs),
    /// Let a parked run have its machine although it is in use; what is on it is lost.
    TakeOver(TakeOverArgs),
}

/// `gpuaas run take-over`.
#[derive(Debug, Clone, Args)]
pub struct TakeOverArgs {
    /// Only show what would be taken.
    #[arg(long)]
    pub dry_run: bool,
    /// Do not ask.
    #[arg(long)]
    pub yes: bool,
    /// The run, who and why.
    #[command(flatten)]
    pub said: ResumeArgs,
}

/// `gpuaas run list`.
#[derive(Debug, Clone, Args)]
pub struct RunListArgs {
    /// Only runs of this site.
    #[arg(long)]
    pub site: Option<String>,
    /// Only runs of this node: hostname, node id, MAAS system id or MAC.
    #[arg(long, value_name = "HOST")]
    pub node: Option<String>,
    /// Only runs with this status.
    #[arg(long, value_name = "STATUS", value_parser = run_status)]
    pub status: Option<RunStatus>,
    /// Only runs that are not over.
    #[arg(long)]
    pub open: bool,
    /// Only what this lets pass, such as `status=parked created>2026-11-01`: docs/reference/filters.md.
    #[arg(long, value_name = "FILTER", value_parser = filter_of(FilterList::Runs))]
    pub filter: Option<ListFilter>,
    /// Look again whenever something happens, until interrupted.
    #[arg(long)]
    pub watch: bool,
    /// Only runs after this one in the list.
    #[arg(long, value_name = "RUN")]
    pub after: Option<String>,
    /// How many at most.
    #[arg(long, value_name = "N", default_value_t = 100)]
    pub limit: u32,
    /// Where to ask and how to print.
    #[command(flatten)]
    pub api: ApiArgs,
}

fn run_status(text: &str) -> Result<RunStatus, String> {
    text.parse().map_err(|_| {
        let all: Vec<&str> = RunStatus::ALL.iter().map(|status| status.as_str()).collect();
        format!("use one of {}", all.join(", "))
    })
}

/// `gpuaas run wait`.
#[derive(Debug, Clone, Args)]
pub struct RunWaitArgs {
    /// Run id, or the hostname of its node.
    #[arg(value_name = "RUN")]
    pub run: String,
    /// Seconds to wait at most.
    #[arg(long, value_name = "SECONDS", default_value_t = 7200)]
    pub timeout: u64,
    /// Where to ask and how to print.
    #[command(flatten)]
    pub api: ApiArgs,
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
    /// Run id, or the hostname of its node.
    #[arg(value_name = "RUN")]
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
