//! What the bootstrap of a node reported, by attempt ([ADR 0053](../../../docs/adr/0053-attempts.md)).
//!
//! The scripts number their executions, and a host may run them any number of times: after a boot, or
//! because a park advised it. So neither the first report of a phase nor the last one to arrive is what
//! holds: the report of the latest attempt is. A failure that follows a success counts, and a request
//! of an earlier attempt that arrives late does not. Scripts of an earlier version send no number;
//! their reports count in the order in which they arrive.
//!
//! Any report may be lost. Two facts stand in for a lost success of the site bootstrap: the node
//! bootstrap starts only after it, and the node bootstrap starts the agent. An agent proves nothing
//! once an earlier attempt got so far that it may have installed it.

use gpuaas_types::Timestamp;
use gpuaas_types::agent::{BootstrapPhase, ProgressStatus};

use crate::record::{Report, ReportKind};
use crate::snapshot::Snapshot;

/// Seconds in which a report without a number repeats an equal one: longer than the scripts retry a
/// callback (three requests of 15 s, 5 s apart).
pub const REPEAT_SECONDS: f64 = 120.0;

/// A report of a phase.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Callback<'a> {
    /// Which part of the bootstrap.
    pub phase: BootstrapPhase,
    /// How far it is.
    pub status: ProgressStatus,
    /// Number of the execution; none: the scripts are of an earlier version.
    pub attempt: Option<u64>,
    /// The scripts' text.
    pub message: &'a str,
    /// When it arrived.
    pub at: Timestamp,
}

impl<'a> Callback<'a> {
    fn of(report: &'a Report) -> Option<Self> {
        match &report.kind {
            ReportKind::Progress { phase, status, attempt, message } => Some(Self {
                phase: *phase,
                status: *status,
                attempt: *attempt,
                message,
                at: report.at,
            }),
            _ => None,
        }
    }

    /// Whether `other`, which arrived earlier, holds all the same.
    fn is_outdated_by(&self, other: &Self) -> bool {
        match (self.attempt, other.attempt) {
            (Some(this), Some(other)) if this < other => true,
            (Some(this), Some(other)) if this > other => false,
            (Some(_), Some(_)) => self.status == ProgressStatus::Started,
            _ => false,
        }
    }

    /// Whether it is of a later execution of the scripts than `other`, or arrived later.
    #[must_use]
    pub fn is_after(&self, other: &Self) -> bool {
        match (self.attempt, other.attempt) {
            (Some(this), Some(other)) => this > other,
            _ => self.at >= other.at,
        }
    }
}

/// Whether `reports` has `new` already: the response to it was lost, and it was sent again.
/// `since`: the run's latest deployment; `resumed_at`: when an operator last resumed the run.
#[must_use]
pub fn is_repeat(
    reports: &[Report],
    new: &Callback<'_>,
    since: Timestamp,
    resumed_at: Option<Timestamp>,
) -> bool {
    let mut same_phase =
        reports.iter().filter(|report| report.at >= since).filter_map(Callback::of).filter(
            |said| said.phase == new.phase && said.attempt.is_some() == new.attempt.is_some(),
        );
    match new.attempt {
        Some(_) => same_phase.any(|said| (said.attempt, said.status) == (new.attempt, new.status)),
        None => same_phase.next_back().is_some_and(|said| {
            said.status == new.status
                && new.at.seconds_since(said.at) < REPEAT_SECONDS
                && resumed_at.is_none_or(|resumed| said.at > resumed)
        }),
    }
}

/// Reports of the current deployment, in order of their arrival.
fn callbacks<'a>(s: &Snapshot<'a>) -> impl Iterator<Item = Callback<'a>> {
    s.deployment_reports().filter_map(Callback::of)
}

/// The report of a phase that holds: the last one of its latest attempt.
#[must_use]
pub fn latest<'a>(s: &Snapshot<'a>, phase: BootstrapPhase) -> Option<Callback<'a>> {
    callbacks(s)
        .filter(|said| said.phase == phase)
        .reduce(|holds, said| if said.is_outdated_by(&holds) { holds } else { said })
}

