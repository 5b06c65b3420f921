//! `gpuaas bench repair`: whether the advice after a lost effect leads to a ready host.
//!
//! Every mutation of `gpuaas bench gate` is done to a copy of a ready host, and the agent repairs its drift
//! as the problem of the node advises. A mutation ends in one of three ways: every gate is green again; or
//! something that was said tells a person what else to do, and doing exactly that (and repairing once more
//! if needed) makes every gate green; or the advice was circular.

use std::fmt::Write as _;

use futures::{StreamExt as _, TryStreamExt as _, stream};
use gpuaas_client::failure::Failure;
use gpuaas_client::terminal::Terminal;
use gpuaas_types::agent::{GateClass, GateReport, Operation, TaskResult};
use gpuaas_types::codes::{CommandCode, NodeProblemCode};
use serde::Serialize;

use super::bare_metal::BARE_METAL;
use super::host::{Role, TestHost};
use super::mutation::Mutation;
use super::mutations::BROKEN;
use super::{AT_ONCE, GATES, change_all};
use crate::arguments::BenchRepairArgs;

/// The result of `gpuaas bench repair`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct RepairBenchReport {
    /// Ways in which the host was broken.
    pub mutations: usize,
    /// Those that `repair-drift` restored.
    pub restored: usize,
    /// Those for which it said what else to do, and doing that restored the host.
    pub advised_otherwise: Vec<AdvisedOtherwise>,
    /// Those whose advice leads nowhere.
    pub circular: usize,
    /// What went otherwise than expected, a line each.
    #[serde(skip)]
    pub surprises: Vec<String>,
}

/// A mutation that a person ends.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct AdvisedOtherwise {
    /// What happened to the host.
    pub mutation: &'static str,
    /// The part of the advice that was followed.
    pub advice: &'static str,
}

/// How a mutation ended.
enum End {
    Restored,
    Advised(AdvisedOtherwise),
    Circular(String),
}

/// Runs the benchmark.
///
/// # Errors
/// `bundles_not_found`, `test_host_unavailable` when there is no host to break; `advice_circular` when the
/// advice of a mutation leads nowhere.
pub async fn run(args: BenchRepairArgs, terminal: &mut Terminal) -> Result<(), Failure> {
    let json = args.json;
    let report =
        crate::bench::isolated_thread::run_isolated(async move || measure(&args, 1).await).await?;
    terminal.data(&if json { crate::bench::report::json(&report)? } else { report.table() })?;
    for surprise in &report.surprises {
        terminal.message(surprise);
    }
    if report.circular == 0 {
        return Ok(());
    }
    let detail = format!("{} of {} mutations were not fixed", report.circular, report.mutations);
    Err(Failure::local(CommandCode::AdviceCircular, detail)
        .hint("see the advice in the lines above"))
}

/// Repairs every `step`th row of each list.
async fn measure(args: &BenchRepairArgs, step: usize) -> Result<RepairBenchReport, Failure> {
    let slice = TestHost::make(&args.bundles, Role::Slice).await?;
    let metal = TestHost::make(&args.bundles, Role::BareMetal).await?;
    let mut report = RepairBenchReport::default();
    for (ready, rows) in [(&slice, BROKEN), (&metal, BARE_METAL)] {
        let ends = rows
            .iter()
            .step_by(step)
            .map(async |row| Ok::<_, Failure>((row.name, follow_advice(ready, row).await?)));
        let ends: Vec<(&str, End)> = stream::iter(ends).buffered(AT_ONCE).try_collect().await?;
        for (name, end) in ends {
            report.mutations += 1;
            match end {
                End::Restored => report.restored += 1,
                End::Advised(advised) => report.advised_otherwise.push(advised),
                End::Circular(why) => {
                    report.circular += 1;
                    report.surprises.push(format!("{name}: {why}"));
                }
            }
        }
    }
    Ok(report)
}

/// Breaks a copy of the host as `row` says, repairs it, and does what else is said.
async fn follow_advice(ready: &TestHost, row: &'static Mutation) -> Result<End, Failure> {
    let host = ready.copy()?;
    change_all(&host, row.name, row.changes).await?;
    let repaired = repair(&host).await;
    let reports = reports(&host).await?;
    if is_green(&reports) {
        return Ok(End::Restored);
    }
    let said = everything_said(&repaired, &reports);
    let Some(otherwise) = &row.otherwise else {
        return Ok(End::Circular(format!("{} still fails: {said}", red(&reports))));
    };
    if !said.contains(otherwise.advice) {
        let why = format!("no message contains {:?}: {said}", otherwise.advice);
        return Ok(End::Circular(why));
    }
    change_all(&host, row.name, otherwise.cure).await?;
    let mut after = self::reports(&host).await?;
    if !is_green(&after) {
        let again = repair(&host).await;
        after = self::reports(&host).await?;
        if !is_green(&after) {
            let why = format!(
                "{} still fails after {:?}: {}",
                red(&after),
                otherwise.advice,
                again.message
            );
            return Ok(End::Circular(why));
        }
    }
    let (mutation, advice) = (row.name, otherwise.advice);
    Ok(End::Advised(AdvisedOtherwise { mutation, advice }))
}

