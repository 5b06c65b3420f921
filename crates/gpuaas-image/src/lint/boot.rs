//! Rules about what starts a deployed host: init, the boot loader, kernel arguments, curtin's hook.
//!
//! Of curtin's own code: `install_grub.py` replaces the value of `GRUB_CMDLINE_LINUX_DEFAULT` in
//! `/etc/default/grub` and moves `50-cloudimg-settings.cfg` out of the way, and leaves other files of
//! `/etc/default/grub.d` alone; `curthooks.py` runs `/curtin/curtin-hooks` of the image, where it is
//! there, instead of all its own steps.

use super::rule::{LintRule, LintSeverity::Error, absolute, path_if};
use super::subject::LintSubject;
use crate::archive_index::IndexedKind;

/// Line of a hook that calls curtin's own steps, as ours has it.
pub const HOOK_MARK: &str = "# gpuaas: pins the kernel, then calls curtin's own steps";
/// Where curtin looks for a hook.
const HOOK: &str = "curtin/curtin-hooks";
const GRUB: &str = "etc/default/grub";
/// Moved away by curtin.
const CLOUD_IMAGE: &str = "etc/default/grub.d/50-cloudimg-settings.cfg";
const BUILD_RECORD: &str = "etc/gpuaas/maas-host-image-build.json";

/// Arguments that may be lost: curtin writes them itself, or they are for people at a console.
const LOSABLE: [&str; 5] = ["quiet", "splash", "console=", "nomodeset", "nosplash"];

pub(super) const RULES: &[LintRule] = &[
    LintRule {
        code: "init_missing",
        severity: Error,
        reason: "the image has no init",
        breaks: "first boot: the kernel panics",
        fix: "add systemd-sysv to the recipe's packages",
        check: |image| {
            let names = ["sbin/init", "usr/sbin/init", "lib/systemd/systemd"];
            path_if(!names.iter().any(|name| image.has(name)), "/sbin/init")
        },
    },
    LintRule {
        code: "boot_efi_not_empty",
        severity: Error,
        reason: "/boot/efi is not empty",
        breaks: "curtin, extract: the EFI partition is mounted there and is FAT, so tar cannot set owners and fails",
        fix: "leave what is below /boot/efi out of the archive; curtin installs the boot loader",
        check: |image| path_if(image.index.below("boot/efi/").next().is_some(), "/boot/efi"),
    },
    LintRule {
        code: "curtin_marker_in_tgz",
        severity: Error,
        reason: "/curtin has no hook, so it marks the root of a whole-disk image",
        breaks: "curtin, block-meta: nothing today; the folder is on every host, and says that the archive was made for another file type",
        fix: "delete /curtin, or put the image's own curtin-hooks into it",
        check: |image| path_if(image.has("curtin") && !image.has(HOOK), "/curtin"),
    },
    LintRule {
        code: "curtin_hook_foreign",
        severity: Error,
        reason: "/curtin/curtin-hooks is not the image's own",
        breaks: "curtin, curthooks: it runs this instead of all its own steps; one that does not call them leaves a host without fstab and boot loader",
        fix: "use the hook that the build writes, or delete it",
        check: |image| {
            let is_ours = image.index.text(HOOK).is_some_and(|text| text.contains(HOOK_MARK));
            path_if(image.has(HOOK) && !is_ours, "/curtin/curtin-hooks")
        },
    },
    LintRule {
        code: "curtin_hook_not_executable",
        severity: Error,
        reason: "/curtin/curtin-hooks cannot be run",
        breaks: "curtin, curthooks: permission denied",
        fix: "give it mode 0755",
        check: |image| {
            let hook = image.index.entry(HOOK);
            let is_wrong = hook
                .is_some_and(|hook| hook.kind == IndexedKind::File && hook.mode & 0o111 != 0o111);
            path_if(is_wrong, "/curtin/curtin-hooks")
        },
    },
    LintRule {
        code: "kernel_arguments_rewritten",
        severity: Error,
        reason: "kernel arguments stand where curtin writes its own",
        breaks: "curtin, setup_grub: it replaces GRUB_CMDLINE_LINUX_DEFAULT in /etc/default/grub and disables 50-cloudimg-settings.cfg, and the arguments are gone",
        fix: "put them into GRUB_CMDLINE_LINUX, in a file of their own in /etc/default/grub.d",
        check: |image| {
            let is_lost = |path: &&str| {
                let lines: Vec<&str> = image.lines(path).collect();
                let values = lines
                    .iter()
                    .filter_map(|line| line.strip_prefix("GRUB_CMDLINE_LINUX_DEFAULT="));
                values.flat_map(arguments).any(|argument| !is_losable(argument))
            };
            absolute([GRUB, CLOUD_IMAGE].iter().filter(|path| is_lost(path)))
        },
    },
    LintRule {
        code: "kernel_arguments_missing",
        severity: Error,
        reason: "a kernel argument that the image is for is set nowhere",
        breaks: "first boot: there are no IOMMU groups, and no slice becomes ready without a second boot",
        fix: "put it into GRUB_CMDLINE_LINUX, in a file of its own in /etc/default/grub.d",
        check: |image| {
            let is_set = |wanted: &String| {
                grub_files(image).into_iter().any(|path| sets(image, path, wanted))
            };
            path_if(!wanted_arguments(image).iter().all(is_set), "/etc/default/grub.d")
        },
    },
];

/// Words of a quoted value of shell.
fn arguments(value: &str) -> impl Iterator<Item = &str> {
    let bare = value.trim().trim_matches(['"', '\'']);
    bare.split_whitespace().filter(|word| !word.starts_with('$'))
}

fn is_losable(argument: &str) -> bool {
    LOSABLE
        .iter()
        .any(|known| argument == *known || known.ends_with('=') && argument.starts_with(known))
}

fn grub_files<'a>(image: &'a LintSubject<'_>) -> Vec<&'a str> {
    let below = image.leaves("etc/default/grub.d/").map(|(path, _)| path);
    std::iter::once(GRUB).chain(below.filter(|path| path.ends_with(".cfg"))).collect()
}

/// Whether a file of grub's defaults sets an argument where curtin leaves it.
fn sets(image: &LintSubject<'_>, path: &str, wanted: &str) -> bool {
    let is_moved = path == CLOUD_IMAGE;
    let is_rewritten = |line: &str| path == GRUB && line.starts_with("GRUB_CMDLINE_LINUX_DEFAULT=");
    let mut lines = image.lines(path).filter(|line| !is_moved && !is_rewritten(line));
    lines.any(|line| {
        let value = line.strip_prefix("GRUB_CMDLINE_LINUX");
        let value = value.and_then(|rest| rest.split_once('=')).map(|(_, value)| value);
        value.is_some_and(|value| arguments(value).any(|argument| argument == wanted))
    })
}

/// Arguments of the options and of the build record's `kernel_arguments`, a text with spaces.
fn wanted_arguments(image: &LintSubject<'_>) -> Vec<String> {
    let record = image.index.text(BUILD_RECORD).unwrap_or_default();
    let recorded = record
        .split_once("\"kernel_arguments\"")
        .and_then(|(_, rest)| rest.trim_start().strip_prefix(':'))
        .and_then(|rest| rest.trim_start().strip_prefix('"'))
        .and_then(|rest| rest.split('"').next())
        .unwrap_or_default();
    let recorded = recorded.split_whitespace().map(str::to_owned);
    recorded.chain(image.options.kernel_arguments.iter().cloned()).collect()
}
