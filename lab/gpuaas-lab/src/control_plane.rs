//! The control plane of a lab: in this process, or in one of its own where it is to be killed.
//!
//! Either way the lab talks to it over HTTP with the admin token from its data folder, as an
//! operator does.

use std::fs::OpenOptions;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use async_trait::async_trait;
use gpuaas_client::ApiClient;
use gpuaas_client::executables::own_executable;
use gpuaas_client::failure::Failure;
use gpuaas_engine::ClockChoice;
use gpuaas_store::Store;
use gpuaas_types::codes::CommandCode;
use rustix::process::Signal;
use tokio::time::interval;

use crate::processes;
use crate::simulator::Simulator;
use crate::watch::is_away;

const LOOK: Duration = Duration::from_millis(20);
/// Looks before a start is given up: 20 seconds.
const START_LOOKS: u32 = 1000;
const TOKEN_FILE: &str = "admin-token";

/// What to start.
#[derive(Debug, Clone)]
pub struct ControlPlanePlan {
    /// Where it listens; port 0 for any, on the first start.
    pub listen: SocketAddr,
    /// Where it listens for nodes, over TLS; none: its nodes are stand-ins.
    pub node_listen: Option<SocketAddr>,
    /// Its data folder.
    pub data: PathBuf,
    /// `postgres://...`; none for the embedded store.
    pub database: Option<String>,
    /// Where it publishes events; none: nowhere.
    pub nats: Option<String>,
    /// The clock shared with the simulator.
    pub clock: ClockChoice,
    /// Whether nodes in service are compared with MAAS often enough to be waited for.
    pub sweeps: bool,
}

impl ControlPlanePlan {
    /// Where the admin token is.
    #[must_use]
    pub fn token_file(&self) -> PathBuf {
        self.data.join(TOKEN_FILE)
    }

    /// Has it begin with the master key and the admin token of another one, which has the same database.
    ///
    /// # Errors
    /// `control_plane_not_started`.
    pub fn share_keys(&self, other: &Self) -> Result<(), Failure> {
        let copy = || {
            std::fs::create_dir_all(&self.data)?;
            for name in ["master.key", TOKEN_FILE] {
                // Permissions are copied, too.
                std::fs::copy(other.data.join(name), self.data.join(name))?;
            }
            Ok(())
        };
        copy().map_err(|error: std::io::Error| {
            Failure::local(CommandCode::ControlPlaneNotStarted, error.to_string())
        })
    }

    fn client(&self, address: SocketAddr) -> Result<ApiClient, Failure> {
        let path = self.token_file();
        let token = std::fs::read_to_string(&path).map_err(|error| {
            let detail = format!("{}: {error}", path.display());
            Failure::local(CommandCode::TokenUnreadable, detail)
        })?;
        ApiClient::new(&format!("http://{address}"), token.trim())
    }
}

/// Starts control planes in this process. Who has the server implements it.
#[async_trait(?Send)]
pub trait ControlPlaneLauncher: Sync {
    /// Starts one.
    ///
    /// # Errors
    /// What keeps `gpuaas serve` from starting.
    async fn launch(
        &self,
        plan: &ControlPlanePlan,
    ) -> Result<Box<dyn RunningControlPlane>, Failure>;
}

/// A control plane that was started in this process.
#[async_trait]
pub trait RunningControlPlane: Send + Sync {
    /// Where it listens for operators.
    fn address(&self) -> SocketAddr;

    /// Where its state is.
    fn store(&self) -> &Store;

    /// Lets what it does by itself come to rest; it still answers.
    async fn stop_engine(&self);

    /// Takes no more requests and closes the database.
    async fn shutdown(self: Box<Self>);
}

/// A control plane in this process.
pub struct InProcessControlPlane {
    running: Box<dyn RunningControlPlane>,
    /// Its client.
    pub client: ApiClient,
}

impl InProcessControlPlane {
    /// Starts one.
    ///
    /// # Errors
    /// What keeps `gpuaas serve` from starting; `token_unreadable`.
    pub async fn start(
        launcher: &dyn ControlPlaneLauncher,
        plan: &ControlPlanePlan,
    ) -> Result<Self, Failure> {
        let running = launcher.launch(plan).await?;
        let client = plan.client(running.address())?;
        Ok(Self { running, client })
    }

    /// Where its state is.
    #[must_use]
    pub fn store(&self) -> &Store {
        self.running.store()
    }

    /// Ends it together with the region and the agents there. What it does by itself comes to rest
    /// first, then those who call it end, and only then its store is closed: nobody is left to be
    /// answered with an error.
    pub async fn stop_with(self, simulator: Simulator) {
        self.running.stop_engine().await;
        simulator.stop().await;
        self.running.shutdown().await;
    }

    /// Ends it where nobody calls it any more.
    pub async fn stop(self) {
        self.running.stop_engine().await;
        self.running.shutdown().await;
    }
}

