//! Moving runs, batches and slices: who claims what is due, how a decision is carried out, and the calls
//! to MAAS that it takes.

pub(crate) mod batches;
pub(crate) mod carry_out;
pub(crate) mod context;
pub(crate) mod effects;
pub(crate) mod lease;
pub(crate) mod maas_request;
pub(crate) mod reads;
pub(crate) mod recheck;
pub(crate) mod session;
pub(crate) mod slices;
pub(crate) mod step_durations;
pub(crate) mod worker;
