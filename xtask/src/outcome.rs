//! What a command of this program ends with.

use std::process::ExitCode;

/// An exit code, or a sentence that says what to do.
pub(crate) type Outcome = Result<ExitCode, String>;
