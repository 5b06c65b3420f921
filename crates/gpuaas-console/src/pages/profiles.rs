//! Profiles: the list, and one profile with its revisions and its nodes.

use askama::Template;
use axum::extract::{Path, Query, State};
use axum::response::Response;
use gpuaas_types::Timestamp;
use gpuaas_types::api::{List, NodeView, ProfilePreset, ProfileResource};
use gpuaas_types::audit::AuditItem;
use gpuaas_types::spec::ProfileSpec;
use serde::Deserialize;
use serde_json::{Value, json};

use super::fields::{self, Field};
use super::fleet_map::filter_word;
use super::{Shell, draw, failed, list_or_failure, name_and_form};
use crate::api::{Failure, Viewer};
use crate::format::{self, Mark};
use crate::requests::{PER_PAGE, part, shell_word, with_query};
use crate::state::Console;

/// Fields that a rollback of the image changes; its audit entry does not name them.
const IMAGE_FIELDS: [&str; 3] = ["distro_series", "image_sha256", "image_size_megabytes"];

struct Line {
    name: String,
    href: String,
    revision: i64,
    image: String,
    bundle: String,
    fabric: String,
    sites: String,
    changed: String,
    nodes_href: String,
}

#[derive(Template)]
#[template(path = "profiles.html")]
struct ProfilesPage {
    shell: Shell,
    /// Site whose profiles are shown; empty: all profiles.
    site: String,
    lines: Vec<Line>,
    failure: Option<Failure>,
}

/// `GET /profiles`.
pub(crate) async fn list(State(console): State<Console>, viewer: Viewer) -> Response {
    list_of(&console, &viewer, "").await
}

/// `GET /sites/SITE/profiles`.
pub(crate) async fn list_at_site(
    State(console): State<Console>,
    viewer: Viewer,
    Path(site): Path<String>,
) -> Response {
    list_of(&console, &viewer, &site).await
}

async fn list_of(console: &Console, viewer: &Viewer, site: &str) -> Response {
    let (path, now) = ("/api/v1/profiles", console.now());
    let (mut list, failure) = match list_or_failure::<ProfileResource>(viewer, now, path).await {
        Ok(answer) => answer,
        Err(response) => return response,
    };
    list.items.retain(|profile| site.is_empty() || is_for(&profile.spec, site));
    if viewer.wants_json() {
        return super::json(&list);
    }
    let title = if site.is_empty() { "Profiles".to_owned() } else { format!("Profiles of {site}") };
    let shell = Shell::new(viewer, &title, "profiles", now)
        .slow()
        .sources("gpuaas profile list".to_owned(), path.to_owned());
    let lines = list.items.iter().map(|profile| line(profile, site, now)).collect();
    draw(&ProfilesPage { shell, site: site.to_owned(), lines, failure })
}

/// Whether nodes of a site may be deployed with a profile.
fn is_for(spec: &ProfileSpec, site: &str) -> bool {
    spec.sites.is_empty() || spec.sites.iter().any(|name| name == site)
}

fn line(profile: &ProfileResource, site: &str, now: Timestamp) -> Line {
    let (spec, name) = (&profile.spec, &profile.status.name);
    let fabric = serde_json::to_value(spec.fabric_mode).unwrap_or_default();
    Line {
        href: href(site, name),
        revision: profile.revision,
        image: spec.distro_series.clone(),
        bundle: spec.site_bootstrap_bundle_ref.clone(),
        fabric: fabric.as_str().unwrap_or_default().to_owned(),
        sites: if spec.sites.is_empty() { "all".to_owned() } else { spec.sites.join(", ") },
        changed: format!("{} ago", format::age(profile.updated_at, now)),
        nodes_href: with_query("/nodes", &[("filter", &nodes_filter(site, name))]),
        name: name.clone(),
    }
}

fn href(site: &str, name: &str) -> String {
    match site {
        "" => format!("/profiles/{}", part(name)),
        site => format!("/sites/{}/profiles/{}", part(site), part(name)),
    }
}

/// The filter of the nodes that have a profile.
fn nodes_filter(site: &str, name: &str) -> String {
    let of_profile = format!("profile={}", filter_word(name));
    if site.is_empty() { of_profile } else { format!("{of_profile} site={}", filter_word(site)) }
}

