//! Rules about the kernel: one, whole, with every module of DKMS built for it.

use std::collections::BTreeSet;

use super::rule::{LintRule, LintSeverity::Error, absolute, path_if};
use super::subject::LintSubject;
use crate::archive_index::IndexedKind;

/// Where DKMS keeps its modules.
const DKMS: &str = "var/lib/dkms/";
/// Where curtin looks for a hook of the image.
const HOOK: &str = "curtin/curtin-hooks";

pub(super) const RULES: &[LintRule] = &[
    LintRule {
        code: "kernel_missing",
        severity: Error,
        reason: "the image has no kernel",
        breaks: "curtin, installing-kernel: curtin has to download a kernel that no build has tested with the image's drivers",
        fix: "add linux-generic (Debian: linux-image-amd64) to the recipe's packages",
        check: |image| path_if(image.kernels.is_empty(), "/boot"),
    },
    LintRule {
        code: "kernel_several",
        severity: Error,
        reason: "the image has more than one kernel",
        breaks: "first boot: GRUB boots the newest version, which may not be the one that the drivers were built for",
        fix: "purge every linux-image package except the newest at the end of the build",
        check: |image| {
            let is_wrong = image.kernels.len() > 1;
            let names = image.kernels.iter().map(|version| format!("boot/vmlinuz-{version}"));
            if is_wrong { absolute(names) } else { Vec::new() }
        },
    },
    LintRule {
        code: "initrd_missing",
        severity: Error,
        reason: "a kernel has no initrd",
        breaks: "curtin, setup_grub: update-grub writes an entry without one, and the first boot finds no root",
        fix: "run update-initramfs -c -k VERSION at the end of the build",
        check: |image| missing_of_kernels(image, |version| format!("boot/initrd.img-{version}")),
    },
    LintRule {
        code: "kernel_modules_missing",
        severity: Error,
        reason: "a kernel's modules are missing or have no modules.dep",
        breaks: "curtin, setup_grub: update-initramfs builds an initrd without drivers, and the first boot finds no disk",
        fix: "install linux-modules-VERSION and run depmod VERSION",
        check: |image| {
            let merged = |version: &str| format!("usr/lib/modules/{version}/modules.dep");
            let missing = missing_of_kernels(image, merged);
            let unmerged = |path: &String| !image.has(path.trim_start_matches("/usr/"));
            missing.into_iter().filter(unmerged).collect()
        },
    },
    LintRule {
        code: "kernel_headers_missing",
        severity: Error,
        reason: "a kernel has no headers",
        breaks: "curtin, installing-kernel: the packages' DKMS hook builds nothing and fails",
        fix: "install linux-headers-VERSION of the same version as the kernel",
        check: |image| {
            missing_of_kernels(image, |version| format!("usr/src/linux-headers-{version}"))
        },
    },
    LintRule {
        code: "dkms_not_built",
        severity: Error,
        reason: "a DKMS module was not built for the kernel",
        breaks: "first boot: the host comes up without its driver; curtin, installing-kernel: the hook retries the build during the deploy",
        fix: "run dkms autoinstall -k VERSION in the build and check why it fails",
        check: |image| {
            let modules = dkms_modules(image).into_iter();
            modules.filter(|module| module.built.is_empty()).map(|module| module.folder).collect()
        },
    },
    LintRule {
        code: "dkms_not_installed",
        severity: Error,
        reason: "a DKMS module was built but is not installed",
        breaks: "first boot: depmod does not know the module, and the host comes up without its driver",
        fix: "run dkms install MODULE/VERSION -k KERNEL --force in the build",
        check: |image| {
            let is_left = |module: &DkmsModule| {
                let mut built = module.built.iter();
                built.any(|file| !is_installed(image, &module.kernel, file))
            };
            let modules = dkms_modules(image).into_iter();
            modules.filter(is_left).map(|module| module.folder).collect()
        },
    },
    LintRule {
        code: "dkms_unpinned_kernel",
        severity: Error,
        reason: "the image has DKMS modules, and nothing stops curtin from installing another kernel",
        breaks: "curtin, installing-kernel: linux-generic installs the archive's newest kernel and headers, and DKMS builds for it; if that fails, the deploy fails",
        fix: "add the image's own /curtin/curtin-hooks, which pins the kernel and then calls curtin's own steps, or leave such drivers to the site bundle",
        check: |image| {
            let modules = dkms_modules(image);
            path_if(!modules.is_empty() && !image.has(HOOK), "/var/lib/dkms")
        },
    },
];

/// What each kernel has to have and one has not.
fn missing_of_kernels(image: &LintSubject<'_>, wanted: impl Fn(&str) -> String) -> Vec<String> {
    let paths = image.kernels.iter().map(|version| wanted(version));
    absolute(paths.filter(|path| !image.has(path)))
}

/// A module that DKMS knows, for one of the image's kernels.
struct DkmsModule {
    /// Its folder, as the deployed host has it.
    folder: String,
    kernel: String,
    /// Names of the files that were built, without what compresses them.
    built: BTreeSet<String>,
}

/// DKMS's tree: `NAME/VERSION/source` once a module is added, and
/// `NAME/VERSION/KERNEL/ARCH/module/FILE` once it is built (dkms(8)).
fn dkms_modules(image: &LintSubject<'_>) -> Vec<DkmsModule> {
    let mut modules = Vec::new();
    for (path, _) in image.index.below(DKMS) {
        let Some(folder) = path.strip_suffix("/source") else { continue };
        let parts = folder.strip_prefix(DKMS).unwrap_or_default();
        if parts.split('/').count() != 2 {
            continue;
        }
        for kernel in &image.kernels {
            let build = format!("{folder}/{kernel}/");
            let files = image.leaves(&build).filter(|(path, _)| path.contains("/module/"));
            let built = files.filter_map(|(path, _)| module_name(path)).collect();
            modules.push(DkmsModule {
                folder: format!("/{folder}"),
                kernel: kernel.clone(),
                built,
            });
        }
    }
    modules
}

/// `nvidia.ko` of `.../nvidia.ko.zst`; nothing of what is no module.
fn module_name(path: &str) -> Option<String> {
    let name = path.rsplit('/').next()?;
    let end = name.find(".ko")? + ".ko".len();
    matches!(&name[end..], "" | ".gz" | ".xz" | ".zst").then(|| name[..end].to_owned())
}

/// Whether depmod finds the module: below `updates` or `extra` of the kernel's own folder.
fn is_installed(image: &LintSubject<'_>, kernel: &str, file: &str) -> bool {
    ["usr/lib", "lib"].iter().any(|lib| {
        let folder = format!("{lib}/modules/{kernel}/");
        let mut modules = image.leaves(&folder).filter(|(_, entry)| {
            matches!(entry.kind, IndexedKind::File | IndexedKind::HardLink(_))
        });
        modules.any(|(path, _)| {
            let below = path.strip_prefix(&folder).unwrap_or_default();
            let is_added = below.starts_with("updates/") || below.starts_with("extra/");
            is_added && module_name(path).as_deref() == Some(file)
        })
    })
}
