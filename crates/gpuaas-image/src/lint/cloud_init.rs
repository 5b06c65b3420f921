//! Rules about cloud-init: it runs, asks MAAS, and takes what MAAS says.
//!
//! What switches it off or binds it to another source stands in many places: its own configuration,
//! the settings of ds-identify (which decides at boot whether it runs at all), systemd's units and
//! generators, and the kernel's arguments.

use super::cloud_config::{CloudConfig, cloud_configs};
use super::kernel_arguments::kernel_settings;
use super::rule::{LintRule, LintSeverity::Error, absolute, path_if};
use super::subject::LintSubject;
use crate::archive_index::{IndexedEntry, IndexedKind};

/// Settings of the program that decides whether cloud-init runs.
const DS_IDENTIFY: &str = "etc/cloud/ds-identify.cfg";
/// Units without which user-data is not applied, under the names of all releases.
const UNITS: [&str; 8] = [
    "cloud-config.service",
    "cloud-config.target",
    "cloud-final.service",
    "cloud-init-local.service",
    "cloud-init-main.service",
    "cloud-init-network.service",
    "cloud-init.service",
    "cloud-init.target",
];
/// Where an administrator's units are, which win over those of packages.
const UNIT_FOLDERS: [&str; 2] = ["etc/systemd/system", "usr/local/lib/systemd/system"];
const GENERATOR: &str = "systemd/system-generators/cloud-init-generator";
/// What the package does at its installation, and when curtin has set MAAS' answers.
const POSTINST: &str = "var/lib/dpkg/info/cloud-init.postinst";
/// Where curtin looks for a hook.
const HOOK: &str = "curtin/curtin-hooks";

pub(super) const RULES: &[LintRule] = &[
    LintRule {
        code: "cloud_init_state_left",
        severity: Error,
        reason: "cloud-init has already run in the image",
        breaks: "first boot: cloud-init uses its cached data as if it were this machine's, and modules that run once per instance do not run",
        fix: "run cloud-init clean --logs at the end of the build",
        check: |image| {
            let folders = ["instance", "instances", "sem", "data"];
            let below =
                |name: &&str| image.leaves(&format!("var/lib/cloud/{name}/")).next().is_some();
            let is_there = |name: &&str| {
                below(name) || *name == "instance" && image.has("var/lib/cloud/instance")
            };
            absolute(
                folders
                    .iter()
                    .filter(|name| is_there(name))
                    .map(|name| format!("var/lib/cloud/{name}")),
            )
        },
    },
    LintRule {
        code: "cloud_init_disabled",
        severity: Error,
        reason: "cloud-init is disabled, or not allowed to configure the network or read user-data",
        breaks: "first boot: the host has no address or never asks MAAS for user-data, and does not become Deployed",
        fix: "remove the setting from the file in the finding: a mask, a ds-identify policy, a kernel argument, or network: {config: disabled}",
        check: |image| absolute(switched_off(image)),
    },
    LintRule {
        code: "datasource_excludes_maas",
        severity: Error,
        reason: "cloud-init is restricted to data sources other than MAAS",
        breaks: "first boot: cloud-init never finds the MAAS metadata, and the machine does not become Deployed",
        fix: "remove the setting from the file in the finding, or add MAAS to it",
        check: |image| absolute(bound_elsewhere(image)),
    },
    LintRule {
        code: "maas_datasource_left",
        severity: Error,
        reason: "the image contains the MAAS metadata URL or keys of another machine",
        breaks: "first boot: the host identifies itself as that machine, or is rejected, and does not become Deployed",
        fix: "delete the file at the end of the build; curtin writes the machine's own",
        check: |image| {
            let files = cloud_configs(image).filter(CloudConfig::names_metadata);
            absolute(files.map(|file| file.path))
        },
    },
    LintRule {
        code: "cloud_init_ignores_maas",
        severity: Error,
        reason: "the cloud-init package does not apply the URL and keys that curtin sets for it",
        breaks: "first boot: Debian's package reads them only at its first installation, with a Python that does not exist; cloud-init finds no data source, and the machine stays Deploying",
        fix: "pack the hook that the build writes, which configures the data source, or install the upstream cloud-init package",
        check: |image| {
            let is_wrong = image.has_package("cloud-init")
                && !applies_answers(image)
                && !image.index.text(HOOK).is_some_and(hook_writes_data_source);
            path_if(is_wrong, "/var/lib/dpkg/info/cloud-init.postinst")
        },
    },
];

/// Files that keep cloud-init from running, from the network or from user-data.
fn switched_off(image: &LintSubject<'_>) -> Vec<String> {
    let off = "etc/cloud/cloud-init.disabled";
    let mut found: Vec<String> = image.has(off).then(|| off.to_owned()).into_iter().collect();
    let refuses = |file: &CloudConfig<'_>| file.disables_network() || file.refuses_user_data();
    found.extend(cloud_configs(image).filter(refuses).map(|file| file.path.to_owned()));
    let modes = ds_identify(image, "policy");
    if modes.iter().flat_map(|text| text.split(',')).any(|mode| mode.trim() == "disabled") {
        found.push(DS_IDENTIFY.to_owned());
    }
    let masks = |argument: &str| {
        let unit = argument.strip_prefix("systemd.mask=").unwrap_or_default();
        UNITS.contains(&unit)
    };
    let is_off = |argument: &str| {
        let known = ["cloud-init=disabled", "network-config=disabled", "ci.di.policy=disabled"];
        known.contains(&argument) || masks(argument)
    };
    found.extend(files_with_argument(image, is_off));
    found.extend(units_off(image));
    found
}

