//! Small tables: configuration, tags, zones, pools, SSH keys.

use std::collections::BTreeMap;

use serde_json::{Value, json};

/// Setting names in MAAS's own order: its refusal of an unknown one lists them.
pub(crate) const NAMES: &[&str] = &[
    "maas_name",
    "theme",
    "kernel_opts",
    "enable_http_proxy",
    "maas_proxy_port",
    "use_peer_proxy",
    "prefer_v4_proxy",
    "http_proxy",
    "default_dns_ttl",
    "upstream_dns",
    "dnssec_validation",
    "maas_internal_domain",
    "dns_trusted_acl",
    "ntp_servers",
    "ntp_external_only",
    "allow_only_trusted_transfers",
    "remote_syslog",
    "maas_syslog_port",
    "network_discovery",
    "active_discovery_interval",
    "default_boot_interface_link_type",
    "default_osystem",
    "default_distro_series",
    "default_min_hwe_kernel",
    "enable_kernel_crash_dump",
    "default_storage_layout",
    "commissioning_distro_series",
    "enable_third_party_drivers",
    "windows_kms_host",
    "enable_disk_erasing_on_release",
    "disk_erase_with_secure_erase",
    "disk_erase_with_quick_erase",
    "boot_images_auto_import",
    "boot_images_no_proxy",
    "curtin_verbose",
    "force_v1_network_yaml",
    "enable_analytics",
    "completed_intro",
    "max_node_commissioning_results",
    "max_node_testing_results",
    "max_node_installation_results",
    "max_node_release_results",
    "subnet_ip_exhaustion_threshold_count",
    "release_notifications",
    "use_rack_proxy",
    "node_timeout",
    "prometheus_enabled",
    "prometheus_push_gateway",
    "prometheus_push_interval",
    "promtail_enabled",
    "promtail_port",
    "enlist_commissioning",
    "maas_auto_ipmi_user",
    "maas_auto_ipmi_user_privilege_level",
    "maas_auto_ipmi_k_g_bmc_key",
    "maas_auto_ipmi_cipher_suite_id",
    "maas_auto_ipmi_workaround_flags",
    "vcenter_server",
    "vcenter_username",
    "vcenter_password",
    "vcenter_datacenter",
    "hardware_sync_interval",
    "tls_cert_expiration_notification_enabled",
    "tls_cert_expiration_notification_interval",
    "session_length",
    "auto_vlan_creation",
];

/// What a new region has set, as JSON; the others are empty texts.
const DEFAULTS: &[(&str, &str)] = &[
    ("maas_name", "\"maas-sim\""),
    ("kernel_opts", "null"),
    ("enable_http_proxy", "true"),
    ("maas_proxy_port", "8000"),
    ("use_peer_proxy", "false"),
    ("prefer_v4_proxy", "false"),
    ("http_proxy", "null"),
    ("default_dns_ttl", "30"),
    ("upstream_dns", "null"),
    ("dnssec_validation", "\"auto\""),
    ("maas_internal_domain", "\"maas-internal\""),
    ("dns_trusted_acl", "null"),
    ("ntp_servers", "\"ntp.ubuntu.com\""),
    ("ntp_external_only", "false"),
    ("allow_only_trusted_transfers", "true"),
    ("remote_syslog", "null"),
    ("maas_syslog_port", "5247"),
    ("network_discovery", "\"enabled\""),
    ("active_discovery_interval", "10800"),
    ("default_boot_interface_link_type", "\"auto\""),
    ("default_osystem", "\"ubuntu\""),
    ("default_distro_series", "\"jammy\""),
    ("enable_kernel_crash_dump", "false"),
    ("default_storage_layout", "\"flat\""),
    ("commissioning_distro_series", "\"jammy\""),
    ("enable_third_party_drivers", "true"),
    ("windows_kms_host", "null"),
    ("enable_disk_erasing_on_release", "false"),
    ("disk_erase_with_secure_erase", "true"),
    ("disk_erase_with_quick_erase", "false"),
    ("boot_images_auto_import", "true"),
    ("boot_images_no_proxy", "false"),
    ("curtin_verbose", "true"),
    ("force_v1_network_yaml", "false"),
    ("enable_analytics", "true"),
    ("completed_intro", "true"),
    ("max_node_commissioning_results", "10"),
    ("max_node_testing_results", "10"),
    ("max_node_installation_results", "3"),
    ("max_node_release_results", "3"),
    ("subnet_ip_exhaustion_threshold_count", "16"),
    ("release_notifications", "true"),
    ("use_rack_proxy", "true"),
    ("node_timeout", "30"),
    ("prometheus_enabled", "false"),
    ("prometheus_push_gateway", "null"),
    ("prometheus_push_interval", "60"),
    ("promtail_enabled", "false"),
    ("promtail_port", "5238"),
    ("enlist_commissioning", "true"),
    ("maas_auto_ipmi_user", "\"maas\""),
    ("maas_auto_ipmi_user_privilege_level", "\"ADMIN\""),
    ("maas_auto_ipmi_cipher_suite_id", "\"3\""),
    ("maas_auto_ipmi_workaround_flags", "null"),
    ("hardware_sync_interval", "\"15m\""),
    ("tls_cert_expiration_notification_enabled", "false"),
    ("tls_cert_expiration_notification_interval", "30"),
    ("session_length", "1209600"),
    ("auto_vlan_creation", "true"),
];

