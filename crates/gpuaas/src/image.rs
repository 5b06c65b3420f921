//! `gpuaas image`: host images, from a tree to an archive that a region may get.

mod lint;
mod pack;
mod pipeline;
pub(crate) mod report;

use gpuaas_client::failure::Failure;
use gpuaas_client::terminal::Terminal;

use crate::args::ImageCommand;

/// Runs a command of `gpuaas image`.
///
/// # Errors
/// What is wrong with the image or with this machine.
pub fn run(command: ImageCommand, terminal: &mut Terminal) -> Result<(), Failure> {
    match command {
        ImageCommand::Pack(args) => pack::run(&args, terminal),
        ImageCommand::Lint(args) => lint::run(&args, terminal),
        ImageCommand::Pipeline(args) => pipeline::run(&args, terminal),
    }
}
