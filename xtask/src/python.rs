//! Python packages that checks and tests use: each set in an environment of its own below
//! `~/.cache/gpuaas`, made once and used by every checkout.

use std::fs;
use std::path::PathBuf;
use std::process::Command;

use crate::proc;

/// What reads the statements and documents of images as others do (`crates/gpuaas/tests/it/image_lineage.rs`).
pub(crate) const LINEAGE: Environment = Environment {
    name: "image-lineage-1",
    packages: &["securesystemslib[crypto]==1.6.0", "spdx-tools==0.8.5"],
};

/// What reads the manifests of `ops/kubernetes` as the API server does.
pub(crate) const KUBERNETES: Environment =
    Environment { name: "kubernetes-validate-1", packages: &["kubernetes-validate==1.37.0"] };

/// Packages with their versions, and the folder that they are in.
#[derive(Clone, Copy)]
pub(crate) struct Environment {
    /// Name of the folder. Other packages want another one.
    pub(crate) name: &'static str,
    /// As pip wants them.
    pub(crate) packages: &'static [&'static str],
}

impl Environment {
    fn folder(&self) -> Option<PathBuf> {
        Some(std::env::home_dir()?.join(".cache/gpuaas").join(self.name))
    }

    /// A program of it, such as `python`; none: it was not made.
    pub(crate) fn program(&self, name: &str) -> Option<PathBuf> {
        let folder = self.folder()?;
        folder.join("made").is_file().then(|| folder.join("bin").join(name))
    }

    /// Makes it where it is missing.
    ///
    /// # Errors
    /// What keeps it from being made: there is no python3 with venv, or pip reaches no packages.
    pub(crate) fn make(&self) -> Result<(), String> {
        if self.program("python").is_some() {
            return Ok(());
        }
        let folder = self.folder().ok_or("there is no home folder")?;
        eprintln!("note: {} is installed into {}", self.packages.join(", "), folder.display());
        proc::quiet(Command::new("python3").args(["-m", "venv", "--clear"]).arg(&folder))
            .map_err(|said| proc::tail(&said, 2))?;
        let mut pip = Command::new(folder.join("bin/python"));
        pip.args(["-m", "pip", "install", "--quiet", "--timeout", "20", "--retries", "2"]);
        proc::quiet(pip.args(self.packages)).map_err(|said| proc::tail(&said, 2))?;
        fs::write(folder.join("made"), "").map_err(|error| error.to_string())
    }
}
