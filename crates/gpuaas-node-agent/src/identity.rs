//! The agent's identity, stored so that it survives a restart.
//!
//! The key is generated here and never leaves the host: the control plane gets a signing request
//! and answers with a certificate. Key and certificate are in one file that is complete or absent,
//! so there is never one without the other. Before that the key is in a file of its own, written
//! before the enroll request. An enrollment token works for one key. So an agent that died before
//! it stored the response enrolls again with the same key, and gets another certificate for it.

use std::io;
use std::path::{Path, PathBuf};

use gpuaas_types::agent::{NodeCertificate, TaskKeys};
use gpuaas_types::{NodeId, RunId, SecretText, Timestamp};
use parking_lot::Mutex;
use rcgen::{CertificateParams, KeyPair};
use serde::{Deserialize, Serialize};

use crate::atomic_file;

/// A key that has no certificate yet.
pub struct NodeKey {
    /// The private half, PEM. Secret.
    pub key_pem: SecretText,
    /// The signing request that goes to the control plane, PEM.
    pub csr_pem: String,
}

impl NodeKey {
    /// A new key for ECDSA on P-256. The control plane decides whom the certificate names.
    ///
    /// # Errors
    /// When the operating system gives no random bytes.
    pub fn generate() -> io::Result<Self> {
        Self::from_key_pair(&KeyPair::generate().map_err(io::Error::other)?)
    }

    fn from_key_pair(key: &KeyPair) -> io::Result<Self> {
        let csr = CertificateParams::default().serialize_request(key).map_err(io::Error::other)?;
        let csr_pem = csr.pem().map_err(io::Error::other)?;
        Ok(Self { key_pem: key.serialize_pem().into(), csr_pem })
    }
}

/// Content of the key's own file.
#[derive(Serialize, Deserialize)]
struct StoredKey {
    run_id: RunId,
    key_pem: SecretText,
}

/// What the agent authenticates with.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum AgentCredential {
    /// A key and the certificate for it.
    Certificate {
        /// The private half, PEM. Secret.
        key_pem: SecretText,
        /// The certificate.
        certificate: NodeCertificate,
    },
    /// A bearer credential; simulated hosts only. Secret.
    Bearer(SecretText),
}

impl AgentCredential {
    /// The certificate, where it is one.
    #[must_use]
    pub const fn certificate(&self) -> Option<&NodeCertificate> {
        match self {
            Self::Certificate { certificate, .. } => Some(certificate),
            Self::Bearer(_) => None,
        }
    }

    /// Texts to redact in everything that leaves the host: the credential, or the lines of the key.
    #[must_use]
    pub fn secrets(&self) -> Vec<String> {
        match self {
            Self::Bearer(credential) => vec![credential.expose().to_owned()],
            Self::Certificate { key_pem, .. } => {
                let body = key_pem.expose().lines().filter(|line| !line.starts_with("-----"));
                body.map(str::to_owned).collect()
            }
        }
    }
}

/// When to ask for the next certificate: after about two thirds of this one's life, spread by a
/// tenth of it so that a fleet that enrolled at once does not renew at once. `spread` is in [0, 1).
#[must_use]
pub fn renew_at(certificate: &NodeCertificate, spread: f64) -> Timestamp {
    let life = certificate.not_after.seconds_since(certificate.not_before);
    certificate.not_before.plus_seconds(life * (0.6 + 0.1 * spread))
}

/// What an enrollment returned.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Identity {
    /// The run that enrolled this system; another run means another enrollment.
    pub run_id: RunId,
    /// The node that this host is.
    pub node_id: NodeId,
    /// What the agent authenticates with. Secret.
    #[serde(rename = "proof")]
    pub credential: AgentCredential,
    /// How often to send a heartbeat, in seconds.
    pub heartbeat_interval_seconds: u32,
    /// Longest task poll, in seconds; 0: ask for tasks after each heartbeat instead.
    pub poll_seconds: u32,
    /// Keys whose tasks are carried out.
    pub task_keys: TaskKeys,
    /// Digest of the trust bundle that the control plane gave last; none: it gave none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trust_digest: Option<String>,
}

impl std::fmt::Debug for Identity {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Identity")
            .field("run_id", &self.run_id)
            .field("node_id", &self.node_id)
            .finish_non_exhaustive()
    }
}

/// Where the identity is stored.
#[derive(Debug)]
pub enum IdentityStore {
    /// In this file, mode 0600; before the enrollment the key is beside it, with extension `key`.
    File(PathBuf),
    /// In memory, without a key: a simulated host that is restarted enrolls again.
    Memory(Mutex<Option<Identity>>),
}

impl IdentityStore {
    /// An empty store in memory.
    #[must_use]
    pub const fn memory() -> Self {
        Self::Memory(Mutex::new(None))
    }

