//! A finished archive against the rules of what curtin and MAAS do with it.
//!
//! The archive is judged and not the tree that it was made of: what a program that packs loses, an
//! owner or a capability, is lost in the archive alone. Each rule is a row with its code and one
//! function over the archive's index, so rules know nothing of each other; what curtin does is said
//! in the row.

use std::fs::File;
use std::io;
use std::path::Path;

use crate::archive_index::{ArchiveIndex, ArchiveReadError};
use crate::disk_image;

mod boot;
mod build_disks;
mod cloud_config;
mod cloud_init;
mod file_shape;
mod identities;
mod integrity;
mod kernel;
mod kernel_arguments;
mod leftovers;
mod modes;
mod packages;
mod rule;
pub(crate) mod shell_text;
mod subject;

use file_shape::{FileShape, ShapeContent};

pub use boot::HOOK_MARK;
pub use rule::{LintRule, LintSeverity};
pub use subject::{ImageFileType, InstalledPackage, LintOptions, LintSubject};

/// Rules that are about the file as a whole: what is no archive has no names to judge.
static FILE_RULES: [LintRule; 4] = [
    LintRule {
        code: "archive_damaged",
        severity: LintSeverity::Error,
        reason: "the file is not a tgz, is truncated, or has a wrong checksum",
        breaks: "curtin, extract: tar fails; an intact file of another type is not written to any partition",
        fix: "build or upload it again, and compare its SHA-256",
        check: |_| Vec::new(),
    },
    LintRule {
        code: "disk_image_for_layout",
        severity: LintSeverity::Error,
        reason: "the file is a whole-disk image, but the machines get a storage layout",
        breaks: "curtin, setup_grub: the root comes from the image's disk and the EFI partition from MAAS, so the boot loader installation fails",
        fix: "upload the root file system as tgz, or deploy without a storage layout",
        check: |_| Vec::new(),
    },
    LintRule {
        code: "dd_root_marker_missing",
        severity: LintSeverity::Error,
        reason: "no file system on the disk contains a folder that marks the root",
        breaks: "curtin, block-meta: \"Did not find any filesystem that contained one of\" curtin, snapd, snaps",
        fix: "create an empty folder /curtin in the root before building the disk",
        check: |_| Vec::new(),
    },
    LintRule {
        code: "file_type_differs",
        severity: LintSeverity::Error,
        reason: "the file type differs from the type declared to MAAS",
        breaks: "curtin, extract or block-meta: MAAS does not check the file; tar finds no archive, or a tar header is written to sector 0 and the host does not boot",
        fix: "upload it with its actual type (--file-type), or pack it as the type you want",
        check: |_| Vec::new(),
    },
];

/// Every rule: those about the file first, then by what they are about.
pub fn rules() -> impl Iterator<Item = &'static LintRule> {
    let tables = [
        kernel::RULES,
        packages::RULES,
        cloud_init::RULES,
        leftovers::RULES,
        identities::RULES,
        build_disks::RULES,
        boot::RULES,
        integrity::RULES,
        modes::RULES,
    ];
    FILE_RULES.iter().chain(tables.into_iter().flatten())
}

/// Where a rule was broken.
#[derive(Debug, Clone)]
pub struct ImageFinding {
    /// The rule.
    pub rule: &'static LintRule,
    /// What is meant, as the deployed host has it, or the file itself.
    pub path: String,
    /// What was found there, where the rule's reason is not all; empty: it is.
    pub detail: String,
}

impl ImageFinding {
    /// The rule's reason, with what was found.
    #[must_use]
    pub fn reason(&self) -> String {
        match self.detail.as_str() {
            "" => self.rule.reason.to_owned(),
            detail => format!("{}: {detail}", self.rule.reason),
        }
    }
}

/// What was found, errors first, by the order of the rules.
#[derive(Debug, Clone, Default)]
pub struct ImageVerdict {
    /// Each rule that was broken, with each path.
    pub findings: Vec<ImageFinding>,
}

impl ImageVerdict {
    /// Whether there is no error; warnings are none.
    #[must_use]
    pub fn passed(&self) -> bool {
        self.findings.iter().all(|finding| finding.rule.severity == LintSeverity::Warning)
    }

    fn of_file(rule: usize, file: &Path, detail: String) -> Self {
        let path = file.display().to_string();
        Self { findings: vec![ImageFinding { rule: &FILE_RULES[rule], path, detail }] }
    }

    fn damaged(file: &Path) -> Self {
        Self::of_file(0, file, String::new())
    }
}

/// Judges the archive at `path`.
///
/// # Errors
/// The file cannot be read at all.
pub fn lint(path: &Path, options: &LintOptions) -> io::Result<ImageVerdict> {
    let archive_bytes = path.metadata()?.len();
    let shape = FileShape::of(path)?;
    if let Some(detail) = shape.differs_from(options.file_type) {
        return Ok(ImageVerdict::of_file(3, path, detail));
    }
    match shape {
        FileShape::Compressed(_, ShapeContent::Disk | ShapeContent::DiskInTar) => {
            return judge_disk(path, options);
        }
        _ if options.file_type != ImageFileType::Tgz => return Ok(ImageVerdict::damaged(path)),
        _ => {}
    }
    match ArchiveIndex::read(File::open(path)?) {
        Ok(index) => Ok(judge(&LintSubject::new(&index, archive_bytes, options))),
        Err(ArchiveReadError::Damaged(_)) => Ok(ImageVerdict::damaged(path)),
        Err(ArchiveReadError::Unreadable(error)) => Err(error),
    }
}

/// Applies every rule.
#[must_use]
pub fn judge(image: &LintSubject<'_>) -> ImageVerdict {
    let mut findings: Vec<ImageFinding> = rules()
        .flat_map(|rule| {
            let paths = (rule.check)(image).into_iter();
            paths.map(move |path| ImageFinding { rule, path, detail: String::new() })
        })
        .collect();
    findings.sort_by_key(|finding| finding.rule.severity);
    ImageVerdict { findings }
}

fn judge_disk(path: &Path, options: &LintOptions) -> io::Result<ImageVerdict> {
    let has_layout = !["", "blank", "custom", "none"].contains(&options.storage_layout.as_str());
    if has_layout {
        return Ok(ImageVerdict::of_file(1, path, String::new()));
    }
    match disk_image::has_root_marker(path) {
        Ok(true) => Ok(ImageVerdict::default()),
        Ok(false) => Ok(ImageVerdict::of_file(2, path, String::new())),
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => {
            Ok(ImageVerdict::damaged(path))
        }
        Err(error) => Err(error),
    }
}
