//! Following runs until they end.
//!
//! Level-triggered: each look asks for the node as it is now, so a control plane that restarts,
//! or a look that is lost, changes nothing but how soon a line is printed.

use std::collections::HashMap;
use std::time::Duration;

use gpuaas_client::ApiClient;
use gpuaas_client::failure::{Exit, Failure};
use gpuaas_client::output;
use gpuaas_client::signals;
use gpuaas_client::terminal::Terminal;
use gpuaas_types::api::{NodeProblem, NodeView};
use gpuaas_types::codes::CommandCode;
use gpuaas_types::{NodeId, NodeState, RunStatus};
use indicatif::{MultiProgress, ProgressBar, ProgressStyle};
use tokio::time::{Interval, MissedTickBehavior, interval, timeout};

const LOOK: Duration = Duration::from_millis(500);
/// Looks in a row that may fail before following is given up: a restart takes less.
const PATIENCE: u32 = 60;
/// Nodes that an error names.
const NAMED: usize = 5;

/// Where a run stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Standing {
    Open,
    Done,
    Stopped,
}

fn standing(node: &NodeView) -> Standing {
    let status = node.run.as_ref().map(|run| run.status);
    match status {
        Some(RunStatus::Succeeded) if Some(node.state) == aim(node) => Standing::Done,
        Some(RunStatus::Running | RunStatus::Waiting) => Standing::Open,
        Some(
            RunStatus::Parked | RunStatus::Failed | RunStatus::Cancelled | RunStatus::Succeeded,
        )
        | None => Standing::Stopped,
    }
}

/// State that the node's run is to bring it to.
fn aim(node: &NodeView) -> Option<NodeState> {
    node.run.as_ref().map(|run| run.kind.row().ends_in)
}

/// What was seen of the nodes that were followed.
#[derive(Debug)]
pub struct Followed {
    /// Last views of those that were seen, in the order asked.
    pub nodes: Vec<NodeView>,
    /// Why the following ended before the runs did: [`Exit::TimedOut`] or [`Exit::Interrupted`].
    pub ended_early: Option<Failure>,
}

impl Followed {
    /// The failure of nodes whose run stopped short, of the following itself, or of nodes that have
    /// problems; none: every node is where its run was to bring it, and nothing is wrong with it.
    #[must_use]
    pub fn verdict(&self) -> Option<Failure> {
        self.ended_early.clone().or_else(|| verdict(&self.nodes))
    }
}

/// Follows `nodes` until each is where its run was to bring it, or stopped, with a line per
/// change; or until `seconds` are over or somebody interrupts, which leaves the runs alone.
///
/// # Errors
/// [`Exit::Unreachable`] when the control plane is away for long.
pub async fn until_settled(
    client: &ApiClient,
    nodes: &[(NodeId, String)],
    seconds: u64,
    terminal: &mut Terminal,
) -> Result<Followed, Failure> {
    let interrupted = signals::stop()?;
    until_settled_or(client, nodes, seconds, interrupted, terminal).await
}

async fn until_settled_or(
    client: &ApiClient,
    nodes: &[(NodeId, String)],
    seconds: u64,
    interrupted: impl Future<Output = ()>,
    terminal: &mut Terminal,
) -> Result<Followed, Failure> {
    let mut looks = interval(LOOK);
    looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut progress = Progress::new(terminal.interactive());
    let mut last = HashMap::new();
    let work = follow(client, nodes, &mut looks, &mut last, &mut progress, terminal);
    let outcome = tokio::select! {
        outcome = timeout(Duration::from_secs(seconds), work) => outcome.map_err(|_| Early::Late),
        () = interrupted => Err(Early::Interrupted),
    };
    progress.clear();
    let ended_early = match outcome {
        Ok(outcome) => outcome.map(|()| None)?,
        Err(early) => Some(still_open(nodes, &last, early, seconds)),
    };
    let nodes = nodes.iter().filter_map(|(id, _)| last.remove(id)).collect();
    Ok(Followed { nodes, ended_early })
}

/// Why the following ended before the runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Early {
    Late,
    Interrupted,
}

/// The failure of nodes whose run stopped short, else of those that have problems, if there are any.
fn verdict(nodes: &[NodeView]) -> Option<Failure> {
    let stopped: Vec<&NodeView> =
        nodes.iter().filter(|node| standing(node) != Standing::Done).collect();
    let Some(first) = stopped.first() else { return troubled(nodes) };
    let names = stopped.iter().map(|node| node.hostname.clone()).collect();
    let (code, detail) = match &first.park {
        Some(park) => (park.code.as_str(), park.text.as_str()),
        None => (CommandCode::RunEnded.as_str(), "the run ended earlier"),
    };
    let aim = aim(first).unwrap_or(NodeState::Active);
    let title = match nodes.len() {
        1 => format!("The node did not become {aim}"),
        all => format!("{} of {all} nodes did not become {aim}", stopped.len()),
    };
    let hint = format!("run `gpuaas explain {}` to see what to do next", first.hostname);
    Some(
        Failure::coded(Exit::Parked, code, &title, format!("{}: {detail}", few(names, ", ")))
            .hint(hint),
    )
}

