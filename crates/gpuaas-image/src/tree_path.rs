//! Paths of an image as paths of this machine.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// The place of an absolute path of the image. No folder on the way may be a link that is absolute:
/// that would be a folder of this machine.
///
/// # Errors
/// The path points outside the tree.
pub(crate) fn below(tree: &Path, path: &str) -> io::Result<PathBuf> {
    let mut place = tree.to_owned();
    for part in path.split('/').filter(|part| !part.is_empty()) {
        let is_outside = fs::read_link(&place).is_ok_and(|target| target.is_absolute());
        if part == ".." || is_outside {
            return Err(io::Error::other(format!("{path} points outside the tree")));
        }
        place.push(part);
    }
    Ok(place)
}
