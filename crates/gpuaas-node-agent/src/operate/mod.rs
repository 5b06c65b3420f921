//! What an operator asked for, carried out on the host.
//!
//! Every kind looks first, says what it would change, and only then changes it, unless it is a dry
//! run; afterwards it looks again, because a program that ended well proves nothing. Bounds are
//! checked again here, whatever the control plane signed.

mod service;

use std::path::PathBuf;
use std::time::Duration;

use gpuaas_types::agent::{Change, Finding, KeptArchive, Operation, TaskResult};
use tokio::time::timeout;

use crate::tasks::Host;
use crate::tools::ToolError;

/// Where the agent works, beside the host that it looks at.
#[derive(Debug, Clone, Default)]
pub struct Workplace {
    /// Folder of what the agent keeps; none: it keeps nothing.
    pub state_dir: Option<PathBuf>,
    /// Texts that must never leave the host.
    pub secrets: Vec<String>,
}

/// Everything that an operation works with.
pub(crate) struct Work<'a> {
    pub(crate) host: &'a Host,
    #[expect(dead_code, reason = "kinds that keep something on the host follow")]
    pub(crate) place: &'a Workplace,
    pub(crate) dry_run: bool,
}

/// What an operation came to when it was carried out.
#[derive(Debug, Default)]
pub(crate) struct Outcome {
    pub(crate) changes: Vec<Change>,
    pub(crate) findings: Vec<Finding>,
    pub(crate) archive: Option<KeptArchive>,
    /// In a sentence.
    pub(crate) message: String,
}

/// Why an operation was not carried out, or did not have its effect.
#[derive(Debug)]
pub(crate) struct Fault {
    pub(crate) code: &'static str,
    pub(crate) message: String,
    /// What was changed and found before that.
    pub(crate) outcome: Outcome,
}

impl Fault {
    pub(crate) fn new(code: &'static str, message: impl Into<String>) -> Self {
        Self { code, message: message.into(), outcome: Outcome::default() }
    }

    pub(crate) fn after(self, outcome: Outcome) -> Self {
        Self { outcome, ..self }
    }
}

impl From<ToolError> for Fault {
    fn from(error: ToolError) -> Self {
        Self::new(error.code(), error.to_string())
    }
}

/// Carries out `operation`. Always an answer, never an error: what failed is in it.
pub(crate) async fn carry_out(work: &Work<'_>, operation: &Operation) -> TaskResult {
    if let Err(fault) = operation.check() {
        let message = format!("{}: {}", fault.field, fault.reason);
        return result(Err(Fault::new("operation_out_of_bounds", message)));
    }
    let limit = Duration::from_secs(operation.limit_seconds().into());
    let ended = timeout(limit, begin(work, operation)).await;
    result(ended.unwrap_or_else(|_| {
        Err(Fault::new("task_timeout", format!("it did not end in {} s", limit.as_secs())))
    }))
}

async fn begin(work: &Work<'_>, operation: &Operation) -> Result<Outcome, Fault> {
    match operation {
        Operation::Service { action, unit } => service::carry_out(work, *action, unit).await,
        _ => Err(Fault::new("task_not_known", "this agent does not know this kind of task")),
    }
}

fn result(ended: Result<Outcome, Fault>) -> TaskResult {
    let (succeeded, code, outcome, message) = match ended {
        Ok(outcome) => (true, "", outcome, None),
        Err(Fault { code, message, outcome }) => (false, code, outcome, Some(message)),
    };
    TaskResult {
        succeeded,
        code: code.to_owned(),
        message: message.unwrap_or(outcome.message),
        changes: outcome.changes,
        findings: outcome.findings,
        archive: outcome.archive,
        facts: serde_json::Value::Null,
    }
}

/// Plays a host for tests: a shell script that gets `ask|run PROGRAM ARGUMENTS...`.
#[cfg(test)]
pub(crate) mod played {
    use std::os::unix::fs::PermissionsExt as _;
    use std::path::Path;

    use host_facts::HostRoot;

    use crate::tasks::Host;

    pub(crate) fn host(dir: &Path, script: &str) -> Host {
        let player = dir.join("player.sh");
        let head = format!("#!/bin/sh\nD='{}'\necho \"$*\" >> \"$D/calls\"\n", dir.display());
        std::fs::write(&player, format!("{head}{script}")).unwrap();
        std::fs::set_permissions(&player, std::fs::Permissions::from_mode(0o755)).unwrap();
        let root = dir.join("root");
        std::fs::create_dir_all(&root).unwrap();
        Host::at(HostRoot::new(root), Some(player))
    }

    /// What the player was told to change.
    pub(crate) fn ran(dir: &Path) -> Vec<String> {
        let calls = std::fs::read_to_string(dir.join("calls")).unwrap_or_default();
        calls.lines().filter_map(|call| call.strip_prefix("run ")).map(str::to_owned).collect()
    }
}