    /// The identity of `run`, when there is one. A damaged file counts as none.
    #[must_use]
    pub fn load(&self, run: RunId) -> Option<Identity> {
        let identity = match self {
            Self::File(path) => serde_json::from_slice(&std::fs::read(path).ok()?).ok()?,
            Self::Memory(cell) => cell.lock().clone()?,
        };
        (identity.run_id == run).then_some(identity)
    }

    /// Stores `identity`, and removes the file of the key alone.
    ///
    /// # Errors
    /// The file cannot be written; the one before is still there then.
    pub fn save(&self, identity: &Identity) -> io::Result<()> {
        match self {
            Self::File(path) => {
                atomic_file::replace(path, &serde_json::to_vec(identity)?)?;
                atomic_file::remove_if_there(&key_file(path))
            }
            Self::Memory(cell) => {
                *cell.lock() = Some(identity.clone());
                Ok(())
            }
        }
    }

    /// The key that `run` was to enroll with, when there is one. A damaged file counts as none.
    #[must_use]
    pub fn load_key(&self, run: RunId) -> Option<NodeKey> {
        let Self::File(path) = self else { return None };
        let stored: StoredKey =
            serde_json::from_slice(&std::fs::read(key_file(path)).ok()?).ok()?;
        let key =
            KeyPair::from_pem(stored.key_pem.expose()).ok().filter(|_| stored.run_id == run)?;
        NodeKey::from_key_pair(&key).ok()
    }

    /// Stores the key that `run` is to enroll with, until an identity is stored.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn save_key(&self, run: RunId, key: &NodeKey) -> io::Result<()> {
        let Self::File(path) = self else { return Ok(()) };
        let stored = StoredKey { run_id: run, key_pem: key.key_pem.clone() };
        atomic_file::replace(&key_file(path), &serde_json::to_vec(&stored)?)
    }
}

/// The file of a key that has no certificate yet.
fn key_file(identity: &Path) -> PathBuf {
    identity.with_extension("key")
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;
    use uuid::Uuid;

    #[test]
    fn a_certificate_is_renewed_after_two_thirds_of_its_life() {
        let at = |seconds| Timestamp::EPOCH.plus_seconds(seconds);
        let certificate = NodeCertificate {
            chain_pem: String::new(),
            serial: String::new(),
            not_before: at(1000.0),
            not_after: at(2000.0),
        };
        assert_eq!(renew_at(&certificate, 0.0), at(1600.0));
        assert_eq!(renew_at(&certificate, 0.5), at(1650.0));
        assert!(renew_at(&certificate, 0.999) < at(1700.0));
    }

    #[test]
    fn a_key_is_made_here_and_asks_without_a_name() {
        let (one, other) = (NodeKey::generate().unwrap(), NodeKey::generate().unwrap());
        assert_ne!(one.key_pem, other.key_pem);
        assert!(one.key_pem.expose().contains("PRIVATE KEY") && !one.csr_pem.contains("PRIVATE"));
        assert!(one.csr_pem.starts_with("-----BEGIN CERTIFICATE REQUEST-----"));
    }

    #[test]
    fn a_key_is_kept_for_one_run_until_there_is_an_identity() {
        let dir = tempfile::tempdir().unwrap();
        let store = IdentityStore::File(dir.path().join("identity.json"));
        let (run, other) = (RunId(Uuid::from_u128(1)), RunId(Uuid::from_u128(2)));
        let key = NodeKey::generate().unwrap();
        assert!(store.load_key(run).is_none());
        store.save_key(run, &key).unwrap();
        let path = dir.path().join("identity.key");
        assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        assert_eq!(store.load_key(run).unwrap().key_pem, key.key_pem);
        assert!(store.load_key(other).is_none());
        std::fs::write(&path, "{\"run_id\":").unwrap();
        assert!(store.load_key(run).is_none());
    }

    #[test]
    fn a_file_keeps_the_identity_of_one_run() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("deep/identity.json");
        let store = IdentityStore::File(path.clone());
        let (run, other) = (RunId(Uuid::from_u128(1)), RunId(Uuid::from_u128(2)));
        assert!(store.load(run).is_none());
        let identity = Identity {
            run_id: run,
            node_id: NodeId(Uuid::from_u128(3)),
            credential: AgentCredential::Bearer("c".repeat(43).into()),
            heartbeat_interval_seconds: 30,
            poll_seconds: 20,
            task_keys: TaskKeys::default(),
            trust_digest: None,
        };
        store.save_key(run, &NodeKey::generate().unwrap()).unwrap();
        store.save(&identity).unwrap();
        store.save(&identity).unwrap();
        assert!(!path.with_extension("key").exists());
        assert_eq!(store.load(run), Some(identity.clone()));
        assert!(store.load(other).is_none());
        assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        assert!(!format!("{identity:?}").contains("ccc"));
        std::fs::write(&path, "{\"run_id\":").unwrap();
        assert!(store.load(run).is_none());
    }
}
