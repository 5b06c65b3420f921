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
DataFolder "data_folder" "The data folder is this user's alone" {
    doc: "The data folder is not there, cannot be read, or is open to other users of the host",
    next_action: "`chmod 700` the data folder, and start `gpuaas doctor --data DIR` as the user of the control plane",
}
KeyFiles "key_files" "Files of keys and tokens are this user's alone" {
    doc: "`master.key`, `admin-token` or the database may be read by other users of the host",
    next_action: "`chmod 600` the file; where others may have read it, make another: `gpuaas token reset --data DIR --reason TEXT`",
}
DiskRoom "disk_room" "The disk of the data folder has room" {
    doc: "Less room is left than `--min-free-bytes` says",
    next_action: "make room, or have `gpuaas serve` export and delete what is old (`--retention-days DAYS --retention-export DIR`)",
}
OpenFiles "open_files" "The process may open enough files" {
    doc: "The hard limit of open files leaves too few for the listeners",
    next_action: "raise it: `LimitNOFILE=65536` in the unit of systemd, or `ulimit -Hn`",
}
MasterKey "master_key" "The master key opens the database's secrets" {
    doc: "The key file is missing, damaged, or another one than the database was sealed with",
    next_action: "restore `master.key` from the backup that the database is from",
}
DatabaseTransport "database_transport" "The database is verified, or on this host" {
    doc: "A PostgreSQL off this host is reached without `sslmode=verify-full`: whoever is on the way can read and change what is kept",
    next_action: "add `?sslmode=verify-full&sslrootcert=FILE` to the URL of the database",
}
DatabaseHealth "database_health" "The database answers and is whole" {
    doc: "The database is not there, does not answer, or its file is damaged",
    next_action: "see that the server runs and the URL is right; a damaged file is restored from a backup, together with `master.key`",
}
DatabaseSchema "database_schema" "The tables are of this version" {
    doc: "The tables were made by another version of gpuaas",
    next_action: "start the version that the database was used with last; an older one's tables are brought up to date when `gpuaas serve` starts",
}
DatabaseVersion "database_version" "The database engine is a supported one" {
    doc: "The PostgreSQL server is older than version 15",
    next_action: "update PostgreSQL to version 15 or newer",
}
AuditChain "audit_chain" "No entry is beside the audit's chain" {
    doc: "The audit log has entries that no control plane wrote",
    next_action: "`gpuaas audit verify` names the first row that does not fit",
}
AgentExecutable "agent_executable" "The node agent is there and of this version" {
    doc: "The node agent's executable is missing, does not start, or is of another version",
    next_action: "install both executables of one version, or name the agent with `--agent-binary`",
}
CertificateEnd "certificate_end" "Certificates are not near their end" {
    doc: "A certificate in a file has ended, or ends within `--certificate-days`",
    next_action: "put a new certificate into the file: a running control plane reads it again",
}
AuthorityEnd "authority_end" "The certificate authority of nodes is not near its end" {
    doc: "The certificate authority that signs nodes' certificates ends within a year, or was not replaced to the end",
    next_action: "let another one take its place, without reimaging: `gpuaas authority stage --reason TEXT`, `gpuaas authority activate --reason TEXT`, `gpuaas authority retire --reason TEXT`",
}
SiteReachable "site_reachable" "The region answers" {
    doc: "A site's region does not answer, or what answers is no MAAS",
    next_action: "see that the address is right and MAAS runs: `gpuaas site list`, `gpuaas site set SITE --url URL --api-key-file FILE`",
}
SiteTransport "site_transport" "The region is reached over TLS, or on this host" {
    doc: "A region off this host has an http:// address: whoever is on the way can change what MAAS is told",
    next_action: "give the region's https:// address with a key: `gpuaas site set SITE --url URL --api-key-file FILE`",
}
SiteVersion "site_version" "The region's version is a supported one" {
    doc: "A region is older than MAAS 3.4, or newer than 3.7",
    next_action: "update MAAS, or gpuaas where the region is newer",
}
SiteClock "site_clock" "This host's clock and the region's agree" {
    doc: "The clocks differ by more than half a minute; MAAS refuses what was signed five minutes ago",
    next_action: "set the clock that is wrong: `chronyc makestep` there, and see that it stays synchronised",
}
SiteKey "site_key" "The region takes the key" {
    doc: "The region refuses the API key, or the sealed key cannot be read",
    next_action: "print a key on the region (`maas apikey --username=NAME`) and give it: `gpuaas site set SITE --api-key-file FILE`",
}
SiteKeyKept "site_key_kept" "The key is where the site says" {
    doc: "The Vault that has the API key does not give it",
    next_action: "bring the Vault back, or let the control plane's role read the key: `gpuaas site show SITE` says where it is kept",
}
SiteKeyRights "site_key_rights" "The key is an administrator's" {
    doc: "The user behind the API key is no administrator of MAAS",
    next_action: "give the key of an administrator: `gpuaas site set SITE --api-key-file FILE`",
}
SiteImages "site_images" "A site has no more images than it needs" {
    doc: "More than three images of one family are in the region: uploaded, approved, deprecated or expired ones",
    next_action: "`gpuaas image list --site SITE` shows them; `gpuaas image delete IMAGE --site SITE --reason WHY` deletes one that nothing names",
}
SiteControl "site_control" "No other control plane changes the region" {
    doc: "Another control plane's mark is in the region, so its machines are not changed from here",
    next_action: "stop the other control plane, or take the region over: `gpuaas site take-control SITE --reason TEXT`",
}
}
