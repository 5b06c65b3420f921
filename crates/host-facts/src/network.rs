//! Links, IPv4 addresses, routes and listeners of a host, from `/sys/class/net` and `/proc/net`.
//!
//! proc(5) and the kernel's `net/ipv4/fib_trie.c`: `/proc/net/route` lists the main table with its
//! links, in little-endian hexadecimal on the machines that we run on; `/proc/net/fib_trie` lists
//! the host's own addresses, without their links. An address belongs to the link whose connected
//! route covers it; of several, the one with the longest prefix.

use std::net::Ipv4Addr;

use ipnet::Ipv4Net;
use serde::{Deserialize, Serialize};

use crate::root::{HostRoot, MAX_ENTRIES};

/// A network link, `/sys/class/net/NAME`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct NetworkLink {
    /// Interface name.
    pub name: String,
    /// Hardware address; InfiniBand has 20 octets.
    pub mac_address: Option<String>,
    /// `up`, `down`, `unknown` and so on.
    pub operstate: Option<String>,
    /// Speed in Mb/s; absent while the link is down.
    pub speed_mbps: Option<u64>,
    /// MTU in bytes.
    pub mtu_bytes: Option<u32>,
    /// PCI address of the device behind the link; absent for virtual links.
    pub pci_address: Option<String>,
    /// The kernel's number of its type (`ARPHRD_*`): 1 is Ethernet, 32 InfiniBand.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub link_type: Option<u32>,
    /// The link that this one is on top of, such as that of a partition's child; its name, or its number.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parent: Option<String>,
}

/// `ARPHRD_INFINIBAND` of the kernel's `include/uapi/linux/if_arp.h`.
const INFINIBAND_TYPE: u32 = 32;
/// Octets of an InfiniBand hardware address.
const INFINIBAND_OCTETS: usize = 20;

impl NetworkLink {
    /// Whether it is an InfiniBand link. The type says so; the name need not.
    #[must_use]
    pub fn is_infiniband(&self) -> bool {
        let octets = self.mac_address.as_deref().map_or(0, |mac| mac.split(':').count());
        self.link_type.map_or(octets == INFINIBAND_OCTETS, |number| number == INFINIBAND_TYPE)
    }
}

/// An IPv4 address of a link.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LinkAddress {
    /// The link's name.
    pub interface: String,
    /// The address.
    pub address: Ipv4Addr,
    /// Bits of the connected route that covers it.
    pub prefix_length: u8,
}

/// A route of the main table.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Route {
    /// The network.
    pub destination: Ipv4Addr,
    /// Bits of its prefix; 0: the default route.
    pub prefix_length: u8,
    /// The next host; none: the network is on the link.
    pub gateway: Option<Ipv4Addr>,
    /// The link's name.
    pub interface: String,
}

/// A TCP socket that listens.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Listener {
    /// Address as text; `0.0.0.0` and `::` stand for all.
    pub address: String,
    /// The TCP port that is listened on.
    pub port: u16,
}

impl Route {
    /// The network that the route leads to; `None` where its prefix is longer than 32 bits.
    #[must_use]
    pub fn network(&self) -> Option<Ipv4Net> {
        Ipv4Net::new(self.destination, self.prefix_length).ok()
    }

    /// Whether the route leads to every address of `network`.
    ///
    /// ```
    /// let route = host_facts::Route {
    ///     destination: [192, 168, 0, 0].into(),
    ///     prefix_length: 16,
    ///     gateway: None,
    ///     interface: "ibp24s0".to_owned(),
    /// };
    /// assert!(route.covers("192.168.7.0/24".parse()?));
    /// assert!(!route.covers("192.0.0.0/8".parse()?));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn covers(&self, network: Ipv4Net) -> bool {
        self.network().is_some_and(|own| own.contains(&network))
    }
}

