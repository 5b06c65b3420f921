//! Every kind of secret, and where it may be found. A test of the API plants one of each kind and searches
//! responses, stored responses, the database and a backup for it.

use crate::string_enum::string_enum;

string_enum! {
    /// A kind of secret.
    SecretKind {
        /// The key with which the control plane asks MAAS.
        MaasApiKey = "API key of MAAS",
        /// The password of a node's BMC.
        BmcPassword = "BMC password",
        /// The first administrator's token.
        AdminToken = "admin token",
        /// A token of a person or a program.
        AccessToken = "access token",
        /// What the receiver of a webhook checks signatures with.
        WebhookSecret = "secret of a webhook",
        /// A secret input of a bundle.
        BundleInput = "secret input of a bundle",
        /// The token of a deployment's callbacks.
        BootstrapToken = "bootstrap token",
        /// The token with which an agent enrolls.
        EnrollmentToken = "enrollment token",
        /// What a tenant's guest is started with.
        GuestUserData = "user-data of a guest",
        /// The private key of an agent.
        NodeKey = "key of a node",
        /// The private key that signs the tasks of agents.
        TaskKey = "key that signs tasks",
        /// The private key of the authority that signs certificates.
        AuthorityKey = "key of the certificate authority",
        /// The private key that signs bundles which were published without a signature.
        BundleKey = "key that signs bundles",
        /// The key that seals the others.
        MasterKey = "master key",
        /// What the Vault's role signs in with.
        VaultSecretId = "secret ID of the Vault role",
        /// The password of the control plane's user in PostgreSQL.
        DatabasePassword = "password of the database",
        /// What the control plane signs in with at the NATS server.
        NatsCredentials = "credentials of the NATS server",
        /// The private key of the operators' listener.
        ListenerKey = "key of the operators' listener",
        /// The key that seals the keys of a backup.
        BackupKey = "key of backups",
        /// What the identity provider gives a person who signs in.
        SignInToken = "token of the identity provider",
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
        Once = "once, when it is made",
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
        "MAAS; the Vault instead of the database, if the site names a reference",
        "the site is removed, or its URL or key changes";
    BmcPassword Sealed Never
        "MAAS, which sends it to the BMC; an approval that waits, sealed",
        "the node is removed, or its BMC changes";
    AdminToken Digest Never
        "`admin-token` of the data folder (mode 0600); `keys.sealed` of a backup, sealed with `--key-file`",
        "`gpuaas token reset --reason WHY`";
    AccessToken Digest Once
        "the file that its owner chose",
        "it is revoked: its SHA-256 stays, to say so";
    WebhookSecret Sealed Once
        "the receiver",
        "the webhook is removed";
    BundleInput Sealed Never
        "user-data of the node, which MAAS keeps; on the node `/etc/gpuaas/bootstrap.json` and `/var/lib/gpuaas/site-bootstrap/NAME.secrets` (mode 0600)",
        "it is deleted";
    BootstrapToken Digest Never
        "user-data of the node, which MAAS keeps; on the node `/etc/gpuaas/bootstrap.json` (mode 0600)",
        "its run is removed; it opens nothing once the run has ended";
    EnrollmentToken Digest Never
        "user-data of the node, which MAAS keeps; on the node `/etc/gpuaas/bootstrap.json` and `/etc/gpuaas/agent.json` (mode 0600)",
        "its run is removed; it enrolls one key, once";
    GuestUserData Sealed Never
        "the task for the host's agent, while it is fetched; the guest's seed on the host, until the claim is released",
        "the launch ends";
    NodeKey Nowhere Never
        "`/var/lib/gpuaas/agent` of the node (mode 0600)",
        "it is never there";
    TaskKey Sealed Never
        "nowhere",
        "it is retired";
    AuthorityKey Sealed Never
        "the program of `--authority-command` instead of the database, if there is one",
        "the authority is retired";
    BundleKey Sealed Never
        "nowhere; keys of `gpuaas bundle publish DIR --key FILE` stay with their owner",
        "`gpuaas bundle rotate-key --reason WHY`";
    MasterKey Nowhere Never
        "`master.key` of the data folder (mode 0600), or what `--master-key` names; `keys.sealed` of a backup, sealed with `--key-file`",
        "it is never there";
    VaultSecretId Nowhere Never
        "the file of `--vault-secret-id-file`; the token that the Vault gives for it is in memory alone",
        "it is never there";
    DatabasePassword Nowhere Never
        "`--database`, its variable or the configuration file",
        "it is never there";
    NatsCredentials Nowhere Never
        "the file of `--nats-credentials`, or `--nats`; events and lists show the URL without them",
        "it is never there";
    ListenerKey Nowhere Never
        "the file of `gpuaas serve --key-file`; one that the authority certifies is in memory alone",
        "it is never there";
    BackupKey Nowhere Never
        "the file of `gpuaas backup --key-file`, which belongs elsewhere than the backup",
        "it is never there";
    SignInToken Nowhere Never
        "`gpuaas/contexts.json` of the person who signed in (mode 0600)",
        "it is never there";
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
