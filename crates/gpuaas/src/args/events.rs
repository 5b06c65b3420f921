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
    /// What to do; nothing: follow.
    #[command(subcommand)]
    pub command: Option<EventsCommand>,
    /// What to follow.
    #[command(flatten)]
    pub follow: EventFollowArgs,
}

/// What there is to do with events.
#[derive(Debug, Clone, Subcommand)]
pub enum EventsCommand {
    /// Print what happens to nodes as it happens, until stopped; a stream that breaks goes on where
    /// it was.
    Follow(EventFollowArgs),
    /// List where events are delivered, and how far that is.
    Sinks(ListArgs),
    /// List events that a sink did not take.
    DeadLetters(DeadLetterArgs),
    /// Have dead letters delivered again.
    Replay(ReplayArgs),
}

/// `gpuaas events follow`.
#[derive(Debug, Clone, Args)]
pub struct EventFollowArgs {
    /// Only of nodes of this site.
    #[arg(long)]
    pub site: Option<String>,
    /// Only of this node: hostname, node id, MAAS system id or MAC.
    #[arg(long, value_name = "HOST")]
    pub node: Option<String>,
    /// After the event with this id, as `-o json` shows it; 0-0: from the beginning [default: from
    /// now on].
    #[arg(long, value_name = "ID")]
    pub after: Option<EventCursor>,
    /// End after so many events.
    #[arg(long, value_name = "N")]
    pub count: Option<u64>,
    /// Where to ask and how to print; JSON is one line an event.
    #[command(flatten)]
    pub api: ApiArgs,
}

/// `gpuaas events dead-letters`.
#[derive(Debug, Clone, Args)]
pub struct DeadLetterArgs {
    /// Only of this sink.
    #[arg(long, value_name = "NAME")]
    pub sink: Option<String>,
    /// Only what this lets pass, such as `code=refused failed>2026-11-01`: docs/reference/filters.md.
    #[arg(long, value_name = "FILTER", value_parser = filter_of(FilterList::DeadLetters))]
    pub filter: Option<ListFilter>,
    /// Look again whenever something happens, and every ten seconds, until interrupted.
    #[arg(long)]
    pub watch: bool,
    /// Where to ask and how to print.
    #[command(flatten)]
    pub api: ApiArgs,
}

/// `gpuaas events replay`.
#[derive(Debug, Clone, Args)]
pub struct ReplayArgs {
    /// Name of the sink.
    pub sink: String,
    /// Only this letter [default: all of the sink].
    #[arg(long, value_name = "NUMBER")]
    pub letter: Option<i64>,
    /// Why; kept in the audit.
    #[arg(long, value_name = "TEXT")]
    pub reason: String,
    /// Where to ask and how to print.
    #[command(flatten)]
    pub api: ApiArgs,
}

/// `gpuaas webhook`.
#[derive(Debug, Clone, Subcommand)]
pub enum WebhookCommand {
    /// Have events posted to an address from now on, signed as Standard Webhooks says.
    Add(WebhookAddArgs),
    /// List where events are posted, and how far that is; never the secrets.
    List(ListArgs),
    /// Deliver events there no longer, and forget its dead letters.
    Remove(WebhookRemoveArgs),
}

/// `gpuaas webhook add`.
#[derive(Debug, Clone, Args)]
pub struct WebhookAddArgs {
    /// Name of the sink.
    pub name: String,
    /// Where to: https, or http on loopback.
    #[arg(long, value_name = "URL")]
    pub url: String,
    /// Only events of nodes of this site.
    #[arg(long)]
    pub site: Option<String>,
    /// File that gets the secret that requests are signed with, for its owner alone; it must not
    /// exist. `-` is stdout.
    #[arg(long, value_name = "FILE")]
    pub to: PathBuf,
    /// Why; kept in the audit.
    #[arg(long, value_name = "TEXT")]
    pub reason: String,
    /// Where to ask and how to print.
    #[command(flatten)]
    pub api: ApiArgs,
}

/// `gpuaas webhook remove`.
#[derive(Debug, Clone, Args)]
pub struct WebhookRemoveArgs {
    /// Name of the sink; `nats` is the one of `gpuaas serve --nats`.
    pub name: String,
    /// Why; kept in the audit.
    #[arg(long, value_name = "TEXT")]
    pub reason: String,
    /// Where to ask and how to print.
    #[command(flatten)]
    pub api: ApiArgs,
}
