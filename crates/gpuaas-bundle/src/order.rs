//! Signed tasks.
//!
//! The control plane signs each task for one node ([`AssignedTask`]) with its active key. An agent carries
//! out a task that a staged, active or grace key has signed for its node, before it expires, and
//! nothing else. It gets these keys at its enrollment, and later from a set that one of them has
//! signed. So a server that only takes the control plane's address changes nothing.

use gpuaas_types::agent::{AssignedTask, Task, TaskKeys};
use gpuaas_types::{NodeId, Timestamp};

use crate::signature::{Envelope, SignatureError, SigningKey, TrustedKey};

/// Type of a signed [`AssignedTask`].
pub const ORDER_TYPE: &str = "application/vnd.gpuaas.order.v1+json";
/// Type of signed [`TaskKeys`].
pub const KEYS_TYPE: &str = "application/vnd.gpuaas.task-keys.v1+json";

/// Why an agent refuses a task, or a set of keys.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum OrderFault {
    /// No trusted key has signed it.
    #[error(transparent)]
    Signature(#[from] SignatureError),
    /// It was signed for another node.
    #[error("signed for another node: {node_id}")]
    OtherNode {
        /// The node that it is for.
        node_id: NodeId,
    },
    /// The task has expired.
    #[error("not started: the task expired at {at}")]
    Expired {
        /// Time of the expiry.
        at: Timestamp,
    },
    /// The set of keys is not newer than the one that the agent has.
    #[error("the keys have revision {seen}, but revision {known} is already known")]
    OldKeys {
        /// Revision of the set.
        seen: i64,
        /// Revision that the agent has.
        known: i64,
    },
}

impl OrderFault {
    /// Stable code.
    #[must_use]
    pub const fn code(&self) -> &'static str {
        match self {
            Self::Signature(error) => error.code(),
            Self::OtherNode { .. } => "task_of_other_node",
            Self::Expired { .. } => "task_expired",
            Self::OldKeys { .. } => "task_keys_old",
        }
    }
}

/// Codes with which an agent says that a task is none of its control plane's, or none that is asked for
/// now: somebody signed it with another key, for another node, or sent it once more. A task that has
/// merely expired is not among them, nor one that a host's clock cannot judge.
pub const FOREIGN_TASK_CODES: [&str; 8] = [
    "signature_malformed",
    "signature_key_unknown",
    "signature_forged",
    "signature_key_retired",
    "task_of_other_node",
    "task_keys_old",
    "task_id_mismatch",
    "task_replayed",
];

/// Signs a task for a node.
///
/// # Errors
/// It has no JSON form.
pub fn sign(key: &SigningKey, order: &AssignedTask) -> Result<Envelope, SignatureError> {
    key.sign_payload(ORDER_TYPE, order)
}

/// The task of an envelope, when `node_id` may carry it out at `now`.
///
/// # Errors
/// See [`OrderFault`].
pub fn admit(
    order: &Envelope,
    keys: &TaskKeys,
    node_id: NodeId,
    now: Timestamp,
) -> Result<Task, OrderFault> {
    let order: AssignedTask = order.verify_payload(ORDER_TYPE, &trusted(keys), now)?;
    if order.node_id != node_id {
        return Err(OrderFault::OtherNode { node_id: order.node_id });
    }
    if now > order.task.expires_at {
        return Err(OrderFault::Expired { at: order.task.expires_at });
    }
    Ok(order.task)
}

/// Signs a new set of task keys.
///
/// # Errors
/// They have no JSON form.
pub fn sign_keys(key: &SigningKey, keys: &TaskKeys) -> Result<Envelope, SignatureError> {
    key.sign_payload(KEYS_TYPE, keys)
}

/// The keys of an envelope, when one of `known` that is trusted at `now` has signed them.
///
/// # Errors
/// See [`OrderFault`].
pub fn admit_keys(
    keys: &Envelope,
    known: &TaskKeys,
    now: Timestamp,
) -> Result<TaskKeys, OrderFault> {
    let keys: TaskKeys = keys.verify_payload(KEYS_TYPE, &trusted(known), now)?;
    if keys.revision <= known.revision {
        return Err(OrderFault::OldKeys { seen: keys.revision, known: known.revision });
    }
    Ok(keys)
}

