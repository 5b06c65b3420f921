//! `/api/v1/event-sinks`, `/api/v1/webhooks` and `/api/v1/dead-letters`: where events are delivered, and
//! what was not taken there.

use std::net::IpAddr;

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use axum::http::uri::Uri;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use gpuaas_store::{NewAuditEntry, NewEventSink, SecretString};
use gpuaas_types::api::List;
use gpuaas_types::event::{
    DeadLetter, EventSinkKind, EventSinkRemoval, EventSinkView, MintedWebhook, ReplayAnswer,
    ReplayRequest, WebhookRequest,
};
use gpuaas_types::filter::FilterList;
use gpuaas_types::text;
use gpuaas_types::{AuditAction, EventSinkId, Problem};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::json;

use crate::check;
use crate::ctx::Ctx;
use crate::http::body::{Body, Key, QueryParams};
use crate::http::pages::{PageRequest, list_filter};
use crate::http::problem::{ApiResult, invalid};
use crate::identity::auth;
use crate::identity::caller::Caller;

/// What secrets of webhooks begin with (Standard Webhooks, "Signature scheme").
const SECRET_PREFIX: &str = "whsec_";
/// Longest address of a webhook, in characters.
const URL_CHARS: usize = 2_000;

/// `GET /api/v1/event-sinks`: by name.
pub(crate) async fn list(State(ctx): State<Ctx>) -> ApiResult<Json<List<EventSinkView>>> {
    Ok(Json(List::whole(ctx.store.event_sinks().await?)))
}

/// `POST /api/v1/webhooks`.
pub(crate) async fn add_webhook(
    State(ctx): State<Ctx>,
    caller: Caller,
    Body(asked): Body<WebhookRequest>,
) -> ApiResult<(StatusCode, Json<MintedWebhook>)> {
    check::name("name", &asked.name)?;
    check_url(&asked.url)?;
    ctx.check_target(&asked.url)?;
    let reason = check::reason(&asked.reason)?;
    if let Some(site) = &asked.site {
        ctx.store.site_by_name(site).await?;
    }
    // 256 random bits; their 64 digits are the key's bytes, the most that the specification allows.
    let minted = auth::mint("webhook")?;
    let digits = minted.rsplit('_').next().unwrap_or_default();
    let secret = format!("{SECRET_PREFIX}{}", STANDARD.encode(digits));
    let now = ctx.now();
    let entry = NewAuditEntry {
        actor: caller.name().to_owned(),
        action: AuditAction::WebhookAdd,
        subject: asked.name.clone(),
        detail: json!({ "url": asked.url, "site": asked.site, "reason": reason }),
    };
    let sink = NewEventSink {
        id: EventSinkId::new(&*ctx.ids, now),
        name: asked.name,
        kind: EventSinkKind::Webhook,
        url: asked.url,
        site: asked.site,
        secret: Some(SecretString::from(secret.clone())),
        created_by: caller.name().to_owned(),
    };
    let view = ctx.store.add_event_sink(now, sink, entry).await?;
    Ok((StatusCode::CREATED, Json(MintedWebhook { secret: secret.into(), view })))
}

/// An address that events may be posted to: nobody on the way reads or changes them.
pub(crate) fn check_url(text: &str) -> Result<(), Problem> {
    let refused = |message: &str| Err(invalid("url", message));
    if text.chars().count() > URL_CHARS {
        return refused("expected at most 2000 characters");
    }
    let Ok(url) = text.parse::<Uri>() else {
        return refused("expected a URL, such as https://hooks.example/gpuaas");
    };
    let host = url.host().unwrap_or_default();
    if host.is_empty() {
        return refused("expected a URL with a host, such as https://hooks.example/gpuaas");
    }
    if url.authority().is_some_and(|authority| authority.as_str().contains('@')) {
        return refused("must not contain a user or password; deliveries are signed instead");
    }
    match url.scheme_str() {
        Some("https") => Ok(()),
        Some("http") if is_loopback(host) => Ok(()),
        _ => refused("expected https; plain http is only allowed for loopback addresses"),
    }
}

fn is_loopback(host: &str) -> bool {
    let host = host.trim_start_matches('[').trim_end_matches(']');
    host.parse::<IpAddr>().is_ok_and(|address| address.is_loopback())
}

/// `POST /api/v1/event-sinks/NAME/remove`.
pub(crate) async fn remove(
    State(ctx): State<Ctx>,
    caller: Caller,
    Key(name): Key,
    Body(asked): Body<EventSinkRemoval>,
) -> ApiResult<Json<List<EventSinkView>>> {
    let reason = check::reason(&asked.reason)?;
    let entry = NewAuditEntry {
        actor: caller.name().to_owned(),
        action: AuditAction::EventSinkRemove,
        subject: name.clone(),
        detail: json!({ "reason": reason }),
    };
    ctx.store.remove_event_sink(ctx.now(), &name, entry).await?;
    list(State(ctx)).await
}

/// Which dead letters to list.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct LetterQuery {
    /// Only of the sink of this name.
    sink: Option<String>,
    /// Filter expression, such as `code=refused failed>2026-11-01`.
    #[schemars(length(max = 2000))]
    filter: Option<String>,
    /// After this letter, in the order of the list.
    #[schemars(with = "Option<text::NumberText>")]
    after: Option<String>,
    /// Most items.
    #[schemars(range(min = 1))]
    limit: Option<u32>,
}

/// `GET /api/v1/dead-letters?sink=&filter=&after=&limit=`: the oldest first.
pub(crate) async fn dead_letters(
    State(ctx): State<Ctx>,
    QueryParams(asked): QueryParams<LetterQuery>,
) -> ApiResult<Json<List<DeadLetter>>> {
    let page = PageRequest::parse(asked.after.as_deref(), asked.limit)?;
    let filter = list_filter(FilterList::DeadLetters, asked.filter.as_deref())?;
    let sink = asked.sink.as_deref();
    let letters = ctx.store.dead_letters(sink, filter.as_ref(), page.query()).await?;
    Ok(Json(page.list(letters, |letter| letter.id.to_string(), |letter| letter)))
}

/// `POST /api/v1/dead-letters/replay`.
pub(crate) async fn replay(
    State(ctx): State<Ctx>,
    caller: Caller,
    Body(asked): Body<ReplayRequest>,
) -> ApiResult<Json<ReplayAnswer>> {
    let reason = check::reason(&asked.reason)?;
    let entry = NewAuditEntry {
        actor: caller.name().to_owned(),
        action: AuditAction::DeadLetterReplay,
        subject: asked.sink.clone(),
        detail: json!({ "letter": asked.letter, "reason": reason }),
    };
    let letters =
        ctx.store.replay_dead_letters(ctx.now(), &asked.sink, asked.letter, entry).await?;
    Ok(Json(ReplayAnswer { letters }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_are_posted_where_nobody_else_reads_them() {
        for good in [
            "https://hooks.example/gpuaas?room=3",
            "https://10.0.0.7:8443",
            "http://127.0.0.1:9000/x",
            "http://[::1]:9000/",
        ] {
            check_url(good).unwrap();
        }
        for bad in [
            "",
            "hooks.example",
            "/events",
            "http://hooks.example/",
            "http://localhost.example/",
            "http://127.0.0.1.example/",
            "ftp://hooks.example/",
            "https:///x",
            "https://ann:secret@hooks.example/",
            "https://hooks.example/a b",
            &format!("https://hooks.example/{}", "x".repeat(2_000)),
        ] {
            assert_eq!(check_url(bad).unwrap_err().errors[0].field, "url", "{bad}");
        }
    }
}
