//! The gpuaas executable.

use std::process::ExitCode;

/// Most of what a control plane does is to build small texts and to take them apart; the system's
/// allocator took a sixth of its time.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    gpuaas::run(std::env::args_os())
}