/// What the page compares the newest revision with.
#[derive(Deserialize, Default)]
pub(crate) struct Asked {
    /// `preset:NAME`, or the name of another profile.
    #[serde(default)]
    against: String,
    /// Revision since which changed fields are marked.
    #[serde(default)]
    since: String,
}

/// A revision, as the audit log has it.
struct Revision {
    revision: i64,
    at: String,
    actor: String,
    action: String,
    fields: Vec<String>,
    since_href: String,
}

struct NodeLine {
    href: String,
    hostname: String,
    site: String,
    mark: Mark,
}

#[derive(Template)]
#[template(path = "profile.html")]
struct ProfilePage {
    shell: Shell,
    site: String,
    profile: ProfileResource,
    changed: String,
    own_href: String,
    fields: Vec<Field>,
    /// Fields with the default value, which are folded.
    defaults: Vec<Field>,
    against: String,
    choices: Vec<String>,
    since: Option<i64>,
    revisions: Vec<Revision>,
    revisions_failure: Option<Failure>,
    audit_path: String,
    audit_cli: String,
    nodes: Vec<NodeLine>,
    nodes_failure: Option<Failure>,
    nodes_path: String,
    nodes_cli: String,
    nodes_next: Option<String>,
    old_runs_href: String,
}

/// `GET /profiles/PROFILE`.
pub(crate) async fn show(
    State(console): State<Console>,
    viewer: Viewer,
    Path(name): Path<String>,
    Query(asked): Query<Asked>,
) -> Response {
    show_of(&console, &viewer, "", &name, asked).await
}

/// `GET /sites/SITE/profiles/PROFILE`.
pub(crate) async fn show_at_site(
    State(console): State<Console>,
    viewer: Viewer,
    Path((site, name)): Path<(String, String)>,
    Query(asked): Query<Asked>,
) -> Response {
    show_of(&console, &viewer, &site, &name, asked).await
}

async fn show_of(
    console: &Console,
    viewer: &Viewer,
    site: &str,
    name: &str,
    asked: Asked,
) -> Response {
    let (name, as_json) = name_and_form(name);
    let now = console.now();
    let path = match site {
        "" => format!("/api/v1/profiles/{}", part(name)),
        site => format!("/api/v1/admin/maas-sites/{}/profiles/{}", part(site), part(name)),
    };
    let profile = match viewer.api.get::<ProfileResource>(&path).await {
        Ok(profile) => profile,
        Err(failure) => return failed(viewer, now, &failure),
    };
    let audit_filter = format!("action~profile. subject={}", filter_word(name));
    let limit = PER_PAGE.to_string();
    let query =
        |filter: &str, path: &str| with_query(path, &[("filter", filter), ("limit", &limit)]);
    let audit_path = query(&audit_filter, "/api/v1/audit");
    let entries = viewer.api.get::<List<AuditItem>>(&audit_path).await;
    if as_json {
        let revisions = entries.ok().map(|list| list.items);
        return super::json(&json!({ "profile": profile, "revisions": revisions }));
    }
    let (presets, profiles) = others(viewer).await;
    let nodes_filter = nodes_filter(site, name);
    let nodes_path = query(&nodes_filter, "/api/v1/nodes");
    let nodes = viewer.api.get::<List<NodeView>>(&nodes_path).await;
    let shell = Shell::new(viewer, &format!("Profile {name}"), "profiles", now)
        .slow()
        .sources(format!("gpuaas profile show {}", shell_word(name)), path);
    let (entries, revisions_failure) = apart(entries);
    let (nodes, nodes_failure) = apart(nodes);
    let own_href = href(site, name);
    let revisions = revisions(&entries.items, &own_href);
    let other = other(&asked.against, &presets, &profiles);
    let mut fields = fields::rows(&profile.spec, &ProfileSpec::default(), other, "this profile");
    for field in &mut fields {
        let change = revisions.iter().find(|revision| revision.fields.contains(&field.name));
        field.changed = change.map(|revision| revision.revision.to_string()).unwrap_or_default();
    }
    let is_shown = |field: &Field| {
        field.origin != "default" || field.other.is_some() || !field.changed.is_empty()
    };
    let (fields, defaults) = fields.into_iter().partition(is_shown);
    let others = profiles.iter().map(|one| one.status.name.clone()).filter(|other| other != name);
    let presets = presets.iter().map(|preset| format!("preset:{}", preset.name));
    let old_runs = format!(
        "profile={} profile_revision<{} status=running,waiting,parked",
        filter_word(name),
        profile.revision
    );
    let nodes_next = nodes.next.as_ref();
    draw(&ProfilePage {
        site: site.to_owned(),
        changed: format!("{} ago", format::age(profile.updated_at, now)),
        own_href,
        fields,
        defaults,
        against: if other.is_some() { asked.against } else { String::new() },
        choices: presets.chain(others).collect(),
        since: asked.since.parse().ok(),
        revisions,
        revisions_failure,
        audit_path,
        audit_cli: format!("gpuaas audit list --filter {}", shell_word(&audit_filter)),
        nodes_next: nodes_next
            .map(|after| with_query("/nodes", &[("filter", &*nodes_filter), ("after", after)])),
        nodes: nodes.items.iter().map(node_line).collect(),
        nodes_failure,
        nodes_path,
        nodes_cli: format!("gpuaas node list --filter {}", shell_word(&nodes_filter)),
        old_runs_href: with_query("/runs", &[("filter", &old_runs)]),
        shell,
        profile,
    })
}