/// The failure of nodes that are where they were to be, and have problems.
fn troubled(nodes: &[NodeView]) -> Option<Failure> {
    let troubled: Vec<(&NodeView, &NodeProblem)> = nodes
        .iter()
        .filter(|node| aim(node) == Some(NodeState::Active))
        .filter_map(|node| Some((node, node.problems.first()?)))
        .collect();
    let (node, problem) = troubled.first()?;
    let title = match nodes.len() {
        1 => "The node is active but has a problem".to_owned(),
        all => format!("All {all} nodes are active, {} with problems", troubled.len()),
    };
    let texts =
        troubled.iter().map(|(node, problem)| format!("{}: {}", node.hostname, problem.text));
    let detail = few(texts.collect(), "; ");
    let hint = format!("run `gpuaas explain {}` to see what to do next", node.hostname);
    Some(Failure::coded(Exit::Troubled, &problem.code, &title, detail).hint(hint))
}

/// The first of many texts, and how many more there are.
fn few(mut texts: Vec<String>, separator: &str) -> String {
    let more = texts.len().saturating_sub(NAMED);
    texts.truncate(NAMED);
    let text = texts.join(separator);
    if more == 0 { text } else { format!("{text}{separator}and {more} more") }
}

fn still_open(
    nodes: &[(NodeId, String)],
    last: &HashMap<NodeId, NodeView>,
    early: Early,
    seconds: u64,
) -> Failure {
    let open: Vec<&(NodeId, String)> = nodes
        .iter()
        .filter(|(id, _)| last.get(id).is_none_or(|node| standing(node) == Standing::Open))
        .collect();
    let first = open.first().map_or("RUN", |(_, name)| name.as_str());
    let hint = format!("the work continues; run `gpuaas run wait {first}` to keep waiting");
    let open: Vec<String> = open
        .iter()
        .map(|(id, name)| {
            let waits = last.get(id).and_then(output::attention).unwrap_or("the control plane");
            format!("{name} waits for {waits}")
        })
        .collect();
    let detail = few(open, "; ");
    match early {
        Early::Late => {
            let title = format!("Some runs did not end within {seconds} s");
            Failure::new(Exit::TimedOut, CommandCode::WaitTimedOut, detail).title(&title)
        }
        Early::Interrupted => Failure::new(Exit::Interrupted, CommandCode::WaitInterrupted, detail),
    }
    .hint(hint)
}

async fn follow(
    client: &ApiClient,
    nodes: &[(NodeId, String)],
    looks: &mut Interval,
    last: &mut HashMap<NodeId, NodeView>,
    progress: &mut Progress,
    terminal: &mut Terminal,
) -> Result<(), Failure> {
    let mut missed = 0;
    loop {
        looks.tick().await;
        for (id, name) in nodes {
            if last.get(id).is_some_and(|node| standing(node) != Standing::Open) {
                continue;
            }
            match client.node(&id.to_string()).await {
                Ok(node) => {
                    missed = 0;
                    progress.show(&node, last.get(id), terminal);
                    last.insert(*id, node);
                }
                Err(failure) if failure.exit == Exit::Unreachable && missed < PATIENCE => {
                    if missed == 0 {
                        terminal.message(&format!(
                            "{name}  the control plane does not respond; retrying"
                        ));
                    }
                    missed += 1;
                    break;
                }
                Err(failure) => return Err(failure),
            }
        }
        let settled = |(id, _): &(NodeId, String)| {
            last.get(id).is_some_and(|n| standing(n) != Standing::Open)
        };
        if nodes.iter().all(settled) {
            return Ok(());
        }
    }
}

/// One line per change; a live line per node where somebody watches.
struct Progress {
    bars: Option<(MultiProgress, HashMap<NodeId, ProgressBar>)>,
}

impl Progress {
    fn new(interactive: bool) -> Self {
        Self { bars: interactive.then(|| (MultiProgress::new(), HashMap::new())) }
    }

    fn show(&mut self, node: &NodeView, before: Option<&NodeView>, terminal: &mut Terminal) {
        let line = line(node);
        let Some((multi, bars)) = &mut self.bars else {
            if before.map(self::line).as_ref() != Some(&line) {
                terminal.message(&line);
            }
            return;
        };
        let bar = bars.entry(node.id).or_insert_with(|| {
            let bar = multi.add(ProgressBar::new_spinner());
            if let Ok(style) = ProgressStyle::with_template("{spinner} {elapsed:>5} {wide_msg}") {
                bar.set_style(style);
            }
            bar.enable_steady_tick(Duration::from_millis(120));
            bar
        });
        bar.set_message(line.clone());
        if standing(node) != Standing::Open {
            bar.finish_with_message(line);
        }
    }

    fn clear(&mut self) {
        if let Some((multi, bars)) = self.bars.take() {
            bars.values().for_each(ProgressBar::finish);
            drop(multi);
        }
    }
}

