//! Hosts for the tests of operations: a shell script is the host emulator and is called with
//! `ask|run PROGRAM ARGUMENTS...`.

use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use gpuaas_types::agent::{Operation, TaskResult, TaskSpec};
use host_facts::HostRoot;

use super::OperationContext;
use crate::host::Host;
use crate::tasks;

/// A host in `dir/root` whose programs `script` emulates; `$D` in it is `dir`.
pub(crate) fn emulated(dir: &Path, script: &str) -> Host {
    let emulator = dir.join("emulator.sh");
    let head = format!("#!/bin/sh\nD='{}'\necho \"$*\" >> \"$D/calls\"\n", dir.display());
    std::fs::write(&emulator, format!("{head}{script}")).unwrap();
    std::fs::set_permissions(&emulator, std::fs::Permissions::from_mode(0o755)).unwrap();
    let root = dir.join("root");
    std::fs::create_dir_all(&root).unwrap();
    Host::at(HostRoot::new(root), Some(emulator))
}

/// The commands, in order, that would have changed the host.
pub(crate) fn commands_run(dir: &Path) -> Vec<String> {
    let calls = std::fs::read_to_string(dir.join("calls")).unwrap_or_default();
    calls.lines().filter_map(|call| call.strip_prefix("run ")).map(str::to_owned).collect()
}

/// Carries out `operation` as a task of the control plane.
pub(crate) async fn operate(context: &OperationContext<'_>, operation: &Operation) -> TaskResult {
    let (dry_run, operation) = (context.dry_run, operation.clone());
    tasks::execute(context.host, context.env, &TaskSpec::Operate { dry_run, operation }).await
}