/// Files that name sources without MAAS.
fn bound_elsewhere(image: &LintSubject<'_>) -> Vec<String> {
    let excludes = |list: &[String]| !list.iter().any(|one| one == "MAAS");
    let of_configs = cloud_configs(image)
        .filter(|file| file.datasource_list().is_some_and(|list| excludes(&list)));
    let mut found: Vec<String> = of_configs.map(|file| file.path.to_owned()).collect();
    let names = ds_identify(image, "datasource");
    if names.iter().any(|name| !name.is_empty() && !name.contains("MAAS")) {
        found.push(DS_IDENTIFY.to_owned());
    }
    let names_other = |argument: &str| {
        let keys = ["ds=", "ci.ds=", "ci.datasource="];
        let value = keys.iter().find_map(|key| argument.strip_prefix(key));
        value.is_some_and(|value| {
            let name = value.split(';').next().unwrap_or_default();
            !name.to_ascii_lowercase().contains("maas")
        })
    };
    found.extend(files_with_argument(image, names_other));
    found
}

/// Values of a key of ds-identify's settings, read line by line as it does.
fn ds_identify(image: &LintSubject<'_>, wanted: &str) -> Vec<String> {
    let lines = image.lines(DS_IDENTIFY).filter_map(|line| {
        let (key, value) = line.split('#').next().unwrap_or_default().split_once(':')?;
        (key.trim() == wanted).then(|| value.trim().trim_matches(['"', '\'']).to_owned())
    });
    // The last one counts.
    lines.last().into_iter().collect()
}

/// Files with a kernel argument that a deployed host gets.
fn files_with_argument(image: &LintSubject<'_>, is_meant: impl Fn(&str) -> bool) -> Vec<String> {
    let settings = kernel_settings(image).into_iter().filter(|one| !one.is_replaced());
    let meant = settings.filter(|one| one.arguments().any(|argument| is_meant(&argument)));
    let mut paths: Vec<String> = meant.map(|one| one.path.to_owned()).collect();
    paths.dedup();
    paths
}

/// Units of cloud-init that an administrator's file keeps from running, and those that are not enabled.
fn units_off(image: &LintSubject<'_>) -> Vec<String> {
    let masked = UNIT_FOLDERS
        .iter()
        .flat_map(|folder| UNITS.iter().map(move |unit| format!("{folder}/{unit}")));
    let generators = ["etc", "usr/local/lib"].map(|folder| format!("{folder}/{GENERATOR}"));
    let mut found: Vec<String> = masked
        .chain(generators)
        .filter(|path| image.index.entry(path).is_some_and(is_mask))
        .collect();
    for unit in UNITS {
        for folder in UNIT_FOLDERS {
            let drop_ins = format!("{folder}/{unit}.d/");
            let files = image.leaves(&drop_ins).filter(|(path, _)| path.ends_with(".conf"));
            let stops = files.filter(|(path, _)| stops_unit(image, path));
            found.extend(stops.map(|(path, _)| path.to_owned()));
        }
        let is_packaged =
            ["usr/lib", "lib"].iter().any(|lib| image.has(&format!("{lib}/systemd/system/{unit}")));
        let wanted = format!("etc/systemd/system/cloud-init.target.wants/{unit}");
        if unit.ends_with(".service") && is_packaged && !image.has(&wanted) {
            found.push(wanted);
        }
    }
    found
}

/// Whether systemd takes the file for a mask: a link to nothing, or an empty file.
fn is_mask(entry: &IndexedEntry) -> bool {
    match &entry.kind {
        IndexedKind::Symlink(target) => target.ends_with("dev/null"),
        IndexedKind::File => entry.size_bytes == 0,
        _ => false,
    }
}

/// Whether a drop-in takes a unit's command away, or lets it start only under a condition.
fn stops_unit(image: &LintSubject<'_>, path: &str) -> bool {
    let value = |line: &str, key: &str| {
        let (name, value) = line.split_once('=')?;
        (name.trim() == key).then(|| value.trim().to_owned())
    };
    let commands: Vec<String> =
        image.lines(path).filter_map(|line| value(line, "ExecStart")).collect();
    let is_taken = commands.first().is_some_and(String::is_empty)
        && !commands.iter().any(|command| command.contains("cloud"));
    let conditional = |line: &str| {
        (line.starts_with("Condition") || line.starts_with("Assert")) && !line.ends_with('=')
    };
    is_taken || image.lines(path).any(conditional)
}

/// Whether the package hands MAAS' answers on: as its script says, and where there is no script as the
/// distribution's package is known to.
fn applies_answers(image: &LintSubject<'_>) -> bool {
    match image.index.text(POSTINST) {
        // Python 2 has neither been in Debian nor in Ubuntu for years.
        Some(script) => {
            let reads = script.contains("maas-metadata-url");
            reads
                && !["iteritems", "from urlparse", "import urlparse"]
                    .iter()
                    .any(|old| script.contains(old))
        }
        None => image.os_release("ID").is_none_or(|id| id != "debian"),
    }
}

/// Whether a hook writes MAAS' data source by itself.
fn hook_writes_data_source(text: &str) -> bool {
    let mut lines = text.lines().filter(|line| !line.trim_start().starts_with('#'));
    lines.any(|line| line.contains("metadata_url") || line.contains("maas-metadata-url"))
}
