//! Where a run's time went, drawn.
//!
//! The waterfall has one row per step span, because a retried deployment must show twice; the
//! bucket table has one column per bucket, because cohorts are compared by bucket. Both come from
//! the same spans, so both sum to the wall time.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use comfy_table::{Cell, CellAlignment, ContentArrangement, Table, presets};
use gpuaas_types::agent::BundlePhase;
use gpuaas_types::api::{RunView, StepSpan};
use gpuaas_types::{Bucket, NodeState, Step, Timestamp};
use serde::Serialize;

use crate::terminal::Style;

const LABELS: usize = 16 + 18;
const SECONDS: usize = 10;
/// Characters of a phase's name, beside which a bar still has room.
const PHASE_CHARS: usize = 16;
/// Rows of a bucket table above which only the slowest are listed.
const ROWS: usize = 30;
const SLOWEST: usize = 5;

/// One node's time by bucket.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct BucketRow {
    /// The node's hostname.
    pub node: String,
    /// State at the end.
    pub state: NodeState,
    /// Seconds from the request to the end.
    pub wall_seconds: f64,
    /// Seconds per bucket, all twelve.
    pub buckets: BTreeMap<String, f64>,
}

impl BucketRow {
    /// The row of a run whose node is in `state`.
    #[must_use]
    pub fn of_run(run: &RunView, state: NodeState) -> Self {
        Self {
            node: run.hostname.clone(),
            state,
            wall_seconds: run.wall_seconds,
            buckets: run.buckets.clone(),
        }
    }
}

/// The run's steps against time.
#[must_use]
pub fn draw(run: &RunView, style: Style) -> String {
    let mut text = format!(
        "{}  {} {} after {}\n",
        run.hostname,
        run.kind,
        run.status,
        seconds(run.wall_seconds).trim_start()
    );
    let scale = Scale {
        begin: run.created_at,
        wall_seconds: run.wall_seconds.max(1e-6),
        cells: style.width.saturating_sub(LABELS + SECONDS + 2).max(10),
        ascii: style.ascii,
    };
    let mut last = None;
    for span in &run.steps {
        let bucket = span.step.row().bucket;
        let name = if last == Some(bucket) { "" } else { bucket.as_str() };
        last = Some(bucket);
        let (bar, length) = scale.bar(span);
        // Writing to a String cannot fail.
        writeln!(text, "{name:<16}{:<18}{bar} {:>SECONDS$}", span.step.as_str(), seconds(length))
            .ok();
        if span.step == Step::SiteBootstrap {
            for (name, span) in phases(run, span) {
                let (bar, length) = scale.bar(&span);
                writeln!(text, "{:<16} {name:<17}{bar} {:>SECONDS$}", "", seconds(length)).ok();
            }
        }
    }
    text
}

/// The phases of the site's bundles within a span, one after the other: each from when the one
/// before was heard of to when it was. Those that were not needed took no time.
fn phases(run: &RunView, within: &StepSpan) -> Vec<(String, StepSpan)> {
    let mut from = within.from;
    let mut spans = Vec::new();
    for event in &run.timeline {
        let is_of_span = event.at >= within.from && within.until.is_none_or(|end| event.at <= end);
        if !is_of_span || !event.code.starts_with("bundle_phase_") {
            continue;
        }
        let Some((_, phase)) = BundlePhase::named_in(&event.text) else { continue };
        if event.code != "bundle_phase_skipped" {
            let name: String = phase.chars().take(PHASE_CHARS).collect();
            spans.push((name, StepSpan { step: within.step, from, until: Some(event.at) }));
        }
        from = event.at;
    }
    spans
}

struct Scale {
    begin: Timestamp,
    wall_seconds: f64,
    cells: usize,
    ascii: bool,
}

impl Scale {
    fn cell(&self, at: Timestamp) -> usize {
        let part = (at.seconds_since(self.begin) / self.wall_seconds).clamp(0.0, 1.0);
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            clippy::cast_precision_loss,
            reason = "0 to the number of cells"
        )]
        let cell = (part * self.cells as f64).round() as usize;
        cell.min(self.cells)
    }

    /// The bar of a span, padded to the full width, and the span's seconds.
    fn bar(&self, span: &StepSpan) -> (String, f64) {
        let end = self.begin.plus_seconds(self.wall_seconds);
        let until = span.until.unwrap_or(end);
        let [full, open, short] = if self.ascii { ['#', '+', '|'] } else { ['█', '▒', '▏'] };
        let first = self.cell(span.from).min(self.cells - 1);
        let count = self.cell(until).saturating_sub(first);
        let mark = if span.until.is_none() { open } else { full };
        let mut bar = " ".repeat(first);
        if count == 0 {
            bar.push(short);
        } else {
            bar.extend(std::iter::repeat_n(mark, count));
        }
        bar.extend(std::iter::repeat_n(' ', self.cells - first - count.max(1)));
        (bar, until.seconds_since(span.from))
    }
}

