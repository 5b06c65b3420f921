//! Checks whose effect is in no file: a daemon of the host, or its kernel, has to be queried.
//!
//! Every query has a time limit. Only the machine of this process is queried; a host below another
//! root answers through the host emulator or not at all.

use std::net::Ipv4Addr;
use std::time::Duration;

use gpuaas_types::agent::{Finding, HostCheck, is_unit};
use host_facts::HostFacts;
use ipnet::Ipv4Net;
use serde_json::Value;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::sync::OnceCell;
use tokio::time::timeout;

use super::nftables::Ruleset;
use super::pci::PciFilter;
use super::query::{QUERY_SECONDS, query};
use super::units::unit_state;
use super::verdict::{Verdict, at_least};
use super::{fabric, flows, identities, netdata, settings};
use crate::command::CommandRunner;
use crate::host::Host;

/// Longest time of a query to `nvidia-smi`, in seconds: it wakes every GPU first.
const NVIDIA_SECONDS: u64 = 60;
/// Bytes of an HTTP response that are read.
const MAX_RESPONSE_BYTES: usize = 4 << 20;

/// What several checks of one evaluation ask for.
#[derive(Debug, Default)]
pub(super) struct Answers {
    /// The ruleset of nftables, as JSON.
    ruleset: OnceCell<Result<Value, String>>,
}

impl Answers {
    async fn nft_ruleset(&self, runner: CommandRunner<'_>) -> Result<&Value, String> {
        let asked = async || {
            let text = query(runner, "nft", &["-j", "list", "ruleset"], QUERY_SECONDS).await?;
            serde_json::from_str(&text).map_err(|error| format!("nft: {error}"))
        };
        self.ruleset.get_or_init(asked).await.as_ref().map_err(Clone::clone)
    }
}

/// Evaluates what [`super::offline`] cannot see.
pub(super) async fn evaluate(
    host: &Host,
    facts: &HostFacts,
    answers: &Answers,
    check: &HostCheck,
) -> Finding {
    let name = check.name();
    if let HostCheck::UnitActive { unit } = check {
        let found = unit_state(host, unit).await;
        return Finding { passed: Some(found.passed == Some(true)), ..found };
    }
    if let HostCheck::NvidiaFabric {} = check {
        return fabric::evaluate(host, facts).await;
    }
    let (passed, seen) = match (check, CommandRunner::for_host(host)) {
        (_, Err(error)) => (false, error.to_string()),
        (HostCheck::HttpAnswers { port, path }, Ok(runner)) => {
            http_answers(runner, *port, path).await
        }
        (HostCheck::NetdataCollects { port, groups }, Ok(runner)) => {
            netdata::collects(runner, *port, groups).await
        }
        (HostCheck::VirtualIdentities { vendor, class }, Ok(runner)) => {
            identities::judge(
                host,
                runner,
                facts,
                PciFilter::devices(vendor, None, class.as_deref()),
            )
            .await
        }
        (HostCheck::OvsBridge { bridge }, Ok(runner)) => ovs_bridge(runner, bridge).await,
        (HostCheck::OvsPortsIsolated { bridge }, Ok(runner)) => {
            ports_isolated(runner, bridge).await
        }
        (HostCheck::Masquerades { subnet }, Ok(runner)) => {
            masquerades(answers.nft_ruleset(runner).await, subnet)
        }
        (HostCheck::DropsInput { interface, gateway, open_tcp_port }, Ok(runner)) => {
            let ruleset = answers.nft_ruleset(runner).await;
            drops_input(ruleset, facts, interface, (gateway, *open_tcp_port))
        }
        (HostCheck::DropsForward { interface, networks, except }, Ok(runner)) => {
            drops_forward(answers.nft_ruleset(runner).await, facts, interface, networks, except)
        }
        (HostCheck::NvidiaGpus { count, model }, Ok(runner)) => {
            nvidia_gpus(runner, *count, model).await
        }
        (HostCheck::SshdSetting { name, value }, Ok(runner)) => {
            settings::sshd(runner, name, value).await
        }
        (HostCheck::UnitStarts { unit, arguments }, Ok(runner)) if is_unit(unit) => {
            settings::unit_command(runner, unit, arguments).await
        }
        _ => (false, "not checked".to_owned()),
    };
    Finding { name, passed: Some(passed), seen: seen.chars().take(500).collect() }
}