/// The layouts that a machine can be given.
pub(crate) const LAYOUTS: &[&str] = &["custom", "vmfs7", "vmfs6", "blank", "bcache", "lvm", "flat"];

/// Settings that are one of a few words.
pub(crate) const CHOICES: &[(&str, &[&str])] = &[
    ("default_storage_layout", LAYOUTS),
    ("network_discovery", &["enabled", "disabled"]),
    ("dnssec_validation", &["auto", "yes", "no"]),
    ("maas_auto_ipmi_user_privilege_level", &["USER", "OPERATOR", "ADMIN"]),
];

#[derive(Debug, Clone)]
pub(crate) struct Tag {
    pub(crate) name: String,
    pub(crate) definition: String,
    pub(crate) comment: String,
    pub(crate) kernel_opts: String,
}

impl Tag {
    pub(crate) fn json(&self) -> Value {
        json!({"name": self.name, "definition": self.definition, "comment": self.comment,
               "kernel_opts": self.kernel_opts, "resource_uri": format!("/MAAS/api/2.0/tags/{}/", self.name)})
    }
}

/// A zone or a resource pool.
#[derive(Debug, Clone)]
pub(crate) struct Group {
    pub(crate) id: i64,
    pub(crate) name: String,
    pub(crate) description: String,
}

#[derive(Debug, Clone)]
pub(crate) struct SshKey {
    pub(crate) id: i64,
    pub(crate) owner: String,
    pub(crate) key: String,
}

#[derive(Debug, Clone)]
pub(crate) struct Settings {
    values: BTreeMap<&'static str, Value>,
    /// Scheme, host and port under which callers reach the region.
    pub(crate) public_url: String,
    pub(crate) tags: Vec<Tag>,
    pub(crate) zones: Vec<Group>,
    pub(crate) pools: Vec<Group>,
    pub(crate) ssh_keys: Vec<SshKey>,
}

impl Settings {
    pub(crate) fn new() -> Self {
        let mut values: BTreeMap<&'static str, Value> =
            NAMES.iter().map(|n| (*n, json!(""))).collect();
        for (name, value) in DEFAULTS {
            let value = serde_json::from_str(value).unwrap_or(Value::Null);
            values.insert(name, value);
        }
        let group = |id, description: &str| Group {
            id,
            name: "default".to_owned(),
            description: description.to_owned(),
        };
        let mut out = Self {
            values,
            public_url: "http://localhost:5240".to_owned(),
            tags: Vec::new(),
            zones: vec![group(1, "")],
            pools: vec![group(0, "Default pool")],
            ssh_keys: Vec::new(),
        };
        out.ensure_tag("virtual");
        out
    }

    pub(crate) fn get(&self, name: &str) -> Option<&Value> {
        self.values.get(name)
    }

    pub(crate) fn set(&mut self, name: &str, value: Value) {
        if let Some(slot) = self.values.get_mut(name) {
            *slot = value;
        }
    }

    pub(crate) fn int(&self, name: &str) -> Option<i64> {
        let value = self.get(name)?;
        value.as_i64().or_else(|| value.as_str().and_then(|s| s.parse().ok()))
    }

    pub(crate) fn text(&self, name: &str) -> &str {
        self.get(name).and_then(Value::as_str).unwrap_or("")
    }

    pub(crate) fn flag(&self, name: &str) -> bool {
        self.get(name).is_some_and(|v| v.as_bool().unwrap_or_else(|| v.as_str() == Some("true")))
    }

    pub(crate) fn ensure_tag(&mut self, name: &str) {
        if !self.tags.iter().any(|t| t.name == name) {
            self.tags.push(Tag {
                name: name.to_owned(),
                definition: String::new(),
                comment: String::new(),
                kernel_opts: String::new(),
            });
        }
    }

    pub(crate) fn tag(&mut self, name: &str) -> Option<&mut Tag> {
        self.tags.iter_mut().find(|t| t.name == name)
    }

    /// Kernel options of these tags, in the order of their names.
    pub(crate) fn kernel_options_of(&self, names: &[String]) -> String {
        let mut tags: Vec<&Tag> = self.tags.iter().filter(|t| names.contains(&t.name)).collect();
        tags.sort_by(|a, b| a.name.cmp(&b.name));
        let options = tags.iter().map(|tag| tag.kernel_opts.trim()).filter(|o| !o.is_empty());
        options.collect::<Vec<_>>().join(" ")
    }

    pub(crate) fn zone<'a>(&'a self, name: &'a str) -> (i64, &'a str, &'a str) {
        find(&self.zones, name)
    }

    pub(crate) fn pool<'a>(&'a self, name: &'a str) -> (i64, &'a str, &'a str) {
        find(&self.pools, name)
    }

    pub(crate) fn ssh_keys_of(&self, owner: Option<&str>) -> Vec<String> {
        self.ssh_keys
            .iter()
            .filter(|k| Some(k.owner.as_str()) == owner)
            .map(|k| k.key.clone())
            .collect()
    }
}

fn find<'a>(list: &'a [Group], name: &'a str) -> (i64, &'a str, &'a str) {
    list.iter().find(|g| g.name == name).map_or((0, name, ""), |g| (g.id, &g.name, &g.description))
}
