//! Whom the host of a URL can be reached by.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Whom the host of a URL can be reached by, as far as the URL alone tells.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HostScope {
    /// Nobody: it is an address to listen on, such as `0.0.0.0`. A connection to it ends at the
    /// host that makes it.
    Unspecified,
    /// The host itself, such as `127.0.0.1` or `localhost`.
    Loopback,
    /// Other hosts, too.
    Elsewhere,
}

impl HostScope {
    /// The scope of the host of `url`.
    #[must_use]
    pub fn of_url(url: &str) -> Self {
        let rest = url.split_once("://").map_or(url, |(_, rest)| rest);
        let authority = rest.split(['/', '?', '#']).next().unwrap_or(rest);
        let authority = authority.rsplit_once('@').map_or(authority, |(_, host)| host);
        let host = match authority.strip_prefix('[') {
            Some(rest) => rest.split(']').next().unwrap_or(rest),
            None => authority.split(':').next().unwrap_or(authority),
        };
        let host = host.trim_end_matches('.').to_ascii_lowercase();
        let address = match host.parse::<IpAddr>() {
            Ok(IpAddr::V6(v6)) => v6.to_ipv4_mapped().map_or(IpAddr::V6(v6), IpAddr::V4),
            Ok(address) => address,
            Err(_) if host == "localhost" || host.ends_with(".localhost") => {
                return Self::Loopback;
            }
            Err(_) => return Self::Elsewhere,
        };
        match address {
            IpAddr::V4(Ipv4Addr::UNSPECIFIED) | IpAddr::V6(Ipv6Addr::UNSPECIFIED) => {
                Self::Unspecified
            }
            address if address.is_loopback() => Self::Loopback,
            _ => Self::Elsewhere,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_scope_of_a_url_is_that_of_its_host() {
        for (url, scope) in [
            ("https://0.0.0.0:8443", HostScope::Unspecified),
            ("https://[::]:8443/x", HostScope::Unspecified),
            ("http://127.0.0.1:5240/MAAS", HostScope::Loopback),
            ("http://127.8.9.1", HostScope::Loopback),
            ("http://[::1]:5240/MAAS", HostScope::Loopback),
            ("http://[::ffff:127.0.0.1]/", HostScope::Loopback),
            ("https://user@LocalHost.:5240", HostScope::Loopback),
            ("https://localhost.example:5240", HostScope::Elsewhere),
            ("http://maas.example:5240/MAAS", HostScope::Elsewhere),
            ("http://10.0.0.1/127.0.0.1", HostScope::Elsewhere),
        ] {
            assert_eq!(HostScope::of_url(url), scope, "{url}");
        }
    }
}
