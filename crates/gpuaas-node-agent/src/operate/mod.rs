//! What an operator asked for, carried out on the host.
//!
//! Every kind looks first, says what it would change, and only then changes it, unless it is a dry
//! run; afterwards it looks again, because a program that ended well proves nothing. Bounds are
//! checked again here, whatever the control plane signed.

mod diagnostics;
mod drift;
mod packages;
mod service;
mod trust;
pub(crate) mod update;

use std::path::PathBuf;
use std::time::Duration;

use gpuaas_types::agent::{Change, Finding, KeptArchive, Operation, TaskResult};
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use crate::bundle::kept;
use crate::protocol::ControlPlane;
use crate::redact::without;
use crate::tasks::Host;
use crate::tools::ToolError;
pub use update::{Started, give_way, guard};

/// Where the agent works, beside the host that it looks at.
#[derive(Debug, Clone, Default)]
pub struct Workplace {
    /// Folder of what the agent keeps; none: it keeps nothing.
    pub state_dir: Option<PathBuf>,
    /// Texts that must never leave the host.
    pub secrets: Vec<String>,
    /// How the agent was started; none: it has no executable that could be replaced.
    pub started: Option<Started>,
    /// Where executables come from.
    pub control_plane: Option<ControlPlane>,
    /// The agent has to give way to what has its place now.
    pub restart: CancellationToken,
}

/// Everything that an operation works with.
pub(crate) struct Work<'a> {
    pub(crate) host: &'a Host,
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
    /// Another executable has the agent's place.
    pub(crate) restart: bool,
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

/// What a task came to.
#[derive(Debug)]
pub(crate) struct Ended {
    /// For the control plane.
    pub(crate) result: TaskResult,
    /// Another executable has the agent's place, and is to hand the result in.
    pub(crate) restart: bool,
}

/// Carries out `operation`. Always an answer, never an error: what failed is in it.
#[cfg(test)]
pub(crate) async fn carry_out(work: &Work<'_>, operation: &Operation) -> TaskResult {
    let (dry_run, operation) = (work.dry_run, operation.clone());
    let spec = gpuaas_types::agent::TaskSpec::Operate { dry_run, operation };
    crate::tasks::execute(work.host, work.place, &spec).await
}

/// The same, with what is to follow.
pub(crate) async fn ended(work: &Work<'_>, operation: &Operation) -> Ended {
    if let Err(fault) = operation.check() {
        let message = format!("{}: {}", fault.field, fault.reason);
        return of(Err(Fault::new("operation_out_of_bounds", message)));
    }
    let limit = Duration::from_secs(operation.limit_seconds().into());
    let ended = timeout(limit, begin(work, operation)).await;
    of(ended.unwrap_or_else(|_| {
        Err(Fault::new("task_timeout", format!("it did not end in {} s", limit.as_secs())))
    }))
}

/// `place` with the secrets of the bundles on `host` among those that must never leave it.
pub(crate) fn with_secrets(host: &Host, place: &Workplace) -> Workplace {
    let mut place = place.clone();
    place.secrets.extend(host.root().map(kept::secrets).unwrap_or_default());
    place
}

/// Takes the secrets out of what a task came to.
pub(crate) fn clean(result: &mut TaskResult, secrets: &[String]) {
    let changes = result.changes.iter_mut();
    let changes = changes.flat_map(|one| [&mut one.what, &mut one.before, &mut one.after]);
    let findings = result.findings.iter_mut().flat_map(|one| [&mut one.name, &mut one.seen]);
    for text in changes.chain(findings).chain([&mut result.message]) {
        *text = without(text, secrets);
    }
}

async fn begin(work: &Work<'_>, operation: &Operation) -> Result<Outcome, Fault> {
    match operation {
        Operation::Service { action, unit } => service::carry_out(work, *action, unit).await,
        Operation::RepairDrift { gates } => drift::carry_out(work, gates).await,
        Operation::RefreshTrust { registries } => trust::carry_out(work, registries),
        Operation::UpdatePackages { packages, along, hold, refresh_lists, lock_seconds } => {
            let (refresh_lists, lock_seconds) = (*refresh_lists, *lock_seconds);
            let wanted = packages::Wanted { packages, along, hold, refresh_lists, lock_seconds };
            packages::carry_out(work, &wanted).await
        }
        Operation::CollectDiagnostics { units, journal_lines, most_bytes } => {
            let (journal_lines, most_bytes) = (*journal_lines, *most_bytes);
            let wanted = diagnostics::Wanted { units, journal_lines, most_bytes };
            diagnostics::carry_out(work, &wanted).await
        }
        Operation::AgentUpdate { version, digest, size_bytes, url, confirm_seconds } => {
            let (size_bytes, confirm_seconds) = (*size_bytes, *confirm_seconds);
            let wanted = update::Wanted { version, digest, size_bytes, url, confirm_seconds };
            update::carry_out(work, &wanted).await
        }
    }
}

fn of(ended: Result<Outcome, Fault>) -> Ended {
    let (succeeded, code, outcome, message) = match ended {
        Ok(outcome) => (true, "", outcome, None),
        Err(Fault { code, message, outcome }) => (false, code, outcome, Some(message)),
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
    };
    Ended { result, restart }
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
