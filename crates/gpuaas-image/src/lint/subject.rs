//! What rules are asked about: the archive, what it was made for, and the facts of both that more
//! than one rule wants.

use std::collections::BTreeMap;

use super::shell_text::assignments;
use crate::archive_index::{ArchiveIndex, IndexedEntry, IndexedKind};
use crate::disk_type::DiskType;

/// What an archive is judged for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LintOptions {
    /// MAAS' file type.
    pub file_type: ImageFileType,
    /// MAAS' storage layout of the machines that get it, such as `flat`.
    pub storage_layout: String,
    /// Debian's name of the machines' architecture.
    pub architecture: String,
    /// Size of the site's smallest boot disk in bytes; none: not judged.
    pub boot_disk_bytes: Option<u64>,
    /// Room that the site's rack controllers have for images, in bytes; none: not judged.
    pub rack_cache_bytes: Option<u64>,
    /// Hosts of apt sources that a deploy may ask, beside the distribution's own.
    pub excused_sources: Vec<String>,
    /// Kernel arguments that a deployed host has to have, beside those of the build record.
    pub kernel_arguments: Vec<String>,
}

impl Default for LintOptions {
    fn default() -> Self {
        Self {
            file_type: ImageFileType::Tgz,
            storage_layout: "flat".to_owned(),
            architecture: "amd64".to_owned(),
            boot_disk_bytes: None,
            rack_cache_bytes: None,
            excused_sources: Vec::new(),
            kernel_arguments: Vec::new(),
        }
    }
}

/// File types of MAAS that are judged.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ImageFileType {
    /// A root file system, `tgz`.
    Tgz,
    /// A whole disk.
    Disk(DiskType),
}

impl ImageFileType {
    /// The one of that name, such as `tgz` or `ddgz`.
    #[must_use]
    pub fn find(name: &str) -> Option<Self> {
        match name {
            "tgz" => Some(Self::Tgz),
            name => DiskType::find(name).map(Self::Disk),
        }
    }

    /// Its name.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Tgz => "tgz",
            Self::Disk(kind) => kind.name,
        }
    }
}

/// A package as dpkg's status has it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InstalledPackage {
    /// What is wanted of it, such as `install` or `hold`.
    pub wanted: String,
    /// `ok`, or `reinstreq` where it is broken.
    pub flag: String,
    /// How far its installation came, such as `installed` or `half-configured`.
    pub state: String,
    /// Debian's name of its architecture.
    pub architecture: String,
}

impl InstalledPackage {
    /// Whether all of it is there.
    #[must_use]
    pub fn is_installed(&self) -> bool {
        self.state == "installed"
    }
}

/// An archive under judgement.
#[derive(Debug)]
pub struct LintSubject<'a> {
    /// Its names.
    pub index: &'a ArchiveIndex,
    /// Its length in bytes.
    pub archive_bytes: u64,
    /// What it is judged for.
    pub options: &'a LintOptions,
    /// Its packages by name, without architecture.
    pub packages: BTreeMap<String, InstalledPackage>,
    /// Versions of its kernels, of `boot/vmlinuz-VERSION`.
    pub kernels: Vec<String>,
}

impl<'a> LintSubject<'a> {
    /// Gathers the facts.
    #[must_use]
    pub fn new(index: &'a ArchiveIndex, archive_bytes: u64, options: &'a LintOptions) -> Self {
        let packages = parse_status(index.text("var/lib/dpkg/status").unwrap_or_default());
        let kernels = index
            .below("boot/")
            .filter(|(_, entry)| entry.kind == IndexedKind::File)
            .filter_map(|(path, _)| path.strip_prefix("boot/vmlinuz-"))
            .map(str::to_owned)
            .collect();
        Self { index, archive_bytes, options, packages, kernels }
    }

    /// Whether all of a package is there.
    #[must_use]
    pub fn has_package(&self, name: &str) -> bool {
        self.packages.get(name).is_some_and(InstalledPackage::is_installed)
    }

    /// Whether a package is not there, where it is known what is.
    #[must_use]
    pub fn lacks_package(&self, name: &str) -> bool {
        !self.packages.is_empty() && !self.has_package(name)
    }

    /// Whether there is anything at `path`.
    #[must_use]
    pub fn has(&self, path: &str) -> bool {
        self.index.entry(path).is_some()
    }

    /// Files, links and the like below `folder`, which ends with a slash; no folders.
    pub fn leaves<'s>(
        &'s self,
        folder: &'s str,
    ) -> impl Iterator<Item = (&'s str, &'s IndexedEntry)> {
        self.index.below(folder).filter(|(_, entry)| entry.kind != IndexedKind::Directory)
    }

    /// The content of the file at `path`, where rules read it.
    #[must_use]
    pub fn text(&self, path: &str) -> Option<&str> {
        self.index.text(path)
    }

    /// A field of `/etc/os-release` (os-release(5)), such as `ID`.
    #[must_use]
    pub fn os_release(&self, field: &str) -> Option<String> {
        let files = ["etc/os-release", "usr/lib/os-release"];
        let text = files.iter().find_map(|path| self.text(path))?;
        let fields = assignments(text).into_iter().filter(|one| one.name == field);
        fields.map(|one| one.value).next_back()
    }

    /// Lines of the file at `path` that are neither empty nor a comment.
    pub fn lines<'s>(&'s self, path: &str) -> impl Iterator<Item = &'s str> {
        let text = self.index.text(path).unwrap_or_default();
        text.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#'))
    }
}

/// Reads dpkg's status: paragraphs of `Field: value`. Of a package that is there for two
/// architectures the one that is less healthy counts.
fn parse_status(text: &str) -> BTreeMap<String, InstalledPackage> {
    let mut packages: BTreeMap<String, InstalledPackage> = BTreeMap::new();
    for paragraph in text.split("\n\n") {
        let field = |name: &str| {
            let mut lines = paragraph.lines();
            lines.find_map(|line| line.strip_prefix(name)?.strip_prefix(':').map(str::trim))
        };
        let (Some(name), Some(status)) = (field("Package"), field("Status")) else { continue };
        let mut words = status.split_whitespace().map(str::to_owned);
        let package = InstalledPackage {
            wanted: words.next().unwrap_or_default(),
            flag: words.next().unwrap_or_default(),
            state: words.next().unwrap_or_default(),
            architecture: field("Architecture").unwrap_or_default().to_owned(),
        };
        let known = packages.get(name).is_none_or(InstalledPackage::is_installed);
        if known {
            packages.insert(name.to_owned(), package);
        }
    }
    packages
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packages_are_read_from_dpkgs_status() {
        let packages = parse_status(
            "Package: a\nStatus: hold ok installed\nArchitecture: amd64\nDescription: x\n \
             Package: no\n\nPackage: b\nStatus: deinstall ok config-files\nArchitecture: all\n\n\
             Package: a\nStatus: install ok unpacked\nArchitecture: i386\n",
        );
        assert_eq!(packages.keys().collect::<Vec<_>>(), ["a", "b"]);
        assert_eq!(
            (packages["a"].state.as_str(), packages["b"].is_installed()),
            ("unpacked", false)
        );
    }
}