fn seconds(value: f64) -> String {
    format!("{value:.1} s")
}

/// One row per node, one column per bucket; from five nodes on also the middle, the 95th
/// percentile and the longest of each column. A fleet shows those and its slowest nodes only. Where
/// the twelve buckets are wider than the terminal, rows and columns change places.
#[must_use]
pub fn bucket_table(rows: &[BucketRow], style: Style) -> String {
    let lines = bucket_lines(rows);
    let mut text = if fits(&lines, style) { across(&lines) } else { down(&lines, style) };
    if rows.len() > ROWS {
        let dash = if style.ascii { "-" } else { "–" };
        writeln!(text, "{} nodes {dash} showing the {SLOWEST} slowest, in seconds", rows.len())
            .ok();
    }
    text
}

/// A name and the seconds of each bucket, the total last.
type BucketLine = (String, Vec<f64>);

fn bucket_lines(rows: &[BucketRow]) -> Vec<BucketLine> {
    let mut listed: Vec<&BucketRow> = rows.iter().collect();
    if rows.len() > ROWS {
        listed.sort_by(|a, b| b.wall_seconds.total_cmp(&a.wall_seconds));
        listed.truncate(SLOWEST);
    }
    let line = |name: &str, total: f64, of: &dyn Fn(Bucket) -> f64| {
        let seconds = Bucket::ONBOARDING.iter().map(|bucket| of(*bucket));
        (name.to_owned(), seconds.chain([total]).collect())
    };
    let mut lines: Vec<BucketLine> = listed
        .iter()
        .map(|row| line(&row.node, row.wall_seconds, &|bucket| seconds_in(row, bucket)))
        .collect();
    if rows.len() >= 5 {
        for (name, part) in [("p50", 0.5), ("p95", 0.95), ("max", 1.0)] {
            let walls = rows.iter().map(|row| row.wall_seconds).collect();
            lines.push(line(name, percentile(walls, part), &|bucket| {
                percentile(rows.iter().map(|row| seconds_in(row, bucket)).collect(), part)
            }));
        }
    }
    lines
}

fn fits(lines: &[BucketLine], style: Style) -> bool {
    !style.bounded || across(lines).lines().all(|line| line.chars().count() <= style.width)
}

/// Buckets beside each other.
fn across(lines: &[BucketLine]) -> String {
    let mut table = Table::new();
    table
        .load_style(presets::NOTHING)
        .set_content_arrangement(ContentArrangement::Disabled)
        .set_header(header());
    for (name, seconds) in lines {
        let number =
            |value: &f64| Cell::new(format!("{value:.1}")).set_alignment(CellAlignment::Right);
        table.add_row(std::iter::once(Cell::new(name)).chain(seconds.iter().map(number)));
    }
    table.column_iter_mut().for_each(|column| {
        column.set_padding((1, 0));
    });
    trimmed(&table)
}

/// Buckets below each other: as many nodes beside each other as fit, then the next ones.
fn down(lines: &[BucketLine], style: Style) -> String {
    const NAMES: usize = 16;
    let names: Vec<&str> =
        Bucket::ONBOARDING.iter().map(|bucket| bucket.as_str()).chain(["total"]).collect();
    let cell = lines.iter().map(|(name, _)| name.chars().count()).max().unwrap_or_default();
    let cell = cell.max(8) + 2;
    let at_once = (style.width.saturating_sub(NAMES) / cell).max(1);
    let mut blocks = Vec::new();
    for block in lines.chunks(at_once) {
        let mut text = format!("{:<NAMES$}", "node");
        // Writing to a String cannot fail.
        for (name, _) in block {
            write!(text, "{name:>cell$}").ok();
        }
        text.push('\n');
        for (index, bucket) in names.iter().enumerate() {
            write!(text, "{bucket:<NAMES$}").ok();
            for (_, seconds) in block {
                let value = seconds.get(index).copied().unwrap_or_default();
                write!(text, "{value:>cell$.1}").ok();
            }
            text.push('\n');
        }
        blocks.push(text);
    }
    blocks.join("\n")
}

fn header() -> Vec<Cell> {
    let mut cells = vec![Cell::new("node")];
    for bucket in Bucket::ONBOARDING {
        let name = bucket.as_str().replace('_', "\n");
        cells.push(Cell::new(name).set_alignment(CellAlignment::Right));
    }
    cells.push(Cell::new("total").set_alignment(CellAlignment::Right));
    cells
}

