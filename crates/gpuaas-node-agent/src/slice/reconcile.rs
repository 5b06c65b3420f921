//! What of slices does not fit together on this host: domains and holders of functions that are of no
//! claim, and claims whose guest booted and whose domain does not run.
//!
//! The folder of a claim is written before its domain is defined and removed after the domain is gone,
//! so a domain without a folder is one that nobody will take back. It is looked for when the agent
//! starts, before anything is discovered or launched, and now and then. The agent says so in its
//! heartbeats. It stops such a domain at its start alone, where the host's settings want that, and only
//! one that bears a claim's name: a person's own domain is reported and left.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::fs;

use gpuaas_types::ClaimId;
use gpuaas_types::slice::{SLICES_FOLDER, SlicePartition};
use gpuaas_types::topology::{FabricPartition, HostTopology};
use host_facts::HostRoot;
use host_facts::topology::is_switch;

use super::guest_call;
use super::host::{SliceHost as _, SliceHostError};
use super::live::LiveSliceHost;
use super::preparation::{PREPARATION, Preparation};

/// Beginning of the name of a claim's domain.
const DOMAIN_PREFIX: &str = "gpuaas-";
/// Driver of functions that are for guests.
const GUEST_DRIVER: &str = "vfio-pci";

/// A claim that has a folder on the host.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct SurveyedClaim {
    /// Whether its guest called, and was not stopped since.
    is_booted: bool,
    /// PCI functions of its domain.
    functions: BTreeSet<String>,
    /// Partition of the NVSwitches that its launch made active.
    partition: Option<SlicePartition>,
}

type Claims = BTreeMap<ClaimId, SurveyedClaim>;

/// Claims, domains and holders of a host. Claims are read before and after the rest: what is launched
/// or taken back meanwhile is no discrepancy.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct HostSurvey {
    before: Claims,
    /// Domains by name, and whether they run.
    domains: BTreeMap<String, bool>,
    /// PCI functions for guests that somebody holds, with the holders.
    held: Vec<(String, String)>,
    /// Partitions of the NVSwitches that are active; none: there is no fabric manager to ask.
    active: Option<Vec<FabricPartition>>,
    after: Claims,
}

/// Something of slices that does not fit together.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum SliceDiscrepancy {
    /// A domain is of no claim.
    DomainUnclaimed {
        /// Its name.
        name: String,
        /// Whether it was stopped and forgotten.
        is_stopped: bool,
    },
    /// A function is held by something else than the domain of a claim.
    FunctionHeld {
        /// PCI address.
        address: String,
        /// Programs and process numbers.
        holders: String,
    },
    /// A partition of the NVSwitches is active for no claim.
    PartitionUnclaimed {
        /// Number of the partition.
        id: u32,
        /// Module ids of its GPUs.
        modules: Vec<u32>,
        /// Whether it was deactivated.
        is_stopped: bool,
    },
    /// The partition of a claim whose guest booted is not active: the fabric manager was started anew.
    PartitionMissing {
        /// The claim.
        claim: ClaimId,
        /// Module ids of its GPUs.
        modules: Vec<u32>,
    },
    /// The guest of a claim booted, and its domain does not run.
    DomainMissing {
        /// The claim.
        claim: ClaimId,
        /// Whether libvirt knows the domain.
        is_defined: bool,
    },
}

impl fmt::Display for SliceDiscrepancy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::DomainUnclaimed { name, is_stopped: false } => {
                write!(f, "slice_domain_unclaimed: domain {name} belongs to no claim of this host")
            }
            Self::DomainUnclaimed { name, is_stopped: true } => {
                write!(
                    f,
                    "slice_domain_unclaimed: domain {name} belonged to no claim and was stopped"
                )
            }
            Self::FunctionHeld { address, holders } => {
                write!(
                    f,
                    "slice_function_held: {holders} holds {address}, but no claim's domain uses it"
                )
            }
            Self::PartitionUnclaimed { id, modules, is_stopped } => {
                let state = if *is_stopped {
                    "was active but unclaimed; the agent deactivated it"
                } else {
                    "is active but unclaimed on this host"
                };
                write!(
                    f,
                    "slice_partition_unclaimed: partition {id} of modules {modules:?} {state}"
                )
            }
            Self::PartitionMissing { claim, modules } => write!(
                f,
                "slice_partition_missing: the partition of modules {modules:?} of claim {claim} is \
                 inactive: its guest has lost its NVLinks"
            ),
            Self::DomainMissing { claim, is_defined } => {
                let state = if *is_defined { "is not running" } else { "no longer exists" };
                write!(
                    f,
                    "slice_domain_missing: claim {claim} has a booted guest, but its domain {state}"
                )
            }
        }
    }
}