/// Whether a bridge is in the database of Open vSwitch and its datapath answers OpenFlow.
async fn ovs_bridge(runner: CommandRunner<'_>, bridge: &str) -> Verdict {
    let show = ["--timeout=5", "show", bridge];
    if !is_plain_name(bridge) {
        return (false, "not a valid bridge name".to_owned());
    }
    match query(runner, "ovs-ofctl", &show, QUERY_SECONDS + 1).await {
        Ok(text) if text.contains("OFPT_FEATURES_REPLY") => {
            (true, "its datapath responds".to_owned())
        }
        Ok(_) => (false, "its datapath reports no features".to_owned()),
        Err(reason) => (false, reason),
    }
}

/// Whether the flows of a bridge send what comes in at a port to the host (`LOCAL`) alone, and drop what
/// a port sends with another's address.
async fn ports_isolated(runner: CommandRunner<'_>, bridge: &str) -> Verdict {
    let dump = ["-O", "OpenFlow13", "--timeout=5", "dump-flows", bridge];
    if !is_plain_name(bridge) {
        return (false, "not a valid bridge name".to_owned());
    }
    match query(runner, "ovs-ofctl", &dump, QUERY_SECONDS + 1).await {
        Ok(text) => flows::isolate(&text),
        Err(reason) => (false, reason),
    }
}

fn masquerades(ruleset: Result<&Value, String>, subnet: &str) -> Verdict {
    match ruleset {
        Ok(rules) if has_masquerade(rules, subnet) => (true, "nftables has the rule".to_owned()),
        Ok(_) => (false, format!("no rule masquerades {subnet}")),
        Err(reason) => (false, reason),
    }
}

fn drops_input(
    ruleset: Result<&Value, String>,
    facts: &HostFacts,
    interface: &str,
    (gateway, open_tcp_port): (&str, Option<u16>),
) -> Verdict {
    let Ok(gateway) = gateway.parse::<Ipv4Net>() else {
        return (false, format!("{gateway:?} is not an address with a prefix length"));
    };
    // A guest may ask any address of the host.
    let others = facts.addresses.iter().map(|found| found.address);
    let addresses: Vec<Ipv4Addr> = std::iter::once(gateway.addr()).chain(others).collect();
    match ruleset {
        Ok(rules) => {
            let open_port = open_tcp_port.map(|port| (gateway.addr(), port));
            match Ruleset::new(rules).wrong_input(interface, &addresses, open_port) {
                Some(wrong) => (false, wrong),
                None => (true, "drops everything except the allowed traffic".to_owned()),
            }
        }
        Err(reason) => (false, reason),
    }
}

fn drops_forward(
    ruleset: Result<&Value, String>,
    facts: &HostFacts,
    interface: &str,
    networks: &str,
    except: &str,
) -> Verdict {
    let parse = |text: &str| -> Result<Vec<Ipv4Net>, String> {
        let words = text.split_whitespace();
        words.map(|one| one.parse().map_err(|_| format!("{one:?} is not a network"))).collect()
    };
    let (mut denied, except) = match (parse(networks), parse(except)) {
        (Ok(denied), Ok(except)) => (denied, except),
        (Err(reason), _) | (_, Err(reason)) => return (false, reason),
    };
    denied.extend(management_networks(facts));
    let ruleset = match ruleset {
        Ok(rules) => Ruleset::new(rules),
        Err(reason) => return (false, reason),
    };
    match denied.iter().find_map(|net| ruleset.open_forward(interface, *net, &except)) {
        Some(open) => (false, open),
        None => (true, format!("{} networks are blocked", denied.len())),
    }
}

/// Networks of the links that have a default route.
fn management_networks(facts: &HostFacts) -> Vec<Ipv4Net> {
    let default = facts.routes.iter().filter(|route| route.prefix_length == 0);
    let links: Vec<&str> = default.map(|route| route.interface.as_str()).collect();
    let on_link = facts.addresses.iter().filter(|found| links.contains(&found.interface.as_str()));
    on_link.filter_map(|found| Ipv4Net::new(found.address, found.prefix_length).ok()).collect()
}

async fn nvidia_gpus(runner: CommandRunner<'_>, count: u32, model: &str) -> Verdict {
    match query(runner, "nvidia-smi", &["-L"], NVIDIA_SECONDS).await {
        Ok(text) => gpus_of_model(&text, count, model),
        Err(reason) => (false, reason),
    }
}

