//! Which machines of a region have which BMC address.
//!
//! A create with the BMC of another machine makes MAAS hold the call for half a minute and then
//! refuse it in words that do not name the cause (docs/maas.md#duplicate-bmc), so the address is
//! looked up first. MAAS cannot be asked by address, only for the list of all, which takes it about
//! a millisecond a machine (docs/maas.md#costs): a minute's worth of answers for one list of a
//! large fleet. So the larger the list, the longer it is kept, and what it says of a machine that
//! nothing else points to is confirmed before anybody acts on it.

use std::collections::{BTreeMap, HashMap};

use gpuaas_core::machine_identity::bmc_host;
use maas_client::PowerParameters;

use crate::answer_cache::ANSWER_SECONDS;

/// Seconds of a region's time that each machine of the list takes (docs/maas.md#costs).
const COST_SECONDS: f64 = 0.001;
/// The part of a region's time that asking for the list may take.
const SHARE: f64 = 0.05;

/// See the module text.
#[derive(Debug, Default)]
pub(crate) struct BmcIndex {
    machines: usize,
    by_address: HashMap<String, Vec<String>>,
}

impl BmcIndex {
    /// From MAAS' answer: parameters by `system_id`.
    pub(crate) fn new(all: &BTreeMap<String, PowerParameters>) -> Self {
        let mut by_address: HashMap<String, Vec<String>> = HashMap::new();
        for (system_id, parameters) in all {
            if let Some(address) = &parameters.power_address {
                by_address.entry(bmc_host(address)).or_default().push(system_id.clone());
            }
        }
        Self { machines: all.len(), by_address }
    }

    /// `system_id` of each machine whose BMC has this address.
    pub(crate) fn machines_at(&self, address: &str) -> &[String] {
        self.by_address.get(&bmc_host(address)).map_or(&[], Vec::as_slice)
    }

    /// Seconds for which the list is good: a minute, and longer from 3,000 machines on.
    pub(crate) fn max_age_seconds(&self) -> f64 {
        #[expect(clippy::cast_precision_loss, reason = "a number of machines")]
        let machines = self.machines as f64;
        ANSWER_SECONDS.max(machines * COST_SECONDS / SHARE)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn list(addresses: &[&str]) -> BmcIndex {
        let parameters = |(n, address): (usize, &&str)| {
            let power_address = Some((*address).to_owned());
            (format!("m{n:05}"), PowerParameters { power_address, ..PowerParameters::default() })
        };
        BmcIndex::new(&addresses.iter().enumerate().map(parameters).collect())
    }

    #[test]
    fn addresses_compare_without_scheme_and_case() {
        let bmcs = list(&["https://192.0.2.7/", "BMC-7.example", "192.0.2.7", ""]);
        assert_eq!(bmcs.machines_at("192.0.2.7"), ["m00000", "m00002"]);
        assert_eq!(bmcs.machines_at("bmc-7.EXAMPLE"), ["m00001"]);
        assert!(bmcs.machines_at("192.0.2.70").is_empty());
    }

    #[test]
    fn a_large_list_is_kept_longer() {
        assert_eq!(list(&["a"; 500]).max_age_seconds(), 60.0);
        assert_eq!(list(&["a"; 5000]).max_age_seconds(), 100.0);
    }
}
