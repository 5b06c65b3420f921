//! What the commands of images print and fail with in common.

use gpuaas_client::failure::{Exit, Failure};
use gpuaas_image::pack::PackError;
use gpuaas_types::codes::CommandCode;
use serde::Serialize;

/// One JSON object, as commands print it.
///
/// # Errors
/// `answer_unprintable`, a defect.
pub(super) fn json(report: &impl Serialize) -> Result<String, Failure> {
    serde_json::to_string_pretty(report)
        .map_err(|error| Failure::local(CommandCode::AnswerUnprintable, error.to_string()))
}

/// The failure of a tree that was not packed.
pub(crate) fn pack_failure(error: &PackError) -> Failure {
    Failure::coded(Exit::Local, error.code(), "The tree was not packed", error.to_string())
        .hint(error.hint())
}
