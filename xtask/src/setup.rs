//! Finds what the tests want besides Rust, and installs what is missing where it may.
//!
//! Nothing here is required: a test whose tool is absent skips. What must not happen is that
//! nobody notices, so each absent tool ends in one line that says so, whatever the reason.

use std::collections::BTreeSet;
use std::fs;
use std::io::{self, BufRead as _, IsTerminal as _};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::{postgres, proc};

#[derive(Clone, Copy)]
pub(crate) struct Tool {
    /// What the notes call it.
    name: &'static str,
    /// The Debian and Ubuntu package that brings it.
    package: &'static str,
    present: fn() -> bool,
    /// Services that the package brings, which nobody asked to have.
    services: &'static [&'static str],
    /// Files to write before a first installation, so that a package which starts something
    /// by itself does not: `(path, content)`.
    guards: &'static [(&'static str, &'static str)],
}

/// A tool whose package brings one program and starts nothing.
const fn plain(name: &'static str, package: &'static str, present: fn() -> bool) -> Tool {
    Tool { name, package, present, services: &[], guards: &[] }
}

const FAT: Tool = plain("mkfs.vfat", "dosfstools", || proc::find("mkfs.vfat").is_some());
const FIRMWARE: Tool = plain("UEFI firmware for QEMU", "ovmf", || {
    // The first is Debian 12's and Ubuntu 24.04's, the second that of releases before.
    ["OVMF_CODE_4M.fd", "OVMF_CODE.fd"]
        .iter()
        .any(|name| Path::new("/usr/share/OVMF").join(name).exists())
});
const MTOOLS: Tool = plain("mcopy", "mtools", || proc::find("mcopy").is_some());

const TOOLS: [Tool; 36] = [
    Tool {
        // Without this the package starts a cluster of its own on port 5432.
        guards: &[("/etc/postgresql-common/createcluster.conf", "create_main_cluster = false\n")],
        ..plain("postgresql", "postgresql", || postgres::binaries().is_some())
    },
    Tool {
        // Without this the machine's next boot would be configured by cloud-init.
        guards: &[("/etc/cloud/cloud-init.disabled", "")],
        ..plain("cloud-init", "cloud-init", || proc::find("cloud-init").is_some())
    },
    plain("shellcheck", "shellcheck", || proc::find("shellcheck").is_some()),
    plain("python3-venv", "python3-venv", || {
        proc::works(Command::new("python3").args(["-c", "import ensurepip, venv"]))
    }),
    plain("python3-yaml", "python3-yaml", || {
        proc::works(Command::new("python3").args(["-c", "import yaml"]))
    }),
    plain("curl", "curl", || proc::find("curl").is_some()),
    plain("mkfs.ext4", "e2fsprogs", || proc::find("mkfs.ext4").is_some()),
    MTOOLS,
    plain("sfdisk", "fdisk", || proc::find("sfdisk").is_some()),
    plain("gpg", "gpg", || proc::find("gpg").is_some()),
    plain("qemu-img", "qemu-utils", || proc::find("qemu-img").is_some()),
    FAT,
    FIRMWARE,
    plain("netplan", "netplan.io", || proc::find("netplan").is_some()),
    plain("dnsmasq", "dnsmasq-base", || proc::find("dnsmasq").is_some()),
    plain("nft", "nftables", || proc::find("nft").is_some()),
    plain("swtpm", "swtpm", || proc::find("swtpm").is_some()),
    plain("tpm2_quote", "tpm2-tools", || proc::find("tpm2_quote").is_some()),
    plain("pigz", "pigz", || proc::find("pigz").is_some()),
    plain("setpci", "pciutils", || proc::find("setpci").is_some()),
    plain("virt-xml-validate", "libvirt-clients", || proc::find("virt-xml-validate").is_some()),
    plain("xmllint", "libxml2-utils", || proc::find("xmllint").is_some()),
    plain("visudo", "sudo", || proc::find("visudo").is_some()),
    plain("fish", "fish", || proc::find("fish").is_some()),
    plain("zsh", "zsh", || proc::find("zsh").is_some()),
    plain("skopeo", "skopeo", || proc::find("skopeo").is_some()),
    plain("umoci", "umoci", || proc::find("umoci").is_some()),
    plain("docker-compose", "docker-compose", || proc::find("docker-compose").is_some()),
    plain("kubectl", "kubernetes-client", || proc::find("kubectl").is_some()),
    Tool {
        services: &["docker.service", "docker.socket", "containerd.service"],
        ..plain("dockerd", "docker.io", || proc::find("dockerd").is_some())
    },
    Tool {
        services: &["openvswitch-switch.service", "ovs-vswitchd.service", "ovsdb-server.service"],
        ..plain("ovs-vsctl", "openvswitch-switch", || proc::find("ovs-vsctl").is_some())
    },
    Tool {
        services: &["nginx.service"],
        ..plain("nginx", "nginx-light", || proc::find("nginx").is_some())
    },
    Tool {
        services: &["ssh.service", "ssh.socket"],
        ..plain("sshd", "openssh-server", || proc::find("sshd").is_some())
    },
    Tool {
        services: &["nats-server.service"],
        ..plain("nats-server", "nats-server", || proc::find("nats-server").is_some())
    },
    Tool {
        services: &["prometheus.service"],
        ..plain("prometheus", "prometheus", || proc::find("prometheus").is_some())
    },
    Tool {
        services: &["docker-registry.service"],
        ..plain("docker-registry", "docker-registry", || proc::find("docker-registry").is_some())
    },
];

