//! What differs between a node in service and its machine in MAAS.
//!
//! MAAS is open to people, and its event feed says nothing of renaming, tagging, deleting
//! (docs/maas.md#events). So the machines of nodes in service are looked at, and this module
//! compares each with what was last remembered of it. Level-triggered: a difference is there as
//! long as it is seen, and gone when it is not.

use std::collections::BTreeSet;

use gpuaas_types::codes::NodeProblemCode;
use gpuaas_types::machine::{MachineView, maas_status as status};
use gpuaas_types::spec::SiteSpec;
use gpuaas_types::{DriftAction, DriftKind, Timestamp};

/// Intervals without a report after which hardware sync counts as stale
/// (docs/maas.md#hardware-sync).
const STALE_INTERVALS: f64 = 1.5;

/// MAAS' word for a machine that is switched off (docs/maas.md#power).
pub const POWER_OFF: &str = "off";

/// One difference.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Difference {
    /// Of which kind.
    pub kind: DriftKind,
    /// What is remembered.
    pub expected: String,
    /// What MAAS says.
    pub found: String,
}

/// A node in service and what MAAS shows of its machine.
#[derive(Debug, Clone, Copy)]
pub struct Comparison<'a> {
    /// Hostname of the node.
    pub hostname: &'a str,
    /// Address of the machine's BMC, as the node's record has it; none: not known.
    pub bmc_address: Option<&'a str>,
    /// The machine as last read by a run of the node.
    pub remembered: Option<&'a MachineView>,
    /// The machine as MAAS shows it now; none: MAAS does not list it any more.
    pub seen: Option<&'a MachineView>,
    /// Address at which MAAS reaches its BMC now; none: not asked.
    pub seen_bmc_address: Option<&'a str>,
    /// How MAAS logs in at its BMC now, and how it did; none: not asked.
    pub bmc_login: Option<&'a BmcLogin>,
}

impl Comparison<'_> {
    /// Kinds that this look cannot tell: what is known of them stays as it is.
    #[must_use]
    pub fn not_looked_at(&self) -> Vec<DriftKind> {
        let address = self.seen_bmc_address.is_none().then_some(DriftKind::BmcChanged);
        let login = self.bmc_login.is_none().then_some(DriftKind::BmcAccessChanged);
        let unknown = address.into_iter().chain(login);
        unknown.filter(|_| self.seen.is_some()).collect()
    }
}

/// How MAAS logs in at a BMC, in words that tell no password.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BmcLogin {
    /// As it was.
    pub expected: String,
    /// As it is; the same words where nothing differs.
    pub found: String,
}

impl BmcLogin {
    /// From the users, and whether the password is the same.
    #[must_use]
    pub fn new(expected: Option<&str>, found: Option<&str>, same_password: bool) -> Self {
        let user = |user: Option<&str>| format!("user {}", user.unwrap_or("(none)"));
        let password = if same_password { "" } else { ", another password" };
        Self { expected: user(expected), found: format!("{}{password}", user(found)) }
    }

    /// Whether anything differs.
    #[must_use]
    pub fn differs(&self) -> bool {
        self.expected != self.found
    }
}

