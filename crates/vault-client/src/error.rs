//! What can go wrong, by what the caller does next.

/// A request that Vault did not answer as it was hoped.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum VaultError {
    /// No answer came: trying again later is right.
    #[error("Vault at {address} does not answer: {why}")]
    Unreachable {
        /// Its address.
        address: String,
        /// The cause; no secret.
        why: String,
    },
    /// It answers, and is sealed, a standby without a leader, or overloaded.
    #[error("Vault is unavailable ({status}): {why}")]
    Unavailable {
        /// HTTP status.
        status: u16,
        /// Its own words.
        why: String,
    },
    /// The role, or what the role may do.
    #[error("Vault refused {what}: {why}")]
    Refused {
        /// What was asked, such as `the sign-in`.
        what: String,
        /// Its own words.
        why: String,
    },
    /// There is no such secret or key.
    #[error("Vault has no {what}")]
    NotFound {
        /// What was asked for.
        what: String,
    },
    /// An answer of another form than the documented one.
    #[error("cannot read Vault's response to {what}: {why}")]
    Malformed {
        /// What was asked.
        what: String,
        /// What is wrong with it.
        why: String,
    },
}

impl VaultError {
    /// Stable code, snake case.
    #[must_use]
    pub const fn code(&self) -> &'static str {
        match self {
            Self::Unreachable { .. } => "vault_unreachable",
            Self::Unavailable { .. } => "vault_unavailable",
            Self::Refused { .. } => "vault_refused",
            Self::NotFound { .. } => "vault_secret_missing",
            Self::Malformed { .. } => "vault_answer_unreadable",
        }
    }
}
