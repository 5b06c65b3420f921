//! Where a fault of telemetry is, found by looking at the host from here, from the outside in:
//! does it take connections, who answers, what does the edge say, is Netdata behind it.

use std::time::Duration;

use axum::http::header::LOCATION;
use axum::http::{HeaderMap, StatusCode};
use gpuaas_types::telemetry::{TelemetryProbe, TelemetryReport, TelemetryVerdict as Verdict};
use serde_json::Value;

use super::fetch::{self, FetchError, HostResponse, is_netdata};
use super::paths;
use super::target::{HEALTH, Subject, Target};
use crate::ctx::TelemetryLimits;

const DASHBOARD: &str = "/gpuaas/telemetry/netdata/";
const INFO: &str = "/api/v1/info";
/// Largest answer that a look reads, in bytes.
const MOST_BYTES: usize = 1 << 20;

/// Something is wrong: where, and what was seen.
struct Found(Verdict, String);

struct Look<'a> {
    target: &'a Target,
    limits: TelemetryLimits,
    probes: Vec<TelemetryProbe>,
}

/// Looks at the host.
pub(super) async fn diagnose(subject: &Subject, limits: TelemetryLimits) -> TelemetryReport {
    let mut probes = subject.known.clone();
    let found = match &subject.target {
        Some(target) => {
            let mut look = Look { target, limits, probes: Vec::new() };
            let found = look.all().await.err();
            probes.append(&mut look.probes);
            found
        }
        None if subject.simulated => Some(Found(
            Verdict::TelemetrySimulated,
            "the hosts of this control plane are simulated; this one has no address".to_owned(),
        )),
        None => Some(Found(
            Verdict::TelemetryNoAddress,
            "neither MAAS nor the agent reports an address of the host".to_owned(),
        )),
    };
    let (verdict, text) = match found {
        None => (Verdict::Ok, "the edge and the Netdata behind it work".to_owned()),
        Some(Found(
            verdict @ (Verdict::TelemetrySimulated | Verdict::TelemetryNoAddress),
            text,
        )) => (verdict, text),
        Some(Found(_, text)) if !subject.expected => {
            let text = format!("no bundle of the node enables telemetry, and {text}");
            (Verdict::TelemetryNotExpected, text)
        }
        Some(Found(verdict, text)) => (verdict, text),
    };
    let from = look_from(&probes);
    TelemetryReport {
        node_id: subject.node.id,
        hostname: subject.node.hostname.clone(),
        expected: subject.expected,
        address: subject.target.as_ref().map(|target| target.at.to_string()),
        address_from: subject.target.as_ref().map(|target| target.from.clone()),
        probes,
        gate: subject.gate.clone(),
        verdict,
        text,
        next_action: next_action(verdict, subject, from.as_deref()),
    }
}

/// What the agent says, as the end of a sentence.
pub(super) fn evidence(report: &TelemetryReport) -> String {
    match &report.gate {
        None => "the agent has never reported on telemetry".to_owned(),
        Some(gate) if gate.open => {
            format!("the agent reported {:.0} s ago that telemetry is open", gate.age_seconds)
        }
        Some(gate) => {
            let red: Vec<String> = gate
                .failing
                .iter()
                .map(|check| format!("{} ({})", check.name, check.seen))
                .collect();
            let (age, red) = (gate.age_seconds, red.join(", "));
            format!("the agent reported {age:.0} s ago that telemetry is closed: {red}")
        }
    }
}

