//! Which Vault, and how this control plane signs in there.

use std::path::PathBuf;

use gpuaas_client::failure::Failure;
use gpuaas_engine::HostScope;
use gpuaas_types::codes::CommandCode;
use vault_client::{AppRole, VaultAddress, VaultClient, VaultError};

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
            let detail = format!("{} is off this host, and no https address", self.url);
            return Err(Failure::usage(CommandCode::VaultUnusable, detail)
                .hint("name its https:// address with --vault-url"));
        }
        let ca_pem = self.ca_file.as_deref().map(read_file).transpose()?;
        let address =
            VaultAddress { url: self.url.clone(), ca_pem, namespace: self.namespace.clone() };
        let role = AppRole {
            mount: "approle".to_owned(),
            role_id: self.role_id.clone(),
            secret_id: read_secret(&self.secret_id_file)?.into(),
        };
        VaultClient::new(address, role).map_err(|error| vault_failure(&error))
    }
}

/// What the Vault did not give.
pub(crate) fn vault_failure(error: &VaultError) -> Failure {
    let hint = match error {
        VaultError::Unreachable { .. } => "see that it runs, and that this host reaches it",
        VaultError::Unavailable { .. } => "unseal it, or wait until it has a leader",
        VaultError::Refused { .. } => {
            "look at the role, its secret id and its policy: it needs `update` on encrypt/KEY and \
             decrypt/KEY of the mount"
        }
        VaultError::NotFound { .. } => "look at the mount and the name of the key",
        VaultError::Malformed { .. } => "see that the address is a Vault's",
    };
    Failure::local(CommandCode::VaultUnusable, error.to_string()).hint(hint)
}
