//! `gpuaas bench topology`: whether a slot map says what is broken, and nothing else.
//!
//! Slice hosts are written as folders ([`crate::slice_host`]) and read as the agent reads them. Every
//! row of [`mutations::MUTATIONS`] changes files of one of them, and the map has to have exactly the
//! blockers of the row in exactly as many slots; every row of [`harmless::HARMLESS`] changes what does
//! not matter. Random hosts then say whether a device is ever in two slots, and whether the order in
//! which a host is read makes a difference.

mod harmless;
mod mutations;
mod random_hosts;

use std::collections::BTreeSet;
use std::fmt::Write as _;

use gpuaas_client::failure::Failure;
use gpuaas_client::terminal::Terminal;
use gpuaas_core::slots::{SlotPolicy, slot_map};
use gpuaas_types::codes::CommandCode;
use gpuaas_types::slot::{SlotBlocker, SlotMap};
use serde::Serialize;

use self::harmless::HARMLESS;
use self::mutations::{MUTATIONS, Mutation};
use self::random_hosts::RandomHosts;
use crate::arguments::BenchTopologyArgs;
use crate::slice_host::{HostLayout, HostTree, LAYOUTS};

/// The result of `gpuaas bench topology`.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct TopologyBenchReport {
    /// Ways in which a host was broken.
    pub mutations: usize,
    /// Those that turned exactly the right blockers on.
    pub caught: usize,
    /// Those that turned another blocker on, or one of the right ones not.
    pub wrong_code: usize,
    /// Healthy hosts with a blocker.
    pub false_alarms: usize,
    /// Healthy hosts that were looked at.
    pub healthy: usize,
    /// Layouts of hosts.
    pub layouts: usize,
    /// Random hosts.
    pub random_hosts: usize,
    /// Random hosts with a device or a CPU in two slots.
    pub devices_twice: usize,
    /// Random hosts whose map depends on the order in which they were read.
    pub order_differences: usize,
    /// Maps a second, of the random hosts, each made twice.
    pub maps_per_second: f64,
    /// What went otherwise than expected, a line each.
    #[serde(skip)]
    pub surprises: Vec<String>,
    /// What each mutation turned on, for people.
    #[serde(skip)]
    pub rows: Vec<(String, String)>,
}

/// Runs the benchmark.
///
/// # Errors
/// `test_host_unavailable` when a host cannot be written; `topology_not_exact` when a map was wrong.
pub fn run(args: BenchTopologyArgs, terminal: &mut Terminal) -> Result<(), Failure> {
    let report = measure(args.random_hosts, args.seed, 1)?;
    terminal.data(&if args.json { super::report::json(&report)? } else { report.table() })?;
    for surprise in &report.surprises {
        terminal.message(surprise);
    }
    if report.is_exact() {
        return Ok(());
    }
    let detail = format!(
        "{} of {} mutations caught, {} false alarms, {} hosts assign a device twice, {} maps depend on read order",
        report.caught,
        report.mutations,
        report.false_alarms,
        report.devices_twice,
        report.order_differences
    );
    let hint = "see the blockers in the lines above";
    Err(Failure::local(CommandCode::TopologyNotExact, detail).hint(hint))
}

/// Looks at every `step`th row of each list, and at `random_hosts` random hosts.
fn measure(random_hosts: usize, seed: u64, step: usize) -> Result<TopologyBenchReport, Failure> {
    let mut report = TopologyBenchReport { layouts: LAYOUTS.len(), ..Default::default() };
    let hosts: Vec<HostTree> = LAYOUTS
        .iter()
        .map(|layout| HostTree::write(layout).map_err(|error| unavailable(layout.name, &error)))
        .collect::<Result<_, _>>()?;
    for row in MUTATIONS.iter().step_by(step) {
        report.mutations += 1;
        let layout = &LAYOUTS[row.layout];
        let name = format!("{}: {}", layout.name, row.name);
        let seen = Blocked::of_map(&mutated_map(&hosts[row.layout], row)?);
        let expected = Blocked::expected(layout, row);
        if seen == expected {
            report.caught += 1;
        } else {
            let other = seen.codes.iter().any(|code| !expected.codes.contains(code));
            report.wrong_code += usize::from(other);
            report.surprises.push(format!("{name}: {seen:?}, expected {expected:?}"));
        }
        report.rows.push((name, seen.codes.into_iter().collect::<Vec<_>>().join(", ")));
    }
    for row in HARMLESS.iter().step_by(step) {
        report.healthy += 1;
        let layout = &LAYOUTS[row.layout];
        let name = format!("{}: {}", layout.name, row.name);
        let seen = Blocked::of_map(&mutated_map(&hosts[row.layout], row)?);
        if seen != Blocked::expected(layout, row) {
            report.false_alarms += 1;
            report.surprises.push(format!("{name}: {seen:?}"));
        }
        report.rows.push((name, "no blockers added".to_owned()));
    }
    let faults = RandomHosts::new(seed).judge(random_hosts);
    report.random_hosts = random_hosts;
    report.devices_twice = faults.devices_twice;
    report.order_differences = faults.order_differences;
    report.maps_per_second = faults.maps_per_second;
    report.surprises.extend(faults.lines);
    Ok(report)
}

