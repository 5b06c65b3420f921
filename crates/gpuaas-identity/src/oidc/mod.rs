//! Sign-in of people at a provider of OpenID Connect: whose token it is, and what that one may do.
//!
//! Nothing here speaks to the provider or reads a clock: [`KeyCache`] says when keys are to be fetched,
//! [`verify`] judges a token by keys that are there, and [`RoleRules`] gives the roles.
//!
//! # What a token can choose
//! Next to nothing. Its header names a key of the provider's set by `kid`, and an algorithm, which has
//! to be one that this key's type has; the key is never taken from the token, and secrets that are
//! shared (HS256) are no keys of a set. So neither `none` nor a public key used as a secret gets
//! anywhere.

mod key_cache;
mod key_set;
mod ring_verifier;
mod role_rules;
mod settings;
mod token;

pub use key_cache::{
    FETCH_BURST, FRESH_SECONDS, KeyCache, KeyPlan, KeyTurnPlan, RETRY_SECONDS, STALE_SECONDS,
};
pub use key_set::{KeySet, KeySetFault};
pub use role_rules::{RoleRule, RoleRules};
pub use settings::OidcSettings;
pub use token::{SignInRejection, SignedIn, TokenHead, verify};
