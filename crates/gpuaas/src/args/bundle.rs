//! Arguments of `gpuaas bundle`.

use std::path::PathBuf;

use clap::{Args, Subcommand, ValueEnum};
use gpuaas_types::Timestamp;

use super::key::OwnDatabaseArgs;
use super::profile::Assignment;
use super::shared::{ActorArgs, ListArgs};
use gpuaas_client::arguments::{ApiArgs, ConnectionArgs, Format, positive};

/// `gpuaas bundle`. Commands that build or show bundles need a control plane only for bundles that
/// are not local.
#[derive(Debug, Subcommand)]
pub enum BundleCommand {
    /// Create the folder of a new, empty bundle.
    New(BundleNewArgs),
    /// Check a bundle's folder, and show problems with file and line.
    Lint(BundleLintArgs),
    /// Build a bundle file from a folder; builds are reproducible.
    Build(BundleBuildArgs),
    /// Show a bundle from a folder, a built file or the published bundles.
    Show(BundleShowArgs),
    /// Show differences between two bundles.
    Diff(BundleDiffArgs),
    /// Show what a node would run: script environment, phases and checks.
    Render(BundleRenderArgs),
    /// Create a key that signs bundles.
    Key(BundleKeyArgs),
    /// Publish a bundle to the control plane, or push it to an OCI registry.
    Publish(BundlePublishArgs),
    /// Pull a bundle and its signature from an OCI registry.
    Pull(BundlePullArgs),
    /// List published bundles.
    List(ListArgs),
    /// Approve a bundle and its dependencies for a site.
    Approve(BundleApproveArgs),
    /// Withdraw an approval; runs that already use the bundle continue.
    Withdraw(BundleWithdrawArgs),
    /// Trust the signatures of a key.
    Trust(BundleTrustArgs),
    /// List trusted keys.
    Keys(ListArgs),
    /// Rotate the control planes' own signing key directly in their database; run on the host,
    /// without the API.
    RotateKey(BundleRotateKeyArgs),
}

/// Purpose of a bundle.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
#[value(rename_all = "snake_case")]
pub enum BundleKindArgument {
    /// Scripts that run at a node's first boot.
    SiteBootstrap,
    /// Scripts that MAAS runs during commissioning.
    Commissioning,
    /// Checks that a node must pass after deployment.
    PostDeployValidation,
}

/// `gpuaas bundle new`.
#[derive(Debug, Clone, Args)]
pub struct BundleNewArgs {
    /// Folder to create; its last part becomes the bundle's name.
    #[arg(value_name = "DIR")]
    pub folder: PathBuf,
    /// Kind of the bundle.
    #[arg(long, value_enum, default_value = "site_bootstrap")]
    pub kind: BundleKindArgument,
}

/// `gpuaas bundle lint`.
#[derive(Debug, Clone, Args)]
pub struct BundleLintArgs {
    /// Folder of the bundle.
    #[arg(value_name = "DIR")]
    pub folder: PathBuf,
}

/// `gpuaas bundle build`.
#[derive(Debug, Clone, Args)]
pub struct BundleBuildArgs {
    /// Folder of the bundle.
    #[arg(value_name = "DIR")]
    pub folder: PathBuf,
    /// Folder for NAME-VERSION.tar and its signature NAME-VERSION.tar.sig.
    #[arg(long, value_name = "DIR", default_value = ".")]
    pub out: PathBuf,
    /// Private key that signs the bundle (see `bundle key`).
    #[arg(long, value_name = "FILE")]
    pub key: Option<PathBuf>,
    /// Expiry of the signature (RFC 3339), such as `2027-01-31T00:00:00Z`.
    #[arg(long, value_name = "TIME", requires = "key", value_parser = moment)]
    pub expires: Option<Timestamp>,
    /// Print one JSON object on stdout.
    #[arg(long)]
    pub json: bool,
}