fn claim_of(name: &str) -> Option<ClaimId> {
    name.strip_prefix(DOMAIN_PREFIX)?.parse().ok()
}

impl HostSurvey {
    fn discrepancies(&self) -> Vec<SliceDiscrepancy> {
        let is_claimed = |name: &str| {
            claim_of(name)
                .is_some_and(|id| self.before.contains_key(&id) || self.after.contains_key(&id))
        };
        let unclaimed = self.domains.keys().filter(|name| !is_claimed(name)).map(|name| {
            SliceDiscrepancy::DomainUnclaimed { name: name.clone(), is_stopped: false }
        });
        let claimed = |address: &str| {
            let mut claims = self.before.values().chain(self.after.values());
            claims.any(|claim| claim.functions.contains(address))
        };
        let held = self.held.iter().filter(|(address, _)| !claimed(address)).map(|one| {
            SliceDiscrepancy::FunctionHeld { address: one.0.clone(), holders: one.1.clone() }
        });
        let missing = self.after.iter().filter_map(|(id, claim)| {
            let was_booted = self.before.get(id).is_some_and(|claim| claim.is_booted);
            let domain = self.domains.get(&format!("{DOMAIN_PREFIX}{id}"));
            (was_booted && claim.is_booted && domain != Some(&true)).then_some(
                SliceDiscrepancy::DomainMissing { claim: *id, is_defined: domain.is_some() },
            )
        });
        unclaimed.chain(held).chain(missing).chain(self.partition_discrepancies()).collect()
    }

    fn partition_discrepancies(&self) -> Vec<SliceDiscrepancy> {
        let Some(active) = &self.active else { return Vec::new() };
        let is_claimed = |one: &&FabricPartition| {
            let mut claims = self.before.values().chain(self.after.values());
            claims
                .any(|claim| claim.partition.as_ref().is_some_and(|own| own.modules == one.modules))
        };
        let unclaimed = active.iter().filter(|one| !is_claimed(one)).map(|one| {
            let (id, modules) = (one.id, one.modules.clone());
            SliceDiscrepancy::PartitionUnclaimed { id, modules, is_stopped: false }
        });
        let missing = self.after.iter().filter_map(|(id, claim)| {
            let was_booted = self.before.get(id).is_some_and(|claim| claim.is_booted);
            let own = claim.partition.as_ref()?;
            let is_active = active.iter().any(|one| one.modules == own.modules);
            (was_booted && claim.is_booted && !is_active).then(|| {
                SliceDiscrepancy::PartitionMissing { claim: *id, modules: own.modules.clone() }
            })
        });
        unclaimed.chain(missing).collect()
    }
}

/// Addresses of the host's functions in a domain's document, which has an element a line.
fn functions_of(document: &str) -> BTreeSet<String> {
    let address = |line: &str| {
        let rest = line.trim().strip_prefix("<address domain=")?;
        let mut parts = rest.split('"').skip(1).step_by(2).map(|part| part.strip_prefix("0x"));
        let mut next = || parts.next().flatten();
        Some(format!("{}:{}:{}.{}", next()?, next()?, next()?, next()?))
    };
    document.lines().filter_map(address).collect()
}

