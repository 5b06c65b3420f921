//! Time, injected: nothing else in the workspace asks the operating system what time it is. The real
//! clock, and those of simulations and tests, which run faster, stand still or jump.

pub(crate) mod choice;
pub(crate) mod file;
pub(crate) mod pauses;
pub(crate) mod time;
pub mod virtual_clock;

pub use time::{Clock, PacedClock, RealClock, wall_micros};
