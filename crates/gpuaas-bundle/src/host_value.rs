//! Values of which each host has one of its own, such as its address on the fabric.

use std::collections::{BTreeMap, BTreeSet};
use std::net::Ipv4Addr;

use ipnet::Ipv4Net;

use crate::input::{Derivation, Input, InputError, InputType, Inputs};

/// First format of manifests with such values.
const FORMAT: u32 = 3;

/// A value of one host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HostValue<'a> {
    /// The host's name.
    pub host: &'a str,
    /// Name of the input.
    pub input: &'a str,
    /// The value; a list is several.
    pub value: String,
}

/// The first two hosts that would share a value; a host may not have one twice either.
///
/// # Errors
/// [`InputError::Shared`].
pub fn refuse_shared<'a>(
    values: impl IntoIterator<Item = HostValue<'a>>,
) -> Result<(), InputError> {
    let mut known: BTreeMap<(&str, String), &str> = BTreeMap::new();
    for HostValue { host, input, value } in values {
        let mut own = BTreeSet::new();
        for one in without_prefixes(&value) {
            let twice = !own.insert(one.clone());
            let first = known.insert((input, one.clone()), host);
            if let Some(first) = first.filter(|first| twice || *first != host) {
                return Err(InputError::Shared {
                    name: input.to_owned(),
                    value: one,
                    first: first.to_owned(),
                    second: host.to_owned(),
                });
            }
        }
    }
    Ok(())
}

/// Refuses values for many hosts of inputs of which each host has its own.
///
/// # Errors
/// [`InputError::NotOfOneHost`].
pub fn refuse_for_many(declared: &BTreeMap<String, Input>, set: &Inputs) -> Result<(), InputError> {
    let unique = |name: &&String| declared.get(*name).is_some_and(|input| input.unique);
    match set.iter().find(|(name, value)| unique(name) && !value.is_empty()) {
        Some((name, _)) => Err(InputError::NotOfOneHost { name: name.clone() }),
        None => Ok(()),
    }
}

/// What hosts with `values` derive for themselves, by the bundle's inputs: an address of the subnet, with
/// the host part of the address.
#[must_use]
pub fn derived<'a>(
    declared: &'a BTreeMap<String, Input>,
    host: &'a str,
    values: &Inputs,
) -> Vec<HostValue<'a>> {
    let value = |name: &str| values.get(name).map(String::as_str).filter(|text| !text.is_empty());
    let inputs = declared.iter().filter(|(name, _)| value(name).is_none());
    let derived = inputs.filter_map(|(name, input)| {
        let from = input.derived.as_ref().filter(|from| applies(from, values))?;
        let address = derived_address(value(&from.address)?, value(&from.subnet)?)?;
        Some(HostValue { host, input: name, value: address.to_string() })
    });
    derived.collect()
}

/// The values that the host with `values` has for itself alone, set or derived: by input, each address
/// in lower case and without its prefix.
#[must_use]
pub fn own_values(
    declared: &BTreeMap<String, Input>,
    values: &Inputs,
) -> BTreeMap<String, Vec<String>> {
    let unique = declared.iter().filter(|(_, input)| input.unique);
    let set = unique.filter_map(|(name, _)| Some((name.as_str(), values.get(name)?.clone())));
    let derived = derived(declared, "", values).into_iter().map(|one| (one.input, one.value));
    let mut own: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for (name, text) in set.chain(derived) {
        let words: Vec<String> = without_prefixes(&text).collect();
        if !words.is_empty() {
            own.entry(name.to_owned()).or_default().extend(words);
        }
    }
    own
}

