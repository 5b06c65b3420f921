//! Answers of a control plane about itself.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::Timestamp;

/// Header of each answer to operators: what the control plane believes the time is, RFC 3339.
pub const TIME_HEADER: &str = "gpuaas-time";

/// Answer of `GET /api/v1/health` and `GET /bootstrap/v1/health`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Health {
    /// `ok`; anything else is a problem body.
    pub status: String,
    /// How long the oldest event has waited that a sink of events has not taken, in seconds; none:
    /// none waits. No sink that is away makes a control plane unhealthy.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub event_lag_seconds: Option<f64>,
    /// How many control planes of which version share the database; empty: one has it alone.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub control_planes: BTreeMap<String, u64>,
}

/// Answer of `GET /api/v1/version`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Version {
    /// Version of the control plane.
    pub version: String,
    /// `sqlite` or `postgresql`.
    pub database: String,
    /// What the control plane believes the time is.
    pub now: Timestamp,
}
