//! Whether nftables drops what comes from a link: a packet is followed through the ruleset.
//!
//! Rules are piecewise constant in a packet's destination and port, so it is enough to try the
//! addresses and ports at which a rule's match begins and ends. What is not understood counts against
//! the host: such an `accept` is taken to fit, and such a `drop` not to.

use std::collections::BTreeSet;
use std::net::Ipv4Addr;

use ipnet::Ipv4Net;
use serde_json::Value;

/// UDP, as nftables names it.
const UDP: &str = "udp";
/// TCP, as nftables names it.
const TCP: &str = "tcp";
/// Ports that are tried beside those of the rules: SSH, HTTPS, IPMI, MAAS.
const PORTS: [u16; 5] = [1, 22, 443, 623, 5240];

/// A first packet of a connection.
#[derive(Debug, Clone, Copy)]
pub(super) struct Packet<'a> {
    /// The link that it came in on.
    pub(super) from: &'a str,
    /// The link that it goes out on; `None` for this host.
    pub(super) to: Option<&'a str>,
    /// Its destination.
    pub(super) destination: Ipv4Addr,
    /// Protocol and port; ICMP has none.
    pub(super) port: Option<(&'static str, u16)>,
}

/// How a packet leaves a chain.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Verdict {
    Accept,
    Drop,
    /// At the chain's end.
    Continue,
}

/// What a rule compares with a packet.
#[derive(Debug)]
enum Field {
    /// Name of the link that it came in on.
    From(Vec<String>),
    /// Name of the link that it goes out on.
    To(Vec<String>),
    /// Its destination, in one of these ranges.
    Destination(Vec<(u32, u32)>),
    /// Its port, of this protocol, in one of these ranges.
    Port(String, Vec<(u32, u32)>),
    /// Its protocol.
    Protocol(Vec<String>),
    /// The same for every packet that is tried.
    Constant(bool),
    /// Not understood.
    Unknown,
}

/// A part of a rule, in their order.
#[derive(Debug)]
enum Part {
    /// Goes on where the field is, or is not (`false`), what the rule names.
    Match(Field, bool),
    Accept,
    Drop,
    /// The chain's place in the ruleset; `None`: there is no such chain.
    Call(Option<usize>),
}

#[derive(Debug, Default)]
struct Chain {
    /// `input`, `forward`, ...; empty for a chain that is only called.
    hook: String,
    drops_by_policy: bool,
    rules: Vec<Vec<Part>>,
}

/// A ruleset, as `nft -j list ruleset` prints it (libnftables-json(5)).
pub(super) struct Ruleset {
    chains: Vec<Chain>,
}

impl Ruleset {
    pub(super) fn new(document: &Value) -> Self {
        let items: Vec<&Value> = document["nftables"].as_array().into_iter().flatten().collect();
        let declared: Vec<&Value> = items.iter().filter_map(|item| item.get("chain")).collect();
        let place = |of: &Value, name: &Value| {
            declared.iter().position(|chain| {
                chain["family"] == of["family"]
                    && chain["table"] == of["table"]
                    && chain["name"] == *name
            })
        };
        let mut chains: Vec<Chain> = declared
            .iter()
            .map(|chain| {
                let version_4 = matches!(chain["family"].as_str(), Some("ip" | "inet"));
                let hook = chain["hook"].as_str().filter(|_| version_4).unwrap_or_default();
                Chain {
                    hook: hook.to_owned(),
                    drops_by_policy: chain["policy"] == "drop",
                    rules: Vec::new(),
                }
            })
            .collect();
        for rule in items.iter().filter_map(|item| item.get("rule")) {
            let Some(index) = place(rule, &rule["chain"]) else { continue };
            let parts = rule["expr"].as_array().into_iter().flatten();
            let parts = parts.filter_map(|one| part(one, |name| place(rule, name))).collect();
            chains[index].rules.push(parts);
        }
        Self { chains }
    }

