//! Which machines of a region have which BMC address.
//!
//! A create with the BMC of another machine makes MAAS hold the call for half a minute and then
//! refuse it in words that do not name the cause (docs/maas.md#duplicate-bmc), so the address is
//! looked up first. MAAS cannot be asked by address, only for the list of all, which takes it about
//! a millisecond a machine (docs/maas.md#costs): a minute's worth of answers for one list of a
//! large fleet. So the larger the list, the longer it is kept, and what it says of a machine that
//! nothing else points to is confirmed before anybody acts on it.

use std::collections::{BTreeMap, HashMap};

use gpuaas_core::decide::change_guard::BMC_SECONDS;
use gpuaas_core::machine_identity::bmc_host;
use gpuaas_types::Timestamp;
use maas_client::PowerParameters;

use crate::site::answer_cache::ANSWER_SECONDS;

/// Seconds of a region's time that each machine of the list takes (docs/maas.md#costs).
const COST_SECONDS: f64 = 0.001;
/// The part of a region's time that asking for the list may take.
const SHARE: f64 = 0.05;

/// Seconds for which the list is good at least where a machine is about to be changed.
const CURRENT_SECONDS: f64 = 10.0;

/// See the module text.
#[derive(Debug, Default)]
pub(crate) struct BmcIndex {
    asked_at: Timestamp,
    addresses: HashMap<String, Option<String>>,
    by_address: HashMap<String, Vec<String>>,
}

impl BmcIndex {
    /// From MAAS' answer to a question asked at `asked_at`: parameters by `system_id`.
    pub(crate) fn new(all: &BTreeMap<String, PowerParameters>, asked_at: Timestamp) -> Self {
        let mut by_address: HashMap<String, Vec<String>> = HashMap::new();
        let mut addresses = HashMap::new();
        for (system_id, parameters) in all {
            let address = parameters.power_address.clone().filter(|address| !address.is_empty());
            if let Some(address) = &address {
                by_address.entry(bmc_host(address)).or_default().push(system_id.clone());
            }
            addresses.insert(system_id.clone(), address);
        }
        Self { asked_at, addresses, by_address }
    }

    /// When MAAS was asked.
    pub(crate) const fn asked_at(&self) -> Timestamp {
        self.asked_at
    }

    /// Address of the BMC of a machine, which may have none; none: the machine is not in the list.
    pub(crate) fn address_of(&self, system_id: &str) -> Option<&Option<String>> {
        self.addresses.get(system_id)
    }

    /// `system_id` of each machine whose BMC has this address.
    pub(crate) fn machines_at(&self, address: &str) -> &[String] {
        self.by_address.get(&bmc_host(address)).map_or(&[], Vec::as_slice)
    }

    /// Seconds for which the list is good for a search: a minute, and longer from 3,000 machines on.
    pub(crate) fn max_age_seconds(&self) -> f64 {
        ANSWER_SECONDS.max(self.seconds_between_lists())
    }

    /// Seconds for which the list is good where a machine is about to be changed: ten, and longer
    /// from 500 machines on; none: asking for one machine is better, the list is too large to be
    /// asked for so often.
    pub(crate) fn current_seconds(&self) -> Option<f64> {
        let seconds = CURRENT_SECONDS.max(self.seconds_between_lists());
        (seconds < BMC_SECONDS).then_some(seconds)
    }

    fn seconds_between_lists(&self) -> f64 {
        #[expect(clippy::cast_precision_loss, reason = "a number of machines")]
        let machines = self.addresses.len() as f64;
        machines * COST_SECONDS / SHARE
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
        let all = addresses.iter().enumerate().map(parameters).collect();
        BmcIndex::new(&all, Timestamp::EPOCH)
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
        let current = [100, 1000, 1499, 1500].map(|n| list(&vec!["a"; n]).current_seconds());
        assert_eq!(current, [Some(10.0), Some(20.0), Some(29.98), None]);
    }

    #[test]
    fn a_machine_without_a_bmc_differs_from_one_that_is_not_listed() {
        let bmcs = list(&["192.0.2.7", ""]);
        assert_eq!(bmcs.address_of("m00000"), Some(&Some("192.0.2.7".to_owned())));
        assert_eq!(bmcs.address_of("m00001"), Some(&None));
        assert_eq!(bmcs.address_of("m00002"), None);
    }
}
