//! Why it was not seen how an image boots.

use std::io;

use crate::command::ToolError;

/// Why it was not seen how an image boots.
#[derive(Debug, thiserror::Error)]
pub enum BootTestError {
    /// A program that a boot test runs is not here.
    #[error("there is no {tool}")]
    ToolMissing {
        /// Name of the program or file.
        tool: &'static str,
        /// Debian's package that has it.
        package: &'static str,
    },
    /// Who tests is not root.
    #[error("user {0} cannot unpack a root file system")]
    NotRoot(u32),
    /// The archive has no kernel that could be started.
    #[error("the image has {0} kernels with an initial file system, and one is wanted")]
    Kernels(usize),
    /// A step on this host failed.
    #[error("{step}: {output}")]
    Step {
        /// What was done.
        step: &'static str,
        /// What it said last.
        output: String,
    },
    /// A step on this host took too long.
    #[error("{step} did not end within {seconds} s")]
    TimedOut {
        /// What was done.
        step: &'static str,
        /// Its limit in seconds.
        seconds: u64,
    },
    /// A file cannot be read or written.
    #[error(transparent)]
    Files(#[from] io::Error),
}

impl From<ToolError> for BootTestError {
    fn from(error: ToolError) -> Self {
        match error {
            ToolError::Missing(tool) => Self::ToolMissing { tool, package: tool },
            ToolError::Step { step, output } => Self::Step { step, output },
            ToolError::TimedOut { step, seconds } => Self::TimedOut { step, seconds },
            ToolError::Files(error) => Self::Files(error),
        }
    }
}

impl BootTestError {
    /// Stable code.
    #[must_use]
    pub const fn code(&self) -> &'static str {
        match self {
            Self::ToolMissing { .. } | Self::NotRoot(_) => "image_boot_test_impossible_here",
            Self::Kernels(_) | Self::Step { .. } | Self::TimedOut { .. } | Self::Files(_) => {
                "image_boot_test_failed"
            }
        }
    }

    /// What the reader does next.
    #[must_use]
    pub fn hint(&self) -> String {
        match self {
            Self::ToolMissing { package, .. } => {
                format!("`apt-get install {package}`, or test on a host that has it")
            }
            Self::NotRoot(_) => "test as root: owners and devices of a root file system are root's".to_owned(),
            Self::Kernels(_) => "`gpuaas image lint FILE` names what is wrong with it".to_owned(),
            Self::Step { .. } | Self::TimedOut { .. } => {
                "read what the step said; `gpuaas image lint FILE` says whether the archive is whole"
                    .to_owned()
            }
            Self::Files(_) => {
                "name an archive that is there, and with --scratch a folder with room for what it unpacks to, twice"
                    .to_owned()
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tool_that_is_not_there_is_named_with_its_package() {
        let error = BootTestError::ToolMissing { tool: "sfdisk", package: "fdisk" };
        assert_eq!(error.code(), "image_boot_test_impossible_here");
        assert_eq!(error.to_string(), "there is no sfdisk");
        assert!(error.hint().contains("apt-get install fdisk"));
        let error: BootTestError = ToolError::TimedOut { step: "unpack", seconds: 3 }.into();
        assert_eq!(
            (error.code(), error.to_string().as_str()),
            ("image_boot_test_failed", "unpack did not end within 3 s")
        );
    }
}