impl Look<'_> {
    async fn all(&mut self) -> Result<(), Found> {
        self.connect().await?;
        self.health().await?;
        self.dashboard().await?;
        self.netdata().await
    }

    fn note(&mut self, name: &str, passed: bool, expected: &str, seen: impl Into<String>) {
        let (name, expected) = (name.to_owned(), expected.to_owned());
        self.probes.push(TelemetryProbe { name, passed, expected, seen: seen.into() });
    }

    async fn get(&self, path: &str) -> Result<HostResponse, FetchError> {
        let limit: Duration = self.limits.look;
        fetch::get(self.target.at, path, None, self.limits, limit, MOST_BYTES).await
    }

    async fn connect(&mut self) -> Result<(), Found> {
        let at = self.target.at;
        let expected = "a connection";
        match fetch::connect(at, self.limits.connect).await {
            Ok(stream) => {
                let from = stream.local_addr().map(|a| a.ip().to_string()).unwrap_or_default();
                self.note("connect", true, expected, format!("one, from {from}"));
                Ok(())
            }
            Err(fault) => {
                self.note("connect", false, expected, fault.to_string());
                Err(self.no_answer(&fault))
            }
        }
    }

    fn no_answer(&self, fault: &FetchError) -> Found {
        let at = self.target.at;
        match fault {
            FetchError::Unreachable(why) => {
                Found(Verdict::NodeUnreachable, format!("{} is unreachable: {why}", at.ip()))
            }
            FetchError::Refused => Found(
                Verdict::TelemetryEdgeDown,
                format!("{} answers, but nothing listens on port {}", at.ip(), at.port()),
            ),
            FetchError::Silent(_) | FetchError::Garbled(_) | FetchError::TooLarge { .. } => Found(
                Verdict::TelemetryEdgeSilent,
                format!("{at} accepts connections, but: {fault}"),
            ),
        }
    }

    /// What an answer that is not the wanted one tells of the edge.
    fn judged(&self, path: &str, response: &HostResponse) -> Option<Found> {
        let at = self.target.at;
        let seen = response.summary();
        match response.status {
            StatusCode::FORBIDDEN => {
                let from = response.from.map_or_else(String::new, |ip| format!(" ({ip})"));
                let text = format!("{at} refuses requests of the control plane{from}: {seen}");
                Some(Found(Verdict::TelemetryEdgeRefuses, text))
            }
            StatusCode::BAD_GATEWAY
            | StatusCode::SERVICE_UNAVAILABLE
            | StatusCode::GATEWAY_TIMEOUT => {
                let text = format!("the edge on {at} answers, but Netdata behind it does not");
                Some(Found(Verdict::TelemetryBackendDown, format!("{text}: {path}: {seen}")))
            }
            _ => None,
        }
    }

    async fn health(&mut self) -> Result<(), Found> {
        let expected = "200, Netdata's version through nginx";
        let response = match self.get(HEALTH).await {
            Ok(response) => response,
            Err(fault) => {
                self.note("health", false, expected, fault.to_string());
                return Err(self.no_answer(&fault));
            }
        };
        let seen = response.summary();
        let good = response.status == StatusCode::OK
            && version(&response).is_some()
            && !is_netdata(&response.headers);
        self.note("health", good, expected, &seen);
        if good {
            return Ok(());
        }
        if let Some(found) =
            self.judged(HEALTH, &response).filter(|_| !is_netdata(&response.headers))
        {
            return Err(found);
        }
        Err(self.listener(&seen).await)
    }

    /// Who it is, when it is not the edge.
    async fn listener(&mut self, health: &str) -> Found {
        let at = self.target.at;
        let (who, seen) = match self.get(INFO).await {
            Ok(response) if version(&response).is_some() => {
                let version = version(&response).unwrap_or_default();
                ("Netdata itself", format!("Netdata {version}, with no edge in front of it"))
            }
            Ok(response) => ("something else", format!("{INFO}: {}", response.summary())),
            Err(fault) => ("something else", format!("{INFO}: {fault}")),
        };
        self.note("listener", false, "nginx with the edge's site", seen);
        let text = format!("{who} listens on {at} instead of the edge ({HEALTH}: {health})");
        Found(Verdict::WrongListener, text)
    }

    async fn dashboard(&mut self) -> Result<(), Found> {
        let expected = "a redirect to a page that answers";
        let first = self.get(DASHBOARD).await;
        let place = first.as_ref().ok().and_then(|response| self.redirect(&response.headers));
        let (path, last) = match place {
            Some(place) => (place.clone(), self.get(&place).await),
            None => (DASHBOARD.to_owned(), first),
        };
        let found = match last {
            Ok(response) if response.status == StatusCode::OK && path != DASHBOARD => {
                self.note("dashboard", true, expected, format!("{path}: {}", response.summary()));
                return Ok(());
            }
            Ok(response) => {
                self.note("dashboard", false, expected, format!("{path}: {}", response.summary()));
                let text =
                    format!("the edge does not serve a dashboard: {path}: {}", response.summary());
                self.judged(&path, &response)
                    .unwrap_or(Found(Verdict::TelemetryEdgeIncomplete, text))
            }
            Err(fault) => {
                self.note("dashboard", false, expected, format!("{path}: {fault}"));
                self.no_answer(&fault)
            }
        };
        Err(found)
    }

    /// Where the edge leads to, below itself.
    fn redirect(&self, headers: &HeaderMap) -> Option<String> {
        let location = headers.get(LOCATION)?.to_str().ok()?;
        let place = paths::below("", &DASHBOARD[1..], location, self.target.at).ok()?;
        place.split('#').next().map(str::to_owned)
    }

    async fn netdata(&mut self) -> Result<(), Found> {
        let expected = "Netdata's version";
        let found = match self.get(INFO).await {
            Ok(response) => match version(&response) {
                Some(version) => {
                    self.note("netdata", true, expected, version);
                    return Ok(());
                }
                None => {
                    let seen = response.summary();
                    self.note("netdata", false, expected, &seen);
                    let text = format!("the edge does not serve {INFO}: {seen}");
                    self.judged(INFO, &response)
                        .unwrap_or(Found(Verdict::TelemetryEdgeIncomplete, text))
                }
            },
            Err(fault) => {
                self.note("netdata", false, expected, fault.to_string());
                self.no_answer(&fault)
            }
        };
        Err(found)
    }
}

