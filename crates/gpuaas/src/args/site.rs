//! `gpuaas site` and `gpuaas drift`.

use std::path::PathBuf;
use std::str::FromStr;

use clap::{Args, Subcommand};
use gpuaas_types::filter::{FilterList, ListFilter};
use gpuaas_types::key_reference::KeyReference;
use gpuaas_types::spec::SecondPersonPolicy;
use gpuaas_types::{DriftAction, DriftKind};

use super::profile::Assignment;
use super::secret::SecretCommand;
use super::shared::{PlannedChangeArgs, ShowArgs, filter_of};
use gpuaas_client::arguments::ApiArgs;

/// `gpuaas site`.
#[derive(Debug, Subcommand)]
pub enum SiteCommand {
    /// Add a MAAS region; checks the region's version before storing anything.
    Add(Box<SiteAddArgs>),
    /// List regions.
    List(SiteListArgs),
    /// Show one region.
    Show(ShowArgs),
    /// Change a region; checks the new values with MAAS before storing anything.
    Set(Box<SiteSetArgs>),
    /// Remove a region without nodes in service; does not contact MAAS.
    Remove(PlannedChangeArgs),
    /// Take over a region, so that this control plane manages its machines instead of another one.
    TakeControl(PlannedChangeArgs),
    /// Manage secret bundle inputs for the nodes of a region. Values of a profile take precedence.
    #[command(subcommand)]
    Secret(SecretCommand),
}

/// `gpuaas site add`.
#[derive(Debug, Clone, Args)]
pub struct SiteAddArgs {
    /// Unique name, `[a-z0-9-]`.
    pub name: String,
    /// MAAS base URL, such as http://maas.example:5240/MAAS.
    #[arg(long, value_name = "MAAS_URL")]
    pub url: String,
    /// File with CONSUMER:TOKEN:SECRET of a MAAS administrator; `-` reads stdin.
    #[arg(long, value_name = "FILE", required_unless_present = "api_key_ref")]
    pub api_key_file: Option<PathBuf>,
    /// Location of the API key in Vault (KV version 2), vault:MOUNT/PATH#FIELD, instead of the key
    /// itself; the control plane reads it with the role of `gpuaas serve --vault-url`.
    #[arg(long, value_name = "REFERENCE", conflicts_with = "api_key_file")]
    pub api_key_ref: Option<KeyReference>,
    /// Resource pool of the site's machines [default: all machines of the region]. With different
    /// pools, two sites can share a region.
    #[arg(long, value_name = "POOL")]
    pub pool: Option<String>,
    /// VLAN tag required for boot interfaces.
    #[arg(long, value_name = "N")]
    pub pxe_vlan: Option<i64>,
    /// Image approved for this site, as NAME or NAME@sha256:HEX; repeat for more [default: any
    /// image in MAAS].
    #[arg(long = "approve-image", value_name = "IMAGE")]
    pub approve_images: Vec<String>,
    /// Action for a kind of drift: report, quarantine or adopt; repeat for more.
    #[arg(long, value_name = "KIND=ACTION", value_parser = drift_rule)]
    pub drift: Vec<(DriftKind, DriftAction)>,
    /// Value for an input of a site bundle, such as h200-ib.fabric_subnet=10.9.0.0/16; repeat for
    /// more. Values of a profile take precedence.
    #[arg(long = "bundle-input", value_name = "BUNDLE.INPUT=VALUE")]
    pub bundle_inputs: Vec<Assignment>,
    /// Value for an input of a site bundle on one host, such as
    /// j22u11:h200-ib.ipoib_addresses=192.168.7.1/16; repeat for more. Takes precedence over all
    /// other values.
    #[arg(long = "host-input", value_name = "HOST:BUNDLE.INPUT=VALUE")]
    pub host_inputs: Vec<Assignment>,
    /// Maximum number of nodes of the site that deploy at once; 0: no limit.
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub batch_max_parallel: u32,
    /// Bandwidth of the links that carry images, in Mbit/s; 0: unknown. Together with the profile's
    /// image_size_megabytes, it limits how many nodes deploy at once.
    #[arg(long, value_name = "MBIT", default_value_t = 0)]
    pub image_bandwidth: u32,
    /// Seconds between polls of the MAAS event feed while the site has no active run; 0: five
    /// seconds.
    #[arg(long, value_name = "SECONDS", default_value_t = 0)]
    pub idle_poll_seconds: u32,
    /// PEM file of the certificate authority of an https region.
    #[arg(long, value_name = "FILE")]
    pub ca_file: Option<PathBuf>,
    /// PEM file of certificates that nodes of the site trust.
    #[arg(long, value_name = "FILE")]
    pub node_ca_file: Option<PathBuf>,
    /// Connection and output options.
    #[command(flatten)]
    pub api: ApiArgs,
}

