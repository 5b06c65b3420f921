//! Time that the control plane adds.
//!
//! Hardware takes minutes that no control plane can shorten. What it can waste is the time between
//! the moment at which the next action became possible and the moment at which it was done. The
//! simulator knows both ends exactly: its hardware ends an activity at the drawn instant, however
//! busy the computer is, and it writes down when a call arrived. Both sides run on one clock, so
//! slowness of either process, of HTTP and of the database is inside the figure.
//!
//! | transition | from | to |
//! |---|---|---|
//! | `asked_to_created` | the operator's request was accepted | the create call arrived at MAAS |
//! | `created_to_commissioned` | MAAS said New | the commission call arrived |
//! | `ready_to_deployed` | MAAS said Ready | the deploy call arrived: all checks, the storage and fabric calls, the rendering of user-data lie between |
//! | `bootstrapped_to_active` | the node bootstrap had ended and the agent asked to enroll | the node was active: enrollment, first heartbeat, a diagnostics task, the seven gates |
//!
//! The ideal of each is zero, because nothing in between needs hardware. A deployment that is
//! repeated counts each time. What MAAS itself takes to answer a power action (the BMC's seconds)
//! lies after the arrival of the call and is not counted.

use std::collections::BTreeMap;

use gpuaas_client::waterfall::percentile;
use gpuaas_types::Step;
use gpuaas_types::api::RunView;
use serde::Serialize;

use crate::record::LogLine;

/// A stretch of a run in which nothing waits for hardware.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum AddedTimeTransition {
    /// Request to create.
    AskedToCreated,
    /// New to commission.
    CreatedToCommissioned,
    /// Ready to deploy.
    ReadyToDeployed,
    /// End of the bootstrap to active.
    BootstrappedToActive,
}

/// The distribution of some seconds.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Spread {
    /// The middle.
    pub p50: f64,
    /// 95 of 100 are not longer.
    pub p95: f64,
    /// The longest.
    pub max: f64,
    /// How many.
    pub count: usize,
}

impl Spread {
    /// Of these seconds; all zero for none.
    #[must_use]
    pub fn from_seconds(seconds: &[f64]) -> Self {
        let at = |part| percentile(seconds.to_vec(), part);
        Self { p50: at(0.5), p95: at(0.95), max: at(1.0), count: seconds.len() }
    }
}

/// Added seconds of one machine, in its own order.
#[must_use]
pub fn added_by_machine(log: &[LogLine], run: &RunView) -> Vec<(AddedTimeTransition, f64)> {
    let mut added = Vec::new();
    let mut open: Option<(AddedTimeTransition, i64)> =
        Some((AddedTimeTransition::AskedToCreated, run.created_at.as_micros()));
    let mut new_at = None;
    for line in log {
        let (at_us, arrived) = match line {
            LogLine::Status { at_us, name } => {
                match name.as_str() {
                    "New" => new_at = Some(*at_us),
                    "Ready" => open = Some((AddedTimeTransition::ReadyToDeployed, *at_us)),
                    _ => {}
                }
                continue;
            }
            LogLine::Call { at_us, endpoint, status } if *status < 300 => match endpoint.as_str() {
                "machines.create" => (*at_us, AddedTimeTransition::AskedToCreated),
                "machine.commission" => (*at_us, AddedTimeTransition::CreatedToCommissioned),
                "machine.deploy" => (*at_us, AddedTimeTransition::ReadyToDeployed),
                _ => continue,
            },
            LogLine::Call { .. } | LogLine::Other => continue,
        };
        if arrived == AddedTimeTransition::CreatedToCommissioned {
            added.extend(new_at.take().map(|from| (arrived, seconds(from, at_us))));
        } else if let Some((_, from)) = open.take_if(|(transition, _)| *transition == arrived) {
            added.push((arrived, seconds(from, at_us)));
        }
    }
    added.extend(
        bootstrapped_to_active(run).map(|s| (AddedTimeTransition::BootstrappedToActive, s)),
    );
    added
}

