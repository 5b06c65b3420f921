//! The map of the fleet: an SVG with one path for each state, whatever the number of nodes.

use std::fmt::Write as _;

use gpuaas_types::{NodeState, RunStatus};

use crate::fleet_counts::Counts;
use crate::format::{self, Mark};
use crate::requests::with_query;

/// Width of the picture.
const WIDTH: u64 = 1340;
/// Height of a site's name above its nodes.
const NAME_HEIGHT: u64 = 20;
/// Room below the nodes of a site.
const GAP: u64 = 8;

/// States in the order of the map: those that need somebody first.
const ORDER: [NodeState; 7] = [
    NodeState::Offline,
    NodeState::Quarantined,
    NodeState::Draining,
    NodeState::Registered,
    NodeState::BootstrapIssued,
    NodeState::Enrolling,
    NodeState::Active,
];

/// A state that this console does not know.
const UNKNOWN: Mark = Mark { shape: "?", word: "unknown", class: "unknown" };

/// The nodes of one state.
pub(crate) struct StatePath {
    pub(crate) mark: Mark,
    pub(crate) count: u64,
    /// The same nodes in the table.
    pub(crate) href: String,
    /// One line for each row of nodes that stand beside each other; empty: no node.
    pub(crate) path: String,
}

/// Where the nodes of a site are.
pub(crate) struct SiteLabel {
    pub(crate) name: String,
    pub(crate) href: String,
    pub(crate) y: u64,
    pub(crate) nodes: u64,
    pub(crate) is_unreachable: bool,
}

/// A link of the line about runs.
pub(crate) struct RunCount {
    pub(crate) mark: Mark,
    pub(crate) count: u64,
    pub(crate) href: String,
}

/// The map.
pub(crate) struct FleetMap {
    pub(crate) height: u64,
    /// Edge of a node's cell, with the gap of one pixel.
    pub(crate) cell: u64,
    pub(crate) total: u64,
    pub(crate) sites: Vec<SiteLabel>,
    pub(crate) states: Vec<StatePath>,
    pub(crate) runs: Vec<RunCount>,
    /// What the map covers, in a sentence.
    pub(crate) covers: String,
}

impl FleetMap {
    /// Whether any run is open.
    pub(crate) fn has_runs(&self) -> bool {
        self.runs.iter().any(|run| run.count > 0)
    }
}

/// Edge of a cell, so that a large fleet stays within a screen.
const fn cell_of(total: u64) -> u64 {
    match total {
        0..=600 => 12,
        601..=3000 => 8,
        _ => 5,
    }
}

fn filter_href(filter: &str) -> String {
    with_query("/nodes", &[("filter", filter)])
}

/// Draws counts. Equal counts give equal pictures.
pub(crate) fn layout(counts: &Counts, covers: String) -> FleetMap {
    let total = counts.total();
    let cell = cell_of(total);
    let columns = WIDTH / cell;
    let mut states: Vec<StatePath> = legend();
    let mut sites = Vec::new();
    let mut y = 0;
    for (name, site) in &counts.sites {
        let nodes: u64 = site.nodes.values().sum();
        if nodes == 0 {
            continue;
        }
        sites.push(SiteLabel {
            name: name.clone(),
            href: filter_href(&format!("site={}", filter_word(name))),
            y: y + 14,
            nodes,
            is_unreachable: site.is_unreachable,
        });
        y += NAME_HEIGHT;
        let mut from = 0;
        for state in &mut states {
            let count: u64 = site
                .nodes
                .iter()
                .filter(|(written, _)| index_word(written) == state.mark.word)
                .map(|(_, count)| count)
                .sum();
            push_cells(&mut state.path, from, count, columns, cell, y);
            state.count += count;
            from += count;
        }
        y += nodes.div_ceil(columns) * cell + GAP;
    }
    let runs = [RunStatus::Running, RunStatus::Waiting, RunStatus::Parked].map(|status| RunCount {
        mark: format::run_mark(status),
        count: counts.sites.values().filter_map(|site| site.runs.get(status.as_str())).sum(),
        href: filter_href(&format!("run_status={status}")),
    });
    FleetMap { height: y, cell, total, sites, states, runs: runs.into(), covers }
}

/// Every state without nodes, the unknown one first.
fn legend() -> Vec<StatePath> {
    let known: Vec<_> = NodeState::ALL.iter().map(|state| state.as_str()).collect();
    let none = |mark, filter: &str| StatePath {
        mark,
        count: 0,
        href: filter_href(filter),
        path: String::new(),
    };
    let mut states = vec![none(UNKNOWN, &format!("state!={}", known.join(",")))];
    states.extend(
        ORDER.iter().map(|state| none(format::node_mark(*state, None), &format!("state={state}"))),
    );
    states
}

/// The word of the legend for the written form of a state.
fn index_word(written: &str) -> &'static str {
    let state = written.parse::<NodeState>().ok().filter(|state| ORDER.contains(state));
    state.map_or(UNKNOWN.word, |state| format::node_mark(state, None).word)
}

/// A value of a filter: quoted unless it is plain.
pub(crate) fn filter_word(text: &str) -> String {
    let is_plain = |c: char| c.is_alphanumeric() || matches!(c, '-' | '_' | '.' | ':' | '@' | '/');
    if !text.is_empty() && text.chars().all(is_plain) {
        return text.to_owned();
    }
    format!("\"{}\"", text.replace('\\', r"\\").replace('"', "\\\""))
}

/// Lines through the cells `from..from + count`; the picture's dashes cut them into cells.
fn push_cells(path: &mut String, from: u64, count: u64, columns: u64, cell: u64, top: u64) {
    let (mut at, end) = (from, from + count);
    while at < end {
        let (row, column) = (at / columns, at % columns);
        let cells = (columns - column).min(end - at);
        let middle = top + row * cell + cell / 2;
        let line = (column * cell, middle, cells * cell);
        write!(path, "M{} {}h{}", line.0, line.1, line.2).unwrap_or_default();
        at += cells;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use gpuaas_types::Timestamp;

    fn counts(active: u64, asleep: u64) -> Counts {
        let nodes = [("active".to_owned(), active), ("asleep".to_owned(), asleep)];
        let site = crate::fleet_counts::SiteCounts { nodes: nodes.into(), ..Default::default() };
        let sites = [("lab".to_owned(), site)].into();
        Counts { sites, counted_at: Timestamp::from_micros(0) }
    }

    #[test]
    fn runs_of_cells_wrap_at_the_edge() {
        let mut path = String::new();
        push_cells(&mut path, 8, 15, 10, 5, 100);
        assert_eq!(path, "M40 102h10M0 107h50M0 112h15");
    }

    #[test]
    fn ten_thousand_nodes_are_as_small_as_a_hundred() {
        let map = layout(&counts(9_990, 10), String::new());
        let drawn: usize = map.states.iter().map(|state| state.path.len()).sum();
        assert!(drawn < 1000 && map.height < 250, "{drawn} {}", map.height);
        assert_eq!(
            (map.total, map.states[0].count, map.states[0].mark.word),
            (10_000, 10, "unknown")
        );
    }

    #[test]
    fn names_in_filters_are_quoted() {
        assert_eq!(filter_word("fra-1"), "fra-1");
        assert_eq!(filter_word(r#"a "b\"#), r#""a \"b\\""#);
    }
}
