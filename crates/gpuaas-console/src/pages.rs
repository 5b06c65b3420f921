//! The pages: each asks the API, and draws what it answered.

pub(crate) mod approvals;
pub(crate) mod audit;
pub(crate) mod batches;
pub(crate) mod bundles;
pub(crate) mod claims;
pub(crate) mod experiments;
pub(crate) mod fields;
pub(crate) mod fleet;
pub(crate) mod fleet_map;
pub(crate) mod images;
pub(crate) mod node;
pub(crate) mod onboard;
pub(crate) mod palette;
pub(crate) mod profiles;
pub(crate) mod runs;
pub(crate) mod sites;
pub(crate) mod slots;
pub(crate) mod stuck;
pub(crate) mod tokens;
pub(crate) mod wall;

use askama::Template;
use axum::Json;
use axum::extract::Path;
use axum::http::StatusCode;
use axum::http::header::{CONTENT_TYPE, ETAG, HeaderName};
use axum::response::{IntoResponse as _, Response};
use gpuaas_types::api::List;
use gpuaas_types::{Problem, Timestamp};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use sha2::{Digest as _, Sha256};

use crate::api::{Failure, Viewer};
use crate::assets::{HTMX, ICON, SCRIPT, STYLE};
use crate::format;
use crate::requests::part;
use crate::security::{redirect, redirect_to_login};
use crate::site_map::{PAGES, Page};
use crate::state::Console;

/// Seconds between two looks at a page that shows what moves.
const REFRESH_SECONDS: u32 = 2;
/// Seconds between two looks at a page of what only people change.
const SLOW_REFRESH_SECONDS: u32 = 15;

/// What surrounds every page.
pub(crate) struct Shell {
    pub(crate) title: String,
    /// Entry of the navigation that the page belongs to.
    pub(crate) section: &'static str,
    /// Name of the signed-in person.
    pub(crate) who: String,
    /// Path and query of the page.
    pub(crate) here: String,
    /// When the server drew it.
    pub(crate) as_of: Timestamp,
    /// Whether scripts ask for it again.
    pub(crate) is_live: bool,
    /// After how many seconds they do.
    refresh_seconds: u32,
    /// Address of the stream that says when the page changes; empty: it only polls.
    pub(crate) stream: String,
    /// The command that prints the same.
    pub(crate) cli: String,
    /// The request that answers the same.
    pub(crate) api: String,
}

impl Shell {
    pub(crate) fn new(
        viewer: &Viewer,
        title: &str,
        section: &'static str,
        as_of: Timestamp,
    ) -> Self {
        Self {
            title: title.to_owned(),
            section,
            who: viewer.access.name.clone(),
            here: viewer.here.clone(),
            as_of,
            is_live: true,
            refresh_seconds: REFRESH_SECONDS,
            stream: "/live".to_owned(),
            cli: String::new(),
            api: String::new(),
        }
    }

    /// A page that stays as it is until it is asked for again.
    pub(crate) fn still(mut self) -> Self {
        self.is_live = false;
        self
    }

    /// A page of what only people change: it is asked for again less often.
    pub(crate) fn slow(mut self) -> Self {
        self.refresh_seconds = SLOW_REFRESH_SECONDS;
        self.stream.clear();
        self
    }

    /// A page of one node, which only that node's events concern.
    pub(crate) fn of_node(mut self, node: &str) -> Self {
        self.stream = format!("/live?node={}", part(node));
        self
    }

    /// How to get the same from the command line and the API.
    pub(crate) fn sources(mut self, cli: String, api: String) -> Self {
        (self.cli, self.api) = (cli, api);
        self
    }

    pub(crate) fn clock(&self) -> String {
        format::clock(self.as_of)
    }

    pub(crate) const fn refresh(&self) -> u32 {
        self.refresh_seconds
    }

    /// Pages of the navigation.
    pub(crate) fn nav(&self) -> impl Iterator<Item = &'static Page> {
        PAGES.iter().filter(|page| !page.key.is_empty())
    }

    pub(crate) const fn style(&self) -> &'static str {
        STYLE
    }

    pub(crate) const fn script(&self) -> &'static str {
        SCRIPT
    }

    pub(crate) const fn htmx(&self) -> &'static str {
        HTMX
    }

    pub(crate) const fn icon(&self) -> &'static str {
        ICON
    }
}

/// The page to sign in on.
#[derive(Template)]
#[template(path = "login.html")]
pub(crate) struct LoginPage<'a> {
    pub(crate) next: &'a str,
    pub(crate) failure: Option<&'a str>,
}

impl LoginPage<'_> {
    pub(crate) const fn style(&self) -> &'static str {
        STYLE
    }

    pub(crate) const fn icon(&self) -> &'static str {
        ICON
    }
}

/// A page in the place of one that cannot be drawn.
#[derive(Template)]
#[template(path = "failure.html")]
struct FailurePage<'a> {
    shell: Shell,
    failure: &'a Failure,
}

/// The same without a signed-in person.
#[derive(Template)]
#[template(path = "plain_failure.html")]
struct PlainFailurePage<'a> {
    failure: &'a Failure,
    style: &'static str,
    icon: &'static str,
}

/// HTML of a template.
pub(crate) fn draw(page: &impl Template) -> Response {
    draw_with(StatusCode::OK, page)
}

