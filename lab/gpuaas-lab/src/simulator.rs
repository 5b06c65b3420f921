//! The simulated region as a process of its own.
//!
//! A process of its own for three reasons. A restart of the control plane is a test only when the
//! region survives it. The region's memory and processor time must not count as the control plane's.
//! And the control plane must reach it over HTTP only. It gets a process group
//! of its own, so an interrupt at the terminal ends the lab and not the machines, and its own end
//! when nobody has asked it anything for a while.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use gpuaas_client::executables::own_executable;
use gpuaas_client::failure::{Exit, Failure};
use gpuaas_client::{chain, install_cryptography};
use gpuaas_engine::ClockChoice;
use gpuaas_types::codes::CommandCode;
use reqwest::{Client, RequestBuilder};
use rustix::process::Signal;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use tokio::time::interval;

use crate::arguments::MachineClass;
use crate::hosts::options::HostLoss;
use crate::hosts::options::HostMode;
use crate::processes;
use crate::record::{MachineInventory, RegionRecord};
use crate::state::SimulatorAddress;

const COMMAND: &str = "maas-sim";
/// A region with nothing to do ends by itself after this many seconds.
const IDLE_EXIT_SECONDS: u64 = 600;
const LOOK: Duration = Duration::from_millis(20);
/// Looks before a start is given up: 20 seconds.
const START_LOOKS: u32 = 1000;
/// The statistics of a large region are large.
const CALL_SECONDS: u64 = 60;

/// What to start.
#[derive(Debug, Clone)]
pub struct SimulatorPlan<'a> {
    /// Racked machines.
    pub machines: usize,
    /// Names of the first ones.
    pub names: &'a [&'a str],
    /// The seed of every random draw of the region.
    pub seed: u64,
    /// What the machines are.
    pub class: MachineClass,
    /// What runs on them once they are deployed.
    pub hosts: HostMode,
    /// How many of the named ones boot a whole system.
    pub real_hosts: usize,
    /// The system that those boot; none: that of this machine's release.
    pub rootfs: Option<&'a Path>,
    /// What their hosts lose.
    pub lost: Vec<HostLoss>,
    /// Where their root folders are.
    pub hosts_dir: PathBuf,
    /// The clock shared with the control plane.
    pub clock: ClockChoice,
    /// A file of faults to inject, as JSON.
    pub faults: Option<PathBuf>,
    /// Where its output goes.
    pub log: PathBuf,
}

/// A simulated region in another process.
#[derive(Debug)]
pub struct Simulator {
    at: SimulatorAddress,
    http: Client,
    child: Option<Child>,
}

impl Simulator {
    /// Starts one and waits until it listens.
    ///
    /// # Errors
    /// `simulator_not_started`, with the end of its log.
    pub async fn start(plan: &SimulatorPlan<'_>) -> Result<Self, Failure> {
        let mut child = spawn(plan)?;
        let mut looks = interval(LOOK);
        for _ in 0..START_LOOKS {
            looks.tick().await;
            let log = std::fs::read_to_string(&plan.log).unwrap_or_default();
            if let (Some(url), Some(api_key)) = (base_url(&log), printed_api_key(&log)) {
                let at = SimulatorAddress { pid: child.id(), url, api_key };
                return Ok(Self { at, http: http()?, child: Some(child) });
            }
            if let Ok(Some(status)) = child.try_wait() {
                return Err(not_started(&format!("it exited with {status}"), &log));
            }
        }
        child.kill().and_then(|()| child.wait()).ok();
        let log = std::fs::read_to_string(&plan.log).unwrap_or_default();
        Err(not_started("it did not start listening in time", &log))
    }

    /// Finds one that was started before. None where it is gone.
    ///
    /// # Errors
    /// `http_unavailable` when no HTTP client can be made.
    pub async fn find(at: &SimulatorAddress) -> Result<Option<Self>, Failure> {
        let found = Self { at: at.clone(), http: http()?, child: None };
        let alive = is_simulator(at.pid) && found.machine_inventory().await.is_ok();
        Ok(alive.then_some(found))
    }

    /// Where it is.
    #[must_use]
    pub const fn at(&self) -> &SimulatorAddress {
        &self.at
    }

    /// Base URL of the region, as a site needs it.
    #[must_use]
    pub fn maas_url(&self) -> String {
        format!("{}/MAAS", self.at.url)
    }

    /// Key of its administrator.
    #[must_use]
    pub fn api_key(&self) -> &str {
        &self.at.api_key
    }

