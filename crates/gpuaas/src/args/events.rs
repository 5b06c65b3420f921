//! `gpuaas events` and `gpuaas webhook`.

use std::path::PathBuf;

use clap::{Args, Subcommand};
use gpuaas_client::arguments::ApiArgs;
use gpuaas_types::event::EventCursor;
use gpuaas_types::filter::{FilterList, ListFilter};

use super::shared::{ListArgs, filter_of};

/// `gpuaas events`.
#[derive(Debug, Clone, Args)]
#[command(args_conflicts_with_subcommands = true)]
pub struct EventsArgs {
    /// Action [default: follow].
    #[command(subcommand)]
    pub command: Option<EventsCommand>,
    /// Options of `follow`.
    #[command(flatten)]
    pub follow: EventFollowArgs,
}

/// Actions on events.
#[derive(Debug, Clone, Subcommand)]
pub enum EventsCommand {
    /// Print node events as they happen, until interrupted; resumes a broken stream without gaps.
    Follow(EventFollowArgs),
    /// List sinks and their delivery progress.
    Sinks(ListArgs),
    /// List events that could not be delivered to a sink (dead letters).
    DeadLetters(DeadLetterArgs),
    /// Deliver dead letters again.
    Replay(ReplayArgs),
}

/// `gpuaas events follow`.
#[derive(Debug, Clone, Args)]
pub struct EventFollowArgs {
    /// Only events of nodes of this site.
    #[arg(long)]
    pub site: Option<String>,
    /// Only events of this node: hostname, node ID, MAAS system ID or MAC.
    #[arg(long, value_name = "HOST")]
    pub node: Option<String>,
    /// Start after the event with this ID, as shown by `-o json`; 0-0 starts at the oldest event
    /// [default: new events only].
    #[arg(long, value_name = "ID")]
    pub after: Option<EventCursor>,
    /// Stop after this many events.
    #[arg(long, value_name = "N")]
    pub count: Option<u64>,
    /// Connection and output options; JSON output has one line per event.
    #[command(flatten)]
    pub api: ApiArgs,
}

/// `gpuaas events dead-letters`.
#[derive(Debug, Clone, Args)]
pub struct DeadLetterArgs {
    /// Only dead letters of this sink.
    #[arg(long, value_name = "NAME")]
    pub sink: Option<String>,
    /// Filter expression, such as `code=refused failed>2026-11-01`: docs/reference/filters.md.
    #[arg(long, value_name = "FILTER", value_parser = filter_of(FilterList::DeadLetters))]
    pub filter: Option<ListFilter>,
    /// Refresh on every event and every ten seconds, until interrupted.
    #[arg(long)]
    pub watch: bool,
    /// Connection and output options.
    #[command(flatten)]
    pub api: ApiArgs,
}

/// `gpuaas events replay`.
#[derive(Debug, Clone, Args)]
pub struct ReplayArgs {
    /// Name of the sink.
    pub sink: String,
    /// Only this dead letter [default: all of the sink].
    #[arg(long, value_name = "NUMBER")]
    pub letter: Option<i64>,
    /// Reason, recorded in the audit log.
    #[arg(long, value_name = "TEXT")]
    pub reason: String,
    /// Connection and output options.
    #[command(flatten)]
    pub api: ApiArgs,
}

/// `gpuaas webhook`.
#[derive(Debug, Clone, Subcommand)]
pub enum WebhookCommand {
    /// Add an address that receives new events, signed as in Standard Webhooks.
    Add(WebhookAddArgs),
    /// List webhooks and their delivery progress, without secrets.
    List(ListArgs),
    /// Stop deliveries to a webhook, and delete its dead letters.
    Remove(WebhookRemoveArgs),
}

/// `gpuaas webhook add`.
#[derive(Debug, Clone, Args)]
pub struct WebhookAddArgs {
    /// Name of the sink.
    pub name: String,
    /// Target address: https, or http on loopback.
    #[arg(long, value_name = "URL")]
    pub url: String,
    /// Only events of nodes of this site.
    #[arg(long)]
    pub site: Option<String>,
    /// File for the secret that signs requests, readable only by its owner; it must not exist yet.
    /// `-` is stdout.
    #[arg(long, value_name = "FILE")]
    pub to: PathBuf,
    /// Reason, recorded in the audit log.
    #[arg(long, value_name = "TEXT")]
    pub reason: String,
    /// Connection and output options.
    #[command(flatten)]
    pub api: ApiArgs,
}

/// `gpuaas webhook remove`.
#[derive(Debug, Clone, Args)]
pub struct WebhookRemoveArgs {
    /// Name of the sink; `nats` is the sink of `gpuaas serve --nats`.
    pub name: String,
    /// Reason, recorded in the audit log.
    #[arg(long, value_name = "TEXT")]
    pub reason: String,
    /// Connection and output options.
    #[command(flatten)]
    pub api: ApiArgs,
}
