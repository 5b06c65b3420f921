//! Refused credentials, written down.
//!
//! Whoever is refused has not said who he is, so what he causes to be written is bounded: the same
//! cause from the same place once in a while, and only so much altogether. Beyond that a refusal
//! is counted in the log only.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

use axum::extract::{ConnectInfo, Request, State};
use axum::http::{HeaderMap, Method};
use axum::middleware::Next;
use axum::response::Response;
use gpuaas_identity::{Peer, PeerCertificate};
use gpuaas_store::{NewAudit, sha256};
use gpuaas_types::api::{Source, TimelineEvent};
use gpuaas_types::{NodeId, Problem, Timestamp};
use serde_json::json;

use crate::{Ctx, auth};

/// Seconds for which the same refusal is not written down again.
const AGAIN_SECONDS: f64 = 600.0;
/// Refusals that are written down in that time.
const MOST: usize = 500;

/// Whether a code says that a credential was refused.
fn is_refusal(code: &str) -> bool {
    code.starts_with("token_") || code.starts_with("certificate_") || code == "run_over"
}

/// When which refusal was written down last.
#[derive(Default)]
pub(crate) struct Refusals(Mutex<HashMap<String, Timestamp>>);

impl Refusals {
    /// Whether this one is to be written down now.
    fn is_news(&self, key: String, now: Timestamp) -> bool {
        let mut seen = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        seen.retain(|_, at| now.seconds_since(*at) < AGAIN_SECONDS);
        if seen.contains_key(&key) || seen.len() >= MOST {
            return false;
        }
        seen.insert(key, now);
        true
    }
}

/// Who asked, as far as it can be seen.
struct Stranger {
    address: Option<String>,
    certificate: Option<std::sync::Arc<PeerCertificate>>,
    token: Option<[u8; 32]>,
    method: Method,
    path: String,
}

impl Stranger {
    fn of(request: &Request) -> Self {
        let peer = request.extensions().get::<ConnectInfo<Peer>>();
        Self {
            address: peer.map(|ConnectInfo(peer)| peer.address.ip().to_string()),
            certificate: peer.and_then(|ConnectInfo(peer)| peer.certificate.clone()),
            token: token(request.headers()),
            method: request.method().clone(),
            path: request.uri().path().chars().take(200).collect(),
        }
    }

    fn key(&self, code: &str) -> String {
        let certificate = self.certificate.as_ref().map(|shown| shown.fingerprint);
        format!("{code} {:?} {certificate:?} {:?}", self.address, self.token)
    }
}

fn token(headers: &HeaderMap) -> Option<[u8; 32]> {
    auth::bearer(headers).ok().map(sha256)
}

/// Writes down which credential was refused, and why.
pub(crate) async fn note(State(ctx): State<Ctx>, request: Request, next: Next) -> Response {
    let stranger = Stranger::of(&request);
    let response = next.run(request).await;
    if let Some(problem) = response.extensions().get::<Problem>()
        && is_refusal(&problem.code)
    {
        write_down(&ctx, &stranger, problem).await;
    }
    response
}

async fn write_down(ctx: &Ctx, stranger: &Stranger, problem: &Problem) {
    let Problem { code, detail, .. } = problem;
    let now = ctx.now();
    if !ctx.refusals().is_news(stranger.key(code), now) {
        return tracing::debug!(code, detail, "refused again");
    }
    let node_id = node_of(ctx, stranger).await;
    let (address, shown) = (stranger.address.clone(), stranger.certificate.as_deref());
    let entry = NewAudit {
        actor: address.clone().unwrap_or_else(|| "unknown".to_owned()),
        action: "credential.refused".to_owned(),
        subject: node_id.map_or_else(|| "unknown".to_owned(), |id| id.to_string()),
        detail: json!({
            "code": code, "detail": detail, "method": stranger.method.as_str(),
            "path": stranger.path, "serial": shown.map(|shown| &shown.serial),
        }),
    };
    if let Err(error) = ctx.store.audit(now, entry).await {
        tracing::error!(%error, code, "a refusal was not written down");
    }
    let Some(node_id) = node_id else { return };
    let from = address.map(|address| format!(" from {address}")).unwrap_or_default();
    let line = TimelineEvent {
        at: now,
        run_id: None,
        step: None,
        source: Source::ControlPlane,
        code: "credential_refused".to_owned(),
        text: format!("a credential of this node was refused{from}: {code}: {detail}"),
    };
    if let Err(error) = ctx.store.add_history(node_id, vec![line]).await {
        tracing::error!(%error, code, "a refusal is missing in the node's history");
    }
}

/// The node whose credential it is: of a certificate that we handed out, or of a token that we
/// made. What a stranger merely claims is not taken.
async fn node_of(ctx: &Ctx, stranger: &Stranger) -> Option<NodeId> {
    if let Some(shown) = &stranger.certificate {
        return Some(ctx.store.certificate(shown.fingerprint).await.ok()??.node_id);
    }
    ctx.store.token_owner(stranger.token?).await.ok()?
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_refusal_is_news_once_in_a_while_and_there_is_an_end_to_it() {
        let (refusals, begin) = (Refusals::default(), Timestamp::from_micros(0));
        let news =
            |key: &str, seconds| refusals.is_news(key.to_owned(), begin.plus_seconds(seconds));
        assert!(news("a", 0.0) && !news("a", 599.0) && news("b", 1.0) && news("a", 600.0));
        let taken = (0..2 * MOST).filter(|n| news(&n.to_string(), 601.0)).count();
        assert_eq!(taken, MOST - 1);
        assert!(news("c", 1300.0));
    }
}
