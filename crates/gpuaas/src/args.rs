//! The command line. The environment is read here and nowhere else, through clap.

use std::path::PathBuf;

use std::ffi::OsString;

use clap::builder::BoolishValueParser;
use clap::{Args, CommandFactory as _, FromArgMatches as _, Parser, Subcommand, ValueEnum};
use gpuaas_client::failure::EXIT_CODES;
#[cfg(feature = "lab")]
use gpuaas_lab::arguments::{LabArgs, MaasSimArgs};

pub use gpuaas_client::arguments::{ApiArgs, ConnectionArgs, Format};

mod approval;
mod audit;
mod authority;
mod backup;
mod batch;
#[cfg(feature = "bench")]
mod bench;
mod bundle;
mod console;
mod context;
mod doctor;
mod events;
mod examples;
mod experiment;
mod image;
mod image_overrides;
mod image_site;
mod key;
mod login;
mod migrate_store;
mod node;
mod node_task;
mod oidc;
mod profile;
mod run;
mod secret;
mod serve;
mod shared;
mod site;
mod slice;
mod task_key;
mod telemetry;
mod token;

pub use approval::{ApprovalApproveArgs, ApprovalCommand, ApprovalDenyArgs, ApprovalListArgs};
pub use audit::{
    AuditCommand, AuditExportArgs, AuditForm, AuditListArgs, AuditTarget, AuditVerifyArgs,
    NodeTimelineArgs, PageArgs,
};
pub use authority::{AuthorityChangeArgs, AuthorityCommand, AuthorityStageArgs};
pub use backup::{BackupArgs, RestoreArgs};
pub use batch::{BatchCommand, BatchListArgs, BatchOrderArgs, BatchStartArgs};
#[cfg(feature = "bench")]
pub use bench::BenchCommand;
pub use bundle::{
    BundleApproveArgs, BundleBuildArgs, BundleCommand, BundleDiffArgs, BundleKeyArgs,
    BundleKindArgument, BundleLintArgs, BundleNewArgs, BundlePublishArgs, BundlePullArgs,
    BundleRenderArgs, BundleRotateKeyArgs, BundleShowArgs, BundleTrustArgs, BundleWithdrawArgs,
    RegistryArgs,
};
pub use console::{ConsoleCommand, ConsoleMapArgs, ConsoleOpenArgs};
pub use context::{ContextAddArgs, ContextCommand, ContextListArgs, ContextNameArgs};
pub use doctor::DoctorArgs;
pub use events::{
    DeadLetterArgs, EventFollowArgs, EventsArgs, EventsCommand, ReplayArgs, WebhookAddArgs,
    WebhookCommand, WebhookRemoveArgs,
};
pub use experiment::{
    ExperimentCommand, ExperimentImportArgs, ExperimentListArgs, ExperimentStartArgs,
    ExperimentStopArgs,
};
#[cfg(feature = "bench")]
pub use image::{BenchLintArgs, BenchPackArgs};
pub use image::{
    ImageBootTestArgs, ImageBuildArgs, ImageCommand, ImageDiffArgs, ImageLintArgs, ImagePackArgs,
    ImagePipelineArgs, ImageShowArgs, ImageSignArgs, ImageUploadArgs, RegionArgs,
};
pub use image_overrides::{OverrideArgs, override_names};
pub use image_site::{
    ImageApproveArgs, ImageDeleteArgs, ImageListArgs, ImageRollbackArgs, ImageStateArgs,
};
pub use key::{KeyCommand, KeyRotateArgs, KeyShowArgs, MasterKeyArgs, OwnDatabaseArgs};
pub use login::{LoginArgs, LogoutArgs, SignInContextArgs};
pub use migrate_store::MigrateStoreArgs;
pub use node::{
    NodeCommand, NodeListArgs, NodeSetArgs, OffboardArgs, OnboardArgs, RevokeCertificateArgs,
};
pub use node_task::{NodeTaskArgs, NodeTaskKind, NodeTasksArgs, TaskOptions};
pub use oidc::OidcArgs;
pub use profile::{
    Assignment, ProfileAddArgs, ProfileCommand, ProfileListArgs, ProfileSetArgs, RoceAddArgs,
    RoceCommand, RoceListArgs, RoceRemoveArgs, RoceSetArgs,
};
pub use run::{
    CancelArgs, ContinueArgs, ResumeArgs, RunCommand, RunListArgs, RunWaitArgs, SkipCheckArgs,
    TakeOverArgs,
};
pub use secret::{SecretCommand, SecretDeleteArgs, SecretSetArgs};
pub use serve::ServeArgs;
pub use shared::{ActorArgs, ListArgs, PlannedArgs, PlannedChangeArgs, ShowArgs, WatchedShowArgs};
pub use site::{
    DriftCommand, DriftListArgs, SecondPersonArgument, SiteAddArgs, SiteCommand, SiteListArgs,
    SiteSetArgs,
};
pub use slice::{
    SliceApproveArgs, SliceClaimArgs, SliceCommand, SliceDiscoverArgs, SliceLaunchArgs,
    SliceListArgs, SliceMapArgs, SliceRecoverArgs, SliceReleaseArgs, SliceShowArgs,
};
pub use task_key::{TaskKeyActivateArgs, TaskKeyCommand, TaskKeyRetireArgs};
pub use telemetry::ConvergeTelemetryArgs;
pub use token::{
    GrantArgument, TokenAddArgs, TokenCommand, TokenListArgs, TokenResetArgs, TokenRevokeArgs,
};

