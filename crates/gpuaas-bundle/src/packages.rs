//! The Debian packages of a bundle.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::input::Inputs;

/// Debian packages of a bundle.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Packages {
    /// Packages without which the bundle fails.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub required: Vec<String>,
    /// Packages whose absence is only logged.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub optional: Vec<String>,
    /// Optional packages that a boolean input asks for, by its name: installed where it is 1, and where
    /// it is 0 removed again if this bundle installed them.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub when: BTreeMap<String, Vec<String>>,
}

impl Packages {
    pub(crate) fn is_none(&self) -> bool {
        self.required.is_empty() && self.optional.is_empty() && self.when.is_empty()
    }

    /// The packages of [`Self::when`] whose input is 1 (`on`), or is not.
    pub fn switched<'a>(&'a self, values: &'a Inputs, on: bool) -> impl Iterator<Item = &'a str> {
        let is_on = |name: &str| values.get(name).is_some_and(|value| value == "1");
        let groups = self.when.iter().filter(move |(name, _)| is_on(name) == on);
        groups.flat_map(|(_, packages)| packages).map(String::as_str)
    }

    /// Every package that the bundle may ask for.
    pub fn all(&self) -> impl Iterator<Item = &str> {
        let named = self.required.iter().chain(&self.optional);
        named.chain(self.when.values().flatten()).map(String::as_str)
    }
}
