//! Commissioning and testing scripts that the region knows.

use bytes::Bytes;
use serde_json::{Map, Value};

use crate::model::SetKind;

/// Commissioning scripts that come with MAAS, in the order in which they run.
pub(crate) const COMMISSIONING_SCRIPTS: &[&str] = &[
    "maas-lshw",
    "20-maas-01-install-lldpd",
    "20-maas-02-dhcp-unconfigured-ifaces",
    "30-maas-01-bmc-config",
    "20-maas-03-machine-resources",
    "40-maas-01-machine-config-hints",
    "50-maas-01-commissioning",
    "maas-capture-lldpd",
    "maas-get-fruid-api-data",
    "maas-kernel-cmdline",
    "maas-list-modaliases",
    "maas-serial-ports",
    "maas-support-info",
];

#[derive(Debug, Clone)]
pub(crate) struct Revision {
    pub(crate) id: i64,
    pub(crate) comment: Option<String>,
    pub(crate) at_us: i64,
    pub(crate) text: Bytes,
}

#[derive(Debug, Clone)]
pub(crate) struct Script {
    pub(crate) id: i64,
    pub(crate) name: String,
    pub(crate) title: String,
    pub(crate) description: String,
    pub(crate) kind: SetKind,
    /// 0 node, 1 CPU, 2 memory, 3 storage, 4 network.
    pub(crate) hardware: i64,
    pub(crate) parallel: i64,
    pub(crate) tags: Vec<String>,
    pub(crate) timeout_seconds: i64,
    pub(crate) destructive: bool,
    pub(crate) builtin: bool,
    pub(crate) parameters: Map<String, Value>,
    /// What the script says that it finds out.
    pub(crate) results: Map<String, Value>,
    pub(crate) packages: Vec<String>,
    pub(crate) text: Bytes,
    pub(crate) history: Vec<Revision>,
}

impl Script {
    /// Gives the newest revision another text.
    pub(crate) fn set_text(&mut self, text: Bytes) {
        if let Some(newest) = self.history.first_mut() {
            newest.text = text.clone();
        }
        self.text = text;
    }
}

#[derive(Debug, Clone)]
pub(crate) struct Scripts {
    pub(crate) list: Vec<Script>,
    next: i64,
}

/// Built-in tests: name, hardware, tags, timeout in seconds.
const TESTS: &[(&str, i64, &[&str], i64)] = &[
    ("smartctl-validate", 3, &["commissioning", "storage"], 300),
    ("smartctl-short", 3, &["storage"], 600),
    ("smartctl-long", 3, &["storage"], 0),
    ("smartctl-conveyance", 3, &["storage"], 0),
    ("memtester", 2, &["memory"], 0),
    ("stress-ng-cpu-long", 1, &["cpu"], 50_400),
    ("stress-ng-cpu-short", 1, &["cpu"], 300),
    ("stress-ng-memory-long", 2, &["memory"], 50_400),
    ("stress-ng-memory-short", 2, &["memory"], 300),
    ("ntp", 4, &["ntp", "network"], 60),
    ("badblocks", 3, &["storage"], 0),
    ("badblocks-destructive", 3, &["destructive", "storage"], 0),
    ("7z", 1, &["cpu"], 300),
    ("fio", 3, &["storage", "destructive"], 0),
    ("internet-connectivity", 4, &["internet", "network-validation", "network"], 300),
    ("gateway-connectivity", 4, &["network-validation", "network"], 300),
    ("rack-controller-connectivity", 4, &["network-validation", "network"], 300),
];

const BUILTIN_TEXT: &[u8] = b"#!/bin/sh\n";

/// What the built-in benchmark of the processor tells.
const BENCHMARK_RESULTS: &[(&str, &str)] = &[
    ("compression_ru_mips", "Compression RU MIPS"),
    ("compression_rating_mips", "Compression rating MIPS"),
    ("decompression_ru_mips", "Decompression RU MIPS"),
    ("decompression_rating_mips", "Decompression rating MIPS"),
];

