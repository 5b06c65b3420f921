//! Where the time of a run went: one row per step, with the effects and bundle phases below it.
//!
//! Rows come from the spans of the answer, so they sum to its wall time. The picture is an SVG of
//! plain attributes; the table of the same rows stands below it.

use gpuaas_types::agent::BundlePhase;
use gpuaas_types::api::{AttemptView, RunView, StepSpan};
use gpuaas_types::{Bucket, Step, Timestamp};

use crate::format;

/// Width of the bars, in units of the picture.
const WIDTH: f64 = 1000.0;
/// Height of a row.
pub(crate) const ROW: usize = 26;
/// Room above the first row, for the scale.
pub(crate) const TOP: usize = 24;

/// A row of the picture and of the table.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Row {
    /// Name of the step, effect or phase.
    pub(crate) name: String,
    /// The bucket that its time is counted in.
    pub(crate) bucket: &'static str,
    /// Class of the style sheet: family of the bucket, or what an effect came to.
    pub(crate) class: &'static str,
    /// Below a step.
    pub(crate) is_detail: bool,
    /// What the bar says.
    pub(crate) label: String,
    /// When it began and ended.
    pub(crate) from: Timestamp,
    pub(crate) until: Timestamp,
    /// Seconds from begin to end.
    pub(crate) seconds: f64,
    /// Left edge and width of the bar, in units of the picture.
    pub(crate) x: f64,
    pub(crate) width: f64,
    /// Top edge of the row.
    pub(crate) y: usize,
    /// Still open.
    pub(crate) is_open: bool,
}

/// A line of the scale.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Tick {
    pub(crate) x: f64,
    pub(crate) label: String,
}

/// A run, drawn.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Waterfall {
    pub(crate) rows: Vec<Row>,
    pub(crate) ticks: Vec<Tick>,
    pub(crate) height: usize,
    pub(crate) wall: String,
    pub(crate) wall_seconds: f64,
}

/// The family of a bucket: six colors for twelve buckets.
pub(crate) const fn family(bucket: Bucket) -> &'static str {
    match bucket {
        Bucket::Accept | Bucket::ReadyWait => "f-wait",
        Bucket::Discover | Bucket::Commission => "f-maas",
        Bucket::ImageDeploy => "f-image",
        Bucket::FirstBoot | Bucket::BootstrapFetch => "f-boot",
        Bucket::SiteBootstrap | Bucket::NodeBootstrap => "f-bootstrap",
        Bucket::Enrollment | Bucket::PrereqChecks | Bucket::Confirmation => "f-ours",
        Bucket::Leaving => "f-leaving",
    }
}

/// Draws a run.
pub(crate) fn layout(run: &RunView) -> Waterfall {
    let scale = Scale { begin: run.created_at, wall: run.wall_seconds.max(1e-6) };
    let mut rows: Vec<Row> = Vec::new();
    for span in &run.steps {
        rows.push(step_row(span, &scale));
        let of_span = |at: Timestamp| at >= span.from && span.until.is_none_or(|end| at < end);
        let attempts = run.attempts.iter().filter(|one| one.step == span.step);
        for attempt in attempts.filter(|one| of_span(one.intended_at)) {
            rows.push(attempt_row(attempt, span, &scale));
        }
        if span.step == Step::SiteBootstrap {
            rows.extend(phase_rows(run, span, &scale));
        }
    }
    for (index, row) in rows.iter_mut().enumerate() {
        row.y = TOP + index * ROW;
    }
    Waterfall {
        height: TOP + rows.len() * ROW + 4,
        rows,
        ticks: ticks(&scale),
        wall: format::duration(run.wall_seconds),
        wall_seconds: run.wall_seconds,
    }
}

struct Scale {
    begin: Timestamp,
    wall: f64,
}

impl Scale {
    fn end(&self) -> Timestamp {
        self.begin.plus_seconds(self.wall)
    }

    fn x(&self, at: Timestamp) -> f64 {
        (at.seconds_since(self.begin) / self.wall).clamp(0.0, 1.0) * WIDTH
    }

