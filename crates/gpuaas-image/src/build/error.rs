//! Why an image was not built.

use std::io;
use std::path::PathBuf;

use crate::pack::PackError;

/// Why an image was not built.
#[derive(Debug, thiserror::Error)]
pub enum BuildError {
    /// A program that the build needs is not here.
    #[error("there is no {0}")]
    ToolMissing(&'static str),
    /// Who builds is not root.
    #[error("user {0} cannot make a root file system")]
    NotRoot(u32),
    /// The archive of packages does not answer.
    #[error("{url}: {output}")]
    SourceUnreachable {
        /// What was asked for.
        url: String,
        /// What the client said last.
        output: String,
    },
    /// The index of the archive has no date.
    #[error("{0} has no date")]
    SourceMalformed(String),
    /// A required package is not to be had.
    #[error("the archive has no package {0}")]
    PackageMissing(String),
    /// A step failed.
    #[error("{step}: {output}")]
    Step {
        /// What was done.
        step: &'static str,
        /// What it said last.
        output: String,
    },
    /// A step took too long.
    #[error("{step} did not end within {seconds} s")]
    TimedOut {
        /// What was done.
        step: &'static str,
        /// Its limit in seconds.
        seconds: u64,
    },
    /// Another process builds with this cache.
    #[error("another build has {} locked", .0.display())]
    Running(PathBuf),
    /// A file cannot be read or written.
    #[error(transparent)]
    Files(#[from] io::Error),
    /// The tree was not packed.
    #[error(transparent)]
    Pack(#[from] PackError),
    /// The finished archive would fail a deploy.
    #[error("the archive has faults: {}", .0.join(", "))]
    Faulty(Vec<String>),
}

impl BuildError {
    /// Stable code.
    #[must_use]
    pub const fn code(&self) -> &'static str {
        match self {
            Self::ToolMissing(_) | Self::NotRoot(_) => "image_build_impossible_here",
            Self::SourceUnreachable { .. } | Self::SourceMalformed(_) => "image_source_unreachable",
            Self::PackageMissing(_) => "image_package_missing",
            Self::Step { .. } | Self::TimedOut { .. } => "image_build_failed",
            Self::Running(_) => "image_build_running",
            Self::Files(_) => "image_unwritable",
            Self::Pack(error) => error.code(),
            Self::Faulty(_) => "image_faulty",
        }
    }

    /// What the reader does next.
    #[must_use]
    pub fn hint(&self) -> String {
        match self {
            Self::ToolMissing(tool) => {
                let package = if *tool == "unshare" || *tool == "mount" { "util-linux" } else { tool };
                format!("apt-get install {package}, or build on a host that has it (--build-host)")
            }
            Self::NotRoot(_) => "build as root: owners and devices of the tree are root's".to_owned(),
            Self::SourceUnreachable { .. } | Self::SourceMalformed(_) => {
                "name a mirror that this host reaches with --base-url".to_owned()
            }
            Self::PackageMissing(name) => format!(
                "take {name} out of the recipe's required packages, or make it optional there"
            ),
            Self::Step { .. } | Self::TimedOut { .. } => {
                "read what the step said; layers that are done are kept, so the next build goes on from them".to_owned()
            }
            Self::Running(_) => "wait for it, or build with another --cache".to_owned(),
            Self::Files(_) => "make room, or choose another folder with --cache and --to".to_owned(),
            Self::Pack(error) => error.hint().to_owned(),
            Self::Faulty(_) => "`gpuaas image lint FILE` names the fix of each".to_owned(),
        }
    }
}