/// What the emulated machine needs (`cargo xtask vm`).
pub(crate) const MACHINE: &[Tool] = &[
    plain("qemu-system-x86_64", "qemu-system-x86", || proc::find("qemu-system-x86_64").is_some()),
    plain("mmdebstrap", "mmdebstrap", || proc::find("mmdebstrap").is_some()),
    plain("mkfs.ext4", "e2fsprogs", || proc::find("mkfs.ext4").is_some()),
];

/// What a real guest needs beside that (`cargo xtask vm --guest`).
pub(crate) const GUEST: &[Tool] = &[FAT, MTOOLS, FIRMWARE];

/// What real hosts need (`cargo xtask real-host`).
pub(crate) const REAL_HOST: &[Tool] = &[
    plain("systemd-nspawn", "systemd-container", || proc::find("systemd-nspawn").is_some()),
    plain("mmdebstrap", "mmdebstrap", || proc::find("mmdebstrap").is_some()),
    plain("mkfs.ext4", "e2fsprogs", || proc::find("mkfs.ext4").is_some()),
    plain("unshare", "util-linux", || proc::find("unshare").is_some()),
];

/// Installs what `tools` lack, as far as this user and this machine allow.
///
/// # Errors
/// What is missing afterwards, and how to get it.
pub(crate) fn have(tools: &[Tool]) -> Result<(), String> {
    if proc::find("apt-get").is_some() && proc::is_root() {
        install_missing(tools, &mut Apt::default());
    }
    let absent = absent(tools);
    if absent.is_empty() {
        return Ok(());
    }
    let list = |field: fn(&Tool) -> &str, between: &str| {
        absent.iter().map(|tool| field(tool)).collect::<Vec<_>>().join(between)
    };
    Err(format!(
        "tool_missing: there is no {}; apt-get install {}",
        list(|tool| tool.name, ", no "),
        list(|tool| tool.package, " "),
    ))
}

/// Installs what is missing where `install` says so, as far as this user and this machine allow, and
/// prints a note for each tool that is still missing afterwards. Somebody at a terminal is asked
/// first, about what `systems` are made with, too. Answers whether packages may be installed.
pub(crate) fn ensure(install: bool, systems: bool) -> bool {
    let can = install && proc::find("apt-get").is_some() && proc::is_root();
    let of_systems = if systems { [MACHINE, REAL_HOST].concat() } else { Vec::new() };
    let wanted = [&TOOLS[..], &of_systems].concat();
    let agreed = can && {
        let packages = packages(absent(&wanted));
        packages.is_empty() || ask(&packages)
    };
    if agreed {
        install_missing(&wanted, &mut Apt::default());
    }
    let absent = absent(&TOOLS);
    for tool in &absent {
        eprintln!("note: {} is not installed; its tests are skipped", tool.name);
    }
    if !absent.is_empty() {
        eprintln!("note: to run them: apt-get install {}", packages(absent).join(" "));
    }
    install && (agreed || !can)
}

fn absent(tools: &[Tool]) -> Vec<&Tool> {
    tools.iter().filter(|tool| !(tool.present)()).collect()
}

/// Their packages, each once.
fn packages<'a>(tools: impl IntoIterator<Item = &'a Tool>) -> Vec<&'static str> {
    tools.into_iter().map(|tool| tool.package).collect::<BTreeSet<_>>().into_iter().collect()
}

/// Installs what is missing of `tools`, and then what one of these packages had to remove: a newer
/// qemu-utils than the distribution's does not stay beside the distribution's qemu-system-x86.
fn install_missing(tools: &[Tool], installer: &mut impl Installer) {
    for _ in 0..2 {
        tools.iter().for_each(|tool| {
            if !(tool.present)() {
                installer.install(tool);
            }
        });
    }
}

/// What brings a tool's package, and says so where it cannot.
trait Installer {
    fn install(&mut self, tool: &Tool);
}

/// Whether whoever sits at the terminal agrees; where nobody does, as in CI, the command itself was
/// the agreement.
fn ask(packages: &[&str]) -> bool {
    if !(io::stdin().is_terminal() && io::stderr().is_terminal()) {
        return true;
    }
    eprint!("apt-get would install {}; no service is started. Go on? [Y/n] ", packages.join(" "));
    let mut answer = String::new();
    io::stdin().lock().read_line(&mut answer).is_ok() && agrees(&answer)
}

/// An end of the input is no answer, and so no agreement.
fn agrees(answer: &str) -> bool {
    let is_answered = answer.ends_with('\n');
    is_answered && matches!(answer.trim().to_lowercase().as_str(), "" | "y" | "yes")
}

