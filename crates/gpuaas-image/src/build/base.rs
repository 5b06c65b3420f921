//! What a build begins with, behind one trait.

use std::fs;
use std::path::{Path, PathBuf};

use super::error::BuildError;
pub use super::layer::MadePackages;
use super::repository::{TrustedRepository, write_sources};
use super::snapshot::{BaseSnapshot, archive_snapshot};
use crate::command::{Isolation, Tool, ToolError, need_root_and};

/// Seconds that installing packages may take.
const INSTALL_SECONDS: u64 = 3600;

/// Packages that a base is made of.
#[derive(Debug, Clone, Copy)]
pub struct BasePackages<'a> {
    /// Without one of these there is no base.
    pub required: &'a [String],
    /// One of these that is not to be had is said.
    pub optional: &'a [String],
    /// Archives that they may come from, beside the base's own.
    pub repositories: &'a [TrustedRepository],
}

/// A source of root file systems.
pub trait ImageBase {
    /// Name of the base, which its layers are kept under.
    fn name(&self) -> String;

    /// The state of the source now; `scratch` is a folder for what is fetched.
    ///
    /// # Errors
    /// [`BuildError::SourceUnreachable`].
    fn snapshot(&self, scratch: &Path) -> Result<BaseSnapshot, BuildError>;

    /// Makes the root file system with its packages in the folder `tree`, which is not there yet.
    ///
    /// # Errors
    /// [`BuildError`]; what is in the folder is of no use then.
    fn make(
        &self,
        snapshot: &BaseSnapshot,
        packages: &BasePackages<'_>,
        tree: &Path,
    ) -> Result<MadePackages, BuildError>;
}

/// A root file system from packages of Debian or of what descends from it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MmdebstrapBase {
    /// Name of the release, such as `bookworm`.
    pub suite: String,
    /// URL of its packages.
    pub mirror: String,
}

/// Puts the sources of further archives, the files of the folder `$1`, into the tree, which is `$2`.
const ADD_SOURCES: &str = r#"
set -eu
mkdir -p "$2/etc/apt/sources.list.d" "$2/etc/apt/preferences.d"
for source in "$1"/*.sources; do
    if [ -e "$source" ]; then cp "$source" "$2/etc/apt/sources.list.d/"; fi
done
cp "$1/gpuaas.preferences" "$2/etc/apt/preferences.d/gpuaas-build"
"#;

/// Installs those optional packages that can be, and says which cannot; then takes the sources of the
/// folder `$1` out again. Runs outside of the tree, which is `$2`; the rest are names.
const INSTALL_OPTIONAL: &str = r#"
set -eu
sources=$1 tree=$2
shift 2
for name in "$@"; do
    if chroot "$tree" apt-get -s -q install --no-install-recommends "$name" >/dev/null 2>&1; then
        if chroot "$tree" apt-get -q -y install --no-install-recommends "$name" >&2; then continue; fi
        # It is optional: what is left of it goes, and dpkg is as it was.
        chroot "$tree" apt-get -q -y purge "$name" >&2 || true
        chroot "$tree" dpkg --configure -a >&2
    fi
    printf '%s\n' "$name" >>"$tree/optional-missing"
done
for source in "$sources"/*.sources; do
    rm -f "$tree/etc/apt/sources.list.d/${source##*/}"
done
rm -f "$tree/etc/apt/preferences.d/gpuaas-build"
"#;

impl ImageBase for MmdebstrapBase {
    fn name(&self) -> String {
        format!("mmdebstrap {} {}", self.suite, self.mirror)
    }

    fn snapshot(&self, scratch: &Path) -> Result<BaseSnapshot, BuildError> {
        archive_snapshot(&self.mirror, &self.suite, scratch)
    }

    fn make(
        &self,
        snapshot: &BaseSnapshot,
        packages: &BasePackages<'_>,
        tree: &Path,
    ) -> Result<MadePackages, BuildError> {
        need_root_and(&["mmdebstrap"])?;
        let sources = write_sources(packages.repositories, tree)?;
        let add = hook_file(tree, "add-sources.sh", ADD_SOURCES)?;
        let install_optional = hook_file(tree, "install-optional.sh", INSTALL_OPTIONAL)?;
        let hook = |file: &Path| format!("sh {} {} \"$1\"", file.display(), sources.display());
        let names = packages.optional.join(" ");
        let install = Tool::isolated(
            "install packages",
            "mmdebstrap",
            Isolation::WithNetwork,
            INSTALL_SECONDS,
        );
        let installed = install
            .env("SOURCE_DATE_EPOCH", &snapshot.epoch_seconds.to_string())
            .arg("--mode=root")
            .arg("--variant=minbase")
            .arg("--format=directory")
            .arg(format!("--include={}", packages.required.join(",")))
            .arg("--aptopt=APT::Install-Recommends \"false\"")
            .arg(format!("--setup-hook={}", hook(&add)))
            .arg(format!("--customize-hook={} {names}", hook(&install_optional)))
            .arg(&self.suite)
            .arg(tree)
            .arg(&self.mirror)
            .run();
        for file in [&add, &install_optional] {
            fs::remove_file(file)?;
        }
        fs::remove_dir_all(&sources)?;
        installed.map_err(|error| packages_error(error.into(), packages.repositories))?;
        let missing = fs::read_to_string(tree.join("optional-missing")).unwrap_or_default();
        if !missing.is_empty() {
            fs::remove_file(tree.join("optional-missing"))?;
        }
        Ok(MadePackages {
            packages: installed_packages(&fs::read_to_string(tree.join("var/lib/dpkg/status"))?),
            optional_missing: missing.lines().map(str::to_owned).collect(),
        })
    }
}

