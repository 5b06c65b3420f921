//! Whether a host has the effects that its profile and its bundles promise: one finding for each
//! check, always with a verdict.
//!
//! What cannot be observed counts as absent: a gate must not pass because nobody looked. A check
//! looks at the effect, never at the exit code of what should have brought it about: at the driver
//! link of a PCI function, not at the unit that binds it.
//!
//! Most effects are in files below the host's root (`offline`). For the rest, programs and daemons
//! of the host are queried (`live`): systemd, Open vSwitch, nftables, a port.

mod fabric;
mod flows;
mod identities;
mod kernel;
mod live;
mod netdata;
mod network;
mod nftables;
mod offline;
mod pages;
mod pci;
mod query;
mod settings;
mod units;
mod verdict;

use gpuaas_types::agent::{Finding, HostCheck};
use host_facts::HostFacts;
use serde_json::Value;

pub(crate) use units::unit_state;

use crate::host::Host;

/// Evaluates each of `checks` on `host`; one finding for each, with a verdict. `facts` are those
/// of the host, as [`Host::facts`] gives them.
pub(crate) async fn evaluate(host: &Host, facts: &Value, checks: &[HostCheck]) -> Vec<Finding> {
    let facts: HostFacts = serde_json::from_value(facts.clone()).unwrap_or_default();
    let answers = live::Answers::default();
    let mut findings = Vec::with_capacity(checks.len());
    for check in checks {
        findings.push(match offline::evaluate(host.root(), &facts, check) {
            Some(finding) => finding,
            None => live::evaluate(host, &facts, &answers, check).await,
        });
    }
    findings
}
