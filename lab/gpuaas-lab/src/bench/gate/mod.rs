//! `gpuaas bench gate`: whether the gates of a host fail for what is broken, and for nothing else.
//!
//! A slice host is made ready by the bundles themselves, run by the agent's launcher, and started
//! again, so that only what survives a boot counts. Then every row of [`mutations::BROKEN`] is done
//! to a copy of it, and the agent's gates have to turn exactly the checks of the row red, with the
//! row's reason; and none at all for the rows of [`harmless::HARMLESS`]. The rows of
//! [`bare_metal::BARE_METAL`] are done to a host of bare metal, whose GPUs are its own.

mod bare_metal;
mod harmless;
mod host;
mod mutation;
mod mutations;
pub mod repair;

use std::collections::BTreeMap;
use std::fmt::Write as _;

use futures::{StreamExt as _, TryStreamExt as _, stream};
use gpuaas_bundle::Gate;
use gpuaas_client::failure::Failure;
use gpuaas_client::terminal::Terminal;
use gpuaas_types::codes::CommandCode;
use serde::Serialize;

use self::bare_metal::BARE_METAL;
use self::harmless::{HARMLESS, HARMLESS_BARE_METAL};
use self::host::{Role, TestHost};
use self::mutation::{ExpectedRed, HostChange, Mutation};
use self::mutations::BROKEN;
use crate::arguments::BenchGateArgs;

/// The gates that are looked at.
const GATES: [Gate; 3] = [Gate::Active, Gate::SliceReady, Gate::Telemetry];
/// Hosts that are broken at once, each a folder of its own. What takes the time is small programs.
const AT_ONCE: usize = 4;

/// The result of `gpuaas bench gate`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct GateBenchReport {
    /// Ways in which the host was broken.
    pub mutations: usize,
    /// Those that turned exactly the right checks red, with the right reason.
    pub caught: usize,
    /// Those that turned another check red, or one of the right ones not, or gave another reason.
    pub wrong_check: usize,
    /// Ready hosts that were called broken.
    pub false_alarms: usize,
    /// Ready hosts that were looked at, each differing from the others in something that does not
    /// matter.
    pub good_runs: usize,
    /// What went otherwise than expected, a line each.
    #[serde(skip)]
    pub surprises: Vec<String>,
    /// What each row turned red, for people.
    #[serde(skip)]
    pub rows: Vec<(&'static str, Vec<String>)>,
}

