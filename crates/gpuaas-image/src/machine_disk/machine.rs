//! An emulated machine with a disk: UEFI firmware, then whatever boots.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use super::disk::{INSTALLER, MachineDisk};
use crate::command::{FIRMWARE_FOR_QEMU, Tool, ToolError};

/// Seconds that a machine may take for the installation of its boot loader, and for its boot.
const MACHINE_SECONDS: u64 = 900;
/// UEFI for QEMU, as distributions have it: its code, and its variables.
const FIRMWARE: [(&str, &str); 4] = [
    ("/usr/share/OVMF/OVMF_CODE_4M.fd", "/usr/share/OVMF/OVMF_VARS_4M.fd"),
    ("/usr/share/OVMF/OVMF_CODE.fd", "/usr/share/OVMF/OVMF_VARS.fd"),
    ("/usr/share/edk2/ovmf/OVMF_CODE.fd", "/usr/share/edk2/ovmf/OVMF_VARS.fd"),
    ("/usr/share/edk2/x64/OVMF_CODE.4m.fd", "/usr/share/edk2/x64/OVMF_VARS.4m.fd"),
];

/// Lines of a console that a failure keeps.
const LINES: usize = 20;

/// UEFI firmware for an emulated machine.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Firmware {
    code: &'static str,
    variables: &'static str,
}

impl Firmware {
    /// The one of this host.
    ///
    /// # Errors
    /// [`ToolError::Missing`].
    pub(crate) fn find() -> Result<Self, ToolError> {
        let is_there = |(code, variables): &&(&str, &str)| {
            Path::new(code).exists() && Path::new(variables).exists()
        };
        let found = FIRMWARE.iter().find(is_there);
        let missing = ToolError::Missing(FIRMWARE_FOR_QEMU);
        found.map(|&(code, variables)| Self { code, variables }).ok_or(missing)
    }
}

/// What a machine wrote to its serial ports.
pub(crate) struct SerialPorts {
    console: String,
    /// What it wrote to its second port, which is for reports.
    pub(crate) second: String,
    /// Whether it ended by itself.
    ended: Result<(), ToolError>,
}

/// Why a machine did not do what it was started for: a sentence with the end of its console.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub(crate) struct MachineError(String);

impl From<io::Error> for MachineError {
    fn from(error: io::Error) -> Self {
        Self(error.to_string())
    }
}

impl MachineDisk {
    /// Installs the boot loader, in a machine that runs the disk's own kernel. With `removable` it is found
    /// by firmware that knows nothing of the disk, too.
    ///
    /// # Errors
    /// [`MachineError`], with the step that the machine named.
    pub(crate) fn install_boot_loader(
        &self,
        firmware: &Firmware,
        removable: bool,
    ) -> Result<(), MachineError> {
        fs::copy(firmware.variables, self.variables())?;
        let removable = if removable { " -- removable" } else { "" };
        let arguments = format!(
            "console=ttyS0 root=UUID={} rw init={INSTALLER} no_timer_check panic=-1{removable}",
            self.root_uuid,
        );
        let machine = self.machine(firmware, "install the boot loader");
        let machine = machine.arg("-kernel").arg(&self.kernel.kernel);
        let machine = machine.arg("-initrd").arg(&self.kernel.initrd);
        let ports = self.run(machine.arg("-append").arg(arguments), "install")?;
        if ports.second.lines().any(|line| line == "installed yes") {
            return Ok(());
        }
        Err(MachineError(ports.failure("the machine did not report success")))
    }

    /// Boots the disk by its firmware, which has the boot entries that the installation wrote, until the
    /// machine switches itself off.
    ///
    /// # Errors
    /// What it wrote cannot be read.
    pub(crate) fn boot(&self, firmware: &Firmware) -> Result<SerialPorts, io::Error> {
        self.run(self.machine(firmware, "boot the machine"), "boot")
    }

    /// The firmware's variables. Whoever installs the boot loader writes an entry into them.
    fn variables(&self) -> PathBuf {
        self.scratch.join("variables")
    }

    /// A machine with this disk, of software alone.
    fn machine(&self, firmware: &Firmware, step: &'static str) -> Tool {
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
        .arg(drive("if=pflash,format=raw", &self.variables()))
    }

    /// Runs a machine until it switches itself off.
    fn run(&self, machine: Tool, name: &str) -> Result<SerialPorts, io::Error> {
        let port = |end: &str| -> PathBuf { self.scratch.join(format!("{name}.{end}")) };
        let (console, second) = (port("console"), port("second"));
        let serial = |path: &Path| format!("file:{}", path.display());
        let machine = machine.arg("-serial").arg(serial(&console));
        let ended = machine.arg("-serial").arg(serial(&second)).run().map(|_| ());
        let text = |path: &Path| match fs::read(path) {
            Ok(bytes) => Ok(String::from_utf8_lossy(&bytes).into_owned()),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(String::new()),
            Err(error) => Err(error),
        };
        Ok(SerialPorts { console: text(&console)?, second: text(&second)?, ended })
    }
}

impl SerialPorts {
    /// What is known of a failure: the step that the machine named, how QEMU ended, the console's end.
    pub(crate) fn failure(&self, otherwise: &str) -> String {
        let step = self.second.lines().find_map(|line| line.strip_prefix("failed_step "));
        let what = match (step, &self.ended) {
            (Some(step), _) => format!("the machine could not {step}"),
            (None, Err(error)) => error.to_string(),
            (None, Ok(())) => otherwise.to_owned(),
        };
        format!("{what}; its console ended with:\n{}", tail(&self.console))
    }
}

/// The last lines of a console.
pub(crate) fn tail(console: &str) -> String {
    let lines: Vec<&str> = console.lines().filter(|line| !line.trim().is_empty()).collect();
    lines[lines.len().saturating_sub(LINES)..].join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_end_of_a_console_is_its_last_lines() {
        let console: String = (0..50).map(|n| format!("line {n}\n\n")).collect();
        let end = tail(&console);
        assert!(end.starts_with("line 30\n") && end.ends_with("line 49"), "{end}");
        assert_eq!(tail(""), "");
    }

    #[test]
    fn a_machine_that_failed_says_the_step_and_the_end_of_its_console() {
        let ports = |second: &str, ended| SerialPorts {
            console: "one\ntwo\n".to_owned(),
            second: second.to_owned(),
            ended,
        };
        let failure = ports("failed_step install grub\n", Ok(())).failure("x");
        assert_eq!(
            failure,
            "the machine could not install grub; its console ended with:\none\ntwo"
        );
        let late = ToolError::TimedOut { step: "boot the machine", seconds: 9 };
        let failure = ports("", Err(late)).failure("x");
        assert!(failure.starts_with("boot the machine: timed out after 9 s;"), "{failure}");
        assert!(ports("", Ok(())).failure("it did not report").starts_with("it did not report;"));
    }
}
