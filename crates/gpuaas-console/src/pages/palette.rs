//! The palette and the sheet of keys: plain pages with links, and dialogs if scripts are on.

use askama::Template;
use axum::extract::{Query, State};
use axum::response::Response;
use gpuaas_types::api::{List, NodeView};
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::fleet_map::filter_word;
use super::{Shell, draw, failed};
use crate::actions::{ACTIONS, Action, Button};
use crate::api::{Failure, Viewer};
use crate::format::{self, Mark};
use crate::requests::{part, with_query};
use crate::site_map::PAGES;
use crate::state::Console;

/// Nodes that the palette shows.
const MOST_NODES: &str = "8";

/// What is looked for.
#[derive(Deserialize, Default)]
pub(crate) struct Asked {
    #[serde(default)]
    q: String,
}

/// A page that was found.
#[derive(Serialize)]
struct Place {
    title: &'static str,
    path: &'static str,
    key: &'static str,
}

struct NodeLine {
    href: String,
    hostname: String,
    site: String,
    mark: Mark,
}

/// An action that was found.
struct Deed {
    action: &'static Action,
    /// Page that offers it, if that needs no name; empty: none.
    href: &'static str,
    why_not: String,
}

#[derive(Template)]
#[template(path = "palette.html")]
struct PalettePage {
    shell: Shell,
    q: String,
    go: String,
    nodes: Vec<NodeLine>,
    failure: Option<Failure>,
    places: Vec<Place>,
    deeds: Vec<Deed>,
}

/// `GET /palette?q=`.
pub(crate) async fn show(
    State(console): State<Console>,
    viewer: Viewer,
    Query(asked): Query<Asked>,
) -> Response {
    let (q, now) = (asked.q.trim(), console.now());
    let (nodes, failure) = match find_nodes(&viewer, q).await {
        Ok(nodes) => (nodes, None),
        Err(failure) if failure.is_signed_out() => return failed(&viewer, now, &failure),
        Err(failure) => (Vec::new(), Some(failure)),
    };
    let places = places(q);
    if viewer.wants_json() {
        let actions: Vec<_> = deeds(&viewer, q).map(|deed| deed.action.name).collect();
        let nodes: Vec<_> = nodes.iter().map(|node| &node.hostname).collect();
        return super::json(&json!({ "nodes": nodes, "pages": places, "actions": actions }));
    }
    let line = |node: &NodeView| NodeLine {
        href: format!("/nodes/{}", part(&node.hostname)),
        hostname: node.hostname.clone(),
        site: node.site.clone(),
        mark: format::node_mark(node.state, node.mark),
    };
    draw(&PalettePage {
        shell: Shell::new(&viewer, "Palette", "palette", now).still(),
        q: q.to_owned(),
        go: format!("/go/{}", part(q)),
        nodes: nodes.iter().map(line).collect(),
        failure,
        places,
        deeds: deeds(&viewer, q).collect(),
    })
}

async fn find_nodes(viewer: &Viewer, q: &str) -> Result<Vec<NodeView>, Failure> {
    if q.is_empty() {
        return Ok(Vec::new());
    }
    let filter = format!("hostname~{}", filter_word(q));
    let path = with_query("/api/v1/nodes", &[("filter", &*filter), ("limit", MOST_NODES)]);
    viewer.api.get::<List<NodeView>>(&path).await.map(|list| list.items)
}

/// Whether any of `texts` has `q`, whatever the case.
fn has(q: &str, texts: &[&str]) -> bool {
    let q = q.to_lowercase();
    texts.iter().any(|text| text.to_lowercase().contains(&q))
}

fn places(q: &str) -> Vec<Place> {
    let of_page = PAGES.iter().filter(|page| !page.path.contains('{') && page.path != "/palette");
    let found = of_page.filter(|page| has(q, &[page.title, page.path]));
    found.map(|page| Place { title: page.title, path: page.path, key: page.key }).collect()
}

fn deeds<'a>(viewer: &'a Viewer, q: &'a str) -> impl Iterator<Item = Deed> + 'a {
    let found = ACTIONS.iter().filter(move |action| has(q, &[action.name, action.title]));
    found.map(|action| Deed {
        action,
        href: action.pages.iter().find(|page| !page.contains('{')).copied().unwrap_or_default(),
        why_not: Button::new(action, String::new(), viewer, None, "").why_not,
    })
}

#[derive(Template)]
#[template(path = "keys.html")]
struct KeysPage {
    shell: Shell,
    general: &'static [(&'static str, &'static str)],
    places: Vec<Place>,
    actions: Vec<&'static Action>,
}

/// Keys of every page.
const GENERAL: &[(&str, &str)] = &[
    ("Ctrl K", "open the palette"),
    ("?", "open this sheet"),
    ("/", "go to the filter"),
    ("j", "go to the next row"),
    ("k", "go to the previous row"),
    ("o", "open the row"),
    ("n", "onboard a node (on the fleet page)"),
    ("Esc", "close a dialog"),
];

/// `GET /keys`.
pub(crate) async fn keys(State(console): State<Console>, viewer: Viewer) -> Response {
    let mut places = places("");
    places.retain(|place| !place.key.is_empty());
    let has_key = |action: &&&Action| !action.key.is_empty();
    let actions: Vec<_> = ACTIONS.iter().filter(has_key).copied().collect();
    if viewer.wants_json() {
        let keys: Vec<_> = actions.iter().map(|action| (action.key, action.name)).collect();
        return super::json(&json!({ "general": GENERAL, "pages": places, "actions": keys }));
    }
    let shell = Shell::new(&viewer, "Keys", "keys", console.now()).still();
    draw(&KeysPage { shell, general: GENERAL, places, actions })
}