/// Red checks: gate and name, with what is said of them.
type Seen = BTreeMap<(&'static str, String), (String, String)>;

/// Runs the benchmark.
///
/// # Errors
/// `bundles_not_found`, `test_host_unavailable` when there is no host to break; `gate_not_exact`
/// when a gate did not see what it should.
pub async fn run(args: BenchGateArgs, terminal: &mut Terminal) -> Result<(), Failure> {
    let json = args.json;
    let report =
        super::isolated_thread::run_isolated(async move || measure(&args, 1).await).await?;
    terminal.data(&if json { super::report::json(&report)? } else { report.table() })?;
    for surprise in &report.surprises {
        terminal.message(surprise);
    }
    if report.is_exact() {
        return Ok(());
    }
    let detail = format!(
        "{} of {} mutations caught, {} false alarms",
        report.caught, report.mutations, report.false_alarms
    );
    Err(Failure::local(CommandCode::GateNotExact, detail).hint("see the checks in the lines above"))
}

/// Looks at every `step`th row of each list.
async fn measure(args: &BenchGateArgs, step: usize) -> Result<GateBenchReport, Failure> {
    let slice = TestHost::make(&args.bundles, Role::Slice).await?;
    let metal = TestHost::make(&args.bundles, Role::BareMetal).await?;
    let mut report = GateBenchReport::default();
    let mut good = look_all(&slice, HARMLESS, step).await?;
    good.extend(look_all(&metal, HARMLESS_BARE_METAL, step).await?);
    for (row, red) in good {
        report.good_runs += 1;
        report.false_alarms += usize::from(!red.is_empty());
        for ((gate, check), (_, seen)) in red {
            report.surprises.push(format!("{}: {gate}: {check}: {seen}", row.name));
        }
    }
    let mut broken = look_all(&slice, BROKEN, step).await?;
    broken.extend(look_all(&metal, BARE_METAL, step).await?);
    for (row, red) in broken {
        report.mutations += 1;
        let wrong = compare(row.red, &red);
        if wrong.is_empty() {
            report.caught += 1;
        } else if !red.is_empty() {
            report.wrong_check += 1;
        }
        report.surprises.extend(wrong.into_iter().map(|text| format!("{}: {text}", row.name)));
        let rows = red.into_iter().map(|((_, check), (_, seen))| format!("{check}: {seen}"));
        report.rows.push((row.name, rows.collect()));
    }
    Ok(report)
}

/// Every `step`th row with what is red after it, in their order.
async fn look_all(
    ready: &TestHost,
    rows: &'static [Mutation],
    step: usize,
) -> Result<Vec<(&'static Mutation, Seen)>, Failure> {
    let looks = rows
        .iter()
        .step_by(step)
        .map(async |row| Ok::<_, Failure>((row, judge_mutation(ready, row).await?)));
    stream::iter(looks).buffered(AT_ONCE).try_collect().await
}

/// What is red on a copy of the host after `row`.
async fn judge_mutation(ready: &TestHost, row: &Mutation) -> Result<Seen, Failure> {
    let host = ready.copy()?;
    change_all(&host, row.name, row.changes).await?;
    let mut red = Seen::new();
    for gate in GATES {
        for check in host.gate(gate).await?.checks.into_iter().filter(|check| !check.passed) {
            let key = (gate.as_str(), check.name);
            // A check that two bundles want is the baseline's matter, which is named first.
            red.entry(key).or_insert((check.reason, check.seen));
        }
    }
    Ok(red)
}

/// Does one change after the other to the host.
async fn change_all(host: &TestHost, name: &str, changes: &[HostChange]) -> Result<(), Failure> {
    for change in changes {
        host.change(change).await.map_err(|error| {
            let text = format!("{name}: {change:?}: {error}");
            Failure::local(CommandCode::MutationImpossible, text)
        })?;
    }
    Ok(())
}

/// What is not as the row says.
fn compare(wanted: &[ExpectedRed], red: &Seen) -> Vec<String> {
    let mut wrong = Vec::new();
    for one in wanted {
        match red.get(&(one.gate.as_str(), one.check.to_owned())) {
            None => wrong.push(format!("{:?} did not fail", one.check)),
            Some((reason, seen)) => {
                if !reason.starts_with(one.reason) || !seen.contains(one.seen) {
                    wrong.push(format!(
                        "{:?} failed with reason {reason:?}, seen {seen:?}",
                        one.check
                    ));
                }
            }
        }
    }
    let known = |gate: &str, check: &str| {
        wanted.iter().any(|one| one.gate.as_str() == gate && one.check == check)
    };
    for ((gate, check), (_, seen)) in red {
        if !known(gate, check) {
            wrong.push(format!("{gate}: {check:?} failed unexpectedly: {seen}"));
        }
    }
    wrong
}

impl GateBenchReport {
    /// Whether everything that is broken was caught, and nothing else.
    #[must_use]
    pub fn is_exact(&self) -> bool {
        self.caught == self.mutations && self.false_alarms == 0
    }

    fn table(&self) -> String {
        let mut text = String::new();
        for (name, red) in &self.rows {
            // Writing to a String cannot fail.
            writeln!(text, "{name:<52}{}", red.join("; ")).ok();
        }
        writeln!(text, "\nmutations caught      {} of {}", self.caught, self.mutations).ok();
        writeln!(text, "wrong check           {}", self.wrong_check).ok();
        writeln!(text, "false alarms          {} of {}", self.false_alarms, self.good_runs).ok();
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn red(checks: &[(&'static str, &str, &str, &str)]) -> Seen {
        let one = |c: &(&'static str, &str, &str, &str)| {
            ((c.0, c.1.to_owned()), (c.2.to_owned(), c.3.to_owned()))
        };
        checks.iter().map(one).collect()
    }

    #[test]
    fn only_exactly_the_right_check_with_the_right_reason_counts() {
        let row = BROKEN.iter().find(|row| row.name == "guest traffic is not masqueraded").unwrap();
        let right = ("slice_ready", "masquerade of 10.100.0.0/24");
        let seen = "no rule masquerades 10.100.0.0/24";
        let reason = concat!(
            "host setup incomplete: ",
            gpuaas_types::built_in_bundle!("h200-slice-vm"),
            " is not in effect"
        );
        assert!(compare(row.red, &red(&[(right.0, right.1, reason, seen)])).is_empty());
        assert_eq!(compare(row.red, &red(&[])).len(), 1);
        let other = "host baseline incomplete";
        assert_eq!(compare(row.red, &red(&[(right.0, right.1, other, seen)])).len(), 1);
        let two = [(right.0, right.1, reason, seen), ("telemetry", "x", reason, seen)];
        assert_eq!(compare(row.red, &red(&two)).len(), 1);
    }

    /// `None`: this machine lacks the tools.
    async fn measured(step: usize) -> Option<GateBenchReport> {
        let bundles = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../bundles");
        match measure(&BenchGateArgs { bundles, json: true }, step).await {
            Err(failure) if failure.code() == "tools_missing" => {
                test_report::skip("tool", format!("{failure}"));
                None
            }
            report => Some(report.unwrap()),
        }
    }

    #[tokio::test]
    async fn a_sample_of_the_mutations_is_caught_and_no_ready_host_is_blamed() {
        let Some(report) = measured(5).await else { return };
        assert!(report.is_exact(), "{:#?}", report.surprises);
        assert!(report.mutations >= 14 && report.good_runs >= 6, "{report:?}");
    }

    #[tokio::test]
    #[ignore = "some minutes; `gpuaas bench gate` does the same"]
    async fn every_mutation_is_caught_and_no_ready_host_is_blamed() {
        let Some(report) = measured(1).await else { return };
        assert!(report.is_exact(), "{:#?}", report.surprises);
        assert!(report.mutations >= 60 && report.good_runs >= 30, "{report:?}");
    }
}