fn draw_with(status: StatusCode, page: &impl Template) -> Response {
    match page.render() {
        Ok(html) => {
            let (tag, as_of) = tag_and_time(&html);
            let kind = (CONTENT_TYPE, "text/html; charset=utf-8".to_owned());
            (status, [kind, (ETAG, tag), (AS_OF, as_of)], html).into_response()
        }
        Err(error) => {
            tracing::error!(%error, "cannot render a page");
            StatusCode::INTERNAL_SERVER_ERROR.into_response()
        }
    }
}

/// When the server drew a page, for a browser that has the same page already.
pub(crate) const AS_OF: HeaderName = HeaderName::from_static("x-as-of");

/// The entity tag of a page, which leaves out the time when it was drawn, and that time.
fn tag_and_time(html: &str) -> (String, String) {
    let parts = html.split_once("<time id=\"drawn\" datetime=\"").and_then(|(before, rest)| {
        let (time, rest) = rest.split_once('"')?;
        Some((before, time, rest.split_once("</time>")?.1))
    });
    let (before, time, after) = parts.unwrap_or((html, "", ""));
    let digest = Sha256::new().chain_update(before).chain_update(after).finalize();
    (format!("W/\"{}\"", hex::encode(&digest[..12])), time.to_owned())
}

fn status_of(failure: &Failure) -> StatusCode {
    StatusCode::from_u16(failure.problem.status).unwrap_or(StatusCode::BAD_GATEWAY)
}

const fn problem_headers() -> [(HeaderName, &'static str); 1] {
    [(CONTENT_TYPE, "application/problem+json")]
}

/// The page that says why another one cannot be drawn, and what to do next.
pub(crate) fn failed(viewer: &Viewer, now: Timestamp, failure: &Failure) -> Response {
    if failure.is_signed_out() {
        return redirect_to_login(&viewer.here);
    }
    if viewer.wants_json() {
        return (status_of(failure), problem_headers(), Json(&failure.problem)).into_response();
    }
    let status = status_of(failure);
    let shell = Shell::new(viewer, &failure.problem.title, "", now).still();
    draw_with(status, &FailurePage { shell, failure })
}

/// The same for a caller who is not known.
pub(crate) fn plain_failure(failure: &Failure) -> Response {
    let status = status_of(failure);
    draw_with(status, &PlainFailurePage { failure, style: STYLE, icon: ICON })
}

/// A list of the API, and why it is missing if it is. A caller whose token is refused is sent to
/// sign in.
pub(crate) async fn list_or_failure<T: DeserializeOwned>(
    viewer: &Viewer,
    now: Timestamp,
    path: &str,
) -> Result<(List<T>, Option<Failure>), Response> {
    match viewer.api.get::<List<T>>(path).await {
        Ok(list) => Ok((list, None)),
        Err(failure) if failure.is_signed_out() || viewer.wants_json() => {
            Err(failed(viewer, now, &failure))
        }
        Err(failure) => Ok((List::whole(Vec::new()), Some(failure))),
    }
}

/// Sends the reason of a form to the API, and goes back to `back`.
pub(crate) async fn send_form(
    console: &Console,
    viewer: &Viewer,
    path: &str,
    body: &impl Serialize,
    back: &str,
) -> Response {
    match viewer.api.post(path, body).await {
        Ok(_) => redirect(back),
        Err(failure) => failed(viewer, console.now(), &failure),
    }
}

/// Refuses a destructive action unless its subject's name was typed.
pub(crate) fn typed_name(typed: &str, name: &str) -> Result<(), Failure> {
    if typed.trim() == name {
        return Ok(());
    }
    let problem = Problem::new(400, "not_confirmed", "the typed name does not match")
        .with_detail(format!("found {typed:?}, expected {name:?}"))
        .with_hint("go back, check the name, and type it again");
    Err(Failure::of_problem(problem))
}

/// The page that answers an action that does not exist.
pub(crate) fn no_such_action(console: &Console, viewer: &Viewer) -> Response {
    let problem = Problem::new(404, "not_found", "unknown action")
        .with_hint("open `/palette` for the actions of each page");
    failed(viewer, console.now(), &Failure::of_problem(problem))
}

/// A problem as JSON.
pub(crate) fn problem_json(status: u16, code: &str, title: &str) -> Response {
    let code_of_http = StatusCode::from_u16(status).unwrap_or(StatusCode::BAD_GATEWAY);
    (code_of_http, problem_headers(), Json(Problem::new(status, code, title))).into_response()
}

/// What a page was drawn from, for programs: `.json` behind a page's address.
pub(crate) fn json(answer: &impl Serialize) -> Response {
    Json(answer).into_response()
}

/// The name in a path, and whether `.json` was asked for.
pub(crate) fn name_and_form(name: &str) -> (&str, bool) {
    name.strip_suffix(".json").map_or((name, false), |name| (name, true))
}

/// `GET /`.
pub(crate) async fn home() -> Response {
    redirect("/nodes")
}

/// `GET /go/NAME`: the node that has this hostname, address, serial number or identifier, or the
/// run that has this identifier.
pub(crate) async fn go(viewer: Viewer, Path(name): Path<String>) -> Response {
    let name = part(name.trim());
    let is_id = name.len() == 36 && name.chars().all(|c| c.is_ascii_hexdigit() || c == '-');
    let run = format!("/api/v1/runs/{name}");
    if is_id && viewer.api.get::<Value>(&run).await.is_ok() {
        return redirect(&format!("/runs/{name}"));
    }
    redirect(&format!("/nodes/{name}"))
}
