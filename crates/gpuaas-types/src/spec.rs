//! What operators write: sites, profiles, fabric addresses. Unknown fields are refused by name.

use std::collections::BTreeMap;
use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::SecretText;
use crate::key_reference::KeyReference;
use crate::lifecycle::{DriftAction, DriftKind, RunKind};
use crate::text;

/// A MAAS region. The API key is never part of it: it is sealed beside it, or kept elsewhere.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SiteSpec {
    /// Unique name, `[a-z0-9-]`.
    #[schemars(with = "text::NameText")]
    pub name: String,
    /// MAAS base URL, such as `http://maas.example:5240/MAAS`.
    #[schemars(regex(pattern = r"^https?://[A-Za-z0-9]"))]
    pub url: String,
    /// Where the API key is kept, `vault:MOUNT/PATH#FIELD` of KV version 2; none: sealed in the
    /// database.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub api_key_ref: Option<KeyReference>,
    /// Extra certificate authority for an https region, PEM.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ca_pem: Option<String>,
    /// Certificate bundle handed to nodes of the site, PEM.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node_ca_pem: Option<String>,
    /// Resource pool whose machines are the site's; none: every machine of the region. Two sites of
    /// one region have one each.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pool: Option<String>,
    /// VLAN tag that boot interfaces must be on; none: any VLAN on which MAAS serves DHCP.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pxe_vlan: Option<i64>,
    /// Images that may be deployed here (`custom/NAME`, `ubuntu/noble`), an uploaded one by the digest
    /// of its file as well (`custom/NAME@sha256:HEX`); empty: any that MAAS synced, and those uploaded
    /// ones that were approved by themselves (`gpuaas image approve`).
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub approved_images: Vec<String>,
    /// Nodes of the site in the deploying part of a run at once; 0: no limit. Deployments of a
    /// site share the links over which the images travel.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub batch_max_parallel: u32,
    /// What the links carry over which the site's images travel, in Mbit/s; 0: unknown. With the
    /// size of the image (`image_size_megabytes` of the profile) it limits deployments at once.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub image_bandwidth_mbit_per_second: u32,
    /// Seconds between two looks at MAAS' event feed while no run of the site moves; 0: five. What a
    /// user of MAAS does to a machine in service is on its node's timeline so soon.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub idle_poll_seconds: u32,
    /// Values for inputs of site bundles, by the bundle's name.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub bundle_inputs: BTreeMap<String, BTreeMap<String, String>>,
    /// Values for inputs of site bundles on one host, by its name and the bundle's; they win.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub host_inputs: BTreeMap<String, BTreeMap<String, BTreeMap<String, String>>>,
    /// What is done about each kind of drift; what is left out is reported.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub drift_policy: BTreeMap<DriftKind, DriftAction>,
    /// What waits for another person than the one who asks.
    #[serde(default, skip_serializing_if = "SecondPersonPolicy::is_off")]
    pub second_person: SecondPersonPolicy,
}

/// What of a site waits for another person than the one who asks; off as it is by default.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SecondPersonPolicy {
    /// Nodes whose disks one person may have written over or erased within an hour, by onboardings,
    /// batches, reimages, decommissions and cleanings; none: any number.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub erasing_above: Option<u32>,
    /// Whether each approval of a bundle waits.
    #[serde(default)]
    pub bundle_approvals: bool,
    /// Whether each update of an agent waits.
    #[serde(default)]
    pub agent_updates: bool,
    /// Whether each approval of a host image waits.
    #[serde(default, skip_serializing_if = "is_false")]
    pub image_approvals: bool,
}

impl SecondPersonPolicy {
    /// Whether nothing waits.
    #[must_use]
    pub fn is_off(&self) -> bool {
        *self == Self::default()
    }
}

impl SiteSpec {
    /// A site of the region at `url` about which nothing else is said.
    #[must_use]
    pub fn new(name: &str, url: &str) -> Self {
        Self {
            name: name.to_owned(),
            url: url.to_owned(),
            api_key_ref: None,
            ca_pem: None,
            node_ca_pem: None,
            pool: None,
            pxe_vlan: None,
            approved_images: Vec::new(),
            batch_max_parallel: 0,
            image_bandwidth_mbit_per_second: 0,
            idle_poll_seconds: 0,
            bundle_inputs: BTreeMap::new(),
            host_inputs: BTreeMap::new(),
            drift_policy: BTreeMap::new(),
            second_person: SecondPersonPolicy::default(),
        }
    }

