//! Nodes: their rows, what is known of their machines and addresses, and how they differ from MAAS.

pub(crate) mod bmc_access;
pub(crate) mod change;
pub(crate) mod drift;
pub(crate) mod fleet;
pub(crate) mod host_value;
pub(crate) mod nodes;
pub(crate) mod observation_rows;
pub(crate) mod onboarding;
pub(crate) mod roce;
pub(crate) mod rows;
pub(crate) mod tpm;
pub(crate) mod tpm_rows;