/// Turns racked GPU servers into active nodes through MAAS.
#[derive(Debug, Parser)]
#[command(
    name = "gpuaas",
    version = env!("GPUAAS_VERSION"),
    propagate_version = true,
    after_help = EXIT_CODES
)]
pub struct Cli {
    /// Command to run.
    #[command(subcommand)]
    pub command: Command,
    /// Use plain ASCII characters in output.
    #[arg(
        long,
        global = true,
        env = "GPUAAS_ASCII",
        hide_env_values = true,
        display_order = 900,
        value_parser = BoolishValueParser::new()
    )]
    pub ascii: bool,
    /// Log filter for stderr, such as `info` or `gpuaas_engine=debug`.
    #[arg(
        long,
        global = true,
        display_order = 901,
        value_name = "FILTER",
        env = "GPUAAS_LOG",
        hide_env_values = true,
        default_value = "warn"
    )]
    pub log: String,
}

/// Every command.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Run the control plane: the admin API, the agents' API and the engine.
    Serve(Box<ServeArgs>),
    /// Run a simulated MAAS region with machines, until stopped.
    #[cfg(feature = "lab")]
    MaasSim(MaasSimArgs),
    /// Run a simulated MAAS region with machines, until stopped (package gpuaas-lab).
    #[cfg(not(feature = "lab"))]
    #[command(disable_help_flag = true)]
    MaasSim(LaboratoryArgs),
    /// Manage MAAS regions.
    #[command(subcommand)]
    Site(SiteCommand),
    /// Manage provisioning profiles.
    #[command(subcommand)]
    Profile(ProfileCommand),
    /// Manage fabric addresses of hosts.
    #[command(subcommand)]
    Roce(RoceCommand),
    /// Manage GPU servers.
    #[command(subcommand)]
    Node(NodeCommand),
    /// Onboard many machines as one batch, canaries first.
    #[command(subcommand)]
    Batch(BatchCommand),
    /// Show and control runs, the durable work on nodes.
    #[command(subcommand)]
    Run(RunCommand),
    /// Show differences between nodes and their machines in MAAS.
    #[command(subcommand)]
    Drift(DriftCommand),
    /// Build, publish and approve bundles, which configure nodes.
    #[command(subcommand)]
    Bundle(BundleCommand),
    /// Compare two host images on randomly chosen nodes.
    #[command(subcommand)]
    Experiment(ExperimentCommand),
    /// Build, check, upload and approve host images.
    #[command(subcommand)]
    Image(ImageCommand),
    /// List and decide pending approvals.
    #[command(subcommand)]
    Approval(ApprovalCommand),
    /// Show, verify and export the audit log.
    #[command(subcommand)]
    Audit(AuditCommand),
    /// Follow node events; list sinks and undelivered events.
    Events(EventsArgs),
    /// Manage webhooks, which receive events.
    #[command(subcommand)]
    Webhook(WebhookCommand),
    /// Discover, approve, lease and release GPU slices.
    #[command(subcommand)]
    Slice(SliceCommand),
    /// Manage keys that sign tasks for agents.
    #[command(subcommand)]
    TaskKey(TaskKeyCommand),
    /// Manage the certificate authority that signs node certificates.
    #[command(subcommand)]
    Authority(AuthorityCommand),
    /// Show and rotate master keys, which seal secrets in the database.
    #[command(subcommand)]
    Key(KeyCommand),
    /// Manage API tokens for programs, and their roles.
    #[command(subcommand)]
    Token(TokenCommand),
    /// Open the web console of a control plane.
    #[command(subcommand)]
    Console(ConsoleCommand),
    /// Sign in at a control plane's identity provider, in a browser on any machine.
    Login(LoginArgs),
    /// Sign out.
    Logout(LogoutArgs),
    /// Back up the embedded database and sealed keys of this host's running control plane.
    Backup(BackupArgs),
    /// Create a data folder from a backup.
    Restore(RestoreArgs),
    /// Move the embedded database to PostgreSQL, which several control planes can share.
    MigrateStore(MigrateStoreArgs),
    /// Find problems of this host's control plane, and show how to fix them.
    Doctor(DoctorArgs),
    /// Manage contexts (named control planes).
    #[command(subcommand)]
    Context(ContextCommand),
    /// Print a shell script that completes commands, options and live names.
    Completion(CompletionArgs),
    /// Write manual pages for all commands.
    Man(ManArgs),
    /// Show what a node waits for, who acts and what to do next; or explain a code, a step or a
    /// profile field.
    Explain(ExplainArgs),
    /// Onboard simulated machines end to end, without installing anything.
    #[cfg(feature = "lab")]
    Lab(LabArgs),
    /// Onboard simulated machines end to end (package gpuaas-lab).
    #[cfg(not(feature = "lab"))]
    #[command(disable_help_flag = true)]
    Lab(LaboratoryArgs),
    /// Run benchmarks.
    #[cfg(feature = "bench")]
    #[command(subcommand)]
    Bench(BenchCommand),
    /// Run benchmarks (package gpuaas-lab).
    #[cfg(not(feature = "lab"))]
    #[command(disable_help_flag = true)]
    Bench(LaboratoryArgs),
}

