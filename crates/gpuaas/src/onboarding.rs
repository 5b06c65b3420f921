//! `gpuaas node onboard` and `gpuaas run take-over`: what an onboarding would do, and the question
//! before a machine in use is taken.

use std::fmt::Write as _;
use std::path::Path;

use gpuaas_client::ApiClient;
use gpuaas_client::failure::Failure;
use gpuaas_client::output;
use gpuaas_client::terminal::{Style, Terminal};
use gpuaas_client::waterfall::{self, BucketRow};
use gpuaas_types::api::{List, NodeView};
use gpuaas_types::batch::BatchMachine;
use gpuaas_types::codes::{CommandCode, ParkCode};
use gpuaas_types::plan::{OnboardPlan, PlannedMachine, TakeOverPlan, TakeOverRequest};
use gpuaas_types::spec::{OnboardRequest, TakeOver};

use crate::args::{OnboardArgs, TakeOverArgs};
use crate::confirm::confirm;
use crate::follow::{self, Followed};
use crate::input_file::read_secret;
use crate::manifest;
use crate::plan_lines::{write_losses, write_steps};

/// Nodes up to which each waterfall is drawn.
const WATERFALLS: usize = 8;

/// Every host is asked for, also after one that was refused; then what was accepted is followed.
///
/// # Errors
/// What the control plane or this machine refused; `not_confirmed` where a machine in use was to be
/// taken and nobody said yes; nodes that did not become active.
pub(crate) async fn run(args: &OnboardArgs, terminal: &mut Terminal) -> Result<(), Failure> {
    let mut requests = onboard_requests(args)?;
    let client = ApiClient::from_args(&args.api)?;
    if args.dry_run || args.take_over {
        let mut plans = Vec::new();
        for request in &mut requests {
            let plan = client.plan_onboarding(request).await?;
            if args.take_over && !args.dry_run {
                approve(args, &plan, request, terminal)?;
            }
            plans.push(plan);
        }
        if args.dry_run {
            let plans = List::whole(plans);
            return output::print(terminal, args.api.format, &plans, draw_plans);
        }
    }
    let mut accepted = Vec::new();
    let mut refused = None;
    for request in &requests {
        match client.onboard(request).await {
            Ok(answer) => {
                terminal
                    .message(&format!("{:<12} accepted, run {}", request.hostname, answer.run_id));
                accepted.push((answer.node_id, request.hostname.clone()));
            }
            Err(failure) if requests.len() == 1 => return Err(failure),
            Err(failure) => {
                terminal.message(&format!("{:<12} {failure}", request.hostname));
                refused.get_or_insert(failure);
            }
        }
    }
    let followed = if args.wait {
        follow::until_settled(&client, &accepted, args.timeout, terminal).await?
    } else {
        let mut nodes = Vec::new();
        for (id, _) in &accepted {
            nodes.push(client.node(&id.to_string()).await?);
        }
        Followed { nodes, ended_early: None }
    };
    let nodes = &followed.nodes;
    if args.wait {
        print_bucket_times(&client, nodes, terminal).await?;
    }
    match (nodes.as_slice(), requests.len()) {
        ([node], 1) => output::print(terminal, args.api.format, node, |node, style| {
            output::nodes(&List::whole(vec![node.clone()]), style)
        })?,
        _ => {
            let list = List::whole(nodes.clone());
            output::print(terminal, args.api.format, &list, output::nodes)?;
        }
    }
    let stopped = if args.wait { followed.verdict() } else { None };
    refused.or(stopped).map_or(Ok(()), Err)
}

/// A waterfall per node as long as they fit on a screen or two, and the bucket table of several.
async fn print_bucket_times(
    client: &ApiClient,
    nodes: &[NodeView],
    terminal: &mut Terminal,
) -> Result<(), Failure> {
    let mut rows = Vec::new();
    for node in nodes {
        let Some(run) = &node.run else { continue };
        let run = client.run(&run.id.to_string()).await?;
        if nodes.len() <= WATERFALLS {
            terminal.message("");
            terminal.message(&waterfall::draw(&run, terminal.style()));
        }
        rows.push(BucketRow::of_run(&run, node.state));
    }
    if rows.len() > 1 {
        terminal.message("");
        terminal.message(&waterfall::bucket_table(&rows, terminal.style()));
    }
    Ok(())
}

