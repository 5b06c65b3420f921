//! Faults as data: which, where, how often.
//!
//! A fault is scoped by machine and by endpoint label, limited by a count (in all, or for each
//! machine) and by a probability. Random numbers come from a stream of their own per fault and
//! machine, so that a fault on one machine changes nothing on another.

use std::collections::{HashMap, HashSet};

use serde::{Deserialize, Serialize};

use crate::rng::SimRng;

/// What goes wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FaultKind {
    /// The call is done, but the caller gets a 504.
    Accepted504,
    /// The caller gets a 504 and nothing was done.
    Refused504,
    /// 503 with `Retry-After`; nothing was done.
    Unavailable503,
    /// The call is done and the connection is closed without an answer.
    ResetAfterAccept,
    /// The connection is closed without an answer; nothing was done.
    ResetBefore,
    /// MAAS, or what stands before it, answers with `status` (default 403) and `message`; nothing
    /// was done.
    Answered,
    /// The answer shows the resource as if the call had been taken; nothing was done.
    Ignored,
    /// The answer comes `seconds` later (default 30).
    Slow,
    /// A proxy holds the call for `seconds` (default 30) before the region carries it out. Others
    /// overtake it, and the region carries it out also where its caller is gone by then.
    Held,
    /// The same in the queue of a busy region: calls are carried out in the order in which they came.
    Queued,
    /// A power action fails: 500 with the driver's text after the state change was committed.
    BmcError,
    /// The power-off of every release fails like that until a caller has switched the machine on:
    /// it takes a power cycle.
    HungPower,
    /// No rack controller is connected.
    NoRack,
    /// Commissioning scripts fail.
    CommissioningFailed,
    /// Tests fail.
    TestingFailed,
    /// One script of a commissioning or of its tests fails: the first whose name has `message` in
    /// it. A machine that runs none such is spared.
    ScriptFailed,
    /// curtin fails: Failed deployment.
    DeployFailed,
    /// Nothing more is heard of the deploying machine until the region gives up.
    StuckDeploying,
    /// Nothing more is heard of the commissioning machine until the region gives up.
    StuckCommissioning,
    /// The image is written, but the deployed system never reaches its data source; the region
    /// gives up at the node timeout.
    DatasourceFailure,
    /// The power-off of a release is never seen.
    StuckReleasing,
    /// Nothing more is heard of the machine whose disks are being erased.
    StuckErasing,
    /// The commissioning does not find the disks whose kernel name begins with `message` (default:
    /// any).
    DisksMissing,
    /// The boot interface comes up on another VLAN.
    WrongPxeNic,
    /// The machine has no boot interface after commissioning.
    NoBootInterface,
    /// Another machine appears that claims the boot interface's MAC address.
    DuplicateMac,
    /// Events of the machine are not recorded.
    EventsGap,
    /// The machine disappears from MAAS when it enters the status named by `when`.
    Vanished,
    /// After Ready, power flaps between on, error and off for a while.
    FlappingPower,
}

/// One fault to inject, with its scope and how often it applies.
///
/// ```
/// use maas_sim::{ResponseDelivery, Fault, FaultKind, Region, RegionConfig, SimRequest};
///
/// let mut region = Region::new(RegionConfig::default());
/// // The first call of `version/` is answered, and the answer is lost on its way.
/// region.inject(Fault::new(FaultKind::ResetAfterAccept).at("version").times(1));
/// let request = SimRequest {
///     method: "GET".to_owned(),
///     path: "/MAAS/api/2.0/version/".to_owned(),
///     ..SimRequest::default()
/// };
/// assert_eq!(region.handle(0, 0, &request).delivery, ResponseDelivery::Reset);
/// assert_eq!(region.handle(0, 0, &request).status, 200);
/// ```
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Fault {
    /// Number given by the region.
    #[serde(default)]
    pub id: u64,
    /// What goes wrong.
    pub kind: FaultKind,
    /// Hostname or system id; absent for every machine.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub machine: Option<String>,
    /// Endpoint label such as `machine.deploy`, or a prefix ending in `*`; absent for any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub endpoint: Option<String>,
    /// How often in all; absent for always.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub count: Option<u32>,
    /// How often for each machine; absent for always.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub per_machine: Option<u32>,
    /// Probability at each opportunity, 0 to 1; absent for 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub probability: Option<f64>,
    /// Opportunities to let pass first.
    #[serde(default)]
    pub skip: u32,
    /// Length, where the kind has one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub seconds: Option<f64>,
    /// Longest length: each is drawn between `seconds` and this; absent: all are `seconds`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub up_to_seconds: Option<f64>,
    /// HTTP status, where the kind has one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub status: Option<u16>,
    /// Text, where the kind has one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
    /// Status word, where the kind has one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub when: Option<String>,
}