    /// The address of the region in one spelling: scheme and host in lower case, no user, no port
    /// that the scheme has by itself, no `/` at the end, and nothing after the base that MAAS' own
    /// pages and API 2.0 share.
    #[must_use]
    pub fn region_url(&self) -> String {
        let (scheme, rest) = self.url.trim().split_once("://").unwrap_or(("", self.url.trim()));
        let scheme = scheme.to_ascii_lowercase();
        let rest = rest.split(['?', '#']).next().unwrap_or_default();
        let (authority, path) = rest.split_once('/').unwrap_or((rest, ""));
        let host = authority.rsplit_once('@').map_or(authority, |(_, host)| host);
        let host = host.to_ascii_lowercase();
        let usual = match scheme.as_str() {
            "http" => ":80",
            "https" => ":443",
            _ => "",
        };
        let host = host.strip_suffix(usual).unwrap_or(&host);
        let host = host.strip_suffix('.').unwrap_or(host);
        let parts: Vec<&str> = path.split('/').filter(|part| !part.is_empty()).collect();
        let base = parts.strip_suffix(&["api", "2.0"]).unwrap_or(&parts);
        std::iter::once(format!("{scheme}://{host}"))
            .chain(base.iter().map(|part| (*part).to_owned()))
            .collect::<Vec<_>>()
            .join("/")
    }
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde asks for a reference")]
const fn is_zero(number: &u32) -> bool {
    *number == 0
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde asks for a reference")]
const fn is_false(value: &bool) -> bool {
    !*value
}

/// What connects the GPUs of different nodes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum FabricMode {
    /// No fabric of its own.
    #[default]
    Ethernet,
    /// RDMA over Ethernet: fabric interfaces may get static addresses from the site's assignments.
    Roce,
    /// InfiniBand: its own addresses, so MAAS links nothing on it.
    Ib,
}

/// Who has the machine in MAAS once its node leaves.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ReleaseMode {
    /// GPUaaS releases it.
    #[default]
    Managed,
    /// Handed to the customer: GPUaaS does not touch it in MAAS again.
    Handoff,
}

/// What makes a host one for another tenant.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum BetweenTenants {
    /// A reimage, which erases its disks where `release_erase` says so.
    #[default]
    Reimage,
    /// The agent stops the tenant's processes and empties its folders.
    SoftReset,
    /// The agent empties the scratch storage.
    StorageCleanup,
}

impl BetweenTenants {
    /// The mode that a run of this kind carries out; none: it puts no host back into service, or it
    /// deploys one that had no tenant.
    #[must_use]
    pub const fn of_kind(kind: RunKind) -> Option<Self> {
        match kind {
            RunKind::Reimage => Some(Self::Reimage),
            RunKind::SoftReset => Some(Self::SoftReset),
            RunKind::StorageCleanup => Some(Self::StorageCleanup),
            RunKind::Onboard | RunKind::Decommission | RunKind::Detach | RunKind::Remove => None,
        }
    }

    /// Whether a run of this kind may put a host back into service where the profile names this
    /// mode. A reimage always may: it rests on MAAS and not on the word of the host.
    #[must_use]
    pub fn allows(self, kind: RunKind) -> bool {
        Self::of_kind(kind).is_none_or(|mode| mode == Self::Reimage || mode == self)
    }

    /// Its written form.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Reimage => "reimage",
            Self::SoftReset => "soft_reset",
            Self::StorageCleanup => "storage_cleanup",
        }
    }
}

