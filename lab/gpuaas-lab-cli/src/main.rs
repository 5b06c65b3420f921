//! The executable gpuaas-lab: what `gpuaas lab`, `gpuaas maas-sim` and `gpuaas bench` start where the
//! control plane was built without them, as in its package.

use std::process::ExitCode;

/// As the executable gpuaas has it: benchmarks measure what ships.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    gpuaas::run(std::env::args_os())
}
