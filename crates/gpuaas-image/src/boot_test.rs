//! Boots a finished archive twice: as a container, and as a machine with UEFI firmware.
//!
//! The archive is unpacked as curtin does it, gets its fstab, grub's defaults and its initial file system
//! (`assets/boot-test-prepare.sh`), and is put on a disk with an EFI system partition and a root. That disk
//! is booted with the image's own kernel, whose first process installs the boot loader
//! (`assets/boot-test-install.sh`); then by firmware, shim, grub and kernel, without anything
//! from outside. What was unpacked is booted under systemd-nspawn meanwhile. Both systems find a
//! user-data of cloud-init, which has them say what they have become (`assets/boot-test-report.sh`).
//!
//! The machine is emulated (TCG): no processor feature of this one is needed, and a minute of it is some
//! seconds of hardware.

mod container;
mod disk;
mod error;
mod judgement;
mod machine;
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

use crate::command::Tool;
use crate::plan::BUILD_RECORD;
use crate::tree_path::below;
use container::boot_container;
use disk::MachineDisk;
use judgement::judge;
use machine::Firmware;
use outcome::{SEED, SystemReports};

/// Seconds that unpacking may take.
const UNPACK_SECONDS: u64 = 1800;
/// Programs that a boot test runs, with the package of Debian that each is in.
const TOOLS: [(&str, &str); 8] = [
    ("tar", "tar"),
    ("unshare", "util-linux"),
    ("sfdisk", "fdisk"),
    ("mkfs.ext4", "e2fsprogs"),
    ("mkfs.vfat", "dosfstools"),
    ("systemd-nspawn", "systemd-container"),
    ("qemu-system-x86_64", "qemu-system-x86"),
    ("truncate", "coreutils"),
];
const FOLDERS: [&str; 4] = ["/usr/bin", "/usr/sbin", "/bin", "/sbin"];

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
/// [`BootTestError::ToolMissing`], [`BootTestError::NotRoot`].
pub fn check_host() -> Result<(), BootTestError> {
    if !rustix::process::geteuid().is_root() {
        return Err(BootTestError::NotRoot(rustix::process::geteuid().as_raw()));
    }
    let is_there = |tool: &str| FOLDERS.iter().any(|folder| Path::new(folder).join(tool).exists());
    if let Some((tool, package)) = TOOLS.iter().find(|(tool, _)| !is_there(tool)) {
        return Err(BootTestError::ToolMissing { tool, package });
    }
    Firmware::find().map(|_| ())
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
    let disk = MachineDisk::make(scratch.path(), &tree)?;
    let firmware = Firmware::find()?;
    // The disk has the image as it was unpacked; the container may change the folder from here on.
    let reports = thread::scope(|scope| {
        let container = scope.spawn(|| boot_container(&tree));
        let machine = disk.deploy_and_boot(&firmware, scratch.path());
        let container = container.join().unwrap_or_else(|_| {
            Err(BootTestProblem::new("container_not_booted", "the thread of the container ended"))
        });
        SystemReports { container, machine }
    });
    let mut outcome = judge(reports, &arguments, left);
    outcome.digest = digest;
    Ok(outcome)
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
    write("install", include_str!("../assets/boot-test-install.sh"), 0o755)?;
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
