//! The gpuaas executable.
fn main() {}
