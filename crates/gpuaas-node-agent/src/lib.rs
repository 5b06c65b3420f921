//! The node agent: enrolls, says that it lives, carries out typed tasks.
//!
//! [`agent::run`] is the whole agent and needs nothing but a [`protocol::ControlPlane`], a
//! [`clock::AgentClock`] and a configuration, so the executable on a GPU host and the stand-ins
//! of a simulated fleet run the same code over the same wire. There is no shell in the protocol:
//! a task is one of `gpuaas_types::agent::TaskSpec` or it is not understood.

pub mod agent;
pub mod bundle;
mod checks;
pub mod clock;
pub mod config;
mod enrollment;
pub mod facts;
mod files;
pub mod identity;
mod journal;
pub mod operate;
pub mod protocol;
mod redact;
pub mod stand_in;
pub mod tasks;
mod tools;

/// Version of the agent, as it tells the control plane.
pub const VERSION: &str = env!("CARGO_PKG_VERSION");
