//! The listener for nodes: whose certificates agents have, and whose its own is.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;

use gpuaas_api::{AuthoritySetError, load_authorities, new_authority};
use gpuaas_client::failure::{Failure, store_failure};
use gpuaas_engine::{Clock as _, RealClock};
use gpuaas_identity::listener::server_config;
use gpuaas_identity::server::Security;
use gpuaas_identity::{Authority, AuthorityError, BuiltIn, CommandAuthority, Issuer, Lifetimes};
use gpuaas_store::{ExposeSecret as _, SecretString, Store};
use gpuaas_types::codes::CommandCode;
use tokio::net::TcpListener;

use super::server_certificate::{ServerFiles, Source, Upkeep, host, names, of_authority, read};

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
    pub(super) socket: TcpListener,
    pub(super) security: Security,
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
            format!("--advertise {advertise} is not an https URL"),
        )
        .hint("use the URL of the node listener, such as https://ADDRESS:8443"));
    };
    let names = names([host(rest).to_owned()], address.ip());
    let authority = authority(store, options).await?;
    let issuer = Issuer::new(authority, options.lifetimes);
    let is_delivered = options.files.is_none();
    let issuer = Arc::new(if is_delivered { issuer } else { issuer.without_delivery() });
    let source = match &options.files {
        Some(files) => Source::Files(files.clone()),
        None => Source::Issuer { issuer: Arc::clone(&issuer), names },
    };
    let anchor_pem = match &options.files {
        Some(ServerFiles { anchor, .. }) => anchor.as_deref().map(read).transpose()?,
        None => Some(issuer.anchors_pem()),
    };
    let (certificate, upkeep) = source.start().await?;
    let unusable = |error: &dyn std::fmt::Display| {
        Failure::local(CommandCode::NodeListenerUnusable, error.to_string())
    };
    let config = server_config(certificate).map_err(|e| unusable(&e))?;
    let reader = Some(issuer.reader().map_err(|error| of_authority(&error))?);
    let security = Security::Tls { config, reader };
    Ok(Prepared { issuer, socket, security, advertise, anchor_pem, upkeep })
}

/// Whom nodes' certificates come from. The built-in authority is made once and sealed in the
/// database, so all control planes of one have the same.
async fn authority(store: &Store, options: &TlsOptions) -> Result<Arc<dyn Authority>, Failure> {
    let failed = |error: AuthorityError| of_authority(&error);
    if let Some((program, anchors)) = &options.authority {
        let outside = CommandAuthority::new(program, read(anchors)?).map_err(failed)?;
        return Ok(Arc::new(outside));
    }
    if store.authorities().await.map_err(store_failure)?.is_empty() {
        let now = RealClock.now();
        let proposed = SecretString::from(BuiltIn::generate(now).map_err(failed)?.to_pem());
        let kept = store.ensure_node_authority(&proposed).await.map_err(store_failure)?;
        let first = BuiltIn::from_pem(kept.expose_secret()).map_err(failed)?;
        let first = new_authority(first.anchors_pem(), None).map_err(failed)?;
        store.note_first_authority(now, first).await.map_err(store_failure)?;
    }
    let loaded = load_authorities(store, options.files.is_none()).await;
    let loaded = loaded.map_err(|error| match error {
        AuthoritySetError::Store(error) => store_failure(error),
        AuthoritySetError::Authority(error) => failed(error),
    })?;
    let none = || failed(AuthorityError::Broken("no certificate authority can sign".to_owned()));
    Ok(Arc::new(loaded.ok_or_else(none)?))
}