/// Policy of a provisioning profile. Revisions are immutable and a run pins one.
///
/// The eleven policy fields of a hardware profile, the two deploy fields, and what the classes of
/// hardware need beyond them (docs/hosts.md#hardware-classes). A revision that was stored before a
/// field existed reads as its default.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct ProfileSpec {
    /// Bundle that runs before the node bootstrap, `name@version` or its digest; empty: none.
    pub site_bootstrap_bundle_ref: String,
    /// Values for the bundle's inputs; they win over the site's.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub site_bootstrap_inputs: BTreeMap<String, String>,
    /// A doubt about the boot interface stops the run (`true`) or only warns.
    pub strict_pxe_preflight: bool,
    /// Link fabric interfaces from the site's RoCE assignments before deploying.
    pub enable_phase2_roce: bool,
    /// Ask MAAS for hardware sync and require it at completion.
    pub require_hw_sync: bool,
    /// Interval that the region must be set to, such as `15m`; empty: whatever it is.
    pub hardware_sync_interval: String,
    /// Have MAAS wipe the disks of a machine that is decommissioned or reimaged. Without it what a
    /// tenant left on data disks stays there.
    pub release_erase: bool,
    /// Release without erasing when MAAS cannot wipe the disks.
    pub release_fallback_no_erase: bool,
    /// Try again when the deployed system did not find its datasource.
    pub enable_deploy_retry_on_datasource_failure: bool,
    /// Further deployments after the first one.
    pub max_deploy_retry_attempts: u32,
    /// Take the one new unowned machine when nothing else matches.
    pub auto_claim_single_new_machine: bool,
    /// Nodes of the profile in the deploying part of a run at once; 0: no limit.
    pub batch_max_parallel: u32,
    /// How long what a node was given for its bootstrap and its enrollment stays good while its run
    /// is parked, in seconds: from the parking, or from what the node said last. While a run works
    /// it has no end, however slow the install; once the run is over it is good for nothing.
    pub enrollment_token_ttl_seconds: u32,
    /// Seconds without a heartbeat of its agent after which a node in service is offline; agents
    /// send one every 30 seconds. Time in which no control plane listened does not count.
    pub offline_after_seconds: u32,
    /// Image: `noble`, `ubuntu/noble`, or a custom image's visible name.
    pub distro_series: String,
    /// SHA-256 of the file of an uploaded image, hex: no other one is deployed under its name; empty:
    /// the one that the site approves.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub image_sha256: String,
    /// What a machine fetches of that image, in megabytes (10^6 bytes); 0: unknown.
    pub image_size_megabytes: u32,
    /// Login user of the deployed system; empty: the image's default.
    pub deploy_user: String,
    /// What connects the GPUs of different nodes.
    pub fabric_mode: FabricMode,
    /// What the agent has to find on the deployed host before the node is active, `name@version`;
    /// empty: nothing beyond its diagnostics.
    pub post_deploy_validation_bundle_ref: String,
    /// Scripts that MAAS runs on the machine while it commissions it, `name@version`; empty: only
    /// those that it runs by itself.
    pub commissioning_bundle_ref: String,
    /// Named storage layout: `flat`, `lvm`, `bcache`, or one with data disks such as `flat-data`.
    pub storage_layout_profile: String,
    /// Who has the machine in MAAS once its node leaves.
    pub release_mode: ReleaseMode,
    /// What makes a host one for another tenant. A host on which a tenant had root reports its own
    /// cleaning, so only `reimage` is more than its word. A cleaning that is not named here is
    /// refused.
    pub between_tenants: BetweenTenants,
    /// MAAS tag of the profile's machines; empty: none. It carries no kernel options: the kernel's
    /// arguments are in a tag of their own, `gpuaas-kernel-` and their digest.
    pub machine_tag: String,
    /// Arguments of the kernel beyond those that the site bundle asks for, with spaces between them,
    /// such as `nokaslr`. A slice host gets its pages of 1 GiB from the shape of its slices; arguments
    /// such as `hugepagesz=1G hugepages=600` here replace them.
    pub kernel_arguments: String,
    /// Sites whose nodes may be deployed with the profile; none: every site.
    pub sites: Vec<String>,
}

/// MAAS tag that all slice profiles shared before each set of kernel arguments had a tag of its own.
/// A machine loses it with its next deployment or when it leaves.
pub const SLICE_TAG: &str = "gpuaas-profile-slice-vm";

/// Prefix of the MAAS tags whose kernel options are arguments of a deployed kernel; a digest of these
/// follows.
pub const KERNEL_TAG_PREFIX: &str = "gpuaas-kernel-";

impl Default for ProfileSpec {
    fn default() -> Self {
        Self {
            site_bootstrap_bundle_ref: String::new(),
            site_bootstrap_inputs: BTreeMap::new(),
            strict_pxe_preflight: true,
            enable_phase2_roce: false,
            require_hw_sync: false,
            hardware_sync_interval: String::new(),
            release_erase: true,
            release_fallback_no_erase: false,
            enable_deploy_retry_on_datasource_failure: true,
            max_deploy_retry_attempts: 2,
            auto_claim_single_new_machine: false,
            batch_max_parallel: 0,
            enrollment_token_ttl_seconds: 3600,
            offline_after_seconds: 300,
            distro_series: "ubuntu/noble".to_owned(),
            image_sha256: String::new(),
            image_size_megabytes: 0,
            deploy_user: String::new(),
            fabric_mode: FabricMode::Ethernet,
            post_deploy_validation_bundle_ref: String::new(),
            commissioning_bundle_ref: String::new(),
            storage_layout_profile: "flat".to_owned(),
            release_mode: ReleaseMode::Managed,
            between_tenants: BetweenTenants::Reimage,
            machine_tag: String::new(),
            kernel_arguments: String::new(),
            sites: Vec::new(),
        }
    }
}

/// One fabric address of one host, keyed by site and hostname.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct RoceAssignmentSpec {
    /// Site name.
    pub site: String,
    /// Short hostname.
    #[schemars(with = "text::HostnameText")]
    pub hostname: String,
    /// Interface name, or its MAC address.
    #[schemars(with = "text::InterfaceText")]
    pub interface: String,
    /// Subnet in MAAS, as CIDR.
    pub subnet_cidr: String,
    /// Static address inside it.
    pub ip_address: String,
}

