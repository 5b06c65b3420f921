//! The engine against a simulated region over real HTTP.

mod batch;
mod batches;
mod checks_and_gates;
mod cold_start;
mod commissioning;
mod common;
mod control;
mod crash;
mod drift;
mod failures;
mod host_values;
mod hostile;
mod kernel_arguments;
mod log;
mod matrix;
mod offboarding;
mod onboard;
mod pace;
mod panics;
mod people;
mod regions;
