//! The operation `refresh_trust`: certificates and mirrors of container registries.
//!
//! | file | for |
//! |---|---|
//! | `/etc/containerd/certs.d/HOST/hosts.toml` | containerd: mirrors, and the certificates by path |
//! | `/etc/containerd/certs.d/HOST/ca.crt` | the certificates |
//! | `/etc/docker/certs.d/HOST/ca.crt` | Docker: the certificates |
//!
//! Both read these files at the next pull, so nothing is restarted. A file that is as it should be
//! is not written, so a second run changes nothing.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use gpuaas_types::agent::{Change, Finding, Registry};
use host_facts::HostRoot;
use rustls::RootCertStore;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;

use super::operation::{OperationContext, OperationError, OperationOutcome};
use crate::atomic_file;

const CONTAINERD: &str = "/etc/containerd/certs.d";
const DOCKER: &str = "/etc/docker/certs.d";
const CONTAINERD_CONFIG: &str = "/etc/containerd/config.toml";

/// A file that containerd or Docker reads.
struct TrustFile {
    /// Path on the host.
    name: String,
    /// Path of this process.
    path: PathBuf,
    content: String,
}

pub(super) fn run(
    context: &OperationContext<'_>,
    registries: &[Registry],
) -> Result<OperationOutcome, OperationError> {
    let Some(root) = context.host.root() else {
        return Err(OperationError::new("host_not_live", "a simulated host has no files"));
    };
    for registry in registries {
        check_certificates(registry)?;
    }
    let files: Vec<TrustFile> = registries.iter().flat_map(|one| trust_files(root, one)).collect();
    let mut outcome = OperationOutcome::default();
    for file in &files {
        let before = match fs::read_to_string(&file.path) {
            Ok(text) if text == file.content => continue,
            Ok(text) => summarize(&text),
            Err(error) if error.kind() == io::ErrorKind::NotFound => "not there".to_owned(),
            Err(error) => {
                return Err(OperationError::unwritable(&file.name, &error).with_partial(outcome));
            }
        };
        if !context.dry_run {
            write(file).map_err(|error| {
                let partial = std::mem::take(&mut outcome);
                OperationError::unwritable(&file.name, &error).with_partial(partial)
            })?;
        }
        let after = summarize(&file.content);
        outcome.changes.push(Change { what: file.name.clone(), before, after });
    }
    if !context.dry_run {
        for file in &files {
            let is_there = fs::read_to_string(&file.path).is_ok_and(|text| text == file.content);
            let seen = if is_there { "correct" } else { "differs from what was written" };
            outcome.findings.push(Finding {
                name: file.name.clone(),
                passed: Some(is_there),
                seen: seen.to_owned(),
            });
        }
        if outcome.findings.iter().any(|finding| finding.passed == Some(false)) {
            let message = "a file differs from what was written; another program is writing it too";
            return Err(OperationError::new("trust_not_in_effect", message).with_partial(outcome));
        }
    }
    outcome.findings.extend(containerd_reads_folder(root));
    outcome.message = match outcome.changes.len() {
        0 => "no changes needed".to_owned(),
        count => format!("{count} files"),
    };
    Ok(outcome)
}

/// Whether each certificate can be a trust anchor at all; checked before a file is touched.
fn check_certificates(registry: &Registry) -> Result<(), OperationError> {
    let invalid = |reason: String| {
        OperationError::new(
            "certificate_invalid",
            format!("certificates of {}: {reason}", registry.host),
        )
    };
    if registry.ca_pem.is_empty() {
        return Ok(());
    }
    let mut store = RootCertStore::empty();
    for certificate in CertificateDer::pem_slice_iter(registry.ca_pem.as_bytes()) {
        let certificate = certificate.map_err(|error| invalid(format!("{error:?}")))?;
        store.add(certificate).map_err(|error| invalid(error.to_string()))?;
    }
    if store.is_empty() { Err(invalid("it contains no certificate".to_owned())) } else { Ok(()) }
}

fn trust_files(root: &HostRoot, registry: &Registry) -> Vec<TrustFile> {
    let Registry { host, ca_pem, .. } = registry;
    let file = |folder: &str, name: &str, content: String| {
        let name = format!("{folder}/{host}/{name}");
        TrustFile { path: root.join(&name), name, content }
    };
    let mut files = Vec::new();
    if !ca_pem.is_empty() {
        // Before `hosts.toml`, which names it.
        files.push(file(CONTAINERD, "ca.crt", ca_pem.clone()));
        files.push(file(DOCKER, "ca.crt", ca_pem.clone()));
    }
    files.push(file(CONTAINERD, "hosts.toml", hosts_toml(registry)));
    files
}

/// containerd's `docs/hosts.md`. Nothing in it needs quoting: see the bounds of a [`Registry`].
fn hosts_toml(registry: &Registry) -> String {
    let Registry { host, ca_pem, mirrors } = registry;
    let mut text = format!("# Written by gpuaas-node-agent.\nserver = \"https://{host}\"\n");
    let ca = format!("  ca = \"{CONTAINERD}/{host}/ca.crt\"\n");
    let ca = if ca_pem.is_empty() { "" } else { &ca };
    for mirror in mirrors {
        text.push_str(&format!(
            "\n[host.\"{mirror}\"]\n  capabilities = [\"pull\", \"resolve\"]\n{ca}"
        ));
    }
    text.push_str(&format!(
        "\n[host.\"https://{host}\"]\n  capabilities = [\"pull\", \"resolve\", \"push\"]\n{ca}"
    ));
    text
}

