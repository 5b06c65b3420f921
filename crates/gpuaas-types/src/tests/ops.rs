//! The rules and the dashboard in `ops` name metrics that there are.

use std::collections::BTreeSet;

use crate::metrics::METRICS;

const FILES: [&str; 2] = [
    include_str!("../../../../ops/prometheus/gpuaas.rules.yaml"),
    include_str!("../../../../ops/grafana/gpuaas.json"),
];

/// Names of series in the files.
fn named_series() -> BTreeSet<&'static str> {
    let words = FILES
        .iter()
        .flat_map(|text| text.split(|c: char| !(c.is_ascii_alphanumeric() || c == '_')));
    words.filter(|word| word.starts_with("gpuaas_")).collect()
}

#[test]
fn rules_and_dashboard_name_metrics_that_there_are_and_each_of_them() {
    let known: BTreeSet<String> = ["", "_bucket", "_sum", "_count"]
        .iter()
        .flat_map(|end| METRICS.iter().map(move |metric| format!("{}{end}", metric.series())))
        .collect();
    let named = named_series();
    let unknown: Vec<&&str> = named.iter().filter(|name| !known.contains(**name)).collect();
    assert!(unknown.is_empty(), "no metric: {unknown:?}");
    for metric in METRICS {
        let name = metric.series();
        assert!(named.iter().any(|one| one.starts_with(&name)), "nobody looks at {name}");
    }
}
