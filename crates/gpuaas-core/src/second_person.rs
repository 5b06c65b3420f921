//! When a request waits for another person, and who may say yes to it.
//!
//! A site's policy ([`SecondPersonPolicy`]) is off until somebody sets it. What erases is counted: one
//! person may begin so many erasing runs at a site within an hour, whether in one batch or one by one,
//! and the one that would be too many waits, so a loop is held like a batch. Everything here is a
//! function of data; the store keeps the count and the request, the API asks and carries out.

use gpuaas_types::approval::ApprovalState;
use gpuaas_types::spec::SecondPersonPolicy;
use gpuaas_types::{RunKind, Timestamp};

/// Seconds for which an erasing run counts against the person who began it.
pub const COUNTED_SECONDS: f64 = 3_600.0;
/// Seconds for which a request waits.
pub const APPROVAL_SECONDS: f64 = 86_400.0;

/// Whether a run of this kind counts as erasing: it takes away what is on a node, or lets go of the
/// machine (detach), so that another site, or somebody in MAAS, may erase it.
#[must_use]
pub const fn erases(kind: RunKind) -> bool {
    match kind {
        RunKind::Onboard
        | RunKind::Decommission
        | RunKind::Reimage
        | RunKind::SoftReset
        | RunKind::StorageCleanup
        | RunKind::Detach => true,
        RunKind::Remove => false,
    }
}

/// The policy in force at a site: the strictest parts of the policies of all sites of its region. Two
/// sites of one region share its machines, so the laxer policy would otherwise undo the stricter one.
#[must_use]
pub fn policy_in_force<'a>(
    policies: impl IntoIterator<Item = &'a SecondPersonPolicy>,
) -> SecondPersonPolicy {
    let none = SecondPersonPolicy::default();
    policies.into_iter().fold(none, |force, policy| SecondPersonPolicy {
        erasing_above: match (force.erasing_above, policy.erasing_above) {
            (Some(one), Some(other)) => Some(one.min(other)),
            (one, other) => one.or(other),
        },
        bundle_approvals: force.bundle_approvals || policy.bundle_approvals,
        agent_updates: force.agent_updates || policy.agent_updates,
        image_approvals: force.image_approvals || policy.image_approvals,
    })
}

/// What is asked for, as far as a policy concerns it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum GuardedRequest<'a> {
    /// Erasing runs on so many nodes.
    Erase {
        /// Nodes of this request.
        nodes: u32,
        /// Nodes of the person's earlier requests that still count.
        counted: u32,
    },
    /// A bundle is approved for the site.
    ApproveBundle,
    /// A host image is approved for the site.
    ApproveImage,
    /// The agent of a node is updated.
    UpdateAgent,
    /// The policy itself becomes this one.
    ChangePolicy(&'a SecondPersonPolicy),
}

/// Whether a request waits for another person.
#[must_use]
pub fn wants_second_person(policy: &SecondPersonPolicy, asked: GuardedRequest<'_>) -> bool {
    match asked {
        GuardedRequest::Erase { nodes, counted } => {
            policy.erasing_above.is_some_and(|most| counted.saturating_add(nodes) > most)
        }
        GuardedRequest::ApproveBundle => policy.bundle_approvals,
        GuardedRequest::ApproveImage => policy.image_approvals,
        GuardedRequest::UpdateAgent => policy.agent_updates,
        GuardedRequest::ChangePolicy(to) => is_weaker(policy, to),
    }
}

/// Whether `to` lets something through alone for which `from` asks for another person.
fn is_weaker(from: &SecondPersonPolicy, to: &SecondPersonPolicy) -> bool {
    let erasing = match (from.erasing_above, to.erasing_above) {
        (None, _) => false,
        (Some(_), None) => true,
        (Some(from), Some(to)) => to > from,
    };
    erasing
        || (from.bundle_approvals && !to.bundle_approvals)
        || (from.agent_updates && !to.agent_updates)
        || (from.image_approvals && !to.image_approvals)
}

/// How a request stands at a moment: one that nobody decided in time is expired.
#[must_use]
pub fn state_at(state: ApprovalState, expires_at: Timestamp, now: Timestamp) -> ApprovalState {
    match state {
        ApprovalState::Pending if now >= expires_at => ApprovalState::Expired,
        other => other,
    }
}

/// What somebody says to a request that waits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// It may be carried out.
    Approve,
    /// It is not carried out.
    Deny,
}

/// Why a verdict does not count.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum VerdictRefusal {
    /// Who asked cannot say yes.
    OwnRequest,
    /// Nobody decided in time.
    Expired,
    /// Somebody has decided.
    Decided(ApprovalState),
}

