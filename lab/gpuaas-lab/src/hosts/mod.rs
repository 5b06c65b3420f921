//! What runs on simulated hosts once MAAS has deployed them.
//!
//! The simulator says when a host's software begins and ends; this module makes it so. A host in
//! `process` mode does what cloud-init does with the user-data: it writes the files, runs the
//! scripts in order, and the scripts fetch and start the real agent, all below a folder of its
//! own. A thousand such hosts would be several thousand processes, so in `fleet` mode a host is a
//! future that makes the same calls through the agent's own protocol code. Hosts that are named as
//! real ones boot a whole system instead.
//!
//! A host is known by its system id, and what runs on it by its deployment: a notice about an
//! older deployment can come late and changes nothing.

mod fleet_host;
mod host_emulator;
mod host_pace;
pub mod options;
mod process_host;
mod systemd_host;

use std::collections::HashMap;
use std::io::Write as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use gpuaas_artifact::{ParsedUserData, parse_user_data};
use gpuaas_client::failure::Failure;
use gpuaas_engine::ClockPauser;
use gpuaas_types::codes::CommandCode;
use maas_sim::{FirstBoot, HostRef, Metadata, Notice};
use tokio::sync::mpsc::UnboundedReceiver;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use self::host_emulator::HostEmulator;
use self::host_pace::HostPace;
use self::options::{HostMode, HostsOptions, Loss};

/// What a machine was deployed with, in its folder, where nothing runs on hosts ([`HostMode::None`]).
const USER_DATA: &str = "user-data";

/// Whether this machine can have real hosts with the system in `rootfs`.
///
/// # Errors
/// `real_host_needs_root`, `real_host_tool_missing`, `real_host_rootfs_missing`.
pub fn check_systemd_hosts(rootfs: Option<&Path>) -> Result<(), Failure> {
    systemd_host::rootfs(rootfs).map(drop)
}

/// The hosts of a region, being run.
pub struct Hosts {
    stop: CancellationToken,
    task: JoinHandle<()>,
}

impl Hosts {
    /// Runs what `notices` say until stopped.
    ///
    /// # Errors
    /// `hosts_dir_unwritable`; `http_unavailable`; `hosts_unguarded` when the guard that ends the
    /// processes of a simulator that was killed cannot be started; `real_host_...` when a real host
    /// is wanted and this machine can have none.
    pub fn start(
        options: HostsOptions,
        notices: UnboundedReceiver<Notice>,
    ) -> Result<Self, Failure> {
        let dir = make_dir(&options.dir)?;
        let options = HostsOptions { dir, ..options };
        let factory = if options.real_hosts.is_empty() {
            None
        } else {
            let dir = options.dir.join(".real");
            Some(Arc::new(systemd_host::SystemdHostFactory::new(options.rootfs.as_deref(), &dir)?))
        };
        let reaper = match options.mode {
            _ if factory.is_some() => Some(process_host::ProcessReaper::start(&options.dir)?),
            HostMode::Process => Some(process_host::ProcessReaper::start(&options.dir)?),
            HostMode::Fleet | HostMode::None => None,
        };
        let fleet = match options.mode {
            HostMode::Fleet => Some(fleet_host::Fleet::new(&options)?),
            HostMode::Process | HostMode::None => None,
        };
        let pauser = match &options.pauses {
            Some(pauses) => Some(
                ClockPauser::new(pauses.clone())
                    .map_err(|error| dir_failure(pauses.path(), &error))?,
            ),
            None => None,
        };
        let stop = CancellationToken::new();
        let emulator = Arc::new(HostEmulator::new(&options.dir));
        let as_processes = options.mode == HostMode::Process;
        let running = HashMap::new();
        let supervisor = HostSupervisor {
            options,
            fleet,
            factory,
            emulator,
            pauser,
            stop: stop.clone(),
            running,
        };
        let emulator = Arc::clone(&supervisor.emulator);
        let task = tokio::spawn(async move {
            let warm = tokio::spawn(async move {
                if as_processes {
                    emulator.prepare_in_advance().await;
                }
            });
            supervisor.run(notices).await;
            warm.abort();
            drop(reaper);
        });
        Ok(Self { stop, task })
    }

    /// Ends everything that runs on the hosts.
    pub async fn stop(self) {
        self.stop.cancel();
        if let Err(error) = self.task.await {
            tracing::error!(%error, "the simulated hosts did not stop cleanly");
        }
    }
}