/// Inputs that a host with `values` derives from an address which is set nowhere, so that the host and
/// MAAS alone know it: the subnet of each.
#[must_use]
pub fn derived_on_host(
    declared: &BTreeMap<String, Input>,
    values: &Inputs,
) -> BTreeMap<String, String> {
    let value = |name: &str| values.get(name).filter(|text| !text.is_empty());
    let open = declared.iter().filter(|(name, _)| value(name).is_none());
    let derived = open.filter_map(|(name, input)| {
        let from = input.derived.as_ref().filter(|from| applies(from, values))?;
        let subnet = value(&from.subnet).filter(|_| value(&from.address).is_none())?;
        Some((name.clone(), subnet.clone()))
    });
    derived.collect()
}

/// Whether a host with `values` derives it at all.
fn applies(from: &Derivation, values: &Inputs) -> bool {
    from.only_when.as_ref().is_none_or(|name| values.get(name).is_some_and(|value| value == "1"))
}

/// The words of a list, each address without its prefix: two prefixes of one address are one address.
fn without_prefixes(text: &str) -> impl Iterator<Item = String> {
    let words = text.split([' ', ',']).filter(|word| !word.is_empty());
    words.map(|word| word.split_once('/').map_or(word, |(address, _)| address).to_lowercase())
}

/// The address of `subnet` with the host part of `address`, as the phase `ipoib` of `h200-ib` computes
/// it; none where either is of IPv6.
#[must_use]
pub fn derived_address(address: &str, subnet: &str) -> Option<Ipv4Addr> {
    let first = address.split([' ', ',']).next()?;
    let address: Ipv4Addr = first.split('/').next()?.parse().ok()?;
    let subnet: Ipv4Net = subnet.parse().ok()?;
    let host = u32::from(address) & u32::from(subnet.hostmask());
    Some(Ipv4Addr::from(u32::from(subnet.network()) | host))
}

