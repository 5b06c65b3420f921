//! Checks of links, addresses, routes and listeners.

use gpuaas_types::agent::ANY_INFINIBAND;
use host_facts::{HostFacts, InfinibandPort, LinkAddress, NetworkLink, Route};
use ipnet::Ipv4Net;

use super::verdict::{Verdict, at_least, matches_pattern};

fn comma_list(items: &[String]) -> String {
    if items.is_empty() { "none".to_owned() } else { items.join(", ") }
}

/// Whether a check that names `interface` is about this link.
fn selects(interface: &str, link: &NetworkLink) -> bool {
    match interface {
        ANY_INFINIBAND => link.is_infiniband(),
        pattern => matches_pattern(pattern, &link.name),
    }
}

/// Whether a check that names `interface` is about the link called `name`.
fn selects_name(facts: &HostFacts, interface: &str, name: &str) -> bool {
    match interface {
        ANY_INFINIBAND => facts.links.iter().any(|link| link.name == name && link.is_infiniband()),
        pattern => matches_pattern(pattern, name),
    }
}

/// Whether the PCI function at `address` is a virtual one, which is a guest's.
fn is_virtual_function(facts: &HostFacts, address: &str) -> bool {
    let mut functions = facts.pci.iter();
    functions.any(|one| one.address == address && one.physical_function.is_some())
}

/// Whether the link is an adapter's own: neither a bond nor a partition's child, nor of a virtual function.
fn is_of_adapter(facts: &HostFacts, link: &NetworkLink) -> bool {
    link.parent.is_none()
        && link.pci_address.as_deref().is_some_and(|address| !is_virtual_function(facts, address))
}

pub(super) fn link_up(facts: &HostFacts, interface: &str) -> Verdict {
    let link = facts.links.iter().find(|link| {
        let address = link.mac_address.as_deref().unwrap_or_default();
        link.name == interface || address.eq_ignore_ascii_case(interface)
    });
    match link.map(|link| link.operstate.as_deref().unwrap_or("unknown")) {
        Some(state) => (state == "up", format!("it is {state}")),
        None => (false, "the link does not exist".to_owned()),
    }
}

/// Names the links that are not up.
pub(super) fn infiniband_up(facts: &HostFacts, count: u32, interface: Option<&str>) -> Verdict {
    let is_meant = |link: &&NetworkLink| {
        link.is_infiniband()
            && is_of_adapter(facts, link)
            && interface.is_none_or(|interface| selects(interface, link))
    };
    let state = |link: &NetworkLink| link.operstate.clone().unwrap_or_default();
    let (up, others): (Vec<&NetworkLink>, Vec<&NetworkLink>) =
        facts.links.iter().filter(is_meant).partition(|link| state(link) == "up");
    let (passed, seen) = at_least(up.len(), count);
    if passed || others.is_empty() {
        return (passed, seen);
    }
    let others: Vec<String> =
        others.iter().map(|link| format!("{} is {}", link.name, state(link))).collect();
    (passed, format!("{seen}; {}", others.join(", ")))
}

/// Names the state of each port that is not active: cable, switch and subnet manager have other owners.
pub(super) fn ports_active(
    facts: &HostFacts,
    count: u32,
    link_layer: &str,
    interface: Option<&str>,
) -> Verdict {
    let is_meant = |port: &&InfinibandPort| {
        let Some(address) = port.pci_address.as_deref() else { return false };
        let has_link = |interface: &str| {
            let is_its = |link: &&NetworkLink| link.pci_address.as_deref() == Some(address);
            facts.links.iter().filter(is_its).any(|link| selects(interface, link))
        };
        !is_virtual_function(facts, address) && interface.is_none_or(has_link)
    };
    let is_of_layer = |port: &&InfinibandPort| {
        port.link_layer.as_deref().is_some_and(|layer| layer.eq_ignore_ascii_case(link_layer))
    };
    let state = |port: &InfinibandPort| port.state.clone().unwrap_or_default();
    let meant = facts.infiniband_ports.iter().filter(is_meant);
    let (ports, of_other_layer): (Vec<&InfinibandPort>, Vec<&InfinibandPort>) =
        meant.partition(is_of_layer);
    let active = ports.iter().filter(|port| state(port) == "ACTIVE").count();
    let (passed, mut seen) = at_least(active, count);
    if passed {
        return (passed, seen);
    }
    let others = ports.iter().filter(|port| state(port) != "ACTIVE");
    for port in others {
        seen.push_str(&format!("; {}/{} is {}", port.device, port.port, state(port)));
    }
    if !of_other_layer.is_empty() {
        seen.push_str(&format!("; {} ports are not {link_layer}", of_other_layer.len()));
    }
    (passed, seen)
}

