//! The operator's path: what a person does with five commands, done through the same client.
//!
//! Every step reads the present state first, so a lab that was killed half way through continues:
//! nothing is added twice and nothing is left out.

use std::collections::{BTreeMap, BTreeSet};

use futures::StreamExt as _;
use futures::stream;
use gpuaas_client::ApiClient;
use gpuaas_client::failure::Failure;
use gpuaas_engine::Clock;
use gpuaas_types::Timestamp;
use gpuaas_types::api::SiteCreate;
use gpuaas_types::codes::CommandCode;
use gpuaas_types::spec::{OnboardRequest, RoceAssignmentSpec, SiteSpec};
use serde_json::{Map, Value};

use crate::record::MachineInventory;
use crate::scenario::Fabric;

/// The lab's site.
pub const SITE: &str = "lab";
/// The lab's profile.
pub const PROFILE: &str = "h200-slice-vm";
/// Requests in flight, as an operator's script may have.
pub const AT_ONCE: usize = 16;

/// Values of the inputs of a site's bundles, by bundle.
pub type SiteInputs = BTreeMap<String, BTreeMap<String, String>>;

/// What an operator says of a site whose hosts are real: they have no network to install packages
/// from, and a kernel without Open vSwitch's module.
#[must_use]
pub fn inputs_of_real_hosts() -> SiteInputs {
    let inputs = [("install_packages", "0"), ("ovs_datapath", "netdev")];
    let inputs = inputs.map(|(name, value)| (name.to_owned(), value.to_owned()));
    BTreeMap::from([(PROFILE.to_owned(), BTreeMap::from(inputs))])
}

/// Adds the region as the site of this name, unless it is there.
///
/// # Errors
/// What the control plane refused.
pub async fn add_site(
    client: &ApiClient,
    name: &str,
    (maas_url, api_key): (&str, &str),
    bundle_inputs: SiteInputs,
) -> Result<(), Failure> {
    if client.sites().await?.items.iter().any(|site| site.spec.name == name) {
        return Ok(());
    }
    let spec = SiteSpec { bundle_inputs, ..SiteSpec::new(name, maas_url) };
    client.add_site(&SiteCreate { spec, api_key: Some(api_key.into()) }).await.map(drop)
}

/// Adds the profile as a person does: a preset that the control plane ships (empty: its defaults), with
/// the fields that differ from it. Nothing is added where the profile is there.
///
/// # Errors
/// What the control plane refused.
pub async fn add_profile(
    client: &ApiClient,
    preset: &str,
    fields: Map<String, Value>,
) -> Result<(), Failure> {
    if client.profiles().await?.items.iter().any(|profile| profile.status.name == PROFILE) {
        return Ok(());
    }
    let presets = client.profile_presets().await?.items;
    let begun = presets.into_iter().find(|one| one.name == preset);
    if begun.is_none() && !preset.is_empty() {
        let text = format!("unknown preset {preset}");
        return Err(Failure::local(CommandCode::PresetNotFound, text));
    }
    let mut spec = match begun.map(|preset| serde_json::to_value(preset.spec)) {
        Some(Ok(Value::Object(spec))) => spec,
        _ => Map::new(),
    };
    spec.extend(fields);
    client.add_profile(PROFILE, spec).await.map(drop)
}

/// Adds fabric addresses of a host, as far as they are not there.
///
/// # Errors
/// What the control plane refused.
pub async fn add_fabric(
    client: &ApiClient,
    hostname: &str,
    addresses: Vec<Fabric>,
) -> Result<(), Failure> {
    let known = client.roces(None).await?.items;
    for address in addresses {
        let there = known
            .iter()
            .any(|roce| roce.spec.hostname == hostname && roce.spec.interface == address.interface);
        if there {
            continue;
        }
        let spec = RoceAssignmentSpec {
            site: SITE.to_owned(),
            hostname: hostname.to_owned(),
            interface: address.interface,
            subnet_cidr: address.subnet_cidr,
            ip_address: address.ip_address,
        };
        client.add_roce(&spec).await?;
    }
    Ok(())
}

/// Spreads requests over time, so that machines do not all do the same thing at the same moment.
#[derive(Clone, Copy)]
pub struct Arrivals<'a> {
    /// The run's clock.
    pub clock: &'a dyn Clock,
    /// When the first machine is named.
    pub begin: Timestamp,
    /// Seconds of that clock from one machine to the next.
    pub apart_seconds: f64,
}

impl Arrivals<'_> {
    async fn turn(&self, index: usize) {
        #[expect(clippy::cast_precision_loss, reason = "a number of machines")]
        let after = self.apart_seconds * index as f64;
        if after > 0.0 {
            self.clock.sleep_until(self.begin.plus_seconds(after)).await;
        }
    }
}

/// Names each racked machine of a site to the control plane, unless its hostname is known there.
///
/// # Errors
/// The first refusal.
pub async fn onboard(
    client: &ApiClient,
    site: &str,
    inventory: &[MachineInventory],
    arrivals: Arrivals<'_>,
) -> Result<(), Failure> {
    let known: BTreeSet<String> =
        client.nodes(Some(site), None).await?.items.into_iter().map(|n| n.hostname).collect();
    let requests = inventory.iter().filter(|m| !known.contains(&m.name)).enumerate().map(
        |(index, machine)| async move {
            arrivals.turn(index).await;
            client.onboard(&request(site, machine)).await.map(drop)
        },
    );
    let mut answers = stream::iter(requests).buffered(AT_ONCE);
    while let Some(answer) = answers.next().await {
        answer?;
    }
    Ok(())
}

pub(crate) fn request(site: &str, machine: &MachineInventory) -> OnboardRequest {
    OnboardRequest {
        hostname: machine.name.clone(),
        site: site.to_owned(),
        profile: PROFILE.to_owned(),
        bmc_address: Some(machine.bmc_address.clone()),
        bmc_user: Some("maas".to_owned()),
        bmc_password: Some("secret".into()),
        mac_addresses: vec![machine.mac_address.clone()],
        ..OnboardRequest::default()
    }
}