fn onboard_requests(args: &OnboardArgs) -> Result<Vec<OnboardRequest>, Failure> {
    let names_one = args.bmc_address.is_some()
        || !args.macs.is_empty()
        || args.system_id.is_some()
        || args.serial.is_some();
    if args.hosts.len() > 1 && names_one {
        return Err(Failure::usage(
            CommandCode::OneHostWanted,
            format!("{} hosts are given", args.hosts.len()),
        )
        .hint("onboard hosts one at a time if you use --bmc-address or --mac"));
    }
    let bmc_password = args.bmc_pass_file.as_deref().map(read_secret).transpose()?;
    if let Some(path) = &args.machines {
        let listed = manifest::machines(path)?;
        return args.hosts.iter().map(|host| listed_request(args, path, &listed, host)).collect();
    }
    let request = |hostname: &String| OnboardRequest {
        hostname: short_name(hostname),
        site: args.site.clone(),
        profile: args.profile.clone(),
        bmc_address: args.bmc_address.clone(),
        bmc_user: args.bmc_user.clone(),
        bmc_password: bmc_password.clone(),
        power_type: args.power_type.clone(),
        mac_addresses: args.macs.clone(),
        architecture: args.architecture.clone(),
        system_id: args.system_id.clone(),
        serial: args.serial.clone(),
        take_over: None,
    };
    Ok(args.hosts.iter().map(request).collect())
}

/// The name without its domain, as MAAS and GPUaaS have it.
fn short_name(hostname: &str) -> String {
    let first = hostname.split('.').next().unwrap_or(hostname);
    // Of an address the first part names nothing; the control plane refuses it whole.
    let is_number = first.bytes().all(|byte| byte.is_ascii_digit());
    if is_number { hostname.to_owned() } else { first.to_owned() }
}

/// The request of a host as the machine of its name in a file has it.
fn listed_request(
    args: &OnboardArgs,
    path: &Path,
    listed: &[BatchMachine],
    hostname: &str,
) -> Result<OnboardRequest, Failure> {
    let name = short_name(hostname);
    let machine = listed.iter().find(|machine| machine.hostname.eq_ignore_ascii_case(&name));
    let machine = machine.cloned().ok_or_else(|| {
        let names: Vec<&str> = listed.iter().map(|machine| machine.hostname.as_str()).collect();
        Failure::usage(
            CommandCode::MachineNotListed,
            format!("{} lists no machine {hostname}", path.display()),
        )
        .hint(format!("use one of {}, or pass --mac and --bmc-address", names.join(", ")))
    })?;
    let request = machine.onboard_request(&args.site, &args.profile);
    Ok(OnboardRequest {
        hostname: name,
        power_type: args.power_type.clone().or(request.power_type),
        architecture: args.architecture.clone().or(request.architecture),
        system_id: args.system_id.clone().or(request.system_id),
        serial: args.serial.clone().or(request.serial),
        ..request
    })
}

/// Shows what is taken, asks, and writes the word into the request: for the machine and the owner
/// that were shown, and for no others.
fn approve(
    args: &OnboardArgs,
    plan: &OnboardPlan,
    request: &mut OnboardRequest,
    terminal: &mut Terminal,
) -> Result<(), Failure> {
    let reason = args.reason.as_deref().unwrap_or_default();
    let Some(word) = take_over_word(plan, &args.who.actor, reason) else {
        terminal.message(&format!("{}: no machine in use needs to be taken over", plan.hostname));
        return Ok(());
    };
    terminal.message(&draw_plan(plan));
    if !args.yes {
        confirm(&plan.hostname, "take-over", terminal)?;
    }
    request.take_over = Some(word);
    Ok(())
}