impl Scripts {
    pub(crate) fn builtin() -> Self {
        let mut out = Self { list: Vec::new(), next: 1489 };
        for name in COMMISSIONING_SCRIPTS {
            out.add(name, SetKind::Commissioning, 0, &[], 60);
        }
        for (name, hardware, tags, timeout) in TESTS {
            out.add(name, SetKind::Testing, *hardware, tags, *timeout);
        }
        out
    }

    fn add(
        &mut self,
        name: &str,
        kind: SetKind,
        hardware: i64,
        tags: &[&str],
        timeout_seconds: i64,
    ) {
        let id = self.new_id();
        self.list.push(Script {
            id,
            name: name.to_owned(),
            title: name.to_owned(),
            description: String::new(),
            kind,
            hardware,
            parallel: i64::from(hardware == 3),
            tags: tags.iter().map(|t| (*t).to_owned()).collect(),
            timeout_seconds,
            destructive: tags.contains(&"destructive"),
            builtin: true,
            parameters: (kind == SetKind::Testing && hardware == 3)
                .then(|| ("storage".to_owned(), serde_json::json!({"type": "storage"})))
                .into_iter()
                .collect(),
            results: BENCHMARK_RESULTS
                .iter()
                .filter(|_| name == "7z")
                .map(|(key, title)| {
                    ((*key).to_owned(), serde_json::json!({"title": title, "description": title}))
                })
                .collect(),
            packages: tags
                .iter()
                .filter(|_| kind == SetKind::Testing)
                .take(1)
                .map(|_| name.to_owned())
                .collect(),
            text: Bytes::from_static(BUILTIN_TEXT),
            history: vec![Revision {
                id,
                comment: Some("Created by maas".to_owned()),
                at_us: 0,
                text: Bytes::from_static(BUILTIN_TEXT),
            }],
        });
    }

    /// Adds a commissioning script as a person would.
    pub(crate) fn add_custom(&mut self, name: &str, text: Bytes) {
        self.add(name, SetKind::Commissioning, 0, &["node"], 0);
        if let Some(script) = self.named_mut(name) {
            script.builtin = false;
            script.set_text(text);
        }
    }

    pub(crate) fn new_id(&mut self) -> i64 {
        self.next += 1;
        self.next
    }

    pub(crate) fn named(&self, name: &str) -> Option<&Script> {
        self.list.iter().find(|s| s.name == name)
    }

    pub(crate) fn named_mut(&mut self, name: &str) -> Option<&mut Script> {
        self.list.iter_mut().find(|s| s.name == name)
    }

    pub(crate) fn id_of(&self, name: &str) -> Option<i64> {
        self.named(name).map(|s| s.id)
    }

    /// Names of the scripts of a kind with this name or tag.
    pub(crate) fn matching(&self, word: &str, kind: SetKind) -> Vec<String> {
        let hit =
            |s: &&Script| s.kind == kind && (s.name == word || s.tags.iter().any(|t| t == word));
        self.list.iter().filter(hit).map(|s| s.name.clone()).collect()
    }

    /// Commissioning scripts that somebody added and MAAS runs where none is selected: all but
    /// those tagged `noauto`.
    pub(crate) fn automatic(&self) -> Vec<String> {
        let added = |s: &&Script| {
            s.kind == SetKind::Commissioning
                && !s.builtin
                && !s.tags.iter().any(|tag| tag == "noauto")
        };
        self.list.iter().filter(added).map(|s| s.name.clone()).collect()
    }

    /// A parameter default that is no text, which makes MAAS refuse to run the script.
    pub(crate) fn bad_default(&self, name: &str) -> Option<String> {
        let parameters = &self.named(name)?.parameters;
        parameters
            .values()
            .filter_map(|p| p.get("default"))
            .find(|d| !d.is_string())
            .map(Value::to_string)
    }
}