/// One use of apt-get: the package lists are fetched at most once, and only when needed.
#[derive(Default)]
struct Apt {
    updated: bool,
}

impl Installer for Apt {
    fn install(&mut self, tool: &Tool) {
        eprintln!("installing {} (apt-get)", tool.package);
        if let Err(said) = self.try_install(tool) {
            let said = proc::tail(&said, 3);
            eprintln!("note: apt-get could not install {}: {said}", tool.package);
        }
    }
}

impl Apt {
    fn try_install(&mut self, tool: &Tool) -> Result<(), String> {
        for (path, content) in tool.guards {
            guard(Path::new(path), content)?;
        }
        let _kept = Kept::from_starting(tool.services)?;
        let mut install = apt_get();
        install.args(["install", "-y", "--no-install-recommends", tool.package]);
        let first = proc::quiet(&mut install);
        if first.is_ok() || self.updated {
            return first.map(drop);
        }
        self.updated = true;
        proc::quiet(apt_get().arg("update"))?;
        proc::quiet(&mut install).map(drop)
    }
}

/// Asked by invoke-rc.d and deb-systemd-invoke whether a service may start (policy-rc.d(8)).
const POLICY: &str = "/usr/sbin/policy-rc.d";

/// Services that do not start with their installation, nor at the next boot.
struct Kept {
    services: &'static [&'static str],
    policy_is_ours: bool,
}

impl Kept {
    fn from_starting(services: &'static [&'static str]) -> Result<Self, String> {
        let policy_is_ours = !services.is_empty() && !Path::new(POLICY).exists();
        if policy_is_ours {
            guard(Path::new(POLICY), "#!/bin/sh\nexit 101\n")?;
            fs::set_permissions(POLICY, fs::Permissions::from_mode(0o755))
                .map_err(|error| format!("cannot set the mode of {POLICY}: {error}"))?;
        }
        Ok(Self { services, policy_is_ours })
    }
}

impl Drop for Kept {
    fn drop(&mut self) {
        for service in self.services {
            // Where there is no systemd, nothing starts them.
            proc::works(Command::new("systemctl").args(["--quiet", "disable", service]));
        }
        if self.policy_is_ours
            && let Err(error) = fs::remove_file(POLICY)
        {
            eprintln!("note: {POLICY} stays: {error}");
        }
    }
}

fn apt_get() -> Command {
    let mut command = Command::new("apt-get");
    command
        .args(["-q", "-o", "DPkg::Lock::Timeout=120"])
        .env("DEBIAN_FRONTEND", "noninteractive")
        // The files of `guards` are ours; ucf must keep them without asking.
        .env("UCF_FORCE_CONFFOLD", "1");
    command
}

/// Writes a guard where the machine has no such file yet; an existing one is somebody's choice.
fn guard(path: &Path, content: &str) -> Result<(), String> {
    if path.exists() {
        return Ok(());
    }
    let folder = path.parent().map(PathBuf::from).unwrap_or_default();
    fs::create_dir_all(folder)
        .and_then(|()| fs::write(path, content))
        .map_err(|error| format!("cannot write {}: {error}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_installed_without_a_yes() {
        for (answer, is_yes) in
            [("\n", true), ("Y\n", true), (" yes \n", true), ("n\n", false), ("", false)]
        {
            assert_eq!(agrees(answer), is_yes, "{answer:?}");
        }
    }

    #[test]
    fn packages_are_named_once_and_only_where_they_are_missing() {
        let missing = plain("a", "one", || false);
        let there = plain("b", "two", || true);
        assert_eq!(packages(absent(&[missing, there, missing])), ["one"]);
    }

    #[test]
    fn what_an_installation_removes_is_installed_again() {
        use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
        static UTILS: AtomicBool = AtomicBool::new(true);
        static SYSTEM: AtomicBool = AtomicBool::new(false);

        struct Removing(Vec<&'static str>);
        impl Installer for Removing {
            fn install(&mut self, tool: &Tool) {
                self.0.push(tool.package);
                let is_system = tool.package == "system";
                SYSTEM.fetch_or(is_system, SeqCst);
                UTILS.store(!is_system, SeqCst);
            }
        }

        let utils = plain("qemu-img", "utils", || UTILS.load(SeqCst));
        let system = plain("qemu-system", "system", || SYSTEM.load(SeqCst));
        let mut removing = Removing(Vec::new());
        install_missing(&[utils, system], &mut removing);
        assert_eq!(removing.0, ["system", "utils"]);
        assert!(absent(&[utils, system]).is_empty());
    }

    #[test]
    fn a_guard_never_replaces_a_choice() {
        let folder = std::env::temp_dir().join(format!("xtask-guard-{}", std::process::id()));
        let path = folder.join("etc/guard.conf");
        guard(&path, "ours\n").unwrap();
        guard(&path, "again\n").unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "ours\n");
        fs::remove_dir_all(folder).unwrap();
    }
}
