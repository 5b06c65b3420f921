//! Follows the certificate authority of nodes: another one may take its place, on another control plane of
//! the database as well, while this one runs.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use gpuaas_api::load_authorities;
use gpuaas_client::failure::Failure;
use gpuaas_engine::{Clock as _, Fetch, NodeAnchors, NodeTrust, RealClock, fetch};
use gpuaas_identity::Issuer;
use gpuaas_store::Store;
use gpuaas_types::api::AuthorityState;
use parking_lot::RwLock;
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use super::server_certificate::Upkeep;
use super::{nodes, operators};

/// Seconds between two looks.
const INTERVAL_SECONDS: f64 = 1.0;

/// Longest time in which a connection is made, as the agent has it.
const CONNECT_SECONDS: u64 = 5;

/// A client that trusts what a node trusts: `ca_pem`, and with `system` the system's authorities too.
fn node_client(ca_pem: Option<&[u8]>, system: bool) -> Result<reqwest::Client, String> {
    gpuaas_client::install_cryptography();
    let setup = |error: reqwest::Error| fetch::with_causes(&error);
    let certificates =
        ca_pem.map(reqwest::Certificate::from_pem_bundle).transpose().map_err(setup)?;
    let certificates = certificates.unwrap_or_default();
    let builder = reqwest::Client::builder()
        .connect_timeout(Duration::from_secs(CONNECT_SECONDS))
        .redirect(reqwest::redirect::Policy::none());
    let builder = match system {
        true => builder.tls_certs_merge(certificates),
        false => builder.tls_certs_only(certificates),
    };
    builder.build().map_err(setup)
}

/// Clients for the own URLs, one for each trust of nodes. What nodes trust changes rarely, so the few that
/// were used last are kept.
#[derive(Default)]
pub(super) struct OwnHttp(RwLock<Vec<(NodeTrust, reqwest::Client)>>);

/// Clients that are kept.
const MOST_CLIENTS: usize = 16;

impl OwnHttp {
    fn client(&self, trust: &NodeTrust) -> Result<reqwest::Client, String> {
        if let Some((_, client)) = self.0.read().iter().find(|(known, _)| known == trust) {
            return Ok(client.clone());
        }
        let pem = trust.pem.as_deref().map(str::as_bytes);
        let client = node_client(pem, trust.system)
            // A system without authorities trusts nobody beside them.
            .or_else(|error| if trust.system { node_client(pem, false) } else { Err(error) })
            .map_err(|error| {
                format!("nodes cannot use the certificate authorities they should trust: {error}")
            })?;
        let mut clients = self.0.write();
        if clients.len() >= MOST_CLIENTS {
            clients.remove(0);
        }
        clients.push((trust.clone(), client.clone()));
        Ok(client)
    }
}

#[async_trait]
impl Fetch for OwnHttp {
    async fn get(
        &self,
        url: &str,
        trust: &NodeTrust,
        bearer: Option<&str>,
    ) -> Result<Vec<u8>, String> {
        fetch(&self.client(trust)?, url, bearer).await
    }
}

/// What is handed out of the authority.
pub(super) struct Followers {
    pub(super) anchors: NodeAnchors,
}

/// What of a control plane follows its authority.
pub(super) struct AuthorityWatch {
    store: Store,
    issuer: Arc<Issuer>,
    followers: Followers,
    /// Data folder.
    data: PathBuf,
    /// What operators trust, where it is not the authority's.
    operators_anchor: Option<String>,
    /// Listeners with a certificate of the authority.
    renewals: Vec<Arc<Notify>>,
}

/// The authorities, each by its generation and its state.
type Seen = Vec<(i64, AuthorityState)>;

impl AuthorityWatch {
    /// Follows the authority of these listeners; none: it is no one of our own.
    pub(super) fn new(
        store: &Store,
        data: &Path,
        (nodes, operators): (Option<&nodes::Prepared>, &operators::Prepared),
        followers: Followers,
    ) -> Option<Self> {
        let nodes = nodes.filter(|nodes| nodes.issuer.is_own())?;
        let anchors = nodes.issuer.anchors_pem();
        Some(Self {
            store: store.clone(),
            issuer: Arc::clone(&nodes.issuer),
            followers,
            data: data.to_owned(),
            operators_anchor: operators.anchor_pem.clone().filter(|pem| *pem != anchors),
            renewals: operators.upkeep.iter().chain([&nodes.upkeep]).map(Upkeep::renewal).collect(),
        })
    }

    /// Looks about once a second, until `stop`.
    pub(super) async fn run(self, stop: CancellationToken) {
        let mut seen: Option<Seen> = None;
        while !stop.is_cancelled() {
            if let Err(error) = self.refresh(&mut seen).await {
                tracing::warn!(
                    error,
                    "cannot check the certificate authority for changes; retrying"
                );
            }
            let next = RealClock.now().plus_seconds(INTERVAL_SECONDS);
            tokio::select! {
                () = stop.cancelled() => {}
                () = RealClock.sleep_until(next) => {}
            }
        }
    }

    async fn refresh(&self, seen: &mut Option<Seen>) -> Result<(), String> {
        let text = |error: &dyn std::fmt::Display| error.to_string();
        let known = self.store.authorities().await.map_err(|e| text(&e))?;
        let now: Seen = known.iter().map(|one| (one.view.generation, one.view.state)).collect();
        if seen.as_ref() == Some(&now) {
            return Ok(());
        }
        let (is_delivered, before) = (self.issuer.delivers_anchors(), self.issuer.anchors_pem());
        let set = load_authorities(&self.store, is_delivered).await.map_err(|e| text(&e))?;
        if let Some(set) = set {
            self.issuer.replace_authority(Arc::new(set)).map_err(|e| text(&e))?;
        }
        if seen.is_some() || before != self.issuer.anchors_pem() {
            self.hand_out().map_err(|e| text(&e))?;
            tracing::info!("the certificate authority of nodes has changed");
        }
        *seen = Some(now);
        Ok(())
    }

    /// Has everything follow that the authority's anchors went to.
    fn hand_out(&self) -> Result<(), Failure> {
        let anchors = self.issuer.anchors_pem();
        if self.issuer.delivers_anchors() {
            self.followers.anchors.replace(Some(anchors.clone()));
        }
        let nodes = self.followers.anchors.pem();
        let operators = self.operators_anchor.as_deref().unwrap_or(&anchors);
        operators::write_anchors(&self.data, [Some(operators), nodes.as_deref()])?;
        self.renewals.iter().for_each(|renewal| renewal.notify_one());
        Ok(())
    }
}
