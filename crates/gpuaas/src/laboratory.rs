//! `gpuaas lab`, `gpuaas maas-sim` and `gpuaas bench` of an executable that was built without them: they
//! start `gpuaas-lab`, which lies beside it.

use std::ffi::OsString;
use std::os::unix::process::CommandExt as _;
use std::process::Command;

use gpuaas_client::executables::own_executable;
use gpuaas_client::failure::Failure;
use gpuaas_types::codes::CommandCode;

/// File name of the executable that has them.
const PROGRAM: &str = "gpuaas-lab";

/// Becomes `gpuaas-lab WORD ARGS`. Returns only where that cannot be started.
pub(crate) fn start(word: &str, args: &[OsString], (log, ascii): (&str, bool)) -> Failure {
    let program = match own_executable() {
        Ok(own) => own.with_file_name(PROGRAM),
        Err(failure) => return failure,
    };
    let mut command = Command::new(&program);
    command.args(["--log", log]).args(ascii.then_some("--ascii")).arg(word).args(args);
    let error = command.exec();
    Failure::local(CommandCode::LabMissing, format!("{}: {error}", program.display()))
        .hint("install the package gpuaas-lab: `apt install ./gpuaas-lab_*_amd64.deb`")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_executable_that_is_not_there_is_named() {
        let failure = start("lab", &["--json".into()], ("warn", false));
        assert_eq!(failure.code(), "lab_missing");
        assert!(failure.to_string().contains("/gpuaas-lab"), "{failure}");
    }
}
