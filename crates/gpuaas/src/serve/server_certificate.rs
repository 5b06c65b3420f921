//! The certificate of a listener: from files, or from the authority, and replaced in time.

use std::fs;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use gpuaas_client::failure::{Exit, Failure};
use gpuaas_engine::{Clock as _, RealClock};
use gpuaas_identity::listener::ServerCertificate;
use gpuaas_identity::{AuthorityError, Issuer};
use gpuaas_types::Timestamp;
use gpuaas_types::codes::CommandCode;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::sign::CertifiedKey;
use tokio::sync::Notify;

/// Seconds between two looks whether a certificate of the authority is to be replaced.
const LOOK_SECONDS: f64 = 3600.0;
/// Seconds between two looks whether the files of a certificate have changed.
const FILE_LOOK_SECONDS: f64 = 5.0;

/// A certificate in files.
#[derive(Debug, Clone)]
pub struct ServerFiles {
    /// The chain, PEM, the leaf first.
    pub certificate: PathBuf,
    /// Its key, PEM.
    pub key: PathBuf,
    /// What clients shall trust for it, PEM; none: the authorities of their system.
    pub anchor: Option<PathBuf>,
}

/// A file of PEM.
///
/// # Errors
/// `server_certificate_unusable`.
pub(super) fn read(path: impl AsRef<Path>) -> Result<String, Failure> {
    let path = path.as_ref();
    fs::read_to_string(path).map_err(|error| unusable(path, &error))
}

fn unusable(path: &Path, why: &dyn std::fmt::Display) -> Failure {
    let detail = format!("{}: {why}", path.display());
    Failure::local(CommandCode::ServerCertificateUnusable, detail).hint(
        "use PEM files: a chain with the leaf first, its key, and the authorities that clients \
         trust",
    )
}

/// An authority that cannot be used.
pub(super) fn of_authority(error: &AuthorityError) -> Failure {
    let title = "Cannot use the certificate authority";
    Failure::coded(Exit::Local, error.code().as_str(), title, error.to_string())
        .hint("check --authority-command and --authority-anchor-file")
}

/// The host of what follows the scheme of a URL.
pub(super) fn host(rest: &str) -> &str {
    let authority = rest.split(['/', '?']).next().unwrap_or(rest);
    match authority.strip_prefix('[') {
        Some(rest) => rest.split(']').next().unwrap_or(rest),
        None => authority.rsplit_once(':').map_or(authority, |(host, _)| host),
    }
}

/// What a certificate has to be good for: the names that clients are told, and this machine's own
/// view of its address.
pub(super) fn names(told: impl IntoIterator<Item = String>, address: IpAddr) -> Vec<String> {
    let own = (!address.is_unspecified()).then(|| address.to_string());
    let mut names: Vec<String> = told.into_iter().collect();
    for name in own.into_iter().chain(["localhost", "127.0.0.1", "::1"].map(str::to_owned)) {
        if !names.contains(&name) {
            names.push(name);
        }
    }
    names
}

/// Where a listener's certificate comes from.
pub(super) enum Source {
    /// Files, which somebody else renews.
    Files(ServerFiles),
    /// The authority, for these names.
    Issuer { issuer: Arc<Issuer>, names: Vec<String> },
}

impl Source {
    /// The certificate as it is now, and when to look again. Clients judge it by their own clocks,
    /// so it is made by the wall's.
    async fn certificate(&self) -> Result<(CertifiedKey, Timestamp), Failure> {
        let now = RealClock.now();
        match self {
            Self::Files(files) => Ok((from_files(files)?, now.plus_seconds(FILE_LOOK_SECONDS))),
            Self::Issuer { issuer, names } => {
                let (certified, until) =
                    issuer.server(names.clone(), now).await.map_err(|e| of_authority(&e))?;
                Ok((certified, now.plus_seconds(until.seconds_since(now) * 2.0 / 3.0)))
            }
        }
    }

    const fn look_seconds(&self) -> f64 {
        match self {
            Self::Files(_) => FILE_LOOK_SECONDS,
            Self::Issuer { .. } => LOOK_SECONDS,
        }
    }

    /// The certificate, and what replaces it in time.
    ///
    /// # Errors
    /// `server_certificate_unusable`; the authority's.
    pub(super) async fn start(self) -> Result<(Arc<ServerCertificate>, Upkeep), Failure> {
        let (certified, at) = self.certificate().await?;
        let shown = certified.cert.clone();
        let certificate = Arc::new(ServerCertificate::new(certified));
        let certificate_again = Arc::clone(&certificate);
        let renewal = Arc::new(Notify::new());
        let upkeep = Upkeep { source: self, certificate: certificate_again, shown, at, renewal };
        Ok((certificate, upkeep))
    }
}

