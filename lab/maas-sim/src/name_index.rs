//! Who goes by a name: hostnames, MAC addresses and BMCs, found without a walk over the fleet.
//!
//! Every create asks four times whether a name is taken, and a control plane looks every machine
//! up by name before that; a walk each time makes a fleet cost the square of its size. Kept are
//! only hashes with the machine they lead to, sixteen bytes a name, because names are long and
//! the machine has them already. So what is found here are candidates: the caller compares.

use std::collections::BTreeSet;
use std::hash::{DefaultHasher, Hash, Hasher as _};

use serde_json::{Map, Value};

use crate::model::Machine;

/// Power parameters that are secrets: they tell no two BMCs apart.
pub(crate) const SECRETS: &[&str] = &["power_pass", "k_g", "power_token"];

/// A name that MAAS looks machines up by.
#[derive(Debug, Clone, Copy, Hash)]
pub(crate) enum LookupName<'a> {
    Host(&'a str),
    Mac(&'a str),
    /// Power type, and the hash of the parameters without the secrets.
    Bmc(&'a str, u64),
}

impl<'a> LookupName<'a> {
    pub(crate) fn bmc(power_type: &'a str, parameters: &Map<String, Value>) -> Self {
        let mut hasher = DefaultHasher::new();
        for (key, value) in parameters.iter().filter(|(k, _)| !SECRETS.contains(&k.as_str())) {
            (key, value).hash(&mut hasher);
        }
        LookupName::Bmc(power_type, hasher.finish())
    }

    fn digest(self) -> u64 {
        let mut hasher = DefaultHasher::new();
        self.hash(&mut hasher);
        hasher.finish()
    }
}

/// See the module text.
#[derive(Debug, Default, Clone)]
pub(crate) struct NameIndex(BTreeSet<(u64, u32)>);

impl NameIndex {
    /// Machines that may go by this name, in the order of their ids.
    pub(crate) fn candidates(&self, name: LookupName<'_>) -> impl Iterator<Item = u32> {
        let digest = name.digest();
        self.0.range((digest, 0)..=(digest, u32::MAX)).map(|(_, key)| *key)
    }

    /// Writes down what a machine goes by.
    pub(crate) fn insert(&mut self, m: &Machine) {
        self.0.extend(digests(m).map(|digest| (digest, m.key)));
    }

    /// Forgets what a machine goes by; to be called before any of it changes.
    pub(crate) fn remove(&mut self, m: &Machine) {
        for digest in digests(m) {
            self.0.remove(&(digest, m.key));
        }
    }
}

fn digests(m: &Machine) -> impl Iterator<Item = u64> {
    let own = [LookupName::Host(&m.hostname), LookupName::bmc(&m.power_type, &m.power_parameters)];
    own.into_iter()
        .chain(m.nics.iter().map(|nic| LookupName::Mac(&nic.mac)))
        .map(LookupName::digest)
}
