//! Control planes of one database, each a process of its own.

use std::fs;
use std::net::{SocketAddr, TcpListener};
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::time::Duration;

use gpuaas_client::ApiClient;
use gpuaas_client::failure::Failure;
use gpuaas_engine::ClockChoice;
use gpuaas_store::MasterKey;
use tokio::time::interval;

use super::failure::not_met;
use crate::control_plane::{ControlPlanePlan, ControlPlaneProcess};

/// The key that seals what the benchmark keeps, the same for all.
const KEY: [u8; 32] = [0x42; 32];
/// Starts of a control plane whose database is away, a second apart.
const STARTS: u32 = 120;

/// The key as a store takes it.
pub(super) fn master_key() -> MasterKey {
    MasterKey::from_bytes(KEY)
}

/// The processes.
pub(super) struct Replicas {
    processes: Vec<ControlPlaneProcess>,
    clients: Vec<ApiClient>,
}

impl Replicas {
    /// Starts `count` of them, one after the other.
    ///
    /// # Errors
    /// What keeps one from starting.
    pub(super) async fn start(
        count: usize,
        folder: &Path,
        database: &str,
        nats: &str,
    ) -> Result<Self, Failure> {
        let (mut processes, mut clients) = (Vec::new(), Vec::new());
        let mut token: Option<String> = None;
        for index in 0..count {
            let data = folder.join(format!("replica-{index}"));
            write_private(&data.join("master.key"), &(hex(&KEY) + "\n"))?;
            if let Some(token) = &token {
                write_private(&data.join("admin-token"), token)?;
            }
            let plan = ControlPlanePlan {
                listen: free_address()?,
                node_listen: None,
                data: data.clone(),
                database: Some(database.to_owned()),
                nats: Some(nats.to_owned()),
                clock: ClockChoice::Real,
                sweeps: false,
            };
            let log = folder.join(format!("replica-{index}.log"));
            let mut process = ControlPlaneProcess::new(plan, log);
            clients.push(process.start().await?);
            processes.push(process);
            if token.is_none() {
                let file = data.join("admin-token");
                token =
                    Some(fs::read_to_string(&file).map_err(|error| not_met(&error.to_string()))?);
            }
        }
        Ok(Self { processes, clients })
    }

    /// A client of each.
    pub(super) fn clients(&self) -> &[ApiClient] {
        &self.clients
    }

    /// Kills one with SIGKILL.
    pub(super) fn kill(&mut self, index: usize) {
        let index = index % self.processes.len().max(1);
        if let Some(process) = self.processes.get_mut(index) {
            process.kill();
        }
    }

    /// Starts those that do not run, however often it takes: their database may be away.
    ///
    /// # Errors
    /// What keeps one from starting for two minutes.
    pub(super) async fn start_all(&mut self) -> Result<(), Failure> {
        for process in &mut self.processes {
            let mut starts = interval(Duration::from_secs(1));
            let mut left = STARTS;
            loop {
                starts.tick().await;
                left -= 1;
                match process.start().await {
                    Ok(_) => break,
                    Err(failure) if left == 0 => return Err(failure),
                    Err(failure) => {
                        tracing::info!(%failure, "a control plane did not start; retrying")
                    }
                }
            }
        }
        Ok(())
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn write_private(path: &Path, text: &str) -> Result<(), Failure> {
    let failed = |error: std::io::Error| not_met(&format!("{}: {error}", path.display()));
    if let Some(folder) = path.parent() {
        fs::create_dir_all(folder).map_err(failed)?;
    }
    fs::write(path, text).map_err(failed)?;
    fs::set_permissions(path, fs::Permissions::from_mode(0o600)).map_err(failed)
}

fn free_address() -> Result<SocketAddr, Failure> {
    let listener = TcpListener::bind(("127.0.0.1", 0));
    let address = listener.and_then(|listener| listener.local_addr());
    address.map_err(|error| not_met(&error.to_string()))
}