    /// The racked machines.
    ///
    /// # Errors
    /// `simulator_silent`, as every call.
    pub async fn machine_inventory(&self) -> Result<Vec<MachineInventory>, Failure> {
        self.get_json(self.http.get(self.control_api_url("machines"))).await
    }

    /// Everything counted so far.
    ///
    /// # Errors
    /// See [`Simulator::inventory`].
    pub async fn record(&self) -> Result<RegionRecord, Failure> {
        self.get_json(self.http.get(self.control_api_url("stats"))).await
    }

    /// Bytes of images that were appended so far.
    ///
    /// # Errors
    /// See [`Simulator::inventory`].
    pub async fn appended_bytes(&self) -> Result<u64, Failure> {
        let uploads: Value = self.get_json(self.http.get(self.control_api_url("uploads"))).await?;
        Ok(uploads["appended_bytes"].as_u64().unwrap_or(0))
    }

    /// Has the machine itself tell MAAS that it exists, as a first network boot does.
    ///
    /// # Errors
    /// See [`Simulator::inventory`].
    pub async fn enlist(&self, hostname: &str, mac_address: &str) -> Result<(), Failure> {
        let url = format!("{}/api/2.0/machines/", self.maas_url());
        let form = [
            ("hostname", hostname),
            ("mac_addresses", mac_address),
            ("architecture", "amd64/generic"),
            ("power_type", "manual"),
        ];
        let body = serde_urlencoded::to_string(form).unwrap_or_default();
        let request = self
            .http
            .post(url)
            .header("Content-Type", "application/x-www-form-urlencoded")
            .body(body);
        self.send(request).await.map(drop)
    }

    /// Asks the region for its version, as the least that counts as being asked.
    ///
    /// # Errors
    /// See [`Simulator::inventory`].
    pub async fn ask_version(&self) -> Result<(), Failure> {
        let url = format!("{}/api/2.0/version/", self.maas_url());
        self.send(self.http.get(url)).await.map(drop)
    }

    /// Does what a person does in MAAS' own UI: `commission`, `deploy`, `release`, ...
    ///
    /// # Errors
    /// See [`Simulator::inventory`].
    pub async fn human_action(&self, action: &str, machine: &str) -> Result<(), Failure> {
        let body = json!({"action": action, "machine": machine});
        self.send(self.http.post(self.control_api_url("human")).json(&body)).await.map(drop)
    }

    /// Has things go wrong from now on.
    ///
    /// # Errors
    /// See [`Simulator::inventory`].
    pub async fn inject(&self, faults: &[maas_sim::Fault]) -> Result<(), Failure> {
        self.send(self.http.post(self.control_api_url("faults")).json(faults)).await.map(drop)
    }

    /// Ends the process and waits for its end, so that its port and files are free.
    pub async fn stop(mut self) {
        if is_simulator(self.at.pid) {
            processes::signal(self.at.pid, Signal::TERM);
        }
        if let Some(child) = &mut self.child {
            let mut looks = interval(LOOK);
            for _ in 0..100 {
                looks.tick().await;
                if !matches!(child.try_wait(), Ok(None)) {
                    return;
                }
            }
            child.kill().and_then(|()| child.wait()).ok();
            return;
        }
        let mut looks = interval(LOOK);
        for _ in 0..100 {
            looks.tick().await;
            if !is_simulator(self.at.pid) {
                return;
            }
        }
        processes::signal(self.at.pid, Signal::KILL);
    }

    fn control_api_url(&self, what: &str) -> String {
        format!("{}/sim/v1/{what}", self.at.url)
    }

    async fn get_json<T: DeserializeOwned>(&self, request: RequestBuilder) -> Result<T, Failure> {
        let body = self.send(request).await?;
        serde_json::from_slice(&body).map_err(|error| no_answer(&self.at.url, &error.to_string()))
    }

    async fn send(&self, request: RequestBuilder) -> Result<Vec<u8>, Failure> {
        let lost = |error: reqwest::Error| no_answer(&self.at.url, &chain(&error.without_url()));
        let response = request.send().await.map_err(lost)?;
        let status = response.status();
        let body = response.bytes().await.map_err(lost)?;
        if !status.is_success() {
            let text = String::from_utf8_lossy(&body).into_owned();
            return Err(no_answer(&self.at.url, &format!("HTTP {status}: {text}")));
        }
        Ok(body.to_vec())
    }
}