    /// A row of this stretch; a stretch without an end lasts until now.
    fn row(&self, name: &str, bucket: Bucket, from: Timestamp, until: Option<Timestamp>) -> Row {
        let end = until.unwrap_or_else(|| self.end());
        let x = self.x(from);
        let seconds = end.seconds_since(from).max(0.0);
        Row {
            name: name.to_owned(),
            bucket: bucket.as_str(),
            class: family(bucket),
            is_detail: false,
            label: format::duration(seconds),
            from,
            until: end,
            seconds,
            x: rounded(x.min(WIDTH - 2.0)),
            width: rounded((self.x(end) - x).max(2.0)),
            y: 0,
            is_open: until.is_none(),
        }
    }
}

fn rounded(value: f64) -> f64 {
    (value * 10.0).round() / 10.0
}

fn step_row(span: &StepSpan, scale: &Scale) -> Row {
    scale.row(span.step.as_str(), span.step.row().bucket, span.from, span.until)
}

/// An effect: what was asked of MAAS, which attempt, and what it came to.
fn attempt_row(attempt: &AttemptView, span: &StepSpan, scale: &Scale) -> Row {
    let bucket = span.step.row().bucket;
    let until = attempt.ended_at.or(span.until);
    let outcome = attempt.outcome.as_deref().unwrap_or("in flight");
    let row = scale.row(attempt.effect.as_str(), bucket, attempt.intended_at, until);
    let class = match outcome {
        "accepted" => "e-accepted",
        "rejected" => "e-rejected",
        _ => "e-unknown",
    };
    Row {
        label: format!("#{} {outcome}, {}", attempt.number, row.label),
        class,
        is_detail: true,
        ..row
    }
}

/// The phases of the site's bundles: each from the report of the phase before it to its own.
fn phase_rows(run: &RunView, span: &StepSpan, scale: &Scale) -> Vec<Row> {
    let mut from = span.from;
    let mut rows = Vec::new();
    for event in &run.timeline {
        let is_of_span = event.at >= span.from && span.until.is_none_or(|end| event.at <= end);
        if !is_of_span || !event.code.starts_with("bundle_phase_") {
            continue;
        }
        let Some((_, phase)) = BundlePhase::named_in(&event.text) else { continue };
        if event.code != "bundle_phase_skipped" {
            let row = scale.row(phase, span.step.row().bucket, from, Some(event.at));
            let failed = event.code == "bundle_phase_failed";
            let class = if failed { "e-rejected" } else { row.class };
            let label = if failed { format!("failed, {}", row.label) } else { row.label.clone() };
            rows.push(Row { is_detail: true, class, label, ..row });
        }
        from = event.at;
    }
    rows
}

/// Lines at a round number of seconds, at most eight.
fn ticks(scale: &Scale) -> Vec<Tick> {
    const STEPS: [f64; 16] = [
        0.1, 0.5, 1.0, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0, 600.0, 1800.0, 3600.0, 7200.0,
        21_600.0, 86_400.0, 604_800.0,
    ];
    let step = STEPS.into_iter().find(|step| scale.wall / step <= 8.0).unwrap_or(scale.wall);
    let mut ticks = Vec::new();
    let mut at = step;
    while at < scale.wall * 0.98 && ticks.len() < 8 {
        ticks.push(Tick { x: rounded(at / scale.wall * WIDTH), label: format::duration(at) });
        at += step;
    }
    ticks
}

#[cfg(test)]
mod tests {
    use super::*;
    use gpuaas_testkit::views;

    #[test]
    fn steps_sum_to_the_wall_time() {
        let run = views::finished_run();
        let drawn = layout(&run);
        let steps = drawn.rows.iter().filter(|row| !row.is_detail);
        let sum: f64 = steps.map(|row| row.seconds).sum();
        assert!((sum - run.wall_seconds).abs() < 1e-3, "{sum} {}", run.wall_seconds);
        assert!(drawn.rows.iter().all(|row| row.x >= 0.0 && row.x + row.width <= 1002.5));
        assert!(drawn.ticks.len() <= 8 && !drawn.ticks.is_empty());
    }

    #[test]
    fn run_without_steps_draws() {
        let mut run = views::finished_run();
        run.steps.clear();
        run.wall_seconds = 0.0;
        assert_eq!(layout(&run).rows, []);
    }
}
