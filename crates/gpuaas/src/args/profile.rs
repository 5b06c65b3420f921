//! `gpuaas profile` and `gpuaas roce`.

use std::str::FromStr;

use clap::{Args, Subcommand};

use super::secret::SecretCommand;
use super::shared::{ListArgs, PlannedChangeArgs, ShowArgs, filter_of};
use gpuaas_client::arguments::{ApiArgs, Format};
use gpuaas_types::filter::{FilterList, ListFilter};

/// `gpuaas profile`.
#[derive(Debug, Subcommand)]
pub enum ProfileCommand {
    /// Add a profile; unset fields get their defaults.
    Add(ProfileAddArgs),
    /// List profiles.
    List(ProfileListArgs),
    /// Show the latest revision of a profile.
    Show(ShowArgs),
    /// List presets for new profiles, one per hardware class.
    Presets(ListArgs),
    /// List profile fields with defaults and meanings.
    Fields(FieldsArgs),
    /// Change fields; creates a revision that later runs use.
    Set(ProfileSetArgs),
    /// Remove a profile that no node in service uses; runs keep their pinned revision.
    Remove(PlannedChangeArgs),
    /// Manage secret bundle inputs for the nodes of a profile.
    #[command(subcommand)]
    Secret(SecretCommand),
}

/// `gpuaas profile fields`.
#[derive(Debug, Clone, Args)]
pub struct FieldsArgs {
    /// Output format on stdout.
    #[arg(short = 'o', long = "output", value_enum, default_value_t, value_name = "FORMAT")]
    pub format: Format,
}

/// A profile field and its value, `FIELD=VALUE`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Assignment {
    /// Field name, as in the API.
    pub field: String,
    /// Value as text.
    pub value: String,
}

impl FromStr for Assignment {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (field, value) = text.split_once('=').ok_or("expected FIELD=VALUE")?;
        if field.is_empty() {
            return Err("expected FIELD=VALUE".to_owned());
        }
        Ok(Self { field: field.to_owned(), value: value.to_owned() })
    }
}

/// `gpuaas profile add`.
#[derive(Debug, Clone, Args)]
pub struct ProfileAddArgs {
    /// Unique name, `[a-z0-9-]`.
    pub name: String,
    /// Field to set, instead of its default; repeat for more.
    #[arg(long = "set", value_name = "FIELD=VALUE")]
    pub set: Vec<Assignment>,
    /// Value for an input of the site bundle; repeat for more.
    #[arg(long = "input", value_name = "INPUT=VALUE")]
    pub inputs: Vec<Assignment>,
    /// Preset to start from; `gpuaas profile presets` lists them.
    #[arg(long)]
    pub preset: Option<String>,
    /// Connection and output options.
    #[command(flatten)]
    pub api: ApiArgs,
}

/// `gpuaas profile set`.
#[derive(Debug, Clone, Args)]
pub struct ProfileSetArgs {
    /// Name of the profile.
    pub name: String,
    /// Fields to change.
    #[arg(value_name = "FIELD=VALUE", required_unless_present = "inputs")]
    pub set: Vec<Assignment>,
    /// Value for an input of the site bundle, empty for its default; repeat for more.
    #[arg(long = "input", value_name = "INPUT=VALUE")]
    pub inputs: Vec<Assignment>,
    /// Connection and output options.
    #[command(flatten)]
    pub api: ApiArgs,
}

/// `gpuaas roce`.
#[derive(Debug, Subcommand)]
pub enum RoceCommand {
    /// Assign an address to a fabric interface of a host.
    Add(RoceAddArgs),
    /// Change the address of a host's fabric interface, or move it to another interface.
    Set(RoceSetArgs),
    /// Remove the address of a host's fabric interface.
    Remove(RoceRemoveArgs),
    /// List addresses.
    List(RoceListArgs),
}

/// `gpuaas roce add`.
#[derive(Debug, Clone, Args)]
pub struct RoceAddArgs {
    /// Site name.
    #[arg(long)]
    pub site: String,
    /// Short hostname.
    #[arg(long)]
    pub host: String,
    /// Interface name or MAC address.
    #[arg(long, value_name = "NAME")]
    pub interface: String,
    /// Subnet in MAAS.
    #[arg(long, value_name = "CIDR")]
    pub subnet: String,
    /// Static address in the subnet.
    #[arg(long, value_name = "ADDRESS")]
    pub ip: String,
    /// Connection and output options.
    #[command(flatten)]
    pub api: ApiArgs,
}

/// `gpuaas roce set`.
#[derive(Debug, Clone, Args)]
#[command(group = clap::ArgGroup::new("change").required(true).multiple(true).args(
    ["to_interface", "subnet", "ip"]
))]
pub struct RoceSetArgs {
    /// Site name.
    #[arg(long)]
    pub site: String,
    /// Short hostname.
    #[arg(long)]
    pub host: String,
    /// Name or MAC address of the interface that has the address now.
    #[arg(long, value_name = "NAME")]
    pub interface: String,
    /// Interface to move the address to.
    #[arg(long, value_name = "NAME")]
    pub to_interface: Option<String>,
    /// Subnet in MAAS.
    #[arg(long, value_name = "CIDR")]
    pub subnet: Option<String>,
    /// Static address in the subnet.
    #[arg(long, value_name = "ADDRESS")]
    pub ip: Option<String>,
    /// Connection and output options.
    #[command(flatten)]
    pub api: ApiArgs,
}

/// `gpuaas roce remove`.
#[derive(Debug, Clone, Args)]
pub struct RoceRemoveArgs {
    /// Site name.
    #[arg(long)]
    pub site: String,
    /// Short hostname.
    #[arg(long)]
    pub host: String,
    /// Interface name or MAC address.
    #[arg(long, value_name = "NAME")]
    pub interface: String,
    /// Connection and output options.
    #[command(flatten)]
    pub api: ApiArgs,
}

/// `gpuaas profile list`.
#[derive(Debug, Clone, Args)]
pub struct ProfileListArgs {
    /// Filter expression, such as `image~h200 fabric=roce`: docs/reference/filters.md.
    #[arg(long, value_name = "FILTER", value_parser = filter_of(FilterList::Profiles))]
    pub filter: Option<ListFilter>,
    /// Refresh on every event and every ten seconds, until interrupted.
    #[arg(long)]
    pub watch: bool,
    /// Connection and output options.
    #[command(flatten)]
    pub api: ApiArgs,
}

/// `gpuaas roce list`.
#[derive(Debug, Clone, Args)]
pub struct RoceListArgs {
    /// Filter expression, such as `site=lab subnet=10.8.0.0/16`: docs/reference/filters.md.
    #[arg(long, value_name = "FILTER", value_parser = filter_of(FilterList::Roce))]
    pub filter: Option<ListFilter>,
    /// Refresh on every event and every ten seconds, until interrupted.
    #[arg(long)]
    pub watch: bool,
    /// Connection and output options.
    #[command(flatten)]
    pub api: ApiArgs,
}
