//! Arguments of `gpuaas bundle`.

use std::path::PathBuf;

use clap::{Args, Subcommand, ValueEnum};
use gpuaas_types::Timestamp;

use super::key::OwnDatabaseArgs;
use super::profile::Assignment;
use super::shared::{ActorArgs, ListArgs};
use gpuaas_client::arguments::{ApiArgs, ConnectionArgs, Format, positive};

/// `gpuaas bundle`. What makes and shows bundles works without a control plane, except where a
/// bundle is named that only the control plane has.
#[derive(Debug, Subcommand)]
pub enum BundleCommand {
    /// Write the folder of a new bundle that does nothing yet.
    New(BundleNewArgs),
    /// Say what is wrong with a bundle's folder, with file and line.
    Lint(BundleLintArgs),
    /// Make one file of a bundle's folder; the same folder gives the same bytes everywhere.
    Build(BundleBuildArgs),
    /// Show a bundle: its folder, the file of a build, or a published one.
    Show(BundleShowArgs),
    /// Say what differs between two bundles.
    Diff(BundleDiffArgs),
    /// Show what a node would do: the scripts' environment, the phases and the checks.
    Render(BundleRenderArgs),
    /// Make a key that signs bundles.
    Key(BundleKeyArgs),
    /// Give a bundle to the control plane, or to an OCI registry.
    Publish(BundlePublishArgs),
    /// Take a bundle from an OCI registry, as the file of a build with its signature.
    Pull(BundlePullArgs),
    /// List the bundles that the control plane has.
    List(ListArgs),
    /// Let a bundle, with what it requires, be used at a site.
    Approve(BundleApproveArgs),
    /// Take an approval back; runs that have the bundle go on.
    Withdraw(BundleWithdrawArgs),
    /// Have the signatures of a key count.
    Trust(BundleTrustArgs),
    /// List the keys whose signatures count.
    Keys(ListArgs),
    /// Give the control planes another key of their own, at their database itself; on the host, without the
    /// API.
    RotateKey(BundleRotateKeyArgs),
}

/// What a bundle is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
#[value(rename_all = "snake_case")]
pub enum BundleKindArgument {
    /// Runs at a node's first boot.
    SiteBootstrap,
    /// Scripts that MAAS runs while it commissions a machine.
    Commissioning,
    /// Says what has to be true of a node after its deployment.
    PostDeployValidation,
}

/// `gpuaas bundle new`.
#[derive(Debug, Clone, Args)]
pub struct BundleNewArgs {
    /// Folder to make; its last part is the bundle's name.
    #[arg(value_name = "DIR")]
    pub folder: PathBuf,
    /// What it is for.
    #[arg(long, value_enum, default_value = "site_bootstrap")]
    pub kind: BundleKindArgument,
}

/// `gpuaas bundle lint`.
#[derive(Debug, Clone, Args)]
pub struct BundleLintArgs {
    /// The bundle's folder.
    #[arg(value_name = "DIR")]
    pub folder: PathBuf,
}

/// `gpuaas bundle build`.
#[derive(Debug, Clone, Args)]
pub struct BundleBuildArgs {
    /// The bundle's folder.
    #[arg(value_name = "DIR")]
    pub folder: PathBuf,
    /// Where NAME-VERSION.tar and its signature NAME-VERSION.tar.sig are put.
    #[arg(long, value_name = "DIR", default_value = ".")]
    pub out: PathBuf,
    /// Private key that signs it (see `bundle key`).
    #[arg(long, value_name = "FILE")]
    pub key: Option<PathBuf>,
    /// From when on the signature is worth nothing, as RFC 3339: `2027-01-31T00:00:00Z`.
    #[arg(long, value_name = "TIME", requires = "key", value_parser = moment)]
    pub expires: Option<Timestamp>,
    /// Print one JSON object on stdout.
    #[arg(long)]
    pub json: bool,
}

fn moment(text: &str) -> Result<Timestamp, String> {
    Timestamp::from_rfc3339(text).ok_or_else(|| "write it as 2027-01-31T00:00:00Z".to_owned())
}