/// The keys as trusted ones; one that cannot be parsed is left out.
fn trusted(keys: &TaskKeys) -> Vec<TrustedKey> {
    let keys = keys.keys.iter();
    keys.filter_map(|one| {
        let key = one.public_key.parse().ok()?;
        Some(TrustedKey { name: format!("the {} key", one.state.as_str()), key, until: one.until })
    })
    .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use gpuaas_types::TaskId;
    use gpuaas_types::agent::{TaskKey, TaskKeyState, TaskSpec};
    use uuid::Uuid;

    const ME: NodeId = NodeId(Uuid::from_u128(7));

    fn at(seconds: f64) -> Timestamp {
        Timestamp::EPOCH.plus_seconds(seconds)
    }

    fn order() -> AssignedTask {
        let id = TaskId(Uuid::from_u128(1));
        let task = Task { id, spec: TaskSpec::SoftReset {}, expires_at: at(2000.0) };
        AssignedTask { node_id: ME, task }
    }

    fn keys(revision: i64, keys: &[(&SigningKey, TaskKeyState, Option<f64>)]) -> TaskKeys {
        let key = |(key, state, until): &(&SigningKey, TaskKeyState, Option<f64>)| TaskKey {
            state: *state,
            public_key: key.public().to_string(),
            until: until.map(at),
        };
        TaskKeys { revision, keys: keys.iter().map(key).collect() }
    }

    #[test]
    fn staged_active_and_grace_keys_count_and_nothing_else_does() {
        let [old, active, staged, strange] = [0; 4].map(|_| SigningKey::generate().unwrap());
        let known = keys(
            1,
            &[
                (&old, TaskKeyState::Grace, Some(1500.0)),
                (&active, TaskKeyState::Active, None),
                (&staged, TaskKeyState::Staged, None),
            ],
        );
        let code = |envelope: &Envelope, node, now| {
            admit(envelope, &known, node, at(now)).map_or_else(|fault| fault.code(), |_| "admitted")
        };
        for key in [&old, &active, &staged] {
            assert_eq!(code(&sign(key, &order()).unwrap(), ME, 1000.0), "admitted");
        }
        assert_eq!(code(&sign(&old, &order()).unwrap(), ME, 1500.0), "signature_key_retired");
        assert_eq!(code(&sign(&strange, &order()).unwrap(), ME, 1000.0), "signature_key_unknown");
        let mut good = sign(&active, &order()).unwrap();
        assert_eq!(code(&good, NodeId(Uuid::from_u128(8)), 1000.0), "task_of_other_node");
        assert_eq!(code(&good, ME, 2001.0), "task_expired");
        let forged = sign(&strange, &order()).unwrap();
        good.signatures[0].sig.clone_from(&forged.signatures[0].sig);
        assert_eq!(code(&good, ME, 1000.0), "signature_forged");
    }

    #[test]
    fn one_signed_thing_is_not_another() {
        let key = SigningKey::generate().unwrap();
        let known = keys(1, &[(&key, TaskKeyState::Active, None)]);
        let mut envelope = key.sign_payload(ORDER_TYPE, &keys(2, &[])).unwrap();
        let refused =
            |envelope: &Envelope| admit_keys(envelope, &known, at(1.0)).unwrap_err().code();
        assert_eq!(refused(&envelope), "signature_malformed");
        // The type is part of what is signed.
        envelope.payload_type = KEYS_TYPE.to_owned();
        assert_eq!(refused(&envelope), "signature_forged");
    }

    #[test]
    fn keys_come_from_keys() {
        let [active, next, strange] = [0; 3].map(|_| SigningKey::generate().unwrap());
        let known = keys(5, &[(&active, TaskKeyState::Active, None)]);
        let newer =
            keys(6, &[(&active, TaskKeyState::Grace, None), (&next, TaskKeyState::Active, None)]);
        let code =
            |envelope: &Envelope| admit_keys(envelope, &known, at(1.0)).map_err(|f| f.code());
        assert_eq!(code(&sign_keys(&active, &newer).unwrap()), Ok(newer.clone()));
        assert_eq!(code(&sign_keys(&strange, &newer).unwrap()), Err("signature_key_unknown"));
        let replayed = TaskKeys { revision: 5, ..newer };
        assert_eq!(code(&sign_keys(&active, &replayed).unwrap()), Err("task_keys_old"));
    }
}