fn read_claims(root: &HostRoot) -> Claims {
    let folder = root.join(SLICES_FOLDER.trim_start_matches('/'));
    let folders = fs::read_dir(folder).into_iter().flatten().flatten();
    let claims = folders.filter_map(|folder| {
        let id: ClaimId = folder.file_name().to_str()?.parse().ok()?;
        let document = fs::read_to_string(folder.path().join("domain.xml")).unwrap_or_default();
        let is_booted = guest_call::received_call(&folder.path()).is_some();
        let preparation = fs::read(folder.path().join(PREPARATION)).ok();
        let preparation: Option<Preparation> =
            preparation.and_then(|bytes| serde_json::from_slice(&bytes).ok());
        let partition = preparation.and_then(|preparation| preparation.partition);
        let functions = functions_of(&document);
        Some((id, SurveyedClaim { is_booted, functions, partition }))
    });
    claims.collect()
}

/// Whether a slice was ever launched on the host.
pub(super) fn had_slices(root: &HostRoot) -> bool {
    root.join(SLICES_FOLDER.trim_start_matches('/')).is_dir()
}

/// Partitions that are active; none: the host has no NVSwitches, or nobody answers for them.
async fn active_partitions(
    host: &LiveSliceHost<'_>,
    topology: &HostTopology,
) -> Option<Vec<FabricPartition>> {
    if !topology.functions.iter().any(is_switch) {
        return None;
    }
    match host.fabric_manager().partitions().await {
        Ok(all) => Some(all.into_iter().filter(|one| one.active).collect()),
        Err(error) => {
            tracing::warn!(%error, "cannot compare the partitions of this host");
            None
        }
    }
}

