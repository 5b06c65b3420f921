//! Typed identifiers. A bare string or UUID never stands for a resource.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;
use uuid::Uuid;

use crate::time::Timestamp;

/// Where new identifiers come from. Injected, so that a seed replays a run exactly.
pub trait IdSource: Send + Sync {
    /// A new UUID version 7 (RFC 9562 section 5.7) whose time part is `now`.
    fn uuid(&self, now: Timestamp) -> Uuid;
}

/// Identifiers with random bits from the operating system.
#[derive(Debug, Default, Clone, Copy)]
pub struct RandomIds;

impl IdSource for RandomIds {
    fn uuid(&self, now: Timestamp) -> Uuid {
        let random = Uuid::new_v4().into_bytes();
        let mut bytes = [0u8; 10];
        bytes[..6].copy_from_slice(&random[..6]);
        bytes[6..].copy_from_slice(&random[9..13]);
        uuid_v7(now, bytes)
    }
}

/// A UUID version 7 of `now` (millisecond precision) and ten random bytes.
#[must_use]
pub fn uuid_v7(now: Timestamp, random: [u8; 10]) -> Uuid {
    let millis = u64::try_from(now.as_micros() / 1000).unwrap_or(0);
    uuid::Builder::from_unix_timestamp_millis(millis, &random).into_uuid()
}

macro_rules! id {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
        #[serde(transparent)]
        pub struct $name(pub Uuid);

        impl $name {
            /// A new identifier from `source`, ordered by `now`.
            pub fn new(source: &dyn IdSource, now: Timestamp) -> Self {
                Self(source.uuid(now))
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.hyphenated().fmt(f)
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, concat!(stringify!($name), "({})"), self.0.hyphenated())
            }
        }

        impl FromStr for $name {
            type Err = uuid::Error;
            fn from_str(s: &str) -> Result<Self, Self::Err> {
                Uuid::parse_str(s).map(Self)
            }
        }
    };
}

id!(
    /// A MAAS region that GPUaaS drives.
    SiteId
);
id!(
    /// A provisioning profile; its specification is kept in immutable revisions.
    ProfileId
);
id!(
    /// A GPU server under GPUaaS' care.
    NodeId
);
id!(
    /// One piece of durable work on one node.
    RunId
);
id!(
    /// One attempt at one effect: the intent and its outcome.
    AttemptId
);
id!(
    /// A typed task for a node agent.
    TaskId
);
id!(
    /// A secret handed to a node, stored as a hash.
    TokenId
);
id!(
    /// One fabric address of one host.
    RoceAssignmentId
);
id!(
    /// Machines that are onboarded together, canaries first.
    BatchId
);
id!(
    /// A place that events are delivered to.
    EventSinkId
);
id!(
    /// A request that waits for another person.
    ApprovalId
);
id!(
    /// Slots of one node that somebody has.
    ClaimId
);
