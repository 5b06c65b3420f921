//! Why something of a slice was not done.

use crate::command::CommandError;

/// Why something of a slice was not done.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct SliceHostError {
    /// Stable code.
    pub code: &'static str,
    /// One sentence for the operator.
    pub message: String,
}

impl SliceHostError {
    /// An error with this code.
    pub fn new(code: &'static str, message: impl Into<String>) -> Self {
        Self { code, message: message.into() }
    }
}

impl From<CommandError> for SliceHostError {
    fn from(error: CommandError) -> Self {
        Self::new(error.code(), error.to_string())
    }
}
