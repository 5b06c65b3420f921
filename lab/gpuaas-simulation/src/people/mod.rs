//! `gpuaas bench people`: people change the machines of active nodes in MAAS, behind the control
//! plane's back. How soon is each change on the node's timeline, does `gpuaas explain` say what
//! happened and who did it, and does its advice work?
//!
//! Everything happens on the virtual clock, on a site where nothing moves but what people move.
//! Seconds run from MAAS' answer to the person until the line was written. Then a stand-in
//! operator does what the first alternative of the advice says, through the executable's own parser
//! and the admin API, or as MAAS' own client would; once all runs rest, nothing may differ any more.

mod change;
mod fleet;

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::Arc;

use gpuaas_client::failure::Failure;
use gpuaas_client::terminal::Terminal;
use gpuaas_lab::bench::added::Spread;
use gpuaas_lab::bench::isolated_thread::run_isolated;
use serde::Serialize;

pub use self::change::PersonChange;
use self::fleet::{ChangeOutcome, FleetOutcome, change_fleet};
use crate::arguments::BenchPeopleArgs;
use crate::recovery::Operators;

/// What became of all changes of one sort.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ChangeSummary {
    /// How many were made.
    pub changes: usize,
    /// How many were on the timeline of their node.
    pub seen: usize,
    /// Seconds until they were.
    pub seen_seconds: Spread,
    /// How many `gpuaas explain` names, with the user where MAAS tells one.
    pub explained: usize,
    /// How many have an advice that does not work.
    pub wrong_advice: usize,
}

/// A change with something wrong.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Shortcoming {
    /// What the person did.
    pub change: PersonChange,
    /// To which node.
    pub node: String,
    /// What is wrong.
    pub why: String,
}

/// The result of `gpuaas bench people`.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct PeopleReport {
    /// The clock by which seconds are counted.
    pub clock: &'static str,
    /// Changes that people made.
    pub changes: usize,
    /// How many were on the timeline of their node.
    pub seen: usize,
    /// Seconds until they were, deletions left out.
    pub seen_seconds: Spread,
    /// The same of deletions, of which MAAS makes no event.
    pub deletion_seconds: Spread,
    /// How many `gpuaas explain` names, with the user where MAAS tells one.
    pub explained: usize,
    /// How many have an advice that does not work.
    pub wrong_advice: usize,
    /// Requests that MAAS received from the control plane and the people in a minute, meanwhile.
    pub maas_calls_per_minute: f64,
    /// Each sort of change.
    pub by_change: BTreeMap<PersonChange, ChangeSummary>,
    /// What was not seen, not explained, or advised wrongly; the first of each sort of change.
    pub shortcomings: Vec<Shortcoming>,
}

/// Runs the benchmark.
///
/// # Errors
/// What keeps the simulation from being made.
pub async fn run(
    args: BenchPeopleArgs,
    operators: Arc<dyn Operators>,
    terminal: &mut Terminal,
) -> Result<(), Failure> {
    let json = args.json;
    let report = measure(args, operators).await?;
    terminal.data(&if json { gpuaas_lab::bench::report::json(&report)? } else { report.table() })
}

/// Changes a fleet and counts what became of it.
///
/// # Errors
/// What keeps the simulation from being made.
pub async fn measure(
    args: BenchPeopleArgs,
    operators: Arc<dyn Operators>,
) -> Result<PeopleReport, Failure> {
    let outcome = run_isolated(async move || change_fleet(&args, &*operators).await).await?;
    Ok(PeopleReport::new(&outcome))
}

fn summarize(outcomes: &[&ChangeOutcome]) -> ChangeSummary {
    let seconds: Vec<f64> = outcomes.iter().filter_map(|outcome| outcome.seen_seconds).collect();
    ChangeSummary {
        changes: outcomes.len(),
        seen: seconds.len(),
        seen_seconds: Spread::from_seconds(&seconds),
        explained: outcomes.iter().filter(|outcome| outcome.unexplained.is_none()).count(),
        wrong_advice: outcomes.iter().filter(|outcome| outcome.wrong_advice.is_some()).count(),
    }
}

fn shortcomings(outcomes: &[&ChangeOutcome]) -> Vec<Shortcoming> {
    let unseen = |outcome: &ChangeOutcome| {
        outcome.seen_seconds.is_none().then(|| "the change is not on the timeline".to_owned())
    };
    let first = |what: &dyn Fn(&ChangeOutcome) -> Option<String>| {
        outcomes.iter().find_map(|outcome| {
            let (change, node) = (outcome.change, outcome.node.clone());
            Some(Shortcoming { change, node, why: what(outcome)? })
        })
    };
    let found = [
        first(&unseen),
        first(&|outcome| outcome.unexplained.clone()),
        first(&|outcome| outcome.wrong_advice.clone()),
    ];
    found.into_iter().flatten().collect()
}

impl PeopleReport {
    fn new(outcome: &FleetOutcome) -> Self {
        let mut each: BTreeMap<PersonChange, Vec<&ChangeOutcome>> = BTreeMap::new();
        for outcome in &outcome.outcomes {
            each.entry(outcome.change).or_default().push(outcome);
        }
        let seconds = |deletions: bool| {
            let of = outcome
                .outcomes
                .iter()
                .filter(|one| (one.change == PersonChange::Delete) == deletions);
            let seconds: Vec<f64> = of.filter_map(|one| one.seen_seconds).collect();
            Spread::from_seconds(&seconds)
        };
        let all = summarize(&outcome.outcomes.iter().collect::<Vec<_>>());
        Self {
            clock: "virtual",
            changes: all.changes,
            seen: all.seen,
            seen_seconds: seconds(false),
            deletion_seconds: seconds(true),
            explained: all.explained,
            wrong_advice: all.wrong_advice,
            maas_calls_per_minute: outcome.maas_calls_per_minute,
            by_change: each.iter().map(|(change, list)| (*change, summarize(list))).collect(),
            shortcomings: each.values().flat_map(|list| shortcomings(list)).collect(),
        }
    }

    fn table(&self) -> String {
        let mut text = format!(
            "{:<14}{:>9}{:>7}{:>9}{:>9}{:>9}{:>11}{:>14}\n",
            "change", "changes", "seen", "p50 s", "p95 s", "max s", "explained", "wrong advice"
        );
        for (change, row) in &self.by_change {
            let (name, spread) = (format!("{change:?}"), &row.seen_seconds);
            // Writing to a String cannot fail.
            writeln!(
                text,
                "{name:<14}{:>9}{:>7}{:>9.1}{:>9.1}{:>9.1}{:>11}{:>14}",
                row.changes,
                row.seen,
                spread.p50,
                spread.p95,
                spread.max,
                row.explained,
                row.wrong_advice
            )
            .ok();
        }
        writeln!(text, "MAAS calls per minute: {:.1}", self.maas_calls_per_minute).ok();
        for one in &self.shortcomings {
            writeln!(text, "{:?} of {}: {}", one.change, one.node, one.why).ok();
        }
        text
    }
}
