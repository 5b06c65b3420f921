//! Failures, by what the caller does next (docs/maas.md#refusals).
//!
//! | error | next |
//! |---|---|
//! | `Refused` | read the kind; the same call gives the same answer |
//! | `Unavailable` | wait, try again; `sent` says whether to probe first |
//! | `UnknownOutcome` | probe: read the object and compare; never repeat the call |
//! | `ServerError` | a read failed inside MAAS; read again later |
//! | `Malformed` | the answer is not MAAS's; check the URL or a proxy in between |
//! | `Invalid` | nothing was sent; the caller's arguments are wrong |
//!
//! MAAS commits first and acts on hardware after (docs/maas.md#unknown-outcomes), so a 500 on a
//! mutation is no refusal: the state may have changed. Texts are MAAS's own, cut to
//! [`MAX_TEXT_CHARS`] and with known secrets masked; the body of a 401 is never used, because it
//! can hold the token secret.

use std::collections::BTreeMap;
use std::time::Duration;

/// Longest foreign text kept in an error, in characters.
pub const MAX_TEXT_CHARS: usize = 600;

/// A failed call, by what the caller does next.
///
/// ```
/// use maas_client::{Error, RefusalKind, UnknownCause};
///
/// let conflict = Error::Refused {
///     status: 409,
///     kind: RefusalKind::StateConflict,
///     text: "Machine is not locked".to_owned(),
/// };
/// assert_eq!(conflict.code(), "maas_state_conflict");
/// assert!(!conflict.may_have_happened()); // nothing was changed
///
/// let lost = Error::UnknownOutcome {
///     cause: UnknownCause::Gateway,
///     text: "the gateway got no response".to_owned(),
/// };
/// assert!(lost.may_have_happened()); // probe before anything else
/// ```
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum Error {
    /// MAAS answered 4xx; nothing was changed.
    #[error("MAAS refused ({status}): {text}")]
    Refused {
        /// HTTP status.
        status: u16,
        /// What MAAS objects to.
        kind: RefusalKind,
        /// MAAS's text, or ours where MAAS gave none or a secret one.
        text: String,
    },
    /// No connection, or 503.
    #[error("MAAS is unavailable: {text}")]
    Unavailable {
        /// False where the request certainly never reached MAAS. A 503 (`true`) can come after
        /// the change was committed.
        sent: bool,
        /// How long MAAS asks to wait.
        retry_after: Option<Duration>,
        /// MAAS's text or the system's.
        text: String,
    },
    /// It is not known whether the call took effect.
    #[error("outcome unknown ({cause}): {text}")]
    UnknownOutcome {
        /// What left it open.
        cause: UnknownCause,
        /// MAAS's text or the system's.
        text: String,
    },
    /// A read failed inside MAAS (500 and its like).
    #[error("MAAS failed ({status}): {text}")]
    ServerError {
        /// HTTP status.
        status: u16,
        /// MAAS's text, e.g. the BMC driver's message.
        text: String,
    },
    /// An answer that is not what MAAS sends.
    #[error("unexpected response from MAAS ({status}): {text}")]
    Malformed {
        /// HTTP status; a mutation answered 2xx may well have happened.
        status: u16,
        /// What was expected and what came; never the body.
        text: String,
    },
    /// Refused by this client before anything was sent.
    #[error("{text}")]
    Invalid {
        /// What is wrong with the arguments.
        text: String,
    },
}

/// Why MAAS refused.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RefusalKind {
    /// 400 with messages per form field; whole-form messages under `__all__`.
    Validation {
        /// Messages by field.
        fields: BTreeMap<String, Vec<String>>,
    },
    /// 400 with a sentence.
    BadRequest,
    /// 401: MAAS did not accept the credentials.
    Unauthorized {
        /// Which part of the credentials.
        cause: AuthCause,
    },
    /// 403: not permitted, or the machine is locked.
    Forbidden,
    /// 404: the object is gone.
    NotFound,
    /// 404 of `link_subnet`: another holds the IP address. No object is gone.
    AddressInUse,
    /// 404: no such path in this MAAS, or the URL is not a MAAS.
    UnknownEndpoint,
    /// 405: the path has no such method.
    MethodNotAllowed,
    /// 409 with a sentence: the object's state forbids it. Read again and decide.
    StateConflict,
    /// 409 with an HTML page: the database refused after MAAS's own ten attempts. A duplicate BMC
    /// on creation looks like this too and never passes (docs/maas.md#duplicate-bmc).
    DatabaseConflict,
    /// Any other status below 500, redirects included.
    Other,
}

