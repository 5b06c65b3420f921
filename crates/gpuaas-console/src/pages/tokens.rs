//! Tokens of programs and people: who has which role, until when. Their text is nowhere.

use askama::Template;
use axum::Form;
use axum::extract::{Path, Query, State};
use axum::response::Response;
use gpuaas_types::Timestamp;
use gpuaas_types::access::{RoleGrant, TokenRevocation, TokenView};
use serde::Deserialize;

use super::{Shell, draw, failed, list_or_failure, no_such_action, send_form, typed_name};
use crate::actions::{Button, TOKEN_REVOKE};
use crate::api::{Failure, Viewer};
use crate::format::{self, Mark};
use crate::requests::{part, shell_word, with_query};
use crate::state::Console;

const PATH: &str = "/api/v1/tokens";
/// Seconds before its end from which on a token is marked.
const SOON_SECONDS: f64 = 7.0 * 86_400.0;

const FILTERS: &[(&str, &str)] =
    &[("all", ""), ("valid", "revoked=false"), ("revoked", "revoked=true")];

/// Which tokens to show.
#[derive(Deserialize, Default)]
pub(crate) struct Asked {
    #[serde(default)]
    filter: String,
}

struct Line {
    name: String,
    person: String,
    grants: String,
    mark: Mark,
    expires: String,
    used: String,
    created: String,
    by: String,
    /// Identifier of its form; empty: it is revoked.
    form: String,
    buttons: Vec<Button>,
}

#[derive(Template)]
#[template(path = "tokens.html")]
struct TokensPage {
    shell: Shell,
    filter: String,
    filters: &'static [(&'static str, &'static str)],
    /// Roles of the signed-in person.
    own_grants: String,
    lines: Vec<Line>,
    failure: Option<Failure>,
}

/// `GET /tokens`.
pub(crate) async fn list(
    State(console): State<Console>,
    viewer: Viewer,
    Query(asked): Query<Asked>,
) -> Response {
    let (path, now) = (with_query(PATH, &[("filter", &asked.filter)]), console.now());
    let (list, failure) = match list_or_failure::<TokenView>(&viewer, now, &path).await {
        Ok(answer) => answer,
        Err(response) => return response,
    };
    if viewer.wants_json() {
        return super::json(&list);
    }
    let cli = match &*asked.filter {
        "" => "gpuaas token list".to_owned(),
        filter => format!("gpuaas token list --filter {}", shell_word(filter)),
    };
    let shell = Shell::new(&viewer, "Tokens", "tokens", now).slow().sources(cli, path);
    let lines = list.items.iter().map(|token| line(&viewer, token, now)).collect();
    draw(&TokensPage {
        shell,
        filter: asked.filter,
        filters: FILTERS,
        own_grants: grants(&viewer.access.grants),
        lines,
        failure,
    })
}

/// Roles in words: `operator at lab, prod; viewer everywhere`.
fn grants(grants: &[RoleGrant]) -> String {
    let words = grants.iter().map(|grant| match &grant.sites {
        None => format!("{} everywhere", grant.role),
        Some(sites) => format!("{} at {}", grant.role, sites.join(", ")),
    });
    words.collect::<Vec<_>>().join("; ")
}

fn mark(token: &TokenView, now: Timestamp) -> Mark {
    let left = token.expires_at.map(|at| at.seconds_since(now));
    match (token.revoked_at, left) {
        (Some(_), _) => Mark { shape: "–", word: "revoked", class: "off" },
        (None, Some(left)) if left <= 0.0 => Mark { shape: "–", word: "expired", class: "off" },
        (None, Some(left)) if left < SOON_SECONDS => {
            Mark { shape: "◆", word: "expires soon", class: "slow" }
        }
        (None, _) => Mark { shape: "✓", word: "valid", class: "ok" },
    }
}

fn line(viewer: &Viewer, token: &TokenView, now: Timestamp) -> Line {
    let is_revoked = token.revoked_at.is_some();
    let href = format!("/tokens/{}/revoke", part(&token.name));
    Line {
        name: token.name.clone(),
        person: token.person.clone(),
        grants: grants(&token.grants),
        mark: mark(token, now),
        expires: token.expires_at.map_or_else(|| "never".to_owned(), format::time),
        used: token
            .last_used_at
            .map_or_else(|| "never".to_owned(), |at| format!("{} ago", format::age(at, now))),
        created: format!("{} ago", format::age(token.created_at, now)),
        by: token.created_by.clone(),
        form: if is_revoked { String::new() } else { format!("revoke-{}", token.id) },
        buttons: vec![Button::new(TOKEN_REVOKE, href, viewer, None, "")],
    }
}

/// The form of a token.
#[derive(Deserialize)]
pub(crate) struct Said {
    #[serde(default)]
    reason: String,
    #[serde(default)]
    confirm: String,
}

/// `POST /tokens/TOKEN/revoke`.
pub(crate) async fn act(
    State(console): State<Console>,
    viewer: Viewer,
    Path((name, action)): Path<(String, String)>,
    Form(form): Form<Said>,
) -> Response {
    if action != "revoke" {
        return no_such_action(&console, &viewer);
    }
    if let Err(failure) = typed_name(&form.confirm, &name) {
        return failed(&viewer, console.now(), &failure);
    }
    let body = TokenRevocation { reason: form.reason.trim().to_owned() };
    let path = format!("{PATH}/{}/revoke", part(&name));
    send_form(&console, &viewer, &path, &body, "/tokens").await
}
