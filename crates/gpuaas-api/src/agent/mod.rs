//! What agents and booting hosts send and fetch, what operators have agents do, and what a host's
//! telemetry shows.

pub(crate) mod bootstrap;
pub(crate) mod calls;
pub(crate) mod enrollment;
pub(crate) mod heartbeat_writer;
pub(crate) mod repeated_heartbeat;
pub(crate) mod tasks;
pub(crate) mod telemetry;
pub(crate) mod update;
