//! What became of a map since the one before.
//!
//! Slots are compared by the address of their GPU, for the number of a slot changes where a GPU is
//! gone; blockers by their code.

use std::collections::{BTreeMap, BTreeSet};

use gpuaas_types::slot::{CandidateSlot, SlotBlocker, SlotChange, SlotMap};
use serde_json::Value;

/// Fields of a slot by path, and what they say.
type Fields = BTreeMap<String, String>;

/// Each difference between two maps of one host, host first, then by address of the GPU.
#[must_use]
pub fn map_difference(before: &SlotMap, after: &SlotMap) -> Vec<SlotChange> {
    let host = |map: &SlotMap| {
        let mut fields = blockers(&map.host_blockers);
        let sets: Vec<String> = map.partitions.iter().map(|set| format!("{set:?}")).collect();
        fields.insert("partitions".to_owned(), sets.join(" "));
        fields
    };
    let mut changes = field_changes(None, &host(before), &host(after));
    let by_gpu = |map: &SlotMap| -> BTreeMap<String, Fields> {
        map.slots.iter().map(|slot| (slot.gpu.address.clone(), slot_fields(slot))).collect()
    };
    let (before, after) = (by_gpu(before), by_gpu(after));
    let gpus: BTreeSet<&String> = before.keys().chain(after.keys()).collect();
    for gpu in gpus {
        match (before.get(gpu), after.get(gpu)) {
            (Some(before), Some(after)) => {
                changes.extend(field_changes(Some(gpu), before, after));
            }
            (before, after) => {
                let word =
                    |there: Option<&Fields>| if there.is_some() { "there" } else { "" }.to_owned();
                changes.push(SlotChange {
                    gpu: Some(gpu.clone()),
                    what: "slot".to_owned(),
                    before: word(before),
                    after: word(after),
                });
            }
        }
    }
    changes
}

fn field_changes(gpu: Option<&String>, before: &Fields, after: &Fields) -> Vec<SlotChange> {
    let names: BTreeSet<&String> = before.keys().chain(after.keys()).collect();
    let of = |fields: &Fields, name: &str| fields.get(name).cloned().unwrap_or_default();
    let change = |name: &String| {
        let (before, after) = (of(before, name), of(after, name));
        let what = name.clone();
        (before != after).then(|| SlotChange { gpu: gpu.cloned(), what, before, after })
    };
    names.into_iter().filter_map(change).collect()
}

fn blockers(blockers: &[SlotBlocker]) -> Fields {
    let field = |one: &SlotBlocker| (format!("blocker {}", one.code), one.seen.clone());
    blockers.iter().map(field).collect()
}

fn slot_fields(slot: &CandidateSlot) -> Fields {
    let mut fields = blockers(&slot.blockers);
    // A structure of numbers and texts can always be written.
    let value = serde_json::to_value(slot).unwrap_or_default();
    for (name, value) in value.as_object().into_iter().flatten() {
        if !matches!(name.as_str(), "blockers" | "state") {
            flatten(name, value, &mut fields);
        }
    }
    fields
}

fn flatten(name: &str, value: &Value, fields: &mut Fields) {
    match value {
        Value::Object(inner) => {
            for (key, value) in inner {
                flatten(&format!("{name}.{key}"), value, fields);
            }
        }
        Value::Null => {}
        Value::String(text) => {
            fields.insert(name.to_owned(), text.clone());
        }
        other => {
            fields.insert(name.to_owned(), other.to_string());
        }
    }
}
