//! `gpuaas node list` and `gpuaas node show`.

use gpuaas_client::ApiClient;
use gpuaas_client::failure::Failure;
use gpuaas_client::output;
use gpuaas_client::terminal::Terminal;
use gpuaas_types::NodeState;
use gpuaas_types::api::NodeView;
use gpuaas_types::filter::ListFilter;

use crate::args::{NodeListArgs, WatchedShowArgs};
use crate::watch::Watch;

/// Lists nodes, once or whenever something happens.
///
/// # Errors
/// What the control plane refused.
pub(crate) async fn list(args: NodeListArgs, terminal: &mut Terminal) -> Result<(), Failure> {
    let NodeListArgs { site, state, all, stuck, filter, watch: again, api } = args;
    let client = ApiClient::from_args(&api)?;
    let events = vec![("site", site.clone())];
    let watch = Watch { client: &client, events, format: api.format, again };
    let text = filter.as_ref().map(ListFilter::compact);
    let (site, text) = (site.as_deref(), text.as_deref());
    if stuck {
        let ask = async || client.stuck(site, text).await;
        return watch.run(terminal, ask, output::stuck, |_| false).await;
    }
    let query = [("site", site), ("state", state.map(NodeState::as_str)), ("filter", text)];
    // Records that were put away are history, and history is asked for by name.
    let names_states =
        state.is_some() || filter.as_ref().is_some_and(|filter| filter.expression.names("state"));
    let is_listed = |node: &NodeView| all || names_states || node.state != NodeState::Deleted;
    let ask = async || {
        let mut nodes = client.nodes_with(&query).await?;
        nodes.items.retain(is_listed);
        Ok(nodes)
    };
    watch.run(terminal, ask, output::nodes, |_| false).await
}

/// Shows a node, once or whenever something happens to it.
///
/// # Errors
/// What the control plane refused.
pub(crate) async fn show(args: WatchedShowArgs, terminal: &mut Terminal) -> Result<(), Failure> {
    let WatchedShowArgs { show, watch: again } = args;
    let client = ApiClient::from_args(&show.api)?;
    let events = vec![("node", Some(show.name.clone()))];
    let watch = Watch { client: &client, events, format: show.api.format, again };
    let ask = async || client.node(&show.name).await;
    watch.run(terminal, ask, output::node, |_| false).await
}
