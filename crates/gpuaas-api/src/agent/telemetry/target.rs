//! Where a host's edge is, and what is known of it without asking.
//!
//! The address is MAAS' word: first that of the interface that the machine boots from, then that
//! of any other but the fabric's. Only where MAAS knows none is the agent's word taken, and then
//! only for the link with the default route: a host's other addresses (of bridges, of containers)
//! mean another machine elsewhere, mostly this one. A host that is a simulation has the addresses
//! of a made-up network, in which somebody may really live, so of a simulated host only loopback
//! counts, and of a real one never.

use std::net::{Ipv4Addr, SocketAddrV4};

use gpuaas_core::record::{NodeRecord, ReportKind};
use gpuaas_engine::bundles;
use gpuaas_store::{ProfileRevision, StoredGate};
use gpuaas_types::agent::{Gate, HostCheck};
use gpuaas_types::api::SiteResource;
use gpuaas_types::machine::{MachineView, Nic, Observation, maas_status};
use gpuaas_types::spec::ProfileSpec;
use gpuaas_types::telemetry::{TelemetryGate, TelemetryProbe};
use serde::Deserialize;
use serde_json::Value;

use crate::ctx::{Ctx, NodeAccess};
use crate::http::problem::ApiResult;
use crate::node;

/// Where the edge listens when no bundle says otherwise.
const PORT: u16 = 19999;
/// The edge's own health.
pub(super) const HEALTH: &str = "/gpuaas/telemetry/health";
/// Who logs in to hosts whose profile names nobody.
const USER: &str = "ubuntu";

/// Where to connect to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Target {
    pub(super) at: SocketAddrV4,
    /// Who says so.
    pub(super) from: String,
}

/// A node and its telemetry, as far as the control plane knows by itself.
#[derive(Debug)]
pub(super) struct Subject {
    pub(super) node: NodeRecord,
    /// Whether a bundle asks for telemetry.
    pub(super) expected: bool,
    /// Whether the hosts of this control plane are simulated.
    pub(super) simulated: bool,
    pub(super) target: Option<Target>,
    /// Who logs in there.
    pub(super) user: String,
    pub(super) gate: Option<TelemetryGate>,
    /// What MAAS and the agent say of the host itself.
    pub(super) known: Vec<TelemetryProbe>,
    /// Whether the agent was response lately.
    pub(super) agent_lives: bool,
}

pub(super) async fn subject(ctx: &Ctx, node: NodeRecord) -> ApiResult<Subject> {
    let now = ctx.now();
    let revision = revision(ctx, &node).await?;
    let SiteResource { spec: site, status, .. } = ctx.store.site(node.site_id).await?;
    let checks = async {
        let pins = bundles::pins(&ctx.store, &ctx.bundles, &revision).await?;
        let inputs =
            bundles::inputs(&ctx.bundles, &pins, &site, Some(&node.hostname), &revision.spec)?;
        ctx.bundles.gate_checks(&pins, &inputs, Gate::Telemetry)
    };
    let checks = checks.await.unwrap_or_else(|error| {
        let (node, site) = (&node.hostname, &site.name);
        tracing::warn!(%error, node, site, "cannot tell from the bundles whether the node has telemetry");
        Vec::new()
    });
    let observation = ctx.store.observation(node.id).await?;
    let fabric = ctx.store.roce_assignments_of_host(node.site_id, &node.hostname).await?;
    let fabric: Vec<String> = fabric.into_iter().map(|one| one.spec.ip_address).collect();
    let simulated = ctx.settings.simulated_hosts
        || status.is_simulated()
        || matches!(ctx.nodes, NodeAccess::StandIns);
    let machine = observation.as_ref().and_then(|seen| seen.machine.as_ref());
    let mut address = machine.and_then(|machine| of_maas(machine, &fabric, simulated));
    let said = ctx.store.gates([node.id]).await?.remove(&node.id);
    let said = said.and_then(|mut gates| gates.remove(&Gate::Telemetry));
    if address.is_none() {
        let runs = [node.run_id, said.as_ref().map(|said| said.run_id)];
        for run_id in runs.into_iter().flatten() {
            let reports = ctx.store.reports(run_id).await?;
            let facts = reports.iter().rev().filter_map(|report| match &report.kind {
                ReportKind::TaskFinished { result, .. } => Some(&result.facts),
                _ => None,
            });
            address = address.or_else(|| facts.into_iter().find_map(|f| of_agent(f, simulated)));
        }
    }
    let port = port(&checks);
    let target = address.map(|(ip, from)| Target { at: SocketAddrV4::new(ip, port), from });
    let response = node.heartbeat_at.map(|at| now.seconds_since(at));
    let patience = node::facts::allowed_silence(ctx, revision.spec.offline_after_seconds);
    let agent = TelemetryProbe {
        name: "agent".to_owned(),
        passed: response.is_some_and(|seconds| seconds <= patience),
        expected: format!("a heartbeat in the last {patience:.0} s"),
        seen: response.map_or_else(|| "never".to_owned(), |s| format!("{s:.0} s ago")),
    };
    let gate = said.map(|StoredGate { report, at, .. }| TelemetryGate {
        open: report.passed,
        said_at: at,
        age_seconds: now.seconds_since(at).max(0.0),
        failing: report.checks.into_iter().filter(|check| !check.passed).collect(),
    });
    Ok(Subject {
        expected: !checks.is_empty(),
        simulated,
        target,
        user: user(&revision.spec),
        gate,
        agent_lives: agent.passed,
        known: vec![maas(observation.as_ref(), now), agent],
        node,
    })
}

