//! Rules about packages and where they come from: what curtin's apt finds in the image.

use super::rule::{LintRule, LintSeverity::Error, absolute, path_if};
use super::subject::LintSubject;

/// Where dpkg says what is there.
const STATUS: &str = "/var/lib/dpkg/status";

/// Domains of the distributions; their archives are hosts below them.
const DISTRIBUTION_DOMAINS: [&str; 2] = ["ubuntu.com", "debian.org"];

pub(super) const RULES: &[LintRule] = &[
    LintRule {
        code: "os_release_missing",
        severity: Error,
        reason: "/etc/os-release is missing or names no distribution",
        breaks: "curtin, curthooks: curtin cannot identify the distribution and stops",
        fix: "install base-files",
        check: |image| {
            let named = ["etc/os-release", "usr/lib/os-release"];
            let is_named = |path: &&str| image.lines(path).any(|line| line.starts_with("ID="));
            path_if(!named.iter().any(is_named), "/etc/os-release")
        },
    },
    LintRule {
        code: "architecture_mismatch",
        severity: Error,
        reason: "the packages are for a different architecture than the machines",
        breaks: "curtin, curthooks: nothing runs in the target (exec format error)",
        fix: "build the image for the architecture that it is uploaded as",
        check: |image| {
            let dpkg = image.packages.get("dpkg").filter(|package| package.is_installed());
            let is_other = dpkg.is_some_and(|dpkg| dpkg.architecture != image.options.architecture);
            path_if(is_other, STATUS)
        },
    },
    LintRule {
        code: "dpkg_missing",
        severity: Error,
        reason: "dpkg lists no packages",
        breaks: "curtin, installing-missing-packages: apt-get installs nothing into such a target",
        fix: "pack the whole root file system, with /var/lib/dpkg",
        check: |image| path_if(image.packages.is_empty(), STATUS),
    },
    LintRule {
        code: "dpkg_unhealthy",
        severity: Error,
        reason: "a package is only partly installed",
        breaks: "curtin, installing-missing-packages and installing-kernel: apt-get fails before it does anything",
        fix: "run dpkg --configure -a and apt-get -f install in the build; if they fail, fail the build",
        check: |image| {
            let is_partial = image.packages.values().any(|package| {
                let states = ["installed", "config-files", "not-installed"];
                package.flag != "ok" || !states.contains(&package.state.as_str())
            });
            path_if(is_partial, STATUS)
        },
    },
    LintRule {
        code: "dpkg_journal_left",
        severity: Error,
        reason: "dpkg was interrupted",
        breaks: "curtin, installing-missing-packages: apt-get refuses until dpkg --configure -a has run",
        fix: "run dpkg --configure -a in the build",
        check: |image| {
            let is_journal = |path: &str| path.ends_with(|last: char| last.is_ascii_digit());
            let updates = image.leaves("var/lib/dpkg/updates/").map(|(path, _)| path);
            absolute(updates.filter(|path| is_journal(path)))
        },
    },
    LintRule {
        code: "package_held",
        severity: Error,
        reason: "a package that a deploy installs or changes is on hold",
        breaks: "curtin, installing-kernel and setup_grub: apt-get refuses to change held packages",
        fix: "run apt-mark unhold on it; if the kernel must stay, the image's hook pins it",
        check: |image| {
            let held = image.packages.iter().filter(|(_, package)| package.wanted == "hold");
            path_if(held.map(|(name, _)| name).any(|name| is_of_boot(name)), STATUS)
        },
    },
    LintRule {
        code: "cloud_init_missing",
        severity: Error,
        reason: "cloud-init is not installed",
        breaks: "first boot: nothing fetches user-data from MAAS, and the machine never becomes Deployed",
        fix: "add cloud-init to the recipe's packages",
        check: |image| path_if(image.lacks_package("cloud-init"), STATUS),
    },
    LintRule {
        code: "netplan_missing",
        severity: Error,
        reason: "netplan is not installed",
        breaks: "first boot: cloud-init writes a network configuration that nothing applies, and the host cannot reach MAAS",
        fix: "add netplan.io to the recipe's packages",
        check: |image| path_if(image.lacks_package("netplan.io"), STATUS),
    },
    LintRule {
        code: "uefi_packages_missing",
        severity: Error,
        reason: "packages of the UEFI boot loader are not installed",
        breaks: "curtin, installing-missing-packages: each deploy downloads them, and fails if the archive is unreachable",
        fix: "add efibootmgr, grub-efi-amd64, grub-efi-amd64-signed and shim-signed to the recipe's packages",
        check: |image| {
            let grub = format!("grub-efi-{}", image.options.architecture);
            let signed = format!("{grub}-signed");
            let wanted = ["efibootmgr", &grub, &signed, "shim-signed"];
            path_if(wanted.iter().any(|name| image.lacks_package(name)), STATUS)
        },
    },
    LintRule {
        code: "initramfs_tools_missing",
        severity: Error,
        reason: "the image contains no tool that builds an initrd",
        breaks: "curtin, writing-etc-fstab and later: update-initramfs is missing, and the host keeps the initrd of the build",
        fix: "add initramfs-tools (or dracut) to the recipe's packages",
        check: |image| {
            let makers = ["initramfs-tools", "dracut"];
            path_if(makers.iter().all(|name| image.lacks_package(name)), STATUS)
        },
    },
    LintRule {
        code: "policy_rc_d_left",
        severity: Error,
        reason: "the image still contains the build's policy-rc.d",
        breaks: "first boot: packages that bundles install do not start their services",
        fix: "delete /usr/sbin/policy-rc.d at the end of the build",
        check: |image| path_if(image.has("usr/sbin/policy-rc.d"), "/usr/sbin/policy-rc.d"),
    },
    LintRule {
        code: "diversion_left",
        severity: Error,
        reason: "a program has a local diversion",
        breaks: "curtin, curthooks: curtin diverts start-stop-daemon itself, and its cleanup undoes the build's diversion",
        fix: "run dpkg-divert --local --rename --remove on it at the end of the build",
        check: |image| {
            // Three lines each: what, whereto, and the package, which is a colon for an administrator.
            let text = image.index.text("var/lib/dpkg/diversions").unwrap_or_default();
            let lines: Vec<&str> = text.lines().collect();
            let local = lines.chunks(3).filter(|chunk| chunk.get(2) == Some(&":"));
            local.filter_map(|chunk| chunk.first().map(|path| (*path).to_owned())).collect()
        },
    },
    LintRule {
        code: "apt_proxy_left",
        severity: Error,
        reason: "the build's proxy is still set",
        breaks: "curtin, installing-missing-packages: apt uses a proxy that the machines may not reach",
        fix: "delete it at the end of the build; MAAS gives curtin the site's proxy",
        check: |image| {
            let files = image.leaves("etc/apt/").map(|(path, _)| path);
            let is_configuration = |path: &&str| path.starts_with("etc/apt/apt.conf");
            let asks = |path: &&str| image.lines(path).any(is_proxy_line);
            let apt = files.filter(is_configuration).filter(asks);
            let exports = |path: &&str| image.lines(path).any(is_proxy_export);
            let environment = std::iter::once("etc/environment").filter(exports);
            absolute(apt.chain(environment))
        },
    },
    LintRule {
        code: "third_party_source",
        severity: Error,
        reason: "apt uses an archive that is not the distribution's",
        breaks: "curtin, installing-missing-packages: every deploy runs apt-get update with every source, and fails if one does not answer",
        fix: "disable the source at the end of the build (Enabled: no), or allow its host with --allow-source",
        check: |image| {
            let files = image.leaves("etc/apt/").filter(|(path, _)| {
                *path == "etc/apt/sources.list" || path.starts_with("etc/apt/sources.list.d/")
            });
            let asks = |text: &str| {
                let mut hosts = source_hosts(text).into_iter();
                hosts.any(|host| !is_excused(image, &host))
            };
            let content = |entry: &crate::archive_index::IndexedEntry| {
                entry.content.as_deref().is_some_and(asks)
            };
            absolute(files.filter(|(_, entry)| content(entry)).map(|(path, _)| path))
        },
    },
];

