//! Two images side by side: rows of measures with their intervals, and every run as a dot.

use gpuaas_types::experiment::{
    ExperimentArm, ExperimentMeasure, ExperimentSample, ExperimentView, PrimaryMeasure,
};

use crate::format::{self, Mark};
use crate::pages::experiments::measure_mark;

/// Width of the picture of an interval, and of its margin on both sides.
const INTERVAL_WIDTH: f64 = 220.0;
const INTERVAL_MARGIN: f64 = 8.0;
/// Width of the strips, and where they begin and end.
const STRIP_WIDTH: f64 = 900.0;
const STRIP_BEGIN: f64 = 40.0;
const STRIP_END: f64 = 880.0;

/// A measure of both arms.
pub(crate) struct MeasureRow {
    pub(crate) name: String,
    pub(crate) n: String,
    pub(crate) p50_a: String,
    pub(crate) p95_a: String,
    pub(crate) p50_b: String,
    pub(crate) p95_b: String,
    /// Difference B less A, with its interval.
    pub(crate) difference: String,
    pub(crate) interval: Option<Interval>,
    pub(crate) p: String,
    pub(crate) mark: Mark,
}

/// Where an interval is drawn: all rows have the same scale, and zero in the middle.
pub(crate) struct Interval {
    pub(crate) from: String,
    pub(crate) to: String,
    pub(crate) at: String,
    pub(crate) zero: String,
}

/// A run as a dot.
pub(crate) struct Dot {
    pub(crate) x: String,
    pub(crate) href: String,
    pub(crate) title: String,
}

/// The runs of one arm.
pub(crate) struct Strip {
    pub(crate) name: &'static str,
    pub(crate) y: u32,
    pub(crate) dots: Vec<Dot>,
}

/// What the page of an experiment draws.
pub(crate) struct Comparison {
    pub(crate) rows: Vec<MeasureRow>,
    /// Two strips with one scale; empty: no run has a time yet.
    pub(crate) strips: Vec<Strip>,
    pub(crate) shortest: String,
    pub(crate) longest: String,
}

/// Lays an experiment out. The scales depend on the numbers alone.
pub(crate) fn layout(experiment: &ExperimentView) -> Comparison {
    let widest = experiment.measures.iter().filter_map(reach).fold(0.0, f64::max);
    let rows = experiment.measures.iter().map(|measure| row(measure, widest)).collect();
    let times = times(experiment);
    let shortest = times.iter().map(|(_, _, _, time)| *time).fold(f64::INFINITY, f64::min);
    let longest = times.iter().map(|(_, _, _, time)| *time).fold(0.0, f64::max);
    if times.is_empty() {
        let (shortest, longest) = (String::new(), String::new());
        return Comparison { rows, strips: Vec::new(), shortest, longest };
    }
    let strip = |arm: ExperimentArm, name, y| {
        let of_arm = times.iter().filter(|(one, ..)| *one == arm);
        let dots = of_arm.map(|(_, host, href, time)| Dot {
            x: pixels(STRIP_BEGIN + (STRIP_END - STRIP_BEGIN) * share(*time, shortest, longest)),
            href: href.clone(),
            title: format!("{host} {}", format::duration(*time)),
        });
        Strip { name, y, dots: dots.collect() }
    };
    Comparison {
        rows,
        strips: vec![strip(ExperimentArm::A, "A", 16), strip(ExperimentArm::B, "B", 44)],
        shortest: format::duration(shortest),
        longest: format::duration(longest),
    }
}

/// Arm, hostname, address of the run and primary time of each run that has one.
fn times(experiment: &ExperimentView) -> Vec<(ExperimentArm, String, String, f64)> {
    let time_of = |sample: &ExperimentSample| match experiment.primary {
        PrimaryMeasure::TimeToActive => sample.time_to_active,
        PrimaryMeasure::TimeToSliceReady => sample.time_to_slice_ready,
    };
    let timed = experiment.assignments.iter().filter_map(|node| {
        let time = time_of(node.sample.as_ref()?)?;
        let href = node.run.map(|run| format!("/runs/{run}")).unwrap_or_default();
        Some((node.arm, node.node.clone(), href, time))
    });
    timed.collect()
}

fn share(value: f64, from: f64, to: f64) -> f64 {
    if to > from { (value - from) / (to - from) } else { 0.5 }
}

fn pixels(x: f64) -> String {
    format!("{x:.1}")
}

/// The largest number of seconds that a row draws, whatever its sign.
fn reach(measure: &ExperimentMeasure) -> Option<f64> {
    let [low, high] = measure.interval_seconds?;
    Some(low.abs().max(high.abs()).max(measure.shift_seconds?.abs()))
}

fn row(measure: &ExperimentMeasure, widest: f64) -> MeasureRow {
    let seconds = |value: Option<f64>| value.map_or_else(|| "–".to_owned(), format::duration);
    let difference = match (measure.shift_seconds, measure.interval_seconds) {
        (Some(shift), Some([low, high])) => {
            format!("{} [{}, {}]", signed(shift), signed(low), signed(high))
        }
        (Some(shift), None) => signed(shift),
        (None, _) => "–".to_owned(),
    };
    MeasureRow {
        name: measure.name.replace('_', " "),
        n: format!("{} / {}", measure.n_a, measure.n_b),
        p50_a: seconds(measure.p50_a),
        p95_a: seconds(measure.p95_a),
        p50_b: seconds(measure.p50_b),
        p95_b: seconds(measure.p95_b),
        difference,
        interval: interval(measure, widest),
        p: measure.p_adjusted.map_or_else(|| "–".to_owned(), |p| format!("{p:.3}")),
        mark: measure_mark(measure.verdict),
    }
}

fn interval(measure: &ExperimentMeasure, widest: f64) -> Option<Interval> {
    let ([low, high], shift) = (measure.interval_seconds?, measure.shift_seconds?);
    let room = INTERVAL_WIDTH - 2.0 * INTERVAL_MARGIN;
    let x = |value: f64| pixels(INTERVAL_MARGIN + room * share(value, -widest, widest));
    Some(Interval { from: x(low), to: x(high), at: x(shift), zero: x(0.0) })
}

/// A difference of durations, with its sign.
fn signed(seconds: f64) -> String {
    let sign = if seconds < 0.0 { '−' } else { '+' };
    format!("{sign}{}", format::duration(seconds.abs()))
}

impl Comparison {
    /// Width of the strips.
    pub(crate) const fn width(&self) -> f64 {
        STRIP_WIDTH
    }
}
