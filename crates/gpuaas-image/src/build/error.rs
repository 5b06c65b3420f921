//! Why an image was not built.

use std::io;
use std::path::PathBuf;

use crate::command::{ToolError, package_of};
use crate::pack::PackError;

/// Why an image was not built.
#[derive(Debug, thiserror::Error)]
pub enum BuildError {
    /// A step on this host was not done.
    #[error(transparent)]
    Tool(#[from] ToolError),
    /// The archive of packages does not answer.
    #[error("{url}: {output}")]
    SourceUnreachable {
        /// What was asked for.
        url: String,
        /// What the client said last.
        output: String,
    },
    /// The base is not what its publisher signed.
    #[error("{url}: {detail}")]
    BaseUntrusted {
        /// What was fetched.
        url: String,
        /// What is wrong with it.
        detail: String,
    },
    /// An archive is not signed by the keys that the recipe names.
    #[error("{name}: {detail}")]
    RepositoryUntrusted {
        /// Name of the archive in the recipe.
        name: String,
        /// What is wrong with it.
        detail: String,
    },
    /// The index of the archive has no date.
    #[error("{0} has no date")]
    SourceMalformed(String),
    /// A required package is not to be had.
    #[error("the archive contains no package {0}")]
    PackageMissing(String),
    /// Another process builds with this cache.
    #[error("another build holds the lock on {}", .0.display())]
    Running(PathBuf),
    /// The tree was not packed.
    #[error(transparent)]
    Pack(#[from] PackError),
    /// The finished archive would fail a deploy.
    #[error("the archive has faults: {}", .0.join(", "))]
    Faulty(Vec<String>),
}

impl From<io::Error> for BuildError {
    fn from(error: io::Error) -> Self {
        Self::Tool(error.into())
    }
}

impl BuildError {
    /// Stable code.
    #[must_use]
    pub const fn code(&self) -> &'static str {
        match self {
            Self::Tool(ToolError::Missing(_) | ToolError::NotRoot(_)) => {
                "image_build_impossible_here"
            }
            Self::SourceUnreachable { .. } | Self::SourceMalformed(_) => "image_source_unreachable",
            Self::BaseUntrusted { .. } => "image_base_untrusted",
            Self::RepositoryUntrusted { .. } => "image_repository_untrusted",
            Self::PackageMissing(_) => "image_package_missing",
            Self::Tool(ToolError::Step { .. } | ToolError::TimedOut { .. }) => "image_build_failed",
            Self::Tool(ToolError::Files(_)) => "image_unwritable",
            Self::Running(_) => "image_build_running",
            Self::Pack(error) => error.code(),
            Self::Faulty(_) => "image_faulty",
        }
    }

    /// What the reader does next.
    #[must_use]
    pub fn hint(&self) -> String {
        match self {
            Self::Tool(ToolError::Missing(tool)) => {
                let package = package_of(tool);
                format!("run `apt-get install {package}`, or build on a host that has it (--build-host)")
            }
            Self::Tool(ToolError::NotRoot(_)) => "build as root: only root can set owners and create devices".to_owned(),
            Self::SourceUnreachable { .. } | Self::SourceMalformed(_) => {
                "use --base-url to name a mirror that this host can reach".to_owned()
            }
            Self::BaseUntrusted { .. } => {
                "do not use it: download the image, its list and its signature from the publisher again, and set `keyring` in the recipe to the file with the publisher's keys".to_owned()
            }
            Self::RepositoryUntrusted { name, .. } => format!(
                "do not use it: check the fingerprint that the publisher of {name} states elsewhere, and put that fingerprint in `fingerprints` of the recipe"
            ),
            Self::PackageMissing(name) => format!(
                "remove {name} from the recipe's required packages, or make it optional"
            ),
            Self::Tool(ToolError::Step { .. } | ToolError::TimedOut { .. }) => {
                "read the output of the step; finished layers are kept, so the next build continues from them".to_owned()
            }
            Self::Running(_) => "wait for the other build, or use another --cache".to_owned(),
            Self::Tool(ToolError::Files(_)) => "free up disk space, or choose other folders with --cache and --to".to_owned(),
            Self::Pack(error) => error.hint().to_owned(),
            Self::Faulty(_) => {
                "run `gpuaas image lint FILE` to see the fix of each fault; for a whole disk, build it with --maas-filetype tgz first"
                    .to_owned()
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_that_is_not_there_is_named_with_its_package() {
        let error = BuildError::Tool(ToolError::Missing("qemu-img"));
        assert_eq!(error.code(), "image_build_impossible_here");
        assert!(error.hint().starts_with("run `apt-get install qemu-utils`"), "{}", error.hint());
    }

    #[test]
    fn a_program_that_fails_is_a_step_that_can_be_taken_again() {
        let error: BuildError = ToolError::Step { step: "try", output: "so".to_owned() }.into();
        assert_eq!((error.code(), error.to_string().as_str()), ("image_build_failed", "try: so"));
        assert!(error.hint().contains("finished layers are kept"));
        let error: BuildError = ToolError::TimedOut { step: "wait", seconds: 1 }.into();
        assert_eq!(error.to_string(), "wait: timed out after 1 s");
    }
}