fn make_dir(dir: &Path) -> Result<PathBuf, Failure> {
    std::fs::create_dir_all(dir)
        .and_then(|()| dir.canonicalize())
        .map_err(|error| dir_failure(dir, &error))
}

/// Keeps what a machine was deployed with, for whoever runs it: it has secrets.
fn keep_user_data(file: &Path, user_data: &[u8]) -> std::io::Result<()> {
    if let Some(folder) = file.parent() {
        std::fs::create_dir_all(folder)?;
    }
    // Whoever waits for it finds all of it.
    let written = file.with_extension("new");
    let mut options = std::fs::OpenOptions::new();
    options.write(true).create(true).truncate(true).mode(0o600);
    options.open(&written)?.write_all(user_data)?;
    std::fs::rename(written, file)
}

fn dir_failure(path: &Path, error: &std::io::Error) -> Failure {
    Failure::local(CommandCode::HostsDirUnwritable, format!("{}: {error}", path.display()))
        .hint("choose another folder with --hosts-dir")
}

/// A deployed system, running or switched off.
struct RunningSystem {
    deployment: u64,
    data: ParsedUserData,
    user_data: Vec<u8>,
    metadata: Metadata,
    running_task: Option<(CancellationToken, JoinHandle<()>)>,
}

impl RunningSystem {
    async fn stop(&mut self) {
        if let Some((stop, task)) = self.running_task.take() {
            stop.cancel();
            if let Err(error) = task.await {
                tracing::error!(%error, "a simulated host did not stop cleanly");
            }
        }
    }
}

struct HostSupervisor {
    options: HostsOptions,
    fleet: Option<fleet_host::Fleet>,
    factory: Option<Arc<systemd_host::SystemdHostFactory>>,
    emulator: Arc<HostEmulator>,
    pauser: Option<Arc<ClockPauser>>,
    stop: CancellationToken,
    running: HashMap<String, RunningSystem>,
}

impl HostSupervisor {
    async fn run(mut self, mut notices: UnboundedReceiver<Notice>) {
        let stop = self.stop.clone();
        while let Some(Some(notice)) = stop.run_until_cancelled(notices.recv()).await {
            self.apply_notice(notice).await;
        }
        let ends = self.running.values_mut().map(RunningSystem::stop);
        futures::future::join_all(ends).await;
    }

    async fn apply_notice(&mut self, notice: Notice) {
        let host = notice.host().clone();
        let known = self.running.get(&host.system_id).map(|system| system.deployment);
        if known.is_some_and(|deployment| deployment > host.deployment) {
            return tracing::debug!(host = %host.hostname, "ignored a notice about an older deployment");
        }
        match notice {
            Notice::FirstBoot(boot) => self.first_boot(*boot).await,
            Notice::PoweredOn(host) => self.power_on(&host),
            Notice::PoweredOff(host) => {
                if let Some(system) = self.running.get_mut(&host.system_id) {
                    system.stop().await;
                }
            }
            Notice::Released(host) => {
                if let Some(mut system) = self.running.remove(&host.system_id) {
                    system.stop().await;
                    let (root, disks) = (self.root(&host), self.data_disks(&host));
                    process_host::keep_data_disks(&root, &disks);
                    self.remove_folder(&host);
                }
            }
            Notice::Erased(host) => process_host::erase_data_disks(&self.data_disks(&host)),
        }
    }

    async fn first_boot(&mut self, boot: FirstBoot) {
        if let Some(mut old) = self.running.remove(&boot.host.system_id) {
            old.stop().await;
        }
        if self.options.mode == HostMode::None {
            let (file, host) = (self.root(&boot.host).join(USER_DATA), &boot.host.hostname);
            if let Err(error) = keep_user_data(&file, &boot.user_data) {
                tracing::warn!(%host, %error, "cannot store the host's user-data");
            }
            return;
        }
        let data = match parse_user_data(&boot.user_data) {
            Ok(data) => data,
            Err(error) => {
                let host = boot.host.hostname;
                return tracing::warn!(%host, %error, "the host was deployed without GPUaaS user-data");
            }
        };
        let foreign = self.foreign_scripts(&boot.host, &data);
        if !foreign.is_empty() {
            let (host, foreign) = (boot.host.hostname, foreign.join(", "));
            return tracing::warn!(
                %host, foreign,
                "did not run scripts from other sources; allow them with --run-any-scripts"
            );
        }
        let FirstBoot { user_data, metadata, .. } = boot;
        let deployment = boot.host.deployment;
        let mut system =
            RunningSystem { deployment, data, user_data, metadata, running_task: None };
        system.running_task = Some(self.spawn(&boot.host, &system, true));
        self.running.insert(boot.host.system_id, system);
    }