/// The word for the machine and the owner that a plan shows; none: no machine in use is to be taken.
pub(crate) fn take_over_word(plan: &OnboardPlan, actor: &str, reason: &str) -> Option<TakeOver> {
    plan.park.as_ref().filter(|park| park.code == ParkCode::MachineInUse)?;
    let machine = plan.machine.as_ref()?;
    Some(TakeOver {
        system_id: machine.system_id.clone(),
        owner: machine.owner.clone(),
        actor: actor.to_owned(),
        reason: reason.to_owned(),
    })
}

/// `gpuaas run take-over`.
///
/// # Errors
/// What the control plane refused; `not_confirmed` when nobody said yes.
pub(crate) async fn take_over(args: &TakeOverArgs, terminal: &mut Terminal) -> Result<(), Failure> {
    let (said, client) = (&args.said, ApiClient::from_args(&args.said.api)?);
    let mut asked = TakeOverRequest {
        actor: said.who.actor.clone(),
        reason: said.reason.clone(),
        dry_run: true,
    };
    let plan = client.take_over(&said.id, &asked).await?;
    if args.dry_run {
        return output::print(terminal, said.api.format, &plan, draw_take_over);
    }
    terminal.message(&draw_take_over(&plan, terminal.style()));
    if !args.yes {
        confirm(&plan.hostname, "take-over", terminal)?;
    }
    asked.dry_run = false;
    client.take_over(&said.id, &asked).await?;
    let run = client.run(&said.id).await?;
    output::print(terminal, said.api.format, &run, output::run)
}

fn draw_take_over(plan: &TakeOverPlan, _: Style) -> String {
    let mut text = format!("takeover of the machine of {}\n", plan.hostname);
    draw_machine(&mut text, &plan.machine, &plan.destroys);
    text
}

/// Plans for a person.
pub(crate) fn draw_plans(plans: &List<OnboardPlan>, _: Style) -> String {
    plans.items.iter().map(draw_plan).collect::<Vec<_>>().join("\n")
}

fn draw_machine(text: &mut String, machine: &PlannedMachine, destroys: &[String]) {
    let PlannedMachine { system_id, hostname, status_name, owner } = machine;
    let owner = owner.as_deref().unwrap_or("nobody");
    // Writing to a String cannot fail.
    writeln!(text, "machine   {system_id} ({hostname}), MAAS says {status_name}, owner {owner}")
        .ok();
    write_losses(text, destroys);
}

/// A plan for a person.
fn draw_plan(plan: &OnboardPlan) -> String {
    let OnboardPlan { hostname, site, profile, .. } = plan;
    let mut text = format!("onboarding of {hostname} at site {site} with profile {profile}\n");
    match &plan.machine {
        Some(machine) => draw_machine(&mut text, machine, &plan.destroys),
        None => {
            let origin = plan.origin.as_deref().unwrap_or("no matching machine");
            writeln!(text, "machine   {origin}").ok();
        }
    }
    if let Some(park) = &plan.park {
        writeln!(text, "stops     {}: {}", park.code, park.text).ok();
    }
    write_steps(&mut text, &plan.steps);
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use gpuaas_types::api::PlannedStep;
    use gpuaas_types::{EffectKind, Step};

    #[test]
    fn a_plan_names_the_machine_its_owner_and_what_is_lost() {
        let machine = PlannedMachine {
            system_id: "abc123".to_owned(),
            hostname: "j22u11".to_owned(),
            status_name: "Deployed".to_owned(),
            owner: Some("bob".to_owned()),
        };
        let plan = OnboardPlan {
            hostname: "j22u11".to_owned(),
            site: "lab".to_owned(),
            profile: "h200".to_owned(),
            origin: Some("adopted".to_owned()),
            machine: Some(machine),
            destroys: vec!["what is on machine abc123".to_owned(), "disk sda".to_owned()],
            park: None,
            steps: vec![PlannedStep {
                step: Step::Commission,
                maas_calls: vec![EffectKind::Commission],
            }],
        };
        insta::assert_snapshot!(draw_plan(&plan));
        let none = OnboardPlan { machine: None, destroys: Vec::new(), origin: None, ..plan };
        assert!(draw_plan(&none).contains("no matching machine"));
    }
}