/// The profile as the node's latest run pinned it.
async fn revision(ctx: &Ctx, node: &NodeRecord) -> ApiResult<ProfileRevision> {
    let (profile_id, revision) = match node.run_id {
        Some(run_id) => {
            let run = ctx.store.run(run_id).await?;
            (run.profile_id, run.profile_revision)
        }
        None => (node.profile_id, ctx.store.profile(node.profile_id).await?.revision),
    };
    Ok(ctx.store.profile_revision(profile_id, revision).await?)
}

fn user(profile: &ProfileSpec) -> String {
    let user = &profile.deploy_user;
    if user.is_empty() { USER.to_owned() } else { user.clone() }
}

/// The port of the check that asks the edge for its health.
fn port(checks: &[HostCheck]) -> u16 {
    let of_edge = checks.iter().find_map(|check| match check {
        HostCheck::HttpAnswers { port, path } if path == HEALTH => Some(*port),
        _ => None,
    });
    of_edge.unwrap_or(PORT)
}

fn maas(seen: Option<&Observation>, now: gpuaas_types::Timestamp) -> TelemetryProbe {
    let (passed, said) = match seen {
        None => (false, "the machine has never been read".to_owned()),
        Some(seen) if seen.vanished => (false, "the machine no longer exists in MAAS".to_owned()),
        Some(seen) => {
            let label = maas_status::label(seen.status);
            let age = now.seconds_since(seen.status_at).max(0.0);
            let power = seen.machine.as_ref().map_or("unknown", |one| one.power_state.as_str());
            let passed = seen.status == maas_status::DEPLOYED;
            (passed, format!("{label}, power {power}, read {age:.0} s ago"))
        }
    };
    TelemetryProbe { name: "maas".to_owned(), passed, expected: "Deployed".to_owned(), seen: said }
}

fn of_maas(machine: &MachineView, fabric: &[String], sim: bool) -> Option<(Ipv4Addr, String)> {
    let of = |nic: &Nic| {
        let texts = nic.links.iter().filter_map(|link| link.ip_address.as_ref());
        let own = texts.filter(|text| !fabric.contains(text));
        let found = own.filter_map(|text| text.parse().ok()).find(|ip| usable(*ip, sim));
        found.map(|ip| (ip, format!("MAAS, interface {}", nic.name)))
    };
    machine.boot_nic().and_then(of).or_else(|| machine.nics.iter().find_map(of))
}

#[derive(Deserialize)]
struct Facts {
    #[serde(default)]
    addresses: Vec<LinkAddress>,
    #[serde(default)]
    routes: Vec<Route>,
}

#[derive(Deserialize)]
struct LinkAddress {
    interface: String,
    address: Ipv4Addr,
}

#[derive(Deserialize)]
struct Route {
    prefix_length: u8,
    interface: String,
}

fn of_agent(facts: &Value, sim: bool) -> Option<(Ipv4Addr, String)> {
    let facts = Facts::deserialize(facts).ok()?;
    let link = &facts.routes.iter().find(|route| route.prefix_length == 0)?.interface;
    let on_it = facts.addresses.iter().filter(|one| one.interface == *link);
    let ip = on_it.map(|one| one.address).find(|ip| usable(*ip, sim))?;
    let link: String =
        link.chars().filter(|c| !gpuaas_types::text::is_invisible(*c)).take(32).collect();
    Some((ip, format!("the agent, interface {link}")))
}

