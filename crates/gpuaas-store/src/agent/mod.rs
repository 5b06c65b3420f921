//! What the agents on nodes say and are told: heartbeats, reports, gates and tasks.

pub(crate) mod gate;
pub(crate) mod heartbeats;
pub(crate) mod messages;
pub(crate) mod noted_heartbeats;
pub(crate) mod operator_task;
pub(crate) mod report_rows;
pub(crate) mod task_rows;