async fn repair(host: &TestHost) -> TaskResult {
    host.carry_out(&Operation::RepairDrift { gates: Vec::new() }).await
}

async fn reports(host: &TestHost) -> Result<Vec<GateReport>, Failure> {
    let mut reports = Vec::new();
    for gate in GATES {
        let report = host.gate(gate).await?;
        // Bare metal has no slices to be ready for.
        if !report.checks.is_empty() {
            reports.push(report);
        }
    }
    Ok(reports)
}

fn is_green(reports: &[GateReport]) -> bool {
    reports.iter().all(|report| report.passed)
}

/// The checks that fail, with what was seen.
fn red(reports: &[GateReport]) -> String {
    let checks = reports.iter().flat_map(|report| &report.checks).filter(|check| !check.passed);
    let texts: Vec<String> =
        checks.map(|check| format!("{} ({})", check.name, check.seen)).collect();
    texts.join(", ")
}

/// What an operator is told: the repair's result, the gates' reasons, and the advice of the node's problem.
fn everything_said(repaired: &TaskResult, reports: &[GateReport]) -> String {
    let mut said = repaired.message.clone();
    for finding in &repaired.findings {
        // Writing to a String cannot fail.
        write!(said, "\n{}: {}", finding.name, finding.seen).ok();
    }
    for report in reports {
        for check in &report.checks {
            write!(said, "\n{}", check.reason).ok();
        }
        if let Some(class) = report.class {
            write!(said, "\n{}", problem(class).row().next_action).ok();
        }
    }
    said
}

/// The problem of a node whose gate is shut for this.
const fn problem(class: GateClass) -> NodeProblemCode {
    match class {
        GateClass::AgentFault => NodeProblemCode::GateAgentFault,
        GateClass::HostBaselineIncomplete => NodeProblemCode::GateBaselineIncomplete,
        GateClass::HostSetupIncomplete => NodeProblemCode::GateSetupIncomplete,
        GateClass::MachineUntagged => NodeProblemCode::GateMachineUntagged,
    }
}

impl RepairBenchReport {
    fn table(&self) -> String {
        let mut text = String::new();
        for one in &self.advised_otherwise {
            // Writing to a String cannot fail.
            writeln!(text, "{:<64}{}", one.mutation, one.advice).ok();
        }
        let advised = self.advised_otherwise.len();
        writeln!(text, "\nrestored              {} of {}", self.restored, self.mutations).ok();
        writeln!(text, "other advice worked   {advised}").ok();
        writeln!(text, "circular advice       {}", self.circular).ok();
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_sample_of_lost_effects_comes_back_or_its_advice_works() {
        let bundles = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../bundles");
        let args = BenchRepairArgs { bundles, json: true };
        match measure(&args, 6).await {
            Err(failure) if failure.code() == "tools_missing" => {
                test_report::skip("tool", format!("{failure}"));
            }
            report => {
                let report = report.unwrap();
                assert_eq!(report.circular, 0, "{:#?}", report.surprises);
                let advised = report.advised_otherwise.len();
                assert_eq!(report.restored + advised, report.mutations);
                assert!(report.mutations >= 14 && report.restored > advised, "{report:?}");
            }
        }
    }

    /// What the blocker `vf_identity_missing` advises.
    #[tokio::test]
    async fn lost_guids_come_back_by_repair_drift_alone() {
        let bundles = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../bundles");
        let ready = match TestHost::make(&bundles, Role::Slice).await {
            Err(failure) if failure.code() == "tools_missing" => {
                return test_report::skip("tool", format!("{failure}"));
            }
            ready => ready.unwrap(),
        };
        let rows = BROKEN.iter().filter(|row| row.name.contains("GUID"));
        let mut count = 0;
        for row in rows {
            let end = follow_advice(&ready, row).await.unwrap();
            assert!(matches!(end, End::Restored), "{}", row.name);
            count += 1;
        }
        assert_eq!(count, 2);
    }
}