fn summarize(text: &str) -> String {
    let digest = gpuaas_bundle::Digest::sha256(text.as_bytes()).to_string();
    format!("{} bytes, sha256 {}", text.len(), digest.get(..12).unwrap_or_default())
}

fn write(file: &TrustFile) -> io::Result<()> {
    atomic_file::replace_with_mode(&file.path, file.content.as_bytes(), 0o644)
}

/// Whether containerd's configuration names its folder at all.
fn containerd_reads_folder(root: &HostRoot) -> Option<Finding> {
    let text = fs::read_to_string(root.join(Path::new(CONTAINERD_CONFIG))).ok()?;
    let looks = text.lines().any(|line| {
        let line = line.trim();
        line.starts_with("config_path") && line.contains(CONTAINERD)
    });
    let seen = if looks {
        format!("config_path names {CONTAINERD}")
    } else {
        format!("no config_path names {CONTAINERD}; containerd ignores the files there")
    };
    Some(Finding { name: "containerd reads it".to_owned(), passed: Some(looks), seen })
}

#[cfg(test)]
mod tests {
    use gpuaas_types::agent::{Operation, TaskResult};

    use super::*;
    use crate::env::AgentEnv;
    use crate::host::Host;
    use crate::operate::test_host::operate;

    /// Self-signed, for tests (see gpuaas-artifact/src/tests/ca.pem).
    const CA: &str = include_str!("../../../gpuaas-artifact/src/tests/ca.pem");

    async fn refresh(root: &Path, registry: &Registry, dry_run: bool) -> TaskResult {
        let host = Host::Root(HostRoot::new(root));
        let context = OperationContext { host: &host, env: &AgentEnv::default(), dry_run };
        operate(&context, &Operation::RefreshTrust { registries: vec![registry.clone()] }).await
    }

    #[tokio::test]
    async fn a_registry_is_trusted_once() {
        let dir = tempfile::tempdir().unwrap();
        let registry = Registry {
            host: "registry.example:5000".to_owned(),
            ca_pem: CA.to_owned(),
            mirrors: vec!["https://mirror.example/v2".to_owned()],
        };
        let dry = refresh(dir.path(), &registry, true).await;
        assert!(dry.succeeded && dry.changes.len() == 3, "{dry:?}");
        assert!(!dir.path().join("etc").exists());
        let done = refresh(dir.path(), &registry, false).await;
        assert!(done.succeeded && done.changes.len() == 3, "{done:?}");
        let folder = dir.path().join("etc/containerd/certs.d/registry.example:5000");
        let hosts = fs::read_to_string(folder.join("hosts.toml")).unwrap();
        assert_eq!(
            hosts,
            "# Written by gpuaas-node-agent.\n\
            server = \"https://registry.example:5000\"\n\n\
            [host.\"https://mirror.example/v2\"]\n  capabilities = [\"pull\", \"resolve\"]\n  \
            ca = \"/etc/containerd/certs.d/registry.example:5000/ca.crt\"\n\n\
            [host.\"https://registry.example:5000\"]\n  \
            capabilities = [\"pull\", \"resolve\", \"push\"]\n  \
            ca = \"/etc/containerd/certs.d/registry.example:5000/ca.crt\"\n"
        );
        let docker = dir.path().join("etc/docker/certs.d/registry.example:5000/ca.crt");
        assert_eq!(fs::read_to_string(docker).unwrap(), CA);
        let again = refresh(dir.path(), &registry, false).await;
        assert!(again.succeeded && again.changes.is_empty() && again.findings.len() == 3);
        let other = Registry { mirrors: Vec::new(), ..registry };
        let changed = refresh(dir.path(), &other, false).await;
        assert_eq!(changed.changes.len(), 1);
        assert!(changed.changes[0].what.ends_with("hosts.toml"));
    }

    #[tokio::test]
    async fn what_is_no_certificate_touches_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let pem = "-----BEGIN CERTIFICATE-----\nMAA=\n-----END CERTIFICATE-----\n";
        for ca_pem in [pem.to_owned(), format!("{CA}{pem}")] {
            let registry = Registry { host: "r".to_owned(), ca_pem, mirrors: Vec::new() };
            let refused = refresh(dir.path(), &registry, false).await;
            assert_eq!(refused.code, "certificate_invalid", "{refused:?}");
        }
        assert!(!dir.path().join("etc").exists());
    }

    #[tokio::test]
    async fn what_cannot_be_written_is_said() {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir_all(dir.path().join("etc/containerd")).unwrap();
        fs::write(dir.path().join("etc/containerd/certs.d"), "").unwrap();
        let config = dir.path().join("etc/containerd/config.toml");
        fs::write(&config, "version = 2\n").unwrap();
        let registry = Registry {
            host: "r".to_owned(),
            ca_pem: String::new(),
            mirrors: vec!["http://m".to_owned()],
        };
        assert_eq!(refresh(dir.path(), &registry, false).await.code, "file_unwritable");
        fs::remove_file(dir.path().join("etc/containerd/certs.d")).unwrap();
        let done = refresh(dir.path(), &registry, false).await;
        assert_eq!(done.findings.last().unwrap().passed, Some(false), "{done:?}");
        fs::write(&config, "config_path = \"/etc/containerd/certs.d\"\n").unwrap();
        let done = refresh(dir.path(), &registry, false).await;
        assert_eq!(done.findings.last().unwrap().passed, Some(true));
    }
}
