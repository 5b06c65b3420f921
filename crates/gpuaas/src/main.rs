//! The gpuaas executable.

use std::process::ExitCode;

fn main() -> ExitCode {
    gpuaas::run(std::env::args_os())
}
