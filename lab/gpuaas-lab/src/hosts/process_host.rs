//! Hosts whose scripts and agent are real processes below a folder that stands for `/`.
//!
//! Whatever a host starts, also in a session of its own as the agent is, inherits
//! `GPUAAS_HOST_ROOT`; that is how its processes are found and ended. A parent-death signal would
//! reach the script but not what the script started. For a simulator that is killed there is a
//! reaper: a shell that waits for the end of its standard input, which comes when the simulator
//! is gone however it went, and then ends what is left.

use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;

use gpuaas_artifact::{ParsedUserData, unpack_user_data};
use gpuaas_client::failure::Failure;
use gpuaas_types::codes::CommandCode;
use rustix::process::{Pid, Signal, kill_process};
use tokio::process::{Child, Command};
use tokio_util::sync::CancellationToken;

use super::host_emulator::{self, HostEmulator};
use super::host_pace::HostPace;
use super::options::Loss;

const ROOT_VARIABLE: &str = "GPUAAS_HOST_ROOT";
const LOG: &str = "var/log/cloud-init-output.log";
const AGENT: &str = "usr/local/bin/gpuaas-node-agent";
/// Looks for processes to end; each look ends those that the one before missed.
const LOOKS: u32 = 50;

const REAPER_SCRIPT: &str = r#"
while read -r _; do :; done
for _ in {1..50}; do
  found=no
  while IFS= read -r file; do
    pid="${file#/proc/}"
    kill -KILL "${pid%/environ}" 2>/dev/null && found=yes
  done < <(grep -alsF "GPUAAS_HOST_ROOT=$1/" /proc/[0-9]*/environ)
  [[ $found == yes ]] || exit 0
done
"#;

/// Ends the hosts' processes once this process is gone.
pub(super) struct ProcessReaper {
    _shell: Child,
}

impl ProcessReaper {
    pub(super) fn start(dir: &Path) -> Result<Self, Failure> {
        Command::new("bash")
            .args([
                OsStr::new("-c"),
                OsStr::new(REAPER_SCRIPT),
                OsStr::new("keeper"),
                dir.as_os_str(),
            ])
            .env_remove(ROOT_VARIABLE)
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .process_group(0)
            .spawn()
            .map(|shell| Self { _shell: shell })
            .map_err(|error| {
                Failure::local(CommandCode::HostsUnguarded, error.to_string())
                    .hint("install bash, or run the hosts with --hosts fleet")
            })
    }
}

/// One simulated host.
pub(super) struct ProcessHost {
    /// The folder that stands for its `/`.
    pub(super) root: PathBuf,
    /// What the machine's data disks hold from before this deployment.
    pub(super) data_disks: PathBuf,
    /// What cloud-init is given.
    pub(super) data: ParsedUserData,
    /// Kernel options that the deployment carried.
    pub(super) kernel_options: String,
    /// What it has lost by the time its agent is installed.
    pub(super) losses: Vec<Loss>,
    /// What plays the rest of it.
    pub(super) emulator: Arc<HostEmulator>,
    /// How time goes on it.
    pub(super) pace: HostPace,
}

/// The life of one host until `stop`; without `first` only the agent's.
pub(super) async fn run_host(host: ProcessHost, first: bool, stop: CancellationToken) {
    let running = async {
        let ended = if first {
            let _computing = host.pace.compute();
            host.boot().await
        } else {
            host.start_agent().await
        };
        if let Err(error) = ended {
            let hostname = &host.data.inputs.hostname;
            tracing::warn!(host = %hostname, root = %host.root.display(), %error, "a simulated host failed");
        }
        stop.cancelled().await;
    };
    let paced = async {
        if let Err(error) = host.pace.serve(&host.root).await {
            let hostname = &host.data.inputs.hostname;
            tracing::warn!(host = %hostname, %error, "cannot pace the host's clock; it uses this machine's clock");
        }
    };
    // The pipes are there before the first script is.
    stop.run_until_cancelled(async { tokio::join!(biased; paced, running) }).await;
    end_processes(&host.root).await;
    host.pace.end();
}

impl ProcessHost {
    /// What cloud-init does: write the files, then run every script, also after one that failed.
    async fn boot(&self) -> io::Result<()> {
        let inputs = &self.data.inputs;
        if inputs.bundle.is_some() {
            let lost = self.losses.contains(&Loss::KernelOptions);
            let kernel_options = if lost { "" } else { self.kernel_options.as_str() };
            self.emulator.make(&self.root, &inputs.hostname, kernel_options).await?;
        }
        self.emulator.prepare_programs().await?;
        attach_data_disks(&self.data_disks, &self.root)?;
        let (folder, data) = (self.root.clone(), self.data.clone());
        let scripts =
            tokio::task::spawn_blocking(move || unpack_user_data(&data, &folder)).await??;
        for (index, script) in scripts.iter().enumerate() {
            for loss in self.losses.iter().filter(|_| index > 0) {
                self.emulator.apply_loss(&self.root, *loss).await?;
            }
            let mut command = Command::new("bash");
            command.arg(script);
            let status = self.host_command(command)?.spawn()?.wait().await?;
            if !status.success() {
                tracing::warn!(script = %script.display(), %status, "a bootstrap script failed; see {LOG} on the host");
            }
        }
        Ok(())
    }

    async fn start_agent(&self) -> io::Result<()> {
        let mut command = Command::new(self.root.join(AGENT));
        command.arg("run").arg("--config").arg(self.root.join("etc/gpuaas/agent.json"));
        command.arg("--host-root").arg(&self.root);
        let status = self.host_command(command)?.spawn()?.wait().await?;
        Err(io::Error::other(format!("the agent exited with {status}")))
    }