impl Fault {
    /// A fault that applies everywhere and always.
    #[must_use]
    pub fn new(kind: FaultKind) -> Self {
        Self {
            id: 0,
            kind,
            machine: None,
            endpoint: None,
            count: None,
            per_machine: None,
            probability: None,
            skip: 0,
            seconds: None,
            up_to_seconds: None,
            status: None,
            message: None,
            when: None,
        }
    }

    /// Limits it to a machine, by hostname or system id.
    #[must_use]
    pub fn on(mut self, machine: &str) -> Self {
        self.machine = Some(machine.to_owned());
        self
    }

    /// Limits it to an endpoint label, or to those with a prefix that ends in `*`.
    #[must_use]
    pub fn at(mut self, endpoint: &str) -> Self {
        self.endpoint = Some(endpoint.to_owned());
        self
    }

    /// Limits how often it applies in all.
    #[must_use]
    pub fn times(mut self, count: u32) -> Self {
        self.count = Some(count);
        self
    }

    /// Limits how often it applies to each machine.
    #[must_use]
    pub fn times_each(mut self, count: u32) -> Self {
        self.per_machine = Some(count);
        self
    }

    /// The script that it makes fail.
    pub(crate) fn script_to_fail<'a>(&self, scripts: &'a [String]) -> Option<&'a String> {
        let part = self.message.as_deref().unwrap_or("");
        scripts.iter().find(|name| name.contains(part))
    }

    /// Sets how long it lasts, in simulated seconds.
    #[must_use]
    pub fn lasting_seconds(mut self, seconds: f64) -> Self {
        self.seconds = Some(seconds);
        self
    }

    /// Has it last between `least` and `most` simulated seconds, drawn each time.
    #[must_use]
    pub fn lasting_between(mut self, least: f64, most: f64) -> Self {
        (self.seconds, self.up_to_seconds) = (Some(least), Some(most));
        self
    }

    /// Sets its HTTP status.
    #[must_use]
    pub fn with_status(mut self, status: u16) -> Self {
        self.status = Some(status);
        self
    }

    /// Sets its text.
    #[must_use]
    pub fn with_message(mut self, message: &str) -> Self {
        self.message = Some(message.to_owned());
        self
    }
}

/// A fault file that cannot be read.
#[derive(Debug, thiserror::Error)]
#[error("invalid fault file: {0}")]
pub struct FaultFileError(String);

/// Reads a list of faults, or an object with a list `faults`, from JSON or YAML.
///
/// # Errors
/// When the text is neither, or a fault has an unknown field or kind.
pub fn parse_faults(text: &str) -> Result<Vec<Fault>, FaultFileError> {
    #[derive(Deserialize)]
    #[serde(deny_unknown_fields)]
    struct File {
        faults: Vec<Fault>,
    }
    if text.trim_start().starts_with(['[', '-']) {
        return serde_saphyr::from_str(text).map_err(|e| FaultFileError(e.to_string()));
    }
    serde_saphyr::from_str::<File>(text)
        .map(|f| f.faults)
        .map_err(|e| FaultFileError(e.to_string()))
}

#[derive(Debug, Default, Clone)]
struct FaultUse {
    seen: u32,
    fired: u32,
    each: HashMap<String, (u32, SimRng)>,
    cleared: HashSet<String>,
}

/// Where and when a fault may apply: the call or the activity at hand.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct FaultTrigger<'a> {
    pub(crate) endpoint: Option<&'a str>,
    pub(crate) hostname: Option<&'a str>,
    pub(crate) system_id: Option<&'a str>,
    /// Name of the host, where MAAS may know the machine by another.
    pub(crate) host: Option<&'a str>,
    /// Scripts that end now.
    pub(crate) scripts: &'a [String],
}

#[derive(Debug, Default, Clone)]
pub(crate) struct Faults {
    seed: u64,
    next: u64,
    list: Vec<(Fault, FaultUse)>,
}

impl Faults {
    pub(crate) fn seeded(seed: u64) -> Self {
        Self { seed, ..Self::default() }
    }

