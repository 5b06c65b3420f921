//! Identity of nodes: certificates, the authority that issues them, and the listeners that read them;
//! and of people who sign in elsewhere ([`oidc`]).
//!
//! An agent generates its key on its host and sends a certificate signing request. The configured
//! [`Authority`] signs a certificate that names the node. [`Issuer`] checks every certificate before it
//! is issued, whichever authority signed it.
//!
//! # Why a bad certificate does not end the handshake
//! TLS would tell the agent "bad certificate" and the control plane nothing that an operator could
//! read. So the verifier of [`listener`] demands only that whoever presents a certificate holds its
//! key; what the certificate is worth ([`PeerCertificate`]) travels with the connection, and each
//! request on it is judged and answered with a cause. That also makes a revocation count at the
//! next call, on a connection that has been open for days.

mod authority;
mod authority_set;
mod bearer;
mod built_in;
mod command;
mod der;
mod issue;
mod lifetime;
pub mod listener;
pub mod oidc;
mod peer;
mod pem;
pub mod server;
#[cfg(test)]
mod tests;

pub use authority::{Authority, AuthorityError, CertificateRequest, Subject};
pub use authority_set::AuthoritySet;
pub use bearer::bearer_token;
pub use built_in::BuiltIn;
pub use command::CommandAuthority;
pub use issue::{IssuedCertificate, Issuer, Lifetimes, key_digest};
pub use lifetime::{CertificateLifetime, certificate_lifetimes};
pub use peer::{Peer, PeerCertificate, PeerReader};
