//! What differs between a node in service and its machine in MAAS.
//!
//! MAAS is open to people, and its event feed says nothing of renaming, tagging, deleting
//! (docs/maas.md#events). So a slow sweep reads the machines of nodes in service, and this module
//! compares each with what was last remembered of it. Level-triggered: a difference is there as
//! long as it is seen, and gone when it is not.

use std::collections::{BTreeMap, BTreeSet};

use gpuaas_types::machine::{MachineView, maas_status as status};
use gpuaas_types::{DriftAction, DriftKind, Timestamp};

/// Intervals without a report after which hardware sync counts as stale
/// (docs/maas.md#hardware-sync).
const STALE_INTERVALS: f64 = 1.5;

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

/// Everything that differs. `remembered` is the machine as last read by a run of the node, `seen`
/// as MAAS shows it now; none: MAAS does not list it any more.
#[must_use]
pub fn find_differences(
    hostname: &str,
    remembered: Option<&MachineView>,
    seen: Option<&MachineView>,
    now: Timestamp,
) -> Vec<Difference> {
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
    if let Some((expected, found)) = stale_hardware_sync(seen, now) {
        note(DriftKind::HwSyncStale, expected, found);
    }
    all
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

/// The machine as it should be remembered, where what is remembered of its deployment has no
/// number yet and `seen` is the same deployment as far as can be told: from then on, another
/// installation is noticed.
#[must_use]
pub fn with_installation_id(remembered: &MachineView, seen: &MachineView) -> Option<MachineView> {
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

/// What the site's policy says of a kind; what it leaves out is reported.
#[must_use]
pub fn action_of_policy(policy: &BTreeMap<DriftKind, DriftAction>, kind: DriftKind) -> DriftAction {
    let action = policy.get(&kind).copied().unwrap_or(DriftAction::Report);
    if is_allowed(kind, action) { action } else { DriftAction::Report }
}

/// Whether a kind can be treated so: only a name and tags can be taken as ours.
#[must_use]
pub const fn is_allowed(kind: DriftKind, action: DriftAction) -> bool {
    match action {
        DriftAction::Report | DriftAction::Quarantine => true,
        DriftAction::Adopt => matches!(kind, DriftKind::Renamed | DriftKind::Retagged),
    }
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
        deployed
    }

    fn kinds(change: impl Fn(&mut MachineView)) -> Vec<DriftKind> {
        let mut seen = deployed();
        change(&mut seen);
        let found = find_differences("j22u11", Some(&deployed()), Some(&seen), at(1000.0));
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
        let vanished = find_differences("j22u11", Some(&deployed()), None, at(0.0));
        assert_eq!(vanished[0].kind, DriftKind::Vanished);
    }

    #[test]
    fn a_deployment_from_before_numbers_were_remembered_is_no_other_one() {
        let mut old = deployed();
        old.installation_id = None;
        let of = |seen: &MachineView| find_differences("j22u11", Some(&old), Some(seen), at(0.0));
        assert_eq!(of(&deployed()), []);
        assert_eq!(with_installation_id(&old, &deployed()), Some(deployed()));
        let mut another = deployed();
        another.distro_series = "jammy".to_owned();
        assert_eq!(of(&another)[0].kind, DriftKind::DeployedByHand);
        assert_eq!(with_installation_id(&old, &another), None, "nobody vouches for that one");
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

    #[test]
    fn only_names_and_tags_can_be_adopted() {
        let all = |action| DriftKind::ALL.iter().map(|kind| (*kind, action)).collect();
        let policy: BTreeMap<_, _> = all(DriftAction::Adopt);
        assert_eq!(action_of_policy(&policy, DriftKind::Renamed), DriftAction::Adopt);
        assert_eq!(action_of_policy(&policy, DriftKind::Vanished), DriftAction::Report);
        assert_eq!(action_of_policy(&BTreeMap::new(), DriftKind::Vanished), DriftAction::Report);
        let policy = all(DriftAction::Quarantine);
        assert_eq!(action_of_policy(&policy, DriftKind::Vanished), DriftAction::Quarantine);
    }
}
