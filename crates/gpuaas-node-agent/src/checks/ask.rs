//! Effects that are in no file: what a daemon of the host, or its kernel, answers when it is asked.
//!
//! Every question has a time limit, and only the host that this process runs on is asked: below
//! another root there is nobody to answer, unless a program plays that host.

use std::time::Duration;

use gpuaas_types::agent::{Finding, HostCheck, is_unit};
use serde_json::Value;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::time::timeout;

use super::Seen;
use crate::tasks::Host;
use crate::tools::Tools;

/// Seconds that a question may take.
const ANSWER_SECONDS: u64 = 5;
/// nvidia-smi wakes every GPU first.
const NVIDIA_SECONDS: u64 = 60;
/// Bytes of an answer that are looked at.
const MAX_ANSWER_BYTES: usize = 4 << 20;

/// Asks for what [`super::look`] cannot see.
pub(crate) async fn ask(host: &Host, check: &HostCheck) -> Finding {
    let name = check.name();
    if let HostCheck::UnitActive { unit } = check {
        let found = unit_state(host, unit).await;
        return Finding { passed: Some(found.passed == Some(true)), ..found };
    }
    let (passed, seen) = match (check, Tools::of(host).map(Voice)) {
        (_, Err(nobody)) => (false, nobody.to_string()),
        (HostCheck::HttpAnswers { port, path }, Ok(voice)) => voice.http(*port, path).await,
        (HostCheck::OvsBridge { bridge }, Ok(voice)) => voice.ovs_bridge(bridge).await,
        (HostCheck::Masquerades { subnet }, Ok(voice)) => voice.masquerades(subnet).await,
        (HostCheck::NvidiaGpus { count }, Ok(voice)) => voice.nvidia(*count).await,
        _ => (false, "not looked at".to_owned()),
    };
    Finding { name, passed: Some(passed), seen: seen.chars().take(500).collect() }
}

/// Questions to whoever answers for a host.
#[derive(Clone, Copy)]
struct Voice<'a>(Tools<'a>);

impl Voice<'_> {
    async fn said(self, program: &str, arguments: &[&str], seconds: u64) -> Result<String, String> {
        match self.0.ask(program, arguments, seconds).await {
            Ok(said) => Ok(said.out),
            Err(error) => Err(error.to_string()),
        }
    }

    /// A bridge that is in the database and whose datapath answers OpenFlow.
    async fn ovs_bridge(self, bridge: &str) -> Seen {
        let show = ["--timeout=5", "show", bridge];
        if !plain(bridge) {
            return (false, "not a bridge's name".to_owned());
        }
        match self.said("ovs-ofctl", &show, ANSWER_SECONDS + 1).await {
            Ok(text) if text.contains("OFPT_FEATURES_REPLY") => {
                (true, "its datapath answers".to_owned())
            }
            Ok(_) => (false, "its datapath gives no features".to_owned()),
            Err(reason) => (false, reason),
        }
    }

    async fn masquerades(self, subnet: &str) -> Seen {
        match self.said("nft", &["-j", "list", "ruleset"], ANSWER_SECONDS).await {
            Ok(text) => match serde_json::from_str(&text) {
                Ok(rules) if has_masquerade(&rules, subnet) => {
                    (true, "nftables has the rule".to_owned())
                }
                Ok(_) => (false, format!("no rule masquerades {subnet}")),
                Err(error) => (false, format!("nft: {error}")),
            },
            Err(reason) => (false, reason),
        }
    }

    async fn nvidia(self, count: u32) -> Seen {
        match self.said("nvidia-smi", &["-L"], NVIDIA_SECONDS).await {
            Ok(text) => {
                super::enough(text.lines().filter(|line| line.starts_with("GPU ")).count(), count)
            }
            Err(reason) => (false, reason),
        }
    }

    /// GET on the host. A player has no port of its own, so it is asked as curl would be.
    async fn http(self, port: u16, path: &str) -> Seen {
        if !path.starts_with('/') || path.contains(|c: char| c.is_whitespace() || c.is_control()) {
            return (false, format!("{path:?} is not a path"));
        }
        if matches!(self.0, Tools::Own) {
            return http(port, path).await;
        }
        let url = format!("http://127.0.0.1:{port}{path}");
        match self.said("curl", &["-fsS", "-o", "/dev/null", &url], ANSWER_SECONDS).await {
            Ok(_) => (true, "it answers".to_owned()),
            Err(reason) => (false, reason),
        }
    }
}

