//! `gpuaas audit` and `gpuaas node timeline`: what was done and what happened, a page at a time.

use gpuaas_client::ApiClient;
use gpuaas_client::failure::Failure;
use gpuaas_client::output;
use gpuaas_client::terminal::Terminal;

use crate::args::{AuditCommand, AuditListArgs, NodeTimelineArgs};
use crate::audit_chain;
use crate::watch::print_list;

/// `gpuaas audit`.
///
/// # Errors
/// What the control plane refused.
pub(crate) async fn run(command: AuditCommand, terminal: &mut Terminal) -> Result<(), Failure> {
    match command {
        AuditCommand::List(args) => list(args, terminal).await,
        AuditCommand::Verify(args) => audit_chain::verify(args, terminal).await,
        AuditCommand::Export(args) => audit_chain::export(args, terminal).await,
    }
}

async fn list(args: AuditListArgs, terminal: &mut Terminal) -> Result<(), Failure> {
    let AuditListArgs { site, node, actor, since, filter, watch, page, api } = args;
    let filter = [
        ("site", site),
        ("node", node),
        ("actor", actor),
        ("since", since.map(|moment| moment.to_string())),
        ("filter", filter.map(|filter| filter.compact())),
    ];
    let query = query_of(filter.into_iter().chain(page.query()));
    let client = ApiClient::from_args(&api)?;
    if watch {
        let ask = async || client.audit(&query).await;
        return print_list((&client, &api), true, terminal, ask, output::audit).await;
    }
    let entries = client.audit(&query).await?;
    output::print(terminal, api.format, &entries, output::audit)?;
    say_next(terminal, "entries", entries.next.as_deref());
    Ok(())
}

/// `gpuaas node timeline`.
///
/// # Errors
/// What the control plane refused.
pub(crate) async fn timeline(
    args: &NodeTimelineArgs,
    terminal: &mut Terminal,
) -> Result<(), Failure> {
    let client = ApiClient::from_args(&args.api)?;
    let lines = client.timeline(&args.node, &query_of(args.page.query())).await?;
    output::print(terminal, args.api.format, &lines, output::timeline_page)?;
    say_next(terminal, "lines", lines.next.as_deref());
    Ok(())
}

/// The parameters that have a value.
pub(crate) fn query_of(
    query: impl IntoIterator<Item = (&'static str, Option<String>)>,
) -> Vec<(&'static str, String)> {
    query.into_iter().filter_map(|(name, value)| Some((name, value?))).collect()
}

/// Says how to ask for the next page, where there is one.
pub(crate) fn say_next(terminal: &mut Terminal, what: &str, next: Option<&str>) {
    if let Some(next) = next {
        terminal.message(&format!("There are more {what}; use --after {next} to show them"));
    }
}
