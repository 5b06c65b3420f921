//! `gpuaas run list`, `gpuaas run show` and `gpuaas run wait`.

use gpuaas_client::ApiClient;
use gpuaas_client::failure::Failure;
use gpuaas_client::output;
use gpuaas_client::terminal::{Style, Terminal};
use gpuaas_types::api::{List, RunView};
use gpuaas_types::change::RunListItem;
use gpuaas_types::filter::ListFilter;

use crate::args::{RunListArgs, RunWaitArgs, WatchedShowArgs};
use crate::audit::{query_of, say_next};
use crate::follow;
use crate::watch::Watch;

/// Lists runs, the newest first.
///
/// # Errors
/// What the control plane refused.
pub(crate) async fn list(args: &RunListArgs, terminal: &mut Terminal) -> Result<(), Failure> {
    let query = [
        ("site", args.site.clone()),
        ("node", args.node.clone()),
        ("status", args.status.map(|status| status.to_string())),
        ("open", args.open.then(|| "true".to_owned())),
        ("filter", args.filter.as_ref().map(ListFilter::compact)),
        ("after", args.after.clone()),
        ("limit", Some(args.limit.to_string())),
    ];
    let query = query_of(query);
    let client = ApiClient::from_args(&args.api)?;
    if args.watch {
        let events = vec![("site", args.site.clone()), ("node", args.node.clone())];
        let watch = Watch { client: &client, events, format: args.api.format, again: true };
        return watch.run(terminal, async || client.runs(&query).await, table, |_| false).await;
    }
    let runs = client.runs(&query).await?;
    output::print(terminal, args.api.format, &runs, table)?;
    say_next(terminal, "runs", runs.next.as_deref());
    Ok(())
}

fn table(list: &List<RunListItem>, style: Style) -> String {
    let rows = list.items.iter().map(|run| {
        vec![
            run.id.to_string(),
            run.hostname.clone(),
            run.kind.to_string(),
            run.step.to_string(),
            run.status.to_string(),
            style.moment(run.created_at),
            output::or_dash(run.waiting_for.as_deref()),
        ]
    });
    let header = ["RUN", "NODE", "KIND", "STEP", "STATUS", "BEGUN", "WAITING FOR"];
    output::table_dropping(style, &header, &["BEGUN", "KIND", "STEP"], rows)
}

/// Shows a run; where it is watched, whenever something happens to its node, until it is over.
///
/// # Errors
/// What the control plane refused.
pub(crate) async fn show(args: &WatchedShowArgs, terminal: &mut Terminal) -> Result<(), Failure> {
    let WatchedShowArgs { show, watch: again } = args;
    let client = ApiClient::from_args(&show.api)?;
    let run = client.run(&show.name).await?;
    let events = vec![("node", Some(run.node_id.to_string()))];
    let watch = Watch { client: &client, events, format: show.api.format, again: *again };
    let id = run.id.to_string();
    let is_over = |run: &RunView| !run.status.is_open();
    watch.run(terminal, async || client.run(&id).await, output::run, is_over).await
}

/// Waits until a run is over or parked, and prints it.
///
/// # Errors
/// What the control plane refused; a run that stopped short; time that ran out.
pub(crate) async fn wait(args: &RunWaitArgs, terminal: &mut Terminal) -> Result<(), Failure> {
    let client = ApiClient::from_args(&args.api)?;
    let run = client.run(&args.run).await?;
    let nodes = [(run.node_id, run.hostname.clone())];
    let followed = follow::until_settled(&client, &nodes, args.timeout, terminal).await?;
    let run = client.run(&run.id.to_string()).await?;
    output::print(terminal, args.api.format, &run, output::run)?;
    followed.verdict().map_or(Ok(()), Err)
}