/// The map of a host after `row`; the host is restored.
fn mutated_map(host: &HostTree, row: &Mutation) -> Result<SlotMap, Failure> {
    let failed = |error: std::io::Error| unavailable(row.name, &error);
    (row.change)(host).map_err(failed)?;
    let policy = SlotPolicy { gpus: Some(8), ..SlotPolicy::default() };
    let map = slot_map("j22u15", &host.topology(), &policy);
    host.restore().map_err(failed)?;
    Ok(map)
}

fn unavailable(name: &str, error: &std::io::Error) -> Failure {
    Failure::local(CommandCode::TestHostUnavailable, format!("{name}: {error}"))
}

/// Codes of all blockers, and how many slots have one.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Blocked {
    codes: BTreeSet<String>,
    slots: usize,
}

impl Blocked {
    fn of_map(map: &SlotMap) -> Self {
        let of_slots = map.slots.iter().flat_map(|slot| &slot.blockers);
        let code = |blocker: &SlotBlocker| blocker.code.clone();
        Self {
            codes: of_slots.chain(&map.host_blockers).map(code).collect(),
            slots: map.slots.iter().filter(|slot| !slot.blockers.is_empty()).count(),
        }
    }

    /// What the layout has anyway, and what the mutation adds.
    fn expected(layout: &HostLayout, row: &Mutation) -> Self {
        let (codes, slots) = layout.blocked;
        Self {
            codes: codes.iter().chain(row.codes).map(|code| code.to_string()).collect(),
            slots: slots + row.slots,
        }
    }
}

impl TopologyBenchReport {
    /// Whether every map was as it has to be.
    #[must_use]
    pub fn is_exact(&self) -> bool {
        self.caught == self.mutations
            && self.false_alarms == 0
            && self.devices_twice == 0
            && self.order_differences == 0
    }

    fn table(&self) -> String {
        let mut text = String::new();
        for (name, codes) in &self.rows {
            // Writing to a String cannot fail.
            writeln!(text, "{name:<68} {codes}").ok();
        }
        writeln!(text, "\nmutations caught   {} of {}", self.caught, self.mutations).ok();
        writeln!(text, "wrong code         {}", self.wrong_code).ok();
        writeln!(text, "false alarms       {} of {}", self.false_alarms, self.healthy).ok();
        writeln!(text, "duplicate devices  {} of {}", self.devices_twice, self.random_hosts).ok();
        writeln!(text, "order differences  {} of {}", self.order_differences, self.random_hosts)
            .ok();
        writeln!(text, "maps per second    {:.0}", self.maps_per_second).ok();
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every fourth row; `gpuaas bench topology` does all of them.
    #[test]
    fn a_sample_of_mutations_is_caught_and_no_healthy_host_is_blamed() {
        let report = measure(100, 1, 4).unwrap();
        assert!(report.is_exact(), "{:#?}", report.surprises);
        assert!(report.mutations >= 12 && report.healthy >= 5, "{report:?}");
        const { assert!(MUTATIONS.len() >= 30 && HARMLESS.len() >= 20) };
    }

    #[test]
    #[ignore = "takes half a minute; `gpuaas bench topology` does the same"]
    fn every_mutation_is_caught_and_no_healthy_host_is_blamed() {
        let report = measure(10_000, 1, 1).unwrap();
        assert!(report.is_exact(), "{:#?}", report.surprises);
    }

    #[test]
    fn a_restored_host_is_as_it_was_and_a_row_that_changes_nothing_is_not_caught() {
        let layout = &LAYOUTS[2];
        let host = HostTree::write(layout).unwrap();
        let written = host.topology();
        let missed = Mutation { change: |_| Ok(()), ..MUTATIONS[0] };
        let seen = Blocked::of_map(&mutated_map(&host, &missed).unwrap());
        assert_ne!(seen, Blocked::expected(layout, &missed));
        for row in MUTATIONS.iter().filter(|row| row.layout == 2) {
            (row.change)(&host).unwrap();
            host.restore().unwrap();
        }
        assert_eq!(host.topology(), written);
    }
}