impl HostRoot {
    /// Network links, by name.
    pub(crate) fn links(&self) -> Vec<NetworkLink> {
        let link = |name: String| {
            let at = format!("sys/class/net/{name}");
            self.join(&at).is_dir().then(|| NetworkLink {
                mac_address: self.line(format!("{at}/address")),
                operstate: self.line(format!("{at}/operstate")),
                speed_mbps: self.number(format!("{at}/speed")).filter(|&speed| speed > 0),
                mtu_bytes: self.number(format!("{at}/mtu")),
                pci_address: self
                    .link_name(format!("{at}/device"))
                    .filter(|address| address.contains(':')),
                link_type: self.number(format!("{at}/type")),
                parent: self.parent_link(&at),
                name,
            })
        };
        self.names("sys/class/net").into_iter().filter_map(link).collect()
    }

    /// `parent` of a partition's child; of any other link `iflink`, where that is another one's number.
    fn parent_link(&self, at: &str) -> Option<String> {
        self.line(format!("{at}/parent")).or_else(|| {
            let number = |name: &str| self.number::<u32>(format!("{at}/{name}"));
            let (own, lower) = (number("ifindex")?, number("iflink")?);
            (lower != own && lower != 0).then(|| lower.to_string())
        })
    }

    /// Routes of the main table.
    pub(crate) fn routes(&self) -> Vec<Route> {
        self.text("proc/net/route").map(|text| routes(&text)).unwrap_or_default()
    }

    /// Addresses of links.
    pub(crate) fn addresses(&self, routes: &[Route]) -> Vec<LinkAddress> {
        self.text("proc/net/fib_trie").map(|text| addresses(&text, routes)).unwrap_or_default()
    }

    /// TCP sockets that listen.
    pub(crate) fn listeners(&self) -> Vec<Listener> {
        let mut found: Vec<Listener> = ["proc/net/tcp", "proc/net/tcp6"]
            .into_iter()
            .filter_map(|path| self.text(path))
            .flat_map(|text| listeners(&text))
            .take(MAX_ENTRIES)
            .collect();
        found.sort();
        found.dedup();
        found
    }
}

fn routes(text: &str) -> Vec<Route> {
    let route = |line: &str| {
        let mut fields = line.split_whitespace();
        let interface = crate::parse::clean(fields.next()?)?;
        let address = |field: Option<&str>| {
            Some(Ipv4Addr::from(u32::from_str_radix(field?, 16).ok()?.swap_bytes()))
        };
        let destination = address(fields.next())?;
        let gateway = address(fields.next())?;
        let flags = u32::from_str_radix(fields.next()?, 16).ok()?;
        let mask = address(fields.nth(3))?;
        // RTF_UP; RTF_REJECT goes nowhere.
        (flags & 1 == 1 && flags & 0x200 == 0).then_some(())?;
        let prefix_length = u8::try_from(u32::from(mask).leading_ones()).ok()?;
        let gateway = (!gateway.is_unspecified()).then_some(gateway);
        Some(Route { destination, prefix_length, gateway, interface })
    };
    text.lines().skip(1).filter_map(route).take(MAX_ENTRIES).collect()
}

/// The tree names an address on one line and says `/32 host LOCAL` on the next. The local table is
/// printed beside the main one, so an address may come twice.
fn addresses(text: &str, routes: &[Route]) -> Vec<LinkAddress> {
    let mut own: Vec<Ipv4Addr> = Vec::new();
    let mut last: Option<Ipv4Addr> = None;
    for line in text.lines() {
        let line = line.trim();
        if let Some(address) = line.strip_prefix("|-- ") {
            last = address.parse().ok();
        } else if line.starts_with("/32 host LOCAL") {
            own.extend(last);
        }
    }
    own.sort_unstable();
    own.dedup();
    let with_link = |address: Ipv4Addr| {
        let connected = routes.iter().filter(|route| route.gateway.is_none());
        let route = connected
            .filter(|route| route.network().is_some_and(|network| network.contains(&address)))
            .max_by_key(|route| route.prefix_length)?;
        let interface = route.interface.clone();
        Some(LinkAddress { interface, address, prefix_length: route.prefix_length })
    };
    own.into_iter().filter_map(with_link).take(MAX_ENTRIES).collect()
}

