//! The outcome of a scenario as text: the states of nodes and of their machines, the calls to MAAS
//! after a machine was in service, and the first node's history.
//!
//! Without identifiers and durations, so two runs of a scenario print the same text.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

use gpuaas_types::api::{NodeView, Source, TimelineEvent};
use gpuaas_types::{ClaimId, RunId};

use crate::leases;
use crate::scenario::Scenario;
use crate::summary::LabSummary;

/// What is told of a scenario: all but the plain one.
#[must_use]
pub fn draw(scenario: &Scenario, summary: &LabSummary, first: &[NodeView]) -> String {
    let mut text = format!("scenario {}: {}\n\n", scenario.name, scenario.about);
    let row = |text: &mut String, name: &str, of: &str| {
        // Writing to a String cannot fail.
        writeln!(text, "{name:<10}{of}").ok();
    };
    row(&mut text, "nodes", &counts(&summary.states));
    row(&mut text, "machines", &counts(&summary.machines));
    if !summary.slices.is_empty() {
        row(&mut text, "slices", &counts(&summary.slices));
    }
    if summary.changes.is_empty() {
        row(&mut text, "MAAS", "no change requested after a machine was first deployed");
    }
    for (endpoint, machines) in &summary.changes {
        let times = |(times, machines): (&u32, &usize)| format!("{machines} x {times}");
        let times: Vec<String> = machines.iter().map(times).collect();
        row(
            &mut text,
            "changes",
            &format!("{endpoint:<28} machines x times: {}", times.join(", ")),
        );
    }
    let LabSummary { orphans, double_deploys, .. } = summary;
    row(&mut text, "strays", &format!("{orphans} orphans, {double_deploys} double deploys"));
    text.push_str(&leases::draw(&summary.leases));
    for node in first {
        writeln!(text, "\n{} is {}", node.hostname, node.state).ok();
        if let Some(park) = &node.park {
            writeln!(
                text,
                "  parked ({}): {}\n    next: {}",
                park.code, park.text, park.next_action
            )
            .ok();
        }
        for gate in node.gates.iter().filter(|gate| gate.class.is_some()) {
            writeln!(text, "  {}", gate.text).ok();
            for check in &gate.failing {
                writeln!(text, "    {}: {} ({})", check.name, check.seen, check.reason).ok();
            }
        }
        for event in notable_events(&node.timeline) {
            let step = event.step.map_or("", gpuaas_types::Step::as_str);
            let words = event.text.split(' ').map(without_id);
            let words: Vec<String> = words.collect();
            writeln!(text, "  {step:<17} {:<24} {}", event.code, words.join(" ")).ok();
        }
    }
    text
}

/// The word without the identifier of a claim.
fn without_id(word: &str) -> String {
    let id = word.trim_end_matches([':', ',', '.']);
    match id.parse::<ClaimId>() {
        Ok(_) => word.replace(id, "ID"),
        Err(_) => word.to_owned(),
    }
}

fn counts(of: &BTreeMap<String, usize>) -> String {
    let parts: Vec<String> = of.iter().map(|(name, count)| format!("{count} {name}")).collect();
    parts.join(", ")
}

/// What the control plane and operators wrote down: of all runs but the first where there are
/// others. What MAAS and the node say comes when it comes, and is left out.
fn notable_events(timeline: &[TimelineEvent]) -> Vec<&TimelineEvent> {
    let runs: BTreeSet<RunId> = timeline.iter().filter_map(|event| event.run_id).collect();
    let first = timeline.iter().find_map(|event| event.run_id).filter(|_| runs.len() > 1);
    let ours = |event: &&TimelineEvent| {
        matches!(event.source, Source::ControlPlane | Source::Operator)
            && (first.is_none() || event.run_id != first)
    };
    timeline.iter().filter(ours).collect()
}