/// How the site bootstrap stands.
#[derive(Debug, Clone, PartialEq)]
pub enum SiteBootstrap<'a> {
    /// Nothing was heard of it, or of anything after it.
    Unheard,
    /// An attempt is running as far as anybody knows.
    Running(Callback<'a>),
    /// Its latest attempt failed.
    Failed(Callback<'a>),
    /// It succeeded.
    Succeeded {
        /// When that was known.
        at: Timestamp,
        /// What shows it.
        evidence: String,
    },
}

/// How the site bootstrap stands by its own reports and by those that only follow its success.
#[must_use]
pub fn site_bootstrap<'a>(s: &Snapshot<'a>) -> SiteBootstrap<'a> {
    use BootstrapPhase::{NodeBootstrap, SiteBootstrap as Site};
    use ProgressStatus::{Failed, Started, Succeeded};
    let site = latest(s, Site);
    if let Some(said) = site.filter(|said| said.status == Succeeded) {
        return SiteBootstrap::Succeeded {
            at: said.at,
            evidence: format!("succeeded at {}", said.at),
        };
    }
    let went_on = |said: &Callback<'_>| said.phase == NodeBootstrap && said.status != Failed;
    let later =
        callbacks(s).filter(went_on).find(|said| site.is_none_or(|site| said.is_after(&site)));
    if let Some(said) = later {
        let evidence = format!(
            "did not report success, but the node bootstrap, which runs after it, reported at {}",
            said.at
        );
        return SiteBootstrap::Succeeded { at: said.at, evidence };
    }
    // An agent of an earlier attempt may enroll at any time.
    let installed_before =
        callbacks(s).any(|said| went_on(&said) || said.phase == Site && said.status == Succeeded);
    let enrolled = s
        .enrollment()
        .filter(|report| !installed_before && site.is_none_or(|site| report.at >= site.at));
    if let Some(report) = enrolled {
        let evidence = format!(
            "did not report success, but the agent, which is installed after it, enrolled at {}",
            report.at
        );
        return SiteBootstrap::Succeeded { at: report.at, evidence };
    }
    match site {
        None => SiteBootstrap::Unheard,
        Some(said) if said.status == Started => SiteBootstrap::Running(said),
        Some(said) => SiteBootstrap::Failed(said),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use gpuaas_types::RunId;

    const AT: Timestamp = Timestamp::EPOCH;

    fn said(status: ProgressStatus, attempt: Option<u64>, seconds: f64) -> Report {
        let phase = BootstrapPhase::SiteBootstrap;
        let kind = ReportKind::Progress { phase, status, attempt, message: String::new() };
        let run_id: RunId = "00000000-0000-7000-8000-000000000001".parse().unwrap();
        Report { run_id, at: AT.plus_seconds(seconds), kind }
    }

    #[test]
    fn repeat_is_told_by_attempt_and_without_one_by_time() {
        use ProgressStatus::{Failed, Started};
        // What was heard, what comes, when an operator resumed, and whether it is a repeat.
        let first = vec![said(Failed, Some(1), 10.0)];
        let old = vec![said(Failed, None, 10.0)];
        let between = vec![said(Failed, None, 10.0), said(Started, None, 20.0)];
        for (heard, new, resumed, repeat) in [
            (&first, said(Failed, Some(1), 4000.0), None, true),
            (&first, said(Failed, Some(2), 11.0), None, false),
            (&first, said(Started, Some(1), 11.0), None, false),
            (&old, said(Failed, None, 60.0), None, true),
            (&old, said(Failed, None, 200.0), None, false),
            (&old, said(Failed, None, 60.0), Some(30.0), false),
            (&between, said(Failed, None, 30.0), None, false),
            (&first, said(Failed, None, 11.0), None, false),
        ] {
            let new = Callback::of(&new).unwrap();
            let resumed = resumed.map(|seconds| AT.plus_seconds(seconds));
            assert_eq!(is_repeat(heard, &new, AT, resumed), repeat, "{heard:?} {new:?}");
            assert!(!is_repeat(heard, &new, AT.plus_seconds(50.0), None), "another deployment");
        }
    }
}
