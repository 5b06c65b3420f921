//! What has to be right before a host is deployed: the checks, what they look at, and how many
//! deployments may go on at once.

pub(crate) mod admission;
pub(crate) mod checks;
pub mod fetch;
pub(crate) mod host_values;
pub(crate) mod image;
pub(crate) mod reach_script;
pub(crate) mod reachability;