/// What is wrong with the inputs of a manifest that are of one host each.
pub(crate) fn faults(
    declared: &BTreeMap<String, Input>,
    format: u32,
    report: &mut impl FnMut(&str, String),
) {
    for (name, input) in declared {
        let at = format!("inputs.{name}");
        if (input.unique || input.derived.is_some()) && format < FORMAT {
            report(&at, format!("per-host values require format {FORMAT}"));
        }
        if input.unique && input.default.as_ref().is_some_and(|text| !text.is_empty()) {
            report(&at, "an input with a value per host cannot have a default".to_owned());
        }
        let from = input.derived.iter().flat_map(|from| [&from.address, &from.subnet]);
        for other in from.filter(|other| !declared.contains_key(*other)) {
            report(&at, format!("derived from {other}, which is not an input"));
        }
        let condition = input.derived.as_ref().and_then(|from| from.only_when.as_ref());
        let is_boolean =
            |name: &String| declared.get(name).is_some_and(|one| one.kind == InputType::Boolean);
        if let Some(name) = condition.filter(|name| !is_boolean(name)) {
            report(&at, format!("only_when names {name}, which is not a boolean input"));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn value<'a>(host: &'a str, input: &'a str, text: &str) -> HostValue<'a> {
        HostValue { host, input, value: text.to_owned() }
    }

    #[test]
    fn one_value_is_of_one_host() {
        let apart = [
            value("a", "ipoib_addresses", "192.168.7.1/16 192.168.7.2/16"),
            value("b", "ipoib_addresses", "192.168.7.3/16"),
            value("b", "management_address", "192.168.7.1/16"),
            // For two bundles of one host.
            value("b", "ipoib_addresses", "192.168.7.3/16"),
        ];
        assert_eq!(refuse_shared(apart), Ok(()));
        let shared =
            [value("a", "x", "192.168.7.1/16,192.168.7.2/16"), value("b", "x", "192.168.7.2/24")];
        let error = refuse_shared(shared).unwrap_err();
        let both = "input x: a and b would both get 192.168.7.2";
        assert!(error.to_string().starts_with(both), "{error}");
        let twice = [value("a", "x", "10.0.0.1/8 10.0.0.1/8")];
        assert_eq!(refuse_shared(twice).unwrap_err().code(), "bundle_input_shared");
    }

    #[test]
    fn derived_addresses_take_the_host_part_and_may_meet() {
        let address = |address, subnet| derived_address(address, subnet).map(|one| one.to_string());
        let fabric = "192.168.0.0/16";
        assert_eq!(address("10.177.36.100/24", fabric).as_deref(), Some("192.168.36.100"));
        assert_eq!(address("10.9.8.7/20", "172.20.4.0/22").as_deref(), Some("172.20.4.7"));
        assert_eq!(address("fe80::1/64", fabric), None);
        let declared: BTreeMap<String, Input> = serde_json::from_value(serde_json::json!({
                "fabric": {"type": "cidr", "about": "x", "environment": "F", "default": fabric},
                "own": {"type": "cidr", "about": "x", "environment": "O", "default": "", "unique": true},
                "address": {"type": "cidr", "about": "x", "environment": "A", "default": "",
                    "unique": true, "derived": {"address": "own", "subnet": "fabric"}},
        }))
        .unwrap();
        let of = |host, own: &str| {
            let set =
                [("own".to_owned(), own.to_owned()), ("fabric".to_owned(), fabric.to_owned())];
            derived(&declared, host, &set.into())
        };
        // Two management networks, one host part.
        let all: Vec<_> =
            of("a", "10.1.0.5/16").into_iter().chain(of("b", "10.2.0.5/16")).collect();
        let error = refuse_shared(all).unwrap_err().to_string();
        assert!(error.starts_with("input address: a and b would both get 192.168.0.5"), "{error}");
        // Where nothing names the address, only the host and MAAS know what it derives.
        let set = |own: &str, address: &str| -> Inputs {
            let all = [("own", own), ("address", address), ("fabric", fabric)];
            all.map(|(name, text)| (name.to_owned(), text.to_owned())).into()
        };
        let open = |values: &Inputs| derived_on_host(&declared, values).into_values().next();
        assert_eq!(open(&set("", "")).as_deref(), Some(fabric));
        assert_eq!(open(&set("10.1.0.5/16", "")), None);
        assert_eq!(open(&set("", "192.168.7.1/16")), None);
        let own = own_values(&declared, &set("10.1.0.5/16", ""));
        let expected = [("address", "192.168.0.5"), ("own", "10.1.0.5")];
        let expected = expected.map(|(name, one)| (name.to_owned(), vec![one.to_owned()]));
        assert_eq!(own, expected.into());
        assert_eq!(own_values(&declared, &set("", "")), BTreeMap::new());
        // A host without the fabric derives nothing for it.
        let mut conditional = declared.clone();
        let from = conditional.get_mut("address").and_then(|input| input.derived.as_mut()).unwrap();
        from.only_when = Some("ipoib".to_owned());
        for (value, derives) in [("1", true), ("0", false)] {
            let with = |own: &str| {
                let mut values = set(own, "");
                values.insert("ipoib".to_owned(), value.to_owned());
                values
            };
            assert_eq!(!derived_on_host(&conditional, &with("")).is_empty(), derives);
            assert_eq!(
                derived(&conditional, "a", &with("10.1.0.5/16")).len(),
                usize::from(derives)
            );
        }
        let one = [("own".to_owned(), "10.0.0.1/8".to_owned())].into();
        let error = refuse_for_many(&declared, &one).unwrap_err();
        assert_eq!(error.code(), "bundle_input_not_of_one_host");
    }

    #[test]
    fn an_older_format_has_no_values_of_one_host() {
        let declared: BTreeMap<String, Input> = serde_json::from_value(serde_json::json!({
            "a": {"type": "cidr", "about": "x", "environment": "A", "default": "10.0.0.1/8",
                "unique": true, "derived": {"address": "b", "subnet": "a", "only_when": "a"}},
        }))
        .unwrap();
        let mut said = Vec::new();
        faults(&declared, 2, &mut |at: &str, text: String| said.push(format!("{at}: {text}")));
        assert_eq!(said.len(), 4, "{said:?}");
    }
}