/// GPUs of a model among the lines of `nvidia-smi -L`: `GPU 0: NVIDIA H200 (UUID: GPU-1f2e)`.
fn gpus_of_model(listed: &str, count: u32, model: &str) -> Verdict {
    let products = listed.lines().filter(|line| line.starts_with("GPU ")).map(|line| {
        let name = line.split_once(": ").map_or(line, |(_, rest)| rest);
        name.split(" (UUID").next().unwrap_or(name).trim()
    });
    let is_model = |name: &&str| {
        model.is_empty() || name.split(' ').any(|word| word.eq_ignore_ascii_case(model))
    };
    let (of_model, others): (Vec<&str>, Vec<&str>) = products.partition(is_model);
    let (passed, mut seen) = at_least(of_model.len(), count);
    if !others.is_empty() {
        seen = format!("{seen}; other models: {}", others.join(", "));
    }
    (passed, seen)
}

/// GET on the host. An emulated host has no port of its own, so its emulator is asked for `curl`.
async fn http_answers(runner: CommandRunner<'_>, port: u16, path: &str) -> Verdict {
    if !path.starts_with('/') || path.contains(|c: char| c.is_whitespace() || c.is_control()) {
        return (false, format!("{path:?} is not a path"));
    }
    if matches!(runner, CommandRunner::Native) {
        return http_get(port, path).await;
    }
    let url = format!("http://127.0.0.1:{port}{path}");
    match query(runner, "curl", &["-fsS", "-o", "/dev/null", &url], QUERY_SECONDS).await {
        Ok(_) => (true, "it responds".to_owned()),
        Err(reason) => (false, reason),
    }
}

fn is_plain_name(name: &str) -> bool {
    !name.is_empty()
        && name.bytes().all(|b| b.is_ascii_alphanumeric() || b"-_.".contains(&b))
        && !name.starts_with('-')
}

/// Whether a rule of the ruleset (libnftables-json(5)) matches the subnet as source and masquerades.
fn has_masquerade(ruleset: &Value, subnet: &str) -> bool {
    let Some((address, length)) = subnet.split_once('/') else { return false };
    let is_source = |expression: &Value| {
        let found = &expression["match"];
        found["left"]["payload"]["field"] == "saddr"
            && found["op"] != "!="
            && found["right"]["prefix"]["addr"] == address
            && found["right"]["prefix"]["len"].as_u64().map(|n| n.to_string()).as_deref()
                == Some(length)
    };
    let rules = ruleset["nftables"].as_array().into_iter().flatten();
    rules.filter_map(|item| item["rule"]["expr"].as_array()).any(|expressions| {
        expressions.iter().any(is_source)
            && expressions.iter().any(|expression| expression.get("masquerade").is_some())
    })
}

