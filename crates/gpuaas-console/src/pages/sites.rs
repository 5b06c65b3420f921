//! MAAS regions, and whether what they say can be trusted.

use askama::Template;
use axum::extract::State;
use axum::response::Response;
use gpuaas_types::Timestamp;
use gpuaas_types::api::{List, SiteResource};

use super::{Shell, draw, failed};
use crate::api::Viewer;
use crate::format::{self, Mark};
use crate::state::Console;

struct SiteLine {
    name: String,
    url: String,
    mark: Mark,
    version: String,
    user: String,
    answered: String,
    missed: i64,
    remarks: Vec<String>,
    nodes_href: String,
}

#[derive(Template)]
#[template(path = "sites.html")]
struct SitesPage {
    shell: Shell,
    lines: Vec<SiteLine>,
}

/// `GET /sites`.
pub(crate) async fn show(State(console): State<Console>, viewer: Viewer) -> Response {
    let sites = match viewer.api.get::<List<SiteResource>>("/api/v1/sites").await {
        Ok(list) => list.items,
        Err(failure) => return failed(&viewer, console.now(), &failure),
    };
    let now = console.now();
    let shell = Shell::new(&viewer, "Sites", "sites", now)
        .sources("gpuaas site list".to_owned(), "/api/v1/sites".to_owned());
    draw(&SitesPage { shell, lines: sites.into_iter().map(|site| line(site, now)).collect() })
}

fn line(site: SiteResource, now: Timestamp) -> SiteLine {
    let status = site.status;
    let mark = match (&*status.health, status.answered_at) {
        ("ok", _) => Mark { shape: "✓", word: "reachable", class: "ok" },
        ("", None) => Mark { shape: "?", word: "unknown", class: "unknown" },
        _ => Mark { shape: "▲", word: "failing", class: "bad" },
    };
    let mut remarks = Vec::new();
    if !matches!(&*status.health, "ok" | "") {
        remarks.push(format!("{}: {}", status.health, status.health_detail));
    }
    if let Some(control) = &status.control {
        remarks.push(format!("No changes are made: {}", control.text));
    }
    if let Some(past) = &status.past {
        remarks.push(past.to_string());
    }
    let known = |text: String| if text.is_empty() { "unknown".to_owned() } else { text };
    SiteLine {
        nodes_href: crate::requests::with_query(
            "/nodes",
            &[("filter", &format!("site={}", site.spec.name))],
        ),
        name: site.spec.name,
        url: site.spec.url,
        mark,
        version: known(status.maas_version),
        user: known(status.maas_user),
        answered: status
            .answered_at
            .map_or_else(|| "never".to_owned(), |at| format!("{} ago", format::age(at, now))),
        missed: status.missed_work,
        remarks,
    }
}
