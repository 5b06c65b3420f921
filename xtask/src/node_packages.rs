//! Packages of npm that a check uses, in a folder below `~/.cache/gpuaas` that is made once and used
//! by every checkout.

use std::fs;
use std::path::PathBuf;
use std::process::Command;

use crate::proc;

/// A set of packages with the files that pin them.
pub(crate) struct NodePackages {
    /// Name of the folder. Other packages need another one.
    pub(crate) name: &'static str,
    /// `package.json`.
    pub(crate) manifest: &'static str,
    /// `package-lock.json`, with a checksum of each package.
    pub(crate) lock: &'static str,
    /// `.npmrc`.
    pub(crate) settings: &'static str,
}

impl NodePackages {
    /// Installs the packages unless they are there, and returns the folder `node_modules`.
    ///
    /// # Errors
    /// Why npm cannot install them.
    pub(crate) fn make(&self) -> Result<PathBuf, String> {
        let home = std::env::home_dir().ok_or("there is no home folder")?;
        let folder = home.join(".cache/gpuaas").join(self.name);
        let (made, modules) = (folder.join("made"), folder.join("node_modules"));
        if fs::read_to_string(&made).is_ok_and(|lock| lock == self.lock) {
            return Ok(modules);
        }
        eprintln!("note: the packages of {} are installed into {}", self.name, folder.display());
        fs::remove_file(&made).ok();
        fs::create_dir_all(&folder).map_err(|error| error.to_string())?;
        let files = [
            ("package.json", self.manifest),
            ("package-lock.json", self.lock),
            (".npmrc", self.settings),
        ];
        for (name, text) in files {
            fs::write(folder.join(name), text).map_err(|error| error.to_string())?;
        }
        let mut npm = Command::new("npm");
        npm.args(["ci", "--ignore-scripts", "--fetch-retries=1", "--fetch-timeout=20000"]);
        proc::quiet(npm.current_dir(&folder)).map_err(|said| proc::tail(&said, 3))?;
        fs::write(&made, self.lock).map_err(|error| error.to_string())?;
        Ok(modules)
    }
}
