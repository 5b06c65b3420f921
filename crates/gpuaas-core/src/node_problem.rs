//! What is wrong with a node: one list for whoever shows nodes.
//!
//! A function of what is known and of the time, so `explain`, `node show`, `node list --stuck` and
//! the exit code of `--wait` say the same. Each problem says whose view it is, since when it is
//! there, when it was last seen, and whether that is too long ago to rely on. Which problems there
//! are, who has to act and which commands help is the table [`gpuaas_types::codes::NODE_PROBLEMS`].
//!
//! While a run moves, it alone decides what becomes of the node: its host may be away on purpose,
//! so only its lateness counts. A parked run may have stopped because of any of the others.

mod blocked_slots;

use crate::drift::{AdviceSubject, advice};
use gpuaas_types::agent::GateClass;
use gpuaas_types::api::{
    Connectivity, ConnectivityState, Drift, GateView, Lateness, NodeProblem, Owner, Park,
    ParkAction, SiteControl, Source, Wait,
};
use gpuaas_types::codes::{NodeProblemCode, WaitCode, advised_commands};
use gpuaas_types::{NodeState, RunStatus, Step, Timestamp};

pub use self::blocked_slots::BlockedSlots;
use crate::connectivity::is_in_service;
use crate::decide::host_reboot::reboot_reasons;
use crate::elapsed::elapsed_as_text;
use crate::record::CheckOverride;

/// Seconds after which what MAAS said of a machine in service, or its agent of a gate, is too old to
/// rely on: four sweeps, and twice the time after which an agent repeats what has not changed.
pub const STALE_SECONDS: f64 = 3600.0;

/// Part of a certificate's time that is left when it ends soon. Agents ask for another one when two
/// thirds are over, or up to a tenth later.
const CERTIFICATE_LAST_PART: f64 = 0.2;

/// The open run of a node.
#[derive(Debug, Clone, Copy)]
pub struct RunFacts<'a> {
    /// How it stands.
    pub status: RunStatus,
    /// Where it is.
    pub step: Step,
    /// When that step began.
    pub step_since: Timestamp,
    /// How late it is; none: it is not.
    pub mark: Option<Lateness>,
    /// Why it stopped.
    pub park: Option<&'a Park>,
    /// What it waits for.
    pub wait: Option<&'a Wait>,
}

/// The certificate that a node's agent was given last.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct CertificateFacts {
    /// First moment at which it is valid.
    pub not_before: Timestamp,
    /// Last moment at which it is valid.
    pub not_after: Timestamp,
    /// When it was withdrawn; none: it was not.
    pub revoked_at: Option<Timestamp>,
    /// The time by which certificates are dated, which a clock of a simulation may run ahead of.
    pub dated_now: Timestamp,
}

/// What is known of a node.
#[derive(Debug, Clone, Copy)]
pub struct NodeFacts<'a> {
    /// Its hostname.
    pub hostname: &'a str,
    /// Name of its site.
    pub site: &'a str,
    /// MAAS' identifier of its machine; none: no machine is bound.
    pub system_id: Option<&'a str>,
    /// GPUaaS' own view of it.
    pub state: NodeState,
    /// When its row last changed.
    pub updated_at: Timestamp,
    /// Its open run; none: no run is open.
    pub run: Option<RunFacts<'a>>,
    /// Whether its agent is heard.
    pub connectivity: Connectivity,
    /// Last heartbeat.
    pub heartbeat_at: Option<Timestamp>,
    /// Seconds of silence that its profile allows, by the clock of `now`.
    pub allowed_silence_seconds: f64,
    /// What keeps its agent from its work, as it says; empty: nothing.
    pub troubles: &'a str,
    /// The certificate that its agent was given last; none: agents have none here.
    pub certificate: Option<CertificateFacts>,
    /// Its gates.
    pub gates: &'a [GateView],
    /// Approved slots that nobody can claim, because its profile makes no slice host.
    pub unusable_slots: u32,
    /// The slots of a slice host that cannot be used, as its last discovery found them; none: it has none.
    pub blocked_slots: Option<BlockedSlots<'a>>,
    /// How its machine differs from what is remembered.
    pub drift: &'a [Drift],
    /// Overrides of checks of its latest run, the latest of each check.
    pub overrides: &'a [CheckOverride],
    /// Why the machines of its site are not changed from here; none: they are.
    pub control: Option<&'a SiteControl>,
    /// When MAAS last said how its machine stands; none: no machine is bound.
    pub maas_said_at: Option<Timestamp>,
    /// Seconds after which that, or what its agent said of a gate, is too old, by the clock of `now`.
    pub stale_seconds: f64,
}

