//! How many nodes are in each state: from the API's metrics, which count the whole fleet in one
//! answer, or from the nodes of one page.

use std::collections::BTreeMap;
use std::sync::Arc;

use gpuaas_types::Timestamp;
use gpuaas_types::api::NodeView;
use gpuaas_types::metrics::{NODES, RUNS, SITE_REACHABLE};
use parking_lot::Mutex;
use serde::Serialize;

use crate::api::{Failure, Viewer};
use crate::state::Console;

/// Seconds of wall time for which counts are shown before they are asked for again: counting reads
/// more than a page of nodes does.
const FRESH_SECONDS: f64 = 15.0;
/// Callers whose counts are kept.
const MOST_CALLERS: usize = 64;

/// What is counted of one site.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub(crate) struct SiteCounts {
    /// Nodes in care, by the written form of their state.
    pub(crate) nodes: BTreeMap<String, u64>,
    /// Open runs, by the written form of their status.
    pub(crate) runs: BTreeMap<String, u64>,
    /// MAAS of the site does not answer, so that states may be older than the page.
    pub(crate) is_unreachable: bool,
}

/// What is counted, by site.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct Counts {
    pub(crate) sites: BTreeMap<String, SiteCounts>,
    /// When it was counted.
    pub(crate) counted_at: Timestamp,
}

impl Counts {
    /// Reads the text form of OpenMetrics.
    fn of_metrics(text: &str, counted_at: Timestamp) -> Self {
        let mut sites = BTreeMap::<String, SiteCounts>::new();
        for line in text.lines().filter(|line| !line.starts_with('#')) {
            let Some(sample) = Sample::read(line) else { continue };
            let Some(site) = sample.label("site") else { continue };
            let counts = sites.entry(site.to_owned()).or_default();
            if sample.is_of(NODES.name) {
                *counts.nodes.entry(sample.label_or_empty("state")).or_default() += sample.count;
            } else if sample.is_of(RUNS.name) {
                *counts.runs.entry(sample.label_or_empty("status")).or_default() += sample.count;
            } else if sample.is_of(SITE_REACHABLE.name) {
                counts.is_unreachable = sample.count == 0;
            }
        }
        Self { sites, counted_at }
    }

    /// Counts the nodes of one page.
    pub(crate) fn of_nodes(nodes: &[NodeView], counted_at: Timestamp) -> Self {
        let mut sites = BTreeMap::<String, SiteCounts>::new();
        for node in nodes {
            let counts = sites.entry(node.site.clone()).or_default();
            *counts.nodes.entry(node.state.to_string()).or_default() += 1;
        }
        Self { sites, counted_at }
    }

    /// Nodes in all.
    pub(crate) fn total(&self) -> u64 {
        self.sites.values().flat_map(|site| site.nodes.values()).sum()
    }
}

/// A line of the text form of OpenMetrics whose value is a whole number.
struct Sample<'a> {
    name: &'a str,
    labels: Vec<(&'a str, String)>,
    count: u64,
}

impl<'a> Sample<'a> {
    /// Reads `NAME{LABEL="VALUE",...} COUNT`; none for a line of another form.
    fn read(line: &'a str) -> Option<Self> {
        let (name, mut rest) = line.split_once('{')?;
        let mut labels = Vec::new();
        while !rest.starts_with('}') {
            let (label, behind) = rest.split_once("=\"")?;
            let (value, behind) = quoted(behind)?;
            labels.push((label, value));
            rest = behind.strip_prefix(',').unwrap_or(behind);
        }
        let value = rest.strip_prefix('}')?.split_ascii_whitespace().next()?;
        let count = value.strip_suffix(".0").unwrap_or(value).parse().ok()?;
        Some(Self { name, labels, count })
    }

    fn is_of(&self, metric: &str) -> bool {
        self.name.strip_prefix("gpuaas_") == Some(metric)
    }

    fn label(&self, name: &str) -> Option<&str> {
        self.labels.iter().find(|(label, _)| *label == name).map(|(_, value)| value.as_str())
    }

    fn label_or_empty(&self, name: &str) -> String {
        self.label(name).unwrap_or_default().to_owned()
    }
}

