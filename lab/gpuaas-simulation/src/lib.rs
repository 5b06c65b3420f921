//! The deterministic simulation: a region, control planes and nodes on a virtual clock.
//!
//! [`simulation`] holds the state, [`tick`] advances it one step at a time.
//! [`chaos`] draws a fleet's faults, crashes and operators from a seed. [`invariants`] checks
//! what must hold after every event, for any seed. [`recovery`]
//! parks runs for every reason there is and follows the advice; [`people`] does so with what people
//! change in MAAS behind the control plane's back.

pub mod arguments;
mod artifact_urls;
pub mod breakpoint;
pub mod busy_region;
pub mod chaos;
pub mod claims_benchmark;
mod control_plane_parts;
mod control_planes;
mod deployed_system;
pub mod disruption;
mod executor;
pub mod experiment_trial;
pub mod failpoint;
pub mod image_experiment;
pub mod image_rollout;
pub mod interference;
pub mod invariants;
mod node;
pub mod operator;
mod operator_actions;
pub mod outage_benchmark;
pub mod people;
pub mod placement_benchmark;
pub mod plan;
mod planted_loop;
mod planted_panic;
pub mod recovery;
pub mod region_benchmark;
mod replica;
mod seeded_ids;
mod shared_state;
pub mod simulation;
mod slice_fleet;
pub mod slices_benchmark;
mod tenant_actions;
mod tenants;
#[cfg(test)]
mod tests;
pub mod tick;
pub mod transport;
pub mod upload_benchmark;
pub mod verdict_benchmark;

pub use control_plane_parts::ControlPlaneParts;
pub use shared_state::{AgentCredentialRecord, HostFault};
