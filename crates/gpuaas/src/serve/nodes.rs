//! The listener for nodes: whose certificates agents have, and whose its own is.

use std::fs;
use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use gpuaas_client::failure::{Exit, Failure, store_failure};
use gpuaas_engine::{Clock as _, RealClock};
use gpuaas_identity::listener::{NodeListener, ServerCertificate, server_config};
use gpuaas_identity::{Authority, AuthorityError, BuiltIn, CommandAuthority, Issuer, Lifetimes};
use gpuaas_store::{ExposeSecret as _, SecretString, Store};
use gpuaas_types::Timestamp;
use gpuaas_types::codes::CommandCode;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::sign::CertifiedKey;
use tokio::net::TcpListener;

/// Seconds between two looks whether the listener's certificate is to be replaced.
const LOOK_SECONDS: f64 = 3600.0;

/// How nodes reach a control plane.
#[derive(Debug, Clone)]
pub enum NodeListenerOptions {
    /// Over TLS, on a listener of their own, with certificates.
    Tls(Box<TlsOptions>),
    /// In plain text, where operators do: stand-ins of simulated fleets, on loopback.
    StandIns,
}

/// See `gpuaas serve --help`.
#[derive(Debug, Clone)]
pub struct TlsOptions {
    /// Address to listen on; port 0 for any.
    pub listen: SocketAddr,
    /// The listener's own certificate, where it is not to come from the authority.
    pub files: Option<ServerFiles>,
    /// An authority outside: the program to ask, and the file of its anchors.
    pub authority: Option<(PathBuf, PathBuf)>,
    /// How long certificates live.
    pub lifetimes: Lifetimes,
}

/// A certificate in files.
#[derive(Debug, Clone)]
pub struct ServerFiles {
    /// The chain, PEM, the leaf first.
    pub certificate: PathBuf,
    /// Its key, PEM.
    pub key: PathBuf,
    /// What nodes shall trust for it, PEM; none: the authorities of their system.
    pub anchor: Option<PathBuf>,
}

impl NodeListenerOptions {
    /// TLS on this address with everything else as usual.
    #[must_use]
    pub fn tls(listen: SocketAddr) -> Self {
        let lifetimes = Lifetimes::default();
        Self::Tls(Box::new(TlsOptions { listen, files: None, authority: None, lifetimes }))
    }
}

/// A listener for nodes that is not served yet.
pub(super) struct Prepared {
    pub(super) issuer: Arc<Issuer>,
    pub(super) listener: NodeListener,
    /// URL that nodes are told.
    pub(super) advertise: String,
    /// What they shall trust for it.
    pub(super) anchor_pem: Option<String>,
    pub(super) upkeep: Upkeep,
}

/// [`prepare`]s the listener for nodes where there is to be one.
///
/// # Errors
/// See there.
pub(super) async fn prepare_any(
    store: &Store,
    socket: Option<(&TlsOptions, TcpListener)>,
    advertise: Option<&str>,
) -> Result<Option<Prepared>, Failure> {
    match socket {
        Some((options, socket)) => prepare(store, options, socket, advertise).await.map(Some),
        None => Ok(None),
    }
}

/// Opens the listener for nodes on `socket`.
///
/// # Errors
/// `authority_broken`, `authority_unavailable`, `server_certificate_unusable`,
/// `advertise_not_https`; the store's.
async fn prepare(
    store: &Store,
    options: &TlsOptions,
    socket: TcpListener,
    advertise: Option<&str>,
) -> Result<Prepared, Failure> {
    let address = socket.local_addr().map_err(|e| Failure::cannot_listen(options.listen, &e))?;
    let advertise = advertise.map_or_else(|| format!("https://{address}"), str::to_owned);
    let Some(rest) = advertise.strip_prefix("https://") else {
        return Err(Failure::usage(
            CommandCode::AdvertiseNotHttps,
            format!("--advertise {advertise} is no https URL"),
        )
        .hint("give the URL of the node listener, such as https://ADDRESS:8443"));
    };
    let names = names(rest, address.ip());
    let authority = authority(store, options).await?;
    let issuer = Arc::new(Issuer::new(authority, options.lifetimes));
    let source = match &options.files {
        Some(files) => Source::Files(files.clone()),
        None => Source::Issuer { issuer: Arc::clone(&issuer), names },
    };
    let anchor_pem = match &options.files {
        Some(ServerFiles { anchor, .. }) => anchor.as_deref().map(read).transpose()?,
        None => Some(issuer.anchors_pem().to_owned()),
    };
    let (certified, upkeep_at) = source.certificate().await?;
    let certificate = Arc::new(ServerCertificate::new(certified));
    let unusable = |error: &dyn std::fmt::Display| {
        Failure::local(CommandCode::NodeListenerUnusable, error.to_string())
    };
    let config = server_config(Arc::clone(&certificate)).map_err(|e| unusable(&e))?;
    let reader = issuer.reader().map_err(|error| of_authority(&error))?;
    let listener = NodeListener::start(socket, config, reader).map_err(|e| unusable(&e))?;
    let upkeep = Upkeep { source, certificate, at: upkeep_at };
    Ok(Prepared { issuer, listener, advertise, anchor_pem, upkeep })
}