/// `gpuaas site set`. Omitted fields stay unchanged.
#[derive(Debug, Clone, Args)]
#[command(group = clap::ArgGroup::new("change").required(true).multiple(true).args([
    "url", "api_key_file", "api_key_ref", "pool", "pxe_vlan", "approve_images", "drift", "bundle_inputs",
    "host_inputs", "batch_max_parallel", "image_bandwidth", "idle_poll_seconds",
    "second_person", "ca_file", "node_ca_file", "clear",
]))]
pub struct SiteSetArgs {
    /// Name of the site.
    pub name: String,
    /// MAAS base URL.
    #[arg(long, value_name = "MAAS_URL")]
    pub url: Option<String>,
    /// File with CONSUMER:TOKEN:SECRET of a MAAS administrator; `-` reads stdin.
    #[arg(long, value_name = "FILE")]
    pub api_key_file: Option<PathBuf>,
    /// Location of the API key in Vault (KV version 2), vault:MOUNT/PATH#FIELD; the sealed key is
    /// deleted.
    #[arg(long, value_name = "REFERENCE", conflicts_with = "api_key_file")]
    pub api_key_ref: Option<KeyReference>,
    /// Resource pool of the site's machines.
    #[arg(long, value_name = "POOL")]
    pub pool: Option<String>,
    /// VLAN tag required for boot interfaces.
    #[arg(long, value_name = "N")]
    pub pxe_vlan: Option<i64>,
    /// Image approved for this site, which replaces all earlier ones; repeat for more.
    #[arg(long = "approve-image", value_name = "IMAGE")]
    pub approve_images: Vec<String>,
    /// Action for a kind of drift; other kinds stay unchanged; repeat for more.
    #[arg(long, value_name = "KIND=ACTION", value_parser = drift_rule)]
    pub drift: Vec<(DriftKind, DriftAction)>,
    /// Value for an input of a site bundle, empty to remove it; repeat for more.
    #[arg(long = "bundle-input", value_name = "BUNDLE.INPUT=VALUE")]
    pub bundle_inputs: Vec<Assignment>,
    /// Value for an input of a site bundle on one host, empty to remove it; repeat for more.
    #[arg(long = "host-input", value_name = "HOST:BUNDLE.INPUT=VALUE")]
    pub host_inputs: Vec<Assignment>,
    /// Maximum number of nodes of the site that deploy at once; 0: no limit.
    #[arg(long, value_name = "N")]
    pub batch_max_parallel: Option<u32>,
    /// Bandwidth of the links that carry images, in Mbit/s; 0: unknown.
    #[arg(long, value_name = "MBIT")]
    pub image_bandwidth: Option<u32>,
    /// Seconds between polls of the MAAS event feed while the site has no active run; 0: five
    /// seconds.
    #[arg(long, value_name = "SECONDS")]
    pub idle_poll_seconds: Option<u32>,
    /// Actions that need a second person, comma-separated: erasing-above=N (nodes that one person
    /// may erase within an hour), bundle-approvals, agent-updates, image-approvals; replaces the
    /// current setting. off: none.
    #[arg(long, value_name = "WHAT")]
    pub second_person: Option<SecondPersonArgument>,
    /// PEM file of the certificate authority of an https region.
    #[arg(long, value_name = "FILE")]
    pub ca_file: Option<PathBuf>,
    /// PEM file of certificates that nodes of the site trust.
    #[arg(long, value_name = "FILE")]
    pub node_ca_file: Option<PathBuf>,
    /// Field to reset to its default, such as pxe_vlan or ca_pem; repeat for more.
    #[arg(long, value_name = "FIELD")]
    pub clear: Vec<String>,
    /// Connection and output options.
    #[command(flatten)]
    pub api: ApiArgs,
}

