//! Rules about what tells one host from another, beside machine-id, SSH keys and random seeds, which
//! have rules of their own: an image gives every host the same.

use super::rule::{LintRule, LintSeverity::Error, absolute};
use super::subject::LintSubject;
use crate::archive_index::IndexedKind;

/// How a file is told to hold an identity.
#[derive(Clone, Copy)]
enum Identity {
    /// It is not empty.
    Content,
    /// It has a line that begins so.
    Line(&'static str),
    /// It has a line that begins with the first, and none that begins with the second.
    LineWithout(&'static str, &'static str),
}

use Identity::{Content, Line, LineWithout};

/// Files by path; a folder ends with a slash, and each file below counts.
const IDENTITIES: [(&str, Identity); 30] = [
    // Initiators of storage: two hosts with one name are one host for an array.
    ("etc/nvme/hostnqn", Content),
    ("etc/nvme/hostid", Content),
    ("etc/nvme/config.json", Line("\"hostnqn\"")),
    ("etc/iscsi/initiatorname.iscsi", LineWithout("InitiatorName=", "GenerateName=yes")),
    // ZFS and the C library.
    ("etc/hostid", Content),
    // DHCP: the same identifier gets the same lease.
    ("etc/dhcpcd.duid", Content),
    ("etc/systemd/networkd.conf", Line("DUIDRawData=")),
    ("var/lib/dhcp/", Content),
    ("var/lib/dhcpcd/", Content),
    ("var/lib/NetworkManager/secret_key", Content),
    // systemd's key of credentials.
    ("var/lib/systemd/credential.secret", Content),
    ("etc/systemd/tpm2-srk-public-key.pem", Content),
    // Membership and authentication.
    ("etc/krb5.keytab", Content),
    ("etc/munge/munge.key", Content),
    ("etc/corosync/authkey", Content),
    ("etc/salt/minion_id", Content),
    ("etc/wireguard/", Line("PrivateKey")),
    ("var/lib/samba/private/secrets.tdb", Content),
    ("var/lib/tailscale/tailscaled.state", Content),
    ("var/lib/teleport/host_uuid", Content),
    ("var/lib/ubuntu-advantage/private/", Content),
    ("var/lib/ubuntu-pro/private/", Content),
    ("var/lib/landscape/client/broker.bpickle", Content),
    // Agents and daemons that number themselves.
    ("etc/docker/key.json", Content),
    ("var/lib/docker/engine-id", Content),
    ("etc/openvswitch/system-id.conf", Content),
    ("var/lib/netdata/registry/netdata.public.unique.id", Content),
    ("var/lib/netdata/cloud.d/", Content),
    ("var/lib/consul/node-id", Content),
    ("var/lib/nomad/client/client-id", Content),
];

pub(super) const RULES: &[LintRule] = &[LintRule {
    code: "host_identity_left",
    severity: Error,
    reason: "the image contains the identity of one host",
    breaks: "first boot: every host has the same identity; a storage array treats two hosts as one and drops sessions, and daemons replace each other",
    fix: "delete the file at the end of the build; the package or the first boot creates a new one (iSCSI: GenerateName=yes)",
    check: |image| {
        let found = IDENTITIES.iter().flat_map(|(path, how)| {
            let files: Vec<&str> = match path.ends_with('/') {
                true => image.leaves(path).map(|(path, _)| path).collect(),
                false => vec![path],
            };
            files.into_iter().filter(move |file| holds(image, file, *how))
        });
        absolute(found)
    },
}];

fn holds(image: &LintSubject<'_>, path: &str, how: Identity) -> bool {
    let entry = image.index.entry(path);
    let is_filled =
        entry.is_some_and(|entry| entry.kind == IndexedKind::File && entry.size_bytes > 0);
    let has = |begin: &str| image.lines(path).any(|line| line.starts_with(begin));
    is_filled
        && match how {
            Content => true,
            Line(begin) => has(begin),
            LineWithout(begin, without) => has(begin) && !has(without),
        }
}