fn bootstrapped_to_active(run: &RunView) -> Option<f64> {
    let last = run.steps.iter().rev().find(|span| span.step == Step::NodeBootstrap)?;
    Some(run.ended_at?.seconds_since(last.until?))
}

#[expect(clippy::cast_precision_loss, reason = "a difference below 285 years is exact")]
fn seconds(from_us: i64, to_us: i64) -> f64 {
    (to_us - from_us).max(0) as f64 / 1e6
}

/// All transitions together, and each by itself.
#[must_use]
pub fn spreads(
    added: &[(AddedTimeTransition, f64)],
) -> (Spread, BTreeMap<AddedTimeTransition, Spread>) {
    let mut each: BTreeMap<AddedTimeTransition, Vec<f64>> = BTreeMap::new();
    for (transition, seconds) in added {
        each.entry(*transition).or_default().push(*seconds);
    }
    let all: Vec<f64> = added.iter().map(|(_, seconds)| *seconds).collect();
    (
        Spread::from_seconds(&all),
        each.into_iter().map(|(t, list)| (t, Spread::from_seconds(&list))).collect(),
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use gpuaas_testkit::views;
    use gpuaas_types::api::StepSpan;

    fn status(at: f64, name: &str) -> LogLine {
        LogLine::Status { at_us: micros(at), name: name.to_owned() }
    }

    fn call(at: f64, endpoint: &str, status: u16) -> LogLine {
        LogLine::Call { at_us: micros(at), endpoint: endpoint.to_owned(), status }
    }

    fn micros(at: f64) -> i64 {
        views::finished_run().created_at.plus_seconds(at).as_micros()
    }

    #[test]
    fn only_time_without_hardware_is_added() {
        let log = [
            status(0.3, "New"),
            call(0.3, "machines.create", 200),
            call(0.8, "machine.commission", 409),
            call(0.9, "machine.commission", 200),
            status(0.9, "Commissioning"),
            status(540.0, "Ready"),
            call(540.2, "machine.set_storage_layout", 200),
            call(541.0, "machine.deploy", 200),
            status(541.0, "Deploying"),
            status(1000.0, "Failed deployment"),
            call(1001.0, "machine.release", 200),
            status(1003.0, "Ready"),
            call(1003.5, "machine.deploy", 200),
            status(2000.0, "Deployed"),
        ];
        let mut run = views::finished_run();
        let at = |seconds| run.created_at.plus_seconds(seconds);
        run.steps =
            vec![StepSpan { step: Step::NodeBootstrap, from: at(2001.0), until: Some(at(2010.0)) }];
        run.ended_at = Some(at(2010.4));
        let added = added_by_machine(&log, &run);
        let rounded: Vec<(AddedTimeTransition, i64)> =
            added.iter().map(|(t, s)| (*t, (s * 1000.0).round() as i64)).collect();
        assert_eq!(
            rounded,
            [
                (AddedTimeTransition::AskedToCreated, 300),
                (AddedTimeTransition::CreatedToCommissioned, 600),
                (AddedTimeTransition::ReadyToDeployed, 1000),
                (AddedTimeTransition::ReadyToDeployed, 500),
                (AddedTimeTransition::BootstrappedToActive, 400),
            ]
        );
        let (all, each) = spreads(&added);
        assert_eq!(all.count, 5);
        assert!((all.max - 1.0).abs() < 1e-9);
        assert_eq!(each[&AddedTimeTransition::ReadyToDeployed].count, 2);
    }

    #[test]
    fn an_adopted_machine_is_not_created() {
        let log = [status(100.0, "Ready"), call(100.5, "machine.deploy", 200)];
        let mut run = views::finished_run();
        run.ended_at = None;
        let added = added_by_machine(&log, &run);
        assert_eq!(added.len(), 1);
        assert_eq!(added[0].0, AddedTimeTransition::ReadyToDeployed);
    }
}