fn apart<T>(answer: Result<List<T>, Failure>) -> (List<T>, Option<Failure>) {
    match answer {
        Ok(list) => (list, None),
        Err(failure) => (List::whole(Vec::new()), Some(failure)),
    }
}

/// Presets and profiles that a profile can be compared with; none of them if the API refuses.
async fn others(viewer: &Viewer) -> (Vec<ProfilePreset>, Vec<ProfileResource>) {
    let presets = viewer.api.get::<List<ProfilePreset>>("/api/v1/profile-presets").await;
    let profiles = viewer.api.get::<List<ProfileResource>>("/api/v1/profiles").await;
    (apart(presets).0.items, apart(profiles).0.items)
}

fn other<'a>(
    against: &str,
    presets: &'a [ProfilePreset],
    profiles: &'a [ProfileResource],
) -> Option<&'a ProfileSpec> {
    match against.strip_prefix("preset:") {
        Some(name) => presets.iter().find(|preset| preset.name == name).map(|preset| &preset.spec),
        None => profiles.iter().find(|one| one.status.name == against).map(|one| &one.spec),
    }
}

/// Revisions of the audit log, the newest first. Refused changes made none.
fn revisions(entries: &[AuditItem], own_href: &str) -> Vec<Revision> {
    let done = entries.iter().filter(|entry| matches!(&*entry.result, "done" | ""));
    let made = done.filter_map(|entry| {
        let revision = entry.detail.get("revision").and_then(Value::as_i64)?;
        let fields = entry.detail.get("fields").and_then(Value::as_array);
        let fields = fields.into_iter().flatten().filter_map(Value::as_str);
        let is_rollback = entry.action == "profile.rollback_image";
        let fields = fields.chain(is_rollback.then_some(IMAGE_FIELDS).into_iter().flatten());
        Some(Revision {
            revision,
            at: format::time(entry.at),
            actor: entry.actor.clone(),
            action: entry.action.clone(),
            fields: fields.map(str::to_owned).collect(),
            since_href: with_query(own_href, &[("since", &revision.to_string())]),
        })
    });
    made.collect()
}

fn node_line(node: &NodeView) -> NodeLine {
    NodeLine {
        href: format!("/nodes/{}", part(&node.hostname)),
        hostname: node.hostname.clone(),
        site: node.site.clone(),
        mark: format::node_mark(node.state, node.mark),
    }
}

impl ProfilePage {
    /// Whether a field changed after the revision that was asked for.
    fn is_newer(&self, field: &Field) -> bool {
        self.since
            .zip(field.changed.parse().ok())
            .is_some_and(|(since, changed): (i64, i64)| changed > since)
    }
}
