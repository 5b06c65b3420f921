//! Fabrics, VLANs, subnets, spaces and address ranges of the simulated site.
//!
//! The first three fabrics are those of the recorded region; eight more carry the RoCE ports.
//! A fabric that MAAS makes up for an unknown cable is added on demand.

use std::collections::HashSet;
use std::net::Ipv4Addr;

use serde_json::{Value, json};

use crate::json::JsonWriter;

/// System id of the one rack controller.
pub(crate) const RACK: &str = "fehx6f";

#[derive(Debug, Clone)]
pub(crate) struct Vlan {
    pub(crate) id: i64,
    pub(crate) vid: i64,
    pub(crate) name: String,
    pub(crate) fabric: i64,
    pub(crate) mtu: i64,
    pub(crate) dhcp: bool,
    pub(crate) space: &'static str,
}

#[derive(Debug, Clone)]
pub(crate) struct Subnet {
    pub(crate) id: i64,
    pub(crate) name: String,
    pub(crate) vlan: i64,
    pub(crate) base: u32,
    pub(crate) bits: u32,
    pub(crate) gateway: Option<u32>,
    pub(crate) dns: Vec<u32>,
    used: HashSet<u32>,
    next: u32,
}

#[derive(Debug, Clone)]
pub(crate) struct Range {
    pub(crate) id: i64,
    pub(crate) kind: &'static str,
    pub(crate) subnet: i64,
    pub(crate) start: u32,
    pub(crate) end: u32,
    pub(crate) comment: &'static str,
}

#[derive(Debug, Clone)]
pub(crate) struct Network {
    /// In the order of their ids; every unknown cable of a machine adds one.
    pub(crate) fabrics: Vec<(i64, String)>,
    /// In the order of their ids.
    pub(crate) vlans: Vec<Vlan>,
    pub(crate) subnets: Vec<Subnet>,
    pub(crate) ranges: Vec<Range>,
}

/// Why an address was not given out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum AddressError {
    Outside,
    Dynamic(u32, u32),
    Used,
}

/// An IPv4 address as text.
pub(crate) fn ip(number: u32) -> String {
    Ipv4Addr::from(number).to_string()
}

/// An IPv4 address from text; `None` for other text.
pub(crate) fn parse_ip(text: &str) -> Option<u32> {
    text.parse::<Ipv4Addr>().ok().map(u32::from)
}

const fn v4(a: u8, b: u8, c: u8, d: u8) -> u32 {
    u32::from_be_bytes([a, b, c, d])
}

impl Subnet {
    fn size(&self) -> u32 {
        1 << (32 - self.bits)
    }

    /// Whether a host of the subnet may have the address.
    pub(crate) fn contains_address(&self, address: u32) -> bool {
        address > self.base && address < self.base + self.size() - 1
    }

    /// Network and prefix length, e.g. `10.10.0.0/16`.
    pub(crate) fn cidr(&self) -> String {
        format!("{}/{}", ip(self.base), self.bits)
    }
}

impl Network {
    /// The site that every region starts with.
    pub(crate) fn default_site() -> Self {
        let mut net = Self {
            fabrics: Vec::new(),
            vlans: Vec::new(),
            subnets: Vec::new(),
            ranges: Vec::new(),
        };
        for (id, name) in [(0, "fabric-0"), (1, "storage"), (2, "bmc")] {
            net.fabrics.push((id, name.to_owned()));
        }
        net.vlan(5002, 0, "untagged", 0, 1500, true, "provisioning");
        net.vlan(5003, 0, "untagged", 1, 1500, false, "undefined");
        net.vlan(5004, 100, "storage-100", 1, 9000, false, "undefined");
        net.vlan(5005, 50, "tenant-50", 0, 1500, false, "undefined");
        net.vlan(5006, 0, "untagged", 2, 1500, false, "undefined");
        net.subnet(2, "pxe", 5002, v4(10, 10, 0, 0), 16, Some(v4(10, 10, 0, 1)));
        net.subnet(3, "storage", 5004, v4(10, 20, 0, 0), 24, None);
        net.subnet(4, "tenant", 5005, v4(10, 50, 0, 0), 24, Some(v4(10, 50, 0, 1)));
        net.subnet(5, "bmc", 5006, v4(10, 99, 0, 0), 16, None);
        for port in 1..=8_u8 {
            let fabric = i64::from(port) + 2;
            net.fabrics.push((fabric, format!("roce-{port}")));
            net.vlan(5006 + i64::from(port), 0, "untagged", fabric, 9000, false, "undefined");
            let name = format!("roce-{port}");
            net.subnet(
                5 + i64::from(port),
                &name,
                5006 + i64::from(port),
                v4(10, 100 + port, 0, 0),
                16,
                None,
            );
        }
        let pxe = &mut net.subnets[0];
        pxe.dns = vec![v4(10, 10, 0, 1)];
        pxe.used.extend([v4(10, 10, 0, 1), v4(10, 10, 0, 2), v4(10, 10, 0, 3)]);
        net.ranges.push(Range {
            id: 1,
            kind: "dynamic",
            subnet: 2,
            start: v4(10, 10, 200, 1),
            end: v4(10, 10, 220, 254),
            comment: "",
        });
        net.ranges.push(Range {
            id: 2,
            kind: "reserved",
            subnet: 2,
            start: v4(10, 10, 1, 1),
            end: v4(10, 10, 1, 50),
            comment: "infra",
        });
        net
    }

