//! Checks of links, addresses, routes and listeners.

use host_facts::{HostFacts, InfinibandPort, LinkAddress, Route};
use ipnet::Ipv4Net;

use super::verdict::{Verdict, at_least, matches_pattern};

/// Octets of an InfiniBand hardware address.
const INFINIBAND_OCTETS: usize = 20;

fn comma_list(items: &[String]) -> String {
    if items.is_empty() { "none".to_owned() } else { items.join(", ") }
}

pub(super) fn link_up(facts: &HostFacts, interface: &str) -> Verdict {
    let link = facts.links.iter().find(|link| {
        let address = link.mac_address.as_deref().unwrap_or_default();
        link.name == interface || address.eq_ignore_ascii_case(interface)
    });
    match link.map(|link| link.operstate.as_deref().unwrap_or("unknown")) {
        Some(state) => (state == "up", format!("it is {state}")),
        None => (false, "there is no such link".to_owned()),
    }
}

pub(super) fn infiniband_up(facts: &HostFacts, count: u32) -> Verdict {
    let up = facts.links.iter().filter(|link| {
        let octets = link.mac_address.as_deref().map_or(0, |mac| mac.split(':').count());
        octets == INFINIBAND_OCTETS && link.operstate.as_deref() == Some("up")
    });
    at_least(up.count(), count)
}

/// Names the state of each port that is not active: cable, switch and subnet manager have other owners.
pub(super) fn ports_active(facts: &HostFacts, count: u32) -> Verdict {
    let state = |port: &InfinibandPort| port.state.clone().unwrap_or_default();
    let active = facts.infiniband_ports.iter().filter(|port| state(port) == "ACTIVE").count();
    let (passed, seen) = at_least(active, count);
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
        .filter(|found| matches_pattern(interface, &found.interface))
        .collect();
    let text = |found: &&LinkAddress| {
        format!("{} has {}/{}", found.interface, found.address, found.prefix_length)
    };
    match on.iter().copied().find(matches) {
        Some(found) => (true, text(&found)),
        None => (
            false,
            format!("addresses there: {}", comma_list(&on.iter().map(text).collect::<Vec<_>>())),
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
            && matches_pattern(interface, &route.interface)
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
                .filter(|route| matches_pattern(interface, &route.interface))
                .map(text)
                .collect();
            (false, format!("routes there: {}", comma_list(&near)))
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