/// The version that Netdata names in its `info`.
fn version(response: &HostResponse) -> Option<String> {
    if response.status != StatusCode::OK {
        return None;
    }
    let info: Value = serde_json::from_slice(&response.body).ok()?;
    let version = info.get("version")?.as_str()?;
    Some(version.chars().filter(|c| !gpuaas_types::text::is_invisible(*c)).take(60).collect())
}

/// The address of ours that a host sees.
fn look_from(probes: &[TelemetryProbe]) -> Option<String> {
    let connect = probes.iter().find(|probe| probe.name == "connect" && probe.passed)?;
    connect.seen.strip_prefix("one, from ").map(str::to_owned)
}

fn next_action(verdict: Verdict, subject: &Subject, from: Option<&str>) -> String {
    let Subject { node, target, user, gate, .. } = subject;
    let name = &node.hostname;
    let host = target.as_ref().map_or_else(|| name.clone(), |target| target.at.ip().to_string());
    let converge = |allow: &str| {
        format!("`gpuaas node converge-telemetry --host {host} --user {user}{allow}`")
    };
    let sees_it = subject.agent_lives && gate.as_ref().is_some_and(|gate| gate.open);
    match verdict {
        Verdict::Ok => "nothing to do".to_owned(),
        Verdict::TelemetryNoAddress => format!(
            "assign an address in MAAS to the machine's boot interface; run `gpuaas explain \
             {name}` to see the progress of the node"
        ),
        Verdict::TelemetrySimulated => "nothing to do: a simulated host has no edge".to_owned(),
        Verdict::TelemetryNotExpected => format!(
            "name a site bundle with telemetry in the node's profile, such as {} with \
             enable_netdata=1; or set telemetry up on this host: {}",
            gpuaas_types::built_in_bundle!("h200-ib"),
            converge(" --allow NETWORK")
        ),
        Verdict::NodeUnreachable if subject.agent_lives => format!(
            "check the route and the firewall between the control plane and {host}: the agent of \
             {name} is up"
        ),
        Verdict::NodeUnreachable => {
            format!(
                "run `gpuaas explain {name}`, then check the host's console: the agent is silent \
                 too"
            )
        }
        Verdict::TelemetryEdgeDown if sees_it => format!(
            "check for a firewall that blocks the port, or another host at {host}: the agent \
             reaches the edge on its own host"
        ),
        Verdict::TelemetryEdgeRefuses => format!(
            "add {}/32 to the profile's input telemetry_allow for future hosts; for this host, run \
             {} with that network included",
            from.unwrap_or("ADDRESS"),
            converge(" --allow NETWORKS")
        ),
        Verdict::TelemetryEdgeDown
        | Verdict::TelemetryEdgeSilent
        | Verdict::TelemetryBackendDown
        | Verdict::WrongListener
        | Verdict::TelemetryEdgeIncomplete => converge(""),
    }
}
