//! Bundles: the shelf, and one bundle with its versions and the sites that may run it.

use askama::Template;
use axum::Form;
use axum::extract::{Path, State};
use axum::response::Response;
use gpuaas_types::Timestamp;
use gpuaas_types::api::{List, SiteResource};
use gpuaas_types::bundle::{BundleApprove, BundleView};
use serde::Deserialize;
use serde_json::json;

use super::{Shell, draw, failed, list_or_failure, name_and_form, no_such_action, send_form};
use crate::actions::{BUNDLE_APPROVE, BUNDLE_WITHDRAW, Button};
use crate::api::{Failure, Viewer};
use crate::format::{self, Mark};
use crate::requests::{part, shell_word};
use crate::state::Console;

const PATH: &str = "/api/v1/bundles";

/// A bundle, as both pages show it in a row.
struct Line {
    href: String,
    bundle: String,
    kind: String,
    about: String,
    signer: Mark,
    sites: String,
    mark: Mark,
    published: String,
    by: String,
}

#[derive(Template)]
#[template(path = "bundles.html")]
struct BundlesPage {
    shell: Shell,
    /// Bundles that no site may run yet.
    waiting: usize,
    lines: Vec<Line>,
    failure: Option<Failure>,
}

/// `GET /bundles`: what no site may run yet comes first.
pub(crate) async fn list(State(console): State<Console>, viewer: Viewer) -> Response {
    let now = console.now();
    let (mut list, failure) = match list_or_failure::<BundleView>(&viewer, now, PATH).await {
        Ok(answer) => answer,
        Err(response) => return response,
    };
    if viewer.wants_json() {
        return super::json(&list);
    }
    list.items.sort_by(|a, b| {
        let key = |one: &BundleView| (!waits(one), name_of(&one.bundle).to_owned());
        key(a).cmp(&key(b)).then(b.published_at.cmp(&a.published_at))
    });
    let shell = Shell::new(&viewer, "Bundles", "bundles", now)
        .slow()
        .sources("gpuaas bundle list".to_owned(), PATH.to_owned());
    let waiting = list.items.iter().filter(|one| waits(one)).count();
    let lines = list.items.iter().map(|one| line(one, now)).collect();
    draw(&BundlesPage { shell, waiting, lines, failure })
}

/// Whether a person has to approve it before any site may run it.
fn waits(bundle: &BundleView) -> bool {
    !bundle.built_in && bundle.approved_for.is_empty()
}

fn name_of(bundle: &str) -> &str {
    bundle.split('@').next().unwrap_or(bundle)
}

fn line(bundle: &BundleView, now: Timestamp) -> Line {
    let (mark, sites) = if bundle.built_in {
        (Mark { shape: "✓", word: "built in", class: "ok" }, "all".to_owned())
    } else if bundle.approved_for.is_empty() {
        (Mark { shape: "◌", word: "not approved", class: "wait" }, "none".to_owned())
    } else {
        let sites = bundle.approved_for.join(", ");
        (Mark { shape: "✓", word: "approved", class: "ok" }, sites)
    };
    Line {
        href: format!("/bundles/{}", part(&bundle.bundle)),
        bundle: bundle.bundle.clone(),
        kind: bundle.kind.replace('_', " "),
        about: bundle.about.clone(),
        signer: signature(bundle),
        sites,
        mark,
        published: format!("{} ago", format::age(bundle.published_at, now)),
        by: bundle.published_by.clone(),
    }
}

fn signature(bundle: &BundleView) -> Mark {
    match bundle.signed_by {
        Some(_) => Mark { shape: "✓", word: "trusted", class: "ok" },
        None => Mark { shape: "▲", word: "no trusted signature", class: "bad" },
    }
}

/// Whether a site may run the bundle.
struct SiteLine {
    name: String,
    href: String,
    mark: Mark,
}

