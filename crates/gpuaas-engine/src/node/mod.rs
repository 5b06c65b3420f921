//! Nodes and their machines: how MAAS describes a machine and how it is found, what a node is told and
//! whom it trusts, and whether its agent is heard.

pub(crate) mod agent_watch;
pub(crate) mod bmc_index;
pub(crate) mod bmc_logins;
pub(crate) mod inputs;
pub(crate) mod maas_view;
pub mod machine_search;
pub(crate) mod scripts;
pub mod tokens;
pub mod trust;
