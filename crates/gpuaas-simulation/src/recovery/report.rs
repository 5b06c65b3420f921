//! The result of `gpuaas bench mend`.

use std::sync::Arc;

use gpuaas_client::failure::Failure;
use gpuaas_client::terminal::Terminal;
use gpuaas_lab::bench::isolated_thread::run_isolated;
use gpuaas_types::codes::PARKS;
use serde::Serialize;

use super::act::Operators;
use super::cases::{CASES, NOT_MADE};
use super::run_case::{RecoveryOutcome, run_case};
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
    /// Parks whose run went on by itself once the cause was mended.
    pub cured_by_itself: usize,
    /// The others.
    pub not_cured: Vec<NotCured>,
    /// Parks of which the advice led back to the same park.
    pub circular: usize,
    /// Seconds of the simulation's clock from the mend to the run's going on, at the median.
    pub seconds_p50: f64,
    /// The same at the 95th percentile.
    pub seconds_p95: f64,
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
    let mut outcomes = Vec::new();
    for case in
        CASES.iter().filter(|case| args.park.as_ref().is_none_or(|park| case.code == **park))
    {
        let operators = Arc::clone(&operators);
        let outcome = run_isolated(async move || run_case(case, &*operators).await).await;
        outcomes.push(outcome.unwrap_or_else(|failure| RecoveryOutcome {
            why: Some(failure.to_string()),
            ..RecoveryOutcome::new(case.code)
        }));
    }
    let report = summarize(&outcomes);
    terminal.data(&if args.json {
        gpuaas_lab::bench::report::json(&report)?
    } else {
        table(&report)
    })
}

fn summarize(outcomes: &[RecoveryOutcome]) -> RecoveryReport {
    let mut seconds: Vec<f64> = outcomes.iter().filter_map(|o| o.seconds).collect();
    seconds.sort_by(f64::total_cmp);
    let at = |percent: usize| {
        let index = (seconds.len() * percent).div_ceil(100).saturating_sub(1);
        seconds.get(index).copied().unwrap_or_default()
    };
    let failed = outcomes.iter().filter_map(|outcome| {
        let why = outcome.why.clone()?;
        Some(NotCured { code: outcome.code.to_string(), why })
    });
    let left_out = NOT_MADE
        .iter()
        .map(|(code, why)| NotCured { code: code.to_string(), why: (*why).to_owned() });
    RecoveryReport {
        parks: PARKS.len(),
        cured_by_first_advice: outcomes.iter().filter(|o| o.why.is_none()).count(),
        cured_by_itself: outcomes.iter().filter(|o| o.by_itself).count(),
        not_cured: failed.chain(left_out).collect(),
        circular: outcomes.iter().filter(|o| o.circular).count(),
        seconds_p50: at(50),
        seconds_p95: at(95),
        clock: "simulated",
    }
}

fn table(report: &RecoveryReport) -> String {
    let mut lines = vec![
        format!("parks                  {}", report.parks),
        format!("cured by first advice  {}", report.cured_by_first_advice),
        format!("cured by itself        {}", report.cured_by_itself),
        format!("circular               {}", report.circular),
        format!("seconds p50 / p95      {:.1} / {:.1}", report.seconds_p50, report.seconds_p95),
    ];
    lines
        .extend(report.not_cured.iter().map(|one| format!("not cured: {}: {}", one.code, one.why)));
    lines.join("\n")
}
