//! The result of `gpuaas bench mend`.

use std::sync::Arc;

use gpuaas_client::failure::Failure;
use gpuaas_client::terminal::Terminal;
use gpuaas_lab::bench::isolated_thread::run_isolated;
use gpuaas_types::codes::PARKS;
use serde::Serialize;

use super::act::Operators;
use super::cases::CASES;
use super::run_case::{RecoveryOutcome, run_case, run_case_by_itself};
use crate::arguments::BenchMendArgs;

/// A park that its first advice did not cure.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct NotCured {
    /// Code of the park.
    pub code: String,
    /// What happened instead, or why it was not tried.
    pub why: String,
}

/// The result of `gpuaas bench mend`.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct RecoveryReport {
    /// Parks in the table.
    pub parks: usize,
    /// Parks whose run went on to its proper end by the first command of the advice.
    pub cured_by_first_advice: usize,
    /// Parks of which the table says that the run looks again by itself.
    pub looked_at_again: usize,
    /// Parks whose run went on to its proper end by itself once the cause was mended in MAAS.
    pub cured_by_itself: usize,
    /// The others.
    pub not_cured: Vec<NotCured>,
    /// Parks of which the advice led back to the same park.
    pub circular: usize,
    /// Seconds of the simulation's clock from the mend to the run's going on, at the median.
    pub seconds_p50: f64,
    /// The same at the 95th percentile.
    pub seconds_p95: f64,
    /// Seconds from the mend in MAAS to the run's going on by itself, at the median.
    pub by_itself_seconds_p50: f64,
    /// The same at the 95th percentile.
    pub by_itself_seconds_p95: f64,
    /// Whose clock the seconds are of.
    pub clock: &'static str,
}

/// Runs the benchmark.
///
/// # Errors
/// What keeps a simulation from being made.
pub async fn run(
    args: BenchMendArgs,
    operators: Arc<dyn Operators>,
    terminal: &mut Terminal,
) -> Result<(), Failure> {
    let (mut outcomes, mut untold) = (Vec::new(), Vec::new());
    for case in
        CASES.iter().filter(|case| args.park.as_ref().is_none_or(|park| case.code == **park))
    {
        let failed = |failure: Failure| RecoveryOutcome {
            why: Some(failure.to_string()),
            ..RecoveryOutcome::new(case.code)
        };
        let of_case = Arc::clone(&operators);
        let outcome = run_isolated(async move || run_case(case, &*of_case).await).await;
        outcomes.push(outcome.unwrap_or_else(failed));
        if case.code.row().looked_at_again {
            let of_case = Arc::clone(&operators);
            let outcome = run_isolated(async move || run_case_by_itself(case, &*of_case).await);
            untold.push(outcome.await.unwrap_or_else(failed));
        }
    }
    let report = summarize(&outcomes, &untold);
    terminal.data(&if args.json {
        gpuaas_lab::bench::report::json(&report)?
    } else {
        table(&report)
    })
}

/// The median and the 95th percentile of the seconds.
fn percentiles(outcomes: &[RecoveryOutcome]) -> (f64, f64) {
    let mut seconds: Vec<f64> = outcomes.iter().filter_map(|o| o.seconds).collect();
    seconds.sort_by(f64::total_cmp);
    let at = |percent: usize| {
        let index = (seconds.len() * percent).div_ceil(100).saturating_sub(1);
        seconds.get(index).copied().unwrap_or_default()
    };
    (at(50), at(95))
}

fn summarize(outcomes: &[RecoveryOutcome], untold: &[RecoveryOutcome]) -> RecoveryReport {
    let (seconds_p50, seconds_p95) = percentiles(outcomes);
    let (by_itself_seconds_p50, by_itself_seconds_p95) = percentiles(untold);
    let not_cured = outcomes.iter().chain(untold).filter_map(|outcome| {
        let why = outcome.why.clone()?;
        Some(NotCured { code: outcome.code.to_string(), why })
    });
    RecoveryReport {
        parks: PARKS.len(),
        cured_by_first_advice: outcomes.iter().filter(|o| o.why.is_none()).count(),
        looked_at_again: PARKS.iter().filter(|row| row.looked_at_again).count(),
        cured_by_itself: untold.iter().filter(|o| o.by_itself).count(),
        not_cured: not_cured.collect(),
        circular: outcomes.iter().filter(|o| o.circular).count(),
        seconds_p50,
        seconds_p95,
        by_itself_seconds_p50,
        by_itself_seconds_p95,
        clock: "simulated",
    }
}

fn table(report: &RecoveryReport) -> String {
    let mut lines = vec![
        format!("parks                  {}", report.parks),
        format!("fixed by first advice  {}", report.cured_by_first_advice),
        format!(
            "resumed automatically  {} of {} with rechecks",
            report.cured_by_itself, report.looked_at_again
        ),
        format!("circular advice        {}", report.circular),
        format!("seconds p50 / p95      {:.1} / {:.1}", report.seconds_p50, report.seconds_p95),
        format!(
            "automatic p50 / p95    {:.1} / {:.1}",
            report.by_itself_seconds_p50, report.by_itself_seconds_p95
        ),
    ];
    lines
        .extend(report.not_cured.iter().map(|one| format!("not fixed: {}: {}", one.code, one.why)));
    lines.join("\n")
}
