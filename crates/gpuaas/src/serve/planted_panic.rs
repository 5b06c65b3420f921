//! A panic in a loop of a running control plane, for tests of how a process ends.

use std::path::PathBuf;
use std::str::FromStr;

use gpuaas_engine::Failpoints;

/// A panic in the loop of this name, at its first turn after the file appeared.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PlantedPanic {
    name: String,
    file: PathBuf,
}

impl FromStr for PlantedPanic {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (name, file) = text.split_once('=').ok_or("write LOOP=FILE")?;
        Ok(Self { name: name.to_owned(), file: PathBuf::from(file) })
    }
}

impl Failpoints for PlantedPanic {
    fn reach_loop(&self, name: &str) {
        assert!(name != self.name || !self.file.exists(), "planted in a loop");
    }
}
