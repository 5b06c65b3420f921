//! The agent and its executable, against a control plane in memory.

mod agent;
mod bootstrap;
mod bundles;
mod common;
mod gpu;
mod hardy;
mod update;
