//! Every kind of secret, and where it may be found. A test of the API plants one of each kind and searches
//! responses, stored responses, the database and a backup for it.

use crate::string_enum::string_enum;

string_enum! {
    /// A kind of secret.
    SecretKind {
        /// The key with which the control plane asks MAAS.
        MaasApiKey = "MAAS API key",
        /// The password of a node's BMC.
        BmcPassword = "BMC password",
        /// The first administrator's token.
        AdminToken = "admin token",
        /// A token of a person or a program.
        AccessToken = "access token",
        /// What the receiver of a webhook checks signatures with.
        WebhookSecret = "webhook secret",
        /// A secret input of a bundle.
        BundleInput = "secret bundle input",
        /// The token of a deployment's callbacks.
        BootstrapToken = "bootstrap token",
        /// The token with which an agent enrolls.
        EnrollmentToken = "enrollment token",
        /// What a tenant's guest is started with.
        GuestUserData = "guest user-data",
        /// The private key of an agent.
        NodeKey = "node key",
        /// The private key that signs the tasks of agents.
        TaskKey = "task signing key",
        /// The private key of the authority that signs certificates.
        AuthorityKey = "certificate authority key",
        /// The private key that signs bundles which were published without a signature.
        BundleKey = "bundle signing key",
        /// The key that seals the others.
        MasterKey = "master key",
        /// What the Vault's role signs in with.
        VaultSecretId = "Vault role's secret ID",
        /// The password of the control plane's user in PostgreSQL.
        DatabasePassword = "database password",
        /// What the control plane signs in with at the NATS server.
        NatsCredentials = "NATS credentials",
        /// The private key of the operators' listener.
        ListenerKey = "operators' listener key",
        /// The key that seals the keys of a backup.
        BackupKey = "backup key",
        /// What the identity provider gives a person who signs in.
        SignInToken = "identity provider token",
    }
}

string_enum! {
    /// How the database, and so a backup of it, has a secret.
    Stored {
        /// Sealed with the master key (`docs/adr/0029-master-key.md`).
        Sealed = "sealed",
        /// Its SHA-256: it is 256 random bits, which nobody finds from that.
        Digest = "SHA-256",
        /// Not at all.
        Nowhere = "no",
    }
}

string_enum! {
    /// Which responses hold a secret.
    Shown {
        /// The one to the request that made it; not one that is replayed.
        Once = "once, when it is created",
        /// None.
        Never = "no",
    }
}

/// A row of [`SECRETS`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SecretRow {
    /// The kind of secret.
    pub kind: SecretKind,
    /// In the database.
    pub stored: Stored,
    /// In responses of the API.
    pub shown: Shown,
    /// Where else it is, as a Markdown text.
    pub elsewhere: &'static str,
    /// When it is gone from the database.
    pub until: &'static str,
}

macro_rules! secrets {
    ($($kind:ident $stored:ident $shown:ident $elsewhere:literal, $until:literal;)+) => {
        /// Every kind of secret, in the order of [`SecretKind`].
        pub const SECRETS: &[SecretRow] = &[$(SecretRow {
            kind: SecretKind::$kind,
            stored: Stored::$stored,
            shown: Shown::$shown,
            elsewhere: $elsewhere,
            until: $until,
        }),+];
    };
}

secrets! {
    MaasApiKey Sealed Never
        "MAAS; the Vault instead of the database, if the site uses a reference",
        "the site is removed, or its URL or key changes";
    BmcPassword Sealed Never
        "MAAS, which sends it to the BMC; a pending approval, sealed",
        "the node is removed, or its BMC changes";
    AdminToken Digest Never
        "`admin-token` in the data folder (mode 0600); `keys.sealed` in a backup, sealed with `--key-file`",
        "`gpuaas token reset --reason WHY`";
    AccessToken Digest Once
        "the file that its owner chose",
        "it is revoked; its SHA-256 stays as a record";
    WebhookSecret Sealed Once
        "the receiver",
        "the webhook is removed";
    BundleInput Sealed Never
        "the node's user-data, which MAAS stores; on the node, `/etc/gpuaas/bootstrap.json` and `/var/lib/gpuaas/site-bootstrap/NAME.secrets` (mode 0600)",
        "it is deleted";
    BootstrapToken Digest Never
        "the node's user-data, which MAAS stores; on the node, `/etc/gpuaas/bootstrap.json` (mode 0600)",
        "its run is removed; it grants no access once the run has ended";
    EnrollmentToken Digest Never
        "the node's user-data, which MAAS stores; on the node, `/etc/gpuaas/bootstrap.json` and `/etc/gpuaas/agent.json` (mode 0600)",
        "its run is removed; it can enroll only one key, once";
    GuestUserData Sealed Never
        "the task of the host's agent, while the agent fetches it; the guest's seed on the host, until the claim is released",
        "the launch ends";
    NodeKey Nowhere Never
        "`/var/lib/gpuaas/agent` on the node (mode 0600)",
        "never stored";
    TaskKey Sealed Never
        "nowhere",
        "it is retired";
    AuthorityKey Sealed Never
        "the `--authority-command` program instead of the database, if one is set",
        "the authority is retired";
    BundleKey Sealed Never
        "nowhere; keys passed to `gpuaas bundle publish DIR --key FILE` stay with their owner",
        "`gpuaas bundle rotate-key --reason WHY`";
    MasterKey Nowhere Never
        "`master.key` in the data folder (mode 0600), or the source given with `--master-key`; `keys.sealed` in a backup, sealed with `--key-file`",
        "never stored";
    VaultSecretId Nowhere Never
        "the file given with `--vault-secret-id-file`; the token that Vault returns for it is kept only in memory",
        "never stored";
    DatabasePassword Nowhere Never
        "`--database`, its environment variable or the configuration file",
        "never stored";
    NatsCredentials Nowhere Never
        "the file given with `--nats-credentials`, or `--nats`; events and lists show the URL without them",
        "never stored";
    ListenerKey Nowhere Never
        "the file given with `gpuaas serve --key-file`; a key that the authority certifies is only in memory",
        "never stored";
    BackupKey Nowhere Never
        "the file given with `gpuaas backup --key-file`; store it apart from the backup",
        "never stored";
    SignInToken Nowhere Never
        "the `gpuaas/contexts.json` file of the person who signed in (mode 0600)",
        "never stored";
}

impl SecretKind {
    /// The row of this kind.
    #[must_use]
    pub const fn row(self) -> &'static SecretRow {
        &SECRETS[self as usize]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_kind_has_its_row() {
        assert_eq!(SECRETS.len(), SecretKind::ALL.len());
        for kind in SecretKind::ALL {
            assert_eq!(kind.row().kind, *kind);
        }
    }
}
