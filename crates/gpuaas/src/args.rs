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

/// Turns racked GPU servers into active nodes, through MAAS.
#[derive(Debug, Parser)]
#[command(
    name = "gpuaas",
    version = env!("GPUAAS_VERSION"),
    propagate_version = true,
    after_help = EXIT_CODES
)]
pub struct Cli {
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
    /// Draw with plain ASCII characters.
    #[arg(
        long,
        global = true,
        env = "GPUAAS_ASCII",
        hide_env_values = true,
        display_order = 900,
        value_parser = BoolishValueParser::new()
    )]
    pub ascii: bool,
    /// What to log on stderr, such as `info` or `gpuaas_engine=debug`.
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
    /// MAAS regions.
    #[command(subcommand)]
    Site(SiteCommand),
    /// Provisioning profiles.
    #[command(subcommand)]
    Profile(ProfileCommand),
    /// Fabric addresses of hosts.
    #[command(subcommand)]
    Roce(RoceCommand),
    /// GPU servers.
    #[command(subcommand)]
    Node(NodeCommand),
    /// Batches: many machines as one piece of work, canaries first.
    #[command(subcommand)]
    Batch(BatchCommand),
    /// Runs: the durable work on nodes.
    #[command(subcommand)]
    Run(RunCommand),
    /// Differences between nodes and their machines in MAAS.
    #[command(subcommand)]
    Drift(DriftCommand),
    /// Bundles: what gives nodes their personality.
    #[command(subcommand)]
    Bundle(BundleCommand),
    /// Experiments: two host images compared on nodes that are drawn at random.
    #[command(subcommand)]
    Experiment(ExperimentCommand),
    /// Host images: a root file system on its way to MAAS.
    #[command(subcommand)]
    Image(ImageCommand),
    /// What waits for another person, and that person's word.
    #[command(subcommand)]
    Approval(ApprovalCommand),
    /// The audit log: who did what.
    #[command(subcommand)]
    Audit(AuditCommand),
    /// Follow what happens to nodes; where it is delivered, and what was not taken there.
    Events(EventsArgs),
    /// Addresses that events are posted to.
    #[command(subcommand)]
    Webhook(WebhookCommand),
    /// Slots of hosts that are leased by GPU: what a host has, and what of it is approved.
    #[command(subcommand)]
    Slice(SliceCommand),
    /// Keys that sign tasks for agents.
    #[command(subcommand)]
    TaskKey(TaskKeyCommand),
    /// The certificate authority that signs nodes' certificates.
    #[command(subcommand)]
    Authority(AuthorityCommand),
    /// The master keys that seal what is secret in the database.
    #[command(subcommand)]
    Key(KeyCommand),
    /// Credentials of programs, and what they may do.
    #[command(subcommand)]
    Token(TokenCommand),
    /// Open the console: the pages of a control plane.
    #[command(subcommand)]
    Console(ConsoleCommand),
    /// Sign in at the identity provider of a control plane, in a browser of any machine.
    Login(LoginArgs),
    /// End a sign-in.
    Logout(LogoutArgs),
    /// Copy the embedded database and the sealed keys of this host's control plane, while it runs.
    Backup(BackupArgs),
    /// Make a data folder from a backup.
    Restore(RestoreArgs),
    /// Move everything of the embedded database to PostgreSQL, where several control planes share it.
    MigrateStore(MigrateStoreArgs),
    /// Say what is wrong with this host's control plane, and what to do about it.
    Doctor(DoctorArgs),
    /// Control planes by name, for who has several.
    #[command(subcommand)]
    Context(ContextCommand),
    /// Print what a shell reads to complete commands, options and live names.
    Completion(CompletionArgs),
    /// Write the manual pages of every command.
    Man(ManArgs),
    /// Say what a node waits for, from whom, and what to do next; or what a code, a step or a
    /// profile's field means.
    Explain(ExplainArgs),
    /// Onboard simulated machines end to end, with nothing installed.
    #[cfg(feature = "lab")]
    Lab(LabArgs),
    /// Onboard simulated machines end to end (package gpuaas-lab).
    #[cfg(not(feature = "lab"))]
    #[command(disable_help_flag = true)]
    Lab(LaboratoryArgs),
    /// Measure.
    #[cfg(feature = "bench")]
    #[command(subcommand)]
    Bench(BenchCommand),
    /// Measure (package gpuaas-lab).
    #[cfg(not(feature = "lab"))]
    #[command(disable_help_flag = true)]
    Bench(LaboratoryArgs),
}

/// What goes on to the executable gpuaas-lab.
#[cfg(not(feature = "lab"))]
#[derive(Debug, Clone, Args)]
pub struct LaboratoryArgs {
    /// Its arguments: `gpuaas lab --help` prints them.
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, value_name = "ARGS")]
    pub args: Vec<OsString>,
}

/// `gpuaas completion`.
#[derive(Debug, Clone, Args)]
pub struct CompletionArgs {
    /// The shell.
    #[arg(value_enum)]
    pub shell: Shell,
}

/// A shell that completes.
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
    /// Folder to write them to, such as ~/.local/share/man/man1; it is made where it is missing.
    #[arg(long, value_name = "DIR")]
    pub to: PathBuf,
}

/// `gpuaas explain`.
#[derive(Debug, Clone, Args)]
pub struct ExplainArgs {
    /// Hostname, node id, MAAS system id or MAC; or a code, a step or a profile's field.
    #[arg(value_name = "WHAT")]
    pub node: String,
    /// Where to ask and how to print.
    #[command(flatten)]
    pub api: ApiArgs,
}

/// Every command, with its example below its options.
#[must_use]
pub fn tree() -> clap::Command {
    with_examples(Cli::command(), "")
}

/// Reads a command line, the program's name included.
///
/// # Errors
/// clap's, which hold the help as well where that is asked for.
pub fn parse<I>(args: I) -> Result<Cli, clap::Error>
where
    I: IntoIterator,
    I::Item: Into<OsString> + Clone,
{
    let matches = tree().try_get_matches_from(args)?;
    Cli::from_arg_matches(&matches).map_err(|error| error.format(&mut tree()))
}

/// The example of the command that is called by `path`, the words behind `gpuaas`.
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
