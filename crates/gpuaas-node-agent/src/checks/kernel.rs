//! What the kernel was started with, read as the kernel reads its command line.
//!
//! Words end at spaces outside quotes, `-` and `_` in names are the same, and what follows `--` is for
//! init. Of most arguments the last one is in effect. Some take a list of words and apply each in turn
//! ([`LISTS`]), so `intel_iommu=on,sm_on` turns the IOMMU on and a later `intel_iommu=off` turns it off
//! again. Of a few every occurrence counts ([`REPEATED`]).

use std::collections::BTreeSet;

use host_facts::HostFacts;

use super::verdict::Verdict;

/// Arguments whose value is a list of words that the kernel applies in turn, in every occurrence.
const LISTS: [&str; 5] = ["intel_iommu", "amd_iommu", "iommu", "pci", "mitigations"];
/// Words of which the later one is in effect.
const OPPOSITES: [(&str, &str); 3] = [("on", "off"), ("pt", "nopt"), ("force", "noforce")];
/// Arguments of which every occurrence counts.
const REPEATED: [&str; 8] = [
    "console",
    "earlycon",
    "hugepages",
    "hugepagesz",
    "modprobe.blacklist",
    "rd.driver.blacklist",
    "systemd.mask",
    "systemd.wants",
];

/// Arguments that ask for the IOMMU, which newer kernels have on without them. `amd_iommu=on` is not even
/// one of the kernel's: the IOMMU of AMD is on unless it is told `off`.
const IOMMU_ON: [&str; 2] = ["intel_iommu=on", "amd_iommu=on"];
const IOMMU_OFF: [&str; 3] = ["intel_iommu=off", "amd_iommu=off", "iommu=off"];

/// Whether the kernel was started with `wanted`, and it is in effect.
pub(super) fn argument(facts: &HostFacts, wanted: &str) -> Verdict {
    let Some(line) = &facts.kernel_cmdline else {
        return (false, "the host has no /proc/cmdline".to_owned());
    };
    let other = other_value(line, wanted);
    if other.is_some() && IOMMU_ON.contains(&wanted) && !turns_iommu_off(line) {
        let groups: BTreeSet<u32> = facts.pci.iter().filter_map(|one| one.iommu_group).collect();
        if !groups.is_empty() {
            return (true, format!("the IOMMU is on anyway: {} groups", groups.len()));
        }
    }
    match other {
        None => (true, "the kernel was started with this argument".to_owned()),
        Some(values) if values.is_empty() => {
            (false, "the kernel was started without this argument".to_owned())
        }
        Some(values) => (false, format!("the kernel was started with {}", values.join(" "))),
    }
}

/// Whether the line turns the IOMMU off, in any of the ways there are.
fn turns_iommu_off(line: &str) -> bool {
    IOMMU_OFF.iter().any(|off| other_value(line, off).is_none())
}

/// The same of each of several arguments.
pub(super) fn arguments(facts: &HostFacts, wanted: &str) -> Verdict {
    let missing: Vec<String> = wanted
        .split_ascii_whitespace()
        .filter_map(|one| {
            let (passed, seen) = argument(facts, one);
            (!passed).then(|| format!("{one}: {seen}"))
        })
        .collect();
    match (missing.is_empty(), wanted.trim().is_empty()) {
        (true, true) => (true, "the profile lists no kernel arguments".to_owned()),
        (true, false) => (true, "the kernel was started with all of them".to_owned()),
        (false, _) => (false, missing.join("; ")),
    }
}

/// What the command line has of the argument's name where `wanted` is not in effect; none: it is.
fn other_value(line: &str, wanted: &str) -> Option<Vec<String>> {
    let words = words(line);
    let (name, value) = split(wanted);
    let found: Vec<&String> = words.iter().filter(|word| split(word).0 == name).collect();
    let values = || found.iter().map(|word| split(word).1);
    let in_effect = if REPEATED.contains(&name.as_str()) {
        values().any(|other| other == value)
    } else if LISTS.contains(&name.as_str()) {
        let given: Vec<&str> = values().flatten().flat_map(|list| list.split(',')).collect();
        value.unwrap_or_default().split(',').all(|word| last_word_wins(&given, word))
    } else {
        values().next_back() == Some(value)
    };
    (!in_effect).then(|| found.into_iter().cloned().collect())
}

