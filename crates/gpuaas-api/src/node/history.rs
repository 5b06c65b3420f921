//! Lines of a node's history, by who says them.

use gpuaas_types::api::{Source, TimelineEvent};
use gpuaas_types::codes::TimelineCode;
use gpuaas_types::{RunId, Step, Timestamp};

/// A line that the node's agent said.
pub(crate) fn agent_event(
    at: Timestamp,
    run_id: RunId,
    step: Option<Step>,
    code: TimelineCode,
    text: String,
) -> TimelineEvent {
    let (run_id, code) = (Some(run_id), code.into());
    TimelineEvent { at, run_id, step, source: Source::Agent, code, text }
}
