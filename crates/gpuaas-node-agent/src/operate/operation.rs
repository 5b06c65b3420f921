//! What every operation takes, and what it answers.

use std::io;
use std::path::Path;

use gpuaas_types::agent::{Change, Finding, TaskArchive, TaskResult};
use gpuaas_types::topology::TopologyReport;

use crate::atomic_file;
use crate::command::CommandError;
use crate::env::AgentEnv;
use crate::host::Host;

/// What an operation works on and with.
pub(crate) struct OperationContext<'a> {
    pub(crate) host: &'a Host,
    pub(crate) env: &'a AgentEnv,
    /// Whether the operation only says what it would change.
    pub(crate) dry_run: bool,
}

/// What an operation changed and found.
#[derive(Debug, Default)]
pub(crate) struct OperationOutcome {
    pub(crate) changes: Vec<Change>,
    pub(crate) findings: Vec<Finding>,
    pub(crate) archive: Option<TaskArchive>,
    /// Devices that slices are made of.
    pub(crate) topology: Option<Box<TopologyReport>>,
    /// One sentence for the operator.
    pub(crate) message: String,
    /// Whether another executable has replaced the agent's.
    pub(crate) restart: bool,
}

/// Why an operation was not carried out, or did not have its effect.
#[derive(Debug)]
pub(crate) struct OperationError {
    /// Stable code.
    pub(crate) code: &'static str,
    /// One sentence for the operator.
    pub(crate) message: String,
    /// What was changed and found before the error.
    pub(crate) partial: OperationOutcome,
}

impl OperationError {
    pub(crate) fn new(code: &'static str, message: impl Into<String>) -> Self {
        Self { code, message: message.into(), partial: OperationOutcome::default() }
    }

    /// A file of the host that cannot be written.
    pub(crate) fn unwritable(file: &str, error: &io::Error) -> Self {
        let code = if atomic_file::is_disk_full(error) { "disk_full" } else { "file_unwritable" };
        Self::new(code, format!("{file}: {error}"))
    }

    /// [`Self::unwritable`] for a path of this process.
    pub(crate) fn unwritable_path(path: &Path, error: &io::Error) -> Self {
        Self::unwritable(&path.display().to_string(), error)
    }

    /// The same error with what was changed and found before it.
    pub(crate) fn with_partial(self, partial: OperationOutcome) -> Self {
        Self { partial, ..self }
    }
}

impl From<CommandError> for OperationError {
    fn from(error: CommandError) -> Self {
        Self::new(error.code(), error.to_string())
    }
}

/// How a task ended.
#[derive(Debug)]
pub(crate) struct CompletedTask {
    /// For the control plane.
    pub(crate) result: TaskResult,
    /// Whether another executable has replaced the agent's, and submits the result.
    pub(crate) restart: bool,
}

impl From<Result<OperationOutcome, OperationError>> for CompletedTask {
    fn from(ended: Result<OperationOutcome, OperationError>) -> Self {
        let (succeeded, code, outcome, message) = match ended {
            Ok(outcome) => (true, "", outcome, None),
            Err(OperationError { code, message, partial }) => (false, code, partial, Some(message)),
        };
        let restart = succeeded && outcome.restart;
        let result = TaskResult {
            succeeded,
            code: code.to_owned(),
            message: message.unwrap_or(outcome.message),
            changes: outcome.changes,
            findings: outcome.findings,
            archive: outcome.archive,
            facts: serde_json::Value::Null,
            topology: outcome.topology,
            slice: None,
        };
        Self { result, restart }
    }
}
