//! Links, addresses, routes and listeners.

use host_facts::network::{in_network, parse_cidr};
use host_facts::{HostFacts, InfinibandPort, LinkAddress, Route};

use super::{INFINIBAND_OCTETS, Seen, enough, fits};

fn listed(what: &[String]) -> String {
    if what.is_empty() { "none".to_owned() } else { what.join(", ") }
}

pub(super) fn link_up(facts: &HostFacts, interface: &str) -> Seen {
    let link = facts.links.iter().find(|link| {
        let address = link.mac_address.as_deref().unwrap_or_default();
        link.name == interface || address.eq_ignore_ascii_case(interface)
    });
    match link.map(|link| link.operstate.as_deref().unwrap_or("unknown")) {
        Some(state) => (state == "up", format!("it is {state}")),
        None => (false, "there is no such link".to_owned()),
    }
}

pub(super) fn infiniband_up(facts: &HostFacts, count: u32) -> Seen {
    let up = facts.links.iter().filter(|link| {
        let octets = link.mac_address.as_deref().map_or(0, |mac| mac.split(':').count());
        octets == INFINIBAND_OCTETS && link.operstate.as_deref() == Some("up")
    });
    enough(up.count(), count)
}

/// What keeps a port from it is told, because cable, switch and subnet manager are others' matters.
pub(super) fn ports_active(facts: &HostFacts, count: u32) -> Seen {
    let state = |port: &InfinibandPort| port.state.clone().unwrap_or_default();
    let active = facts.infiniband_ports.iter().filter(|port| state(port) == "ACTIVE").count();
    let (passed, seen) = enough(active, count);
    let others: Vec<String> = facts
        .infiniband_ports
        .iter()
        .filter(|port| state(port) != "ACTIVE")
        .map(|port| format!("{}/{} is {}", port.device, port.port, state(port)))
        .collect();
    if passed || others.is_empty() {
        return (passed, seen);
    }
    (passed, format!("{seen}; {}", others.join(", ")))
}

/// An address within a subnet, or exactly the one that is named with its prefix.
pub(super) fn address(facts: &HostFacts, interface: &str, subnet: &str) -> Seen {
    let Some((network, length)) = parse_cidr(subnet) else {
        return (false, format!("{subnet:?} is not an IPv4 subnet"));
    };
    let exact = !in_network_base(network, length);
    let wanted = |found: &&LinkAddress| {
        if exact {
            found.address == network && found.prefix_length == length
        } else {
            in_network(found.address, network, length)
        }
    };
    let on: Vec<&LinkAddress> =
        facts.addresses.iter().filter(|found| fits(interface, &found.interface)).collect();
    let text = |found: &&LinkAddress| {
        format!("{} has {}/{}", found.interface, found.address, found.prefix_length)
    };
    match on.iter().copied().find(wanted) {
        Some(found) => (true, text(&found)),
        None => (
            false,
            format!("addresses there: {}", listed(&on.iter().map(text).collect::<Vec<_>>())),
        ),
    }
}

/// Whether an address is the first of its network, so that it names the network.
fn in_network_base(address: std::net::Ipv4Addr, length: u8) -> bool {
    let host_bits = u32::MAX.checked_shr(u32::from(length)).unwrap_or(0);
    u32::from(address) & host_bits == 0 && length < 32
}

pub(super) fn route(facts: &HostFacts, destination: &str, interface: &str) -> Seen {
    let Some((network, length)) = parse_cidr(destination) else {
        return (false, format!("{destination:?} is not an IPv4 subnet"));
    };
    // A default route covers everything and says nothing of the fabric.
    let covers = |route: &&Route| {
        route.prefix_length > 0
            && fits(interface, &route.interface)
            && route.covers(network, length)
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
                .filter(|route| fits(interface, &route.interface))
                .map(text)
                .collect();
            (false, format!("routes there: {}", listed(&near)))
        }
    }
}

pub(super) fn listens(facts: &HostFacts, address: &str, port: u16) -> Seen {
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

    #[test]
    fn a_port_that_is_not_active_is_named() {
        let ports = serde_json::json!({"infiniband_ports": [
            {"device": "mlx5_0", "port": 1, "state": "ACTIVE"},
            {"device": "mlx5_1", "port": 1, "state": "INIT"}]});
        let facts = serde_json::from_value(ports).unwrap();
        let (passed, seen) = ports_active(&facts, 2);
        assert_eq!((passed, seen.as_str()), (false, "1 found, 2 wanted; mlx5_1/1 is INIT"));
        assert!(ports_active(&facts, 1).0);
        assert_eq!(ports_active(&HostFacts::default(), 1).1, "0 found, 1 wanted");
    }

    #[test]
    fn addresses_by_subnet_and_exactly() {
        let facts = facts();
        assert!(address(&facts, "ibp*", "192.168.0.0/16").0);
        assert!(!address(&facts, "eno*", "192.168.0.0/16").0);
        assert!(address(&facts, "ovsbr0", "10.100.0.1/24").0);
        let (passed, seen) = address(&facts, "ovsbr0", "10.100.0.2/24");
        assert_eq!((passed, seen.as_str()), (false, "addresses there: ovsbr0 has 10.100.0.1/24"));
        assert!(!address(&facts, "ovsbr0", "10.100.0.1/16").0);
        assert_eq!(address(&facts, "ib9", "10.0.0.0/8").1, "addresses there: none");
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
