//! Pages for people, drawn on the server.
//!
//! The console has no data and decides nothing. A page asks the admin API's own router, in this
//! process and with the credential of the signed-in person, so that permissions, limits, idempotency
//! and the audit are those of the API. What a page shows is a pure function of the answers, the
//! person and the server's time; templates are in `templates/`.
//!
//! A session is the person's token, sealed in a cookie that scripts cannot read. The server keeps no
//! table of sessions: a session survives a restart, and ends when its token is revoked or expires.
//!
//! With scripts off, every page reads and every form works. With scripts on, a stream says when a page
//! changes, and htmx requests it again and changes in place what differs.

mod actions;
mod api;
mod assets;
mod comparison;
mod fleet_counts;
mod format;
mod live;
mod pages;
mod requests;
mod security;
mod session;
mod sign_in;
mod site_map;
mod state;
mod waterfall;

use axum::extract::DefaultBodyLimit;
use axum::extract::Request;
use axum::routing::{get, post};
use axum::{Router, middleware};

pub use site_map::map;
pub use state::ConsoleSettings;

use api::Connection;
use state::Console;
use tower::util::MapRequest;
use tower_http::compression::CompressionLayer;

/// Largest form. The one of the sign-in is read before anybody is known.
const MOST_FORM_BYTES: usize = 64 << 10;

/// The console's pages, and behind them the admin API: whatever is no page is the API's to answer.
pub fn router(operators: Router, settings: ConsoleSettings) -> Router {
    let console = Console::new(operators.clone(), settings);
    let pages = Router::new()
        .route("/", get(pages::home))
        .route("/assets/{name}", get(assets::show))
        .route("/login", get(sign_in::form).post(sign_in::sign_in))
        .route("/login/once/{code}", get(sign_in::once))
        .route("/logout", post(sign_in::sign_out))
        .route("/console/login-addresses", post(sign_in::issue_address))
        .route("/go/{*name}", get(pages::go))
        .route("/live", get(live::follow))
        .route("/wall", get(pages::wall::show))
        .route("/wall.json", get(pages::wall::show))
        .route("/nodes", get(pages::fleet::show))
        .route("/nodes.json", get(pages::fleet::show))
        .route("/nodes/{node}", get(pages::node::show))
        .route("/nodes/{node}/slots", get(pages::slots::show))
        .route("/onboard", get(pages::onboard::form).post(pages::onboard::onboard))
        .route("/runs", get(pages::runs::list))
        .route("/runs.json", get(pages::runs::list))
        .route("/runs/{run}", get(pages::runs::show))
        .route("/runs/{run}/{action}", post(pages::runs::act))
        .route("/stuck", get(pages::stuck::show))
        .route("/stuck.json", get(pages::stuck::show))
        .route("/batches", get(pages::batches::list))
        .route("/batches.json", get(pages::batches::list))
        .route("/batches/{batch}", get(pages::batches::show))
        .route("/batches/{batch}/{action}", post(pages::batches::act))
        .route("/claims", get(pages::claims::show))
        .route("/claims.json", get(pages::claims::show))
        .route("/bundles", get(pages::bundles::list))
        .route("/bundles.json", get(pages::bundles::list))
        .route("/bundles/{bundle}", get(pages::bundles::show))
        .route("/bundles/{bundle}/{action}", post(pages::bundles::act))
        .route("/experiments", get(pages::experiments::list))
        .route("/experiments.json", get(pages::experiments::list))
        .route("/experiments/{experiment}", get(pages::experiments::show))
        .route("/experiments/{experiment}/{action}", post(pages::experiments::act))
        .route("/tokens", get(pages::tokens::list))
        .route("/tokens.json", get(pages::tokens::list))
        .route("/tokens/{token}/{action}", post(pages::tokens::act))
        .route("/images", get(pages::images::list))
        .route("/images.json", get(pages::images::list))
        .route("/images/{site}/{image}", get(pages::images::show))
        .route("/images/{site}/{image}/{action}", post(pages::images::act))
        .route("/profiles", get(pages::profiles::list))
        .route("/profiles.json", get(pages::profiles::list))
        .route("/profiles/{profile}", get(pages::profiles::show))
        .route("/sites", get(pages::sites::show))
        .route("/sites.json", get(pages::sites::show))
        .route("/sites/{site}", get(pages::sites::one))
        .route("/sites/{site}/profiles", get(pages::profiles::list_at_site))
        .route("/sites/{site}/profiles.json", get(pages::profiles::list_at_site))
        .route("/sites/{site}/profiles/{profile}", get(pages::profiles::show_at_site))
        .route("/approvals", get(pages::approvals::list))
        .route("/approvals.json", get(pages::approvals::list))
        .route("/approvals/{approval}/{action}", post(pages::approvals::act))
        .route("/palette", get(pages::palette::show))
        .route("/palette.json", get(pages::palette::show))
        .route("/keys", get(pages::palette::keys))
        .route("/keys.json", get(pages::palette::keys))
        .route("/audit", get(pages::audit::show))
        .route("/audit.json", get(pages::audit::show))
        .layer(DefaultBodyLimit::max(MOST_FORM_BYTES))
        .layer(middleware::from_fn_with_state(console.clone(), security::protect))
        .layer(CompressionLayer::new())
        .with_state(console);
    // Before a route is matched: what the listener said, and nothing of what routing adds.
    let noted = MapRequest::new(pages.fallback_service(operators), |mut request: Request| {
        let connection = Connection(request.extensions().clone());
        request.extensions_mut().insert(connection);
        request
    });
    Router::new().fallback_service(noted)
}

#[cfg(test)]
mod tests;
