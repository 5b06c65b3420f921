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
    #[error("the image has {0} kernels with an initial file system; expected one")]
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
                format!("`apt-get install {}`, or test on a host that has it", package_of(tool))
            }
            Self::Tool(ToolError::NotRoot(_)) => {
                "test as root: owners and devices of a root file system are root's".to_owned()
            }
            Self::Kernels(_) => "`gpuaas image lint FILE` names what is wrong with it".to_owned(),
            Self::Tool(ToolError::Step { .. } | ToolError::TimedOut { .. }) => {
                "read what the step said; `gpuaas image lint FILE` says whether the archive is whole"
                    .to_owned()
            }
            Self::Tool(ToolError::Files(_)) => {
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
        let error = BootTestError::Tool(ToolError::Missing("sfdisk"));
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
