//! `gpuaas image list`, `approve`, `deprecate`, `revoke`, `rollback` and `delete`: images of sites.

use gpuaas_client::ApiClient;
use gpuaas_client::failure::Failure;
use gpuaas_client::output::{self, or_dash};
use gpuaas_client::terminal::{Style, Terminal};
use gpuaas_types::api::List;
use gpuaas_types::image::{
    ImageDeletion, ImagePin, ImageRollback, ImageRollbackView, ImageState, ImageTransition,
    ImageVerdict, ImageView,
};

use crate::args::{
    ImageApproveArgs, ImageDeleteArgs, ImageListArgs, ImageRollbackArgs, ImageShowArgs,
    ImageStateArgs,
};
use crate::confirm::confirm;

/// Lists the images of sites.
pub(super) async fn list(args: &ImageListArgs, terminal: &mut Terminal) -> Result<(), Failure> {
    let list = ApiClient::from_args(&args.api)?.images(args.site.as_deref()).await?;
    for finding in findings(&list.items) {
        terminal.message(&finding);
    }
    output::print(terminal, args.api.format, &list, table)
}

/// Shows an image as a site has it.
pub(super) async fn show(
    args: &ImageShowArgs,
    site: &str,
    terminal: &mut Terminal,
) -> Result<(), Failure> {
    let name = args.file.to_string_lossy();
    let image = ApiClient::connect(&args.connection)?.image(&bare(&name), site).await?;
    let format = if args.json { crate::args::Format::Json } else { crate::args::Format::Table };
    output::print(terminal, format, &image, draw)
}

/// Approves an image, or lets some nodes have it.
pub(super) async fn approve(
    args: &ImageApproveArgs,
    terminal: &mut Terminal,
) -> Result<(), Failure> {
    let body = ImageTransition {
        site: args.site.clone(),
        to: if args.canary.is_some() { ImageState::Canary } else { ImageState::Approved },
        canary_nodes: args.canary,
        lint_waiver: args.lint_waiver.clone().unwrap_or_default(),
        expires_in_seconds: args.expires_days.map(|days| u64::from(days) * 86_400),
        actor: args.who.actor.clone(),
        reason: args.reason.clone(),
    };
    let image = ApiClient::from_args(&args.api)?.move_image(&bare(&args.image), &body).await?;
    output::print(terminal, args.api.format, &image, draw)
}

/// Deprecates or revokes an image.
pub(super) async fn withdraw(
    args: &ImageStateArgs,
    to: ImageState,
    terminal: &mut Terminal,
) -> Result<(), Failure> {
    let body = ImageTransition {
        site: args.site.clone(),
        to,
        canary_nodes: None,
        lint_waiver: String::new(),
        expires_in_seconds: None,
        actor: args.who.actor.clone(),
        reason: args.reason.clone(),
    };
    let image = ApiClient::from_args(&args.api)?.move_image(&bare(&args.image), &body).await?;
    output::print(terminal, args.api.format, &image, draw)
}

/// Has a profile name the image before.
pub(super) async fn roll_back(
    args: &ImageRollbackArgs,
    terminal: &mut Terminal,
) -> Result<(), Failure> {
    let body = ImageRollback {
        site: args.site.clone(),
        to: args.to.clone(),
        actor: args.who.actor.clone(),
        reason: args.reason.clone(),
    };
    let done = ApiClient::from_args(&args.api)?.roll_back_image(&args.profile, &body).await?;
    for node in &done.parked {
        terminal.message(&format!(
            "{node} is parked with the former image: run `gpuaas run retry {node} \
             --latest-profile --reason WHY` to redeploy it"
        ));
    }
    output::print(terminal, args.api.format, &done, draw_rollback)
}

/// Deletes an image that nothing names.
pub(super) async fn delete(args: &ImageDeleteArgs, terminal: &mut Terminal) -> Result<(), Failure> {
    let (client, name) = (ApiClient::from_args(&args.api)?, bare(&args.image));
    if args.planned.dry_run || !args.planned.yes {
        let image = client.image(&name, &args.site).await?;
        if args.planned.dry_run {
            return output::print(terminal, args.api.format, &image, draw);
        }
        terminal.message(&draw(&image, terminal.style()));
        confirm(&name, "deletion", terminal)?;
    }
    let body = ImageDeletion {
        site: args.site.clone(),
        actor: args.planned.who.actor.clone(),
        reason: args.planned.reason.clone(),
    };
    let image = client.delete_image(&name, &body).await?;
    terminal.message(&format!("custom/{name} is deleted"));
    output::print(terminal, args.api.format, &image, draw)
}

/// The name as the address of the API has it.
fn bare(name: &str) -> String {
    name.strip_prefix("custom/").unwrap_or(name).to_owned()
}

/// Findings, each once.
fn findings(images: &[ImageView]) -> Vec<String> {
    let mut all: Vec<String> =
        images.iter().flat_map(|image| image.findings.iter().cloned()).collect();
    all.sort_unstable();
    all.dedup();
    all
}

fn table(list: &List<ImageView>, style: Style) -> String {
    let row = |one: &ImageView| {
        vec![
            format!("custom/{}", one.name),
            one.site.clone(),
            one.state.to_string(),
            one.sha256.chars().take(12).collect(),
            or_dash(one.expires_at.map(|at| style.moment(at)).as_deref()),
            one.changed_by.clone(),
        ]
    };
    let header = ["IMAGE", "SITE", "STATE", "SHA256", "EXPIRES", "BY"];
    output::table_dropping(style, &header, &["SHA256", "BY"], list.items.iter().map(row))
}

fn draw(one: &ImageView, style: Style) -> String {
    let none = || "-".to_owned();
    let mut text = output::fields(&[
        ("image", format!("custom/{}", one.name)),
        ("site", one.site.clone()),
        ("family", one.family.clone()),
        ("state", one.state.to_string()),
        ("sha256", one.sha256.clone()),
        ("size", format!("{} bytes", one.size_bytes)),
        ("maas id", one.resource_id.map_or_else(none, |id| id.to_string())),
        ("built on", or_dash(Some(&one.parents.join(", ")))),
        ("canary nodes", one.canary_nodes.map_or_else(none, |count| count.to_string())),
        ("expires", one.expires_at.map_or_else(none, |at| style.exact_moment(at))),
        ("lint", one.lint.as_ref().map_or_else(|| "no verdict".to_owned(), lint_text)),
        ("findings", or_dash(Some(&one.findings.join("; ")))),
    ]);
    for event in &one.history {
        let at = style.exact_moment(event.at);
        let from = event.from.map_or_else(String::new, |from| format!("{from} -> "));
        let why =
            if event.reason.is_empty() { String::new() } else { format!(": {}", event.reason) };
        text.push_str(&format!("{at}  {from}{} by {}{why}\n", event.to, event.actor));
    }
    text
}

fn lint_text(verdict: &ImageVerdict) -> String {
    let ImageVerdict { errors, warnings, codes, .. } = verdict;
    let named = if codes.is_empty() { String::new() } else { format!(": {}", codes.join(", ")) };
    format!("{errors} errors, {warnings} warnings{named}")
}

fn draw_rollback(done: &ImageRollbackView, _: Style) -> String {
    let pin = |pin: &ImagePin| {
        if pin.sha256.is_empty() {
            pin.image.clone()
        } else {
            format!("{}@sha256:{}", pin.image, pin.sha256)
        }
    };
    output::fields(&[
        ("profile", done.profile.clone()),
        ("revision", done.revision.to_string()),
        ("before", pin(&done.from)),
        ("now", pin(&done.to)),
    ])
}