/// Passes where an interface has an address of `subnet`; where `subnet` is an address with its
/// prefix length, such as `10.100.0.1/24`, exactly that one.
pub(super) fn address(facts: &HostFacts, interface: &str, subnet: &str) -> Verdict {
    let Ok(network) = subnet.parse::<Ipv4Net>() else {
        return (false, format!("{subnet:?} is not an IPv4 subnet"));
    };
    let is_host = network.addr() != network.network() || network.prefix_len() == 32;
    let matches = |found: &&LinkAddress| {
        if is_host {
            found.address == network.addr() && found.prefix_length == network.prefix_len()
        } else {
            network.contains(&found.address)
        }
    };
    let on: Vec<&LinkAddress> = facts
        .addresses
        .iter()
        .filter(|found| selects_name(facts, interface, &found.interface))
        .collect();
    let text = |found: &&LinkAddress| {
        format!("{} has {}/{}", found.interface, found.address, found.prefix_length)
    };
    match on.iter().copied().find(matches) {
        Some(found) => (true, text(&found)),
        None => (
            false,
            format!("its addresses: {}", comma_list(&on.iter().map(text).collect::<Vec<_>>())),
        ),
    }
}

pub(super) fn route(facts: &HostFacts, destination: &str, interface: &str) -> Verdict {
    let Ok(network) = destination.parse::<Ipv4Net>() else {
        return (false, format!("{destination:?} is not an IPv4 subnet"));
    };
    // A default route covers every network and proves nothing of the fabric.
    let covers = |route: &&Route| {
        route.prefix_length > 0
            && selects_name(facts, interface, &route.interface)
            && route.covers(network)
    };
    let text = |route: &Route| {
        format!("{}/{} dev {}", route.destination, route.prefix_length, route.interface)
    };
    match facts.routes.iter().find(covers) {
        Some(found) => (true, text(found)),
        None => {
            let near: Vec<String> = facts
                .routes
                .iter()
                .filter(|route| selects_name(facts, interface, &route.interface))
                .map(text)
                .collect();
            (false, format!("its routes: {}", comma_list(&near)))
        }
    }
}