fn line(node: &NodeView) -> String {
    let (step, status) =
        node.run.as_ref().map_or(("-", "-"), |run| (run.step.as_str(), run.status.as_str()));
    match standing(node) {
        Standing::Done => format!("{:<12} {}", node.hostname, node.state),
        _ => {
            let text = output::attention(node).unwrap_or_default();
            let line = format!("{:<12} {step:<17} {status:<9} {text}", node.hostname);
            line.trim_end().to_owned()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use axum::Router;
    use axum::routing::get;
    use gpuaas_testkit::views;
    use std::sync::Mutex;

    fn active() -> NodeView {
        let mut node = views::commissioning_node();
        node.state = NodeState::Active;
        node.wait = None;
        node.waiting_for = None;
        if let Some(run) = &mut node.run {
            run.status = RunStatus::Succeeded;
        }
        node
    }

    async fn replay(views: Vec<NodeView>) -> (ApiClient, (NodeId, String)) {
        let key = (views[0].id, views[0].hostname.clone());
        let views = std::sync::Arc::new(Mutex::new(views));
        let answer = move || async move {
            let mut views = views.lock().unwrap();
            let view = if views.len() > 1 { views.remove(0) } else { views[0].clone() };
            serde_json::to_string(&view).unwrap()
        };
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let router = Router::new().route("/api/v1/nodes/{id}", get(answer));
        tokio::spawn(async move { axum::serve(listener, router).await.unwrap() });
        (ApiClient::new(&url, "t").unwrap(), key)
    }

    #[tokio::test]
    async fn a_node_is_followed_to_active() {
        let (client, key) =
            replay(vec![views::commissioning_node(), views::commissioning_node(), active()]).await;
        let (mut terminal, captured) = Terminal::captured();
        let followed = until_settled(&client, &[key], 60, &mut terminal).await.unwrap();
        assert_eq!(followed.verdict(), None);
        assert_eq!(
            captured.stderr(),
            "j22u11       commission        waiting   MAAS to finish commissioning\n\
             j22u11       active\n"
        );
    }

    #[tokio::test]
    async fn an_active_node_with_a_problem_has_an_exit_code_of_its_own() {
        let mut node = active();
        node.problems = views::problems();
        let (client, key) = replay(vec![node]).await;
        let (mut terminal, _) = Terminal::captured();
        let followed = until_settled(&client, &[key], 60, &mut terminal).await.unwrap();
        let failure = followed.verdict().unwrap();
        assert_eq!(failure.exit as u8, 7);
        insta::assert_snapshot!(failure.to_string(), @r"
        error agent_silent: The node is active but has a problem: j22u11: GPUaaS: the agent has been silent since 2026-11-20T11:00:00Z (11 min 40 s)
        hint: run `gpuaas explain j22u11` to see what to do next
        ");
        let mut retired = active();
        retired.problems = views::problems();
        retired.state = NodeState::Retired;
        if let Some(run) = &mut retired.run {
            run.kind = gpuaas_types::RunKind::Decommission;
        }
        assert_eq!(verdict(&[retired]), None, "it was to leave");
    }

    #[tokio::test]
    async fn a_parked_node_ends_the_wait() {
        let (client, key) = replay(vec![views::parked_node()]).await;
        let (mut terminal, _) = Terminal::captured();
        let followed = until_settled(&client, &[key], 60, &mut terminal).await.unwrap();
        insta::assert_snapshot!(followed.verdict().unwrap().to_string());
    }

    #[tokio::test]
    async fn patience_ends() {
        let (client, key) = replay(vec![views::commissioning_node()]).await;
        let (mut terminal, _) = Terminal::captured();
        let followed = until_settled(&client, &[key], 1, &mut terminal).await.unwrap();
        let failure = followed.verdict().unwrap();
        assert_eq!(failure.exit, Exit::TimedOut);
        assert!(failure.problem.detail.contains("j22u11 waits for MAAS"), "{failure}");
        assert_eq!(followed.nodes[0].hostname, "j22u11", "it is printed as it was seen last");
    }

    #[tokio::test]
    async fn an_interrupted_wait_says_that_the_work_goes_on() {
        let (client, key) = replay(vec![views::commissioning_node()]).await;
        let (mut terminal, captured) = Terminal::captured();
        // Interrupted once the node was seen.
        let seen = async {
            while captured.stderr().is_empty() {
                tokio::task::yield_now().await;
            }
        };
        let followed = until_settled_or(&client, &[key], 60, seen, &mut terminal).await.unwrap();
        assert_eq!(followed.nodes.len(), 1);
        insta::assert_snapshot!(followed.verdict().unwrap().to_string(), @r"
        error wait_interrupted: The wait was interrupted: j22u11 waits for MAAS to finish commissioning
        hint: the work continues; run `gpuaas run wait j22u11` to keep waiting
        ");
        assert_eq!(followed.verdict().unwrap().exit as u8, 130);
    }
}
