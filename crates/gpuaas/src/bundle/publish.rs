//! `gpuaas bundle publish`, `approve`, `trust` and their lists: bundles and the control plane.

use std::path::Path;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use gpuaas_bundle::{Archive, Digest, Envelope};
use gpuaas_client::ApiClient;
use gpuaas_client::failure::Failure;
use gpuaas_client::output::{self, or_dash, table, table_dropping};
use gpuaas_client::terminal::{Style, Terminal};
use gpuaas_types::bundle::{BundleApprove, BundleKeyView, BundlePublish, BundleView};
use gpuaas_types::codes::CommandCode;

use super::oci::{Login, OciReference, PulledBundle, Registry};
use super::signed_file::{
    archive_failure, open, read_key, sign, signature_failure, signature_of, signer, unreadable,
};
use crate::args::{
    BundleApproveArgs, BundlePublishArgs, BundlePullArgs, BundleTrustArgs, ListArgs,
};

pub(super) async fn publish(
    args: &BundlePublishArgs,
    terminal: &mut Terminal,
) -> Result<(), Failure> {
    let (archive, bytes) = open(&args.bundle)?;
    let beside = signature_of(&args.bundle);
    let envelope = match &args.key {
        Some(path) => {
            let digest = Digest::sha256(&bytes);
            Some(sign(&read_key(path)?, &archive.manifest, digest, args.expires)?)
        }
        None if args.bundle.is_file() && beside.exists() => {
            let text = std::fs::read(&beside).map_err(|error| unreadable(&beside, &error))?;
            Some(Envelope::parse(&text).map_err(|error| signature_failure(&error))?)
        }
        None => None,
    };
    if let Some(url) = &args.oci {
        let signature = envelope.map(|envelope| serde_json::to_vec(&envelope).unwrap_or_default());
        let registry = Registry::new(parse_reference(url)?, Login::from_args(&args.registry)?)?;
        let digest = registry.push(&archive.manifest, &bytes, signature.as_deref()).await?;
        terminal.message(&format!("{} is in {url}", archive.manifest.reference()));
        return terminal.data(&digest);
    }
    let body = BundlePublish {
        archive: BASE64.encode(&bytes),
        envelope: envelope.map(|envelope| serde_json::to_value(envelope).unwrap_or_default()),
        actor: args.who.actor.clone(),
    };
    let view = ApiClient::from_args(&args.api)?.publish_bundle(&body).await?;
    terminal.message(&format!("{} is published", view.bundle));
    output::print(terminal, args.api.format, &view, |view, style| rows([view], style))
}

fn parse_reference(url: &str) -> Result<OciReference, Failure> {
    url.parse().map_err(|why: String| Failure::usage(CommandCode::RegistryUrlInvalid, why))
}

/// Nothing is written before all of it is whole and, where a key is named, trusted.
pub(super) async fn pull(args: &BundlePullArgs, terminal: &mut Terminal) -> Result<(), Failure> {
    let registry = Registry::new(parse_reference(&args.oci)?, Login::from_args(&args.registry)?)?;
    let PulledBundle { archive: bytes, signature } = registry.pull().await?;
    let archive = Archive::read(&bytes).map_err(|error| archive_failure(&args.out, &error))?;
    if let Some(key) = &args.trust {
        let text = signature.as_deref().unwrap_or_default();
        signer(key, text, &archive.manifest, &bytes)?;
    }
    let manifest = &archive.manifest;
    let file = args.out.join(format!("{}-{}.tar", manifest.name, manifest.version));
    let beside = signature_of(&file);
    let write = |path: &Path, bytes: &[u8]| {
        std::fs::write(path, bytes).map_err(|error| unreadable(path, &error))
    };
    std::fs::create_dir_all(&args.out).map_err(|error| unreadable(&args.out, &error))?;
    write(&file, &bytes)?;
    if let Some(signature) = &signature {
        write(&beside, signature)?;
    }
    terminal.message(&format!("{} is in {}", manifest.reference(), file.display()));
    terminal.data(&Digest::sha256(&bytes).to_string())
}

pub(super) async fn list(args: &ListArgs, terminal: &mut Terminal) -> Result<(), Failure> {
    let list = ApiClient::from_args(&args.api)?.bundles().await?;
    output::print(terminal, args.api.format, &list, |list, style| rows(&list.items, style))
}

pub(super) async fn approve(
    args: &BundleApproveArgs,
    terminal: &mut Terminal,
) -> Result<(), Failure> {
    let body = BundleApprove {
        site: args.site.clone(),
        actor: args.who.actor.clone(),
        reason: args.reason.clone(),
    };
    let order = if args.withdraw { "withdraw" } else { "approve" };
    let client = ApiClient::from_args(&args.api)?;
    let list = client.order_bundle(&args.bundle, order, &body).await?;
    output::print(terminal, args.api.format, &list, |list, style| rows(&list.items, style))
}

pub(super) async fn trust(args: BundleTrustArgs, terminal: &mut Terminal) -> Result<(), Failure> {
    let body = BundleKeyView { name: args.name, key: args.key, until: args.until };
    let key = ApiClient::from_args(&args.api)?.trust_key(&body).await?;
    output::print(terminal, args.api.format, &key, |key, style| key_rows([key], style))
}

pub(super) async fn keys(args: &ListArgs, terminal: &mut Terminal) -> Result<(), Failure> {
    let list = ApiClient::from_args(&args.api)?.bundle_keys().await?;
    output::print(terminal, args.api.format, &list, |list, style| key_rows(&list.items, style))
}

fn rows<'a>(bundles: impl IntoIterator<Item = &'a BundleView>, style: Style) -> String {
    let row = |one: &BundleView| {
        let approved =
            if one.built_in { "everywhere".to_owned() } else { one.approved_for.join(", ") };
        vec![
            one.bundle.clone(),
            one.kind.clone(),
            one.digest.chars().take(16).collect(),
            one.signed_by.clone().unwrap_or_else(|| "no trusted key".to_owned()),
            or_dash(Some(&approved)),
        ]
    };
    let head = ["BUNDLE", "KIND", "DIGEST", "SIGNED BY", "APPROVED FOR"];
    table_dropping(style, &head, &["DIGEST", "KIND"], bundles.into_iter().map(row))
}

fn key_rows<'a>(keys: impl IntoIterator<Item = &'a BundleKeyView>, style: Style) -> String {
    let row = |key: &BundleKeyView| {
        let until = key.until.map(|until| until.to_string());
        vec![key.name.clone(), key.key.clone(), or_dash(until.as_deref())]
    };
    table(style, &["NAME", "KEY", "UNTIL"], keys.into_iter().map(row))
}