/// Everything that differs at `now`.
#[must_use]
pub fn find_differences(comparison: &Comparison<'_>, now: Timestamp) -> Vec<Difference> {
    let Comparison { hostname, remembered, seen, .. } = *comparison;
    let mut all = Vec::new();
    let mut note = |kind, expected: String, found: String| {
        all.push(Difference { kind, expected, found });
    };
    let Some(seen) = seen else {
        note(DriftKind::Vanished, "a machine in MAAS".to_owned(), "no such machine".to_owned());
        return all;
    };
    if let Some(kind) = drift_of_status(seen.status) {
        note(kind, "Deployed".to_owned(), format!("MAAS says {}", status::label(seen.status)));
    } else if let Some(remembered) = remembered.filter(|m| m.status == status::DEPLOYED) {
        let (expected, found) = deployment_ids(remembered, seen);
        if expected != found {
            note(DriftKind::DeployedByHand, expected, found);
        }
    }
    if !seen.hostname.eq_ignore_ascii_case(hostname) {
        note(DriftKind::Renamed, hostname.to_owned(), seen.hostname.clone());
    }
    if let Some(remembered) = remembered {
        let (expected, found) = (tag_list(remembered), tag_list(seen));
        if expected != found {
            note(DriftKind::Retagged, expected, found);
        }
    }
    let groups = remembered.into_iter().flat_map(|remembered| {
        [
            (DriftKind::PoolChanged, &remembered.pool, &seen.pool),
            (DriftKind::ZoneChanged, &remembered.zone, &seen.zone),
        ]
    });
    for (kind, expected, found) in groups {
        if !expected.is_empty() && expected != found {
            note(kind, expected.clone(), found.clone());
        }
    }
    if let Some(login) = comparison.bmc_login.filter(|login| login.differs()) {
        note(DriftKind::BmcAccessChanged, login.expected.clone(), login.found.clone());
    }
    if let Some((expected, found)) = changed_bmc(comparison) {
        note(DriftKind::BmcChanged, expected.to_owned(), found.to_owned());
    }
    if seen.status == status::DEPLOYED && seen.power_state == POWER_OFF {
        note(DriftKind::PoweredOff, "on".to_owned(), "MAAS says off".to_owned());
    }
    if seen.locked && !remembered.is_some_and(|machine| machine.locked) {
        note(DriftKind::Locked, "not locked".to_owned(), "MAAS says locked".to_owned());
    }
    if let Some((expected, found)) = stale_hardware_sync(seen, now) {
        note(DriftKind::HwSyncStale, expected, found);
    }
    all
}

/// The BMC's address of the record and that of MAAS, where they differ. Redfish drivers keep a URL
/// where ipmi keeps an address.
fn changed_bmc<'a>(comparison: &Comparison<'a>) -> Option<(&'a str, &'a str)> {
    let (expected, found) = (comparison.bmc_address?, comparison.seen_bmc_address?);
    let host = |address: &str| {
        let rest = address.split_once("://").map_or(address, |(_, rest)| rest);
        rest.trim_end_matches('/').to_ascii_lowercase()
    };
    (host(expected) != host(found)).then_some((expected, found))
}

/// What a status other than Deployed means for a node in service.
const fn drift_of_status(number: i64) -> Option<DriftKind> {
    match number {
        status::DEPLOYED => None,
        status::DEPLOYING | status::FAILED_DEPLOYMENT => Some(DriftKind::DeployedByHand),
        status::RESCUE_MODE
        | status::ENTERING_RESCUE_MODE
        | status::FAILED_ENTERING_RESCUE_MODE
        | status::EXITING_RESCUE_MODE
        | status::FAILED_EXITING_RESCUE_MODE => Some(DriftKind::InRescueMode),
        _ => Some(DriftKind::ReleasedByHand),
    }
}

/// What tells one deployment from another. The number of the installation does so only where both
/// are known: a node deployed before numbers were remembered has none, and MAAS may have deleted
/// the results.
fn deployment_ids(remembered: &MachineView, seen: &MachineView) -> (String, String) {
    let numbered = remembered.installation_id.is_some() && seen.installation_id.is_some();
    let identity = |machine: &MachineView| {
        let owner = machine.owner.as_deref().unwrap_or("nobody");
        let number = machine.installation_id.filter(|_| numbered);
        let number = number.map(|id| format!(", installation {id}"));
        let system = format!("{}/{}", machine.osystem, machine.distro_series);
        format!("{system} of {owner}{}", number.unwrap_or_default())
    };
    (identity(remembered), identity(seen))
}

/// The machine as it should be remembered, where a control plane from before has not remembered all
/// that is compared now: from then on it is.
#[must_use]
pub fn with_what_was_missing(remembered: &MachineView, seen: &MachineView) -> Option<MachineView> {
    let numbered = with_installation_id(remembered, seen);
    let mut complete = numbered.clone().unwrap_or_else(|| remembered.clone());
    for (known, now) in [(&mut complete.pool, &seen.pool), (&mut complete.zone, &seen.zone)] {
        if known.is_empty() {
            known.clone_from(now);
        }
    }
    (complete != *remembered).then_some(complete)
}