fn spawn(plan: &SimulatorPlan<'_>) -> Result<Child, Failure> {
    use std::os::unix::process::CommandExt as _;
    let failed = |error: std::io::Error| not_started(&error.to_string(), "");
    let log = File::create(&plan.log).map_err(failed)?;
    let mut command = Command::new(own_executable()?);
    command
        .arg(COMMAND)
        .args(["--listen", "127.0.0.1:0", "--machines", &plan.machines.to_string()])
        .args(["--seed", &plan.seed.to_string()])
        .args(["--class", class_name(plan.class), "--hosts", host_mode_name(plan.hosts)])
        .args(["--clock", &plan.clock.to_string()])
        .args(["--idle-exit", &IDLE_EXIT_SECONDS.to_string()])
        .arg("--hosts-dir")
        .arg(&plan.hosts_dir);
    if !plan.names.is_empty() {
        command.args(["--names", &plan.names.join(",")]);
    }
    if plan.real_hosts > 0 {
        command.args(["--real-hosts", &plan.real_hosts.to_string()]);
        if let Some(rootfs) = plan.rootfs {
            command.arg("--rootfs").arg(rootfs);
        }
    }
    for lost in &plan.lost {
        command.args(["--lose", &lost.to_string()]);
    }
    if let Some(faults) = &plan.faults {
        command.arg("--faults").arg(faults);
    }
    command
        .stdin(Stdio::null())
        .stdout(log.try_clone().map_err(failed)?)
        .stderr(log)
        .process_group(0)
        .spawn()
        .map_err(failed)
}

const fn class_name(class: MachineClass) -> &'static str {
    match class {
        MachineClass::H200 => "h200",
        MachineClass::Ethernet => "ethernet",
        MachineClass::Zero => "zero",
    }
}

const fn host_mode_name(hosts: HostMode) -> &'static str {
    match hosts {
        HostMode::Process => "process",
        HostMode::Fleet => "fleet",
        HostMode::None => "none",
    }
}

/// Key of the region's administrator in what the simulator printed, once the line is whole.
fn printed_api_key(log: &str) -> Option<String> {
    let (_, rest) = log.split_once("\napi-key: ")?;
    rest.split_once('\n').map(|(key, _)| key.trim().to_owned())
}

/// `http://HOST:PORT` of the first URL in what the simulator printed.
fn base_url(log: &str) -> Option<String> {
    let rest = &log[log.find("http://")? + "http://".len()..];
    // The line may still be being written.
    let end = rest.find(['/', '\n', ' '])?;
    Some(format!("http://{}", &rest[..end]))
}

fn http() -> Result<Client, Failure> {
    install_cryptography();
    Client::builder()
        .timeout(Duration::from_secs(CALL_SECONDS))
        .tls_certs_only([])
        .build()
        .map_err(|error| Failure::local(CommandCode::HttpUnavailable, chain(&error)))
}

fn is_simulator(pid: u32) -> bool {
    processes::is(pid, COMMAND)
}

fn not_started(why: &str, log: &str) -> Failure {
    let lines: Vec<&str> = log.lines().rev().take(5).collect();
    let tail: String = lines.iter().rev().map(|line| format!("\n  {line}")).collect();
    Failure::local(CommandCode::SimulatorNotStarted, format!("{why}{tail}"))
}

fn no_answer(url: &str, why: &str) -> Failure {
    Failure::new(Exit::Local, CommandCode::SimulatorSilent, format!("{url}: {why}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_key_is_read_from_a_whole_line_only() {
        let log = "listening: http://127.0.0.1:5240/MAAS\npassword: p\napi-key: a:b";
        assert_eq!(printed_api_key(log), None);
        assert_eq!(printed_api_key(&format!("{log}:c\n")).as_deref(), Some("a:b:c"));
    }

    #[test]
    fn the_url_is_read_from_a_whole_line_only() {
        assert_eq!(base_url("MAAS at http://127.0.0.1:52"), None);
        let line = "MAAS at http://127.0.0.1:5240/MAAS\nAPI key a:b:c\n";
        assert_eq!(base_url(line).as_deref(), Some("http://127.0.0.1:5240"));
    }

    #[test]
    fn a_failed_start_shows_the_end_of_the_log() {
        let failure = not_started("it ended with 1", "a\nb\nc\nd\ne\nf\n");
        assert_eq!(failure.problem.detail, "it ended with 1\n  b\n  c\n  d\n  e\n  f");
    }
}