/// Whether `word` is among these words, and none after it takes it back.
fn last_word_wins(given: &[&str], word: &str) -> bool {
    let opposite =
        |other: &str| OPPOSITES.contains(&(word, other)) || OPPOSITES.contains(&(other, word));
    let mut relevant = given.iter().filter(|other| **other == word || opposite(other));
    relevant.next_back() == Some(&word)
}

/// Name, with `_` in place of `-`, and value of an argument; none: it has no value.
fn split(word: &str) -> (String, Option<&str>) {
    let (name, value) = word.split_once('=').map_or((word, None), |(name, v)| (name, Some(v)));
    (name.replace('-', "_"), value)
}

/// The arguments of a command line without their quotes, up to those of init.
fn words(line: &str) -> Vec<String> {
    let (mut words, mut word, mut quoted) = (Vec::new(), String::new(), false);
    for character in line.chars().chain([' ']) {
        match character {
            '"' => quoted = !quoted,
            space if space.is_whitespace() && !quoted => {
                if word == "--" {
                    return words;
                }
                if !word.is_empty() {
                    words.push(std::mem::take(&mut word));
                }
            }
            other => word.push(other),
        }
    }
    words
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seen(line: &str, wanted: &str) -> Verdict {
        let facts = HostFacts { kernel_cmdline: Some(line.to_owned()), ..HostFacts::default() };
        arguments(&facts, wanted)
    }

    #[test]
    fn arguments_are_read_as_the_kernel_reads_them() {
        for (line, wanted, passes) in [
            ("ro intel_iommu=on iommu=pt", "intel_iommu=on iommu=pt", true),
            ("ro intel_iommu=on iommu=pt intel_iommu=off", "intel_iommu=on", false),
            ("ro intel_iommu=off intel_iommu=on", "intel_iommu=on", true),
            ("ro intel_iommu=on,sm_on iommu=pt", "intel_iommu=on", true),
            ("ro intel_iommu=on intel_iommu=sm_on", "intel_iommu=on", true),
            ("ro intel_iommu=on,off", "intel_iommu=on", false),
            ("quiet \"intel_iommu=on\" iommu=pt", "intel_iommu=on", true),
            ("quiet intel-iommu=\"on\"", "intel_iommu=on", true),
            ("quiet -- intel_iommu=on", "intel_iommu=on", false),
            ("ro iommu=pt iommu=nopt", "iommu=pt", false),
            ("ro xintel_iommu=on", "intel_iommu=on", false),
            ("hugepagesz=1G hugepages=512 hugepagesz=2M hugepages=64", "hugepages=512", true),
            ("hugepagesz=1G hugepages=51", "hugepages=512", false),
            ("transparent_hugepage=never", "transparent_hugepage=never", true),
            (
                "transparent_hugepage=never transparent_hugepage=always",
                "transparent_hugepage=never",
                false,
            ),
            ("ro nokaslr", "nokaslr", true),
            ("ro", "nokaslr", false),
            ("ro", "", true),
        ] {
            assert_eq!(seen(line, wanted).0, passes, "{line:?}, {wanted:?}");
        }
        let (_, text) = seen("ro intel_iommu=off", "intel_iommu=on");
        assert_eq!(text, "intel_iommu=on: the kernel was started with intel_iommu=off");
        assert!(!argument(&HostFacts::default(), "nokaslr").0, "nobody looked");
    }

    #[test]
    fn the_effect_counts_where_the_argument_is_not_needed() {
        let facts = |line: &str, group: Option<u32>| -> HostFacts {
            serde_json::from_value(serde_json::json!({"kernel_cmdline": line,
                "pci": [{"address": "0000:01:00.0", "iommu_group": group}]}))
            .unwrap()
        };
        let seen = argument(&facts("ro", Some(3)), "intel_iommu=on");
        assert_eq!(seen, (true, "the IOMMU is on anyway: 1 groups".to_owned()));
        assert!(!argument(&facts("ro", None), "intel_iommu=on").0);
        assert!(argument(&facts("ro", Some(3)), "amd_iommu=on").0);
        assert!(
            !argument(&facts("ro intel_iommu=on intel_iommu=off", Some(3)), "intel_iommu=on").0
        );
        assert!(!argument(&facts("ro", Some(3)), "iommu=pt").0, "only what has an effect to see");
    }
}
