//! Bundles on the host: the launcher that runs them, and the gates that their checks make.
//!
//! From the ground up: [`error`] and `manifest_file`; `report`, `marker` and [`stored_inputs`];
//! `phase`; [`gate`]; [`launcher`]; [`first_boot`].

mod error;
pub mod first_boot;
pub mod gate;
pub mod launcher;
mod manifest_file;
mod marker;
mod phase;
mod report;
pub(crate) mod stored_inputs;

pub use error::BundleError;
pub use launcher::{BundleContext, run};
pub use report::{BundleReport, PhaseOutcome, PhaseReport};
