//! `gpuaas lab --scenario image-experiment`: a stock image against one with packages baked in, on simulated
//! machines and a virtual clock.
//!
//! The baked image takes longer to be written, because it is larger, and its hosts need less time for the
//! site bundle. Whether that pays is the sum's to say, and the experiment is judged as any other: the same
//! commands, the same API, the same tests. Nothing of it is of hardware, and everything that is drawn says
//! so.

use std::fmt::Write as _;

use gpuaas_client::failure::Failure;
use gpuaas_client::terminal::Terminal;
use gpuaas_types::experiment::{
    ExperimentArm, ExperimentMeasure, ExperimentSample, ExperimentView,
};
use serde_json::json;

use crate::experiment_trial::{ExperimentTrial, run_experiment_trial};
use crate::recovery::Operators;

/// Machines in all, where nobody says.
pub const NODES: u32 = 40;
/// Seconds that the baked image takes longer to be written.
const DOWNLOAD_SECONDS: f64 = 60.0;
/// Part of the site bundle's time that is left with it.
const SITE_PART: f64 = 0.2;
/// Measures that are drawn, the download's bucket and the boot's sum among them.
const DRAWN: [&str; 4] = ["time_to_active", "image_deploy", "site_bootstrap", "boot_to_enrolled"];
/// Columns of a plot.
const WIDTH: usize = 60;

/// What the scenario is about.
#[must_use]
pub const fn trial(nodes: u32, seed: u64) -> ExperimentTrial {
    ExperimentTrial {
        seed,
        nodes,
        slower_seconds: DOWNLOAD_SECONDS,
        site_part: SITE_PART,
        paired: false,
    }
}

/// Runs the scenario, and prints what came of it.
///
/// # Errors
/// What keeps the simulation from being made; when stdout cannot be written.
pub async fn run(
    (nodes, seed, as_json): (u32, u64, bool),
    operators: &dyn Operators,
    terminal: &mut Terminal,
) -> Result<(), Failure> {
    terminal.message(&format!(
        "simulation: {nodes} machines, half with an image that takes {DOWNLOAD_SECONDS:.0} s longer to write but \
         reduces the site bundle's time to {:.0} %; seed {seed}",
        SITE_PART * 100.0
    ));
    let [_, ended] = run_experiment_trial(trial(nodes, seed), operators).await?;
    if as_json {
        let report = json!({ "simulated": true, "experiment": ended });
        return terminal.data(&gpuaas_lab::bench::report::json(&report)?);
    }
    terminal.data(&draw(&ended))
}

/// Plots of the measures that the scenario is about, and what the experiment says.
#[must_use]
pub fn draw(view: &ExperimentView) -> String {
    let mut text = String::new();
    for (name, arm) in ["A", "B"].iter().zip(&view.arms) {
        // Writing to a String cannot fail.
        writeln!(
            text,
            "{name}  {}, {} simulated nodes, {} failures",
            arm.image, arm.nodes, arm.failures
        )
        .ok();
    }
    for name in DRAWN {
        if let Some(measure) = view.measures.iter().find(|one| one.name == name) {
            text.push_str(&plot(measure, view));
        }
    }
    if let Some(primary) = view.measures.first() {
        writeln!(text, "\nverdict on {}: {}", primary.name, primary.verdict).ok();
    }
    text
}

/// The samples of both arms on one axis.
fn plot(measure: &ExperimentMeasure, view: &ExperimentView) -> String {
    let seconds = |arm: ExperimentArm| -> Vec<f64> {
        let samples = view.assignments.iter().filter(|node| node.arm == arm);
        samples.filter_map(|node| value(node.sample.as_ref()?, &measure.name)).collect()
    };
    let arms = [seconds(ExperimentArm::A), seconds(ExperimentArm::B)];
    let all = || arms.iter().flatten().copied();
    let (low, high) = (all().fold(f64::INFINITY, f64::min), all().fold(0.0, f64::max));
    let mut text = String::new();
    let shift = measure.shift_seconds.map_or_else(String::new, |shift| format!(", {shift:+.0} s"));
    writeln!(text, "\nsimulated: {} {}{shift}", measure.name, measure.verdict).ok();
    if !low.is_finite() {
        return text;
    }
    for (name, samples) in ["A", "B"].iter().zip(&arms) {
        writeln!(text, "  {name} {}", strip(samples, low, high)).ok();
    }
    writeln!(text, "    {low:<width$.0}{high:>8.0} s", width = WIDTH - 8).ok();
    text
}

/// A mark for each sample: how many lie in a column.
#[expect(clippy::cast_precision_loss, reason = "columns of a terminal")]
#[expect(clippy::cast_possible_truncation, reason = "columns of a terminal")]
#[expect(clippy::cast_sign_loss, reason = "no sample is below the lowest")]
fn strip(samples: &[f64], low: f64, high: f64) -> String {
    let mut columns = [0_u32; WIDTH];
    let span = (high - low).max(f64::EPSILON);
    for sample in samples {
        let at = ((sample - low) / span * (WIDTH - 1) as f64).round() as usize;
        columns[at.min(WIDTH - 1)] += 1;
    }
    columns.iter().map(|count| char::from_digit((*count).min(9), 10).map_or('9', mark)).collect()
}

const fn mark(count: char) -> char {
    if count == '0' { '.' } else { count }
}

fn value(sample: &ExperimentSample, name: &str) -> Option<f64> {
    gpuaas_core::experiment::sample_value(sample, name).filter(|_| !sample.failed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn samples_lie_in_the_columns_of_their_times() {
        let drawn = strip(&[0.0, 0.0, 59.0, 30.0], 0.0, 59.0);
        assert_eq!(drawn.chars().count(), WIDTH);
        assert_eq!((drawn.chars().next(), drawn.chars().last()), (Some('2'), Some('1')));
        assert_eq!(drawn.chars().nth(30), Some('1'));
        assert_eq!(drawn.matches('.').count(), WIDTH - 3);
        assert_eq!(strip(&[5.0; 12], 5.0, 5.0).chars().next(), Some('9'), "nine and more");
    }
}