/// A control plane in a process of its own.
pub struct ControlPlaneProcess {
    plan: ControlPlanePlan,
    log: PathBuf,
    child: Option<Child>,
}

impl ControlPlaneProcess {
    /// One that is not running yet. `plan.listen` names its port.
    #[must_use]
    pub const fn new(plan: ControlPlanePlan, log: PathBuf) -> Self {
        Self { plan, log, child: None }
    }

    /// What it was started as.
    #[must_use]
    pub const fn plan(&self) -> &ControlPlanePlan {
        &self.plan
    }

    /// Its process.
    #[must_use]
    pub fn pid(&self) -> Option<u32> {
        self.child.as_ref().map(Child::id)
    }

    /// Starts it, where it does not run, and waits until it answers.
    ///
    /// # Errors
    /// `control_plane_not_started`.
    pub async fn start(&mut self) -> Result<ApiClient, Failure> {
        if self.child.is_none() {
            self.child = Some(self.spawn()?);
        }
        let mut looks = interval(LOOK);
        for _ in 0..START_LOOKS {
            looks.tick().await;
            if let Some(Ok(Some(status))) = self.child.as_mut().map(Child::try_wait) {
                self.child = None;
                return Err(self.not_started(&format!("it exited with {status}")));
            }
            let Ok(client) = self.plan.client(self.plan.listen) else { continue };
            match client.sites().await {
                Ok(_) => return Ok(client),
                Err(failure) if is_away(&failure) => {}
                Err(failure) => return Err(failure),
            }
        }
        Err(self.not_started("it did not answer in time"))
    }

    /// Kills it (SIGKILL), without a chance to write anything down.
    pub fn kill(&mut self) {
        if let Some(mut child) = self.child.take() {
            child.kill().and_then(|()| child.wait()).ok();
        }
    }

    fn spawn(&self) -> Result<Child, Failure> {
        let failed = |error: std::io::Error| self.not_started(&error.to_string());
        let log = OpenOptions::new().create(true).append(true).open(&self.log).map_err(failed)?;
        let mut command = Command::new(own_executable()?);
        command
            .args(["serve", "--loopback-targets"])
            .args(["--listen", &self.plan.listen.to_string()])
            .args(["--clock", &self.plan.clock.to_string()])
            .arg("--data")
            .arg(&self.plan.data);
        match self.plan.node_listen {
            Some(address) => command.args(["--node-listen", &address.to_string()]),
            None => command.arg("--stand-ins"),
        };
        if let Some(database) = &self.plan.database {
            // Not as an argument: other users see those.
            command.env("GPUAAS_DATABASE", database);
        }
        if let Some(nats) = &self.plan.nats {
            command.env("GPUAAS_NATS", nats);
        }
        command
            .stdin(Stdio::null())
            .stdout(log.try_clone().map_err(failed)?)
            .stderr(log)
            .spawn()
            .map_err(failed)
    }

    /// With what the control plane said last: the log may be in a folder that is not kept.
    fn not_started(&self, why: &str) -> Failure {
        let log = std::fs::read_to_string(&self.log).unwrap_or_default();
        let said = last_words(&log);
        let said = if said.is_empty() { "its log is empty".to_owned() } else { said };
        Failure::local(CommandCode::ControlPlaneNotStarted, format!("{why}: {said}"))
    }
}

/// The end of a log, as one line.
fn last_words(log: &str) -> String {
    const LINES: usize = 4;
    let lines: Vec<&str> = log.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
    lines[lines.len().saturating_sub(LINES)..].join("; ")
}

/// Kills control planes that a killed lab left behind on this data folder.
pub fn kill_leftovers(data: &Path) {
    let data = data.as_os_str().as_encoded_bytes();
    for pid in processes::named("serve") {
        if processes::arguments(pid).iter().any(|argument| argument == data) {
            processes::signal(pid, Signal::KILL);
        }
    }
}

impl Drop for ControlPlaneProcess {
    fn drop(&mut self) {
        self.kill();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_did_not_start_says_why_itself() {
        let folder = tempfile::tempdir().unwrap();
        let log = folder.path().join("serve.log");
        std::fs::write(&log, "one\ntwo\n\nerror agent_missing: no file\nhint: build it\n").unwrap();
        let plan = ControlPlanePlan {
            listen: "127.0.0.1:1".parse().unwrap(),
            node_listen: None,
            data: folder.path().to_owned(),
            database: None,
            nats: None,
            clock: ClockChoice::Real,
            sweeps: false,
        };
        let process = ControlPlaneProcess::new(plan.clone(), log);
        let text = process.not_started("it ended").to_string();
        let words = "it ended: one; two; error agent_missing: no file; hint: build it";
        assert!(text.contains(words), "{text}");
        let silent = ControlPlaneProcess::new(plan, folder.path().join("none"));
        assert!(
            silent.not_started("it exited").to_string().contains("it exited: its log is empty")
        );
    }
}
