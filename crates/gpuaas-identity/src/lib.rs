//! Who nodes are: certificates, who issues them, and the listener that asks for them.
//!
//! An agent makes its key on its host and asks with a signing request; whoever is the
//! [`Authority`] answers with a certificate that names the node. What it gives is looked at before
//! it counts ([`Issuer`]), whoever it is.
//!
//! # Why a bad certificate does not end the handshake
//! TLS would tell the agent "bad certificate" and the control plane nothing that an operator could
//! read. So the verifier of [`listener`] demands only that whoever presents a certificate holds its
//! key; what the certificate is worth ([`PeerCertificate`]) travels with the connection, and each
//! request on it is judged and answered with a cause. That also makes a revocation count at the
//! next call, on a connection that has been open for days.

mod authority;
mod built_in;
mod command;
mod der;
mod issue;
pub mod listener;
mod peer;
mod pem;

pub use authority::{Authority, AuthorityError, CertificateRequest, Subject};
pub use built_in::BuiltIn;
pub use command::CommandAuthority;
pub use issue::{IssuedCertificate, Issuer, Lifetimes, key_digest};
pub use peer::{Peer, PeerCertificate, PeerReader};
