//! `gpuaas image`: host images, from a tree to an archive that a region may get.

mod build;
mod lineage;
mod lint;
mod pack;
mod pipeline;
mod planning;
pub(crate) mod report;
mod upload;

use gpuaas_client::failure::Failure;
use gpuaas_client::terminal::Terminal;

use crate::args::ImageCommand;

/// Runs a command of `gpuaas image`.
///
/// # Errors
/// What is wrong with the image or with this machine.
pub async fn run(command: ImageCommand, terminal: &mut Terminal) -> Result<(), Failure> {
    match command {
        ImageCommand::Pack(args) => pack::run(&args, terminal),
        ImageCommand::Lint(args) => lint::run(&args, terminal),
        ImageCommand::Pipeline(args) => pipeline::run(&args, terminal).await,
        ImageCommand::Show(args) => lineage::show(&args, terminal),
        ImageCommand::Diff(args) => lineage::diff(&args, terminal),
        ImageCommand::Sign(args) => lineage::sign(&args, terminal),
        ImageCommand::Build(args) => build::run(&args, terminal),
        ImageCommand::Upload(args) => upload::run(&args, terminal).await,
    }
}
