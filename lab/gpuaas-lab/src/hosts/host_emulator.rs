//! Emulates the hardware and the kernel of a simulated host: an H200 server's files, and a program
//! that answers for its kernel and its daemons. Both are the fixture that the bundles are tested
//! with, so the lab's hosts run the same bundles as real hosts.

use std::io;
use std::path::{Path, PathBuf};
use std::process::{Output, Stdio};
use std::time::Duration;

use tokio::process::Command;
use tokio::sync::OnceCell;
use tokio::time::timeout;

use super::options::Loss;
use crate::slice_host::{EMULATOR, EmulatedSliceHost, furnish};

/// Names the program to whatever runs on a host.
pub(super) const VARIABLE: &str = "GPUAAS_FIXTURE_KERNEL";
const MAKE_HOST: &str = include_str!("../../../../bundles/fixture/make-host.sh");
const KERNEL: &str = include_str!("../../../../bundles/fixture/kernel");
/// A host's curl: see `host_pace`.
const CURL: &str = include_str!("host_curl.sh");
/// What asks whom of the two programs that play a host.
const PROGRAM: &str = include_str!("host_program.sh");
/// Name of the program to whatever runs on a host.
const PROGRAM_NAME: &str = "host";
/// What the boot loader of a stock image starts the kernel with.
const COMMAND_LINE: &str = "BOOT_IMAGE=/boot/vmlinuz root=UUID=0 ro";
/// Where curtin puts the kernel options that a deployment carried, for update-grub.
const CURTIN_GRUB: &str = "etc/default/grub.d/50-curtin-settings.cfg";
/// What is missing on the host of docs/hosts.md#incomplete-slice-host.
const LOSE_FABRIC: &str = r#"
rm -f -- "$GPUAAS_HOST_ROOT/etc/netplan/60-ipoib.yaml"
rm -f -- "$GPUAAS_HOST_ROOT"/run/fixture/{addresses,routes}/ibp*
"$GPUAAS_FIXTURE_KERNEL" cold
"$GPUAAS_FIXTURE_KERNEL" lose active gpuaas-slice-network-baseline.service
"#;
/// The second of the eight.
const LOSE_GPU: &str = r#""$GPUAAS_FIXTURE_KERNEL" unplug 0000:23:00.0"#;
/// Where a host's programs are: cloud-init's own PATH.
pub(super) const PROGRAMS_PATH: &str =
    "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";
/// Making a host is a second's work.
const COMMAND_SECONDS: u64 = 120;

/// Makes hosts and plays them.
#[derive(Debug)]
pub(super) struct HostEmulator {
    dir: PathBuf,
    fresh: OnceCell<()>,
    programs_written: OnceCell<()>,
}

impl HostEmulator {
    /// One that keeps its files in `dir`.
    pub(super) fn new(hosts: &Path) -> Self {
        let dir = hosts.join(".player");
        Self { dir, fresh: OnceCell::new(), programs_written: OnceCell::new() }
    }

    /// The program.
    pub(super) fn program(&self) -> PathBuf {
        self.dir.join(PROGRAM_NAME)
    }

    /// Folder of the programs that a host has in the place of this machine's.
    pub(super) fn programs(&self) -> PathBuf {
        self.dir.join("bin")
    }

    /// Writes those programs.
    pub(super) async fn prepare_programs(&self) -> io::Result<()> {
        let write = || async {
            std::fs::create_dir_all(self.programs())?;
            write_program(&self.programs().join("curl"), CURL)
        };
        self.programs_written.get_or_try_init(write).await.copied()
    }

    /// Gets ready to make hosts, before the first one is wanted.
    pub(super) async fn prepare_in_advance(&self) {
        if let Err(error) = self.fresh.get_or_try_init(|| self.prepare()).await {
            tracing::warn!(%error, "cannot prepare a host with a bundle");
        }
    }

