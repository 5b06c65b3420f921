//! The simulated region: its rules, its HTTP and the recordings of a real one.

mod common;
mod cost;
mod describe;
mod disks;
mod fleet_list;
mod http;
mod libmaas;
mod life;
mod random;
mod recordings;
mod scripts;
mod sequence;
