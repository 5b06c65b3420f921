//! Benchmarks that run in the laboratory. They measure, and never decide whether a figure is good
//! enough.

pub mod added;
pub mod agent;
pub mod api;
pub mod attack;
pub mod clients;
pub mod console;
pub mod failover;
pub mod fleet;
pub mod gate;
pub mod handover;
pub mod idle;
pub mod isolated_thread;
pub mod onboard;
pub mod report;
pub mod topology;
pub mod usage;
