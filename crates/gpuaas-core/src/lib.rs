//! States, decisions, gates, buckets and policy. Pure and synchronous: no clock, no I/O.
//!
//! The heart is [`decide`]: given everything known about a run, what is the next thing to do?
//! It is level-triggered. Deciding twice on the same snapshot gives the same answer, and a person
//! changing the machine in MAAS' own pages is just another observation.
//!
//! Start reading at [`gpuaas_types::steps`], the table of what an onboarding is made of, then
//! [`decide::table`], which names the function that decides in each step.

pub mod audit_chain;
#[cfg(test)]
mod audit_chain_tests;
pub mod batch;
pub mod bootstrap_progress;
pub mod buckets;
pub mod connectivity;
pub mod control_mark;
pub mod decide;
pub mod domain;
pub mod drift;
pub mod effect;
pub mod elapsed;
pub mod enrolled_host;
pub mod event_delivery;
pub mod experiment;
pub mod failure;
pub mod gates;
pub mod image_approval;
pub mod image_state;
pub mod image_statement;
pub mod layout;
pub mod machine_identity;
pub mod node_problem;
pub mod node_state;
pub mod placeholder;
pub mod placement;
pub mod placement_index;
#[cfg(test)]
mod placement_tests;
pub mod policy;
pub mod preset;
pub mod recheck;
pub mod record;
pub mod run_state;
pub mod run_times;
pub mod second_person;
pub mod slice_run;
pub mod slots;
pub mod snapshot;
pub mod step_duration;

pub use decide::decide;
pub use snapshot::{Decision, Snapshot};
