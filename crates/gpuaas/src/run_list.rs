//! `gpuaas run list` and `gpuaas run wait`.

use gpuaas_client::ApiClient;
use gpuaas_client::failure::Failure;
use gpuaas_client::output;
use gpuaas_client::terminal::{Style, Terminal};
use gpuaas_types::api::List;
use gpuaas_types::change::RunListItem;

use crate::args::{RunListArgs, RunWaitArgs};
use crate::audit::{query_of, say_next};
use crate::follow;

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
        ("after", args.after.clone()),
        ("limit", Some(args.limit.to_string())),
    ];
    let runs = ApiClient::from_args(&args.api)?.runs(&query_of(query)).await?;
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
