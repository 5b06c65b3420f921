//! A finished archive against the rules of what curtin and MAAS do with it.
//!
//! The archive is judged and not the tree that it was made of: what a program that packs loses, an
//! owner or a capability, is lost in the archive alone. Each rule is a row with its code and one
//! function over the archive's index, so rules know nothing of each other; what curtin does is said
//! in the row.

use std::fs::File;
use std::io::{self, Read as _};
use std::path::Path;

use crate::archive_index::{ArchiveIndex, ArchiveReadError};
use crate::disk_image;
use crate::disk_type::disk_stream;

mod boot;
mod integrity;
mod kernel;
mod leftovers;
mod packages;
mod rule;
mod subject;

pub use boot::HOOK_MARK;
pub use rule::{LintRule, LintSeverity};
pub use subject::{ImageFileType, InstalledPackage, LintOptions, LintSubject};

/// Rules that are about the file as a whole: what is no archive has no names to judge.
static FILE_RULES: [LintRule; 3] = [
    LintRule {
        code: "archive_damaged",
        severity: LintSeverity::Error,
        reason: "the file is no tgz, is cut off, or its checksum is wrong",
        breaks: "curtin, extract: tar ends with an error; a sound file of another type is written to no partition",
        fix: "build or upload it again, and compare its SHA-256",
        check: |_| Vec::new(),
    },
    LintRule {
        code: "disk_image_for_layout",
        severity: LintSeverity::Error,
        reason: "the file is a whole disk, and the machines get a storage layout",
        breaks: "curtin, setup_grub: the root comes from the image's disk and the EFI partition from MAAS, and the boot loader's installation fails",
        fix: "upload the root file system as tgz, or deploy with no storage layout",
        check: |_| Vec::new(),
    },
    LintRule {
        code: "dd_root_marker_missing",
        severity: LintSeverity::Error,
        reason: "no file system of the disk has the folder that marks the root",
        breaks: "curtin, block-meta: \"Did not find any filesystem that contained one of\" curtin, snapd, snaps",
        fix: "make an empty folder /curtin in the root before the disk is made",
        check: |_| Vec::new(),
    },
];

/// Every rule: those about the file first, then by what they are about.
pub fn rules() -> impl Iterator<Item = &'static LintRule> {
    let tables = [kernel::RULES, packages::RULES, leftovers::RULES, boot::RULES, integrity::RULES];
    FILE_RULES.iter().chain(tables.into_iter().flatten())
}

/// Where a rule was broken.
#[derive(Debug, Clone)]
pub struct ImageFinding {
    /// The rule.
    pub rule: &'static LintRule,
    /// What is meant, as the deployed host has it, or the file itself.
    pub path: String,
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

    fn of_file(rule: usize, file: &Path) -> Self {
        let path = file.display().to_string();
        Self { findings: vec![ImageFinding { rule: &FILE_RULES[rule], path }] }
    }
}

/// Judges the archive at `path`.
///
/// # Errors
/// The file cannot be read at all.
pub fn lint(path: &Path, options: &LintOptions) -> io::Result<ImageVerdict> {
    let archive_bytes = path.metadata()?.len();
    match first_sectors(path)? {
        None => return Ok(ImageVerdict::of_file(0, path)),
        Some(begin) if disk_image::is_disk(&begin) => return judge_disk(path, options),
        Some(_) if options.file_type != ImageFileType::Tgz => {
            return Ok(ImageVerdict::of_file(0, path));
        }
        Some(_) => {}
    }
    match ArchiveIndex::read(File::open(path)?) {
        Ok(index) => Ok(judge(&LintSubject::new(&index, archive_bytes, options))),
        Err(ArchiveReadError::Damaged(_)) => Ok(ImageVerdict::of_file(0, path)),
        Err(ArchiveReadError::Unreadable(error)) => Err(error),
    }
}

/// Applies every rule.
#[must_use]
pub fn judge(image: &LintSubject<'_>) -> ImageVerdict {
    let mut findings: Vec<ImageFinding> = rules()
        .flat_map(|rule| {
            (rule.check)(image).into_iter().map(move |path| ImageFinding { rule, path })
        })
        .collect();
    findings.sort_by_key(|finding| finding.rule.severity);
    ImageVerdict { findings }
}

/// The first kibibyte behind what compresses, and behind the header of an archive with a disk; `None` where
/// the file is not compressed or has less.
fn first_sectors(path: &Path) -> io::Result<Option<Vec<u8>>> {
    let mut begin = vec![0; 1024];
    match disk_stream(path).and_then(|mut stream| stream.read_exact(&mut begin)) {
        Ok(()) => Ok(Some(begin)),
        Err(error) => match error.kind() {
            io::ErrorKind::InvalidInput
            | io::ErrorKind::InvalidData
            | io::ErrorKind::UnexpectedEof => Ok(None),
            _ => Err(error),
        },
    }
}

fn judge_disk(path: &Path, options: &LintOptions) -> io::Result<ImageVerdict> {
    let has_layout = !["", "blank", "custom", "none"].contains(&options.storage_layout.as_str());
    if options.file_type == ImageFileType::Tgz || has_layout {
        return Ok(ImageVerdict::of_file(1, path));
    }
    match disk_image::has_root_marker(path) {
        Ok(true) => Ok(ImageVerdict::default()),
        Ok(false) => Ok(ImageVerdict::of_file(2, path)),
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => {
            Ok(ImageVerdict::of_file(0, path))
        }
        Err(error) => Err(error),
    }
}
