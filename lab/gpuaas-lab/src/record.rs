//! What the simulator reports over its control API: inventory of machines, counters, logs.
//!
//! The types of `maas_sim::stats`, read back on the other side of HTTP. Fields that the laboratory
//! does not need are left out; unknown kinds of log lines are skipped, so an older lab reads a newer
//! simulator.

use std::collections::BTreeMap;

use serde::Deserialize;

/// A racked machine.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct MachineInventory {
    /// Name on the rack.
    pub name: String,
    /// MAC address of the port that boots from the network.
    pub mac_address: String,
    /// Address of its BMC.
    pub bmc_address: String,
    /// MAAS' identifier, where MAAS knows it.
    pub system_id: Option<String>,
    /// Hostname in MAAS.
    pub hostname: Option<String>,
    /// MAAS' status of it.
    pub status: Option<String>,
    /// Whether it is switched on.
    #[serde(default)]
    pub on: bool,
}

/// Totals of one endpoint.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
pub struct EndpointCount {
    /// Requests that the region answered.
    pub calls: u64,
    /// Bytes of request bodies.
    pub bytes_in: u64,
    /// Bytes of answer bodies.
    pub bytes_out: u64,
}

/// One line of a machine's log; times are microseconds of the simulator's clock.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum LogLine {
    /// A call that changes something arrived.
    Call {
        /// Microseconds since the Unix epoch.
        at_us: i64,
        /// Endpoint label.
        endpoint: String,
        /// Status of the answer that was computed, before a fault may have replaced it.
        status: u16,
    },
    /// The machine entered a status.
    Status {
        /// Microseconds since the Unix epoch.
        at_us: i64,
        /// MAAS' label.
        name: String,
    },
    /// Anything else.
    #[serde(other)]
    Other,
}

/// What happened to one machine.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
pub struct MachineRecord {
    /// Latest identifier in MAAS.
    #[serde(default)]
    pub system_id: String,
    /// Accepted deployments.
    #[serde(default)]
    pub deploys: u32,
    /// Deployments accepted on top of a deployment that nobody had released.
    #[serde(default)]
    pub double_deploys: u32,
    /// In order of time.
    #[serde(default)]
    pub log: Vec<LogLine>,
}

impl MachineRecord {
    /// How often each change was asked for since the machine was first deployed, by endpoint.
    #[must_use]
    pub fn changes(&self) -> BTreeMap<&str, u32> {
        let deployed =
            |line: &LogLine| matches!(line, LogLine::Status { name, .. } if name == "Deployed");
        let mut changes = BTreeMap::new();
        for line in self.log.iter().skip_while(|line| !deployed(line)) {
            if let LogLine::Call { endpoint, .. } = line {
                *changes.entry(endpoint.as_str()).or_default() += 1;
            }
        }
        changes
    }
}

/// Everything counted.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
pub struct RegionRecord {
    /// By endpoint label.
    pub endpoints: BTreeMap<String, EndpointCount>,
    /// By name of the racked machine.
    pub machines: BTreeMap<String, MachineRecord>,
}

impl RegionRecord {
    /// Calls over all endpoints.
    #[must_use]
    pub fn calls(&self) -> u64 {
        self.endpoints.values().map(|row| row.calls).sum()
    }

    /// Body bytes over all endpoints, both ways.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.endpoints.values().map(|row| row.bytes_in + row.bytes_out).sum()
    }

    /// Deployments that should not have been.
    #[must_use]
    pub fn double_deploys(&self) -> u32 {
        self.machines.values().map(|machine| machine.double_deploys).sum()
    }

    /// This record less what `earlier` had counted already; logs are kept whole.
    #[must_use]
    pub fn since(mut self, earlier: &Self) -> Self {
        for (label, before) in &earlier.endpoints {
            if let Some(row) = self.endpoints.get_mut(label) {
                row.calls = row.calls.saturating_sub(before.calls);
                row.bytes_in = row.bytes_in.saturating_sub(before.bytes_in);
                row.bytes_out = row.bytes_out.saturating_sub(before.bytes_out);
            }
        }
        self.endpoints.retain(|_, row| row.calls > 0);
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_is_read_and_reduced() {
        let text = r#"{"endpoints": {
              "events.query": {"calls": 3, "bytes_in": 0, "bytes_out": 90, "errors": 0},
              "version": {"calls": 1, "bytes_in": 0, "bytes_out": 40, "errors": 0}},
            "machines": {"a": {"system_id": "abc", "creates": 1, "deploys": 2,
              "double_deploys": 1, "log": [
                {"kind": "drawn", "at_us": 5, "activity": "deploy", "ideal_us": 9},
                {"kind": "status", "at_us": 7, "name": "Ready"},
                {"kind": "call", "at_us": 8, "endpoint": "machine.deploy", "status": 200}]}}}"#;
        let record: RegionRecord = serde_json::from_str(text).unwrap();
        assert_eq!((record.calls(), record.bytes(), record.double_deploys()), (4, 130, 1));
        assert_eq!(record.machines["a"].log[0], LogLine::Other);
        let before: RegionRecord = serde_json::from_str(
            r#"{"endpoints": {"version": {"calls": 1, "bytes_in": 0, "bytes_out": 40}}, "machines": {}}"#,
        )
        .unwrap();
        assert!(record.machines["a"].changes().is_empty(), "it was never deployed");
        let mut again = record.machines["a"].clone();
        again.log.insert(1, LogLine::Status { at_us: 6, name: "Deployed".to_owned() });
        assert_eq!(again.changes(), BTreeMap::from([("machine.deploy", 1)]));
        let later = record.since(&before);
        assert_eq!(later.calls(), 3);
        assert_eq!(later.endpoints.len(), 1);
    }
}
