//! What `gpuaas doctor` looks at.

/// A row of [`DOCTOR_CHECKS`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DoctorCheckRow {
    /// The code.
    pub code: DoctorCheckCode,
    /// What is looked at, in a few words.
    pub title: &'static str,
    /// When the check finds a fault.
    pub doc: &'static str,
    /// What to do then.
    pub next_action: &'static str,
}

codes! {
/// A check of `gpuaas doctor`.
DoctorCheckCode, DoctorCheckRow, DOCTOR_CHECKS;
DataFolder "data_folder" "Only this user can access the data folder" {
    doc: "The data folder is missing or unreadable, or other users of the host can access it",
    next_action: "run `chmod 700` on the data folder, and start `gpuaas doctor --data DIR` as the control plane's user",
}
KeyFiles "key_files" "Only this user can access key and token files" {
    doc: "Other users of the host can read `master.key`, `admin-token` or the database",
    next_action: "run `chmod 600` on the file; if others could have read the token, replace it: `gpuaas token reset --data DIR --reason TEXT`",
}
DiskRoom "disk_room" "The data folder's disk has free space" {
    doc: "Less space is free than `--min-free-bytes` requires",
    next_action: "free disk space, or make `gpuaas serve` export and delete old records (`--retention-days DAYS --retention-export DIR`)",
}
OpenFiles "open_files" "The process can open enough files" {
    doc: "The hard limit on open files is too low for the listeners",
    next_action: "raise the limit: `LimitNOFILE=65536` in the systemd unit, or `ulimit -Hn`",
}
MasterKey "master_key" "The master key opens the database's secrets" {
    doc: "The key file is missing or damaged, or the database was sealed with another key",
    next_action: "restore `master.key` from the same backup as the database",
}
DatabaseTransport "database_transport" "The database connection is verified or local" {
    doc: "The connection to PostgreSQL on another host does not use `sslmode=verify-full`: anyone on the network path can read and change the data",
    next_action: "add `?sslmode=verify-full&sslrootcert=FILE` to the database URL",
}
DatabaseHealth "database_health" "The database answers and is intact" {
    doc: "The database is missing or does not answer, or its file is damaged",
    next_action: "check that the server runs and the URL is correct; restore a damaged file from a backup, together with `master.key`",
}
DatabaseSchema "database_schema" "The database schema matches this version" {
    doc: "Another version of gpuaas created the schema",
    next_action: "start the version that last used the database; `gpuaas serve` upgrades an older schema when it starts",
}
DatabaseVersion "database_version" "The database engine is supported" {
    doc: "The PostgreSQL server is older than version 15",
    next_action: "update PostgreSQL to version 15 or newer",
}
AuditChain "audit_chain" "The audit chain covers every entry" {
    doc: "The audit log has entries that no control plane wrote",
    next_action: "run `gpuaas audit verify` to find the first row that does not match",
}
AgentExecutable "agent_executable" "The node agent exists and has this version" {
    doc: "The node agent's executable is missing, does not start, or has another version",
    next_action: "install both executables in the same version, or set the agent's path with `--agent-binary`",
}
CertificateEnd "certificate_end" "No certificate expires soon" {
    doc: "A certificate in a file has expired, or expires within `--certificate-days`",
    next_action: "write a new certificate to the file: a running control plane reloads it",
}
AuthorityEnd "authority_end" "The node certificate authority does not expire soon" {
    doc: "The certificate authority that signs nodes' certificates expires within a year, or its replacement was not completed",
    next_action: "replace it without reimaging: `gpuaas authority stage --reason TEXT`, `gpuaas authority activate --reason TEXT`, `gpuaas authority retire --reason TEXT`",
}
SiteReachable "site_reachable" "The region answers" {
    doc: "A site's region does not answer, or the server that answers is not MAAS",
    next_action: "check that the address is correct and MAAS runs: `gpuaas site list`, `gpuaas site set SITE --url URL --api-key-file FILE`",
}
SiteTransport "site_transport" "The connection to the region uses TLS or is local" {
    doc: "A region on another host has an http:// address: anyone on the network path can change requests to MAAS",
    next_action: "set the region's https:// address and a key: `gpuaas site set SITE --url URL --api-key-file FILE`",
}
SiteVersion "site_version" "The region's version is supported" {
    doc: "A region is older than MAAS 3.4, or newer than 3.7",
    next_action: "update MAAS, or update gpuaas if the region is newer",
}
SiteClock "site_clock" "The clocks of this host and of the region agree" {
    doc: "The clocks differ by more than 30 seconds; MAAS rejects requests signed five minutes ago",
    next_action: "correct the wrong clock: run `chronyc makestep` on that host, and check that it stays synchronized",
}
SiteKey "site_key" "The region accepts the key" {
    doc: "The region rejects the API key, or the stored key is unreadable",
    next_action: "print a key on the region (`maas apikey --username=NAME`) and set it: `gpuaas site set SITE --api-key-file FILE`",
}
SiteKeyKept "site_key_kept" "The site's Vault returns the key" {
    doc: "The Vault that stores the API key does not return it",
    next_action: "restore the Vault, or allow the control plane's role to read the key: `gpuaas site show SITE` shows where it is stored",
}
SiteKeyRights "site_key_rights" "The key belongs to an administrator" {
    doc: "The API key's user is not a MAAS administrator",
    next_action: "set an administrator's key: `gpuaas site set SITE --api-key-file FILE`",
}
SiteImages "site_images" "A site has no more images than it needs" {
    doc: "The region has more than three images of one family that are uploaded, approved, deprecated or expired",
    next_action: "list them with `gpuaas image list --site SITE`, and delete an unused one with `gpuaas image delete IMAGE --site SITE --reason WHY`",
}
SiteControl "site_control" "No other control plane manages the region" {
    doc: "The region has the mark of another control plane, so this one does not change its machines",
    next_action: "stop the other control plane, or take control of the region: `gpuaas site take-control SITE --reason TEXT`",
}
}
