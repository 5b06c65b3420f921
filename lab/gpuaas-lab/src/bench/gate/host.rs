//! The host that the benchmark breaks: a folder that the bundles configured, and a program that
//! answers for its kernel and its daemons (`bundles/fixture`).

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use gpuaas_artifact::read_folder;
use gpuaas_client::failure::Failure;
use gpuaas_node_agent::bundle::{self, BundleContext, gate};
use gpuaas_node_agent::host::Host;
use gpuaas_node_agent::operate;
use gpuaas_node_agent::paths::INSTALLED_BUNDLES;
use gpuaas_types::agent::{Gate, GateReport, Operation, ServiceAction, TaskResult};
use gpuaas_types::codes::CommandCode;
use gpuaas_types::spec::SLICE_TAG;
use host_facts::HostRoot;
use tempfile::TempDir;
use tokio::process::Command;
use tokio::time::timeout;

use super::mutation::HostChange;

const SLICE: &str = "h200-slice-vm";
const FABRIC_ADDRESS: &str = "192.168.36.100/24";
const BASELINE: &str = "h200-ib";
/// What the node bootstrap leaves of the agent, for the program that plays systemd.
const AGENT_UNIT: &str = "gpuaas-node-agent.service";
/// What making a host needs beside bash (bundles/fixture/make-host.sh, the data disks' phase).
const TOOLS: [&str; 4] = ["bash", "mkfs.ext4", "blkid", "wipefs"];
/// Making or starting a host is a second's work.
const COMMAND_SECONDS: u64 = 120;

/// What a host is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Role {
    /// Its GPUs are its guests'.
    Slice,
    /// Its GPUs are its own.
    BareMetal,
}

impl Role {
    /// The bundle that it is given, with what that requires.
    const fn bundle(self) -> &'static str {
        match self {
            Self::Slice => SLICE,
            Self::BareMetal => BASELINE,
        }
    }

    /// The tags that a run gives its machine (docs/hosts.md#slice-hosts).
    fn tags(self) -> Vec<String> {
        match self {
            Self::Slice => vec![SLICE_TAG.to_owned()],
            Self::BareMetal => Vec::new(),
        }
    }
}

/// A host as a folder.
pub(super) struct TestHost {
    dir: TempDir,
    player: PathBuf,
    role: Role,
    /// Tags of its machine in MAAS.
    tags: RefCell<Vec<String>>,
    /// The host that it is a copy of.
    original: Option<PathBuf>,
}

impl TestHost {
    /// A ready host, from the bundles and the fixture in `source`.
    pub(super) async fn make(source: &Path, role: Role) -> Result<Self, Failure> {
        let source = fs::canonicalize(source)
            .ok()
            .filter(|folder| folder.join("fixture/make-host.sh").is_file())
            .ok_or_else(|| {
                let text = format!(
                    "{} does not contain the bundles and their test fixture",
                    source.display()
                );
                Failure::local(CommandCode::BundlesNotFound, text).hint(
                    "run the command in the repository, or pass its bundles folder with --bundles",
                )
            })?;
        let missing: Vec<&str> = TOOLS.into_iter().filter(|tool| !installed(tool)).collect();
        if !missing.is_empty() {
            let text = format!("missing tools: {}", missing.join(", "));
            return Err(Failure::local(CommandCode::ToolsMissing, text)
                .hint("install bash, e2fsprogs and util-linux"));
        }
        let dir = tempfile::tempdir().map_err(|error| unavailable(&error))?;
        let tags = RefCell::new(role.tags());
        let host = Self { dir, player: source.join("fixture/kernel"), role, tags, original: None };
        let mut make = Command::new("bash");
        make.arg(source.join("fixture/make-host.sh")).arg(host.root());
        ended_well(make).await.map_err(|error| unavailable(&error))?;
        host.run_fixture(&["cold"]).await.map_err(|error| unavailable(&error))?;
        // A curated image embeds both, whatever the host is for.
        for name in [BASELINE, SLICE] {
            let archive = read_folder(&source.join(name)).map_err(|error| unavailable(&error))?;
            archive.unpack(&host.installed(name)).map_err(|error| unavailable(&error))?;
        }
        host.bootstrap().await.map_err(|error| unavailable(&error))?;
        host.install_agent().map_err(|error| unavailable(&error))?;
        host.run_fixture(&["boot"]).await.map_err(|error| unavailable(&error))?;
        // No check looks at them, and every copy would carry them along.
        fs::remove_dir_all(host.root().join("dev")).map_err(|error| unavailable(&error))?;
        Ok(host)
    }