/// Whether a verdict on a request counts. `requester` and `decider` are the persons behind the
/// credentials, which may be several for one person.
///
/// # Errors
/// Why it does not.
pub fn may_decide(
    verdict: Verdict,
    state: ApprovalState,
    (requester, decider): (&str, &str),
) -> Result<(), VerdictRefusal> {
    match state {
        ApprovalState::Pending if verdict == Verdict::Approve && requester == decider => {
            Err(VerdictRefusal::OwnRequest)
        }
        ApprovalState::Pending => Ok(()),
        ApprovalState::Expired => Err(VerdictRefusal::Expired),
        decided => Err(VerdictRefusal::Decided(decided)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn policy(erasing_above: Option<u32>, bundles: bool, agents: bool) -> SecondPersonPolicy {
        let (bundle_approvals, agent_updates) = (bundles, agents);
        SecondPersonPolicy {
            erasing_above,
            bundle_approvals,
            agent_updates,
            image_approvals: false,
        }
    }

    #[test]
    fn approvals_of_images_wait_where_the_policy_names_them() {
        let off = SecondPersonPolicy::default();
        let on = SecondPersonPolicy { image_approvals: true, ..off.clone() };
        assert!(wants_second_person(&on, GuardedRequest::ApproveImage));
        assert!(!wants_second_person(&off, GuardedRequest::ApproveImage));
        assert!(!wants_second_person(&on, GuardedRequest::ApproveBundle));
        assert!(wants_second_person(&on, GuardedRequest::ChangePolicy(&off)));
        assert!(!wants_second_person(&off, GuardedRequest::ChangePolicy(&on)));
    }

    #[test]
    fn a_policy_holds_what_it_names() {
        let off = SecondPersonPolicy::default();
        let erase = |nodes, counted| GuardedRequest::Erase { nodes, counted };
        for (policy, asked, waits) in [
            (&off, erase(5_000, u32::MAX), false),
            (&off, GuardedRequest::ApproveBundle, false),
            (&off, GuardedRequest::UpdateAgent, false),
            (&policy(Some(0), false, false), erase(1, 0), true),
            (&policy(Some(0), false, false), erase(0, 0), false),
            (&policy(Some(3), false, false), erase(3, 0), false),
            (&policy(Some(3), false, false), erase(4, 0), true),
            (&policy(Some(3), false, false), erase(1, 2), false),
            (&policy(Some(3), false, false), erase(1, 3), true),
            (&policy(Some(3), false, false), erase(1, u32::MAX), true),
            (&policy(Some(3), false, false), GuardedRequest::ApproveBundle, false),
            (&policy(None, true, false), GuardedRequest::ApproveBundle, true),
            (&policy(None, true, false), GuardedRequest::UpdateAgent, false),
            (&policy(None, false, true), GuardedRequest::UpdateAgent, true),
            (&policy(None, false, true), erase(9, 9), false),
        ] {
            assert_eq!(wants_second_person(policy, asked), waits, "{policy:?} {asked:?}");
        }
    }

    #[test]
    fn who_weakens_a_policy_waits_as_well() {
        let all = policy(Some(3), true, true);
        for (from, to, waits) in [
            (policy(None, false, false), all.clone(), false),
            (all.clone(), all.clone(), false),
            (all.clone(), policy(Some(2), true, true), false),
            (all.clone(), policy(Some(4), true, true), true),
            (all.clone(), policy(None, true, true), true),
            (all.clone(), policy(Some(3), false, true), true),
            (all.clone(), policy(Some(0), true, false), true),
        ] {
            let asked = GuardedRequest::ChangePolicy(&to);
            assert_eq!(wants_second_person(&from, asked), waits, "{from:?} {to:?}");
        }
    }

    #[test]
    fn another_person_decides_once_and_in_time() {
        use ApprovalState as State;
        let (ann, bob) = ("ann", "bob");
        for (verdict, state, who, answer) in [
            (Verdict::Approve, State::Pending, (ann, bob), Ok(())),
            (Verdict::Approve, State::Pending, (ann, ann), Err(VerdictRefusal::OwnRequest)),
            (Verdict::Deny, State::Pending, (ann, ann), Ok(())),
            (Verdict::Deny, State::Pending, (ann, bob), Ok(())),
            (Verdict::Approve, State::Expired, (ann, bob), Err(VerdictRefusal::Expired)),
            (Verdict::Deny, State::Expired, (ann, ann), Err(VerdictRefusal::Expired)),
        ] {
            assert_eq!(may_decide(verdict, state, who), answer, "{verdict:?} {state} {who:?}");
        }
        for state in [State::Approved, State::Done, State::Failed, State::Denied] {
            for verdict in [Verdict::Approve, Verdict::Deny] {
                let refused = may_decide(verdict, state, (ann, bob));
                assert_eq!(refused, Err(VerdictRefusal::Decided(state)));
            }
        }
    }

    #[test]
    fn only_what_nobody_decided_expires() {
        let (before, at, after) = (1, 2, 3);
        let moment = Timestamp::from_micros;
        for state in ApprovalState::ALL {
            assert_eq!(state_at(*state, moment(at), moment(before)), *state);
            let late = match state {
                ApprovalState::Pending => ApprovalState::Expired,
                other => *other,
            };
            assert_eq!(state_at(*state, moment(at), moment(at)), late);
            assert_eq!(state_at(*state, moment(at), moment(after)), late);
        }
    }

    #[test]
    fn what_erases_is_named_for_every_kind() {
        let harmless: Vec<&RunKind> = RunKind::ALL.iter().filter(|kind| !erases(**kind)).collect();
        assert_eq!(harmless, [&RunKind::Remove]);
    }

    #[test]
    fn strictest_policy_of_a_region_is_in_force() {
        let policies = [
            policy(Some(5), true, false),
            policy(None, false, true),
            policy(Some(2), false, false),
        ];
        assert_eq!(policy_in_force(&policies), policy(Some(2), true, true));
        assert!(policy_in_force(&[]).is_off());
    }
}
