use serde::Deserialize;

use crate::lenient::null_as_default;

/// A network interface (docs/maas.md#interfaces).
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct Interface {
    /// Id, unique in the region.
    pub id: u64,
    /// Name, e.g. `eth0`.
    #[serde(deserialize_with = "null_as_default")]
    pub name: String,
    /// `physical`, `bond`, `bridge` or `vlan`.
    #[serde(rename = "type", deserialize_with = "null_as_default")]
    pub kind: String,
    /// MAC address, lower case; empty where MAAS has none.
    #[serde(deserialize_with = "null_as_default")]
    pub mac_address: String,
    /// The VLAN; `None` where disconnected.
    pub vlan: Option<Vlan>,
    /// Layer-3 links.
    #[serde(deserialize_with = "null_as_default")]
    pub links: Vec<InterfaceLink>,
    /// Whether a cable is seen.
    #[serde(deserialize_with = "null_as_default")]
    pub link_connected: bool,
    /// Fastest speed of the interface in Mbit/s; 0 where unknown.
    #[serde(deserialize_with = "null_as_default")]
    pub interface_speed: u64,
    /// Speed of the link in Mbit/s; 0 where unknown.
    #[serde(deserialize_with = "null_as_default")]
    pub link_speed: u64,
    /// MTU in effect, in bytes.
    #[serde(deserialize_with = "null_as_default")]
    pub effective_mtu: u64,
    /// Tags of the interface.
    #[serde(deserialize_with = "null_as_default")]
    pub tags: Vec<String>,
    /// Whether MAAS configures it.
    #[serde(deserialize_with = "null_as_default")]
    pub enabled: bool,
    /// Vendor as commissioning saw it.
    pub vendor: Option<String>,
    /// Product as commissioning saw it.
    pub product: Option<String>,
    /// NUMA node.
    pub numa_node: Option<i64>,
    /// Names of the interfaces this one is made of.
    #[serde(deserialize_with = "null_as_default")]
    pub parents: Vec<String>,
}

/// A VLAN of a fabric.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct Vlan {
    /// Database id; what updates take.
    pub id: u64,
    /// The 802.1Q tag; 0 for untagged.
    pub vid: u64,
    /// Name of the VLAN.
    #[serde(deserialize_with = "null_as_default")]
    pub name: String,
    /// The fabric's name.
    #[serde(deserialize_with = "null_as_default")]
    pub fabric: String,
    /// The fabric's id.
    pub fabric_id: Option<u64>,
    /// Whether MAAS serves DHCP here.
    #[serde(deserialize_with = "null_as_default")]
    pub dhcp_on: bool,
    /// MTU in bytes.
    #[serde(deserialize_with = "null_as_default")]
    pub mtu: u64,
}

/// A link of an interface to a subnet.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct InterfaceLink {
    /// Id; what `unlink_subnet` takes.
    pub id: u64,
    /// `auto`, `dhcp`, `static` or `link_up`.
    #[serde(deserialize_with = "null_as_default")]
    pub mode: String,
    /// The subnet; absent for a bare `link_up`.
    pub subnet: Option<Subnet>,
    /// The address, once one is assigned.
    pub ip_address: Option<String>,
}

/// A subnet (docs/maas.md#networks).
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct Subnet {
    /// Id of the subnet.
    pub id: u64,
    /// CIDR, e.g. `10.10.0.0/16`.
    #[serde(deserialize_with = "null_as_default")]
    pub cidr: String,
    /// Name of the subnet.
    #[serde(deserialize_with = "null_as_default")]
    pub name: String,
    /// Gateway address.
    pub gateway_ip: Option<String>,
    /// DNS servers.
    #[serde(deserialize_with = "null_as_default")]
    pub dns_servers: Vec<String>,
    /// Whether MAAS hands out addresses.
    #[serde(deserialize_with = "null_as_default")]
    pub managed: bool,
    /// The VLAN.
    pub vlan: Option<Vlan>,
}
