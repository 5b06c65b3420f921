//! Who signs certificates, as one small trait.

use async_trait::async_trait;
use gpuaas_types::codes::ProblemCode;
use gpuaas_types::{NodeId, Timestamp};
use rustls::pki_types::CertificateDer;

/// Whom a certificate names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Subject {
    /// The agent of a node, as a client.
    Node(NodeId),
    /// The control plane's listener for nodes, under these DNS names and addresses.
    Server(Vec<String>),
}

impl Subject {
    /// The URI that names a node in a certificate's subject alternative names.
    #[must_use]
    pub fn node_uri(node_id: NodeId) -> String {
        format!("{NODE_URI}{node_id}")
    }

    /// The node that such a URI names.
    #[must_use]
    pub fn node_of_uri(uri: &str) -> Option<NodeId> {
        uri.strip_prefix(NODE_URI)?.parse().ok()
    }

    /// The common name.
    #[must_use]
    pub fn common_name(&self) -> String {
        match self {
            Self::Node(node_id) => node_id.to_string(),
            Self::Server(_) => "GPUaaS control plane".to_owned(),
        }
    }

    /// The subject alternative names: a URI, or DNS names and addresses.
    #[must_use]
    pub fn names(&self) -> Vec<String> {
        match self {
            Self::Node(node_id) => vec![Self::node_uri(*node_id)],
            Self::Server(names) => names.clone(),
        }
    }
}

const NODE_URI: &str = "gpuaas://node/";

/// What an authority is asked for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CertificateRequest {
    /// Whom it shall name, whatever the signing request says.
    pub subject: Subject,
    /// The signing request, PEM (RFC 2986). Only its public key counts.
    pub csr_pem: String,
    /// Serial number: 16 octets, positive.
    pub serial: [u8; 16],
    /// First moment, in whole seconds.
    pub not_before: Timestamp,
    /// Last moment, in whole seconds; an authority may give less.
    pub not_after: Timestamp,
}

/// Why there is no certificate.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum AuthorityError {
    /// The signing request is at fault; asking again with it will not help.
    #[error("invalid signing request: {0}")]
    Csr(String),
    /// The authority did not answer in time, or says that it cannot now.
    #[error("the certificate authority does not answer: {0}")]
    Unavailable(String),
    /// What it is, or what it gave, is not what was asked for.
    #[error("invalid certificate authority or certificate: {0}")]
    Broken(String),
}

impl AuthorityError {
    /// Stable code.
    #[must_use]
    pub const fn code(&self) -> ProblemCode {
        match self {
            Self::Csr(_) => ProblemCode::CsrInvalid,
            Self::Unavailable(_) => ProblemCode::AuthorityUnavailable,
            Self::Broken(_) => ProblemCode::AuthorityBroken,
        }
    }
}

/// Signs certificates.
#[async_trait]
pub trait Authority: Send + Sync + std::fmt::Debug {
    /// The certificates that everything it signs leads up to: what nodes trust, and what nodes'
    /// certificates are held against.
    fn anchors(&self) -> &[CertificateDer<'static>];

    /// The same as PEM.
    fn anchors_pem(&self) -> &str;

    /// Whether it is the control plane's own, which another one may take the place of.
    fn is_own(&self) -> bool {
        false
    }

    /// Which of the control plane's own authorities signs: 1 for the first one.
    fn generation(&self) -> i64 {
        1
    }

    /// SHA-256 of the anchors that nodes are given, hexadecimal; none: they are given none.
    fn trust_digest(&self) -> Option<&str> {
        None
    }

    /// A certificate for this request with what leads up to an anchor, PEM, the leaf first.
    ///
    /// # Errors
    /// See [`AuthorityError`].
    async fn issue(&self, request: &CertificateRequest) -> Result<String, AuthorityError>;
}