/// A text up to its closing quote, and what is behind it.
fn quoted(text: &str) -> Option<(String, &str)> {
    let mut value = String::new();
    let mut chars = text.char_indices();
    while let Some((at, c)) = chars.next() {
        match c {
            '"' => return Some((value, &text[at + 1..])),
            '\\' => match chars.next()?.1 {
                'n' => value.push('\n'),
                other => value.push(other),
            },
            other => value.push(other),
        }
    }
    None
}

/// Counts as callers were answered a short time ago. Each caller has only the own ones.
#[derive(Default)]
pub(crate) struct CountCache(Mutex<Vec<Kept>>);

struct Kept {
    caller: [u8; 32],
    /// Wall time of the answer.
    at: Timestamp,
    counts: Arc<Counts>,
}

impl CountCache {
    fn get(&self, caller: [u8; 32], wall: Timestamp) -> Option<Arc<Counts>> {
        let kept = self.0.lock();
        let fresh = kept.iter().find(|one| {
            one.caller == caller && (0.0..FRESH_SECONDS).contains(&wall.seconds_since(one.at))
        })?;
        Some(Arc::clone(&fresh.counts))
    }

    fn put(&self, caller: [u8; 32], at: Timestamp, counts: &Arc<Counts>) {
        let mut kept = self.0.lock();
        kept.retain(|one| one.caller != caller);
        if kept.len() >= MOST_CALLERS {
            kept.remove(0);
        }
        kept.push(Kept { caller, at, counts: Arc::clone(counts) });
    }
}

/// Counts of the whole fleet, for a caller whose role holds at every site.
pub(crate) async fn of_fleet(console: &Console, viewer: &Viewer) -> Result<Arc<Counts>, Failure> {
    let (caller, wall) = (viewer.api.digest(), console.wall());
    if let Some(counts) = console.counts().get(caller, wall) {
        return Ok(counts);
    }
    let text = viewer.api.get_text("/metrics").await?;
    let counts = Arc::new(Counts::of_metrics(&text, console.now()));
    console.counts().put(caller, wall, &counts);
    Ok(counts)
}

#[cfg(test)]
mod tests {
    use super::*;

    const T0: Timestamp = Timestamp::from_micros(0);

    #[test]
    fn counts_are_read_from_metrics() {
        let text = concat!(
            "# TYPE gpuaas_nodes gauge\n",
            "gpuaas_nodes{site=\"lab\",state=\"active\"} 40.0\n",
            "gpuaas_nodes{site=\"lab\",state=\"asleep\"} 2\n",
            "gpuaas_nodes{site=\"a\\\"b\\\\,}\",state=\"offline\"} 3.0\n",
            "gpuaas_runs{site=\"lab\",kind=\"onboard\",status=\"parked\",code=\"x\"} 1.0\n",
            "gpuaas_runs{site=\"lab\",kind=\"reimage\",status=\"parked\",code=\"\"} 2.0\n",
            "gpuaas_site_reachable{site=\"lab\"} 0.0\n",
            "gpuaas_events_lag_seconds{sink=\"x\"} 0.5\n",
            "# EOF\n",
        );
        let counts = Counts::of_metrics(text, T0);
        let lab = &counts.sites["lab"];
        assert_eq!((lab.nodes["active"], lab.nodes["asleep"]), (40, 2));
        assert!(lab.runs["parked"] == 3 && lab.is_unreachable);
        assert_eq!(counts.sites["a\"b\\,}"].nodes["offline"], 3);
        assert_eq!(counts.total(), 45);
    }

    #[test]
    fn counts_of_one_caller_are_not_shown_to_another() {
        let cache = CountCache::default();
        let counts = Arc::new(Counts { sites: BTreeMap::new(), counted_at: T0 });
        cache.put([1; 32], T0, &counts);
        assert!(cache.get([1; 32], T0.plus_seconds(14.0)).is_some());
        assert!(cache.get([1; 32], T0.plus_seconds(15.0)).is_none());
        assert!(cache.get([2; 32], T0).is_none());
        (0..200).for_each(|caller| cache.put([caller; 32], T0, &counts));
        assert!(cache.get([1; 32], T0).is_none() && cache.get([199; 32], T0).is_some());
    }
}