/// `gpuaas bundle show`.
#[derive(Debug, Clone, Args)]
pub struct BundleShowArgs {
    /// A bundle's folder, the file of a build, or name@version or digest of a published one.
    #[arg(value_name = "BUNDLE")]
    pub bundle: PathBuf,
    /// Public key, as `bundle key` prints it; the signature beside the file must be its.
    #[arg(long, value_name = "KEY")]
    pub trust: Option<String>,
    /// Where to ask and how to print.
    #[command(flatten)]
    pub api: ApiArgs,
}

/// `gpuaas bundle diff`.
#[derive(Debug, Clone, Args)]
pub struct BundleDiffArgs {
    /// A bundle's folder, the file of a build, or name@version or digest of a published one.
    #[arg(value_name = "OLD")]
    pub old: PathBuf,
    /// Another one.
    #[arg(value_name = "NEW")]
    pub new: PathBuf,
    /// Where to ask.
    #[command(flatten)]
    pub connection: ConnectionArgs,
}

/// `gpuaas bundle render`.
#[derive(Debug, Clone, Args)]
pub struct BundleRenderArgs {
    /// A bundle's folder, the file of a build, or name@version or digest of a published one.
    #[arg(value_name = "BUNDLE")]
    pub bundle: PathBuf,
    /// A value for one of its inputs; a secret needs none, and is not shown.
    #[arg(long, value_name = "INPUT=VALUE")]
    pub set: Vec<Assignment>,
    /// How to print it on stdout.
    #[arg(short = 'o', long = "output", value_enum, default_value = "yaml", value_name = "FORMAT")]
    pub format: Format,
    /// Where to ask.
    #[command(flatten)]
    pub connection: ConnectionArgs,
}

/// `gpuaas bundle key`.
#[derive(Debug, Clone, Args)]
pub struct BundleKeyArgs {
    /// File for the private key; it must not exist. The public key is printed on stdout.
    #[arg(value_name = "FILE")]
    pub file: PathBuf,
}

const HEADING: &str = "Login to the registry";

/// How to log in to an OCI registry that wants it.
#[derive(Debug, Clone, Args)]
pub struct RegistryArgs {
    /// User of the registry [default: what Docker's config.json has for it].
    #[arg(long, value_name = "NAME", requires_all = ["oci", "registry_password_file"], value_parser = user, help_heading = HEADING)]
    pub registry_user: Option<String>,
    /// File that holds the user's password or token; `-` reads stdin.
    #[arg(long, value_name = "FILE", requires = "registry_user", help_heading = HEADING)]
    pub registry_password_file: Option<PathBuf>,
    /// Folder of Docker's config.json, of which `auths` is read and no credential helper is run
    /// [default: ~/.docker].
    #[arg(long, value_name = "DIR", env = "DOCKER_CONFIG", hide_env_values = true, help_heading = HEADING)]
    pub docker_config: Option<PathBuf>,
}

/// A user of HTTP Basic, whose name ends at the first colon.
fn user(text: &str) -> Result<String, String> {
    if text.is_empty() || text.contains(':') || text.chars().any(char::is_control) {
        return Err("a user has a name without a colon".to_owned());
    }
    Ok(text.to_owned())
}

/// `gpuaas bundle publish`.
#[derive(Debug, Clone, Args)]
pub struct BundlePublishArgs {
    /// A bundle's folder, or the file of a build with its signature beside it.
    #[arg(value_name = "BUNDLE")]
    pub bundle: PathBuf,
    /// Private key that signs it [default: the signature beside the file, else the control plane
    /// vouches for it].
    #[arg(long, value_name = "FILE")]
    pub key: Option<PathBuf>,
    /// From when on the signature is worth nothing, as RFC 3339.
    #[arg(long, value_name = "TIME", requires = "key", value_parser = moment)]
    pub expires: Option<Timestamp>,
    /// Push it to a repository of an OCI registry instead, such as
    /// http://127.0.0.1:5000/gpuaas/h200-ib; the tag is the version, or :TAG behind it.
    #[arg(long, value_name = "URL")]
    pub oci: Option<String>,
    /// How to log in there.
    #[command(flatten)]
    pub registry: RegistryArgs,
    /// Who says so.
    #[command(flatten)]
    pub who: ActorArgs,
    /// Where to ask and how to print.
    #[command(flatten)]
    pub api: ApiArgs,
}