/// Whether a host can have this address, and be meant by it from here.
fn usable(ip: Ipv4Addr, simulated: bool) -> bool {
    let nobodys = ip.octets()[0] == 0
        || ip.octets()[0] >= 240
        || ip.is_multicast()
        || ip.is_link_local()
        || ip.is_broadcast();
    ip.is_loopback() == simulated && !nobodys
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn machine(nics: &[(i64, &str, &[&str])]) -> MachineView {
        let link = |address: &&str| {
            json!({ "id": 1, "mode": "static", "subnet_id": 1, "subnet_cidr": null,
                "ip_address": address })
        };
        let nic = |(id, name, addresses): &(i64, &str, &[&str])| {
            json!({ "id": id, "name": name, "mac_address": "52:54:00:00:00:01",
                "kind": "physical", "vid": null, "vlan_id": null, "fabric": null,
                "dhcp_on": true, "link_connected": true,
                "links": addresses.iter().map(link).collect::<Vec<_>>() })
        };
        serde_json::from_value(json!({
            "system_id": "abc123", "hostname": "j22u11", "status": 6, "owner": null,
            "power_state": "on", "power_type": "ipmi", "architecture": "amd64/generic",
            "osystem": "", "distro_series": "", "locked": false, "netboot": true,
            "error_description": "", "status_message": null, "enable_hw_sync": false,
            "sync_interval_seconds": null, "boot_interface_id": 2, "boot_disk_id": null,
            "disks": [], "complex_storage": 0, "tags": [], "hardware": "Dell XE9680",
            "nics": nics.iter().map(nic).collect::<Vec<_>>(), "has_installation_result": true,
        }))
        .unwrap()
    }

    #[test]
    fn the_boot_interface_comes_first_and_the_fabric_never() {
        let fabric = ["10.101.0.7".to_owned()];
        let of = |nics: &[(i64, &str, &[&str])]| {
            of_maas(&machine(nics), &fabric, false).map(|(ip, from)| format!("{ip} {from}"))
        };
        let boot = "10.1.0.5 MAAS, interface eno1".to_owned();
        assert_eq!(of(&[(1, "a", &["10.9.0.1"]), (2, "eno1", &["10.1.0.5"])]), Some(boot));
        let bond = "10.1.0.6 MAAS, interface bond0".to_owned();
        assert_eq!(of(&[(2, "eno1", &[]), (3, "bond0", &["10.1.0.6"])]), Some(bond));
        assert_eq!(of(&[(2, "eno1", &["127.0.0.1"]), (3, "ens1", &["10.101.0.7"])]), None);
        assert_eq!(of(&[(2, "eno1", &["fe80::1", "169.254.1.1", "0.0.0.0"])]), None);
    }

    #[test]
    fn the_agents_word_counts_for_the_way_out_only() {
        let facts = |route: &str, address: &str| {
            json!({ "addresses": [{ "interface": "docker0", "address": "172.17.0.1",
                    "prefix_length": 16 },
                { "interface": "eno1", "address": address, "prefix_length": 24 }],
                "routes": [{ "destination": "10.1.0.0", "prefix_length": 24, "gateway": null,
                    "interface": "docker0" },
                { "destination": "0.0.0.0", "prefix_length": 0, "gateway": "10.1.0.1",
                    "interface": route }] })
        };
        let of = |route: &str, address: &str, sim: bool| {
            of_agent(&facts(route, address), sim).map(|(ip, _)| ip.to_string())
        };
        assert_eq!(of("eno1", "10.1.0.5", false).as_deref(), Some("10.1.0.5"));
        assert_eq!(of("eno1", "127.0.0.1", false), None);
        assert_eq!(of("eno1", "224.0.0.1", false), None);
        assert_eq!(of("ens9", "10.1.0.5", false), None);
        assert_eq!(of("eno1", "10.1.0.5", true), None, "a simulated host lives on loopback");
        assert_eq!(of("eno1", "127.0.0.1", true).as_deref(), Some("127.0.0.1"));
        assert_eq!(of_agent(&Value::Null, false), None);
        assert_eq!(of_agent(&json!({ "addresses": 3 }), false), None);
    }
}