    /// Names of the scripts that this host would run on this machine and that are not ours.
    fn foreign_scripts<'a>(&self, host: &HostRef, data: &'a ParsedUserData) -> Vec<&'a str> {
        let is_real = self.options.real_hosts.contains(&host.hostname);
        if self.options.any_scripts || (self.fleet.is_some() && !is_real) {
            return Vec::new();
        }
        data.foreign_scripts()
    }

    /// cloud-init runs the scripts once per instance; at a later boot only the agent starts.
    fn power_on(&mut self, host: &HostRef) {
        let Some(mut system) = self.running.remove(&host.system_id) else { return };
        if system.running_task.is_none() {
            system.running_task = Some(self.spawn(host, &system, false));
        }
        self.running.insert(host.system_id.clone(), system);
    }

    fn spawn(
        &self,
        host: &HostRef,
        system: &RunningSystem,
        first: bool,
    ) -> (CancellationToken, JoinHandle<()>) {
        let stop = self.stop.child_token();
        let root = self.root(host);
        let data = &system.data;
        if let Some(machine) = self.systemd_host(host, system, &root) {
            return (stop.clone(), tokio::spawn(systemd_host::run_host(machine, stop)));
        }
        let task = match &self.fleet {
            Some(fleet) => {
                tokio::spawn(fleet.host(&host.hostname, data, &root, first, stop.clone()))
            }
            None => {
                let machine = process_host::ProcessHost {
                    root,
                    data_disks: self.data_disks(host),
                    data: data.clone(),
                    kernel_options: system.metadata.kernel_options.clone(),
                    losses: self.losses(host).collect(),
                    emulator: Arc::clone(&self.emulator),
                    pace: self.pace(&host.hostname),
                };
                tokio::spawn(process_host::run_host(machine, first, stop.clone()))
            }
        };
        (stop, task)
    }

    /// How time goes on the host.
    fn pace(&self, hostname: &str) -> HostPace {
        let HostsOptions { clock, seed, times, .. } = &self.options;
        HostPace::new(clock.clone(), self.pauser.clone(), times.draw(*seed, hostname))
    }

    /// What the host loses.
    fn losses(&self, host: &HostRef) -> impl Iterator<Item = Loss> {
        self.options.lost.iter().filter(|lost| lost.host == host.hostname).map(|lost| lost.loss)
    }

    /// The host as a real one, where it is to be that.
    fn systemd_host(
        &self,
        host: &HostRef,
        system: &RunningSystem,
        root: &Path,
    ) -> Option<Arc<systemd_host::SystemdHost>> {
        let factory =
            self.factory.as_ref().filter(|_| self.options.real_hosts.contains(&host.hostname))?;
        let mut metadata = system.metadata.clone();
        // Its other hardware is a tree that no one takes anything from.
        if self.losses(host).any(|loss| loss == Loss::KernelOptions) {
            metadata.kernel_options.clear();
        }
        Some(Arc::new(systemd_host::SystemdHost {
            factory: Arc::clone(factory),
            folder: root.to_owned(),
            hostname: host.hostname.clone(),
            metadata,
            user_data: system.user_data.clone(),
            control_plane_url: system.data.inputs.control_plane_url.clone(),
        }))
    }

    /// Folder of what is on a machine's data disks between two deployments.
    fn data_disks(&self, host: &HostRef) -> PathBuf {
        self.options.dir.join(&host.system_id).join("data-disks")
    }

    fn root(&self, host: &HostRef) -> PathBuf {
        self.options.dir.join(&host.system_id).join(host.deployment.to_string())
    }

    /// A released disk holds nothing of use; logs of a host's scripts stay for reading.
    fn remove_folder(&self, host: &HostRef) {
        if self.fleet.is_some()
            && let Err(error) = std::fs::remove_dir_all(self.root(host))
            && error.kind() != std::io::ErrorKind::NotFound
        {
            tracing::debug!(%error, host = %host.hostname, "cannot remove the host's folder");
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    #[test]
    fn user_data_is_kept_for_its_own_user_alone() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("abc123/2").join(USER_DATA);
        for text in [&b"a first deployment"[..], b"another"] {
            keep_user_data(&file, text).unwrap();
            assert_eq!(std::fs::read(&file).unwrap(), text);
        }
        assert_eq!(std::fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);
        assert_eq!(std::fs::read_dir(file.parent().unwrap()).unwrap().count(), 1);
    }
}