    #[expect(clippy::too_many_arguments, reason = "one row of a table")]
    fn vlan(
        &mut self,
        id: i64,
        vid: i64,
        name: &str,
        fabric: i64,
        mtu: i64,
        dhcp: bool,
        space: &'static str,
    ) {
        self.vlans.push(Vlan { id, vid, name: name.to_owned(), fabric, mtu, dhcp, space });
    }

    fn subnet(
        &mut self,
        id: i64,
        name: &str,
        vlan: i64,
        base: u32,
        bits: u32,
        gateway: Option<u32>,
    ) {
        let mut used = HashSet::new();
        used.extend(gateway);
        self.subnets.push(Subnet {
            id,
            name: name.to_owned(),
            vlan,
            base,
            bits,
            gateway,
            dns: Vec::new(),
            used,
            next: base + 1,
        });
    }

    /// A fabric with its untagged VLAN.
    pub(crate) fn add_fabric(&mut self, id: i64, name: String) {
        self.fabrics.push((id, name));
        self.add_vlan(0, "untagged", id, 1500);
    }

    /// A VLAN of a fabric; returns its id.
    pub(crate) fn add_vlan(&mut self, vid: i64, name: &str, fabric: i64, mtu: i64) -> i64 {
        let id = self.vlans.last().map_or(5001, |v| v.id) + 1;
        self.vlan(id, vid, name, fabric, mtu, false, "undefined");
        id
    }

    /// A subnet of a VLAN; returns its id.
    pub(crate) fn add_subnet(
        &mut self,
        name: &str,
        vlan: i64,
        base: u32,
        bits: u32,
        gateway: Option<u32>,
    ) -> i64 {
        let id = self.subnets.iter().map(|s| s.id).max().unwrap_or(0) + 1;
        self.subnet(id, name, vlan, base, bits, gateway);
        id
    }

    /// A fabric for a cable that leads nowhere known; returns its untagged VLAN.
    pub(crate) fn add_unknown_fabric(&mut self) -> i64 {
        let fabric = self.fabrics.last().map_or(0, |f| f.0) + 1;
        let vlan = self.vlans.last().map_or(5001, |v| v.id) + 1;
        self.fabrics.push((fabric, format!("fabric-{fabric}")));
        self.vlan(vlan, 0, "untagged", fabric, 1500, false, "undefined");
        vlan
    }

    /// The VLAN with this database id.
    pub(crate) fn vlan_by_id(&self, id: i64) -> Option<&Vlan> {
        self.vlans.binary_search_by_key(&id, |v| v.id).ok().map(|at| &self.vlans[at])
    }

    /// The subnet with this database id.
    pub(crate) fn subnet_by_id(&self, id: i64) -> Option<&Subnet> {
        self.subnets.iter().find(|s| s.id == id)
    }

    /// The subnet with this name.
    pub(crate) fn subnet_named(&self, name: &str) -> Option<&Subnet> {
        self.subnets.iter().find(|s| s.name == name)
    }

    /// By id, `cidr:…` or `name:…`, as MAAS takes a subnet parameter.
    pub(crate) fn subnet_by_text(&self, text: &str) -> Option<&Subnet> {
        if let Some(cidr) = text.strip_prefix("cidr:") {
            return self.subnets.iter().find(|s| s.cidr() == cidr);
        }
        if let Some(name) = text.strip_prefix("name:") {
            return self.subnet_named(name);
        }
        text.parse().map_or_else(
            |_| self.subnets.iter().find(|s| s.cidr() == text || s.name == text),
            |id| self.subnet_by_id(id),
        )
    }

    /// Name of a fabric; empty for an unknown one.
    pub(crate) fn fabric_name(&self, id: i64) -> &str {
        self.fabrics.binary_search_by_key(&id, |f| f.0).map_or("", |at| &self.fabrics[at].1)
    }