    fn host_command(&self, mut command: Command) -> io::Result<Command> {
        command.env(host_emulator::VARIABLE, self.emulator.program());
        let programs = self.emulator.programs();
        command.env("PATH", format!("{}:{}", programs.display(), host_emulator::PROGRAMS_PATH));
        host_command(command, &self.root)
    }
}

/// Where a host has its data disks.
const DATA: &str = "data";

/// The disks beside the boot disk keep what is on them when a machine is released: a deployment
/// writes the boot disk alone.
pub(super) fn keep_data_disks(root: &Path, disks: &Path) {
    if let Err(error) = move_folder(&root.join(DATA), disks) {
        tracing::warn!(root = %root.display(), %error, "cannot keep the host's data disks");
    }
}

/// The next system finds them as they are.
fn attach_data_disks(disks: &Path, root: &Path) -> io::Result<()> {
    std::fs::create_dir_all(root)?;
    move_folder(disks, &root.join(DATA))
}

/// MAAS has erased every disk of the machine.
pub(super) fn erase_data_disks(disks: &Path) {
    if let Err(error) = std::fs::remove_dir_all(disks)
        && error.kind() != io::ErrorKind::NotFound
    {
        tracing::warn!(disks = %disks.display(), %error, "cannot erase the host's data disks");
    }
}

/// Nothing where there is nothing to move.
fn move_folder(from: &Path, to: &Path) -> io::Result<()> {
    match std::fs::rename(from, to) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        moved => moved,
    }
}

fn host_command(mut command: Command, root: &Path) -> io::Result<Command> {
    let path = root.join(LOG);
    if let Some(folder) = path.parent() {
        std::fs::create_dir_all(folder)?;
    }
    let log = std::fs::OpenOptions::new().create(true).append(true).open(path)?;
    command
        .env(ROOT_VARIABLE, root)
        .stdin(Stdio::null())
        .stdout(log.try_clone()?)
        .stderr(log)
        .process_group(0)
        .kill_on_drop(true);
    Ok(command)
}

async fn end_processes(root: &Path) {
    let mut marker = format!("{ROOT_VARIABLE}=").into_bytes();
    marker.extend_from_slice(root.as_os_str().as_bytes());
    let mut looks = tokio::time::interval(Duration::from_millis(10));
    for _ in 0..LOOKS {
        looks.tick().await;
        let found = processes_with(&marker);
        if found.is_empty() {
            return;
        }
        for pid in found {
            // One that has ended meanwhile is as good as one that is ended here.
            kill_process(pid, Signal::KILL).ok();
        }
    }
    tracing::warn!(root = %root.display(), "some processes of this host could not be killed");
}

/// Processes whose environment holds `marker` as a whole variable.
fn processes_with(marker: &[u8]) -> Vec<Pid> {
    let Ok(entries) = std::fs::read_dir("/proc") else { return Vec::new() };
    entries
        .flatten()
        .filter_map(|entry| {
            let pid: i32 = entry.file_name().to_str()?.parse().ok()?;
            let environment = std::fs::read(entry.path().join("environ")).ok()?;
            let marked = environment.split(|byte| *byte == 0).any(|variable| variable == marker);
            marked.then(|| Pid::from_raw(pid)).flatten()
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn marker(root: &Path) -> Vec<u8> {
        format!("{ROOT_VARIABLE}={}", root.display()).into_bytes()
    }

    async fn until_ready(root: &Path) {
        let mut looks = tokio::time::interval(Duration::from_millis(5));
        while !root.join("ready").exists() {
            looks.tick().await;
        }
    }

    /// A script that starts a session of its own, as the agent's does.
    fn start(root: &Path) -> Child {
        let mut command = Command::new("bash");
        let script = format!("setsid sleep 60 & : >{}/ready; sleep 60", root.display());
        command.args(["-c", &script]);
        host_command(command, root).unwrap().spawn().unwrap()
    }

    #[test]
    fn data_disks_keep_their_data_from_one_deployment_to_the_next_until_they_are_erased() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        let disks = at("data-disks");
        attach_data_disks(&disks, &at("1")).unwrap();
        assert!(!at("1/data").exists(), "the machine is new");
        std::fs::create_dir_all(at("1/data/0")).unwrap();
        std::fs::write(at("1/data/0/model"), "weights").unwrap();
        keep_data_disks(&at("1"), &disks);
        attach_data_disks(&disks, &at("2")).unwrap();
        assert_eq!(std::fs::read_to_string(at("2/data/0/model")).unwrap(), "weights");
        keep_data_disks(&at("2"), &disks);
        erase_data_disks(&disks);
        attach_data_disks(&disks, &at("3")).unwrap();
        assert!(!at("3/data").exists());
    }

    #[tokio::test]
    async fn what_a_host_started_ends_with_it_and_with_it_only() {
        let dir = tempfile::tempdir().unwrap();
        let (one, other) = (dir.path().join("a/1"), dir.path().join("a/10"));
        let (mut first, _second) = (start(&one), start(&other));
        until_ready(&one).await;
        until_ready(&other).await;
        end_processes(&one).await;
        assert!(!first.wait().await.unwrap().success());
        assert!(processes_with(&marker(&one)).is_empty());
        assert!(processes_with(&marker(&other)).len() >= 2);
        end_processes(&other).await;
    }

    #[tokio::test]
    async fn the_keeper_ends_what_a_killed_simulator_left() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().join("b/1");
        let mut reaper = ProcessReaper::start(dir.path()).unwrap();
        let mut script = start(&root);
        until_ready(&root).await;
        drop(reaper._shell.stdin.take());
        assert!(reaper._shell.wait().await.unwrap().success());
        assert!(!script.wait().await.unwrap().success());
        assert!(processes_with(&marker(&root)).is_empty());
    }
}