fn seconds_in(row: &BucketRow, bucket: Bucket) -> f64 {
    row.buckets.get(bucket.as_str()).copied().unwrap_or_default()
}

/// The smallest value that `part` of the values do not exceed (nearest rank); 0 for none.
#[must_use]
pub fn percentile(mut values: Vec<f64>, part: f64) -> f64 {
    values.sort_by(f64::total_cmp);
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        clippy::cast_precision_loss,
        reason = "0 to the number of values"
    )]
    let rank = (part * values.len() as f64).ceil() as usize;
    values.get(rank.saturating_sub(1)).copied().unwrap_or_default()
}

/// The table as text without blanks at the ends of lines.
pub fn trimmed(table: &Table) -> String {
    table.to_string().lines().fold(String::new(), |mut text, line| {
        text.push_str(line.strip_prefix(' ').unwrap_or(line).trim_end());
        text.push('\n');
        text
    })
}

#[cfg(test)]
mod tests {
    use gpuaas_types::api::{Source, TimelineEvent};

    use super::*;
    use gpuaas_testkit::views;

    const WIDE: Style = Style { width: 100, ascii: false, bounded: true, now: None };
    const PLAIN: Style = Style { width: 80, ascii: true, bounded: true, now: None };

    #[test]
    fn a_run_with_a_retry() {
        insta::assert_snapshot!(draw(&views::finished_run(), WIDE));
    }

    #[test]
    fn an_open_run_in_ascii() {
        let mut run = views::finished_run();
        run.steps.truncate(5);
        run.steps[4].until = None;
        run.wall_seconds = 800.0;
        let text = draw(&run, PLAIN);
        assert!(text.is_ascii());
        assert!(text.lines().all(|line| line.len() <= PLAIN.width), "{text}");
        insta::assert_snapshot!(text);
    }

    #[test]
    fn a_run_without_steps_or_time_draws() {
        let mut run = views::finished_run();
        run.steps.clear();
        run.wall_seconds = 0.0;
        assert_eq!(draw(&run, PLAIN).lines().count(), 1);
    }

    #[test]
    fn phases_of_the_site_bootstrap_stand_below_it() {
        let mut run = views::finished_run();
        let span = run.steps.iter().find(|span| span.step == Step::SiteBootstrap).unwrap().clone();
        let said = |after: f64, code: &str, phase: &str| TimelineEvent {
            at: span.from.plus_seconds(after),
            run_id: Some(run.id),
            step: Some(Step::SiteBootstrap),
            source: Source::Bootstrap,
            code: code.to_owned(),
            text: format!("h200-ib@1.2.0 says that {phase} took it"),
        };
        run.timeline = vec![
            said(-1.0, "bundle_phase_finished", "before"),
            said(2.0, "bundle_phase_finished", "packages"),
            said(2.1, "bundle_phase_skipped", "ofed"),
            said(3.0, "bundle_phase_failed", "ipoib"),
        ];
        insta::assert_snapshot!(draw(&run, WIDE));
    }

    #[test]
    fn buckets_of_several_runs() {
        let row = BucketRow::of_run(&views::finished_run(), NodeState::Active);
        let rows: Vec<BucketRow> = (0..6)
            .map(|n| BucketRow {
                node: format!("j22u1{n}"),
                wall_seconds: row.wall_seconds + f64::from(n),
                ..row.clone()
            })
            .collect();
        insta::assert_snapshot!(bucket_table(&rows, WIDE));
        let narrow = bucket_table(&rows, PLAIN);
        assert!(narrow.lines().all(|line| line.len() <= PLAIN.width), "{narrow}");
        insta::assert_snapshot!("buckets_of_several_runs_at_80", narrow);
        let fleet: Vec<BucketRow> =
            (0..40).map(|n| BucketRow { wall_seconds: f64::from(n), ..row.clone() }).collect();
        let text = bucket_table(&fleet, PLAIN);
        assert!(text.contains("40 nodes - showing the 5 slowest"), "{text}");
        assert!(text.is_ascii());
    }

    #[test]
    fn percentiles_by_nearest_rank() {
        let values: Vec<f64> = (1..=100).map(f64::from).collect();
        assert!((percentile(values.clone(), 0.95) - 95.0).abs() < 1e-9);
        assert!((percentile(values, 1.0) - 100.0).abs() < 1e-9);
        assert!(percentile(Vec::new(), 0.5).abs() < 1e-9);
    }
}