/// Everything that is wrong with a node, in the order of the table.
#[must_use]
pub fn node_problems(facts: &NodeFacts<'_>, now: Timestamp) -> Vec<NodeProblem> {
    let mut found = Found { facts, now, problems: Vec::new() };
    found.of_run();
    found.of_overrides();
    let moves = facts.run.is_some_and(|run| run.status != RunStatus::Parked);
    if !moves && is_in_service(facts.state) {
        found.of_machine();
        found.of_agent();
        found.of_certificate();
        found.of_gates();
        found.of_slots();
        found.of_state();
    }
    found.problems.sort_by_key(|(code, _)| *code);
    found.problems.into_iter().map(|(_, problem)| problem).collect()
}

/// Whether what a run waits for comes only once somebody acts: its advice is for now, and not for when
/// it takes longer than expected.
#[must_use]
pub fn waits_for_person(wait: Option<&Wait>) -> bool {
    use WaitCode::{
        BootstrapRerun, SiteClockWrong, SiteControlledElsewhere, SiteKeyRefused, SiteKeyUnreadable,
    };
    let code = wait.and_then(|wait| WaitCode::from_code(&wait.code));
    let people = [
        BootstrapRerun,
        SiteControlledElsewhere,
        SiteKeyRefused,
        SiteKeyUnreadable,
        SiteClockWrong,
    ];
    code.is_some_and(|code| people.contains(&code))
}

/// What to do about a run that takes longer than expected, and who can help.
#[must_use]
pub fn advice_of_wait(wait: Option<&Wait>, hostname: &str, site: &str) -> (Owner, String) {
    let row = wait.and_then(|wait| WaitCode::from_code(&wait.code)).map(WaitCode::row);
    // One that waits for nothing is the control plane's own matter.
    let none = "check the control plane's log: the run is due, but no worker has picked it up";
    let advice = row.map_or(none, |row| row.next_action);
    let owner = row.map_or(Owner::PlatformOperator, |row| row.owner);
    (owner, advice.replace("SITE", site).replace("NODE", hostname))
}

/// Problems as they are found.
struct Found<'a> {
    facts: &'a NodeFacts<'a>,
    now: Timestamp,
    problems: Vec<(NodeProblemCode, NodeProblem)>,
}