    /// Makes `root` a host called `hostname` on which nothing has run yet, deployed with these
    /// options of its kernel.
    pub(super) async fn make(
        &self,
        root: &Path,
        hostname: &str,
        kernel_options: &str,
    ) -> io::Result<()> {
        self.fresh.get_or_try_init(|| self.prepare()).await?;
        std::fs::create_dir_all(root)?;
        let mut copy = Command::new("cp");
        copy.arg("-a").arg(self.dir.join("fresh/.")).arg(root);
        run_to_success(copy).await?;
        if !kernel_options.is_empty() {
            let grub = format!("GRUB_CMDLINE_LINUX_DEFAULT=\"{kernel_options}\"\n");
            std::fs::write(root.join(CURTIN_GRUB), grub)?;
        }
        EmulatedSliceHost::at(root).attach_drives()?;
        let line = format!("{COMMAND_LINE} {kernel_options}");
        std::fs::write(root.join("proc/cmdline"), format!("{}\n", line.trim_end()))?;
        // The kernel takes its pages at the boot, and no later.
        let mut boot = Command::new("bash");
        boot.arg(self.program()).arg("pages").env("GPUAAS_HOST_ROOT", root);
        run_to_success(boot).await?;
        std::fs::write(root.join("etc/hostname"), format!("{hostname}\n"))
    }

    /// Made once, copied for each host.
    async fn prepare(&self) -> io::Result<()> {
        let fresh = self.dir.join("fresh");
        std::fs::create_dir_all(&fresh)?;
        for (name, text) in [
            ("make-host.sh", MAKE_HOST),
            ("kernel", KERNEL),
            ("emulator", EMULATOR),
            (PROGRAM_NAME, PROGRAM),
        ] {
            write_program(&self.dir.join(name), text)?;
        }
        let mut make = Command::new("bash");
        make.arg(self.dir.join("make-host.sh")).arg(&fresh);
        run_to_success(make).await?;
        // Netplan's files bring the fabric's links up, and there are none yet.
        let mut cold = Command::new(self.program());
        cold.arg("cold").env("GPUAAS_HOST_ROOT", &fresh).env("GPUAAS_SYSFS", fresh.join("sys"));
        run_to_success(cold).await?;
        // Whoever asks for this unit is its process.
        let active = fresh.join("run/fixture/active");
        std::fs::create_dir_all(&active)?;
        std::fs::write(active.join("gpuaas-node-agent.service"), "")?;
        // Disks of the size of real ones would be copied along, and nobody formats them here.
        std::fs::remove_dir_all(fresh.join("dev"))?;
        furnish(&fresh).map(drop)
    }

    /// Takes something from the host.
    pub(super) async fn apply_loss(&self, root: &Path, loss: Loss) -> io::Result<()> {
        let script = match loss {
            Loss::Fabric => LOSE_FABRIC,
            Loss::Gpu => LOSE_GPU,
            // The host is made without them.
            Loss::KernelOptions => return Ok(()),
        };
        let mut lose = Command::new("bash");
        lose.args(["-c", script]).env("GPUAAS_HOST_ROOT", root).env(VARIABLE, self.program());
        run_to_success(lose).await
    }
}

fn write_program(path: &Path, text: &str) -> io::Result<()> {
    use std::os::unix::fs::PermissionsExt as _;
    std::fs::write(path, text)?;
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o755))
}

async fn run_to_success(mut command: Command) -> io::Result<()> {
    command.env("LC_ALL", "C").stdin(Stdio::null()).kill_on_drop(true);
    // mkfs is no command for everyone.
    command.env("PATH", PROGRAMS_PATH);
    let limit = Duration::from_secs(COMMAND_SECONDS);
    let late = |_| io::Error::from(io::ErrorKind::TimedOut);
    let Output { status, stderr, .. } = timeout(limit, command.output()).await.map_err(late)??;
    if status.success() {
        return Ok(());
    }
    let stderr_text = String::from_utf8_lossy(&stderr);
    Err(io::Error::other(format!("{status}: {}", stderr_text.lines().last().unwrap_or_default())))
}