pub(super) fn listens(facts: &HostFacts, address: &str, port: u16) -> Verdict {
    let on: Vec<String> = facts
        .listeners
        .iter()
        .filter(|listener| listener.port == port)
        .map(|listener| listener.address.clone())
        .collect();
    // A dual-stack socket on :: takes IPv4 as well.
    let wanted = |other: &String| other == address || (address == "0.0.0.0" && other == "::");
    match on.iter().find(|other| !wanted(other)) {
        None if on.is_empty() => (false, format!("nothing listens on port {port}")),
        None => (true, format!("it listens on {}", on.join(", "))),
        Some(other) => (false, format!("it listens on {other}, not only on {address}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn facts() -> HostFacts {
        serde_json::from_value(serde_json::json!({
            "addresses": [
                {"interface": "eno1", "address": "10.177.36.100", "prefix_length": 24},
                {"interface": "ibp24s0", "address": "192.168.36.100", "prefix_length": 24},
                {"interface": "ovsbr0", "address": "10.100.0.1", "prefix_length": 24},
            ],
            "routes": [
                {"destination": "0.0.0.0", "prefix_length": 0, "gateway": "10.177.36.1", "interface": "eno1"},
                {"destination": "192.168.0.0", "prefix_length": 16, "gateway": null, "interface": "ibp24s0"},
            ],
            "listeners": [
                {"address": "127.0.0.1", "port": 19998},
                {"address": "0.0.0.0", "port": 19999},
                {"address": "127.0.0.1", "port": 53}, {"address": "10.100.0.1", "port": 53},
            ],
        }))
        .unwrap()
    }

    /// Two InfiniBand adapters, one of them with a virtual function, and an Ethernet adapter; a child of
    /// a partition, and a bond. Names say nothing.
    fn adapters() -> HostFacts {
        let link = |name: &str, link_type: u32, state: &str, pci: Option<&str>| {
            serde_json::json!({"name": name, "mac_address": "00", "operstate": state,
                "link_type": link_type, "pci_address": pci})
        };
        let mut child = link("ibp1.8001", 32, "up", Some("0000:01:00.0"));
        child["parent"] = "ibp1".into();
        let port = |device: &str, pci: &str, state: &str, layer: &str| {
            serde_json::json!({"device": device, "port": 1, "state": state, "link_layer": layer,
                "pci_address": pci})
        };
        serde_json::from_value(serde_json::json!({
            "pci": [{"address": "0000:01:00.1", "physical_function": "0000:01:00.0"}],
            "links": [
                link("ibp1", 32, "up", Some("0000:01:00.0")),
                link("fab2", 32, "down", Some("0000:02:00.0")),
                link("ibp1v0", 32, "up", Some("0000:01:00.1")),
                link("bond0", 32, "up", None),
                link("ens3np0", 1, "up", Some("0000:03:00.0")),
                child,
            ],
            "infiniband_ports": [
                port("mlx5_0", "0000:01:00.0", "ACTIVE", "InfiniBand"),
                port("mlx5_1", "0000:02:00.0", "INIT", "InfiniBand"),
                port("mlx5_2", "0000:03:00.0", "ACTIVE", "Ethernet"),
                port("mlx5_3", "0000:01:00.1", "ACTIVE", "InfiniBand"),
            ],
            "addresses": [{"interface": "fab2", "address": "192.168.1.2", "prefix_length": 16},
                {"interface": "ens3np0", "address": "192.168.1.3", "prefix_length": 16}],
            "routes": [{"destination": "192.168.0.0", "prefix_length": 16, "gateway": null,
                "interface": "fab2"}],
        }))
        .unwrap()
    }

    #[test]
    fn only_links_of_adapters_count() {
        let mut facts = adapters();
        let (passed, seen) = infiniband_up(&facts, 2, None);
        assert_eq!((passed, seen.as_str()), (false, "found 1, expected at least 2; fab2 is down"));
        facts.links[1].operstate = Some("up".to_owned());
        assert_eq!(infiniband_up(&facts, 3, None).1, "found 2, expected at least 3");
        assert!(infiniband_up(&facts, 2, Some(ANY_INFINIBAND)).0);
        assert_eq!(infiniband_up(&facts, 2, Some("ibp*")).1, "found 1, expected at least 2");
    }

    #[test]
    fn ports_count_by_link_layer_and_adapter() {
        let facts = adapters();
        let ports = |count, layer, interface| ports_active(&facts, count, layer, interface);
        let (passed, seen) = ports(2, "InfiniBand", None);
        let expected = "found 1, expected at least 2; mlx5_1/1 is INIT; 1 ports are not InfiniBand";
        assert_eq!((passed, seen.as_str()), (false, expected));
        assert!(ports(1, "InfiniBand", None).0);
        assert!(ports(1, "ethernet", Some("ens*")).0 && ports(1, "Ethernet", None).0);
        assert!(!ports(1, "Ethernet", Some("enp*")).0, "the front-end card is not the fabric");
        assert_eq!(
            ports_active(&HostFacts::default(), 1, "InfiniBand", None).1,
            "found 0, expected at least 1"
        );
    }

    #[test]
    fn an_address_is_found_by_the_type_of_its_link() {
        let facts = adapters();
        assert!(address(&facts, ANY_INFINIBAND, "192.168.1.2/16").0);
        assert!(!address(&facts, ANY_INFINIBAND, "192.168.1.3/16").0);
        assert!(route(&facts, "192.168.0.0/16", ANY_INFINIBAND).0);
        assert!(!route(&facts, "192.168.0.0/16", "ibp*").0);
    }

    #[test]
    fn addresses_by_subnet_and_exactly() {
        let facts = facts();
        assert!(address(&facts, "ibp*", "192.168.0.0/16").0);
        assert!(!address(&facts, "eno*", "192.168.0.0/16").0);
        assert!(address(&facts, "ovsbr0", "10.100.0.1/24").0);
        let (passed, seen) = address(&facts, "ovsbr0", "10.100.0.2/24");
        assert_eq!((passed, seen.as_str()), (false, "its addresses: ovsbr0 has 10.100.0.1/24"));
        assert!(!address(&facts, "ovsbr0", "10.100.0.1/16").0);
        assert_eq!(address(&facts, "ib9", "10.0.0.0/8").1, "its addresses: none");
        assert!(address(&facts, "*", "0.0.0.0/0").0);
        for bad in ["10.100.0.1", "10.100.0.1/33", "x/8", "/"] {
            let (passed, seen) = address(&facts, "ovsbr0", bad);
            assert!(!passed && seen.ends_with("is not an IPv4 subnet"), "{seen}");
            assert!(!route(&facts, bad, "*").0);
        }
    }

    #[test]
    fn a_default_route_is_no_fabric_route() {
        let facts = facts();
        assert!(route(&facts, "192.168.0.0/16", "ibp*").0);
        assert!(route(&facts, "192.168.7.0/24", "ibp*").0);
        assert!(!route(&facts, "192.168.0.0/16", "eno1").0);
        assert!(!route(&facts, "10.0.0.0/8", "*").0);
    }

    #[test]
    fn a_listener_on_more_than_its_address_is_wrong() {
        let mut facts = facts();
        assert!(listens(&facts, "127.0.0.1", 19998).0);
        assert!(listens(&facts, "0.0.0.0", 19999).0);
        assert_eq!(
            listens(&facts, "127.0.0.1", 19999).1,
            "it listens on 0.0.0.0, not only on 127.0.0.1"
        );
        assert!(!listens(&facts, "127.0.0.1", 53).0);
        facts.listeners.clear();
        assert!(!listens(&facts, "127.0.0.1", 19998).0);
    }
}
