//! Host images: the shelf, and one image with its verdict, its lineage and its history.

use askama::Template;
use axum::Form;
use axum::extract::{Path, Query, State};
use axum::response::Response;
use gpuaas_types::Timestamp;
use gpuaas_types::api::List;
use gpuaas_types::image::{ImageState, ImageTransition, ImageView};
use serde::Deserialize;

use super::{
    Shell, draw, failed, list_or_failure, name_and_form, no_such_action, send_form, typed_name,
};
use crate::actions::{Button, IMAGE_APPROVE, IMAGE_DEPRECATE, IMAGE_REVOKE};
use crate::api::{Failure, Viewer};
use crate::format::{self, Mark};
use crate::requests::{part, shell_word, with_query};
use crate::state::Console;

const PATH: &str = "/api/v1/images";
const SECONDS_OF_DAY: u64 = 86_400;

/// Which images to show.
#[derive(Deserialize, Default)]
pub(crate) struct Asked {
    #[serde(default)]
    site: String,
}

struct Line {
    href: String,
    name: String,
    site: String,
    family: String,
    mark: Mark,
    size: String,
    expires: String,
    changed: String,
    by: String,
    findings: String,
}

#[derive(Template)]
#[template(path = "images.html")]
struct ImagesPage {
    shell: Shell,
    site: String,
    /// Images that were uploaded and wait for an approval.
    waiting: usize,
    lines: Vec<Line>,
    failure: Option<Failure>,
}

/// `GET /images`: what waits for an approval comes first.
pub(crate) async fn list(
    State(console): State<Console>,
    viewer: Viewer,
    Query(asked): Query<Asked>,
) -> Response {
    let (path, now) = (with_query(PATH, &[("site", &asked.site)]), console.now());
    let (mut list, failure) = match list_or_failure::<ImageView>(&viewer, now, &path).await {
        Ok(answer) => answer,
        Err(response) => return response,
    };
    if viewer.wants_json() {
        return super::json(&list);
    }
    list.items.sort_by_key(|image| {
        (urgency(image.state), image.family.clone(), std::cmp::Reverse(image.changed_at))
    });
    let cli = match &*asked.site {
        "" => "gpuaas image list".to_owned(),
        site => format!("gpuaas image list --site {}", shell_word(site)),
    };
    let shell = Shell::new(&viewer, "Images", "images", now).slow().sources(cli, path);
    let waiting = list.items.iter().filter(|image| image.state == ImageState::Uploaded).count();
    let lines = list.items.iter().map(|image| line(image, now)).collect();
    draw(&ImagesPage { shell, site: asked.site, waiting, lines, failure })
}

/// What a person has to decide comes first, what is over comes last.
const fn urgency(state: ImageState) -> u8 {
    match state {
        ImageState::Uploaded => 0,
        ImageState::Canary => 1,
        ImageState::Approved => 2,
        ImageState::Built | ImageState::Verified => 3,
        ImageState::Deprecated => 4,
        ImageState::Revoked | ImageState::Expired => 5,
    }
}

fn mark(state: ImageState) -> Mark {
    let (shape, class) = match state {
        ImageState::Built | ImageState::Verified | ImageState::Uploaded => ("◌", "wait"),
        ImageState::Canary => ("▶", "run"),
        ImageState::Approved => ("✓", "ok"),
        ImageState::Deprecated => ("◆", "slow"),
        ImageState::Revoked => ("▲", "bad"),
        ImageState::Expired => ("–", "off"),
    };
    Mark { shape, word: state.as_str(), class }
}

fn href(image: &ImageView) -> String {
    format!("/images/{}/{}", part(&image.site), part(&image.name))
}

fn line(image: &ImageView, now: Timestamp) -> Line {
    Line {
        href: href(image),
        name: image.name.clone(),
        site: image.site.clone(),
        family: image.family.clone(),
        mark: mark(image.state),
        size: size(image.size_bytes),
        expires: image.expires_at.map(format::time).unwrap_or_default(),
        changed: format!("{} ago", format::age(image.changed_at, now)),
        by: image.changed_by.clone(),
        findings: image.findings.join("; "),
    }
}

/// A size in MB of 10^6 bytes.
fn size(bytes: u64) -> String {
    match bytes {
        0 => "unknown".to_owned(),
        bytes => format!("{} MB", bytes.div_ceil(1_000_000)),
    }
}

/// Another image of the lineage, by its digest.
struct Relative {
    digest: String,
    /// Name and address, if the site has the image.
    known: Option<(String, String)>,
}

struct Event {
    at: String,
    actor: String,
    from: &'static str,
    to: Mark,
    reason: String,
}

#[derive(Template)]
#[template(path = "image.html")]
struct ImagePage {
    shell: Shell,
    image: ImageView,
    mark: Mark,
    size: String,
    expires: String,
    changed: String,
    lint: Mark,
    parents: Vec<Relative>,
    children: Vec<Relative>,
    history: Vec<Event>,
    buttons: Vec<Button>,
    revoke: Vec<Button>,
}