    /// Whether a base chain of a hook (`input`, `forward`) drops the packet.
    fn drops(&self, hook: &str, packet: Packet<'_>) -> bool {
        let mut base = self.chains.iter().filter(|chain| chain.hook == hook);
        base.any(|chain| match self.follow(chain, packet, 0) {
            Verdict::Drop => true,
            Verdict::Accept => false,
            Verdict::Continue => chain.drops_by_policy,
        })
    }

    fn follow(&self, chain: &Chain, packet: Packet<'_>, depth: u32) -> Verdict {
        let mut verdicts = chain.rules.iter().map(|rule| self.decide(rule, packet, depth));
        verdicts.find(|verdict| *verdict != Verdict::Continue).unwrap_or(Verdict::Continue)
    }

    fn decide(&self, rule: &[Part], packet: Packet<'_>, depth: u32) -> Verdict {
        let mut certain = true;
        for part in rule {
            match part {
                Part::Match(field, equal) => match field.holds(packet) {
                    Some(holds) if holds == *equal => {}
                    Some(_) => return Verdict::Continue,
                    None => certain = false,
                },
                Part::Drop if certain => return Verdict::Drop,
                Part::Drop => return Verdict::Continue,
                Part::Accept => return Verdict::Accept,
                Part::Call(called) => {
                    let Some(chain) = called.and_then(|index| self.chains.get(index)) else {
                        return Verdict::Accept;
                    };
                    // The kernel refuses a ruleset whose chains call deeper than that.
                    if depth >= 16 {
                        return Verdict::Accept;
                    }
                    match (self.follow(chain, packet, depth + 1), certain) {
                        (Verdict::Continue, _) | (Verdict::Drop, false) => {}
                        (decided, _) => return decided,
                    }
                }
            }
        }
        Verdict::Continue
    }

    /// Numbers at which what rules say of a field begins or ends, and their neighbours.
    fn boundaries(&self, ranges: impl Fn(&Field) -> Option<&[(u32, u32)]>) -> BTreeSet<u32> {
        let parts = self.chains.iter().flat_map(|chain| chain.rules.iter().flatten());
        let fields = parts.filter_map(|part| match part {
            Part::Match(field, _) => ranges(field),
            _ => None,
        });
        let ends = fields.flatten().flat_map(|(first, last)| {
            [first.saturating_sub(1), *first, *last, last.saturating_add(1)]
        });
        ends.collect()
    }

    /// Protocols and ports that are worth a packet.
    fn ports(&self) -> Vec<Option<(&'static str, u16)>> {
        let ruled = self.boundaries(|field| match field {
            Field::Port(_, ranges) => Some(ranges),
            _ => None,
        });
        let ruled = ruled.into_iter().filter_map(|port| u16::try_from(port).ok());
        let ports: BTreeSet<u16> = ruled.chain(PORTS).collect();
        let of = |protocol| ports.iter().map(move |port| Some((protocol, *port)));
        std::iter::once(None).chain(of(TCP)).chain(of(UDP)).collect()
    }

    /// What a link reaches of this host at `addresses`, beside DHCP, DNS and `open_port`; or that it does
    /// not reach the latter.
    pub(super) fn wrong_input(
        &self,
        from: &str,
        addresses: &[Ipv4Addr],
        open_port: Option<(Ipv4Addr, u16)>,
    ) -> Option<String> {
        if let Some((destination, port)) = open_port {
            let packet = Packet { from, to: None, destination, port: Some((TCP, port)) };
            if self.drops("input", packet) {
                return Some(format!("{} is blocked for {from}", packet_text(packet)));
            }
        }
        let ports = self.ports();
        for destination in addresses {
            for port in &ports {
                let is_open_port = open_port.is_some_and(|(address, number)| {
                    address == *destination && *port == Some((TCP, number))
                });
                if is_open_port || matches!(port, Some((UDP, 53 | 67) | (TCP, 53))) {
                    continue;
                }
                let packet = Packet { from, to: None, destination: *destination, port: *port };
                if !self.drops("input", packet) {
                    return Some(format!("{} is open to {from}", packet_text(packet)));
                }
            }
        }
        None
    }

