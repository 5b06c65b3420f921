//! Why it was not seen how an image boots.

use std::io;

use crate::command::{ToolError, package_of};

/// Why it was not seen how an image boots.
#[derive(Debug, thiserror::Error)]
pub enum BootTestError {
    /// A step on this host was not done.
    #[error(transparent)]
    Tool(#[from] ToolError),
    /// The archive has no kernel that could be started.
    #[error("the image has {0} kernels with an initrd: expected one")]
    Kernels(usize),
}

impl From<io::Error> for BootTestError {
    fn from(error: io::Error) -> Self {
        Self::Tool(error.into())
    }
}

impl BootTestError {
    /// Stable code.
    #[must_use]
    pub const fn code(&self) -> &'static str {
        match self {
            Self::Tool(ToolError::Missing(_) | ToolError::NotRoot(_)) => {
                "image_boot_test_impossible_here"
            }
            Self::Kernels(_) | Self::Tool(_) => "image_boot_test_failed",
        }
    }

    /// What the reader does next.
    #[must_use]
    pub fn hint(&self) -> String {
        match self {
            Self::Tool(ToolError::Missing(tool)) => {
                format!("run `apt-get install {}`, or test on a host that has it", package_of(tool))
            }
            Self::Tool(ToolError::NotRoot(_)) => {
                "run the test as root: only root can restore owners and devices".to_owned()
            }
            Self::Kernels(_) => {
                "run `gpuaas image lint FILE` to see what is wrong with the image".to_owned()
            }
            Self::Tool(ToolError::Step { .. } | ToolError::TimedOut { .. }) => {
                "read the output of the step; run `gpuaas image lint FILE` to check that the archive is intact"
                    .to_owned()
            }
            Self::Tool(ToolError::Files(_)) => {
                "name an existing archive; use --scratch to name a folder with room for twice its unpacked size"
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
        let error = BootTestError::Tool(ToolError::Missing("sfdisk"));
        assert_eq!(error.code(), "image_boot_test_impossible_here");
        assert_eq!(error.to_string(), "sfdisk is not installed");
        assert!(error.hint().contains("apt-get install fdisk"));
        let error: BootTestError = ToolError::TimedOut { step: "unpack", seconds: 3 }.into();
        assert_eq!(
            (error.code(), error.to_string().as_str()),
            ("image_boot_test_failed", "unpack: timed out after 3 s")
        );
    }
}
