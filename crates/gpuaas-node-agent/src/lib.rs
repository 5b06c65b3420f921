//! The node agent: enrolls, sends heartbeats, carries out typed tasks.
//!
//! [`agent::run`] is the whole agent and needs nothing but a [`protocol::ControlPlane`], a
//! [`clock::AgentClock`] and a configuration, so the executable on a GPU host and the simulated
//! hosts of a fleet run the same code over the same wire. There is no shell in the protocol: a task
//! is one of `gpuaas_types::agent::TaskSpec`, or the agent refuses it.
//!
//! From the ground up: [`paths`], [`host`], [`env`] and the command runner; then [`facts`] and the
//! checks; then [`bundle`] and [`operate`]; then [`tasks`]; then [`agent`].

pub mod agent;
mod atomic_file;
pub mod bundle;
mod carried_out;
mod checks;
mod cleanup;
pub mod clock;
mod command;
pub mod config;
pub mod env;
pub mod facts;
pub mod host;
pub mod identity;
pub mod operate;
pub mod paths;
pub mod protocol;
mod reboot;
mod reboot_reasons;
mod redact;
pub mod simulated_host;
pub mod slice;
mod task_journal;
pub mod tasks;
pub mod tpm;

/// Version of the agent, as it reports it to the control plane.
pub use gpuaas_types::agent::AGENT_VERSION as VERSION;