/// Whether curtin or MAAS may have to change the package in a deploy.
fn is_of_boot(name: &str) -> bool {
    let starts = ["linux-image", "linux-headers", "linux-modules", "linux-generic", "grub", "shim"];
    starts.iter().any(|start| name.starts_with(start))
        || ["initramfs-tools", "initramfs-tools-core", "efibootmgr", "dracut"].contains(&name)
}

fn is_proxy_line(line: &str) -> bool {
    !line.starts_with("//") && line.to_ascii_lowercase().contains("::proxy")
}

fn is_proxy_export(line: &str) -> bool {
    let line = line.to_ascii_lowercase();
    ["http_proxy=", "https_proxy="].iter().any(|name| line.contains(name))
}

fn is_excused(image: &LintSubject<'_>, host: &str) -> bool {
    let is_below = |own: &str| host == own || host.ends_with(&format!(".{own}"));
    let excused = image.options.excused_sources.iter().map(String::as_str);
    DISTRIBUTION_DOMAINS.into_iter().chain(excused).any(is_below)
}

/// Hosts that a file of apt sources asks, in either form (sources.list(5)); a source that is no URL
/// with a host has its whole text.
fn source_hosts(text: &str) -> Vec<String> {
    let mut hosts = Vec::new();
    let is_line = |line: &str| line.starts_with("deb ") || line.starts_with("deb-src ");
    for paragraph in text.split("\n\n") {
        let lines = paragraph.lines().map(str::trim).filter(|line| !line.starts_with('#'));
        let is_off = lines.clone().any(|line| {
            let line = line.to_ascii_lowercase();
            let value = line.strip_prefix("enabled:").map(str::trim);
            value.is_some_and(|value| ["no", "false", "without", "off", "disable"].contains(&value))
        });
        let mut in_uris = false;
        for line in paragraph.lines().filter(|line| !line.trim_start().starts_with('#')) {
            let names_uris = line.to_ascii_lowercase().starts_with("uris:");
            in_uris = names_uris || in_uris && line.starts_with([' ', '\t']);
            if in_uris && is_off || !in_uris && !is_line(line.trim()) {
                continue;
            }
            let value = if names_uris { &line["uris:".len()..] } else { line };
            hosts.extend(value.split_whitespace().filter(|word| word.contains(":/")).map(host));
        }
    }
    hosts
}