/// Arguments passed on to the executable gpuaas-lab.
#[cfg(not(feature = "lab"))]
#[derive(Debug, Clone, Args)]
pub struct LaboratoryArgs {
    /// Arguments for gpuaas-lab; `gpuaas lab --help` prints them.
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, value_name = "ARGS")]
    pub args: Vec<OsString>,
}

/// `gpuaas completion`.
#[derive(Debug, Clone, Args)]
pub struct CompletionArgs {
    /// Shell to complete in.
    #[arg(value_enum)]
    pub shell: Shell,
}

/// A shell with completion.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Shell {
    /// `eval "$(gpuaas completion bash)"` in ~/.bashrc.
    Bash,
    /// `eval "$(gpuaas completion zsh)"` in ~/.zshrc.
    Zsh,
    /// `gpuaas completion fish | source` in ~/.config/fish/config.fish.
    Fish,
}

/// `gpuaas man`.
#[derive(Debug, Clone, Args)]
pub struct ManArgs {
    /// Folder for the pages, such as ~/.local/share/man/man1; created if missing.
    #[arg(long, value_name = "DIR")]
    pub to: PathBuf,
}

/// `gpuaas explain`.
#[derive(Debug, Clone, Args)]
pub struct ExplainArgs {
    /// Hostname, node ID, MAAS system ID or MAC; or a code, a step or a profile field.
    #[arg(value_name = "WHAT")]
    pub node: String,
    /// Connection and output options.
    #[command(flatten)]
    pub api: ApiArgs,
}

/// Command tree with an example below the options of each command.
#[must_use]
pub fn tree() -> clap::Command {
    with_examples(Cli::command(), "")
}

/// Reads a command line, the program's name included.
///
/// # Errors
/// Errors of clap, which also carry the help text if the user asked for it.
pub fn parse<I>(args: I) -> Result<Cli, clap::Error>
where
    I: IntoIterator,
    I::Item: Into<OsString> + Clone,
{
    let matches = tree().try_get_matches_from(args)?;
    Cli::from_arg_matches(&matches).map_err(|error| error.format(&mut tree()))
}

/// Example of the command at `path`, the words after `gpuaas`.
#[must_use]
pub(crate) fn example(path: &str) -> Option<&'static str> {
    examples::EXAMPLES.iter().find(|(of, _)| *of == path).map(|(_, line)| *line)
}

fn with_examples(command: clap::Command, path: &str) -> clap::Command {
    let command = command.mut_subcommands(|inner| {
        let path = format!("{path} {}", inner.get_name());
        with_examples(inner, path.trim_start())
    });
    match example(path) {
        Some(line) => command.after_help(format!("Example:\n  {line}")),
        None => command,
    }
}

#[cfg(test)]
mod advice_tests;
#[cfg(all(test, feature = "bench"))]
mod docs_tests;
#[cfg(all(test, feature = "bench"))]
mod example_tests;
#[cfg(all(test, feature = "bench"))]
mod reference_tests;
#[cfg(all(test, feature = "bench"))]
mod source_texts;
#[cfg(test)]
mod tests;
