//! What this control plane says of itself: its health, its metrics and its traces.

pub(crate) mod health;
pub(crate) mod metrics;
pub(crate) mod trace_counters;
