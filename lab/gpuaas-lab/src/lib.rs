//! The laboratory: onboarding against simulated regions with emulated hosts, and benchmarks of it.
//!
//! [`lab`] onboards simulated machines end to end, [`region`] runs a simulated region with the
//! software of its hosts, and [`bench`] measures. The control plane is the real one. The executable
//! hands in how one is started ([`control_plane::ControlPlaneLauncher`]), so the laboratory knows
//! the admin API and nothing of the server behind it.

pub mod arguments;
pub mod bench;
pub mod clock;
pub mod control_plane;
pub mod hosts;
pub mod kill_loop;
pub mod lab;
pub mod lab_setup;
pub mod leases;
pub mod machine_class;
pub mod operator;
pub mod outcome;
pub mod private_server;
pub mod processes;
pub mod progress;
pub mod record;
pub mod region;
pub mod scenario;
pub mod scenario_actions;
mod screen;
pub mod simulator;
pub mod slice_host;
pub mod state;
pub mod summary;
pub mod watch;