fn moment(text: &str) -> Result<Timestamp, String> {
    Timestamp::from_rfc3339(text)
        .ok_or_else(|| "expected a time such as 2027-01-31T00:00:00Z".to_owned())
}

/// `gpuaas bundle show`.
#[derive(Debug, Clone, Args)]
pub struct BundleShowArgs {
    /// Folder, built file, or name@version or digest of a published bundle.
    #[arg(value_name = "BUNDLE")]
    pub bundle: PathBuf,
    /// Public key, as printed by `bundle key`; it must match the signature next to the file.
    #[arg(long, value_name = "KEY")]
    pub trust: Option<String>,
    /// Connection and output options.
    #[command(flatten)]
    pub api: ApiArgs,
}

/// `gpuaas bundle diff`.
#[derive(Debug, Clone, Args)]
pub struct BundleDiffArgs {
    /// Folder, built file, or name@version or digest of a published bundle.
    #[arg(value_name = "OLD")]
    pub old: PathBuf,
    /// Bundle to compare with, in the same form.
    #[arg(value_name = "NEW")]
    pub new: PathBuf,
    /// Connection options.
    #[command(flatten)]
    pub connection: ConnectionArgs,
}

/// `gpuaas bundle render`.
#[derive(Debug, Clone, Args)]
pub struct BundleRenderArgs {
    /// Folder, built file, or name@version or digest of a published bundle.
    #[arg(value_name = "BUNDLE")]
    pub bundle: PathBuf,
    /// Value for an input; secret inputs need none and are not shown.
    #[arg(long, value_name = "INPUT=VALUE")]
    pub set: Vec<Assignment>,
    /// Output format on stdout.
    #[arg(short = 'o', long = "output", value_enum, default_value = "yaml", value_name = "FORMAT")]
    pub format: Format,
    /// Connection options.
    #[command(flatten)]
    pub connection: ConnectionArgs,
}

/// `gpuaas bundle key`.
#[derive(Debug, Clone, Args)]
pub struct BundleKeyArgs {
    /// File for the private key; it must not exist yet. The public key is printed on stdout.
    #[arg(value_name = "FILE")]
    pub file: PathBuf,
}

const HEADING: &str = "Login to the registry";

/// Credentials for an OCI registry that requires a login.
#[derive(Debug, Clone, Args)]
pub struct RegistryArgs {
    /// Registry user [default: from Docker's config.json].
    #[arg(long, value_name = "NAME", requires_all = ["oci", "registry_password_file"], value_parser = user, help_heading = HEADING)]
    pub registry_user: Option<String>,
    /// File with the user's password or token; `-` reads stdin.
    #[arg(long, value_name = "FILE", requires = "registry_user", help_heading = HEADING)]
    pub registry_password_file: Option<PathBuf>,
    /// Folder of Docker's config.json; reads `auths` and runs no credential helpers [default:
    /// ~/.docker].
    #[arg(long, value_name = "DIR", env = "DOCKER_CONFIG", hide_env_values = true, help_heading = HEADING)]
    pub docker_config: Option<PathBuf>,
}

/// HTTP Basic user name, which ends at the first colon.
fn user(text: &str) -> Result<String, String> {
    if text.is_empty() || text.contains(':') || text.chars().any(char::is_control) {
        return Err("expected a non-empty user name without a colon".to_owned());
    }
    Ok(text.to_owned())
}

