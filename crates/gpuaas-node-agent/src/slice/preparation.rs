//! What a launch found and changed on its host, kept in the claim's folder until the claim's files go.
//!
//! It is written before the first change, so an agent that is ended amid a launch still knows what to
//! go back to.

use std::collections::BTreeMap;

use gpuaas_types::slice::SlicePartition;
use serde::{Deserialize, Serialize};

/// File in the claim's folder.
pub(super) const PREPARATION: &str = "preparation.json";

/// How a PCI function was bound.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct FoundDriver {
    /// Driver that it had; none: no driver.
    pub driver: Option<String>,
    /// `driver_override` of it; none: it had none.
    pub driver_override: Option<String>,
}

impl FoundDriver {
    /// Bound to this driver, and to none else.
    pub(super) fn only(driver: &str) -> Self {
        Self { driver: Some(driver.to_owned()), driver_override: Some(driver.to_owned()) }
    }

    /// Bound to this driver as the kernel chooses drivers.
    pub(super) fn unforced(driver: &str) -> Self {
        Self { driver: Some(driver.to_owned()), driver_override: None }
    }
}

/// What a launch found on its host.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Preparation {
    /// PCI functions by address.
    pub functions: BTreeMap<String, FoundDriver>,
    /// Identities of virtual functions by address; none: it had none.
    pub identities: BTreeMap<String, Option<String>>,
    /// Partition of the NVSwitches that the launch made active; none: none yet.
    pub partition: Option<SlicePartition>,
}
