//! What a benchmark prints: one JSON object, or a table.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use gpuaas_client::failure::Failure;
use gpuaas_types::codes::CommandCode;
use serde::Serialize;

use super::added::{AddedTimeTransition, Spread};

/// Why a node is not active.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ParkedNode {
    /// The node's hostname.
    pub node: String,
    /// Code of the park, or the step at which it stood.
    pub code: String,
    /// One sentence.
    pub text: String,
}

/// How often a statement was sent to the database.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct StatementCount {
    /// How often, per node.
    pub per_node: f64,
    /// Text of the statement.
    pub text: String,
}

/// The result of `gpuaas bench onboard`.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct OnboardReport {
    /// Nodes asked for.
    pub nodes: usize,
    /// Nodes that became active.
    pub active: usize,
    /// Control planes that shared the work.
    pub replicas: usize,
    /// Active nodes per minute of the wall clock, from the first request to the last node's end.
    pub nodes_per_minute: f64,
    /// Requests that MAAS received, from the registration of the site on, per node.
    pub maas_calls_per_node: f64,
    /// Body bytes of these requests and their answers, per node.
    pub maas_bytes_per_node: f64,
    /// The requests by endpoint.
    pub maas_calls_by_endpoint: BTreeMap<String, u64>,
    /// Seconds added per transition over the simulator's ideal, by the run's clock.
    pub added_seconds: Spread,
    /// The same by transition.
    pub added_seconds_by_transition: BTreeMap<AddedTimeTransition, Spread>,
    /// Seconds of the run's clock per second of the wall.
    pub clock_factor: f64,
    /// Processor seconds of the process that runs the first control plane and this benchmark, per node.
    pub cpu_seconds_per_node: f64,
    /// Largest resident memory of the process that runs the control plane and this benchmark.
    pub peak_rss_bytes: u64,
    /// Largest resident memory of the simulator's process.
    pub simulator_peak_rss_bytes: u64,
    /// Seconds of the wall clock, from the first request to the last node's end.
    pub wall_seconds: f64,
    /// The database that held the state.
    pub database: &'static str,
    /// Transactions in that database, per node; a statement outside of one counts as one.
    pub database_transactions_per_node: f64,
    /// Statements sent to that database, per node, with those that begin and end transactions.
    pub database_statements_per_node: f64,
    /// The statements by their texts, the most frequent first; empty where nobody asked.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub database_statements: Vec<StatementCount>,
    /// Nodes that did not become active.
    pub parked: Vec<ParkedNode>,
}

/// A report as the object that `--json` prints.
///
/// # Errors
/// `answer_unprintable`.
pub fn json(report: &impl Serialize) -> Result<String, Failure> {
    serde_json::to_string_pretty(report)
        .map_err(|error| Failure::local(CommandCode::AnswerUnprintable, error.to_string()))
}

const MIB: f64 = 1_048_576.0;

impl OnboardReport {
    /// For people.
    #[must_use]
    pub fn table(&self) -> String {
        let mut text = String::new();
        let mut row = |name: &str, value: String| {
            // Writing to a String cannot fail.
            writeln!(text, "{name:<26}{value}").ok();
        };
        row("nodes active", format!("{} of {}", self.active, self.nodes));
        row("nodes per minute", format!("{:.0}", self.nodes_per_minute));
        row("wall time", format!("{:.2} s", self.wall_seconds));
        row("clock", format!("{} times real time", self.clock_factor));
        row("database", self.database.to_owned());
        row("transactions per node", format!("{:.2}", self.database_transactions_per_node));
        row("statements per node", format!("{:.2}", self.database_statements_per_node));
        row("MAAS calls per node", format!("{:.2}", self.maas_calls_per_node));
        row("MAAS bytes per node", format!("{:.0}", self.maas_bytes_per_node));
        row("processor time per node", format!("{:.1} ms", self.cpu_seconds_per_node * 1e3));
        row("peak memory", mebibytes(self.peak_rss_bytes));
        row("peak memory, simulator", mebibytes(self.simulator_peak_rss_bytes));
        text.push_str("\nadded seconds                  p50     p95     max   count\n");
        spread(&mut text, "all", &self.added_seconds);
        for (transition, seconds) in &self.added_seconds_by_transition {
            let name = serde_json::to_value(transition).ok();
            let name = name.as_ref().and_then(|name| name.as_str()).unwrap_or_default();
            spread(&mut text, &format!("  {name}"), seconds);
        }
        text.push_str("\nMAAS calls\n");
        for (endpoint, calls) in &self.maas_calls_by_endpoint {
            writeln!(text, "  {endpoint:<32}{calls:>8}").ok();
        }
        if !self.database_statements.is_empty() {
            text.push_str("\nstatements per node\n");
        }
        for statement in &self.database_statements {
            writeln!(text, "{:>8.2}  {}", statement.per_node, statement.text).ok();
        }
        for parked in &self.parked {
            writeln!(text, "\n{} ({}): {}", parked.node, parked.code, parked.text).ok();
        }
        text
    }
}

fn spread(text: &mut String, name: &str, s: &Spread) {
    writeln!(text, "{name:<26}{:>8.3}{:>8.3}{:>8.3}{:>8}", s.p50, s.p95, s.max, s.count).ok();
}

#[expect(clippy::cast_precision_loss, reason = "memory of one process")]
fn mebibytes(bytes: u64) -> String {
    format!("{:.1} MiB", bytes as f64 / MIB)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report() -> OnboardReport {
        let spread = Spread { p50: 0.05, p95: 0.5, max: 1.25, count: 4000 };
        OnboardReport {
            replicas: 1,
            nodes: 1000,
            active: 999,
            nodes_per_minute: 3210.5,
            maas_calls_per_node: 11.2,
            maas_bytes_per_node: 81_234.0,
            maas_calls_by_endpoint: BTreeMap::from([
                ("events.query".to_owned(), 40),
                ("machine.deploy".to_owned(), 1000),
            ]),
            added_seconds: spread,
            added_seconds_by_transition: BTreeMap::from([(
                AddedTimeTransition::ReadyToDeployed,
                spread,
            )]),
            clock_factor: 1.0,
            cpu_seconds_per_node: 0.0123,
            peak_rss_bytes: 50 * 1_048_576,
            simulator_peak_rss_bytes: 70 * 1_048_576,
            wall_seconds: 18.7,
            database: "sqlite",
            database_transactions_per_node: 2.5,
            database_statements_per_node: 90.25,
            database_statements: vec![StatementCount {
                per_node: 11.5,
                text: "SELECT 1".to_owned(),
            }],
            parked: vec![ParkedNode {
                node: "node0007".to_owned(),
                code: "two_candidates".to_owned(),
                text: "2 machines in MAAS match node0007".to_owned(),
            }],
        }
    }

    #[test]
    fn a_table_for_people() {
        insta::assert_snapshot!(report().table());
    }

    #[test]
    fn the_object_has_the_promised_fields() {
        insta::assert_snapshot!(serde_json::to_string_pretty(&report()).unwrap());
    }
}
