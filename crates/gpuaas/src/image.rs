//! `gpuaas image`: host images, from a tree to an archive that a region may get.

mod boot_test;
mod build;
mod lineage;
mod lint;
mod of_site;
mod pack;
mod pipeline;
mod planning;
mod remote_build;
pub(crate) mod report;
mod statement;
mod upload;

use gpuaas_client::failure::Failure;
use gpuaas_client::terminal::Terminal;
use gpuaas_types::image::ImageState;

use crate::args::ImageCommand;

/// Runs a command of `gpuaas image`.
///
/// # Errors
/// What is wrong with the image or with this machine.
pub async fn run(command: ImageCommand, terminal: &mut Terminal) -> Result<(), Failure> {
    match command {
        ImageCommand::Pack(args) => pack::run(&args, terminal),
        ImageCommand::Lint(args) => lint::run_and_record(&args, terminal).await,
        ImageCommand::Pipeline(args) => pipeline::run(&args, terminal).await,
        ImageCommand::Show(args) => match &args.site {
            Some(site) => of_site::show(&args, site, terminal).await,
            None => lineage::show(&args, terminal),
        },
        ImageCommand::List(args) => of_site::list(&args, terminal).await,
        ImageCommand::Approve(args) => of_site::approve(&args, terminal).await,
        ImageCommand::Deprecate(args) => {
            of_site::withdraw(&args, ImageState::Deprecated, terminal).await
        }
        ImageCommand::Revoke(args) => of_site::withdraw(&args, ImageState::Revoked, terminal).await,
        ImageCommand::Rollback(args) => of_site::roll_back(&args, terminal).await,
        ImageCommand::Delete(args) => of_site::delete(&args, terminal).await,
        ImageCommand::Diff(args) => lineage::diff(&args, terminal),
        ImageCommand::Sign(args) => lineage::sign(&args, terminal),
        ImageCommand::BootTest(args) => boot_test::run(&args, terminal),
        ImageCommand::Build(args) => build::run(&args, terminal),
        ImageCommand::Upload(args) => upload::run(&args, terminal).await,
    }
}
