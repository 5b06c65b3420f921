//! Whether Netdata has the metrics that are wanted of it.
//!
//! A collector that is not there, or that may not ask, leaves no trace but that its metrics are missing:
//! distributions ship Netdata without `go.d.plugin`, which has those of GPUs.

use std::collections::BTreeSet;

use serde_json::Value;

use super::query::{QUERY_SECONDS, query};
use super::verdict::Verdict;
use crate::command::CommandRunner;

/// Asks the Netdata on `port` for its charts.
pub(super) async fn collects(runner: CommandRunner<'_>, port: u16, groups: &str) -> Verdict {
    let url = format!("http://127.0.0.1:{port}/api/v1/charts");
    match query(runner, "curl", &["-fsS", "--max-time", "4", &url], QUERY_SECONDS).await {
        Ok(text) => missing(&text, groups),
        Err(reason) => (false, reason),
    }
}

/// The group of a context is what stands before its first dot: `nvidia_smi.gpu_utilization`.
fn missing(charts: &str, groups: &str) -> Verdict {
    let Ok(charts) = serde_json::from_str::<Value>(charts) else {
        return (false, "its chart list is not valid JSON".to_owned());
    };
    let all = charts["charts"].as_object().into_iter().flat_map(|charts| charts.values());
    let contexts = all.filter_map(|chart| chart["context"].as_str());
    let there: BTreeSet<&str> = contexts.filter_map(|context| context.split('.').next()).collect();
    let wanted = groups.split_whitespace();
    let missing: Vec<&str> = wanted.filter(|group| !there.contains(group)).collect();
    if missing.is_empty() {
        return (true, format!("found {} groups", there.len()));
    }
    let there: Vec<&str> = there.into_iter().collect();
    let there = if there.is_empty() { "none".to_owned() } else { there.join(", ") };
    (false, format!("missing metrics: {}; present: {there}", missing.join(", ")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_without_metrics_are_named() {
        let charts = r#"{"charts": {
            "system.cpu": {"context": "system.cpu"},
            "nvidia_smi.gpu0": {"context": "nvidia_smi.gpu_utilization"},
            "disk.nvme0n1": {"context": "disk.io"}, "x": {}
        }}"#;
        let good = (true, "found 3 groups".to_owned());
        assert_eq!(missing(charts, "system nvidia_smi"), good);
        let (passed, seen) = missing(charts, "system systemd nvidia");
        assert_eq!(seen, "missing metrics: systemd, nvidia; present: disk, nvidia_smi, system");
        assert!(!passed && missing(charts, "").0);
        assert!(missing("{}", "system").1.ends_with("present: none"));
        assert!(!missing("<html>", "system").0);
    }
}