/// What of slices does not fit together on `host`; with `stops`, domains with a claim's name that are of
/// no claim are stopped and forgotten, and partitions of no claim are deactivated where no guest holds
/// a function.
///
/// # Errors
/// libvirt, sysfs or procfs cannot be asked.
pub(super) async fn find_discrepancies(
    host: &LiveSliceHost<'_>,
    stops: bool,
) -> Result<Vec<SliceDiscrepancy>, SliceHostError> {
    let before = read_claims(host.root());
    let domains = host.domains().await?;
    let topology = host.topology().await?;
    let active = active_partitions(host, &topology).await;
    let functions = topology.functions.into_iter();
    let held = functions.filter(|one| one.driver.as_deref() == Some(GUEST_DRIVER));
    let held = held.filter_map(|one| {
        let holders = one.holders.filter(|holders| !holders.is_empty())?;
        let names = holders.iter().map(|it| format!("{} ({})", it.program, it.pid));
        Some((one.address, names.collect::<Vec<_>>().join(" and ")))
    });
    let held: Vec<(String, String)> = held.collect();
    let after = read_claims(host.root());
    let survey = HostSurvey { before, domains, held, active, after };
    let mut found = survey.discrepancies();
    for one in found.iter_mut().filter(|_| stops) {
        // Whoever holds a function may be a guest on these links.
        if let SliceDiscrepancy::PartitionUnclaimed { id, is_stopped, .. } = one
            && survey.held.is_empty()
        {
            match host.fabric_manager().deactivate(*id).await {
                Ok(()) => *is_stopped = true,
                Err(error) => tracing::warn!(%error, id, "cannot deactivate a partition"),
            }
        }
        let SliceDiscrepancy::DomainUnclaimed { name, is_stopped } = one else { continue };
        if claim_of(name).is_none() {
            continue;
        }
        let is_running = survey.domains.get(name).copied().unwrap_or_default();
        match host.remove_domain(name, is_running).await {
            Ok(()) => *is_stopped = true,
            Err(error) => tracing::warn!(%error, name, "cannot stop an unclaimed domain"),
        }
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(last: u32) -> ClaimId {
        format!("01913f6e-7c00-7000-8000-{last:012}").parse().unwrap()
    }

    fn texts(survey: &HostSurvey) -> Vec<String> {
        survey.discrepancies().iter().map(ToString::to_string).collect()
    }

    #[test]
    fn what_fits_together_is_silent_and_each_misfit_is_named() {
        let document = "<source>\n  <address domain=\"0x0000\" bus=\"0x19\" slot=\"0x00\" function=\"0x0\"/>\n\
            </source>\n<address type=\"pci\" domain=\"0x0000\" bus=\"0x06\" slot=\"0x00\" function=\"0x0\"/>";
        let functions = functions_of(document);
        assert_eq!(functions, BTreeSet::from(["0000:19:00.0".to_owned()]));
        let claims =
            Claims::from([(id(1), SurveyedClaim { is_booted: true, functions, partition: None })]);
        let name = |last| format!("{DOMAIN_PREFIX}{}", id(last));
        let holder = |address: &str| (address.to_owned(), "qemu (7)".to_owned());
        let healthy = HostSurvey {
            before: claims.clone(),
            domains: BTreeMap::from([(name(1), true)]),
            held: vec![holder("0000:19:00.0")],
            active: Some(Vec::new()),
            after: claims.clone(),
        };
        assert_eq!(texts(&healthy), [""; 0]);
        let mut odd = healthy.clone();
        odd.domains.extend([(name(2), false), ("my-own".to_owned(), true)]);
        odd.held.push(holder("0000:1a:00.1"));
        let wanted = [
            format!("slice_domain_unclaimed: domain {} belongs to no claim of this host", name(2)),
            "slice_domain_unclaimed: domain my-own belongs to no claim of this host".to_owned(),
            "slice_function_held: qemu (7) holds 0000:1a:00.1, but no claim's domain uses it"
                .to_owned(),
        ];
        assert_eq!(texts(&odd), wanted);
        for (domains, state) in [
            (BTreeMap::from([(name(1), false)]), "is not running"),
            (BTreeMap::new(), "no longer exists"),
        ] {
            let missing = HostSurvey { domains, held: Vec::new(), ..healthy.clone() };
            let claim = id(1);
            let text = format!(
                "slice_domain_missing: claim {claim} has a booted guest, but its domain {state}"
            );
            assert_eq!(texts(&missing), [text]);
            // It was stopped, or taken back, while the host was read.
            for after in [Claims::from([(claim, SurveyedClaim::default())]), Claims::new()] {
                assert_eq!(texts(&HostSurvey { after, ..missing.clone() }), [""; 0]);
            }
        }
        // Launched, or taken back to the end, meanwhile.
        for (before, after) in [(Claims::new(), claims.clone()), (claims, Claims::new())] {
            assert_eq!(texts(&HostSurvey { before, after, ..healthy.clone() }), [""; 0]);
        }
    }

    #[test]
    fn partitions_of_no_claim_and_claims_without_theirs_are_named() {
        let partition = SlicePartition { id: 3, modules: vec![1, 3] };
        let claim = SurveyedClaim {
            is_booted: true,
            partition: Some(partition),
            ..SurveyedClaim::default()
        };
        let claims = Claims::from([(id(1), claim)]);
        let active =
            |id, modules: &[u32]| FabricPartition { id, modules: modules.to_vec(), active: true };
        let healthy = HostSurvey {
            before: claims.clone(),
            domains: BTreeMap::from([(format!("{DOMAIN_PREFIX}{}", id(1)), true)]),
            // The number may be another one after an update of the fabric manager.
            active: Some(vec![active(9, &[1, 3])]),
            after: claims,
            ..HostSurvey::default()
        };
        assert_eq!(texts(&healthy), [""; 0]);
        let stale = HostSurvey {
            active: Some(vec![active(9, &[1, 3]), active(4, &[2, 4])]),
            ..healthy.clone()
        };
        assert_eq!(
            texts(&stale),
            [
                "slice_partition_unclaimed: partition 4 of modules [2, 4] is active but unclaimed on this host"
            ]
        );
        let forgotten = HostSurvey { active: Some(Vec::new()), ..healthy.clone() };
        let [text] = &texts(&forgotten)[..] else { panic!("{forgotten:?}") };
        assert!(
            text.starts_with("slice_partition_missing: the partition of modules [1, 3] of claim")
        );
        // Nobody answers for the switches: nothing is known, and nothing is said.
        assert_eq!(texts(&HostSurvey { active: None, ..healthy }), [""; 0]);
    }
}