/// GET on this machine; only the status line counts.
async fn http_get(port: u16, path: &str) -> Verdict {
    let get = async {
        let mut stream = tokio::net::TcpStream::connect(("127.0.0.1", port)).await?;
        let request =
            format!("GET {path} HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nConnection: close\r\n\r\n");
        stream.write_all(request.as_bytes()).await?;
        let mut answer = Vec::new();
        stream.take(MAX_RESPONSE_BYTES as u64).read_to_end(&mut answer).await?;
        std::io::Result::Ok(String::from_utf8_lossy(&answer).into_owned())
    };
    match timeout(Duration::from_secs(QUERY_SECONDS), get).await {
        Ok(Ok(answer)) => {
            let line = answer.lines().next().unwrap_or_default();
            let status = line.split(' ').nth(1).unwrap_or_default();
            (status.starts_with('2') && status.len() == 3, format!("it responds {line:?}"))
        }
        Ok(Err(error)) => (false, format!("port {port}: {error}")),
        Err(_) => (false, format!("no response within {QUERY_SECONDS} s")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use host_facts::HostRoot;

    #[test]
    fn a_rule_masquerades_its_own_subnet_only() {
        let ruleset = serde_json::json!({"nftables": [
            {"metainfo": {"version": "1.0.6"}},
            {"rule": {"table": "gpuaas_slice", "chain": "postrouting", "expr": [
                {"match": {"op": "==", "left": {"payload": {"protocol": "ip", "field": "saddr"}},
                    "right": {"prefix": {"addr": "10.100.0.0", "len": 24}}}},
                {"match": {"op": "!=", "left": {"meta": {"key": "oifname"}}, "right": "ovsbr0"}},
                {"masquerade": null},
            ]}},
        ]});
        assert!(has_masquerade(&ruleset, "10.100.0.0/24"));
        assert!(!has_masquerade(&ruleset, "10.100.0.0/16"));
        assert!(!has_masquerade(&ruleset, "10.200.0.0/24"));
        assert!(!has_masquerade(&serde_json::json!({}), "10.100.0.0/24"));
    }

    #[test]
    fn gpus_of_another_model_are_named_and_not_counted() {
        let listed = "GPU 0: NVIDIA H200 (UUID: GPU-1)\nGPU 1: NVIDIA H200 NVL (UUID: GPU-2)\n\
                      GPU 2: NVIDIA H100 80GB HBM3 (UUID: GPU-3)\nNo devices were found\n";
        let (passed, seen) = gpus_of_model(listed, 3, "H200");
        let expected = "found 2, expected at least 3; other models: NVIDIA H100 80GB HBM3";
        assert_eq!((passed, seen.as_str()), (false, expected));
        assert!(gpus_of_model(listed, 2, "h200").0);
        assert_eq!(gpus_of_model(listed, 3, ""), (true, "found 3, expected at least 3".to_owned()));
        assert!(!gpus_of_model(listed, 1, "H20").0, "a part of a word is another model");
    }

    #[tokio::test]
    async fn a_port_answers_or_does_not() {
        let server = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = server.local_addr().unwrap().port();
        let serve = async {
            for answer in ["HTTP/1.1 200 OK\r\n\r\nok", "HTTP/1.1 502 Bad Gateway\r\n\r\n"] {
                let (mut stream, _) = server.accept().await.unwrap();
                let mut request = [0; 256];
                assert!(stream.read(&mut request).await.unwrap() > 0);
                stream.write_all(answer.as_bytes()).await.unwrap();
            }
        };
        let ask = async {
            assert!(http_get(port, "/gpuaas/telemetry/health").await.0);
            let (passed, seen) = http_get(port, "/").await;
            assert!(!passed && seen.contains("502"), "{seen}");
        };
        tokio::join!(serve, ask);
        drop(server);
        assert!(!http_get(port, "/").await.0);
        assert!(!http_answers(CommandRunner::Native, port, "/a b").await.0);
    }

    #[tokio::test]
    async fn nobody_is_asked_below_another_root() {
        let dir = tempfile::tempdir().unwrap();
        let hosts = [
            Host::Root(HostRoot::new(dir.path())),
            Host::Fixed(std::sync::Arc::new(serde_json::json!({}))),
        ];
        for check in [
            HostCheck::OvsBridge { bridge: "ovsbr0".to_owned() },
            HostCheck::NvidiaGpus { count: 0, model: String::new() },
            HostCheck::Masquerades { subnet: "10.0.0.0/8".to_owned() },
            HostCheck::HttpAnswers { port: 80, path: "/".to_owned() },
        ] {
            for host in &hosts {
                assert_eq!(
                    evaluate(host, &HostFacts::default(), &Answers::default(), &check).await.passed,
                    Some(false)
                );
            }
        }
    }

    #[tokio::test]
    async fn an_emulator_answers_for_a_host() {
        let dir = tempfile::tempdir().unwrap();
        let emulator = dir.path().join("emulator");
        let script = "#!/bin/sh\n[ \"$1 $2\" = 'ask systemctl' ] && echo active && exit\n\
                      [ \"$2\" = curl ] && exit 22\necho no >&2; exit 1\n";
        std::fs::write(&emulator, script).unwrap();
        let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
        std::fs::set_permissions(&emulator, mode).unwrap();
        let host = Host::at(HostRoot::new(dir.path()), Some(emulator.clone()));
        let unit = HostCheck::UnitActive { unit: "x.service".to_owned() };
        assert_eq!(
            evaluate(&host, &HostFacts::default(), &Answers::default(), &unit).await.passed,
            Some(true)
        );
        let answers = HostCheck::HttpAnswers { port: 80, path: "/".to_owned() };
        assert_eq!(
            evaluate(&host, &HostFacts::default(), &Answers::default(), &answers).await.passed,
            Some(false)
        );
        let bridge = HostCheck::OvsBridge { bridge: "ovsbr0".to_owned() };
        assert_eq!(
            evaluate(&host, &HostFacts::default(), &Answers::default(), &bridge).await.seen,
            "ovs-ofctl failed with exit status: 1: no"
        );
        assert!(matches!(Host::at(HostRoot::new("/"), Some(emulator)), Host::Root(_)));
    }
}
