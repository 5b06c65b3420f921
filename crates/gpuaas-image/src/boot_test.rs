//! Boots a finished archive twice: as a container, and as a machine with UEFI firmware.
//!
//! The archive is unpacked as curtin does it, gets grub's defaults, and is put on a disk with its boot loader
//! ([`crate::machine_disk`]), which is booted by firmware, shim, grub and kernel, without anything
//! from outside. What was unpacked is booted under systemd-nspawn meanwhile. Both systems find a
//! user-data of cloud-init, which has them say what they have become (`assets/boot-test-report.sh`).
//!
//! The machine is emulated: a minute of it is some seconds of hardware.

mod container;
mod error;
mod judgement;
mod outcome;
mod report;

use std::fs::{self, Permissions};
use std::io;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::thread;

use serde_json::Value;

pub use error::BootTestError;
pub use outcome::{BootTestOutcome, BootTestProblem};

use crate::command::{Tool, need_root_and};
use crate::machine_disk::{self, Firmware, MachineDisk, MachineDiskRequest, kernels_of};
use crate::plan::BUILD_RECORD;
use crate::tree_path::below;
use container::boot_container;
use judgement::judge;
use outcome::{SEED, SystemReports};
use report::SystemReport;

/// Seconds that unpacking may take.
const UNPACK_SECONDS: u64 = 1800;
/// Programs that a boot test runs, beside those that make a disk.
const TOOLS: [&str; 2] = ["tar", "systemd-nspawn"];
/// The arguments of MAAS take the place of whatever the image has there; here they are what a machine of
/// software with a serial console needs.
const GRUB_DEFAULTS: &str = r#"GRUB_CMDLINE_LINUX_DEFAULT="console=ttyS0 no_timer_check panic=-1"
GRUB_DISABLE_OS_PROBER="true"
GRUB_TERMINAL="console""#;

/// What to boot.
#[derive(Debug, Clone)]
pub struct BootTestRequest {
    /// The archive.
    pub file: PathBuf,
    /// Folder for what is unpacked and for the disk, which are deleted at the end.
    pub scratch: PathBuf,
    /// Arguments that the kernel has to have, beside those of the image's record.
    pub kernel_arguments: Vec<String>,
}

/// What keeps this machine from testing.
///
/// # Errors
/// [`BootTestError::Tool`]: a program is missing, or who asks is not root.
pub fn check_host() -> Result<(), BootTestError> {
    need_root_and(&TOOLS)?;
    need_root_and(&machine_disk::TOOLS)?;
    Firmware::find()?;
    Ok(())
}

/// Boots an archive.
///
/// # Errors
/// [`BootTestError`], where it was not seen how it boots. What boots badly is an outcome.
pub fn boot_test(request: &BootTestRequest) -> Result<BootTestOutcome, BootTestError> {
    check_host()?;
    let digest = crate::stream_digest::stream_digest(fs::File::open(&request.file)?)?;
    let scratch = tempfile::Builder::new().prefix("boot-test-").tempdir_in(&request.scratch)?;
    let tree = scratch.path().join("tree");
    fs::create_dir(&tree)?;
    unpack(&request.file, &tree)?;
    let arguments = kernel_arguments(&tree, request)?;
    let left = identity_left(&tree);
    seed(&tree)?;
    let [kernel] = <[_; 1]>::try_from(kernels_of(&tree)?)
        .map_err(|kernels| BootTestError::Kernels(kernels.len()))?;
    let disk = MachineDisk::make(MachineDiskRequest {
        scratch: scratch.path(),
        tree: &tree,
        kernel,
        grub_defaults: Some(GRUB_DEFAULTS),
    })?;
    let firmware = Firmware::find()?;
    // The disk has the image as it was unpacked; the container may change the folder from here on.
    let reports = thread::scope(|scope| {
        let container = scope.spawn(|| boot_container(&tree));
        let machine = boot_machine(&disk, &firmware);
        let container = container.join().unwrap_or_else(|_| {
            Err(BootTestProblem::new("container_not_booted", "the container thread ended early"))
        });
        SystemReports { container, machine }
    });
    let mut outcome = judge(reports, &arguments, left);
    outcome.digest = digest;
    Ok(outcome)
}