    /// The same host once more.
    pub(super) fn copy(&self) -> Result<Self, Failure> {
        let dir = tempfile::tempdir().map_err(|error| unavailable(&error))?;
        let (player, tags) = (self.player.clone(), self.tags.clone());
        let original = Some(self.root());
        let copy = Self { dir, player, role: self.role, tags, original };
        copy_tree(&self.root(), &copy.root()).map_err(|error| unavailable(&error))?;
        Ok(copy)
    }

    /// A gate's verdict: what the agent on the host says, with what MAAS says of the machine of a
    /// slice host.
    pub(super) async fn gate(&self, gate: Gate) -> Result<GateReport, Failure> {
        let host = Host::at(HostRoot::new(self.root()), Some(self.player.clone()));
        let report = gate::evaluate(gate, &host).await.map_err(|error| unavailable(&error))?;
        Ok(match (self.role, gate) {
            (Role::Slice, Gate::SliceReady) => {
                report.with_machine_tag(SLICE_TAG, Some(&self.tags.borrow()))
            }
            _ => report,
        })
    }

    /// Has the agent on the host do what an operator orders.
    pub(super) async fn carry_out(&self, operation: &Operation) -> TaskResult {
        let host = Host::at(HostRoot::new(self.root()), Some(self.player.clone()));
        operate::carry_out(&host, operation).await
    }

    /// Makes a file or link what it is on the ready host.
    fn restore(&self, path: &str) -> io::Result<()> {
        let original =
            self.original.as_ref().ok_or_else(|| io::Error::other("this host is not a copy"))?;
        let (from, to) = (original.join(path.trim_start_matches('/')), self.at(path));
        if fs::symlink_metadata(&to).is_ok() {
            fs::remove_file(&to)?;
        }
        if fs::symlink_metadata(&from)?.is_symlink() {
            return std::os::unix::fs::symlink(fs::read_link(&from)?, to);
        }
        fs::copy(from, to).map(drop)
    }