fn listeners(text: &str) -> Vec<Listener> {
    let listener = |line: &str| {
        let mut fields = line.split_whitespace();
        let local = fields.nth(1)?;
        // State 0A is TCP_LISTEN (include/net/tcp_states.h).
        (fields.nth(1)? == "0A").then_some(())?;
        let (address, port) = local.split_once(':')?;
        let port = u16::from_str_radix(port, 16).ok()?;
        Some(Listener { address: socket_address(address)?, port })
    };
    text.lines().skip(1).filter_map(listener).collect()
}

/// An address as the kernel prints it: 32-bit words, each in the machine's own order.
fn socket_address(text: &str) -> Option<String> {
    let word = |part: &str| u32::from_str_radix(part, 16).ok().map(u32::swap_bytes);
    match text.len() {
        8 => Some(Ipv4Addr::from(word(text)?).to_string()),
        32 => {
            let mut bytes = [0; 16];
            for (index, chunk) in bytes.chunks_mut(4).enumerate() {
                chunk.copy_from_slice(&word(text.get(index * 8..index * 8 + 8)?)?.to_be_bytes());
            }
            Some(std::net::Ipv6Addr::from(bytes).to_string())
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ROUTE: &str = "\
Iface\tDestination\tGateway \tFlags\tRefCnt\tUse\tMetric\tMask\t\tMTU\tWindow\tIRTT
eno1\t00000000\t0124B10A\t0003\t0\t0\t100\t00000000\t0\t0\t0
eno1\t0024B10A\t00000000\t0001\t0\t0\t100\t00FFFFFF\t0\t0\t0
ibp24s0\t0024A8C0\t00000000\t0001\t0\t0\t0\t00FFFFFF\t0\t0\t0
ibp24s0\t0000A8C0\t00000000\t0001\t0\t0\t0\t0000FFFF\t0\t0\t0
lost\t0000A8C0\t00000000\t0200\t0\t0\t0\t0000FFFF\t0\t0\t0
short line
";
    const TRIE: &str = "\
Main:
  +-- 0.0.0.0/0 3 0 5
     |-- 0.0.0.0
        /0 universe UNICAST
     +-- 10.177.36.0/24 2 0 2
        |-- 10.177.36.0
           /24 link UNICAST
        |-- 10.177.36.100
           /32 host LOCAL
     |-- 192.168.36.100
        /32 host LOCAL
        |-- 127.0.0.1
           /32 host LOCAL
Local:
        |-- 10.177.36.100
           /32 host LOCAL
";

    #[test]
    fn routes_and_addresses() {
        let routes = routes(ROUTE);
        assert_eq!(routes.len(), 4);
        assert_eq!(routes[0].gateway, Some(Ipv4Addr::new(10, 177, 36, 1)));
        assert_eq!(routes[0].prefix_length, 0);
        let wide = &routes[3];
        assert_eq!((wide.destination, wide.prefix_length), (Ipv4Addr::new(192, 168, 0, 0), 16));
        assert!(wide.covers("192.168.7.0/24".parse().unwrap()));
        assert!(!wide.covers("192.0.0.0/8".parse().unwrap()));
        let found = addresses(TRIE, &routes);
        let text: Vec<String> = found
            .iter()
            .map(|a| format!("{} {}/{}", a.interface, a.address, a.prefix_length))
            .collect();
        assert_eq!(text, ["eno1 10.177.36.100/24", "ibp24s0 192.168.36.100/24"]);
    }

    #[test]
    fn listeners_of_both_families() {
        let text = "  sl  local_address rem_address   st\n\
             0: 0100007F:4E1E 00000000:0000 0A 0\n\
             1: 00000000:4E1F 00000000:0000 0A 0\n\
             2: 0100007F:4E1E 0100007F:D431 01 0\n";
        let six = "head\n 0: 00000000000000000000000001000000:0050 0:0 0A\n";
        let seen: Vec<String> = [listeners(text), listeners(six)]
            .concat()
            .iter()
            .map(|l| format!("{} {}", l.address, l.port))
            .collect();
        assert_eq!(seen, ["127.0.0.1 19998", "0.0.0.0 19999", "::1 80"]);
    }
}
