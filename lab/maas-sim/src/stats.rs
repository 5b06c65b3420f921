//! What a region counts: calls and bytes by endpoint, and a log per machine from which time
//! added by a control plane can be computed.
//!
//! A machine's log has the hardware time drawn for each activity ([`LogEntry::Drawn`]), the times
//! of its states, and every call that changes something. Between `Ready` and the next changing call
//! lies the control plane's own time.

use std::collections::BTreeMap;

use serde::Serialize;

/// Totals of one endpoint label.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct EndpointStats {
    /// Requests that named the endpoint.
    pub calls: u64,
    /// Bytes of request bodies.
    pub bytes_in: u64,
    /// Bytes of answer bodies.
    pub bytes_out: u64,
    /// Answers of 400 and above.
    pub errors: u64,
}

/// One line of a machine's log. Times are simulated microseconds since the Unix epoch.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum LogEntry {
    /// A call that changes something arrived.
    Call {
        /// Time of the entry, in simulated microseconds since the Unix epoch.
        at_us: i64,
        /// Endpoint label.
        endpoint: &'static str,
        /// Status of the answer that was computed, before a fault may have replaced it.
        status: u16,
    },
    /// The machine entered a state.
    Status {
        /// Time of the entry, in simulated microseconds since the Unix epoch.
        at_us: i64,
        /// Label of the state, as in `status_name`.
        name: &'static str,
    },
    /// An activity began whose hardware time is known.
    Drawn {
        /// Time of the entry, in simulated microseconds since the Unix epoch.
        at_us: i64,
        /// `commission`, `deploy`, `release`, ...
        activity: &'static str,
        /// From the call to the state that ends the activity, if nothing goes wrong.
        ideal_us: i64,
    },
}

/// What happened to one machine.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct MachineStats {
    /// Latest system id.
    pub system_id: String,
    /// Accepted creates.
    pub creates: u32,
    /// Accepted commissions.
    pub commissions: u32,
    /// Accepted deploys.
    pub deploys: u32,
    /// Accepted releases.
    pub releases: u32,
    /// Deploys accepted after a deployment had already succeeded with no release asked for in
    /// between.
    pub double_deploys: u32,
    /// Entries in order of time.
    pub log: Vec<LogEntry>,
    #[serde(skip)]
    pub(crate) deployed_unreleased: bool,
}

/// Everything counted.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Stats {
    /// Calls of the API by endpoint label; the control API is not counted.
    pub endpoints: BTreeMap<&'static str, EndpointStats>,
    /// By name of the host.
    pub machines: BTreeMap<String, MachineStats>,
}

impl Stats {
    pub(crate) fn machine_mut(&mut self, host: &str) -> &mut MachineStats {
        if !self.machines.contains_key(host) {
            self.machines.insert(host.to_owned(), MachineStats::default());
        }
        self.machines.entry(host.to_owned()).or_default()
    }

    /// Adds to what an endpoint sent, for an answer that goes out in parts.
    pub(crate) fn count_sent(&mut self, label: &'static str, bytes_out: usize) {
        if let Some(row) = self.endpoints.get_mut(label) {
            row.bytes_out += bytes_out as u64;
        }
    }

    pub(crate) fn count_call(
        &mut self,
        label: &'static str,
        bytes_in: usize,
        bytes_out: usize,
        status: u16,
    ) {
        let row = self.endpoints.entry(label).or_default();
        row.calls += 1;
        row.bytes_in += bytes_in as u64;
        row.bytes_out += bytes_out as u64;
        row.errors += u64::from(status >= 400);
    }

    /// Deploys that should not have been, over all machines.
    #[must_use]
    pub fn double_deploys(&self) -> u32 {
        self.machines.values().map(|m| m.double_deploys).sum()
    }

    /// Calls over all endpoints.
    #[must_use]
    pub fn calls(&self) -> u64 {
        self.endpoints.values().map(|e| e.calls).sum()
    }

    /// Body bytes over all endpoints, both ways.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.endpoints.values().map(|e| e.bytes_in + e.bytes_out).sum()
    }
}
