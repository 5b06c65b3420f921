//! Rules about what a build or a host left behind: an image has nothing of one machine.

use super::cloud_config::{CloudConfig, cloud_configs};
use super::rule::{
    LintRule,
    LintSeverity::{Error, Warning},
    absolute, path_if,
};
use super::subject::LintSubject;

/// What a build writes there, and the only file of that folder which an image may have
/// (docs/hosts.md#host-images).
const BUILD_RECORD: &str = "etc/gpuaas/maas-host-image-build.json";

pub(super) const RULES: &[LintRule] = &[
    LintRule {
        code: "fstab_left",
        severity: Error,
        reason: "/etc/fstab lists file systems",
        breaks: "first boot: if curtin writes no fstab of its own, systemd waits 90 seconds for the build's disks",
        fix: "empty it at the end of the build; curtin writes the machine's own",
        check: |image| path_if(image.lines("etc/fstab").next().is_some(), "/etc/fstab"),
    },
    LintRule {
        code: "swap_left",
        severity: Error,
        reason: "the image contains a swap file",
        breaks: "curtin, extract: each deploy downloads it, and curtin's setting-up-swap creates another",
        fix: "delete it at the end of the build",
        check: |image| {
            let names = ["swapfile", "swap.img", "swap"];
            absolute(names.iter().filter(|name| image.has(name)))
        },
    },
    LintRule {
        code: "network_config_left",
        severity: Error,
        reason: "the image contains the network configuration of another machine",
        breaks: "first boot: it is merged with the configuration from MAAS, and the host waits for ports that it does not have",
        fix: "delete it at the end of the build; cloud-init writes the machine's own",
        check: |image| {
            let below = |folder: &'static str, end: &'static str| {
                let files = image.leaves(folder).map(|(path, _)| path);
                files.filter(move |path| path.ends_with(end))
            };
            let files = below("etc/netplan/", ".yaml")
                .chain(below("etc/netplan/", ".yml"))
                .chain(below("etc/systemd/network/", ".network"))
                .chain(below("etc/NetworkManager/system-connections/", ""))
                .chain(below("etc/network/interfaces.d/", ""))
                .chain(below("etc/udev/rules.d/", "-persistent-net.rules"))
                .chain(below("etc/systemd/network/", ".netdev"))
                .chain(below("etc/sysconfig/network-scripts/ifcfg-", ""))
                .chain(named_ports(image))
                .chain(
                    cloud_configs(image)
                        .filter(CloudConfig::configures_network)
                        .map(|file| file.path),
                );
            absolute(files)
        },
    },
    LintRule {
        code: "machine_id_left",
        severity: Error,
        reason: "the image contains a machine ID",
        breaks: "first boot: all hosts have the same ID, so they request the same DHCP lease, and journals and agents treat them as one host",
        fix: "empty /etc/machine-id (or write uninitialized), and link /var/lib/dbus/machine-id to it",
        check: |image| {
            let is_set = |path: &&str| {
                let id = image.index.text(path).unwrap_or_default().trim();
                !matches!(id, "" | "uninitialized")
            };
            absolute(
                ["etc/machine-id", "var/lib/dbus/machine-id"].iter().filter(|path| is_set(path)),
            )
        },
    },
    LintRule {
        code: "random_seed_left",
        severity: Error,
        reason: "the image contains a random seed",
        breaks: "first boot: all hosts start with the same seed, and keys that are generated early may be equal",
        fix: "delete /var/lib/systemd/random-seed at the end of the build",
        check: |image| {
            let names = [
                "var/lib/systemd/random-seed",
                "var/lib/urandom/random-seed",
                "boot/efi/loader/random-seed",
            ];
            absolute(names.iter().filter(|name| image.has(name)))
        },
    },
    LintRule {
        code: "ssh_host_key_left",
        severity: Error,
        reason: "the image contains SSH host keys",
        breaks: "first boot: cloud-init keeps existing keys, and anyone with the image can impersonate every host",
        fix: "delete /etc/ssh/ssh_host_* at the end of the build",
        check: |image| {
            let keys = image.leaves("etc/ssh/").map(|(path, _)| path);
            absolute(keys.filter(|path| path.starts_with("etc/ssh/ssh_host_")))
        },
    },
    LintRule {
        code: "credential_left",
        severity: Error,
        reason: "the image contains a credential",
        breaks: "every host has it, and so does everyone who can read the image in MAAS",
        fix: "delete it at the end of the build; a host gets what it needs through user-data",
        check: |image| absolute(credentials(image)),
    },
    LintRule {
        code: "password_left",
        severity: Error,
        reason: "an account in the image has a password",
        breaks: "anyone who knows it can log in to every host",
        fix: "lock the account (passwd -l) at the end of the build",
        check: |image| {
            let has_password = |line: &str| {
                let field = line.split(':').nth(1).unwrap_or_default();
                field.is_empty() || field.starts_with('$') || field.starts_with('_')
            };
            path_if(image.lines("etc/shadow").any(has_password), "/etc/shadow")
        },
    },
    LintRule {
        code: "host_state_left",
        severity: Error,
        reason: "the image contains files that were created by the bootstrap of a host",
        breaks: "first boot: devices, bridges or tokens of another host exist before the machine's own",
        fix: "leave them to the site bundle; an image must not contain VFIO bindings, virtual functions, bridges or tokens",
        check: |image| absolute(host_state(image)),
    },
    LintRule {
        code: "resolv_conf_left",
        severity: Error,
        reason: "/etc/resolv.conf lists the name servers of the build machine",
        breaks: "first boot: the host queries name servers that it may not be able to reach",
        fix: "make it a link to ../run/systemd/resolve/stub-resolv.conf, or leave it out",
        check: |image| {
            let mut lines = image.lines("etc/resolv.conf");
            path_if(lines.any(|line| line.starts_with("nameserver")), "/etc/resolv.conf")
        },
    },
    LintRule {
        code: "hostname_left",
        severity: Warning,
        reason: "/etc/hostname contains the name of the build machine",
        breaks: "first boot: logs show that name until cloud-init sets the machine's own",
        fix: "delete it or write localhost at the end of the build",
        check: |image| {
            let name = image.index.text("etc/hostname").unwrap_or_default().trim();
            path_if(!matches!(name, "" | "localhost" | "ubuntu" | "debian"), "/etc/hostname")
        },
    },
    LintRule {
        code: "sshd_ignores_drop_ins",
        severity: Warning,
        reason: "sshd does not read /etc/ssh/sshd_config.d, or an earlier setting overrides it",
        breaks: "first boot: what bundles write there has no effect, so passwords may stay allowed; sshd uses the first value of a setting",
        fix: "start /etc/ssh/sshd_config with Include /etc/ssh/sshd_config.d/*.conf",
        check: |image| {
            let path = "etc/ssh/sshd_config";
            let is_read = !image.has_package("openssh-server")
                || !image.has(path)
                || reads_drop_ins(image.lines(path));
            path_if(!is_read, "/etc/ssh/sshd_config")
        },
    },
];

