//! Which Vault, how this control plane signs in there, and the API keys of regions that are kept in it.

use std::path::PathBuf;
use std::sync::Arc;

use async_trait::async_trait;
use gpuaas_client::failure::Failure;
use gpuaas_engine::{HostScope, KeyUnreadable, ReadKey};
use gpuaas_store::SecretString;
use gpuaas_types::codes::{CommandCode, ProblemCode};
use gpuaas_types::key_reference::KeyReference;
use parking_lot::Mutex;
use vault_client::{AppRole, FieldPath, VaultAddress, VaultClient, VaultError};

use crate::input_file::{read_file, read_secret};

/// A Vault, and a role there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VaultOptions {
    /// Its base URL, such as `https://vault.example:8200`.
    pub url: String,
    /// Identifier of the role.
    pub role_id: String,
    /// File of what proves it.
    pub secret_id_file: PathBuf,
    /// What it is trusted by, PEM; none: the authorities of this system.
    pub ca_file: Option<PathBuf>,
    /// Namespace; none: the root one.
    pub namespace: Option<String>,
}

impl VaultOptions {
    /// A client for it. Nothing is asked yet.
    ///
    /// # Errors
    /// `vault_unusable`; `file_unreadable`, `secret_missing`.
    pub(crate) fn client(&self) -> Result<VaultClient, Failure> {
        let is_plain = !self.url.starts_with("https://");
        if is_plain && HostScope::of_url(&self.url) != HostScope::Loopback {
            let detail = format!("{} is on another host but not an https address", self.url);
            return Err(Failure::usage(CommandCode::VaultUnusable, detail)
                .hint("pass its https:// address with --vault-url"));
        }
        let ca_pem = self.ca_file.as_deref().map(read_file).transpose()?;
        let address =
            VaultAddress { url: self.url.clone(), ca_pem, namespace: self.namespace.clone() };
        let role = AppRole {
            mount: "approle".to_owned(),
            role_id: self.role_id.clone(),
            secret_id: read_secret(&self.secret_id_file)?.expose().into(),
        };
        VaultClient::new(address, role).map_err(|error| vault_failure(&error))
    }
}

/// Reads API keys of regions in a Vault. The client is made when it is first needed, and anew where the
/// Vault refuses it: another secret id may be in its file by then.
pub(crate) struct VaultKeys {
    options: VaultOptions,
    client: Mutex<Option<Arc<VaultClient>>>,
}

impl VaultKeys {
    /// Nothing is asked yet.
    pub(crate) fn new(options: VaultOptions) -> Self {
        Self { options, client: Mutex::new(None) }
    }

    fn client(&self) -> Result<Arc<VaultClient>, KeyUnreadable> {
        let mut known = self.client.lock();
        if let Some(client) = &*known {
            return Ok(Arc::clone(client));
        }
        let made = self.options.client().map_err(|failure| KeyUnreadable {
            code: ProblemCode::VaultRefused,
            text: failure.problem.detail,
        })?;
        let made = Arc::new(made);
        *known = Some(Arc::clone(&made));
        Ok(made)
    }
}

#[async_trait]
impl ReadKey for VaultKeys {
    async fn read_key(&self, reference: &KeyReference) -> Result<SecretString, KeyUnreadable> {
        let KeyReference { mount, path, field } = reference.clone();
        let client = self.client()?;
        let read = client.read_field(&FieldPath { mount, path, field }).await;
        if matches!(read, Err(VaultError::Refused { .. })) {
            *self.client.lock() = None;
        }
        read.map_err(|error| KeyUnreadable { code: problem_code(&error), text: error.to_string() })
    }
}

const fn problem_code(error: &VaultError) -> ProblemCode {
    match error {
        VaultError::Unreachable { .. } | VaultError::Unavailable { .. } => {
            ProblemCode::VaultUnreachable
        }
        VaultError::Refused { .. } => ProblemCode::VaultRefused,
        VaultError::NotFound { .. } => ProblemCode::VaultSecretMissing,
        VaultError::Malformed { .. } => ProblemCode::VaultAnswerUnreadable,
    }
}

/// What the Vault did not give.
pub(crate) fn vault_failure(error: &VaultError) -> Failure {
    let hint = match error {
        VaultError::Unreachable { .. } => {
            "check that Vault is running and that this host can reach it"
        }
        VaultError::Unavailable { .. } => "unseal Vault, or wait until it has a leader",
        VaultError::Refused { .. } => {
            "check the role, its secret ID and its policy, which must allow `update` on \
             encrypt/KEY and decrypt/KEY of the mount"
        }
        VaultError::NotFound { .. } => "check the mount and the key name",
        VaultError::Malformed { .. } => "check that the address belongs to a Vault server",
    };
    Failure::local(CommandCode::VaultUnusable, error.to_string()).hint(hint)
}

#[cfg(test)]
#[path = "vault_tests.rs"]
mod tests;
