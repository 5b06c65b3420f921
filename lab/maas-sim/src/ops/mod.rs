//! The API: one table of resources and what may be done to them.
//!
//! The table is the router, the permission check, the endpoint labels of faults and statistics,
//! and the source of `describe/`. Adding an operation is one row and one function.

mod abort;
mod accounts;
mod actions;
mod broken;
mod call;
mod commission;
mod config;
mod deploy;
mod describe;
mod event_query;
mod filters;
mod forms;
mod groups;
mod guards;
mod images;
mod interface_create;
mod interfaces;
mod locks;
mod machines;
mod machines_many;
mod network_writes;
mod networks;
mod parameters;
mod partitions;
mod power;
mod power_types;
mod release;
mod rescue;
mod results;
mod router;
mod rows;
mod script_form;
mod scripts;
mod storage;
mod table;
mod table_small;
mod tags;

pub(crate) use accounts::authenticate;
pub(crate) use router::{API_ROOT, as_user, route, trigger_on_the_way};
