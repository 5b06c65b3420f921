//! Layers that are kept, by the digest of what they were made of.
//!
//! A layer is a folder with its tree and, written last, what was found while it was made. A folder
//! without that is of a build that was stopped, and is deleted by the next one.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

use rustix::fs::{FlockOperation, flock};
use serde::{Deserialize, Serialize};
use tempfile::TempDir;

use super::error::BuildError;
use super::request::BuildOutcome;
use crate::command::Tool;

/// Seconds that a copy of a tree may take.
const COPY_SECONDS: u64 = 1800;

/// What was found while packages were installed.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct MadePackages {
    /// Installed packages, `name=version`, by name.
    pub packages: Vec<String>,
    /// Optional packages that were not to be had.
    pub optional_missing: Vec<String>,
}

/// A layer.
pub(super) struct Layer {
    tree: PathBuf,
    pub(super) made: MadePackages,
}

/// The folder of layers, locked for one build.
pub(super) struct LayerStore {
    folder: PathBuf,
    scratch: TempDir,
    _lock: File,
}

impl LayerStore {
    /// Opens and locks; makes the folder where there is none.
    pub(super) fn open(folder: &Path) -> Result<Self, BuildError> {
        fs::create_dir_all(folder.join("layers"))?;
        fs::create_dir_all(folder.join("images"))?;
        let lock = File::create(folder.join("lock"))?;
        match flock(&lock, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => {}
            Err(rustix::io::Errno::WOULDBLOCK) => {
                return Err(BuildError::Running(folder.to_owned()));
            }
            Err(error) => return Err(io::Error::from(error).into()),
        }
        for entry in fs::read_dir(folder)? {
            let entry = entry?;
            // Of a build that was killed; the lock says that nobody works there.
            if entry.file_name().to_string_lossy().starts_with(".scratch-") {
                fs::remove_dir_all(entry.path())?;
            }
        }
        let scratch = tempfile::Builder::new().prefix(".scratch-").tempdir_in(folder)?;
        Ok(Self { folder: folder.to_owned(), scratch, _lock: lock })
    }

    /// A folder for this build, deleted at its end.
    pub(super) fn scratch(&self) -> &Path {
        self.scratch.path()
    }

    /// The layer of that key, and whether it was there; else what `make` puts into the folder that
    /// it is given.
    pub(super) fn layer(
        &self,
        key: &str,
        make: impl FnOnce(&Path) -> Result<MadePackages, BuildError>,
    ) -> Result<(Layer, bool), BuildError> {
        let folder = self.folder.join("layers").join(key);
        let (tree, notes) = (folder.join("tree"), folder.join("made.json"));
        if let Some(made) = read(&notes)? {
            return Ok((Layer { tree, made }, true));
        }
        if folder.exists() {
            fs::remove_dir_all(&folder)?;
        }
        fs::create_dir(&folder)?;
        let made = make(&tree)?;
        write(&notes, &made)?;
        Ok((Layer { tree, made }, false))
    }

    /// A copy of a layer's tree for this build.
    pub(super) fn copy(&self, layer: &Layer) -> Result<TempDir, BuildError> {
        let copy = tempfile::Builder::new().prefix("tree-").tempdir_in(self.scratch())?;
        let mut source = layer.tree.clone().into_os_string();
        source.push("/.");
        let tool = Tool::plain("copy a layer", "cp", COPY_SECONDS).arg("-a").arg("--reflink=auto");
        tool.arg(source).arg(copy.path()).run()?;
        Ok(copy)
    }

    /// What was built of those inputs.
    pub(super) fn outcome(&self, input_digest: &str) -> Result<Option<BuildOutcome>, BuildError> {
        Ok(read(&self.outcome_path(input_digest))?)
    }

    /// Keeps what was built.
    pub(super) fn keep_outcome(&self, outcome: &BuildOutcome) -> Result<(), BuildError> {
        Ok(write(&self.outcome_path(&outcome.input_digest), outcome)?)
    }

    fn outcome_path(&self, input_digest: &str) -> PathBuf {
        self.folder.join("images").join(format!("{input_digest}.json"))
    }
}

/// A value of a JSON file; none where there is no file, or it is damaged.
fn read<T: for<'a> Deserialize<'a>>(path: &Path) -> io::Result<Option<T>> {
    match fs::read(path) {
        Ok(bytes) => Ok(serde_json::from_slice(&bytes).ok()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

/// Writes a JSON file that is complete or not there.
fn write(path: &Path, value: &impl Serialize) -> io::Result<()> {
    let folder = path.parent().unwrap_or(Path::new("."));
    let mut file = tempfile::NamedTempFile::new_in(folder)?;
    serde_json::to_writer(&mut file, value).map_err(io::Error::other)?;
    file.as_file().sync_all()?;
    file.persist(path).map_err(|error| error.error)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_layer_is_made_once_and_one_that_was_stopped_is_made_again() {
        let folder = tempfile::tempdir().unwrap();
        let made = MadePackages { packages: vec!["a=1".to_owned()], ..MadePackages::default() };
        let make = |tree: &Path| {
            fs::create_dir(tree)?;
            fs::write(tree.join("file"), "x")?;
            Ok(made.clone())
        };
        let store = LayerStore::open(folder.path()).unwrap();
        let running = LayerStore::open(folder.path()).err().unwrap();
        assert_eq!(running.code(), "image_build_running");
        assert_eq!(running.hint(), "wait for the other build, or use another --cache");
        let other = tempfile::tempdir().unwrap();
        LayerStore::open(other.path()).unwrap();
        let stopped = store.layer("k", |tree| {
            fs::create_dir(tree)?;
            Err(BuildError::PackageMissing("x".to_owned()))
        });
        assert_eq!(stopped.err().unwrap().code(), "image_package_missing");
        assert!(!store.layer("k", make).unwrap().1, "what was stopped is no layer");
        let (layer, was_there) = store.layer("k", |_| panic!("it is there")).unwrap();
        assert!(was_there && layer.made == made);
        let copy = store.copy(&layer).unwrap();
        fs::write(copy.path().join("file"), "y").unwrap();
        assert_eq!(fs::read_to_string(layer.tree.join("file")).unwrap(), "x");
        drop(copy);
        drop(store);
        LayerStore::open(folder.path()).unwrap();
        let left = fs::read_dir(folder.path()).unwrap();
        let left: Vec<_> = left.map(|entry| entry.unwrap().file_name()).collect();
        assert!(!left.iter().any(|name| name.to_string_lossy().starts_with(".scratch")));
    }
}
