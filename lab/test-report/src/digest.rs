//! Digest of the files that a system test covers.

use std::fs;
use std::io;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use sha2::{Digest as _, Sha256};

/// SHA-256 of all files below the covered paths: each file's path, mode and content, in the order
/// of the paths. An entry that begins with `!` excludes a file or a folder.
///
/// # Errors
/// A covered or excluded path does not exist, or a file cannot be read.
pub(crate) fn of_files(root: &Path, covers: &[&str]) -> io::Result<String> {
    let mut files = Vec::new();
    let (excluded, covered): (Vec<&str>, Vec<&str>) =
        covers.iter().partition(|entry| entry.starts_with('!'));
    let excluded: Vec<PathBuf> = excluded.iter().map(|entry| root.join(&entry[1..])).collect();
    for path in &excluded {
        fs::symlink_metadata(path).map_err(|error| named(path, &error))?;
    }
    for entry in covered {
        collect(&root.join(entry), &excluded, &mut files)?;
    }
    files.sort();
    files.dedup();
    let mut digest = Sha256::new();
    for file in files {
        let metadata = fs::symlink_metadata(&file)?;
        let content = if metadata.is_symlink() {
            fs::read_link(&file)?.into_os_string().into_encoded_bytes()
        } else {
            fs::read(&file).map_err(|error| named(&file, &error))?
        };
        let name = file.strip_prefix(root).unwrap_or(&file).as_os_str().as_encoded_bytes();
        let mode = metadata.permissions().mode() & 0o111;
        // Lengths first, so that no two different sets of files give the same bytes.
        digest.update((name.len() as u64).to_le_bytes());
        digest.update(name);
        digest.update(mode.to_le_bytes());
        digest.update((content.len() as u64).to_le_bytes());
        digest.update(content);
    }
    Ok(hex::encode(digest.finalize()))
}

fn collect(path: &Path, excluded: &[PathBuf], files: &mut Vec<PathBuf>) -> io::Result<()> {
    if excluded.iter().any(|out| out == path) {
        return Ok(());
    }
    let metadata = fs::symlink_metadata(path).map_err(|error| named(path, &error))?;
    if !metadata.is_dir() {
        files.push(path.to_owned());
        return Ok(());
    }
    for entry in fs::read_dir(path)? {
        collect(&entry?.path(), excluded, files)?;
    }
    Ok(())
}

fn named(path: &Path, error: &io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("{}: {error}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_changed_byte_or_name_or_mode_gives_another_digest() {
        let dir = tempfile::tempdir().unwrap();
        let path = |name: &str| dir.path().join(name);
        fs::create_dir(path("a")).unwrap();
        fs::write(path("a/one"), "1").unwrap();
        fs::write(path("a/help"), "text").unwrap();
        fs::write(path("other"), "2").unwrap();
        let digest = || of_files(dir.path(), &["a", "!a/help"]).unwrap();
        let first = digest();
        assert_eq!(first, digest());
        fs::write(path("a/help"), "other text").unwrap();
        fs::write(path("other"), "3").unwrap();
        assert_eq!(first, digest(), "excluded and uncovered files do not count");
        fs::write(path("a/one"), "2").unwrap();
        let second = digest();
        assert_ne!(first, second);
        fs::set_permissions(path("a/one"), fs::Permissions::from_mode(0o755)).unwrap();
        let third = digest();
        assert_ne!(second, third);
        fs::rename(path("a/one"), path("a/two")).unwrap();
        assert_ne!(third, digest());
    }

    #[test]
    fn a_path_that_does_not_exist_is_an_error() {
        let dir = tempfile::tempdir().unwrap();
        for covers in [&["gone"][..], &["!gone"][..]] {
            let error = of_files(dir.path(), covers).unwrap_err();
            assert!(error.to_string().contains("gone"), "{error}");
        }
    }
}