/// Why credentials were refused (docs/maas.md#authentication).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AuthCause {
    /// The consumer key is unknown.
    InvalidKey,
    /// The token key is unknown.
    InvalidToken,
    /// The token secret is wrong.
    BadSignature,
    /// Our clock is behind MAAS's by more than 300 s.
    ClockSkew {
        /// By how much, where MAAS said it or its `Date` shows it.
        seconds_behind: Option<i64>,
    },
    /// The nonce was used before: the header was sent twice, or guessed.
    NonceReplay,
    /// No or incomplete OAuth parameters arrived; a proxy may strip the header.
    NotAuthenticated,
    /// Anything else MAAS says in a 401.
    Other,
}

/// What left an outcome open.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum UnknownCause {
    /// No answer within the total timeout.
    Timeout,
    /// 502 or 504 of the proxy or an RPC timeout of MAAS.
    Gateway,
    /// The connection broke before the answer was complete.
    Reset,
    /// 500 on a mutation: the change was committed before the failure.
    ServerError,
}

impl std::fmt::Display for UnknownCause {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Timeout => "timeout",
            Self::Gateway => "gateway error",
            Self::Reset => "connection broken",
            Self::ServerError => "MAAS failed after committing the change",
        })
    }
}

impl Error {
    pub(crate) fn invalid(text: impl Into<String>) -> Self {
        Self::Invalid { text: text.into() }
    }

    /// A stable code for programs, such as `maas_validation`.
    pub fn code(&self) -> &'static str {
        match self {
            Self::Refused { kind, .. } => kind.code(),
            Self::Unavailable { .. } => "maas_unavailable",
            Self::UnknownOutcome { .. } => "maas_unknown_outcome",
            Self::ServerError { .. } => "maas_server_error",
            Self::Malformed { .. } => "maas_malformed_answer",
            Self::Invalid { .. } => "maas_invalid_request",
        }
    }

    /// The HTTP status where MAAS or a proxy answered.
    pub fn status(&self) -> Option<u16> {
        match self {
            Self::Refused { status, .. }
            | Self::ServerError { status, .. }
            | Self::Malformed { status, .. } => Some(*status),
            _ => None,
        }
    }

    /// True where a mutation that failed so may have taken effect and must be probed.
    pub fn may_have_happened(&self) -> bool {
        match self {
            Self::UnknownOutcome { .. } => true,
            Self::Unavailable { sent, .. } => *sent,
            Self::Malformed { status, .. } => (200..300).contains(status),
            Self::Refused { .. } | Self::ServerError { .. } | Self::Invalid { .. } => false,
        }
    }

    /// True where the object itself is gone.
    pub fn is_not_found(&self) -> bool {
        matches!(self, Self::Refused { kind: RefusalKind::NotFound, .. })
    }

    /// True where the object's state forbids the call.
    pub fn is_state_conflict(&self) -> bool {
        matches!(self, Self::Refused { kind: RefusalKind::StateConflict, .. })
    }

    /// Messages per form field; `None` for other failures.
    pub fn fields(&self) -> Option<&BTreeMap<String, Vec<String>>> {
        match self {
            Self::Refused { kind: RefusalKind::Validation { fields }, .. } => Some(fields),
            _ => None,
        }
    }
}

impl RefusalKind {
    fn code(&self) -> &'static str {
        match self {
            Self::Validation { .. } => "maas_validation",
            Self::BadRequest => "maas_bad_request",
            Self::Unauthorized { cause } => match cause {
                AuthCause::InvalidKey => "maas_auth_invalid_key",
                AuthCause::InvalidToken => "maas_auth_invalid_token",
                AuthCause::BadSignature => "maas_auth_bad_signature",
                AuthCause::ClockSkew { .. } => "maas_auth_clock_skew",
                AuthCause::NonceReplay => "maas_auth_nonce_replay",
                AuthCause::NotAuthenticated => "maas_auth_not_authenticated",
                AuthCause::Other => "maas_auth_refused",
            },
            Self::Forbidden => "maas_forbidden",
            Self::NotFound => "maas_not_found",
            Self::AddressInUse => "maas_address_in_use",
            Self::UnknownEndpoint => "maas_unknown_endpoint",
            Self::MethodNotAllowed => "maas_method_not_allowed",
            Self::StateConflict => "maas_state_conflict",
            Self::DatabaseConflict => "maas_database_conflict",
            Self::Other => "maas_refused",
        }
    }
}
