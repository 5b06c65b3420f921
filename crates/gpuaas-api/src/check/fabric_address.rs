//! Fabric addresses, and the subnets that they are in.

use std::net::IpAddr;

use gpuaas_types::Problem;
use gpuaas_types::spec::RoceAssignmentSpec;

use super::address::mac;
use super::text::{hostname, identifier};
use crate::http::problem::invalid;

/// An interface as assignments name it: a MAC address in its normal form, else the name.
pub(crate) fn interface(text: &str) -> String {
    let text = text.trim();
    mac("interface", text).unwrap_or_else(|_| text.to_owned())
}

/// A fabric address as written, in normal form.
pub(crate) fn roce(spec: RoceAssignmentSpec) -> Result<RoceAssignmentSpec, Problem> {
    let hostname = hostname("hostname", &spec.hostname)?;
    let interface = spec.interface.trim().to_owned();
    if interface.is_empty() {
        return Err(invalid("interface", "expected the name or the MAC address of an interface"));
    }
    let interface = if interface.contains(':') { mac("interface", &interface)? } else { interface };
    identifier("interface", &interface, ":._-")?;
    let (network, prefix) = cidr(&spec.subnet_cidr)?;
    let address: IpAddr = spec
        .ip_address
        .trim()
        .parse()
        .map_err(|_| invalid("ip_address", "expected an IP address"))?;
    if address.is_ipv4() != network.is_ipv4() || masked(address, prefix) != number(network) {
        let message = format!("{address} is not in {network}/{prefix}");
        return Err(invalid("ip_address", message)
            .with_hint("use an address inside subnet_cidr, or the subnet that contains it"));
    }
    let host_bits = width(address) - prefix;
    let all_ones = number(network) | ones(host_bits);
    let reserved = address.is_ipv4() && host_bits > 1;
    if reserved && (address == network || number(address) == all_ones) {
        return Err(invalid(
            "ip_address",
            format!("{address} is the network or broadcast address"),
        ));
    }
    Ok(RoceAssignmentSpec {
        site: spec.site,
        hostname,
        interface,
        subnet_cidr: format!("{network}/{prefix}"),
        ip_address: address.to_string(),
    })
}

fn cidr(text: &str) -> Result<(IpAddr, u32), Problem> {
    let wanted = || {
        invalid("subnet_cidr", "expected a subnet, such as 10.20.0.0/24")
            .with_hint("write it as MAAS shows it")
    };
    let (address, prefix) = text.trim().split_once('/').ok_or_else(wanted)?;
    let address: IpAddr = address.parse().map_err(|_| wanted())?;
    let prefix: u32 = prefix.parse().map_err(|_| wanted())?;
    if prefix > width(address) {
        return Err(wanted());
    }
    if masked(address, prefix) != number(address) {
        return Err(invalid(
            "subnet_cidr",
            format!("{address} has host bits set for prefix /{prefix}"),
        )
        .with_hint("use the network address, such as 10.20.0.0/24"));
    }
    Ok((address, prefix))
}

fn width(address: IpAddr) -> u32 {
    if address.is_ipv4() { 32 } else { 128 }
}

fn number(address: IpAddr) -> u128 {
    match address {
        IpAddr::V4(v4) => u128::from(v4.to_bits()),
        IpAddr::V6(v6) => v6.to_bits(),
    }
}

/// The lowest `bits` bits set.
fn ones(bits: u32) -> u128 {
    1u128.checked_shl(bits).map_or(u128::MAX, |bit| bit - 1)
}

/// The network part of an address.
fn masked(address: IpAddr, prefix: u32) -> u128 {
    number(address) & !ones(width(address).saturating_sub(prefix))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn field(problem: Problem) -> String {
        assert_eq!(problem.code, "invalid_field");
        problem.errors[0].field.clone()
    }

    #[test]
    fn fabric_addresses_are_inside_their_subnet() {
        let spec = |interface: &str, cidr: &str, ip: &str| RoceAssignmentSpec {
            site: "s".into(),
            hostname: "H1".into(),
            interface: interface.into(),
            subnet_cidr: cidr.into(),
            ip_address: ip.into(),
        };
        let good = roce(spec(" AA-bb:cc:dd:ee:ff ", "10.0.0.0/24", "10.0.0.9")).unwrap();
        assert_eq!((good.hostname.as_str(), good.interface.as_str()), ("h1", "aa:bb:cc:dd:ee:ff"));
        assert!(roce(spec("eth0", "fd00::/64", "fd00::1")).is_ok());
        assert!(roce(spec("eth0", "10.0.0.4/31", "10.0.0.5")).is_ok());
        for (bad, at) in [
            (spec("", "10.0.0.0/24", "10.0.0.9"), "interface"),
            (spec("eth0", "10.0.0.1/24", "10.0.0.9"), "subnet_cidr"),
            (spec("eth0", "10.0.0.0/33", "10.0.0.9"), "subnet_cidr"),
            (spec("eth0", "10.0.0.0/24", "10.0.1.9"), "ip_address"),
            (spec("eth0", "10.0.0.0/24", "fd00::1"), "ip_address"),
            (spec("eth0", "10.0.0.0/24", "10.0.0.255"), "ip_address"),
            (spec("eth0", "10.0.0.0/24", "x"), "ip_address"),
        ] {
            assert_eq!(field(roce(bad).unwrap_err()), at);
        }
    }
}
