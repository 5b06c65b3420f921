//! Host images, whether they may be deployed, and experiments that compare them.

pub(crate) mod check;
pub(crate) mod experiment_progress;
pub(crate) mod experiment_samples;
pub(crate) mod experiments;
pub(crate) mod images;
pub(crate) mod verdicts;