/// `gpuaas drift`.
#[derive(Debug, Subcommand)]
pub enum DriftCommand {
    /// List differences between machines in MAAS and the records of their nodes.
    List(DriftListArgs),
}

/// `gpuaas drift list`.
#[derive(Debug, Clone, Args)]
pub struct DriftListArgs {
    /// Only nodes of this site.
    #[arg(long)]
    pub site: Option<String>,
    /// Filter expression, such as `kind=renamed since<2026-11-01`: docs/reference/filters.md.
    #[arg(long, value_name = "FILTER", value_parser = filter_of(FilterList::Drift))]
    pub filter: Option<ListFilter>,
    /// Refresh on every event and every ten seconds, until interrupted.
    #[arg(long)]
    pub watch: bool,
    /// Connection and output options.
    #[command(flatten)]
    pub api: ApiArgs,
}

/// Actions of a site that need a second person, as written on the command line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SecondPersonArgument(pub SecondPersonPolicy);

impl FromStr for SecondPersonArgument {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let mut policy = SecondPersonPolicy::default();
        for word in text.split(',').map(str::trim).filter(|word| *word != "off") {
            match word.split_once('=') {
                Some(("erasing-above", count)) => {
                    let count = count.parse().map_err(|_| {
                        "expected erasing-above=N, such as erasing-above=10".to_owned()
                    })?;
                    policy.erasing_above = Some(count);
                }
                None if word == "bundle-approvals" => policy.bundle_approvals = true,
                None if word == "agent-updates" => policy.agent_updates = true,
                None if word == "image-approvals" => policy.image_approvals = true,
                _ => {
                    let known =
                        "erasing-above=N, bundle-approvals, agent-updates, image-approvals, off";
                    return Err(format!("expected a list of {known}"));
                }
            }
        }
        Ok(Self(policy))
    }
}

fn drift_rule(text: &str) -> Result<(DriftKind, DriftAction), String> {
    let (kind, action) = text.split_once('=').ok_or("expected KIND=ACTION")?;
    let kind = kind.parse().map_err(|_| {
        let all: Vec<&str> = DriftKind::ALL.iter().map(|kind| kind.as_str()).collect();
        format!("expected one of {}", all.join(", "))
    })?;
    let action =
        action.parse().map_err(|_| "expected one of report, quarantine, adopt".to_owned())?;
    Ok((kind, action))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_policy_of_a_second_person_is_read() {
        let read = |text: &str| text.parse::<SecondPersonArgument>().map(|read| read.0);
        assert_eq!(read("off"), Ok(SecondPersonPolicy::default()));
        let all = SecondPersonPolicy {
            erasing_above: Some(10),
            bundle_approvals: true,
            agent_updates: true,
            image_approvals: true,
        };
        let words = "erasing-above=10, bundle-approvals,agent-updates,image-approvals";
        assert_eq!(read(words), Ok(all));
        for text in ["", "erasing-above", "erasing-above=many", "on", "agent-updates=yes"] {
            assert!(read(text).is_err(), "{text:?}");
        }
    }
}

/// `gpuaas site list`.
#[derive(Debug, Clone, Args)]
pub struct SiteListArgs {
    /// Filter expression, such as `health!=ok name~eu-`: docs/reference/filters.md.
    #[arg(long, value_name = "FILTER", value_parser = filter_of(FilterList::Sites))]
    pub filter: Option<ListFilter>,
    /// Refresh on every event and every ten seconds, until interrupted.
    #[arg(long)]
    pub watch: bool,
    /// Connection and output options.
    #[command(flatten)]
    pub api: ApiArgs,
}