    /// Takes an asked-for address.
    pub(crate) fn claim_address(&mut self, subnet: i64, address: u32) -> Result<(), AddressError> {
        let ranges = &self.ranges;
        let Some(net) = self.subnets.iter_mut().find(|s| s.id == subnet) else {
            return Err(AddressError::Outside);
        };
        // Neither the network's own address nor that of its gateway is refused.
        if address < net.base || address > net.base + (net.size() - 1) {
            return Err(AddressError::Outside);
        }
        if net.gateway == Some(address) {
            return Ok(());
        }
        for range in ranges.iter().filter(|r| r.subnet == subnet && r.kind == "dynamic") {
            if (range.start..=range.end).contains(&address) {
                return Err(AddressError::Dynamic(range.start, range.end));
            }
        }
        if net.used.insert(address) { Ok(()) } else { Err(AddressError::Used) }
    }

    /// Picks a free address.
    pub(crate) fn allocate_address(&mut self, subnet: i64) -> Option<u32> {
        let ranges: Vec<(u32, u32)> =
            self.ranges.iter().filter(|r| r.subnet == subnet).map(|r| (r.start, r.end)).collect();
        let net = self.subnets.iter_mut().find(|s| s.id == subnet)?;
        let mut tried = 0;
        while tried < net.size() {
            let address = net.next;
            net.next = if net.contains_address(address + 1) { address + 1 } else { net.base + 1 };
            tried += 1;
            if ranges.iter().any(|(a, b)| (*a..=*b).contains(&address))
                || !net.contains_address(address)
            {
                continue;
            }
            if net.used.insert(address) {
                return Some(address);
            }
        }
        None
    }

    /// An address of the dynamic range, as a machine gets from DHCP while it is commissioned.
    pub(crate) fn lease_address(&self, subnet: i64, nth: u32) -> Option<u32> {
        let range = self.ranges.iter().find(|r| r.subnet == subnet && r.kind == "dynamic")?;
        Some(range.start + nth % (range.end - range.start))
    }

    /// Makes an address free again.
    pub(crate) fn release_address(&mut self, subnet: i64, address: u32) {
        if let Some(net) = self.subnets.iter_mut().find(|s| s.id == subnet) {
            net.used.remove(&address);
            net.next = net.next.min(address);
        }
    }

    /// Addresses in use, in order.
    pub(crate) fn used(&self, subnet: i64) -> Vec<u32> {
        let mut list: Vec<u32> =
            self.subnet_by_id(subnet).map(|s| s.used.iter().copied().collect()).unwrap_or_default();
        list.sort_unstable();
        list
    }

    /// Writes the members of a VLAN object.
    pub(crate) fn write_vlan(&self, j: &mut JsonWriter, id: i64) {
        let Some(v) = self.vlan_by_id(id) else { return };
        j.int("vid", v.vid);
        j.int("mtu", v.mtu);
        j.bool("dhcp_on", v.dhcp);
        j.null("external_dhcp");
        j.null("relay_vlan");
        j.null("secondary_rack");
        j.int("fabric_id", v.fabric);
        j.str("fabric", self.fabric_name(v.fabric));
        j.int("id", v.id);
        j.str("name", &v.name);
        j.opt_str("primary_rack", v.dhcp.then_some(RACK));
        j.str("space", v.space);
        j.fmt("resource_uri", format_args!("/MAAS/api/2.0/vlans/{}/", v.id));
    }

    /// Writes the members of a subnet object.
    pub(crate) fn write_subnet(&self, j: &mut JsonWriter, id: i64) {
        let Some(s) = self.subnet_by_id(id) else {
            return;
        };
        j.str("name", &s.name);
        j.str("description", "");
        j.obj("vlan", |j| self.write_vlan(j, s.vlan));
        j.str("cidr", &s.cidr());
        j.int("rdns_mode", 2);
        j.opt_str("gateway_ip", s.gateway.map(ip).as_deref());
        j.list("dns_servers", |j| s.dns.iter().for_each(|d| j.item_str(&ip(*d))));
        j.bool("allow_dns", true);
        j.bool("allow_proxy", true);
        j.bool("active_discovery", false);
        j.bool("managed", true);
        j.list("disabled_boot_architectures", |_| {});
        j.int("id", s.id);
        j.str("space", self.vlan_by_id(s.vlan).map_or("undefined", |v| v.space));
        j.fmt("resource_uri", format_args!("/MAAS/api/2.0/subnets/{}/", s.id));
    }

    fn value(body: impl FnOnce(&mut JsonWriter)) -> Value {
        let mut j = JsonWriter::at(0, 512);
        j.object(body);
        serde_json::from_str(&j.finish()).unwrap_or(Value::Null)
    }

    /// The VLAN as the API shows it.
    pub(crate) fn vlan_json(&self, id: i64) -> Value {
        Self::value(|j| self.write_vlan(j, id))
    }