/// Whom nodes' certificates come from. The built-in authority is made once and sealed in the
/// database, so all control planes of one have the same.
async fn authority(store: &Store, options: &TlsOptions) -> Result<Arc<dyn Authority>, Failure> {
    let failed = |error: AuthorityError| of_authority(&error);
    if let Some((program, anchors)) = &options.authority {
        let outside = CommandAuthority::new(program, read(anchors)?).map_err(failed)?;
        return Ok(Arc::new(outside));
    }
    let proposed = SecretString::from(BuiltIn::generate(RealClock.now()).map_err(failed)?.to_pem());
    let kept = store.ensure_node_authority(&proposed).await.map_err(store_failure)?;
    Ok(Arc::new(BuiltIn::from_pem(kept.expose_secret()).map_err(failed)?))
}

fn of_authority(error: &AuthorityError) -> Failure {
    let title = "The certificate authority cannot be used";
    Failure::coded(Exit::Local, error.code().as_str(), title, error.to_string())
        .hint("check --authority-command and --authority-anchor-file")
}

fn read(path: impl AsRef<Path>) -> Result<String, Failure> {
    let path = path.as_ref();
    fs::read_to_string(path).map_err(|error| unusable(path, &error))
}

fn unusable(path: &Path, why: &dyn std::fmt::Display) -> Failure {
    let detail = format!("{}: {why}", path.display());
    Failure::local(CommandCode::ServerCertificateUnusable, detail)
        .hint("give PEM: a chain with the leaf first, its key, and what nodes shall trust")
}

/// What the certificate has to be good for: the host of the URL that nodes are told, and this
/// machine's own view.
fn names(advertised: &str, address: IpAddr) -> Vec<String> {
    let authority = advertised.split(['/', '?']).next().unwrap_or(advertised);
    let host = match authority.strip_prefix('[') {
        Some(rest) => rest.split(']').next().unwrap_or(rest),
        None => authority.rsplit_once(':').map_or(authority, |(host, _)| host),
    };
    let own = (!address.is_unspecified()).then(|| address.to_string());
    let mut names = vec![host.to_owned()];
    for name in own.into_iter().chain(["localhost", "127.0.0.1", "::1"].map(str::to_owned)) {
        if !names.contains(&name) {
            names.push(name);
        }
    }
    names
}

/// Where the listener's certificate comes from.
enum Source {
    Files(ServerFiles),
    Issuer { issuer: Arc<Issuer>, names: Vec<String> },
}

impl Source {
    /// The certificate as it is now, and when to look again. Hosts judge it by their own clocks, so
    /// it is made by the wall's.
    async fn certificate(&self) -> Result<(CertifiedKey, Timestamp), Failure> {
        let now = RealClock.now();
        match self {
            Self::Files(files) => Ok((from_files(files)?, now.plus_seconds(LOOK_SECONDS))),
            Self::Issuer { issuer, names } => {
                let (certified, until) =
                    issuer.server(names.clone(), now).await.map_err(|e| of_authority(&e))?;
                Ok((certified, now.plus_seconds(until.seconds_since(now) * 2.0 / 3.0)))
            }
        }
    }
}

fn from_files(files: &ServerFiles) -> Result<CertifiedKey, Failure> {
    let chain: Result<Vec<_>, _> =
        CertificateDer::pem_slice_iter(read(&files.certificate)?.as_bytes()).collect();
    let chain = chain.map_err(|error| unusable(&files.certificate, &error))?;
    if chain.is_empty() {
        return Err(unusable(&files.certificate, &"there is no certificate in it"));
    }
    let key = PrivateKeyDer::from_pem_slice(read(&files.key)?.as_bytes())
        .map_err(|error| unusable(&files.key, &error))?;
    let provider = rustls::crypto::ring::default_provider();
    CertifiedKey::from_der(chain, key, &provider).map_err(|error| unusable(&files.key, &error))
}

/// Replaces the listener's certificate in time, for as long as it is polled.
pub(super) struct Upkeep {
    source: Source,
    certificate: Arc<ServerCertificate>,
    at: Timestamp,
}

impl Upkeep {
    pub(super) async fn run(mut self) {
        loop {
            RealClock.sleep_until(self.at.min(RealClock.now().plus_seconds(LOOK_SECONDS))).await;
            if RealClock.now() < self.at {
                continue;
            }
            match self.source.certificate().await {
                Ok((certified, at)) => {
                    self.certificate.replace(certified);
                    self.at = at;
                }
                // The one that is there goes on; it has a third of its life left.
                Err(error) => {
                    tracing::error!(%error, "the node listener's certificate is not replaced");
                    self.at = RealClock.now().plus_seconds(LOOK_SECONDS);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_certificate_is_for_the_host_that_nodes_are_told() {
        let any = IpAddr::from([0, 0, 0, 0]);
        assert_eq!(names("gpuaas.example:8443/x", any)[0], "gpuaas.example");
        assert_eq!(names("gpuaas.example", any)[0], "gpuaas.example");
        assert_eq!(names("[fd00::1]:8443", any)[0], "fd00::1");
        let own = IpAddr::from([10, 0, 0, 7]);
        assert_eq!(names("127.0.0.1:1", own), ["127.0.0.1", "10.0.0.7", "localhost", "::1"]);
    }
}