/// Installs the boot loader as curtin does before a first boot, then boots the disk until it has reported.
fn boot_machine(disk: &MachineDisk, firmware: &Firmware) -> Result<SystemReport, BootTestProblem> {
    disk.install_boot_loader(firmware, false)
        .map_err(|error| BootTestProblem::new("loader_not_installed", error.to_string()))?;
    let not_booted = |detail: String| BootTestProblem::new("machine_not_booted", detail);
    let ports = disk.boot(firmware).map_err(|error| not_booted(error.to_string()))?;
    SystemReport::parse(&ports.second)
        .ok_or_else(|| not_booted(ports.failure("the machine did not report")))
}

/// As curtin does it (`curtin/commands/extract.py`).
fn unpack(file: &Path, tree: &Path) -> Result<(), BootTestError> {
    let tool = Tool::plain("unpack the archive", "tar", UNPACK_SECONDS).arg("-C").arg(tree);
    let tool = tool.arg("--xattrs").arg("--xattrs-include=*").arg("-Sxpzf").arg(file);
    tool.arg("--numeric-owner").run()?;
    Ok(())
}

/// Arguments that the kernel has to have: those of the image's record, then the request's.
fn kernel_arguments(tree: &Path, request: &BootTestRequest) -> io::Result<Vec<String>> {
    let record = match fs::read_to_string(below(tree, BUILD_RECORD)?) {
        Ok(text) => serde_json::from_str(&text).unwrap_or(Value::Null),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Value::Null,
        Err(error) => return Err(error),
    };
    let recorded = record["kernel_arguments"].as_str().unwrap_or_default().split_whitespace();
    Ok(recorded.map(str::to_owned).chain(request.kernel_arguments.iter().cloned()).collect())
}

/// What the archive has of one machine's identity.
fn identity_left(tree: &Path) -> Vec<String> {
    let mut left = Vec::new();
    if fs::read_to_string(tree.join("etc/machine-id")).is_ok_and(|id| !id.trim().is_empty()) {
        left.push("/etc/machine-id".to_owned());
    }
    let entries = fs::read_dir(tree.join("etc/ssh")).into_iter().flatten().flatten();
    let names = entries.map(|entry| entry.file_name().to_string_lossy().into_owned());
    let keys = names.filter(|name| name.starts_with("ssh_host_"));
    left.extend(keys.map(|name| format!("/etc/ssh/{name}")));
    left
}

/// What a deployment leaves for cloud-init: where its data is, and a program that reports.
fn seed(tree: &Path) -> Result<(), BootTestError> {
    let folder = below(tree, SEED)?;
    fs::create_dir_all(&folder)?;
    let write = |name: &str, text: &str, mode: u32| -> io::Result<()> {
        let path = folder.join(name);
        fs::write(&path, text)?;
        fs::set_permissions(&path, Permissions::from_mode(mode))
    };
    write("meta-data", "instance-id: boot-test\nlocal-hostname: boot-test\n", 0o644)?;
    write(
        "network-config",
        "version: 2\nethernets:\n  first:\n    match: {driver: virtio_net}\n    dhcp4: true\n",
        0o644,
    )?;
    write("user-data", &user_data(), 0o600)?;
    write("report", include_str!("../assets/boot-test-report.sh"), 0o755)?;
    let settings = below(tree, "/etc/cloud/cloud.cfg.d/90_boot_test.cfg")?;
    if let Some(folder) = settings.parent() {
        fs::create_dir_all(folder)?;
    }
    fs::write(settings, "datasource_list: [NoCloud]\n")?;
    Ok(())
}

/// The report is a unit of its own, so that the system does not wait for it to be up. A machine has a
/// second serial port for it, a container a file.
fn user_data() -> String {
    let start = format!(
        "if systemd-detect-virt --quiet --container; then to={SEED}/reported; else to=/dev/ttyS1; fi; \
         systemd-run --no-block --unit=gpuaas-boot-test {SEED}/report $to"
    );
    format!("#cloud-config\nlocale: C.UTF-8\nruncmd:\n- [sh, -c, \"{start}\"]\n")
}