    /// What a link reaches of `network` through this host, but for what `except` holds.
    pub(super) fn open_forward(
        &self,
        from: &str,
        network: Ipv4Net,
        except: &[Ipv4Net],
    ) -> Option<String> {
        let inside = |number: &u32| network.contains(&Ipv4Addr::from(*number));
        let edges = |net: &Ipv4Net| [u32::from(net.network()), u32::from(net.broadcast())];
        let mut tried: BTreeSet<u32> = edges(&network).into_iter().collect();
        tried.extend(self.boundaries(|field| match field {
            Field::Destination(ranges) => Some(ranges),
            _ => None,
        }));
        for net in except {
            let [first, last] = edges(net);
            tried.extend([first.saturating_sub(1), last.saturating_add(1)]);
        }
        let addresses = tried.into_iter().filter(inside).map(Ipv4Addr::from);
        let ports = self.ports();
        for destination in addresses.filter(|one| !except.iter().any(|net| net.contains(one))) {
            for port in &ports {
                let packet = Packet { from, to: Some(""), destination, port: *port };
                if !self.drops("forward", packet) {
                    return Some(format!("{} is open to {from}", packet_text(packet)));
                }
            }
        }
        None
    }
}

impl Field {
    /// Whether the packet has it; `None`: nobody knows.
    fn holds(&self, packet: Packet<'_>) -> Option<bool> {
        let within = |ranges: &[(u32, u32)], number: u32| {
            ranges.iter().any(|(first, last)| (*first..=*last).contains(&number))
        };
        let named = |names: &[String], name: &str| names.iter().any(|one| one == name);
        Some(match self {
            Self::From(names) => named(names, packet.from),
            Self::To(names) => packet.to.is_some_and(|to| named(names, to)),
            Self::Destination(ranges) => within(ranges, packet.destination.into()),
            Self::Port(of, ranges) => packet
                .port
                .is_some_and(|(protocol, port)| protocol == of && within(ranges, port.into())),
            Self::Protocol(names) => named(names, packet.port.map_or("icmp", |(name, _)| name)),
            Self::Constant(holds) => *holds,
            Self::Unknown => return None,
        })
    }
}

/// Part of a rule; `None`: it decides nothing.
fn part(expression: &Value, place: impl Fn(&Value) -> Option<usize>) -> Option<Part> {
    let (kind, body) = expression.as_object()?.iter().next()?;
    Some(match kind.as_str() {
        "match" => match body["op"].as_str() {
            Some("==" | "in") => Part::Match(field(body), true),
            Some("!=") => not_equal(field(body)),
            _ => Part::Match(Field::Unknown, true),
        },
        "counter" | "log" => return None,
        "drop" | "reject" => Part::Drop,
        // Who returns goes past what this chain would have dropped.
        "accept" | "return" | "vmap" => Part::Accept,
        "jump" | "goto" => Part::Call(place(&body["target"])),
        // Extensions of iptables, limits, marks.
        _ => Part::Match(Field::Unknown, true),
    })
}

/// A packet of another protocol has no such port, whatever the rule compares it with.
fn not_equal(field: Field) -> Part {
    match field {
        Field::Port(..) => Part::Match(Field::Unknown, true),
        field => Part::Match(field, false),
    }
}

fn field(found: &Value) -> Field {
    let (left, values) = (&found["left"], members(&found["right"]));
    let names: Vec<String> =
        values.iter().filter_map(|one| Some(one.as_str()?.to_owned())).collect();
    let named = |name: &str| names.iter().any(|one| one == name);
    if names.iter().any(|name| name.ends_with('*') || name.starts_with('@')) {
        return Field::Unknown;
    }
    let ranges = || values.iter().map(|value| bounds(value)).collect::<Option<Vec<(u32, u32)>>>();
    let payload = &left["payload"];
    match (left["meta"]["key"].as_str(), left["ct"]["key"].as_str()) {
        (Some("iifname"), _) => Field::From(names),
        (Some("oifname"), _) => Field::To(names),
        (Some("nfproto"), _) => Field::Constant(named("ipv4")),
        (Some("l4proto"), _) => Field::Protocol(names),
        (None, Some("state")) => Field::Constant(named("new")),
        // A connection that the host turned to a guest, and not one of a guest.
        (None, Some("status")) if named("dnat") && names.len() == 1 => Field::Constant(false),
        (None, None) => match (payload["protocol"].as_str(), payload["field"].as_str()) {
            (Some("ip"), Some("daddr")) => ranges().map_or(Field::Unknown, Field::Destination),
            (Some("ip6"), _) => Field::Constant(false),
            (Some(protocol @ ("tcp" | "udp")), Some("dport")) => {
                let port = |ranges| Field::Port(protocol.to_owned(), ranges);
                ranges().map_or(Field::Unknown, port)
            }
            _ => Field::Unknown,
        },
        _ => Field::Unknown,
    }
}

