//! The listener for operators: plain HTTP where only this host reaches it, TLS elsewhere.

use std::io::{self, Write as _};
use std::net::{IpAddr, SocketAddr};
use std::path::Path;
use std::sync::Arc;

use gpuaas_client::failure::Failure;
use gpuaas_identity::Issuer;
use gpuaas_identity::listener::operator_server_config;
use gpuaas_identity::server::Security;
use gpuaas_types::codes::CommandCode;

use super::data_folder::unwritable;
use super::server_certificate::{ServerFiles, Source, Upkeep, names, read};

/// File of the data folder that has what clients of the listeners have to trust.
const ANCHORS: &str = "ca.pem";
/// Where Linux says what this host is called (uname(2), `nodename`).
const HOSTNAME: &str = "/proc/sys/kernel/hostname";

/// When operators are spoken to over TLS.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum OperatorSecurity {
    /// Where others than this host can reach the listener.
    #[default]
    OffLoopback,
    /// On every address, loopback as well.
    Tls,
    /// Never: a proxy before it ends TLS.
    Plain,
}

/// How operators reach a control plane. See `gpuaas serve --help`.
#[derive(Debug, Clone, Default)]
pub struct OperatorListenerOptions {
    /// When it is TLS.
    pub security: OperatorSecurity,
    /// The listener's certificate, where it is not to come from the authority.
    pub files: Option<ServerFiles>,
    /// Names and addresses that a certificate of the authority is for, beside the listener's own.
    pub names: Vec<String>,
}

/// A listener for operators that is not served yet.
pub(super) struct Prepared {
    pub(super) security: Security,
    pub(super) upkeep: Option<Upkeep>,
    /// What clients shall trust for it.
    pub(super) anchor_pem: Option<String>,
}

impl Prepared {
    /// The scheme of its URL.
    pub(super) const fn scheme(&self) -> &'static str {
        match self.security {
            Security::Plain => "http",
            Security::Tls { .. } => "https",
        }
    }
}

/// How the listener at `address` speaks. Without an `issuer`, in a control plane for stand-ins, it
/// is plain, and on loopback.
///
/// # Errors
/// `server_certificate_unusable`, `authority_broken`, `authority_unavailable`,
/// `operator_listener_unusable`.
pub(super) async fn prepare(
    options: &OperatorListenerOptions,
    address: SocketAddr,
    issuer: Option<&Arc<Issuer>>,
) -> Result<Prepared, Failure> {
    let is_tls = match options.security {
        OperatorSecurity::OffLoopback => {
            options.files.is_some() || !address.ip().to_canonical().is_loopback()
        }
        OperatorSecurity::Tls => true,
        OperatorSecurity::Plain => false,
    };
    let plain = Prepared { security: Security::Plain, upkeep: None, anchor_pem: None };
    let Some(issuer) = issuer.filter(|_| is_tls) else { return Ok(plain) };
    let (source, anchor_pem) = match &options.files {
        Some(files) => {
            (Source::Files(files.clone()), files.anchor.as_deref().map(read).transpose()?)
        }
        None => {
            let names = own_names(&options.names, address.ip());
            let source = Source::Issuer { issuer: Arc::clone(issuer), names };
            (source, Some(issuer.anchors_pem()))
        }
    };
    let (certificate, upkeep) = source.start().await?;
    let config = operator_server_config(certificate).map_err(|error| {
        Failure::local(CommandCode::OperatorListenerUnusable, error.to_string())
    })?;
    let security = Security::Tls { config, reader: None };
    Ok(Prepared { security, upkeep: Some(upkeep), anchor_pem })
}

/// What a certificate of the authority is for: what was told, and where the listener takes any
/// address, the name of this host.
fn own_names(told: &[String], address: IpAddr) -> Vec<String> {
    let hostname = std::fs::read_to_string(HOSTNAME).unwrap_or_default();
    let hostname = Some(hostname.trim().to_owned())
        .filter(|name| address.is_unspecified() && !name.is_empty() && name != "(none)");
    names(told.iter().cloned().chain(hostname), address)
}

/// Writes what clients of the listeners have to trust, for whoever copies it to them.
///
/// # Errors
/// `data_unwritable`.
pub(super) fn write_anchors(data: &Path, anchors: [Option<&str>; 2]) -> Result<(), Failure> {
    let [operators, nodes] = anchors;
    let nodes = nodes.filter(|nodes| operators != Some(*nodes));
    let text: String = [operators, nodes].into_iter().flatten().collect();
    let path = data.join(ANCHORS);
    if text.is_empty() || std::fs::read_to_string(&path).is_ok_and(|kept| kept == text) {
        return Ok(());
    }
    replace_file(&path, &text).map_err(|error| unwritable(data, &error))
}

fn replace_file(path: &Path, text: &str) -> io::Result<()> {
    let temporary = path.with_extension("new");
    let mut file = std::fs::File::create(&temporary)?;
    file.write_all(text.as_bytes())?;
    file.sync_all()?;
    std::fs::rename(&temporary, path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn off_loopback_it_is_tls_unless_that_is_said() {
        let issuer = issuer();
        let scheme = async |security, address: &str| {
            let options = OperatorListenerOptions { security, ..Default::default() };
            let prepared = prepare(&options, address.parse().unwrap(), Some(&issuer)).await;
            prepared.unwrap().scheme()
        };
        assert_eq!(scheme(OperatorSecurity::OffLoopback, "127.0.0.1:1").await, "http");
        assert_eq!(scheme(OperatorSecurity::OffLoopback, "[::ffff:127.0.0.1]:1").await, "http");
        assert_eq!(scheme(OperatorSecurity::OffLoopback, "0.0.0.0:1").await, "https");
        assert_eq!(scheme(OperatorSecurity::Plain, "0.0.0.0:1").await, "http");
        assert_eq!(scheme(OperatorSecurity::Tls, "127.0.0.1:1").await, "https");
    }

    fn issuer() -> Arc<Issuer> {
        use gpuaas_engine::Clock as _;
        let now = gpuaas_engine::RealClock.now();
        let authority = gpuaas_identity::BuiltIn::generate(now).unwrap();
        Arc::new(Issuer::new(Arc::new(authority), gpuaas_identity::Lifetimes::default()))
    }

    #[test]
    fn anchors_are_written_once_each() {
        let dir = tempfile::tempdir().unwrap();
        let written = || std::fs::read_to_string(dir.path().join(ANCHORS)).unwrap();
        write_anchors(dir.path(), [None, None]).unwrap();
        assert!(!dir.path().join(ANCHORS).exists());
        write_anchors(dir.path(), [Some("a\n"), Some("a\n")]).unwrap();
        assert_eq!(written(), "a\n");
        write_anchors(dir.path(), [Some("b\n"), Some("a\n")]).unwrap();
        assert_eq!(written(), "b\na\n");
    }
}
