//! Hosts that are futures: the agent's simulated host, with one HTTP client for all of them.

use std::future::Future;
use std::net::{IpAddr, Ipv4Addr};
use std::path::Path;
use std::sync::Arc;

use gpuaas_artifact::{Artifact, BootstrapInputs, ParsedUserData};
use gpuaas_client::failure::Failure;
use gpuaas_node_agent::agent::AgentConfig;
use gpuaas_node_agent::env::AgentEnv;
use gpuaas_node_agent::host::Host;
use gpuaas_node_agent::identity::IdentityStore;
use gpuaas_node_agent::protocol::{ControlPlane, SetupError, http_client};
use gpuaas_node_agent::simulated_host::{self, SimulatedHost};
use gpuaas_node_agent::{agent, clock::AgentClock};
use gpuaas_types::agent::{Gate, GateReport};
use gpuaas_types::codes::CommandCode;
use maas_sim::SimRng;
use serde_json::json;
use tokio_util::sync::CancellationToken;

use super::options::{BootTimes, HostsOptions};
use crate::clock::SharedClock;

/// Longest pause of an agent between attempts, in seconds, as the real agent's.
const LONGEST_PAUSE_SECONDS: f64 = 60.0;

/// The bundle that makes a host one for slices.
const SLICE_BUNDLE: &str = "h200-slice-vm";

/// What all hosts of a fleet share.
pub(super) struct Fleet {
    http: reqwest::Client,
    clock: SharedClock,
    seed: u64,
    times: BootTimes,
}

impl Fleet {
    pub(super) fn new(options: &HostsOptions) -> Result<Self, Failure> {
        let http = http_client(None, false)
            .map_err(|error| Failure::local(CommandCode::HttpUnavailable, error.to_string()))?;
        let HostsOptions { clock, seed, times, .. } = options.clone();
        Ok(Self { http, clock, seed, times })
    }

    /// The life of one host until `stop`; without `first` only the agent's.
    pub(super) fn host(
        &self,
        hostname: &str,
        data: &ParsedUserData,
        root: &Path,
        first: bool,
        stop: CancellationToken,
    ) -> impl Future<Output = ()> + Send + use<> {
        let control_plane = self.control_plane(hostname, &data.inputs);
        let stand_in = self.stand_in(hostname, &data.inputs, root);
        let clock: Arc<dyn AgentClock> = Arc::new(self.clock.clone());
        async move {
            let control_plane = match control_plane {
                Ok(control_plane) => control_plane,
                Err(error) => {
                    let host = stand_in.agent.hostname;
                    return tracing::warn!(%host, %error, "cannot set up the simulated host's HTTP client");
                }
            };
            if first {
                Box::pin(simulated_host::run(stand_in, control_plane, clock, stop)).await;
            } else if let Err(error) =
                Box::pin(agent::run(stand_in.agent, control_plane, clock, stop)).await
            {
                tracing::warn!(%error, "a simulated agent ended");
            }
        }
    }

    fn control_plane(
        &self,
        hostname: &str,
        inputs: &BootstrapInputs,
    ) -> Result<ControlPlane, SetupError> {
        let url = &inputs.control_plane_url;
        if url.starts_with("https:") {
            return match &inputs.control_plane_ca_pem {
                Some(anchor) if url.starts_with("https://127.") => {
                    let address = loopback_address(self.seed, hostname);
                    ControlPlane::from_address(url, anchor.as_bytes(), address)
                }
                Some(anchor) => ControlPlane::new(url, Some(anchor.as_bytes())),
                None => {
                    let ca_pem = inputs.ca_pem.as_ref().map(String::as_bytes);
                    ControlPlane::with_system_roots(url, ca_pem)
                }
            };
        }
        Ok(ControlPlane::with_client(url, self.http.clone()))
    }

    fn stand_in(&self, hostname: &str, inputs: &BootstrapInputs, root: &Path) -> SimulatedHost {
        let drawn = self.times.draw(self.seed, hostname);
        SimulatedHost {
            bootstrap_token: inputs.bootstrap_token.clone(),
            site_seconds: drawn.site_seconds,
            site_failure: None,
            node_seconds: drawn.node_seconds,
            agent: AgentConfig {
                run_id: inputs.run_id,
                hostname: inputs.hostname.clone(),
                enrollment_token: inputs.enrollment_token.clone(),
                identity: IdentityStore::File(root.join("identity.json")),
                ready_file: None,
                ready: None,
                host: Host::Fixed(Arc::new(json!({
                    "hostname": inputs.hostname,
                    "gates": gates(inputs),
                    "programs": {"sshd": SSHD_SETTINGS},
                }))),
                ca_file: None,
                env: AgentEnv::default(),
                max_backoff_seconds: LONGEST_PAUSE_SECONDS,
            },
        }
    }
}

/// What `sshd -T` prints of the settings that a bundle makes, after the bundle that a stand-in does not
/// run.
const SSHD_SETTINGS: &str = "passwordauthentication no\npermitrootlogin without-password\n\
                             authorizedkeysfile /etc/ssh/authorized_keys.d/%u\n";

/// Where a host of this name calls from: one of the addresses of loopback, as hosts have addresses of
/// their own. What the control plane counts per address is then counted as in life.
fn loopback_address(seed: u64, hostname: &str) -> IpAddr {
    let mut rng = SimRng::for_name(seed, &format!("address/{hostname}"));
    let mut byte = |lowest: u8| u8::try_from(rng.below(254)).unwrap_or_default().max(lowest);
    Ipv4Addr::new(127, byte(1), byte(0), byte(1)).into()
}

/// A stand-in has no host whose effects could be looked at. Where its bundle makes a slice host, it
/// says of that gate that nothing was evaluated, so nobody takes it for one that is ready.
fn gates(inputs: &BootstrapInputs) -> Vec<GateReport> {
    let bundles = inputs.bundle.iter().flat_map(|delivery| &delivery.bundles);
    let slice = bundles.map(|one| &one.artifact).find(|artifact| artifact.name == SLICE_BUNDLE);
    let report = |_: &Artifact| GateReport {
        gate: Gate::SliceReady,
        passed: false,
        class: None,
        checks: Vec::new(),
    };
    slice.map(report).into_iter().collect()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn hosts_call_from_addresses_of_their_own() {
        let of = |number: usize| loopback_address(1, &format!("node{number:04}"));
        let addresses: BTreeSet<IpAddr> = (0..1000).map(of).collect();
        assert!(addresses.len() > 990 && addresses.iter().all(IpAddr::is_loopback));
        assert_eq!(of(7), of(7));
        assert!(!addresses.contains(&IpAddr::V4(Ipv4Addr::LOCALHOST)));
    }
}