    /// Changes the host.
    pub(super) async fn change(&self, change: &HostChange) -> io::Result<()> {
        match change {
            HostChange::Remove(path) => fs::remove_file(self.at(path)),
            HostChange::Write(path, text) => {
                let path = self.at(path);
                fs::create_dir_all(path.parent().unwrap_or(Path::new("/")))?;
                fs::write(path, text)
            }
            HostChange::Replace(path, from, to) => {
                let text = fs::read_to_string(self.at(path))?;
                if !text.contains(from) {
                    return Err(io::Error::other(format!("{path} does not contain {from:?}")));
                }
                fs::write(self.at(path), text.replace(from, to))
            }
            HostChange::Link(path, target) => match fs::remove_file(self.at(path)) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
                _ => {
                    let path = self.at(path);
                    fs::create_dir_all(path.parent().unwrap_or(Path::new("/")))?;
                    std::os::unix::fs::symlink(target, path)
                }
            },
            HostChange::Byte(path, at, value) => {
                let mut bytes = fs::read(self.at(path))?;
                *bytes.get_mut(*at).ok_or_else(|| io::Error::other("the file is too short"))? =
                    *value;
                fs::write(self.at(path), bytes)
            }
            HostChange::Cut(path, length) => {
                let bytes = fs::read(self.at(path))?;
                fs::write(self.at(path), &bytes[..bytes.len().min(*length)])
            }
            HostChange::Restore(path) => self.restore(path),
            HostChange::Restart(unit) => {
                let (action, unit) = (ServiceAction::Restart, (*unit).to_owned());
                let result = self.carry_out(&Operation::Service { action, unit }).await;
                if result.succeeded { Ok(()) } else { Err(io::Error::other(result.message)) }
            }
            HostChange::Play(arguments) => self.run_fixture(arguments).await,
            HostChange::Bootstrap => self.bootstrap().await,
            HostChange::Tags(tags) => {
                self.tags.replace(tags.iter().map(|tag| (*tag).to_owned()).collect());
                Ok(())
            }
        }
    }

    /// The agent's unit, which starts at boot.
    fn install_agent(&self) -> io::Result<()> {
        let unit = format!("/usr/lib/systemd/system/{AGENT_UNIT}");
        fs::write(self.at(&unit), "[Install]\nWantedBy=multi-user.target\n")?;
        let wants = self.at("/etc/systemd/system/multi-user.target.wants");
        fs::create_dir_all(&wants)?;
        std::os::unix::fs::symlink(unit, wants.join(AGENT_UNIT))
    }

    /// The host's bundle, and what it requires, through the launcher.
    async fn bootstrap(&self) -> io::Result<()> {
        // The link has a narrower network than the fabric, so that the fabric's route is seen apart
        // from the link's own.
        let environment = [
            ("GPUAAS_FIXTURE_KERNEL", self.player.to_string_lossy().into_owned()),
            ("GPUAAS_SLICE_IPOIB_ADDRESSES", FABRIC_ADDRESS.to_owned()),
            ("H200_IPOIB_ADDRESSES", FABRIC_ADDRESS.to_owned()),
            ("GPUAAS_SLICE_FABRIC_LINKS", "8".to_owned()),
            ("H200_FABRIC_LINKS", "8".to_owned()),
            ("H200_REQUIRE_HW_SYNC", "1".to_owned()),
            ("GPUAAS_SLICE_REQUIRE_HW_SYNC", "1".to_owned()),
        ];
        let context = BundleContext {
            root: self.root(),
            bundles: self.at(INSTALLED_BUNDLES),
            hostname: "j22u11".to_owned(),
            environment: BTreeMap::from(environment.map(|(name, text)| (name.to_owned(), text))),
            ..BundleContext::default()
        };
        let report = bundle::run(&self.installed(self.role.bundle()), &context).await;
        let report = report.map_err(io::Error::other)?;
        if report.ended_well() { Ok(()) } else { Err(io::Error::other(report.summary())) }
    }

    async fn run_fixture(&self, arguments: &[&str]) -> io::Result<()> {
        let mut command = Command::new(&self.player);
        command.args(arguments).env("GPUAAS_HOST_ROOT", self.root());
        command.env("GPUAAS_SYSFS", self.at("/sys")).env("GPUAAS_FIXTURE_KERNEL", &self.player);
        ended_well(command).await
    }

    fn root(&self) -> PathBuf {
        self.dir.path().join("root")
    }

    fn at(&self, path: &str) -> PathBuf {
        self.root().join(path.trim_start_matches('/'))
    }

    fn installed(&self, name: &str) -> PathBuf {
        self.at(INSTALLED_BUNDLES).join(name)
    }
}

fn unavailable(error: &dyn std::fmt::Display) -> Failure {
    Failure::local(CommandCode::TestHostUnavailable, error.to_string())
}

fn installed(tool: &str) -> bool {
    let folders = ["/usr/local/sbin", "/usr/local/bin", "/usr/sbin", "/usr/bin", "/sbin", "/bin"];
    folders.iter().any(|folder| Path::new(folder).join(tool).is_file())
}

async fn ended_well(mut command: Command) -> io::Result<()> {
    let output = command.stdin(Stdio::null()).kill_on_drop(true).output();
    let output = timeout(Duration::from_secs(COMMAND_SECONDS), output).await.map_err(|_| {
        io::Error::other(format!("the command did not finish within {COMMAND_SECONDS} s"))
    })??;
    if output.status.success() {
        return Ok(());
    }
    let reported = String::from_utf8_lossy(&output.stderr).trim().to_owned();
    Err(io::Error::other(format!("the command failed with {}: {reported}", output.status)))
}

/// Folders, files with their modes, and links as they are.
fn copy_tree(from: &Path, to: &Path) -> io::Result<()> {
    fs::create_dir_all(to)?;
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        let (kind, target) = (entry.file_type()?, to.join(entry.file_name()));
        if kind.is_dir() {
            copy_tree(&entry.path(), &target)?;
        } else if kind.is_symlink() {
            std::os::unix::fs::symlink(fs::read_link(entry.path())?, target)?;
        } else {
            fs::copy(entry.path(), target)?;
        }
    }
    Ok(())
}