/// A hook beside the tree, whose path has no blank of its own making.
fn hook_file(tree: &Path, name: &str, script: &str) -> Result<PathBuf, BuildError> {
    let path = std::path::absolute(tree.with_file_name(name))?;
    fs::write(&path, script)?;
    Ok(path)
}

/// Apt's sentences about a package that is not there, and about an index that the right keys have not
/// signed, as errors of their own.
pub(super) fn packages_error(error: BuildError, repositories: &[TrustedRepository]) -> BuildError {
    let BuildError::Tool(ToolError::Step { output, .. }) = &error else { return error };
    let unsigned = output.lines().filter(|line| {
        line.contains("is not signed") || line.contains("signatures couldn't be verified")
    });
    for line in unsigned {
        if let Some(repository) = repositories.iter().find(|one| line.contains(one.url())) {
            let (name, detail) = (repository.name().to_owned(), line.trim().to_owned());
            return BuildError::RepositoryUntrusted { name, detail };
        }
    }
    let name = output.lines().find_map(|line| {
        let rest = line.split_once("Unable to locate package ")?.1;
        rest.split_whitespace().next()
    });
    match name {
        Some(name) => BuildError::PackageMissing(name.to_owned()),
        None => error,
    }
}

/// Installed packages of dpkg's status, `name=version`, by name.
pub(super) fn installed_packages(status: &str) -> Vec<String> {
    let mut packages: Vec<String> = status
        .split("\n\n")
        .filter_map(|paragraph| {
            let field = |name: &str| {
                paragraph.lines().find_map(|line| line.strip_prefix(name)).map(str::trim)
            };
            let is_installed = field("Status:")?.ends_with(" installed");
            is_installed.then(|| Some(format!("{}={}", field("Package:")?, field("Version:")?)))?
        })
        .collect();
    packages.sort();
    packages
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mirror_that_does_not_answer_is_changed_for_one_that_does() {
        if let Some(tool) = super::super::publishing::missing(&["apt-get"]) {
            return test_report::skip(tool, "not installed");
        }
        let folder = tempfile::tempdir().unwrap();
        let (index, scratch) = (folder.path().join("dists/stable"), folder.path().join("scratch"));
        fs::create_dir_all(&index).unwrap();
        fs::create_dir(&scratch).unwrap();
        fs::write(index.join("InRelease"), "Date: Thu, 01 Jan 1970 00:00:09 UTC\n").unwrap();
        let url = super::super::publishing::serve(folder.path());
        let base = |mirror: String| MmdebstrapBase { suite: "stable".to_owned(), mirror };
        let error = base(format!("{url}/elsewhere")).snapshot(&scratch).unwrap_err();
        assert_eq!(error.code(), "image_source_unreachable");
        assert!(error.hint().contains("--base-url"), "{}", error.hint());
        assert_eq!(base(url).snapshot(&scratch).unwrap().epoch_seconds, 9);
    }

    #[test]
    fn packages_of_a_status_are_those_that_are_installed() {
        let status = "Package: b\nStatus: install ok installed\nVersion: 2-1\n\nPackage: a\nStatus: deinstall ok config-files\nVersion: 1\n\nPackage: c\nStatus: hold ok installed\nVersion: 3\n";
        assert_eq!(installed_packages(status), ["b=2-1", "c=3"]);
    }

    #[test]
    fn a_package_that_is_not_there_is_named() {
        let step = |output: &str| {
            BuildError::Tool(ToolError::Step { step: "install", output: output.to_owned() })
        };
        let none = |said: &str| packages_error(step(said), &[]);
        let error = none("x\nE: Unable to locate package linux-nothing\ny");
        assert_eq!(error.to_string(), "the archive contains no package linux-nothing");
        assert!(error.hint().contains("optional"));
        assert_eq!(none("E: no space left").code(), "image_build_failed");
    }
}