fn from_files(files: &ServerFiles) -> Result<CertifiedKey, Failure> {
    let chain: Result<Vec<_>, _> =
        CertificateDer::pem_slice_iter(read(&files.certificate)?.as_bytes()).collect();
    let chain = chain.map_err(|error| unusable(&files.certificate, &error))?;
    if chain.is_empty() {
        return Err(unusable(&files.certificate, &"the file contains no certificate"));
    }
    let key = PrivateKeyDer::from_pem_slice(read(&files.key)?.as_bytes())
        .map_err(|error| unusable(&files.key, &error))?;
    let provider = rustls::crypto::ring::default_provider();
    CertifiedKey::from_der(chain, key, &provider).map_err(|error| unusable(&files.key, &error))
}

/// Replaces a listener's certificate in time, for as long as it is polled.
pub(super) struct Upkeep {
    source: Source,
    certificate: Arc<ServerCertificate>,
    /// The chain that new connections get.
    shown: Vec<CertificateDer<'static>>,
    at: Timestamp,
    /// The authority is another one.
    renewal: Arc<Notify>,
}

impl Upkeep {
    /// What has the certificate be replaced at once.
    pub(super) fn renewal(&self) -> Arc<Notify> {
        Arc::clone(&self.renewal)
    }

    pub(super) async fn run(mut self) {
        let renewal = self.renewal();
        loop {
            let look_seconds = self.source.look_seconds();
            let at = self.at.min(RealClock.now().plus_seconds(look_seconds));
            tokio::select! {
                () = RealClock.sleep_until(at) => {
                    if RealClock.now() < self.at {
                        continue;
                    }
                }
                () = renewal.notified() => {}
            }
            self.renew().await;
        }
    }

    async fn renew(&mut self) {
        match self.source.certificate().await {
            Ok((certified, at)) => {
                self.at = at;
                if certified.cert != self.shown {
                    tracing::info!("replaced a listener's certificate");
                    self.shown = certified.cert.clone();
                    self.certificate.replace(certified);
                }
            }
            // The one that is there goes on; one of the authority has a third of its life left.
            Err(error) => {
                tracing::error!(%error, "cannot replace a listener's certificate");
                self.at = RealClock.now().plus_seconds(self.source.look_seconds());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_certificate_is_for_the_host_that_clients_are_told() {
        assert_eq!(host("gpuaas.example:8443/x"), "gpuaas.example");
        assert_eq!(host("gpuaas.example"), "gpuaas.example");
        assert_eq!(host("[fd00::1]:8443"), "fd00::1");
        let own = IpAddr::from([10, 0, 0, 7]);
        let told = ["127.0.0.1".to_owned()];
        assert_eq!(names(told, own), ["127.0.0.1", "10.0.0.7", "localhost", "::1"]);
        assert_eq!(names([], IpAddr::from([0, 0, 0, 0])), ["localhost", "127.0.0.1", "::1"]);
    }

    /// Writes another certificate and its key.
    fn write(files: &ServerFiles) -> Vec<u8> {
        let key = rcgen::KeyPair::generate().unwrap();
        let params = rcgen::CertificateParams::new(vec!["localhost".to_owned()]).unwrap();
        let certificate = params.self_signed(&key).unwrap();
        fs::write(&files.certificate, certificate.pem()).unwrap();
        fs::write(&files.key, key.serialize_pem()).unwrap();
        certificate.der().to_vec()
    }

    #[tokio::test]
    async fn files_are_read_again_and_a_broken_one_changes_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let path = |name: &str| dir.path().join(name);
        let files =
            ServerFiles { certificate: path("cert.pem"), key: path("key.pem"), anchor: None };
        let first = write(&files);
        let (_, mut upkeep) = Source::Files(files.clone()).start().await.unwrap();
        assert_eq!(upkeep.shown[0].as_ref(), first);
        upkeep.renew().await;
        assert_eq!(upkeep.shown[0].as_ref(), first);
        fs::write(&files.key, "half").unwrap();
        upkeep.renew().await;
        assert_eq!(upkeep.shown[0].as_ref(), first);
        let second = write(&files);
        upkeep.renew().await;
        assert_eq!(upkeep.shown[0].as_ref(), second);
        fs::remove_file(&files.key).unwrap();
        let failure = Source::Files(files).start().await.map(drop).unwrap_err();
        assert_eq!(failure.code(), "server_certificate_unusable");
    }
}