fn plain(name: &str) -> bool {
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

/// GET on this host; the status line is all that is wanted.
async fn http(port: u16, path: &str) -> Seen {
    let get = async {
        let mut stream = tokio::net::TcpStream::connect(("127.0.0.1", port)).await?;
        let request =
            format!("GET {path} HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nConnection: close\r\n\r\n");
        stream.write_all(request.as_bytes()).await?;
        let mut answer = Vec::new();
        stream.take(MAX_ANSWER_BYTES as u64).read_to_end(&mut answer).await?;
        std::io::Result::Ok(String::from_utf8_lossy(&answer).into_owned())
    };
    match timeout(Duration::from_secs(ANSWER_SECONDS), get).await {
        Ok(Ok(answer)) => {
            let line = answer.lines().next().unwrap_or_default();
            let status = line.split(' ').nth(1).unwrap_or_default();
            (status.starts_with('2') && status.len() == 3, format!("it answers {line:?}"))
        }
        Ok(Err(error)) => (false, format!("port {port}: {error}")),
        Err(_) => (false, format!("no answer in {ANSWER_SECONDS} s")),
    }
}

/// State of a systemd unit; no verdict where nobody can tell.
pub(crate) async fn unit_state(host: &Host, unit: &str) -> Finding {
    let finding = |passed, seen: &str| Finding {
        name: format!("unit {unit}"),
        passed,
        seen: seen.chars().take(200).collect(),
    };
    if !is_unit(unit) {
        return finding(None, "not a unit name");
    }
    let voice = match (Tools::with_systemd(host), host) {
        (Ok(tools), _) => Voice(tools),
        (Err(_), Host::Root(root)) => {
            return match root.unit_has_control_group(unit) {
                Some(true) => finding(Some(true), "it has a control group"),
                Some(false) => finding(Some(false), "it has no control group"),
                None => finding(None, "the host has no systemd"),
            };
        }
        (Err(_), _) => return finding(None, "the host has no systemd"),
    };
    let show = ["show", "--property=ActiveState", "--value", "--", unit];
    match voice.said("systemctl", &show, ANSWER_SECONDS).await {
        Ok(state) => finding(Some(state.trim() == "active"), state.trim()),
        Err(reason) => finding(None, &reason),
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
            assert!(http(port, "/gpuaas/telemetry/health").await.0);
            let (passed, seen) = http(port, "/").await;
            assert!(!passed && seen.contains("502"), "{seen}");
        };
        tokio::join!(serve, ask);
        drop(server);
        assert!(!http(port, "/").await.0);
        assert!(!Voice(Tools::Own).http(port, "/a b").await.0);
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
            HostCheck::NvidiaGpus { count: 0 },
            HostCheck::Masquerades { subnet: "10.0.0.0/8".to_owned() },
            HostCheck::HttpAnswers { port: 80, path: "/".to_owned() },
        ] {
            for host in &hosts {
                assert_eq!(ask(host, &check).await.passed, Some(false));
            }
        }
    }

    #[tokio::test]
    async fn a_program_may_play_a_host() {
        let dir = tempfile::tempdir().unwrap();
        let player = dir.path().join("player");
        let script = "#!/bin/sh\n[ \"$1 $2\" = 'ask systemctl' ] && echo active && exit\n\
                      [ \"$2\" = curl ] && exit 22\necho no >&2; exit 1\n";
        std::fs::write(&player, script).unwrap();
        let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
        std::fs::set_permissions(&player, mode).unwrap();
        let host = Host::at(HostRoot::new(dir.path()), Some(player.clone()));
        let unit = HostCheck::UnitActive { unit: "x.service".to_owned() };
        assert_eq!(ask(&host, &unit).await.passed, Some(true));
        let answers = HostCheck::HttpAnswers { port: 80, path: "/".to_owned() };
        assert_eq!(ask(&host, &answers).await.passed, Some(false));
        let bridge = HostCheck::OvsBridge { bridge: "ovsbr0".to_owned() };
        assert_eq!(ask(&host, &bridge).await.seen, "ovs-ofctl ended with exit status: 1: no");
        assert!(matches!(Host::at(HostRoot::new("/"), Some(player)), Host::Root(_)));
    }
}