/// Where what is remembered of its deployment has no number yet and `seen` is the same deployment as
/// far as can be told: from then on, another installation is noticed.
fn with_installation_id(remembered: &MachineView, seen: &MachineView) -> Option<MachineView> {
    let deployed = remembered.status == status::DEPLOYED && seen.status == status::DEPLOYED;
    let (before, now) = deployment_ids(remembered, seen);
    let unknown = remembered.installation_id.is_none() && seen.installation_id.is_some();
    (deployed && unknown && before == now)
        .then(|| MachineView { installation_id: seen.installation_id, ..remembered.clone() })
}

fn tag_list(machine: &MachineView) -> String {
    let tags: BTreeSet<&str> = machine.tags.iter().map(String::as_str).collect();
    if tags.is_empty() {
        return "no tags".to_owned();
    }
    tags.into_iter().collect::<Vec<_>>().join(", ")
}

fn stale_hardware_sync(machine: &MachineView, now: Timestamp) -> Option<(String, String)> {
    if !machine.enable_hw_sync || machine.status != status::DEPLOYED {
        return None;
    }
    let interval = f64::from(u32::try_from(machine.sync_interval_seconds?).ok()?);
    let last = machine.last_sync?;
    if now.seconds_since(last) <= STALE_INTERVALS * interval {
        return None;
    }
    // The age grows with every look; the moment does not, so that one silence is one finding.
    Some((format!("a report every {interval:.0} s"), format!("none since {last}")))
}

/// What the site says of a kind; what it leaves out is reported.
#[must_use]
pub fn action_of_policy(site: &SiteSpec, kind: DriftKind) -> DriftAction {
    let action = site.drift_policy.get(&kind).copied().unwrap_or(DriftAction::Report);
    // The pool is what makes a machine the site's.
    let own_pool = kind == DriftKind::PoolChanged && site.pool.is_some();
    let refused = !is_allowed(kind, action) || own_pool && action == DriftAction::Adopt;
    if refused { DriftAction::Report } else { action }
}

/// Whether a kind can be treated so: what is on a machine cannot be taken as ours.
#[must_use]
pub const fn is_allowed(kind: DriftKind, action: DriftAction) -> bool {
    match action {
        DriftAction::Report | DriftAction::Quarantine => true,
        DriftAction::Adopt => matches!(
            kind,
            DriftKind::Renamed
                | DriftKind::Retagged
                | DriftKind::BmcAccessChanged
                | DriftKind::PoolChanged
                | DriftKind::ZoneChanged
        ),
    }
}

/// Whether MAAS tells of a difference by an event, which names the user who made it
/// (docs/maas.md#events).
#[must_use]
pub const fn makes_event(kind: DriftKind) -> bool {
    match kind {
        DriftKind::ReleasedByHand
        | DriftKind::DeployedByHand
        | DriftKind::InRescueMode
        | DriftKind::PoweredOff
        | DriftKind::Locked => true,
        DriftKind::Vanished
        | DriftKind::Renamed
        | DriftKind::Retagged
        | DriftKind::BmcChanged
        | DriftKind::BmcAccessChanged
        | DriftKind::PoolChanged
        | DriftKind::ZoneChanged
        | DriftKind::HwSyncStale => false,
    }
}

/// What the advice about a difference speaks of.
#[derive(Debug, Clone, Copy)]
pub struct AdviceSubject<'a> {
    /// Hostname of the node.
    pub node: &'a str,
    /// Name of its site.
    pub site: &'a str,
    /// MAAS' identifier of its machine.
    pub system_id: &'a str,
    /// What is remembered.
    pub expected: &'a str,
    /// What MAAS says.
    pub found: &'a str,
}