fn packet_text(packet: Packet<'_>) -> String {
    match packet.port {
        Some((protocol, port)) => format!("{protocol} {}:{port}", packet.destination),
        None => format!("icmp {}", packet.destination),
    }
}

/// The values that a match compares with.
fn members(right: &Value) -> Vec<&Value> {
    match (right.get("set"), right) {
        (Some(Value::Array(values)), _) | (None, Value::Array(values)) => values.iter().collect(),
        (Some(one), _) | (None, one) => vec![one],
    }
}

/// First and last number of a value: an address, a prefix, a port, a range of these.
fn bounds(value: &Value) -> Option<(u32, u32)> {
    let number = |value: &Value| match value {
        Value::String(text) => text.parse::<Ipv4Addr>().ok().map(u32::from),
        Value::Number(number) => u32::try_from(number.as_u64()?).ok(),
        _ => None,
    };
    if let Some(prefix) = value.get("prefix") {
        let text = format!("{}/{}", prefix["addr"].as_str()?, prefix["len"].as_u64()?);
        let net: Ipv4Net = text.parse().ok()?;
        return Some((net.network().into(), net.broadcast().into()));
    }
    if let Some(range) = value.get("range") {
        return Some((number(&range[0])?, number(&range[1])?));
    }
    number(value).map(|number| (number, number))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn rule(chain: &str, expr: &Value) -> Value {
        json!({"rule": {"family": "inet", "table": "t", "chain": chain, "expr": expr}})
    }

    fn on_bridge() -> Value {
        json!({"match": {"op": "==", "left": {"meta": {"key": "iifname"}}, "right": "br0"}})
    }

    fn payload(protocol: &str, field: &str, right: &Value) -> Value {
        let left = json!({"payload": {"protocol": protocol, "field": field}});
        json!({"match": {"op": "==", "left": left, "right": right}})
    }

    fn ruleset(rules: &[Value]) -> Value {
        let chain = |name: &str| {
            json!({"chain": {"family": "inet", "table": "t", "name": name, "hook": name,
                "type": "filter", "prio": 0, "policy": "accept"}})
        };
        let mut items = vec![chain("input"), chain("forward")];
        items.extend(rules.iter().cloned());
        json!({ "nftables": items })
    }

    fn input(rules: &[Value]) -> Option<String> {
        Ruleset::new(&ruleset(rules)).wrong_input("br0", &["10.0.0.1".parse().unwrap()], None)
    }

    #[test]
    fn the_one_port_that_is_to_be_open_is_open_and_nothing_beside_it() {
        let address = |text: &str| text.parse::<Ipv4Addr>().unwrap();
        let addresses = [address("10.0.0.1"), address("10.177.0.9")];
        let wrong = |rules: &[Value]| {
            let open_port = Some((addresses[0], 9000));
            Ruleset::new(&ruleset(rules)).wrong_input("br0", &addresses, open_port)
        };
        let drop = || rule("input", &json!([on_bridge(), {"drop": null}]));
        let accept = |daddr: Option<&str>, port: Value| {
            let mut expr = vec![on_bridge()];
            expr.extend(daddr.map(|daddr| payload("ip", "daddr", &json!(daddr))));
            expr.extend([payload("tcp", "dport", &port), json!({"accept": null})]);
            rule("input", &json!(expr))
        };
        let here = Some("10.0.0.1");
        assert_eq!(wrong(&[accept(here, json!(9000)), drop()]), None);
        assert_eq!(wrong(&[drop()]).unwrap(), "tcp 10.0.0.1:9000 is blocked for br0");
        let late = [drop(), accept(here, json!(9000))];
        assert_eq!(wrong(&late).unwrap(), "tcp 10.0.0.1:9000 is blocked for br0");
        let anywhere = [accept(None, json!(9000)), drop()];
        assert_eq!(wrong(&anywhere).unwrap(), "tcp 10.177.0.9:9000 is open to br0");
        let range = [accept(here, json!({"range": [9000, 9001]})), drop()];
        assert_eq!(wrong(&range).unwrap(), "tcp 10.0.0.1:9001 is open to br0");
    }

    #[test]
    fn an_input_that_opens_more_than_dhcp_and_dns_is_named() {
        let drop = || rule("input", &json!([on_bridge(), {"drop": null}]));
        let accept = |expr: Value| rule("input", &json!([on_bridge(), expr, {"accept": null}]));
        let dns = || accept(payload("udp", "dport", &json!({"set": [53, 67]})));
        assert_eq!(input(&[dns(), drop()]), None);
        assert_eq!(input(&[dns()]).unwrap(), "icmp 10.0.0.1 is open to br0");
        let other = rule(
            "input",
            &json!([
            {"match": {"op": "==", "left": {"meta": {"key": "iifname"}}, "right": "br1"}},
            {"drop": null}]),
        );
        assert!(input(&[other]).is_some(), "another link's rule");
        let api = accept(payload("tcp", "dport", &json!({"range": [9000, 9010]})));
        assert_eq!(input(&[api, drop()]).unwrap(), "tcp 10.0.0.1:9000 is open to br0");
        let marked = json!({"match": {"op": "==", "left": {"meta": {"key": "mark"}}, "right": 7}});
        assert!(input(&[accept(marked.clone()), drop()]).is_some(), "nobody knows who is marked");
        let some = rule("input", &json!([on_bridge(), marked, {"drop": null}]));
        assert!(input(&[some]).is_some(), "what is not understood drops nothing");
        let state = json!({"match": {"op": "in", "left": {"ct": {"key": "state"}},
            "right": ["established", "related"]}});
        assert_eq!(input(&[accept(state), drop()]), None);
        let xt = rule("input", &json!([on_bridge(), {"xt": {"type": "match"}}, {"drop": null}]));
        assert!(input(&[xt]).is_some(), "an extension of iptables");
        let jump = rule("input", &json!([on_bridge(), {"jump": {"target": "own"}}]));
        let own = json!({"chain": {"family": "inet", "table": "t", "name": "own"}});
        assert_eq!(input(&[own, jump, rule("own", &json!([{"drop": null}]))]), None);
    }

    #[test]
    fn a_hole_in_a_network_is_found_wherever_it_is() {
        let net = |text: &str| text.parse::<Ipv4Net>().unwrap();
        let prefix = |addr: &str, len: u8| json!({"prefix": {"addr": addr, "len": len}});
        let to = |right: Value, verdict: &str| {
            rule("forward", &json!([on_bridge(), payload("ip", "daddr", &right), {verdict: null}]))
        };
        let open = |rules: &[Value], except: &[Ipv4Net]| {
            Ruleset::new(&ruleset(rules)).open_forward("br0", net("10.0.0.0/8"), except)
        };
        let all = || to(prefix("10.0.0.0", 8), "drop");
        assert_eq!(open(&[all()], &[]), None);
        let half = open(&[to(prefix("10.0.0.0", 9), "drop")], &[]).unwrap();
        assert_eq!(half, "icmp 10.128.0.0 is open to br0");
        let hole = || to(json!("10.177.36.50"), "accept");
        assert_eq!(open(&[hole(), all()], &[]).unwrap(), "icmp 10.177.36.50 is open to br0");
        assert_eq!(open(&[hole(), all()], &[net("10.177.36.0/24")]), None);
        assert_eq!(
            open(
                &[to(json!({"set": [prefix("10.0.0.0", 9), prefix("10.128.0.0", 9)]}), "drop")],
                &[]
            ),
            None
        );
        assert!(open(&[], &[]).is_some());
    }
}
