//! Rows and the statements on one table each, for use inside a transaction.
//!
//! The methods of [`crate::Store`] stand on these, and none of these knows of a method. A file
//! here may use one of a table that it refers to, never the other way round.

pub(crate) mod audit;
pub(crate) mod audit_chain;
pub(crate) mod audit_expiry;
pub(crate) mod batch;
pub(crate) mod certificate;
pub(crate) mod event;
pub(crate) mod event_sink;
pub(crate) mod meta;
pub(crate) mod node;
pub(crate) mod node_tpm;
pub(crate) mod observation;
pub(crate) mod profile;
pub(crate) mod report;
pub(crate) mod run;
pub(crate) mod run_moment;
pub(crate) mod sealed;
pub(crate) mod secret;
pub(crate) mod site;
pub(crate) mod slice_claim;
pub(crate) mod slice_run;
pub(crate) mod slice_topology;
pub(crate) mod task;
pub(crate) mod task_key;
pub(crate) mod timeline;
pub(crate) mod token;
pub(crate) mod watch;