/// `GET /images/SITE/IMAGE`.
pub(crate) async fn show(
    State(console): State<Console>,
    viewer: Viewer,
    Path((site, name)): Path<(String, String)>,
) -> Response {
    let (name, as_json) = name_and_form(&name);
    let path = with_query(&format!("{PATH}/{}", part(name)), &[("site", &site)]);
    let now = console.now();
    let image = match viewer.api.get::<ImageView>(&path).await {
        Ok(image) => image,
        Err(failure) => return failed(&viewer, now, &failure),
    };
    if as_json {
        return super::json(&image);
    }
    let of_site = viewer.api.get::<List<ImageView>>(&with_query(PATH, &[("site", &site)])).await;
    let of_site = of_site.map(|list| list.items).unwrap_or_default();
    let cli = format!("gpuaas image show {} --site {}", shell_word(name), shell_word(&site));
    let shell = Shell::new(&viewer, &image.name, "images", now).slow().sources(cli, path);
    let parents = image.parents.iter().map(|digest| relative(digest, &of_site)).collect();
    let is_child = |other: &&ImageView| other.parents.contains(&image.sha256);
    let children = of_site.iter().filter(is_child).map(|other| relative(&other.sha256, &of_site));
    draw(&ImagePage {
        mark: mark(image.state),
        size: size(image.size_bytes),
        expires: image.expires_at.map_or_else(|| "never".to_owned(), format::time),
        changed: format!("{} ago by {}", format::age(image.changed_at, now), image.changed_by),
        lint: lint(&image),
        parents,
        children: children.collect(),
        history: image.history.iter().rev().map(event).collect(),
        buttons: buttons(&viewer, &image),
        revoke: vec![Button::new(
            IMAGE_REVOKE,
            format!("{}/revoke", href(&image)),
            &viewer,
            Some(&image.site),
            revoked(&image),
        )],
        shell,
        image,
    })
}

fn relative(digest: &str, images: &[ImageView]) -> Relative {
    let known = images.iter().find(|image| image.sha256 == digest);
    let known = known.map(|image| (image.name.clone(), href(image)));
    Relative { digest: digest.to_owned(), known }
}

/// What the lint found, as far as the site was told.
fn lint(image: &ImageView) -> Mark {
    match image.lint.as_ref().map(|lint| (lint.errors, lint.warnings)) {
        None => Mark { shape: "?", word: "no verdict", class: "unknown" },
        Some((0, 0)) => Mark { shape: "✓", word: "nothing found", class: "ok" },
        Some((0, _)) => Mark { shape: "✓", word: "no errors", class: "ok" },
        Some(_) => Mark { shape: "▲", word: "errors", class: "bad" },
    }
}

fn event(event: &gpuaas_types::image::ImageEvent) -> Event {
    Event {
        at: format::time(event.at),
        actor: event.actor.clone(),
        from: event.from.map(ImageState::as_str).unwrap_or_default(),
        to: mark(event.to),
        reason: event.reason.clone(),
    }
}

fn revoked(image: &ImageView) -> &'static str {
    if image.state == ImageState::Revoked { "the image is permanently revoked" } else { "" }
}

fn buttons(viewer: &Viewer, image: &ImageView) -> Vec<Button> {
    let button = |action, verb: &str| {
        Button::new(
            action,
            format!("{}/{verb}", href(image)),
            viewer,
            Some(&image.site),
            revoked(image),
        )
    };
    vec![button(IMAGE_APPROVE, "approve"), button(IMAGE_DEPRECATE, "deprecate")]
}

/// The forms of an image's page. Fields that do not belong to the action are left out.
#[derive(Deserialize)]
pub(crate) struct Said {
    #[serde(default)]
    reason: String,
    /// Number of nodes of a canary; empty: an approval for all nodes.
    #[serde(default)]
    canary_nodes: String,
    /// Days after which it may not be deployed any more; empty: no end.
    #[serde(default)]
    expires_days: String,
    #[serde(default)]
    lint_waiver: String,
    /// The name, typed again before a revocation.
    #[serde(default)]
    confirm: String,
}

/// `POST /images/SITE/IMAGE/{approve, deprecate, revoke}`.
pub(crate) async fn act(
    State(console): State<Console>,
    viewer: Viewer,
    Path((site, name, action)): Path<(String, String, String)>,
    Form(form): Form<Said>,
) -> Response {
    let back = format!("/images/{}/{}", part(&site), part(&name));
    let to = match &*action {
        "approve" if form.canary_nodes.trim().is_empty() => ImageState::Approved,
        "approve" => ImageState::Canary,
        "deprecate" => ImageState::Deprecated,
        "revoke" => ImageState::Revoked,
        _ => return no_such_action(&console, &viewer),
    };
    if to == ImageState::Revoked
        && let Err(failure) = typed_name(&form.confirm, &name)
    {
        return failed(&viewer, console.now(), &failure);
    }
    let is_approval = matches!(to, ImageState::Approved | ImageState::Canary);
    let days = form.expires_days.trim().parse::<u64>().ok().filter(|_| is_approval);
    let body = ImageTransition {
        site,
        to,
        canary_nodes: form.canary_nodes.trim().parse().ok().filter(|_| is_approval),
        lint_waiver: if is_approval { form.lint_waiver.trim().to_owned() } else { String::new() },
        expires_in_seconds: days.map(|days| days.saturating_mul(SECONDS_OF_DAY)),
        actor: viewer.access.name.clone(),
        reason: form.reason.trim().to_owned(),
    };
    let path = format!("{PATH}/{}/transition", part(&name));
    send_form(&console, &viewer, &path, &body, &back).await
}
