//! The control plane that `gpuaas bench attack` attacks: `gpuaas serve` in a process of its own,
//! with a limit of open files.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use gpuaas_artifact::Digest;
use gpuaas_client::executables::own_executable;
use gpuaas_client::failure::Failure;
use gpuaas_engine::tokens::artifact_pass_by_key;
use gpuaas_engine::{Clock as _, RealClock};
use gpuaas_store::MasterKey;
use tokio::io::{AsyncBufReadExt as _, BufReader};
use tokio::process::{Child, Command};
use tokio::time::timeout;

use super::attacker::failed;

/// Longest time to its last line.
const START: Duration = Duration::from_secs(60);
/// What sets the limit of open files, soft and hard: POSIX' `ulimit`, in the shell that becomes the
/// process.
const LIMITED: &str = "ulimit -n \"$1\" && shift && exec \"$@\"";

/// A running control plane.
pub(super) struct Target {
    _child: Child,
    data: PathBuf,
    /// Its process.
    pub(super) pid: u32,
    /// Where it listens for operators.
    pub(super) operators: SocketAddr,
    /// Where it listens for nodes.
    pub(super) nodes: SocketAddr,
}

impl Target {
    /// Starts one in `folder`, which may open so many files.
    ///
    /// # Errors
    /// `attack_failed`, with the last words of its log.
    pub(super) async fn start(folder: &Path, agent: &Path, files: u64) -> Result<Self, Failure> {
        let (data, log) = (folder.join("data"), folder.join("serve.log"));
        let out = std::fs::File::create(&log).map_err(|error| failed(&error))?;
        let mut child = Command::new("sh")
            .args(["-c", LIMITED, "sh", &files.to_string()])
            .arg(own_executable()?)
            .args([
                "serve",
                "--loopback-targets",
                "--listen",
                "127.0.0.1:0",
                "--node-listen",
                "127.0.0.1:0",
                "--data",
            ])
            .arg(&data)
            .arg("--agent-binary")
            .arg(agent)
            .env_remove("GPUAAS_DATABASE")
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(out)
            .kill_on_drop(true)
            .spawn()
            .map_err(|error| failed(&error))?;
        let words = || std::fs::read_to_string(&log).unwrap_or_default();
        let addresses = timeout(START, addresses(&mut child)).await.ok().flatten();
        let (operators, nodes) = addresses.ok_or_else(|| failed(&words()))?;
        let pid = child.id().ok_or_else(|| failed(&words()))?;
        Ok(Self { _child: child, data, pid, operators, nodes })
    }

    /// What opens an artifact of this digest.
    ///
    /// # Errors
    /// `attack_failed`.
    pub(super) fn artifact_pass(&self, digest: &Digest) -> Result<String, Failure> {
        let key = MasterKey::from_text(&self.read("master.key")?);
        let key = key.ok_or_else(|| failed(&"the master key is malformed"))?;
        artifact_pass_by_key(&key, digest, RealClock.now()).map_err(|error| failed(&error))
    }

    /// A file of its data folder.
    ///
    /// # Errors
    /// `attack_failed`.
    pub(super) fn read(&self, name: &str) -> Result<String, Failure> {
        std::fs::read_to_string(self.data.join(name)).map_err(|error| failed(&error))
    }
}

/// What it says of where it listens.
async fn addresses(child: &mut Child) -> Option<(SocketAddr, SocketAddr)> {
    let mut lines = BufReader::new(child.stdout.take()?).lines();
    let mut operators = None;
    while let Ok(Some(line)) = lines.next_line().await {
        let (name, url) = line.split_once(": ")?;
        let address = url.rsplit_once('/').and_then(|(_, address)| address.parse().ok());
        match name {
            "listening" => operators = address,
            "nodes" => return operators.zip(address),
            _ => {}
        }
    }
    None
}