/// Whether sshd includes drop-ins before it reads a setting that bundles make.
fn reads_drop_ins<'l>(lines: impl Iterator<Item = &'l str>) -> bool {
    const SETTINGS: [&str; 4] = [
        "passwordauthentication",
        "permitrootlogin",
        "kbdinteractiveauthentication",
        "authorizedkeysfile",
    ];
    for line in lines {
        let mut words = line.split(|c: char| c.is_whitespace() || c == '=');
        let keyword = words.next().unwrap_or_default().to_ascii_lowercase();
        let covers = |word: &str| {
            let word = word.trim_matches('"').trim_start_matches("/etc/ssh/");
            ["sshd_config.d/*.conf", "sshd_config.d/*"].contains(&word)
        };
        if keyword == "include" && words.any(covers) {
            return true;
        }
        if keyword == "match" || SETTINGS.contains(&keyword.as_str()) {
            return false;
        }
    }
    false
}

/// Files that name ports by what only one machine has: its MAC addresses, or the names of its ports.
fn named_ports<'a>(image: &'a LintSubject<'_>) -> impl Iterator<Item = &'a str> {
    let links = image.leaves("etc/systemd/network/").map(|(path, _)| path);
    let has_address = |path: &&str| {
        let mut lines = image.lines(path);
        path.ends_with(".link") && lines.any(|line| line.contains("MACAddress="))
    };
    // Debian's installer writes the ports of its machine into this one.
    let interfaces = "etc/network/interfaces";
    let is_port = |line: &str| {
        let mut words = line.split_whitespace();
        matches!(words.next(), Some("iface")) && words.next() != Some("lo")
    };
    let has_port = image.lines(interfaces).any(is_port);
    links.filter(has_address).chain(has_port.then_some(interfaces))
}

/// Files that let somebody in, or are made to be secret.
fn credentials<'a>(image: &'a LintSubject<'_>) -> Vec<&'a str> {
    // A key that the package makes for itself at its installation, known to be no secret.
    const SNAKE_OIL: &str = "etc/ssl/private/ssl-cert-snakeoil.key";
    const NAMES: [&str; 7] = [
        "/.ssh/authorized_keys",
        "/.netrc",
        "/.docker/config.json",
        "/.aws/credentials",
        "/.maascli.db",
        "/.bash_history",
        "/.git-credentials",
    ];
    let is_secret = |path: &str, entry: &crate::archive_index::IndexedEntry| {
        let at_home = path.starts_with("root/") || path.starts_with("home/");
        let named =
            at_home && NAMES.iter().any(|name| path.ends_with(name)) && entry.size_bytes > 0;
        let apt = path == "etc/apt/auth.conf" || path.starts_with("etc/apt/auth.conf.d/");
        // The installer's answers have the password and the keys of its first user.
        let installer = path.starts_with("var/log/installer/autoinstall-user-data")
            || path.starts_with("root/") && path.ends_with("preseed.cfg");
        let is_answer =
            |line: &str| line.strip_prefix("Value:").is_some_and(|v| !v.trim().is_empty());
        let asked = path == "var/cache/debconf/passwords.dat" && image.lines(path).any(is_answer);
        // Host keys have a rule of their own.
        let host_key = path.starts_with("etc/ssh/ssh_host_");
        named
            || apt
            || installer
            || asked
            || entry.has_private_key && path != SNAKE_OIL && !host_key
    };
    image.leaves("").filter(|(path, entry)| is_secret(path, entry)).map(|(path, _)| path).collect()
}

/// Files that a bootstrap or an agent wrote on a host.
fn host_state<'a>(image: &'a LintSubject<'_>) -> Vec<&'a str> {
    let binds = |path: &&str| {
        let mut lines = image.lines(path);
        lines.any(|line| line.starts_with("options vfio-pci") && line.contains("ids="))
    };
    let modprobe = image.leaves("etc/modprobe.d/").map(|(path, _)| path).filter(binds);
    let own =
        image.leaves("etc/gpuaas/").map(|(path, _)| path).filter(|path| *path != BUILD_RECORD);
    let agent = image.leaves("var/lib/gpuaas/").map(|(path, _)| path);
    let bridges = image.leaves("etc/openvswitch/").map(|(path, _)| path);
    let bridges = bridges.filter(|path| path.ends_with("/conf.db"));
    modprobe.chain(own).chain(agent).chain(bridges).collect()
}