/// `gpuaas bundle publish`.
#[derive(Debug, Clone, Args)]
pub struct BundlePublishArgs {
    /// Folder of the bundle, or a built file with its signature next to it.
    #[arg(value_name = "BUNDLE")]
    pub bundle: PathBuf,
    /// Private key that signs the bundle [default: use the signature next to the file, or else let
    /// the control plane sign].
    #[arg(long, value_name = "FILE")]
    pub key: Option<PathBuf>,
    /// Expiry of the signature (RFC 3339).
    #[arg(long, value_name = "TIME", requires = "key", value_parser = moment)]
    pub expires: Option<Timestamp>,
    /// Push to a repository of an OCI registry instead, such as
    /// http://127.0.0.1:5000/gpuaas/h200-ib; the tag is the bundle's version unless you append
    /// :TAG.
    #[arg(long, value_name = "URL")]
    pub oci: Option<String>,
    /// Credentials for the registry.
    #[command(flatten)]
    pub registry: RegistryArgs,
    /// Actor recorded for the change.
    #[command(flatten)]
    pub who: ActorArgs,
    /// Connection and output options.
    #[command(flatten)]
    pub api: ApiArgs,
}

/// `gpuaas bundle approve`.
#[derive(Debug, Clone, Args)]
pub struct BundleApproveArgs {
    /// Bundle, as `name@version` or digest.
    #[arg(value_name = "BUNDLE")]
    pub bundle: String,
    /// The site.
    #[arg(long, value_name = "NAME")]
    pub site: String,
    /// Withdraw the approval; runs that already use the bundle continue.
    #[arg(long)]
    pub withdraw: bool,
    /// Reason, recorded in the history.
    #[arg(long, value_name = "TEXT")]
    pub reason: String,
    /// Actor recorded for the change.
    #[command(flatten)]
    pub who: ActorArgs,
    /// Connection and output options.
    #[command(flatten)]
    pub api: ApiArgs,
}

/// `gpuaas bundle withdraw`.
#[derive(Debug, Clone, Args)]
pub struct BundleWithdrawArgs {
    /// Bundle, as `name@version` or digest.
    #[arg(value_name = "BUNDLE")]
    pub bundle: String,
    /// The site.
    #[arg(long, value_name = "NAME")]
    pub site: String,
    /// Reason, recorded in the history.
    #[arg(long, value_name = "TEXT")]
    pub reason: String,
    /// Actor recorded for the change.
    #[command(flatten)]
    pub who: ActorArgs,
    /// Connection and output options.
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
    /// Public key, as printed by `bundle key`.
    #[arg(value_name = "KEY")]
    pub key: String,
    /// Name of the key's owner; replaces a key of the same name.
    #[arg(long, value_name = "NAME")]
    pub name: String,
    /// Expiry of the trust (RFC 3339); a time in the past retires the key now.
    #[arg(long, value_name = "TIME", value_parser = moment)]
    pub until: Option<Timestamp>,
    /// Connection and output options.
    #[command(flatten)]
    pub api: ApiArgs,
}

/// `gpuaas bundle rotate-key`.
#[derive(Debug, Clone, Args)]
pub struct BundleRotateKeyArgs {
    /// Database of the control planes.
    #[command(flatten)]
    pub of: OwnDatabaseArgs,
    /// Days for which signatures of the former key stay valid, for hosts that are being installed.
    #[arg(long, value_name = "DAYS", default_value = "7", value_parser = positive)]
    pub grace_days: f64,
    /// Reason, recorded in the audit log.
    #[arg(long, value_name = "TEXT")]
    pub reason: String,
    /// Actor recorded for the change.
    #[command(flatten)]
    pub who: ActorArgs,
}

/// `gpuaas bundle pull`.
#[derive(Debug, Clone, Args)]
pub struct BundlePullArgs {
    /// Repository in an OCI registry with :TAG or @sha256:DIGEST, such as
    /// http://127.0.0.1:5000/gpuaas/h200-ib:1.0.0.
    #[arg(value_name = "URL")]
    pub oci: String,
    /// Credentials for the registry.
    #[command(flatten)]
    pub registry: RegistryArgs,
    /// Folder for NAME-VERSION.tar and its signature NAME-VERSION.tar.sig.
    #[arg(long, value_name = "DIR", default_value = ".")]
    pub out: PathBuf,
    /// Public key, as printed by `bundle key`; it must match the signature.
    #[arg(long, value_name = "KEY")]
    pub trust: Option<String>,
}
