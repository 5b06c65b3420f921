//! MAAS regions, and whether what they say can be trusted.

use askama::Template;
use axum::extract::{Path, State};
use axum::response::Response;
use gpuaas_types::Timestamp;
use gpuaas_types::api::{List, SiteResource};
use gpuaas_types::audit::AuditItem;
use gpuaas_types::spec::SiteSpec;

use super::fields::{self, Field};
use super::fleet_map::filter_word;
use super::{Shell, draw, failed, name_and_form};
use crate::api::Viewer;
use crate::format::{self, Mark};
use crate::requests::{part, shell_word, with_query};
use crate::state::Console;

struct SiteLine {
    href: String,
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
    if viewer.wants_json() {
        return super::json(&sites);
    }
    let now = console.now();
    let shell = Shell::new(&viewer, "Sites", "sites", now)
        .sources("gpuaas site list".to_owned(), "/api/v1/sites".to_owned());
    draw(&SitesPage { shell, lines: sites.into_iter().map(|site| line(site, now)).collect() })
}

/// Whether MAAS answers.
fn reachability(site: &SiteResource) -> Mark {
    match (&*site.status.health, site.status.answered_at) {
        ("ok", _) => Mark { shape: "✓", word: "reachable", class: "ok" },
        ("", None) => Mark { shape: "?", word: "unknown", class: "unknown" },
        _ => Mark { shape: "▲", word: "failing", class: "bad" },
    }
}

/// What somebody has to know before trusting what the region says.
fn remarks(site: &SiteResource) -> Vec<String> {
    let status = &site.status;
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
    remarks
}

fn known(text: &str) -> String {
    if text.is_empty() { "unknown".to_owned() } else { text.to_owned() }
}

fn answered(site: &SiteResource, now: Timestamp) -> String {
    let at = site.status.answered_at;
    at.map_or_else(|| "never".to_owned(), |at| format!("{} ago", format::age(at, now)))
}

fn nodes_href(site: &str) -> String {
    with_query("/nodes", &[("filter", &format!("site={}", filter_word(site)))])
}

fn line(site: SiteResource, now: Timestamp) -> SiteLine {
    SiteLine {
        href: format!("/sites/{}", part(&site.spec.name)),
        nodes_href: nodes_href(&site.spec.name),
        mark: reachability(&site),
        remarks: remarks(&site),
        answered: answered(&site, now),
        version: known(&site.status.maas_version),
        user: known(&site.status.maas_user),
        missed: site.status.missed_work,
        name: site.spec.name,
        url: site.spec.url,
    }
}

#[derive(Template)]
#[template(path = "site.html")]
struct SitePage {
    shell: Shell,
    site: SiteResource,
    mark: Mark,
    remarks: Vec<String>,
    answered: String,
    version: String,
    user: String,
    key_age: String,
    nodes_href: String,
    profiles_href: String,
    images_href: String,
    fields: Vec<Field>,
}

/// `GET /sites/SITE`.
pub(crate) async fn one(
    State(console): State<Console>,
    viewer: Viewer,
    Path(name): Path<String>,
) -> Response {
    let (name, as_json) = name_and_form(&name);
    let (path, now) = (format!("/api/v1/sites/{}", part(name)), console.now());
    let site = match viewer.api.get::<SiteResource>(&path).await {
        Ok(site) => site,
        Err(failure) => return failed(&viewer, now, &failure),
    };
    if as_json {
        return super::json(&site);
    }
    let filter = format!("action=site.create,site.change subject={}", filter_word(name));
    let pairs = [("site", name), ("filter", &*filter), ("limit", "50")];
    let changes = viewer.api.get::<List<AuditItem>>(&with_query("/api/v1/audit", &pairs)).await;
    let name = site.spec.name.clone();
    let shell = Shell::new(&viewer, &format!("Site {name}"), "sites", now)
        .slow()
        .sources(format!("gpuaas site show {}", shell_word(&name)), path);
    draw(&SitePage {
        mark: reachability(&site),
        remarks: remarks(&site),
        answered: answered(&site, now),
        version: known(&site.status.maas_version),
        user: known(&site.status.maas_user),
        key_age: key_age(&changes.map(|list| list.items).unwrap_or_default(), now),
        nodes_href: nodes_href(&name),
        profiles_href: format!("/sites/{}/profiles", part(&name)),
        images_href: with_query("/images", &[("site", &name)]),
        fields: fields::rows(&site.spec, &SiteSpec::new("", ""), None, "this site"),
        shell,
        site,
    })
}

/// How old the API key is: since the latest entry of the audit log that set one.
fn key_age(changes: &[AuditItem], now: Timestamp) -> String {
    let sets_key = |entry: &&AuditItem| {
        matches!(&*entry.result, "done" | "")
            && (entry.action == "site.create" || entry.detail.get("api_key") == Some(&true.into()))
    };
    let at = changes.iter().filter(sets_key).map(|entry| entry.at).max();
    at.map_or_else(|| "unknown".to_owned(), |at| format::age(at, now))
}