    /// The subnet as the API shows it.
    pub(crate) fn subnet_json(&self, id: i64) -> Value {
        Self::value(|j| self.write_subnet(j, id))
    }

    /// The fabric with its VLANs as the API shows it.
    pub(crate) fn fabric_json(&self, id: i64) -> Value {
        let vlans: Vec<Value> =
            self.vlans.iter().filter(|v| v.fabric == id).map(|v| self.vlan_json(v.id)).collect();
        json!({"class_type": null, "vlans": vlans, "name": self.fabric_name(id), "id": id,
               "resource_uri": format!("/MAAS/api/2.0/fabrics/{id}/")})
    }

    /// The address range as the API shows it.
    pub(crate) fn range_json(&self, range: &Range) -> Value {
        json!({"subnet": self.subnet_json(range.subnet), "type": range.kind, "start_ip": ip(range.start),
               "end_ip": ip(range.end), "user": null, "comment": range.comment, "id": range.id,
               "resource_uri": format!("/MAAS/api/2.0/ipranges/{}/", range.id)})
    }

    /// All spaces with their VLANs and subnets as the API shows them.
    pub(crate) fn spaces_json(&self) -> Value {
        let space = |id: i64, name: &str, description: &str, uri: &str| {
            let vlans: Vec<&Vlan> = self.vlans.iter().filter(|v| v.space == name).collect();
            let subnets: Vec<Value> = self
                .subnets
                .iter()
                .filter(|s| vlans.iter().any(|v| v.id == s.vlan))
                .map(|s| self.subnet_json(s.id))
                .collect();
            let vlans: Vec<Value> = vlans.iter().map(|v| self.vlan_json(v.id)).collect();
            json!({"description": description, "subnets": subnets, "vlans": vlans, "id": id, "name": name,
                   "resource_uri": format!("/MAAS/api/2.0/spaces/{uri}/")})
        };
        json!([
            space(2, "provisioning", "", "2"),
            space(
                -1,
                "undefined",
                "Backward compatibility object to ensure objects not associated with a space can be found.",
                "undefined"
            ),
        ])
    }

    /// Taken stretches of a subnet: address pairs and purposes.
    pub(crate) fn reserved(&self, subnet: i64) -> Vec<(u32, u32, Vec<&'static str>)> {
        let Some(net) = self.subnet_by_id(subnet) else {
            return Vec::new();
        };
        let mut out: Vec<(u32, u32, Vec<&'static str>)> = self
            .ranges
            .iter()
            .filter(|r| r.subnet == subnet)
            .map(|r| match r.kind {
                "dynamic" => (r.start, r.end, vec!["assigned-ip", "dynamic"]),
                other => (r.start, r.end, vec![other]),
            })
            .collect();
        let inside = |a: u32, list: &[(u32, u32, Vec<&str>)]| {
            list.iter().any(|(s, e, _)| (*s..=*e).contains(&a))
        };
        let singles: Vec<u32> =
            self.used(subnet).into_iter().filter(|a| !inside(*a, &out)).collect();
        for address in singles {
            let purpose = if net.gateway == Some(address) {
                vec!["dns-server", "gateway-ip"]
            } else {
                vec!["assigned-ip"]
            };
            match out.last_mut() {
                Some((_, end, last)) if *end + 1 == address && *last == purpose => *end = address,
                _ => out.push((address, address, purpose)),
            }
        }
        out.sort_by_key(|r| r.0);
        out
    }

    /// Free stretches of a subnet.
    pub(crate) fn unreserved(&self, subnet: i64) -> Vec<(u32, u32)> {
        let Some(net) = self.subnet_by_id(subnet) else {
            return Vec::new();
        };
        let (mut from, last) = (net.base + 1, net.base + net.size() - 2);
        let mut out = Vec::new();
        for (start, end, _) in self.reserved(subnet) {
            if start > from {
                out.push((from, start - 1));
            }
            from = from.max(end + 1);
        }
        if from <= last {
            out.push((from, last));
        }
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn picks_what_the_recorded_region_picked() {
        let mut net = Network::default_site();
        assert_eq!(net.allocate_address(2).map(ip).as_deref(), Some("10.10.0.4"));
        assert_eq!(net.claim_address(2, v4(10, 10, 0, 2)), Err(AddressError::Used));
        assert!(matches!(net.claim_address(2, v4(10, 10, 201, 7)), Err(AddressError::Dynamic(..))));
        assert_eq!(net.claim_address(3, v4(10, 10, 0, 9)), Err(AddressError::Outside));
        net.release_address(2, v4(10, 10, 0, 4));
        assert_eq!(net.allocate_address(2).map(ip).as_deref(), Some("10.10.0.4"));
    }
}
