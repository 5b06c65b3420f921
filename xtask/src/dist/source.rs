//! The commit that packages are made of.

use std::path::PathBuf;
use std::process::Command;

use crate::metadata::Workspace;
use crate::proc;

/// Version of the workspace.
const VERSION: &str = env!("CARGO_PKG_VERSION");

/// The sources, as the packages name them.
#[derive(Debug, Clone)]
pub(crate) struct Source {
    pub(crate) root: PathBuf,
    /// Version of the packages (deb-version(7)).
    pub(crate) version: String,
    /// The commit, in full.
    pub(crate) commit: String,
    /// Whether the files are the commit's.
    pub(crate) clean: bool,
    /// Time of every file, in seconds since 1970.
    pub(crate) seconds: u64,
    /// Debian's name of the processor.
    pub(crate) architecture: &'static str,
}

impl Source {
    /// # Errors
    /// The sources have no commit, or the processor has no name at Debian.
    pub(crate) fn read(workspace: &Workspace) -> Result<Self, String> {
        let git = |args: &[&str]| {
            proc::quiet(
                Command::new("git").args(args).env("TZ", "UTC").current_dir(&workspace.root),
            )
            .map(|said| said.trim().to_owned())
            .map_err(|said| format!("the packages' time is a commit's: {}", said.trim()))
        };
        let format = ["log", "-1", "--date=format-local:%Y%m%d%H%M%S", "--format=%ct %cd %H"];
        let line = git(&format)?;
        let words: Vec<&str> = line.split(' ').collect();
        let [seconds, date, commit] = words[..] else {
            return Err(format!("git log answers in another form: {line}"));
        };
        let released = git(&["tag", "--points-at", "HEAD"])?;
        let released = released.lines().any(|tag| tag == format!("v{VERSION}"));
        let clean = git(&["status", "--porcelain"])?.is_empty();
        let seconds = proc::env("SOURCE_DATE_EPOCH")
            .map_or_else(|| seconds.to_owned(), |given| given.to_string_lossy().into_owned());
        Ok(Self {
            root: workspace.root.clone(),
            version: version(released && clean, date, commit, clean),
            commit: commit.to_owned(),
            clean,
            seconds: seconds.parse().map_err(|_| format!("invalid time `{seconds}`"))?,
            architecture: match std::env::consts::ARCH {
                "x86_64" => "amd64",
                "aarch64" => "arm64",
                other => return Err(format!("no Debian architecture is known for {other}")),
            },
        })
    }

    /// The time as RFC 3339 writes it.
    ///
    /// # Errors
    /// What date(1) said.
    pub(crate) fn time(&self) -> Result<String, String> {
        let mut date = Command::new("date");
        date.args(["--utc", "+%Y-%m-%dT%H:%M:%SZ"]).arg(format!("--date=@{}", self.seconds));
        proc::quiet(&mut date).map(|said| said.trim().to_owned())
    }
}

/// A commit before the release sorts before it (`~`), and after commits that are older.
fn version(released: bool, date: &str, commit: &str, clean: bool) -> String {
    if released {
        return VERSION.to_owned();
    }
    let commit = commit.get(..8).unwrap_or(commit);
    let changed = if clean { "" } else { ".changed" };
    format!("{VERSION}~git{date}.{commit}{changed}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_version_has_the_commit_until_it_is_released() {
        let commit = "84172c27aa00";
        assert_eq!(version(true, "20260101000000", commit, true), VERSION);
        let before = version(false, "20260101000000", commit, true);
        assert_eq!(before, format!("{VERSION}~git20260101000000.84172c27"));
        assert!(version(false, "2", commit, false).ends_with(".changed"));
    }
}
