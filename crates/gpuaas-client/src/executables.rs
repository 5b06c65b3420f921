//! Where the executables of this installation are.

use std::path::{Path, PathBuf};

use gpuaas_types::codes::CommandCode;

use crate::failure::Failure;

/// File name of the node agent's executable.
pub const AGENT: &str = "gpuaas-node-agent";

/// The running executable.
///
/// # Errors
/// `executable_unknown` where the operating system does not tell.
pub fn own_executable() -> Result<PathBuf, Failure> {
    std::env::current_exe()
        .map_err(|error| Failure::local(CommandCode::ExecutableUnknown, error.to_string()))
}

/// The node agent's executable: `explicit`, else the file beside the running executable.
///
/// # Errors
/// `agent_missing`.
pub fn find_agent(explicit: Option<&Path>) -> Result<PathBuf, Failure> {
    if let Some(path) = explicit {
        return if path.is_file() { Ok(path.to_owned()) } else { Err(agent_missing(path)) };
    }
    let folder = std::env::current_exe().ok().and_then(|exe| exe.parent().map(Path::to_owned));
    let beside = folder.unwrap_or_default().join(AGENT);
    // Cargo keeps the executables of tests one folder further down.
    let above = beside.parent().and_then(Path::parent).map(|folder| folder.join(AGENT));
    let in_deps = beside.parent().is_some_and(|folder| folder.ends_with("deps"));
    match above.filter(|path| in_deps && path.is_file()) {
        Some(path) => Ok(path),
        None if beside.is_file() => Ok(beside),
        None => Err(agent_missing(&beside)),
    }
}

fn agent_missing(path: &Path) -> Failure {
    let detail = format!("{} does not exist", path.display());
    Failure::local(CommandCode::AgentMissing, detail)
        .hint("build it (cargo build -p gpuaas-node-agent), or pass its path with --agent-binary")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_agent_is_named() {
        let failure = find_agent(Some(Path::new("/no/agent"))).unwrap_err();
        assert_eq!(failure.code(), "agent_missing");
        assert!(failure.to_string().contains("/no/agent"), "{failure}");
        assert!(failure.problem.hint.contains("--agent-binary"));
    }
}
