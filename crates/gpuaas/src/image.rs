//! `gpuaas image`: host images, from a tree to an archive that a region may get.

mod lint;
mod pack;
mod pipeline;

use gpuaas_client::failure::{Exit, Failure};
use gpuaas_client::terminal::Terminal;
use gpuaas_image::pack::PackError;

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

/// The failure of a tree that was not packed.
pub(crate) fn pack_failure(error: &PackError) -> Failure {
    Failure::coded(Exit::Local, error.code(), "The tree was not packed", error.to_string())
        .hint(error.hint())
}