/// `gpuaas bundle approve`.
#[derive(Debug, Clone, Args)]
pub struct BundleApproveArgs {
    /// `name@version`, or the digest.
    #[arg(value_name = "BUNDLE")]
    pub bundle: String,
    /// The site.
    #[arg(long, value_name = "NAME")]
    pub site: String,
    /// Take the approval back; runs that have the bundle go on.
    #[arg(long)]
    pub withdraw: bool,
    /// Why; kept in the history.
    #[arg(long, value_name = "TEXT")]
    pub reason: String,
    /// Who says so.
    #[command(flatten)]
    pub who: ActorArgs,
    /// Where to ask and how to print.
    #[command(flatten)]
    pub api: ApiArgs,
}

/// `gpuaas bundle withdraw`.
#[derive(Debug, Clone, Args)]
pub struct BundleWithdrawArgs {
    /// `name@version`, or the digest.
    #[arg(value_name = "BUNDLE")]
    pub bundle: String,
    /// The site.
    #[arg(long, value_name = "NAME")]
    pub site: String,
    /// Why; kept in the history.
    #[arg(long, value_name = "TEXT")]
    pub reason: String,
    /// Who says so.
    #[command(flatten)]
    pub who: ActorArgs,
    /// Where to ask and how to print.
    #[command(flatten)]
    pub api: ApiArgs,
}

impl From<BundleWithdrawArgs> for BundleApproveArgs {
    fn from(args: BundleWithdrawArgs) -> Self {
        let BundleWithdrawArgs { bundle, site, reason, who, api } = args;
        Self { bundle, site, withdraw: true, reason, who, api }
    }
}

/// `gpuaas bundle trust`.
#[derive(Debug, Clone, Args)]
pub struct BundleTrustArgs {
    /// Public key, as `bundle key` prints it.
    #[arg(value_name = "KEY")]
    pub key: String,
    /// Whose it is; a key of the same name is replaced.
    #[arg(long, value_name = "NAME")]
    pub name: String,
    /// From when on it does not count any more, as RFC 3339; the past retires it now.
    #[arg(long, value_name = "TIME", value_parser = moment)]
    pub until: Option<Timestamp>,
    /// Where to ask and how to print.
    #[command(flatten)]
    pub api: ApiArgs,
}

/// `gpuaas bundle rotate-key`.
#[derive(Debug, Clone, Args)]
pub struct BundleRotateKeyArgs {
    /// Where the key is.
    #[command(flatten)]
    pub of: OwnDatabaseArgs,
    /// How long signatures of the former key still count, for hosts that are being installed, in days.
    #[arg(long, value_name = "DAYS", default_value = "7", value_parser = positive)]
    pub grace_days: f64,
    /// Why; kept in the audit.
    #[arg(long, value_name = "TEXT")]
    pub reason: String,
    /// Who does so.
    #[command(flatten)]
    pub who: ActorArgs,
}

/// `gpuaas bundle pull`.
#[derive(Debug, Clone, Args)]
pub struct BundlePullArgs {
    /// Repository of an OCI registry with :TAG or @sha256:DIGEST, such as
    /// http://127.0.0.1:5000/gpuaas/h200-ib:1.0.0.
    #[arg(value_name = "URL")]
    pub oci: String,
    /// How to log in there.
    #[command(flatten)]
    pub registry: RegistryArgs,
    /// Where NAME-VERSION.tar and its signature NAME-VERSION.tar.sig are put.
    #[arg(long, value_name = "DIR", default_value = ".")]
    pub out: PathBuf,
    /// Public key, as `bundle key` prints it; the signature must be its.
    #[arg(long, value_name = "KEY")]
    pub trust: Option<String>,
}
