//! The tree of a package, on disk.

use std::fs::{self, Permissions};
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::proc;

/// One file of a package.
#[derive(Debug)]
pub(crate) struct Entry {
    /// Path below the root, without a slash before it.
    pub(crate) path: String,
    pub(crate) mode: u32,
    pub(crate) content: Content,
}

#[derive(Debug)]
pub(crate) enum Content {
    /// The bytes of another file.
    Copy(PathBuf),
    Text(String),
    /// A symbolic link to this path.
    Link(&'static str),
    /// An empty folder.
    Folder,
}

impl Entry {
    pub(crate) fn copy(path: impl Into<String>, mode: u32, from: PathBuf) -> Self {
        Self { path: path.into(), mode, content: Content::Copy(from) }
    }

    pub(crate) fn text(path: impl Into<String>, text: impl Into<String>) -> Self {
        Self { path: path.into(), mode: 0o644, content: Content::Text(text.into()) }
    }

    pub(crate) fn folder(path: &str, mode: u32) -> Self {
        Self { path: path.to_owned(), mode, content: Content::Folder }
    }

    pub(crate) fn link(path: &str, to: &'static str) -> Self {
        Self { path: path.to_owned(), mode: 0o777, content: Content::Link(to) }
    }
}

/// A folder for what is not delivered; dropped with all that is in it.
pub(crate) struct Folder(PathBuf);

impl Folder {
    pub(crate) fn create(out: &Path) -> Result<Self, String> {
        let path = out.join(format!(".stage-{}", std::process::id()));
        folder(&path)?;
        Ok(Self(path))
    }

    pub(crate) fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        if let Err(error) = fs::remove_dir_all(&self.0) {
            eprintln!("note: {}: {error}", self.0.display());
        }
    }
}

/// Copies a file. Of its permissions it keeps whether it is executable.
pub(crate) fn copy(from: &Path, to: &Path) -> Result<(), String> {
    fs::copy(from, to).map_err(|error| format!("{}: {error}", from.display()))?;
    set_mode(to, if is_executable(from) { 0o755 } else { 0o644 })
}

fn is_executable(path: &Path) -> bool {
    fs::metadata(path).is_ok_and(|file| file.permissions().mode() & 0o100 != 0)
}

/// Writes `entries` below `root`. Folders get the mode 0755, whatever the umask.
///
/// # Errors
/// A file cannot be read or written.
pub(crate) fn write(root: &Path, entries: &[Entry]) -> Result<(), String> {
    folder(root)?;
    for entry in entries {
        let path = root.join(&entry.path);
        let parents: Vec<&Path> =
            path.ancestors().skip(1).take_while(|parent| *parent != root).collect();
        for parent in parents.into_iter().rev() {
            folder(parent)?;
        }
        let failed = |error: std::io::Error| format!("{}: {error}", path.display());
        match &entry.content {
            Content::Copy(from) => copy(from, &path)?,
            Content::Text(text) => fs::write(&path, text).map_err(failed)?,
            Content::Folder => folder(&path)?,
            Content::Link(to) => {
                symlink(to, &path).map_err(failed)?;
                continue;
            }
        }
        set_mode(&path, entry.mode)?;
    }
    Ok(())
}

fn folder(path: &Path) -> Result<(), String> {
    fs::create_dir_all(path).map_err(|error| format!("{}: {error}", path.display()))?;
    set_mode(path, 0o755)
}

pub(crate) fn set_mode(path: &Path, mode: u32) -> Result<(), String> {
    fs::set_permissions(path, Permissions::from_mode(mode))
        .map_err(|error| format!("{}: {error}", path.display()))
}

/// Packs the folder `tree`, which the archive names, for systems without dpkg.
///
/// # Errors
/// What tar said.
pub(crate) fn archive(tree: &Path, file: &Path, seconds: u64, quick: bool) -> Result<(), String> {
    // With more threads xz writes other bytes.
    let program = if quick { "xz -0 -T1" } else { "xz -6 -T1" };
    let (parent, name) = (tree.parent().unwrap_or(tree), tree.file_name().unwrap_or_default());
    let mut tar = Command::new("tar");
    tar.args(["--create", "--format=gnu", "--sort=name", "--numeric-owner", "--owner=0"])
        .args(["--group=0", "--use-compress-program", program])
        .arg(format!("--mtime=@{seconds}"))
        .arg("--file")
        .arg(file)
        .arg("--directory")
        .arg(parent)
        .arg(name);
    proc::quiet(&mut tar).map(drop)
}