/// The host of `http://user@host:port/path`.
fn host(uri: &str) -> String {
    let Some((_, rest)) = uri.split_once("://") else { return uri.to_owned() };
    let authority = rest.split('/').next().unwrap_or_default();
    let host = authority.rsplit('@').next().unwrap_or_default();
    let host = host.split(':').next().unwrap_or_default();
    if host.is_empty() { uri.to_owned() } else { host.to_ascii_lowercase() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts_of_both_forms_of_sources() {
        for (text, hosts) in [
            (
                "deb http://archive.ubuntu.com/ubuntu noble main\n# deb http://x/y z\n",
                vec!["archive.ubuntu.com"],
            ),
            (
                "deb [arch=amd64 signed-by=/k.gpg] https://u:p@Repo.Example:8443/x noble main",
                vec!["repo.example"],
            ),
            (
                "Types: deb\nURIs: http://a.example/x https://b.example/y\n http://c.example/\nSuites: noble\n",
                vec!["a.example", "b.example", "c.example"],
            ),
            (
                "Enabled: no\nTypes: deb\nURIs: http://a.example/x\n\nURIs: http://b.example\n",
                vec!["b.example"],
            ),
            ("deb cdrom:[Debian]/ bookworm main", vec![]),
            ("deb file:/srv/packages ./", vec!["file:/srv/packages"]),
        ] {
            assert_eq!(source_hosts(text), hosts, "{text}");
        }
    }
}
