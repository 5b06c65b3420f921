//! The image as a machine: firmware, shim, grub, kernel, systemd.

use std::fs;
use std::path::{Path, PathBuf};

use super::container::tail;
use super::disk::MachineDisk;
use super::error::BootTestError;
use super::outcome::{BootTestProblem, SEED};
use super::report::SystemReport;
use crate::command::{Tool, ToolError};

/// Seconds that a machine may take for what curtin does, and then for its boot.
const MACHINE_SECONDS: u64 = 900;
/// UEFI for QEMU, as distributions have it: its code, and its variables.
const FIRMWARE: [(&str, &str); 4] = [
    ("/usr/share/OVMF/OVMF_CODE_4M.fd", "/usr/share/OVMF/OVMF_VARS_4M.fd"),
    ("/usr/share/OVMF/OVMF_CODE.fd", "/usr/share/OVMF/OVMF_VARS.fd"),
    ("/usr/share/edk2/ovmf/OVMF_CODE.fd", "/usr/share/edk2/ovmf/OVMF_VARS.fd"),
    ("/usr/share/edk2/x64/OVMF_CODE.4m.fd", "/usr/share/edk2/x64/OVMF_VARS.4m.fd"),
];

/// UEFI firmware for an emulated machine.
#[derive(Debug, Clone, Copy)]
pub(super) struct Firmware {
    code: &'static str,
    variables: &'static str,
}

impl Firmware {
    /// The one of this host.
    pub(super) fn find() -> Result<Self, BootTestError> {
        let is_there = |(code, variables): &&(&str, &str)| {
            Path::new(code).exists() && Path::new(variables).exists()
        };
        let found = FIRMWARE.iter().find(is_there);
        let missing =
            BootTestError::ToolMissing { tool: "UEFI firmware for QEMU", package: "ovmf" };
        found.map(|&(code, variables)| Self { code, variables }).ok_or(missing)
    }
}

/// What a machine wrote to its serial ports.
struct SerialPorts {
    console: String,
    second: String,
    /// Whether it ended by itself.
    ended: Result<(), ToolError>,
}

impl MachineDisk {
    /// Does what curtin does before a first boot, then boots the disk until it has reported.
    pub(super) fn deploy_and_boot(
        &self,
        firmware: &Firmware,
        scratch: &Path,
    ) -> Result<SystemReport, BootTestProblem> {
        let not_installed = |detail: String| BootTestProblem::new("loader_not_installed", detail);
        // Whoever installs the boot loader writes an entry into the firmware's variables.
        let variables = scratch.join("variables");
        fs::copy(firmware.variables, &variables)
            .map_err(|error| not_installed(error.to_string()))?;
        let arguments = format!(
            "console=ttyS0 root=UUID={} rw init={SEED}/install no_timer_check panic=-1",
            self.root_uuid,
        );
        let direct = [("-kernel", &self.kernel), ("-initrd", &self.initrd)];
        let machine = self.machine(firmware, &variables, "prepare the machine's boot");
        let machine =
            direct.iter().fold(machine, |tool, (option, path)| tool.arg(option).arg(path));
        let ports = run(machine.arg("-append").arg(arguments), scratch, "install");
        let ports = ports.map_err(|error| not_installed(error.to_string()))?;
        if !ports.second.lines().any(|line| line == "installed yes") {
            return Err(not_installed(ports.failure("no word of its end")));
        }
        let machine = self.machine(firmware, &variables, "boot the machine");
        let not_booted = |detail: String| BootTestProblem::new("machine_not_booted", detail);
        let ports = run(machine, scratch, "boot").map_err(|error| not_booted(error.to_string()))?;
        SystemReport::parse(&ports.second)
            .ok_or_else(|| not_booted(ports.failure("it did not report")))
    }

    /// A machine with this disk, of software alone.
    fn machine(&self, firmware: &Firmware, variables: &Path, step: &'static str) -> Tool {
        let drive = |rest: &str, path: &dyn AsRef<Path>| {
            // A comma is written twice in QEMU's values.
            format!("{rest},file={}", path.as_ref().display().to_string().replace(',', ",,"))
        };
        let tool = Tool::plain(step, "qemu-system-x86_64", MACHINE_SECONDS);
        [
            "-nodefaults",
            "-no-user-config",
            "-machine",
            "q35",
            "-accel",
            "tcg,thread=multi",
            "-cpu",
            "qemu64,+ssse3,+sse4.1,+sse4.2,+popcnt",
            "-smp",
            "2",
            "-m",
            "1536",
            "-display",
            "none",
            "-monitor",
            "none",
            "-no-reboot",
            "-object",
            "rng-random,id=random,filename=/dev/urandom",
            "-device",
            "virtio-rng-pci,rng=random",
            "-netdev",
            "user,id=net,restrict=on",
            "-device",
            "virtio-net-pci,netdev=net,romfile=",
            "-device",
            "virtio-blk-pci,drive=disk",
            "-drive",
        ]
        .iter()
        .fold(tool, Tool::arg)
        .arg(drive("if=none,id=disk,format=raw,cache=unsafe", &self.path))
        .arg("-drive")
        .arg(drive("if=pflash,format=raw,readonly=on", &firmware.code))
        .arg("-drive")
        .arg(drive("if=pflash,format=raw", &variables))
    }
}

/// Runs a machine until it switches itself off.
fn run(machine: Tool, scratch: &Path, name: &str) -> Result<SerialPorts, std::io::Error> {
    let port = |end: &str| -> PathBuf { scratch.join(format!("{name}.{end}")) };
    let (console, second) = (port("console"), port("second"));
    let serial = |path: &Path| format!("file:{}", path.display());
    let machine = machine.arg("-serial").arg(serial(&console)).arg("-serial").arg(serial(&second));
    let ended = machine.run().map(|_| ());
    let text = |path: &Path| match fs::read(path) {
        Ok(bytes) => Ok(String::from_utf8_lossy(&bytes).into_owned()),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(String::new()),
        Err(error) => Err(error),
    };
    Ok(SerialPorts { console: text(&console)?, second: text(&second)?, ended })
}

impl SerialPorts {
    /// What is known of a failure: the step that the machine named, how QEMU ended, the console's end.
    fn failure(&self, otherwise: &str) -> String {
        let step = self.second.lines().find_map(|line| line.strip_prefix("failed_step "));
        let what = match (step, &self.ended) {
            (Some(step), _) => format!("it could not {step}"),
            (None, Err(error)) => error.to_string(),
            (None, Ok(())) => otherwise.to_owned(),
        };
        format!("{what}; its console ended with:\n{}", tail(&self.console))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_machine_that_failed_says_the_step_and_the_end_of_its_console() {
        let ports = |second: &str, ended| SerialPorts {
            console: "one\ntwo\n".to_owned(),
            second: second.to_owned(),
            ended,
        };
        let failure = ports("failed_step install grub\n", Ok(())).failure("x");
        assert_eq!(failure, "it could not install grub; its console ended with:\none\ntwo");
        let late = ToolError::TimedOut { step: "boot the machine", seconds: 9 };
        let failure = ports("", Err(late)).failure("x");
        assert!(failure.starts_with("boot the machine did not end within 9 s;"), "{failure}");
        assert!(ports("", Ok(())).failure("it did not report").starts_with("it did not report;"));
    }
}