#[derive(Template)]
#[template(path = "bundle.html")]
struct BundlePage {
    shell: Shell,
    bundle: BundleView,
    published: String,
    signature: Mark,
    versions: Vec<Line>,
    sites: Vec<SiteLine>,
    sites_failure: Option<Failure>,
    buttons: Vec<Button>,
}

/// `GET /bundles/BUNDLE`.
pub(crate) async fn show(
    State(console): State<Console>,
    viewer: Viewer,
    Path(name): Path<String>,
) -> Response {
    let (name, as_json) = name_and_form(&name);
    let (path, now) = (format!("{PATH}/{}", part(name)), console.now());
    let bundle = match viewer.api.get::<BundleView>(&path).await {
        Ok(bundle) => bundle,
        Err(failure) => return failed(&viewer, now, &failure),
    };
    let all = viewer.api.get::<List<BundleView>>(PATH).await.map(|list| list.items);
    let mut versions = all.unwrap_or_default();
    versions.retain(|one| name_of(&one.bundle) == name_of(&bundle.bundle));
    versions.sort_by_key(|one| std::cmp::Reverse(one.published_at));
    if as_json {
        return super::json(&json!({ "bundle": bundle, "versions": versions }));
    }
    let sites = viewer.api.get::<List<SiteResource>>("/api/v1/sites").await;
    let (sites, sites_failure) = match sites {
        Ok(list) => (list.items.iter().map(|site| site_line(&bundle, site)).collect(), None),
        Err(failure) => (Vec::new(), Some(failure)),
    };
    let shell = Shell::new(&viewer, &bundle.bundle, "bundles", now)
        .slow()
        .sources(format!("gpuaas bundle show {}", shell_word(&bundle.bundle)), path);
    draw(&BundlePage {
        published: format::time(bundle.published_at),
        signature: signature(&bundle),
        versions: versions.iter().map(|one| line(one, now)).collect(),
        sites,
        sites_failure,
        buttons: buttons(&viewer, &bundle),
        shell,
        bundle,
    })
}

fn site_line(bundle: &BundleView, site: &SiteResource) -> SiteLine {
    let is_approved = bundle.built_in || bundle.approved_for.contains(&site.spec.name);
    SiteLine {
        name: site.spec.name.clone(),
        href: format!("/sites/{}", part(&site.spec.name)),
        mark: if is_approved {
            Mark { shape: "✓", word: "may run it", class: "ok" }
        } else {
            Mark { shape: "◌", word: "not approved", class: "wait" }
        },
    }
}

fn buttons(viewer: &Viewer, bundle: &BundleView) -> Vec<Button> {
    let built_in = if bundle.built_in {
        "it is built into the control plane: every site may run it"
    } else {
        ""
    };
    let not_approved = if bundle.approved_for.is_empty() { "no site may run it" } else { built_in };
    let not_approved = if built_in.is_empty() { not_approved } else { built_in };
    let href = |verb: &str| format!("/bundles/{}/{verb}", part(&bundle.bundle));
    vec![
        Button::new(BUNDLE_APPROVE, href("approve"), viewer, None, built_in),
        Button::new(BUNDLE_WITHDRAW, href("withdraw"), viewer, None, not_approved),
    ]
}

/// The form of a bundle's page.
#[derive(Deserialize)]
pub(crate) struct Asked {
    #[serde(default)]
    site: String,
    #[serde(default)]
    reason: String,
}

/// `POST /bundles/BUNDLE/{approve, withdraw}`.
pub(crate) async fn act(
    State(console): State<Console>,
    viewer: Viewer,
    Path((name, action)): Path<(String, String)>,
    Form(form): Form<Asked>,
) -> Response {
    if !["approve", "withdraw"].contains(&&*action) {
        return no_such_action(&console, &viewer);
    }
    let name = part(&name);
    let body = BundleApprove {
        site: form.site,
        actor: viewer.access.name.clone(),
        reason: form.reason.trim().to_owned(),
    };
    let back = format!("/bundles/{name}");
    send_form(&console, &viewer, &format!("{PATH}/{name}/{action}"), &body, &back).await
}
