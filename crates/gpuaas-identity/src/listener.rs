//! The listener that nodes reach: TLS, and whoever has a certificate shows it.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::extract::connect_info::Connected;
use axum::serve::{IncomingStream, Listener};
use parking_lot::RwLock;
use rustls::client::danger::HandshakeSignatureValid;
use rustls::crypto::{CryptoProvider, WebPkiSupportedAlgorithms};
use rustls::pki_types::{CertificateDer, UnixTime};
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;
use rustls::{DigitallySignedStruct, DistinguishedName, ServerConfig, SignatureScheme};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, mpsc};
use tokio::task::{AbortHandle, JoinHandle};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;

use crate::peer::{Peer, PeerReader};

/// Handshakes that go on at once; more wait to be accepted.
const HANDSHAKES: usize = 256;
/// Longer than any healthy handshake.
const HANDSHAKE: Duration = Duration::from_secs(10);
/// Connections that wait to be served.
const WAITING: usize = 64;

/// The certificate of a listener, which may be replaced while it listens.
#[derive(Debug)]
pub struct ServerCertificate(RwLock<Arc<CertifiedKey>>);

impl ServerCertificate {
    /// Starts with this one.
    #[must_use]
    pub fn new(certified: CertifiedKey) -> Self {
        Self(RwLock::new(Arc::new(certified)))
    }

    /// New connections get this one.
    pub fn replace(&self, certified: CertifiedKey) {
        *self.0.write() = Arc::new(certified);
    }
}

impl ResolvesServerCert for ServerCertificate {
    fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(Arc::clone(&self.0.read()))
    }
}

/// Lets every certificate pass whose key its sender holds. See the crate's text for why.
#[derive(Debug)]
struct HoldsItsKey(WebPkiSupportedAlgorithms);

impl ClientCertVerifier for HoldsItsKey {
    fn client_auth_mandatory(&self) -> bool {
        false
    }

    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        // No hint: a client with a certificate of somebody else's shall show it and be told.
        &[]
    }

    fn verify_client_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: UnixTime,
    ) -> Result<ClientCertVerified, rustls::Error> {
        Ok(ClientCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        rustls::crypto::verify_tls12_signature(message, certificate, signed, &self.0)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        rustls::crypto::verify_tls13_signature(message, certificate, signed, &self.0)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.supported_schemes()
    }
}

/// How the listener speaks TLS.
///
/// # Errors
/// When rustls cannot be set up; a defect.
pub fn server_config(
    certificate: Arc<ServerCertificate>,
) -> Result<Arc<ServerConfig>, rustls::Error> {
    let provider: CryptoProvider = rustls::crypto::ring::default_provider();
    let verifier = HoldsItsKey(provider.signature_verification_algorithms);
    let mut config = ServerConfig::builder_with_provider(Arc::new(provider))
        .with_safe_default_protocol_versions()?
        .with_client_cert_verifier(Arc::new(verifier))
        .with_cert_resolver(certificate);
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(Arc::new(config))
}

/// A listener for [`axum::serve`]; handlers find the [`Peer`] as connect info.
#[derive(Debug)]
pub struct NodeListener {
    address: SocketAddr,
    connections: mpsc::Receiver<(TlsStream<TcpStream>, Peer)>,
    accepting: AbortHandle,
    accept_task: Option<JoinHandle<()>>,
}

impl NodeListener {
    /// Begins to accept. A handshake that does not come to its end holds up nobody else.
    ///
    /// # Errors
    /// When the socket has no address.
    pub fn start(
        listener: TcpListener,
        config: Arc<ServerConfig>,
        reader: PeerReader,
    ) -> io::Result<Self> {
        let address = listener.local_addr()?;
        let (sender, connections) = mpsc::channel(WAITING);
        let accept_task = tokio::spawn(accept(listener, config, reader, sender));
        let (accepting, accept_task) = (accept_task.abort_handle(), Some(accept_task));
        Ok(Self { address, connections, accepting, accept_task })
    }

    /// The task that accepts connections, for whoever ends the process when it ends. It is aborted
    /// with this listener.
    pub const fn take_accept_task(&mut self) -> Option<JoinHandle<()>> {
        self.accept_task.take()
    }
}

async fn accept(
    mut listener: TcpListener,
    config: Arc<ServerConfig>,
    reader: PeerReader,
    sender: mpsc::Sender<(TlsStream<TcpStream>, Peer)>,
) {
    let places = Arc::new(Semaphore::new(HANDSHAKES));
    loop {
        let Ok(place) = Arc::clone(&places).acquire_owned().await else { return };
        // Axum's own: it waits where the system is out of file descriptors.
        let (stream, address) = Listener::accept(&mut listener).await;
        let (config, reader, sender) = (Arc::clone(&config), reader.clone(), sender.clone());
        tokio::spawn(async move {
            match tokio::time::timeout(HANDSHAKE, greet(stream, address, config, &reader)).await {
                Ok(Ok(connection)) => drop(sender.send(connection).await),
                Ok(Err(error)) => tracing::debug!(%address, %error, "a handshake failed"),
                Err(_) => tracing::debug!(%address, "a handshake took too long"),
            }
            drop(place);
        });
    }
}

async fn greet(
    stream: TcpStream,
    address: SocketAddr,
    config: Arc<ServerConfig>,
    reader: &PeerReader,
) -> io::Result<(TlsStream<TcpStream>, Peer)> {
    stream.set_nodelay(true)?;
    let stream = TlsAcceptor::from(config).accept(stream).await?;
    let chain = stream.get_ref().1.peer_certificates().unwrap_or_default();
    let certificate = (!chain.is_empty()).then(|| Arc::new(reader.read(chain)));
    Ok((stream, Peer { address, certificate }))
}

impl Drop for NodeListener {
    fn drop(&mut self) {
        self.accepting.abort();
    }
}

impl Listener for NodeListener {
    type Io = TlsStream<TcpStream>;
    type Addr = Peer;

    async fn accept(&mut self) -> (Self::Io, Self::Addr) {
        match self.connections.recv().await {
            Some(connection) => connection,
            // The accepting task has ended, which its owner sees.
            None => std::future::pending().await,
        }
    }

    fn local_addr(&self) -> io::Result<Self::Addr> {
        Ok(Peer { address: self.address, certificate: None })
    }
}

impl Connected<IncomingStream<'_, NodeListener>> for Peer {
    fn connect_info(stream: IncomingStream<'_, NodeListener>) -> Self {
        stream.remote_addr().clone()
    }
}

/// A listener without TLS, for operators; a peer is an address there.
#[derive(Debug)]
pub struct PlainListener(pub TcpListener);

impl Listener for PlainListener {
    type Io = TcpStream;
    type Addr = Peer;

    async fn accept(&mut self) -> (Self::Io, Self::Addr) {
        let (stream, address) = Listener::accept(&mut self.0).await;
        if let Err(error) = stream.set_nodelay(true) {
            tracing::debug!(%error, "a connection that waits for more to send");
        }
        (stream, Peer { address, certificate: None })
    }

    fn local_addr(&self) -> io::Result<Self::Addr> {
        Ok(Peer { address: self.0.local_addr()?, certificate: None })
    }
}

impl Connected<IncomingStream<'_, PlainListener>> for Peer {
    fn connect_info(stream: IncomingStream<'_, PlainListener>) -> Self {
        stream.remote_addr().clone()
    }
}