/// What an operator may do about a difference: the advice of its problem
/// ([`gpuaas_types::codes::NODE_PROBLEMS`]), with what it speaks of filled in.
#[must_use]
pub fn advice(kind: DriftKind, subject: &AdviceSubject<'_>) -> String {
    let text = NodeProblemCode::of_drift(kind).row().advice(subject.node, subject.site);
    let text = text.replace("SYSTEM_ID", subject.system_id);
    text.replace("EXPECTED", subject.expected).replace("FOUND", subject.found)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::decide::fixture::{at, machine};

    fn deployed() -> MachineView {
        let mut deployed = machine(status::DEPLOYED);
        deployed.osystem = "ubuntu".to_owned();
        deployed.distro_series = "noble".to_owned();
        deployed.owner = Some("gpuaas".to_owned());
        deployed.installation_id = Some(7);
        deployed.power_state = "on".to_owned();
        (deployed.pool, deployed.zone) = ("north".to_owned(), "west".to_owned());
        deployed
    }

    fn compare<'a>(
        remembered: Option<&'a MachineView>,
        seen: Option<&'a MachineView>,
    ) -> Comparison<'a> {
        let bmc_address = Some("192.0.2.7");
        Comparison {
            hostname: "j22u11",
            bmc_address,
            remembered,
            seen,
            seen_bmc_address: None,
            bmc_login: None,
        }
    }

    fn kinds(change: impl Fn(&mut MachineView)) -> Vec<DriftKind> {
        let mut seen = deployed();
        change(&mut seen);
        let found = find_differences(&compare(Some(&deployed()), Some(&seen)), at(1000.0));
        found.into_iter().map(|difference| difference.kind).collect()
    }

    #[test]
    fn every_kind_is_seen_and_an_unchanged_machine_is_not() {
        assert_eq!(kinds(|_| {}), []);
        for gone in [status::READY, status::NEW, status::RELEASING, status::BROKEN] {
            assert_eq!(kinds(|m| m.status = gone), [DriftKind::ReleasedByHand]);
        }
        assert_eq!(kinds(|m| m.status = status::RESCUE_MODE), [DriftKind::InRescueMode]);
        assert_eq!(kinds(|m| m.status = status::DEPLOYING), [DriftKind::DeployedByHand]);
        assert_eq!(kinds(|m| m.installation_id = Some(8)), [DriftKind::DeployedByHand]);
        assert_eq!(kinds(|m| m.owner = Some("ann".to_owned())), [DriftKind::DeployedByHand]);
        assert_eq!(kinds(|m| m.distro_series = "jammy".to_owned()), [DriftKind::DeployedByHand]);
        assert_eq!(kinds(|m| m.hostname = "x".to_owned()), [DriftKind::Renamed]);
        assert_eq!(kinds(|m| m.tags = vec!["a".to_owned()]), [DriftKind::Retagged]);
        assert_eq!(kinds(|m| m.pool = "south".to_owned()), [DriftKind::PoolChanged]);
        assert_eq!(kinds(|m| m.zone = "east".to_owned()), [DriftKind::ZoneChanged]);
        assert_eq!(kinds(|m| m.locked = true), [DriftKind::Locked]);
        assert_eq!(kinds(|m| m.power_state = "off".to_owned()), [DriftKind::PoweredOff]);
        assert_eq!(kinds(|m| m.power_state = "error".to_owned()), [], "the BMC did not answer");
        let vanished = find_differences(&compare(Some(&deployed()), None), at(0.0));
        assert_eq!(vanished[0].kind, DriftKind::Vanished);
    }

    #[test]
    fn a_bmc_is_compared_where_both_addresses_are_known() {
        let machine = deployed();
        let with = |bmc_address, seen_bmc_address| {
            let plain = compare(Some(&machine), Some(&machine));
            let comparison = Comparison { bmc_address, seen_bmc_address, ..plain };
            find_differences(&comparison, at(0.0))
        };
        assert_eq!(with(Some("192.0.2.7"), Some("https://192.0.2.7/")), []);
        assert_eq!(with(None, Some("192.0.2.8")), []);
        assert_eq!(with(Some("192.0.2.7"), None), []);
        let moved = with(Some("192.0.2.7"), Some("192.0.2.8"));
        assert_eq!((moved.len(), moved[0].kind), (1, DriftKind::BmcChanged));
        assert_eq!((&*moved[0].expected, &*moved[0].found), ("192.0.2.7", "192.0.2.8"));
    }

    #[test]
    fn an_advice_leaves_nothing_open_but_what_the_operator_knows() {
        let subject = AdviceSubject {
            node: "j22u11",
            site: "lab",
            system_id: "abc123",
            expected: "before",
            found: "now",
        };
        for kind in DriftKind::ALL {
            let advice = advice(*kind, &subject);
            for open in ["NODE", "SITE", "SYSTEM_ID", "EXPECTED", "FOUND"] {
                assert!(!advice.contains(open), "{advice}");
            }
        }
        let moved = advice(DriftKind::BmcChanged, &subject);
        assert!(
            moved.contains("`gpuaas node set j22u11 --bmc-address now --reason WHY`"),
            "{moved}"
        );
    }

    #[test]
    fn a_deployment_from_before_numbers_were_remembered_is_no_other_one() {
        let mut old = deployed();
        old.installation_id = None;
        let of = |seen: &MachineView| find_differences(&compare(Some(&old), Some(seen)), at(0.0));
        assert_eq!(of(&deployed()), []);
        assert_eq!(with_what_was_missing(&old, &deployed()), Some(deployed()));
        let mut another = deployed();
        another.distro_series = "jammy".to_owned();
        assert_eq!(of(&another)[0].kind, DriftKind::DeployedByHand);
        assert_eq!(with_what_was_missing(&old, &another), None, "nobody vouches for that one");
        assert_eq!(with_installation_id(&deployed(), &deployed()), None);
        assert_eq!(kinds(|m| m.installation_id = None), [], "MAAS deleted the results");
    }

    #[test]
    fn hardware_sync_is_stale_after_one_and_a_half_intervals() {
        let synced = |age: f64| {
            kinds(|m| {
                m.enable_hw_sync = true;
                m.sync_interval_seconds = Some(100);
                m.last_sync = Some(at(1000.0 - age));
            })
        };
        assert_eq!(synced(150.0), []);
        assert_eq!(synced(151.0), [DriftKind::HwSyncStale]);
    }

    fn site(action: DriftAction, pool: Option<&str>) -> SiteSpec {
        let rules: std::collections::BTreeMap<_, _> =
            DriftKind::ALL.iter().map(|kind| (*kind, action)).collect();
        let spec = serde_json::json!({ "name": "lab", "url": "http://maas", "pool": pool });
        let spec: SiteSpec = serde_json::from_value(spec).unwrap();
        SiteSpec { drift_policy: rules, ..spec }
    }

    #[test]
    fn what_is_on_a_machine_cannot_be_adopted() {
        let adopting = site(DriftAction::Adopt, None);
        assert_eq!(action_of_policy(&adopting, DriftKind::Renamed), DriftAction::Adopt);
        assert_eq!(action_of_policy(&adopting, DriftKind::PoolChanged), DriftAction::Adopt);
        assert_eq!(action_of_policy(&adopting, DriftKind::Vanished), DriftAction::Report);
        let none = SiteSpec { drift_policy: std::collections::BTreeMap::new(), ..adopting };
        assert_eq!(action_of_policy(&none, DriftKind::Vanished), DriftAction::Report);
        let own = site(DriftAction::Adopt, Some("north"));
        assert_eq!(action_of_policy(&own, DriftKind::PoolChanged), DriftAction::Report);
        let holding = site(DriftAction::Quarantine, None);
        assert_eq!(action_of_policy(&holding, DriftKind::Vanished), DriftAction::Quarantine);
    }

    #[test]
    fn a_pool_and_a_zone_from_before_they_were_remembered_are_learned() {
        let mut old = deployed();
        (old.pool, old.zone) = (String::new(), String::new());
        let all = find_differences(&compare(Some(&old), Some(&deployed())), at(0.0));
        assert_eq!(all, []);
        assert_eq!(with_what_was_missing(&old, &deployed()), Some(deployed()));
        assert_eq!(with_what_was_missing(&deployed(), &deployed()), None);
    }

    #[test]
    fn a_login_differs_by_its_user_or_its_password_and_tells_neither_password() {
        let machine = deployed();
        let with = |login: &BmcLogin| {
            let plain = compare(Some(&machine), Some(&machine));
            find_differences(&Comparison { bmc_login: Some(login), ..plain }, at(0.0))
        };
        assert_eq!(with(&BmcLogin::new(Some("root"), Some("root"), true)), []);
        let other = with(&BmcLogin::new(Some("root"), Some("ann"), true));
        assert_eq!((&*other[0].expected, &*other[0].found), ("user root", "user ann"));
        let password = with(&BmcLogin::new(Some("root"), Some("root"), false));
        assert_eq!(password[0].kind, DriftKind::BmcAccessChanged);
        assert_eq!(password[0].found, "user root, another password");
    }
}
