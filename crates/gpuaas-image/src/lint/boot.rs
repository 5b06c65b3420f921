//! Rules about what starts a deployed host: init, the boot loader, kernel arguments, curtin's hook.
//!
//! Of curtin's own code: `curthooks.py` runs `/curtin/curtin-hooks` of the image, if it exists, instead
//! of all its own steps.

use super::kernel_arguments::{CLOUD_IMAGE, GRUB, grub_settings, kernel_settings};
use super::rule::{
    LintRule,
    LintSeverity::{Error, Warning},
    absolute, path_if,
};
use super::subject::LintSubject;
use crate::archive_index::IndexedKind;

/// Line of a hook that calls curtin's own steps, as ours has it.
pub const HOOK_MARK: &str = "# gpuaas: pins the kernel, then calls curtin's own steps";
/// Where curtin looks for a hook.
const HOOK: &str = "curtin/curtin-hooks";
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
        fix: "exclude the contents of /boot/efi from the archive; curtin installs the boot loader",
        check: |image| path_if(image.index.below("boot/efi/").next().is_some(), "/boot/efi"),
    },
    LintRule {
        code: "curtin_marker_in_tgz",
        severity: Error,
        reason: "/curtin has no hook, so it marks the root of a whole-disk image",
        breaks: "curtin, block-meta: no effect today; every host gets the folder, which suggests that the archive was built for another file type",
        fix: "delete /curtin, or put the image's own curtin-hooks into it",
        check: |image| path_if(image.has("curtin") && !image.has(HOOK), "/curtin"),
    },
    LintRule {
        code: "curtin_hook_foreign",
        severity: Error,
        reason: "/curtin/curtin-hooks neither calls curtin's own steps nor installs a boot loader",
        breaks: "curtin, curthooks: curtin runs this hook instead of its own steps, so the host gets no fstab and no boot loader",
        fix: "use the hook that the build writes, call builtin_curthooks, or delete the hook",
        check: |image| path_if(hook_kind(image) == HookKind::Incomplete, "/curtin/curtin-hooks"),
    },
    LintRule {
        code: "curtin_hook_unknown",
        severity: Warning,
        reason: "/curtin/curtin-hooks is not the hook of the build and does not pin the kernel",
        breaks: "curtin, installing-kernel: no effect if the hook does what curtin's own steps do; it may install a kernel other than the image's",
        fix: "use the hook that the build writes, which pins the kernel and calls curtin's own steps",
        check: |image| path_if(hook_kind(image) == HookKind::Foreign, "/curtin/curtin-hooks"),
    },
    LintRule {
        code: "curtin_hook_not_executable",
        severity: Error,
        reason: "/curtin/curtin-hooks is not executable",
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
        reason: "kernel arguments are set where curtin overwrites them",
        breaks: "curtin, setup_grub: curtin replaces GRUB_CMDLINE_LINUX_DEFAULT in /etc/default/grub and disables 50-cloudimg-settings.cfg, so the arguments are lost",
        fix: "set them in GRUB_CMDLINE_LINUX, in a separate file in /etc/default/grub.d",
        check: |image| {
            let settings = grub_settings(image).into_iter();
            let lost = settings.filter(|one| {
                let is_default = one.name == "GRUB_CMDLINE_LINUX_DEFAULT" && one.is_replaced();
                is_default && one.arguments().any(|argument| !is_losable(&argument))
            });
            let lost: Vec<&str> = lost.map(|one| one.path).collect();
            absolute([GRUB, CLOUD_IMAGE].iter().filter(|path| lost.contains(path)))
        },
    },
    LintRule {
        code: "kernel_arguments_missing",
        severity: Error,
        reason: "a kernel argument that the image requires is not set",
        breaks: "first boot: the host has no IOMMU groups, and slices become ready only after a second boot",
        fix: "set it in GRUB_CMDLINE_LINUX, in a separate file in /etc/default/grub.d",
        check: |image| {
            let settings = kernel_settings(image).into_iter();
            let kept = settings.filter(|one| !one.is_replaced());
            let set: Vec<String> =
                kept.flat_map(|one| one.arguments().collect::<Vec<_>>()).collect();
            let is_set = |wanted: &String| set.contains(wanted);
            path_if(!wanted_arguments(image).iter().all(is_set), "/etc/default/grub.d")
        },
    },
];

/// What a hook of the image does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum HookKind {
    /// There is none.
    Missing,
    /// The build's own.
    Ours,
    /// Another one that does what curtin does, or a program that cannot be read.
    Foreign,
    /// A script that leaves out what a host needs to boot.
    Incomplete,
}

fn hook_kind(image: &LintSubject<'_>) -> HookKind {
    let Some(text) = image.index.text(HOOK) else {
        return if image.has(HOOK) { HookKind::Foreign } else { HookKind::Missing };
    };
    if text.contains(HOOK_MARK) {
        return HookKind::Ours;
    }
    // What it does instead of curtin's steps; a comment does nothing.
    const DOES: [&str; 10] = [
        "builtin_curthooks",
        "curthooks.curthooks",
        "curtin curthooks",
        "install_grub",
        "install-grub",
        "grub-install",
        "grub2-install",
        "grub-mkconfig",
        "bootctl",
        "efibootmgr",
    ];
    let is_script = text.starts_with("#!");
    let mut lines = text.lines().filter(|line| !line.trim_start().starts_with('#'));
    let does =
        lines.any(|line| DOES.iter().any(|step| line.contains(step)) && !line.contains("import "));
    if does || !is_script { HookKind::Foreign } else { HookKind::Incomplete }
}

fn is_losable(argument: &str) -> bool {
    LOSABLE
        .iter()
        .any(|known| argument == *known || known.ends_with('=') && argument.starts_with(known))
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
