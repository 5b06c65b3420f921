//! The control plane's own health, metrics and traces.

pub(crate) mod health;
pub(crate) mod metrics;
pub(crate) mod trace_counters;
