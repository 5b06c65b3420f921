//! Power types: what their forms ask for, and what MAAS stores.

use serde_json::{Map, Value};

use super::forms::FormError;
use crate::wire::Params;

struct PowerType {
    name: &'static str,
    /// Parameters that must be there, with the labels that refusals name them by.
    required: &'static [(&'static str, &'static str)],
    /// All other parameters; none where they are not told apart here.
    optional: Option<&'static [&'static str]>,
}

const fn power_type(
    name: &'static str,
    required: &'static [(&'static str, &'static str)],
    optional: Option<&'static [&'static str]>,
) -> PowerType {
    PowerType { name, required, optional }
}

const POWER_TYPES: &[PowerType] = &[
    power_type("manual", &[], Some(&[])),
    power_type(
        "ipmi",
        &[("power_address", "IP address")],
        Some(&[
            "power_driver",
            "power_boot_type",
            "power_user",
            "power_pass",
            "k_g",
            "cipher_suite_id",
            "privilege_level",
            "workaround_flags",
            "mac_address",
            "power_off_mode",
        ]),
    ),
    power_type(
        "redfish",
        &[
            ("power_address", "Redfish address"),
            ("power_user", "Redfish user"),
            ("power_pass", "Redfish password"),
        ],
        Some(&["node_id"]),
    ),
    power_type("virsh", &[("power_address", "Address"), ("power_id", "Virsh VM ID")], None),
    power_type(
        "lxd",
        &[
            ("power_address", "LXD address"),
            ("instance_name", "Instance name"),
            ("project", "LXD project"),
        ],
        None,
    ),
    power_type(
        "webhook",
        &[
            ("power_on_uri", "URI to power on the node"),
            ("power_off_uri", "URI to power off the node"),
            ("power_query_uri", "URI to query the nodes power status"),
        ],
        None,
    ),
    power_type(
        "openbmc",
        &[
            ("power_address", "OpenBMC address"),
            ("power_user", "OpenBMC user"),
            ("power_pass", "OpenBMC password"),
        ],
        None,
    ),
    power_type("amt", &[("power_address", "Power address")], None),
    power_type(
        "apc",
        &[
            ("power_address", "IP for APC PDU"),
            ("node_outlet", "APC PDU node outlet number (1-16)"),
        ],
        None,
    ),
    power_type("dli", &[("power_address", "Power address")], None),
    power_type(
        "eaton",
        &[
            ("power_address", "IP for Eaton PDU"),
            ("node_outlet", "Eaton PDU node outlet number (1-24)"),
        ],
        None,
    ),
    power_type(
        "hmc",
        &[
            ("power_address", "IP for HMC"),
            ("server_name", "HMC Managed System server name"),
            ("lpar", "HMC logical partition"),
        ],
        None,
    ),
    power_type(
        "hmcz",
        &[("power_address", "HMC Address"), ("power_partition_name", "HMC partition name")],
        None,
    ),
    power_type(
        "moonshot",
        &[("power_address", "Power address"), ("power_hwaddress", "Power hardware address")],
        None,
    ),
    power_type("mscm", &[("power_address", "IP for MSCM CLI API"), ("node_id", "Node ID")], None),
    power_type("msftocs", &[("power_address", "Power address"), ("blade_id", "Blade ID")], None),
    power_type("nova", &[("nova_id", "Host UUID")], None),
    power_type(
        "proxmox",
        &[
            ("power_address", "Proxmox host name or IP"),
            ("power_user", "Proxmox username, including realm"),
            ("power_vm_name", "Node ID"),
        ],
        None,
    ),
    power_type(
        "raritan",
        &[
            ("power_address", "IP for Raritan PDU"),
            ("node_outlet", "Raritan PDU node outlet number (1-36)"),
        ],
        None,
    ),
    power_type("recs_box", &[("power_address", "Power address"), ("node_id", "Node ID")], None),
    power_type("sm15k", &[("power_address", "Power address"), ("system_id", "System ID")], None),
    power_type("ucsm", &[("power_address", "URL for XML API"), ("uuid", "Server UUID")], None),
    power_type(
        "vmware",
        &[("power_address", "VMware IP"), ("power_vm_name", "VM Name (if UUID unknown)")],
        None,
    ),
    power_type("wedge", &[("power_address", "IP address")], None),
];

