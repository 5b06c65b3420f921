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
    /// Add a profile; fields that are not set have their defaults.
    Add(ProfileAddArgs),
    /// List profiles.
    List(ProfileListArgs),
    /// Show one profile at its latest revision.
    Show(ShowArgs),
    /// List the profiles to begin with, one per class of hardware.
    Presets(ListArgs),
    /// List the fields of profiles, with their defaults and what they mean.
    Fields(FieldsArgs),
    /// Change fields: makes a new revision, which runs begun later use.
    Set(ProfileSetArgs),
    /// Remove a profile that no node in service has; runs keep the revision that they pinned.
    Remove(PlannedChangeArgs),
    /// Values of bundles' secret inputs, for the nodes with a profile.
    #[command(subcommand)]
    Secret(SecretCommand),
}

/// `gpuaas profile fields`.
#[derive(Debug, Clone, Args)]
pub struct FieldsArgs {
    /// How to print them on stdout.
    #[arg(short = 'o', long = "output", value_enum, default_value_t, value_name = "FORMAT")]
    pub format: Format,
}

/// One field of a profile and its value, written `FIELD=VALUE`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Assignment {
    /// Field name, as the API writes it.
    pub field: String,
    /// Value as text.
    pub value: String,
}

impl FromStr for Assignment {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (field, value) = text.split_once('=').ok_or("write FIELD=VALUE")?;
        if field.is_empty() {
            return Err("write FIELD=VALUE".to_owned());
        }
        Ok(Self { field: field.to_owned(), value: value.to_owned() })
    }
}

/// `gpuaas profile add`.
#[derive(Debug, Clone, Args)]
pub struct ProfileAddArgs {
    /// Unique name, `[a-z0-9-]`.
    pub name: String,
    /// Field that differs from the default; repeat for more.
    #[arg(long = "set", value_name = "FIELD=VALUE")]
    pub set: Vec<Assignment>,
    /// Value for an input of the site bundle; repeat for more.
    #[arg(long = "input", value_name = "INPUT=VALUE")]
    pub inputs: Vec<Assignment>,
    /// Begin with a preset; `gpuaas profile presets` lists them.
    #[arg(long)]
    pub preset: Option<String>,
    /// Where to ask and how to print.
    #[command(flatten)]
    pub api: ApiArgs,
}

/// `gpuaas profile set`.
#[derive(Debug, Clone, Args)]
pub struct ProfileSetArgs {
    /// Name of the profile.
    pub name: String,
    /// What to change.
    #[arg(value_name = "FIELD=VALUE", required_unless_present = "inputs")]
    pub set: Vec<Assignment>,
    /// Value for an input of the site bundle, empty for its default; repeat for more.
    #[arg(long = "input", value_name = "INPUT=VALUE")]
    pub inputs: Vec<Assignment>,
    /// Where to ask and how to print.
    #[command(flatten)]
    pub api: ApiArgs,
}

/// `gpuaas roce`.
#[derive(Debug, Subcommand)]
pub enum RoceCommand {
    /// Give one fabric interface of one host its address.
    Add(RoceAddArgs),
    /// Change the address of one fabric interface of one host, or move it to another interface.
    Set(RoceSetArgs),
    /// Take the address of one fabric interface of one host away.
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
    /// Interface name, or its MAC address.
    #[arg(long, value_name = "NAME")]
    pub interface: String,
    /// Subnet in MAAS.
    #[arg(long, value_name = "CIDR")]
    pub subnet: String,
    /// Static address inside it.
    #[arg(long, value_name = "ADDRESS")]
    pub ip: String,
    /// Where to ask and how to print.
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
    /// Interface that has the address now: its name, or its MAC address.
    #[arg(long, value_name = "NAME")]
    pub interface: String,
    /// Interface that is to have it.
    #[arg(long, value_name = "NAME")]
    pub to_interface: Option<String>,
    /// Subnet in MAAS.
    #[arg(long, value_name = "CIDR")]
    pub subnet: Option<String>,
    /// Static address inside it.
    #[arg(long, value_name = "ADDRESS")]
    pub ip: Option<String>,
    /// Where to ask and how to print.
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
    /// Interface name, or its MAC address.
    #[arg(long, value_name = "NAME")]
    pub interface: String,
    /// Where to ask and how to print.
    #[command(flatten)]
    pub api: ApiArgs,
}

/// `gpuaas profile list`.
#[derive(Debug, Clone, Args)]
pub struct ProfileListArgs {
    /// Only what this lets pass, such as `image~h200 fabric=roce`: docs/reference/filters.md.
    #[arg(long, value_name = "FILTER", value_parser = filter_of(FilterList::Profiles))]
    pub filter: Option<ListFilter>,
    /// Look again whenever something happens, and every ten seconds, until interrupted.
    #[arg(long)]
    pub watch: bool,
    /// Where to ask and how to print.
    #[command(flatten)]
    pub api: ApiArgs,
}

/// `gpuaas roce list`.
#[derive(Debug, Clone, Args)]
pub struct RoceListArgs {
    /// Only what this lets pass, such as `site=lab subnet=10.8.0.0/16`: docs/reference/filters.md.
    #[arg(long, value_name = "FILTER", value_parser = filter_of(FilterList::Roce))]
    pub filter: Option<ListFilter>,
    /// Look again whenever something happens, and every ten seconds, until interrupted.
    #[arg(long)]
    pub watch: bool,
    /// Where to ask and how to print.
    #[command(flatten)]
    pub api: ApiArgs,
}
