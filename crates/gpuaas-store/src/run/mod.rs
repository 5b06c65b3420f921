//! Runs and batches of runs: handing them out, commanding them, their history and their times.

pub(crate) mod batch;
pub(crate) mod batch_rows;
pub(crate) mod lease;
pub(crate) mod moment_rows;
pub(crate) mod moving;
pub(crate) mod operator_command;
pub(crate) mod queries;
pub(crate) mod rows;
pub(crate) mod step_durations;
pub(crate) mod timeline;
pub(crate) mod timeline_rows;
pub(crate) mod times;