impl Found<'_> {
    /// Notes a problem with the owner and the advice of its row. `stale_seconds`: the age from
    /// which the look cannot be relied on.
    fn add(
        &mut self,
        code: NodeProblemCode,
        (since, observed_at): (Timestamp, Timestamp),
        stale_seconds: f64,
        text: &str,
    ) -> &mut NodeProblem {
        let (row, age) = (code.row(), self.now.seconds_since(observed_at).max(0.0));
        let (hostname, site) = (self.facts.hostname, self.facts.site);
        let whose = match row.source {
            Source::Maas => "MAAS",
            Source::Agent | Source::Bootstrap => "Agent",
            Source::ControlPlane | Source::Operator => "GPUaaS",
        };
        let next_action = row.advice(hostname, site);
        let problem = NodeProblem {
            code: code.into(),
            source: row.source,
            owner: row.owner,
            since,
            observed_at,
            observed_seconds_ago: age,
            stale: age > stale_seconds,
            text: format!("{whose}: {text}"),
            actions: advised_commands(&next_action, hostname),
            next_action,
        };
        self.problems.push((code, problem));
        let last = self.problems.len() - 1;
        &mut self.problems[last].1
    }

    /// A problem that is looked at whenever it is shown.
    fn add_now(&mut self, code: NodeProblemCode, since: Timestamp, text: &str) -> &mut NodeProblem {
        self.add(code, (since, self.now), f64::INFINITY, text)
    }

    fn of_run(&mut self) {
        let Some(run) = self.facts.run else { return };
        if let Some(park) = run.park {
            let text = format!("the run stopped because {} ({})", park.text, park.code);
            let problem = self.add_now(NodeProblemCode::RunParked, park.since, &text);
            problem.owner = park.owner;
            problem.next_action.clone_from(&park.next_action);
            problem.actions.clone_from(&park.actions);
        } else if run.mark.is_some() {
            let since = run.wait.map_or(run.step_since, |wait| wait.since);
            let waits = match run.wait {
                Some(wait) => format!("the run has been waiting for {} ({})", wait.text, wait.code),
                None => format!("no worker has picked up the run at step {}", run.step),
            };
            let age = elapsed_as_text(self.now.seconds_since(since));
            let text = format!("{waits} for {age}, longer than expected");
            let (hostname, site) = (self.facts.hostname, self.facts.site);
            let (owner, advice) = advice_of_wait(run.wait, hostname, site);
            let problem = self.add_now(NodeProblemCode::RunLate, since, &text);
            problem.owner = owner;
            problem.actions = advised_commands(&advice, hostname);
            if problem.actions.is_empty() {
                let command = format!("gpuaas explain {hostname}");
                problem.actions = vec![ParkAction { command, needs: advice.clone() }];
            }
            problem.next_action = advice;
        }
    }

    /// An override that has not ended: nobody may forget that a check counts as passed.
    fn of_overrides(&mut self) {
        for CheckOverride { check, actor, reason, at, until } in self.facts.overrides {
            if self.now < *until {
                let text =
                    format!("check {check} is overridden until {until} by {actor} ({reason})");
                self.add_now(NodeProblemCode::CheckOverridden, *at, &text);
            }
        }
    }

    fn of_machine(&mut self) {
        let facts = self.facts;
        for drift in facts.drift {
            let found = drift.found.strip_prefix("MAAS says ").unwrap_or(&drift.found);
            let by = drift.maas_user.as_ref().map(|user| format!(", changed by {user}"));
            let by = by.unwrap_or_default();
            let text = format!("{found}, expected {}{by}", drift.expected);
            let looks = (drift.since, drift.seen_at);
            let code = NodeProblemCode::of_drift(drift.kind);
            let subject = AdviceSubject {
                node: facts.hostname,
                site: facts.site,
                system_id: facts.system_id.unwrap_or("SYSTEM_ID"),
                expected: &drift.expected,
                found: &drift.found,
            };
            let problem = self.add(code, looks, facts.stale_seconds, &text);
            problem.next_action = advice(drift.kind, &subject);
            problem.actions = advised_commands(&problem.next_action, facts.hostname);
        }
        let Some(said_at) = facts.maas_said_at else { return };
        let age = self.now.seconds_since(said_at);
        if age > facts.stale_seconds {
            let age = elapsed_as_text(age);
            let text = format!("the latest data from MAAS about the machine is {age} old");
            let looks = (said_at, said_at);
            self.add(NodeProblemCode::MaasViewStale, looks, facts.stale_seconds, &text);
        }
    }

    fn of_agent(&mut self) {
        let facts = self.facts;
        let Some(heard_at) = facts.heartbeat_at else { return };
        if facts.connectivity.state == ConnectivityState::Offline {
            let age = elapsed_as_text(self.now.seconds_since(heard_at));
            let text = format!("the agent has been silent since {heard_at} ({age})");
            self.add_now(NodeProblemCode::AgentSilent, heard_at, &text);
        }
        if !facts.troubles.is_empty() {
            let reasons = reboot_reasons(facts.troubles);
            let text = match reasons.as_slice() {
                [] => format!("the agent cannot do its work: {}", facts.troubles),
                _ => format!("a reboot is needed because {}", reasons.join("; ")),
            };
            let looks = (heard_at, heard_at);
            self.add(NodeProblemCode::AgentTroubled, looks, facts.allowed_silence_seconds, &text);
        }
    }

    fn of_certificate(&mut self) {
        let Some(certificate) = self.facts.certificate else { return };
        let CertificateFacts { not_before, not_after, revoked_at, dated_now } = certificate;
        let left = not_after.seconds_since(dated_now);
        let life = not_after.seconds_since(not_before);
        if let Some(at) = revoked_at {
            let text = format!("the agent's certificate was revoked at {at}");
            self.add_now(NodeProblemCode::CertificateRevoked, at, &text);
        } else if left < 0.0 {
            let text = format!("the agent's certificate expired at {not_after}");
            self.add_now(NodeProblemCode::CertificateExpired, not_after, &text);
        } else if left < life * CERTIFICATE_LAST_PART {
            let since = not_after.plus_seconds(-life * CERTIFICATE_LAST_PART);
            let text = format!(
                "the agent's certificate expires in {}, at {not_after}, and has not been renewed",
                elapsed_as_text(left)
            );
            self.add_now(NodeProblemCode::CertificateEndsSoon, since, &text);
        }
    }

    fn of_gates(&mut self) {
        let facts = self.facts;
        let allowed = facts.allowed_silence_seconds;
        // What a silent agent said before is history at once.
        let silent = facts.connectivity.state == ConnectivityState::Offline;
        let stale_seconds = if silent { allowed } else { facts.stale_seconds };
        for gate in facts.gates.iter().filter(|gate| !gate.open) {
            let Some(class) = gate.class else { continue };
            let code = match class {
                GateClass::AgentFault => NodeProblemCode::GateAgentFault,
                GateClass::HostBaselineIncomplete => NodeProblemCode::GateBaselineIncomplete,
                GateClass::HostSetupIncomplete => NodeProblemCode::GateSetupIncomplete,
                GateClass::MachineUntagged => NodeProblemCode::GateMachineUntagged,
            };
            if let Some(said_at) = gate.said_at {
                let since = gate.since.unwrap_or(said_at);
                self.add(code, (since, said_at), stale_seconds, &gate.text);
                continue;
            }
            // An agent that has just come up has not looked at its gates yet.
            let since = facts.connectivity.since.unwrap_or(facts.updated_at);
            if self.now.seconds_since(since) > allowed {
                self.add_now(code, since, &gate.text);
            }
        }
    }

    fn of_slots(&mut self) {
        let Some(slots) = self.facts.blocked_slots else { return };
        let Some(summary) = slots.summary() else { return };
        let at = slots.observed_at;
        let hostname = self.facts.hostname;
        let problem =
            self.add(NodeProblemCode::SlotsBlocked, (at, at), f64::INFINITY, &summary.text);
        problem.owner = summary.owner;
        problem.next_action = summary.next_action.replace("NODE", hostname);
        problem.actions = advised_commands(&problem.next_action, hostname);
    }

    fn of_state(&mut self) {
        if self.facts.state == NodeState::Quarantined {
            let since = self.facts.updated_at;
            self.add_now(NodeProblemCode::Quarantined, since, "the node is quarantined");
        }
        if self.facts.unusable_slots > 0 {
            let (since, slots) = (self.facts.updated_at, self.facts.unusable_slots);
            let text = format!(
                "{slots} slots are approved, but the node's profile does not configure a slice host"
            );
            self.add_now(NodeProblemCode::SlotsWithoutSliceProfile, since, &text);
        }
        let code = NodeProblemCode::SiteControlledElsewhere;
        if let Some(control) = self.facts.control.filter(|control| code == *control.code) {
            self.add_now(code, control.since, &control.text);
        }
    }
}

#[cfg(test)]
mod tests;
