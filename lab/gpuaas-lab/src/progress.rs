//! Progress while machines are onboarded: a live line per machine where somebody watches, a line
//! per change where nobody does, and counts for a fleet.

use std::collections::BTreeMap;
use std::time::Duration;

use gpuaas_client::output;
use gpuaas_client::terminal::Terminal;
use gpuaas_types::api::NodeView;
use gpuaas_types::{NodeState, RunStatus, Timestamp};
use indicatif::{MultiProgress, ProgressBar, ProgressStyle};

/// Above this many machines only counts are shown.
const LISTED: usize = 24;
const REDRAW: Duration = Duration::from_millis(150);

/// What is shown while a lab works.
pub struct LabProgress {
    bars: Option<(MultiProgress, BTreeMap<String, ProgressBar>)>,
    last: BTreeMap<String, String>,
}

impl LabProgress {
    /// Live lines where `interactive`, else plain ones.
    #[must_use]
    pub fn new(interactive: bool) -> Self {
        Self {
            bars: interactive.then(|| (MultiProgress::new(), BTreeMap::new())),
            last: BTreeMap::new(),
        }
    }

    /// Shows the machines as they are at `now`.
    pub fn show(&mut self, nodes: &[NodeView], now: Timestamp, terminal: &mut Terminal) {
        if nodes.len() > LISTED {
            let (text, elapsed) = (counts(nodes), oldest(nodes, now));
            self.line("", &text, elapsed, terminal);
            return;
        }
        for node in nodes {
            let elapsed = now.seconds_since(node.created_at);
            self.line(&node.hostname, &line(node), elapsed, terminal);
        }
    }

    fn line(&mut self, key: &str, text: &str, elapsed: f64, terminal: &mut Terminal) {
        let changed = self.last.get(key).is_none_or(|last| last != text);
        let whole = format!("{:>7}  {text}", minutes(elapsed));
        match &mut self.bars {
            Some((multi, bars)) => {
                let bar = bars.entry(key.to_owned()).or_insert_with(|| spinner(multi));
                bar.set_message(whole);
                if changed && text.ends_with(" active") {
                    bar.finish();
                }
            }
            None if changed => terminal.message(&whole),
            None => {}
        }
        if changed {
            self.last.insert(key.to_owned(), text.to_owned());
        }
    }

    /// Leaves the last lines standing and gives the terminal back.
    pub fn end(&mut self) {
        if let Some((_, bars)) = self.bars.take() {
            bars.values().for_each(ProgressBar::abandon);
        }
    }
}

fn spinner(multi: &MultiProgress) -> ProgressBar {
    let bar = multi.add(ProgressBar::new_spinner());
    if let Ok(style) = ProgressStyle::with_template("{spinner} {wide_msg}") {
        bar.set_style(style);
    }
    bar.enable_steady_tick(REDRAW);
    bar
}

/// A machine in one line: where its run is, and what it waits for.
fn line(node: &NodeView) -> String {
    if node.state == NodeState::Active {
        return format!("{:<9} active", node.hostname);
    }
    let step = match &node.run {
        Some(run) if run.status == RunStatus::Parked => "parked",
        Some(run) => run.step.as_str(),
        None => "-",
    };
    let text = output::attention(node).unwrap_or_default();
    format!("{:<9} {step:<17} {text}", node.hostname).trim_end().to_owned()
}

/// A fleet in one line.
fn counts(nodes: &[NodeView]) -> String {
    let mut by_step: BTreeMap<(usize, &str), usize> = BTreeMap::new();
    for node in nodes {
        *by_step.entry(position(node)).or_default() += 1;
    }
    let parts: Vec<String> =
        by_step.into_iter().map(|((_, name), count)| format!("{count} {name}")).collect();
    format!("{} machines: {}", nodes.len(), parts.join(", "))
}

/// Where a machine is, ordered as a run goes.
fn position(node: &NodeView) -> (usize, &'static str) {
    match (&node.run, node.state) {
        (_, NodeState::Active) => (usize::MAX, "active"),
        (Some(run), _) if run.status == RunStatus::Parked => (usize::MAX - 1, "parked"),
        (Some(run), _) => (run.step as usize, run.step.as_str()),
        (None, state) => (0, state.as_str()),
    }
}

fn oldest(nodes: &[NodeView], now: Timestamp) -> f64 {
    nodes.iter().map(|node| now.seconds_since(node.created_at)).fold(0.0, f64::max)
}

fn minutes(seconds: f64) -> String {
    #[expect(clippy::cast_possible_truncation, reason = "float to int casts saturate")]
    let whole = seconds.max(0.0) as i64;
    format!("{}:{:02}", whole / 60, whole % 60)
}

#[cfg(test)]
mod tests {
    use super::*;
    use gpuaas_testkit::views;

    fn active(name: &str) -> NodeView {
        let mut node = views::commissioning_node();
        node.hostname = name.to_owned();
        node.state = NodeState::Active;
        node
    }

    #[test]
    fn a_line_per_change() {
        let (mut terminal, captured) = Terminal::captured();
        let mut progress = LabProgress::new(false);
        let begin = views::commissioning_node().created_at;
        progress.show(
            &[views::commissioning_node(), views::parked_node()],
            begin.plus_seconds(65.2),
            &mut terminal,
        );
        progress.show(
            &[views::commissioning_node(), views::parked_node()],
            begin.plus_seconds(70.0),
            &mut terminal,
        );
        progress.show(
            &[active("j22u11"), views::parked_node()],
            begin.plus_seconds(2400.0),
            &mut terminal,
        );
        progress.end();
        insta::assert_snapshot!(captured.stderr());
    }

    #[test]
    fn a_fleet_is_counted() {
        let mut nodes: Vec<NodeView> = (0..30).map(|n| active(&format!("node{n:04}"))).collect();
        nodes[3] = views::commissioning_node();
        nodes[4] = views::parked_node();
        nodes[5] = views::commissioning_node();
        assert_eq!(counts(&nodes), "30 machines: 2 commission, 1 parked, 27 active");
        let (mut terminal, captured) = Terminal::captured();
        let now = nodes[0].created_at.plus_seconds(61.0);
        LabProgress::new(false).show(&nodes, now, &mut terminal);
        assert_eq!(captured.stderr(), "   1:01  30 machines: 2 commission, 1 parked, 27 active\n");
    }
}