/// Parameters of `ipmi` that are one of a few words: label, and the words.
const IPMI_CHOICES: &[(&str, &str, &[&str])] = &[
    ("power_driver", "Power driver", &["LAN", "LAN_2_0"]),
    ("power_boot_type", "Power boot type", &["auto", "legacy", "efi"]),
    ("privilege_level", "Privilege Level", &["USER", "OPERATOR", "ADMIN"]),
    ("power_off_mode", "Power off mode", &["soft", "hard"]),
];

const IPMI_DEFAULTS: &[(&str, &str)] = &[
    ("power_driver", "LAN_2_0"),
    ("power_user", ""),
    ("power_off_mode", "hard"),
    ("cipher_suite_id", "3"),
    ("power_boot_type", "auto"),
    ("privilege_level", "OPERATOR"),
    ("k_g", ""),
    ("power_pass", ""),
    ("mac_address", ""),
];

fn sent_parameters(params: &Params) -> Map<String, Value> {
    let mut out = Map::new();
    if let Some(Value::Object(map)) =
        params.filled("power_parameters").and_then(|t| serde_json::from_str(t).ok())
    {
        out.extend(map);
    }
    for (key, value) in params.iter() {
        if let Some(name) = key.strip_prefix("power_parameters_").filter(|n| *n != "skip_check") {
            out.insert(name.to_owned(), Value::from(value));
        }
    }
    out
}

/// Power type and stored parameters.
pub(super) type Power = (String, Map<String, Value>);

fn unknown(names: &[&str]) -> FormError {
    ("power_parameters", format!("Unknown parameter(s): {}.", names.join(", ")))
}

/// The stored power parameters after this request, or what the form refuses.
pub(super) fn parse_power(
    params: &Params,
    old_type: &str,
    old: &Map<String, Value>,
) -> Result<Power, Vec<FormError>> {
    let kind = params.filled("power_type").unwrap_or(old_type).to_owned();
    let sent = sent_parameters(params);
    let skip = params.django_bool("power_parameters_skip_check");
    let Some(form) = POWER_TYPES.iter().find(|form| form.name == kind) else {
        if kind.is_empty() {
            return Ok((kind, Map::new()));
        }
        let text = format!("Select a valid choice. {kind} is not one of the available choices.");
        let mut errors = vec![("power_type", text)];
        if !sent.is_empty() && !skip {
            let mut names: Vec<&str> = sent.keys().map(String::as_str).collect();
            names.sort_unstable();
            errors.push(unknown(&names));
        }
        return Err(errors);
    };
    let mut all = if kind == old_type { old.clone() } else { Map::new() };
    all.extend(sent.clone());
    if !skip {
        let errors = refused(form, &sent, &all);
        if !errors.is_empty() {
            return Err(errors);
        }
    }
    if kind == "ipmi" {
        for (name, value) in IPMI_DEFAULTS {
            all.entry(*name).or_insert_with(|| Value::from(*value));
        }
        all.entry("workaround_flags").or_insert_with(|| Value::from(vec!["opensesspriv"]));
    }
    Ok((kind, all))
}

fn refused(
    form: &PowerType,
    sent: &Map<String, Value>,
    all: &Map<String, Value>,
) -> Vec<FormError> {
    if let Some(optional) = form.optional {
        let known = |n: &str| optional.contains(&n) || form.required.iter().any(|(r, _)| *r == n);
        let mut odd: Vec<&str> = sent.keys().map(String::as_str).filter(|n| !known(n)).collect();
        odd.sort_unstable();
        if !odd.is_empty() {
            return vec![unknown(&odd)];
        }
    }
    if all.is_empty() && !form.required.is_empty() {
        return vec![("power_parameters", "This field is required.".to_owned())];
    }
    let text = |name: &str| all.get(name).and_then(Value::as_str).unwrap_or("");
    let mut out: Vec<FormError> = form
        .required
        .iter()
        .filter(|(name, _)| text(name).is_empty())
        .map(|(_, label)| ("power_parameters", format!("{label}: This field is required.")))
        .collect();
    if form.name == "ipmi" {
        for (name, label, words) in IPMI_CHOICES {
            let value = text(name);
            if !value.is_empty() && !words.contains(&value) {
                let list: Vec<String> = words.iter().map(|w| format!("'{w}'")).collect();
                let text = format!(
                    "{label}: '{value}' is not a valid {name}.  It should be one of: {}.",
                    list.join(", ")
                );
                out.push(("power_parameters", text));
            }
        }
    }
    out
}
