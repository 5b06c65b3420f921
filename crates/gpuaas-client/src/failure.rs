//! How a command ends: one table of exit codes, one form of error text.
//!
//! | exit | meaning |
//! |---|---|
//! | 0 | every node reached the requested state |
//! | 1 | a problem on this machine: a file, a port or the database; or a defect |
//! | 2 | invalid command line |
//! | 3 | the control plane refused the request |
//! | 4 | the control plane is unreachable |
//! | 5 | a node parked or failed |
//! | 6 | timeout while waiting |
//! | 7 | the request is done, but a node has a problem: `gpuaas explain NODE` |
//! | 130 | waiting was interrupted; the work continues |

use std::fmt;
use std::io;
use std::net::SocketAddr;

use gpuaas_types::codes::CommandCode;
use gpuaas_types::{CodedError, Problem};

/// Exit code of a command that did not reach what was asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Exit {
    /// Something on this machine is in the way.
    Local = 1,
    /// The command line is wrong.
    Usage = 2,
    /// The control plane refused the request.
    Refused = 3,
    /// The control plane cannot be reached.
    Unreachable = 4,
    /// A node parked or failed.
    Parked = 5,
    /// Time ran out while waiting.
    TimedOut = 6,
    /// What was asked is done, and something is wrong with a node.
    Troubled = 7,
    /// The waiting was interrupted; the work continues.
    Interrupted = 130,
}

/// The table above as text for `--help`.
pub const EXIT_CODES: &str = "\
Exit codes:
  0  every node reached the requested state
  1  a problem on this machine: a file, a port or the database
  2  invalid command line
  3  the control plane refused the request
  4  the control plane is unreachable
  5  a node parked or failed
  6  timeout while waiting
  7  the request is done, but a node has a problem: `gpuaas explain NODE`
  130  waiting was interrupted; the work continues";

/// Why a command did not reach what was asked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failure {
    /// How the process ends.
    pub exit: Exit,
    /// What is printed on stderr.
    pub problem: Box<Problem>,
}

impl Failure {
    /// A failure found on this side; `detail` is one sentence.
    #[must_use]
    pub fn new(exit: Exit, code: CommandCode, detail: impl Into<String>) -> Self {
        Self::coded(exit, code.as_str(), code.row().title, detail)
    }

    /// A failure whose code another table has: a park's, an error's of a library of this project.
    #[must_use]
    pub fn coded(exit: Exit, code: &str, title: &str, detail: impl Into<String>) -> Self {
        let problem = Problem::new(0, code, title).with_detail(detail);
        Self { exit, problem: Box::new(problem) }
    }

    /// Something on this machine is in the way.
    #[must_use]
    pub fn local(code: CommandCode, detail: impl Into<String>) -> Self {
        Self::new(Exit::Local, code, detail)
    }

    /// The command line is wrong.
    #[must_use]
    pub fn usage(code: CommandCode, detail: impl Into<String>) -> Self {
        Self::new(Exit::Usage, code, detail)
    }

    /// What the control plane answered.
    #[must_use]
    pub fn refused(problem: Problem) -> Self {
        Self { exit: Exit::Refused, problem: Box::new(problem) }
    }

    /// `address` cannot be listened on: `address_in_use` or `address_unusable`.
    #[must_use]
    pub fn cannot_listen(address: SocketAddr, error: &io::Error) -> Self {
        let detail = format!("{address}: {error}");
        if error.kind() == io::ErrorKind::AddrInUse {
            return Self::local(CommandCode::AddressInUse, detail)
                .hint("stop the process that uses it, or choose another address with --listen; port 0 picks a free port");
        }
        Self::local(CommandCode::AddressUnusable, detail)
            .hint("choose an address of this machine with --listen")
    }

    /// A title for this time, where that of the code says too little.
    #[must_use]
    pub fn title(mut self, title: &str) -> Self {
        title.clone_into(&mut self.problem.title);
        self
    }

    /// Adds what the reader should do next.
    #[must_use]
    pub fn hint(mut self, hint: impl Into<String>) -> Self {
        self.problem.hint = hint.into();
        self
    }

    /// Stable code.
    #[must_use]
    pub fn code(&self) -> &str {
        &self.problem.code
    }
}

/// The failure of a command whose store cannot be opened or used, with the store's code and hint.
#[must_use]
pub fn store_failure<E: CodedError>(error: E) -> Failure {
    Failure::coded(Exit::Local, error.code(), "Cannot open the store", error.to_string())
        .hint(error.hint())
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // What is wrong with the only field is said once.
        let mut problem = Problem::clone(&self.problem);
        if let [field] = problem.errors.as_slice()
            && problem.detail == format!("{}: {}", field.field, field.message)
        {
            problem.errors.clear();
        }
        write!(f, "error {problem}")
    }
}

impl std::error::Error for Failure {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_says_code_fields_and_hint() {
        let problem = Problem::new(422, "unknown_field", "A field is not known")
            .with_detail("the body has a field that profiles do not have")
            .with_field("spec.distro_serie", "did you mean distro_series?")
            .with_hint("profile show NAME lists the fields");
        insta::assert_snapshot!(Failure::refused(problem).to_string());
    }

    #[test]
    fn what_is_wrong_with_the_only_field_is_said_once() {
        let problem = Problem::new(422, "invalid_field", "A field")
            .with_detail("name: too long")
            .with_field("name", "too long");
        assert_eq!(
            Failure::refused(problem).to_string(),
            "error invalid_field: A field: name: too long"
        );
    }

    #[test]
    fn the_help_and_the_exits_agree() {
        let all = [
            Exit::Local,
            Exit::Usage,
            Exit::Refused,
            Exit::Unreachable,
            Exit::Parked,
            Exit::TimedOut,
            Exit::Troubled,
            Exit::Interrupted,
        ];
        for exit in all {
            assert!(EXIT_CODES.contains(&format!("\n  {}  ", exit as u8)), "{exit:?}");
        }
    }
}
