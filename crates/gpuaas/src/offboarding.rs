//! `gpuaas node decommission|reimage|soft-reset|storage-cleanup|detach|remove`: first the plan, then
//! the question, then the work.

use std::fmt::Write as _;

use gpuaas_client::ApiClient;
use gpuaas_client::failure::Failure;
use gpuaas_client::output;
use gpuaas_client::terminal::{Style, Terminal};
use gpuaas_types::RunKind;
use gpuaas_types::api::{List, PlannedProfile, RunPlan, RunRequest};

use crate::args::OffboardArgs;
use crate::confirm::confirm;
use crate::follow::{self, Followed};
use crate::plan_lines::{write_losses, write_steps};

/// One of the commands above.
///
/// # Errors
/// What the control plane refused; `not_confirmed` when nobody said yes; a run that stopped short.
pub async fn run(
    kind: RunKind,
    args: &OffboardArgs,
    profile: Option<&str>,
    terminal: &mut Terminal,
) -> Result<(), Failure> {
    let client = ApiClient::from_args(&args.api)?;
    let mut asked = RunRequest {
        kind,
        reason: args.reason.clone(),
        actor: args.who.actor.clone(),
        dry_run: true,
        profile: profile.map(str::to_owned),
    };
    let planned = client.begin(&args.node, &asked).await?;
    if args.dry_run {
        return output::print(terminal, args.api.format, &planned, draw);
    }
    terminal.message(&draw(&planned, terminal.style()));
    if !args.yes {
        confirm(&planned.hostname, planned.kind.as_str(), terminal)?;
    }
    asked.dry_run = false;
    // By id: a name may be another node's by now.
    let begun = client.begin(&planned.node_id.to_string(), &asked).await?;
    let (id, name) = (begun.node_id, begun.hostname);
    let run = begun.run_id.map_or_else(String::new, |run| run.to_string());
    terminal.message(&format!("{name:<12} accepted, run {run}"));
    let followed = if args.wait {
        follow::until_settled(&client, &[(id, name)], args.timeout, terminal).await?
    } else {
        let nodes = vec![client.node(&id.to_string()).await?];
        Followed { nodes, ended_early: None }
    };
    let list = List::whole(followed.nodes.clone());
    output::print(terminal, args.api.format, &list, output::nodes)?;
    let stopped = if args.wait { followed.verdict() } else { None };
    stopped.map_or(Ok(()), Err)
}

/// The plan for a person.
#[must_use]
pub fn draw(plan: &RunPlan, _: Style) -> String {
    let mut text = String::new();
    let RunPlan { hostname, site, kind, state, ends, maas, .. } = plan;
    // Writing to a String cannot fail.
    writeln!(text, "{kind} of {hostname} at site {site}: {state}, then {ends}").ok();
    let machine = maas.system_id.as_deref().unwrap_or("none");
    match (&maas.status_name, maas.observed_seconds_ago) {
        (Some(status), Some(age)) => {
            writeln!(text, "machine   {machine}, MAAS said {status} {age:.0} s ago").ok();
        }
        _ => {
            writeln!(text, "machine   {machine}").ok();
        }
    }
    if let Some(PlannedProfile { deployed, then }) = &plan.profile {
        let now = deployed.as_ref().map_or_else(|| "none".to_owned(), ToString::to_string);
        writeln!(text, "profile   {now}, then {then}").ok();
    }
    write_losses(&mut text, &plan.destroys);
    write_steps(&mut text, &plan.steps);
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use gpuaas_testkit::views;
    use gpuaas_types::NodeState;
    use gpuaas_types::api::{PlannedStep, ProfileInUse};

    #[test]
    fn a_plan_names_what_it_destroys() {
        let node = views::commissioning_node();
        let plan = RunPlan {
            node_id: node.id,
            hostname: node.hostname,
            site: node.site,
            kind: RunKind::Reimage,
            state: NodeState::Active,
            ends: NodeState::Active,
            maas: node.maas,
            destroys: vec!["the system".to_owned(), "disk sda".to_owned()],
            profile: Some(PlannedProfile {
                deployed: Some(ProfileInUse { name: "h200-ib".to_owned(), revision: 3 }),
                then: ProfileInUse { name: "h200-slices".to_owned(), revision: 1 },
            }),
            steps: vec![
                PlannedStep { step: gpuaas_types::Step::Drain, maas_calls: Vec::new() },
                PlannedStep {
                    step: gpuaas_types::Step::Release,
                    maas_calls: vec![gpuaas_types::EffectKind::Release],
                },
            ],
            run_id: None,
        };
        insta::assert_snapshot!(draw(&plan, Style::default()));
    }
}