/// An operator's word that a machine in use may be taken, for the machine and the owner that the
/// operator was shown and for no other.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct TakeOver {
    /// System ID of the machine in MAAS.
    #[schemars(with = "text::SystemIdText")]
    pub system_id: String,
    /// MAAS user that owned it then; none: nobody did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub owner: Option<String>,
    /// Name of the operator, as the audit keeps it.
    pub actor: String,
    /// The operator's reason, as the audit keeps it.
    #[schemars(with = "text::WordsText")]
    pub reason: String,
}

impl fmt::Display for TakeOver {
    /// Who lets an onboarding have which machine, and why.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { system_id, owner, actor, reason } = self;
        let owner = owner.as_deref().unwrap_or("nobody");
        write!(f, "{actor} took over machine {system_id}, owned by {owner}: {reason}")
    }
}

/// What is asked of an onboarding. Every identifier that is given has to be the machine's.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct OnboardRequest {
    /// Short hostname.
    #[schemars(with = "text::HostnameText")]
    pub hostname: String,
    /// Site name.
    pub site: String,
    /// Profile name.
    pub profile: String,
    /// Address of the machine's BMC.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bmc_address: Option<String>,
    /// BMC user.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<text::PrintableText>")]
    pub bmc_user: Option<String>,
    /// BMC password; sealed at once, never shown again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<text::PrintableText>")]
    pub bmc_password: Option<SecretText>,
    /// Power driver; default `ipmi` when there is a BMC address, else `manual`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<text::PowerTypeText>")]
    pub power_type: Option<String>,
    /// MAC addresses of the machine's boot interfaces.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(with = "Vec<text::MacAddressText>")]
    pub mac_addresses: Vec<String>,
    /// Architecture; default `amd64/generic`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<text::ArchitectureText>")]
    pub architecture: Option<String>,
    /// System ID of the machine in MAAS.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<text::SystemIdText>")]
    pub system_id: Option<String>,
    /// Serial number of the machine's chassis, as its firmware says it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<text::SerialText>")]
    pub serial: Option<String>,
    /// A machine in use may be taken; none: it is not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub take_over: Option<TakeOver>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_address_has_one_spelling() {
        let spell = |url: &str| {
            let site = serde_json::json!({ "name": "lab", "url": url });
            serde_json::from_value::<SiteSpec>(site).unwrap().region_url()
        };
        let usual = "http://maas.example:5240/MAAS";
        for same in [
            "http://maas.example:5240/MAAS/",
            " HTTP://Maas.Example:5240//MAAS/api/2.0/",
            "http://ann@maas.example:5240/MAAS",
        ] {
            assert_eq!(spell(same), usual, "{same}");
        }
        assert_eq!(spell("https://maas.example:443/MAAS"), spell("https://maas.example./MAAS"));
        for other in [
            "https://maas.example:5240/MAAS",
            "http://maas.example/MAAS",
            "http://maas.example:5240/",
            "http://maas.example:5240/maas",
        ] {
            assert_ne!(spell(other), usual, "{other}");
        }
    }

    #[test]
    fn only_the_named_cleaning_and_a_reimage_put_a_host_back() {
        use BetweenTenants as Mode;
        for (mode, kind, allowed) in [
            (Mode::Reimage, RunKind::Reimage, true),
            (Mode::Reimage, RunKind::SoftReset, false),
            (Mode::Reimage, RunKind::StorageCleanup, false),
            (Mode::SoftReset, RunKind::SoftReset, true),
            (Mode::SoftReset, RunKind::StorageCleanup, false),
            (Mode::StorageCleanup, RunKind::StorageCleanup, true),
            (Mode::StorageCleanup, RunKind::SoftReset, false),
            (Mode::StorageCleanup, RunKind::Reimage, true),
            (Mode::Reimage, RunKind::Decommission, true),
            (Mode::Reimage, RunKind::Detach, true),
        ] {
            assert_eq!(mode.allows(kind), allowed, "{mode:?} {kind}");
        }
        let default = ProfileSpec::default();
        assert_eq!((default.between_tenants, default.release_erase), (Mode::Reimage, true));
    }

    #[test]
    fn a_revision_from_before_a_field_reads_as_its_default() {
        let stored = r#"{"enable_phase2_roce":true,"distro_series":"noble"}"#;
        let spec: ProfileSpec = serde_json::from_str(stored).unwrap();
        let expected = ProfileSpec {
            enable_phase2_roce: true,
            distro_series: "noble".to_owned(),
            ..ProfileSpec::default()
        };
        assert_eq!(spec, expected);
        assert_eq!(spec.storage_layout_profile, "flat");
        let site = r#"{"name":"lab","url":"http://maas"}"#;
        let site: SiteSpec = serde_json::from_str(site).unwrap();
        assert_eq!(site.batch_max_parallel, 0);
        assert!(!serde_json::to_string(&site).unwrap().contains("batch_max_parallel"));
    }
}