    pub(crate) fn add(&mut self, mut fault: Fault) -> u64 {
        self.next += 1;
        fault.id = self.next;
        self.list.push((fault, FaultUse::default()));
        self.next
    }

    pub(crate) fn clear(&mut self) {
        self.list.clear();
    }

    pub(crate) fn remove(&mut self, id: u64) {
        self.list.retain(|(fault, _)| fault.id != id);
    }

    pub(crate) fn all(&self) -> impl Iterator<Item = (&Fault, u32)> {
        self.list.iter().map(|(fault, used)| (fault, used.fired))
    }

    /// Ends the faults of a kind for one machine.
    pub(crate) fn clear_for(&mut self, kind: FaultKind, at: FaultTrigger<'_>) {
        for (_, used) in self.list.iter_mut().filter(|(f, _)| f.kind == kind && matches(f, at)) {
            used.cleared.insert(at.hostname.unwrap_or("").to_owned());
        }
    }

    /// The first fault of one of these kinds that applies here and now; it counts as used.
    pub(crate) fn trigger(&mut self, kinds: &[FaultKind], at: FaultTrigger<'_>) -> Option<Fault> {
        let seed = self.seed;
        self.list.iter_mut().find_map(|(fault, used)| {
            (kinds.contains(&fault.kind) && matches(fault, at) && used.triggers(fault, at, seed))
                .then(|| used.draw_length(fault, at))
        })
    }
}

fn matches(fault: &Fault, at: FaultTrigger<'_>) -> bool {
    let machine = fault
        .machine
        .as_deref()
        .is_none_or(|m| [at.hostname, at.system_id, at.host].contains(&Some(m)));
    let endpoint = fault.endpoint.as_deref().is_none_or(|want| {
        at.endpoint.is_some_and(|label| match want.strip_suffix('*') {
            Some(prefix) => label.starts_with(prefix),
            None => label == want,
        })
    });
    let script =
        fault.kind != FaultKind::ScriptFailed || fault.script_to_fail(at.scripts).is_some();
    machine && endpoint && script
}

impl FaultUse {
    /// The fault with the length of this time.
    fn draw_length(&mut self, fault: &Fault, at: FaultTrigger<'_>) -> Fault {
        let drawn = self.each.get_mut(at.hostname.unwrap_or("")).zip(fault.up_to_seconds);
        let least = fault.seconds.unwrap_or(0.0);
        let seconds = drawn.map(|((_, rng), most)| least + (most - least) * rng.uniform());
        Fault { seconds: seconds.or(fault.seconds), ..fault.clone() }
    }

    fn triggers(&mut self, fault: &Fault, at: FaultTrigger<'_>, seed: u64) -> bool {
        let name = at.hostname.unwrap_or("");
        let (fired, rng) = self
            .each
            .entry(name.to_owned())
            .or_insert_with(|| (0, SimRng::for_name(seed, &format!("fault/{}/{name}", fault.id))));
        if self.cleared.contains(name)
            || fault.count.is_some_and(|n| self.fired >= n)
            || fault.per_machine.is_some_and(|n| *fired >= n)
        {
            return false;
        }
        if fault.probability.is_some_and(|p| rng.uniform() >= p) {
            return false;
        }
        self.seen += 1;
        if self.seen <= fault.skip {
            return false;
        }
        *fired += 1;
        self.fired += 1;
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_and_scopes() {
        let list = parse_faults("faults:\n- {kind: deploy_failed, machine: a, count: 1}\n- {kind: slow, endpoint: 'machine.*', seconds: 2}\n")
            .expect("yaml");
        assert_eq!(
            parse_faults("[{\"kind\":\"slow\",\"endpoint\":\"machine.*\",\"seconds\":2}]")
                .expect("json"),
            list[1..]
        );
        assert!(parse_faults("[{\"kind\":\"slow\",\"sconds\":2}]").is_err());
        let mut faults = Faults::seeded(1);
        list.into_iter().for_each(|f| {
            faults.add(f);
        });
        let on = |hostname| FaultTrigger {
            hostname: Some(hostname),
            endpoint: Some("machine.read"),
            ..FaultTrigger::default()
        };
        assert!(faults.trigger(&[FaultKind::DeployFailed], on("b")).is_none());
        assert!(faults.trigger(&[FaultKind::DeployFailed], on("a")).is_some());
        assert!(faults.trigger(&[FaultKind::DeployFailed], on("a")).is_none());
        assert!(faults.trigger(&[FaultKind::Slow], on("a")).is_some());
    }
}
