//! `gpuaas experiment`: two images compared on nodes that are drawn at random.

use gpuaas_client::ApiClient;
use gpuaas_client::failure::Failure;
use gpuaas_client::output::{self, or_dash};
use gpuaas_client::terminal::{Style, Terminal};
use gpuaas_types::api::List;
use gpuaas_types::codes::CommandCode;
use gpuaas_types::experiment::{
    ExperimentImport, ExperimentStart, ExperimentStop, ExperimentView, ImportedArm,
};
use serde::Deserialize;

use crate::args::{
    ExperimentCommand, ExperimentImportArgs, ExperimentStartArgs, ExperimentStopArgs,
};
use crate::confirm::confirm;
use crate::input_file::read_file;

/// Runs the command.
///
/// # Errors
/// What the control plane refuses, or that it does not answer.
pub(crate) async fn run(
    command: ExperimentCommand,
    terminal: &mut Terminal,
) -> Result<(), Failure> {
    match command {
        ExperimentCommand::Start(args) => start(*args, terminal).await,
        ExperimentCommand::Next(args) => order(&args, "next", terminal).await,
        ExperimentCommand::Stop(args) => order(&args, "stop", terminal).await,
        ExperimentCommand::Show(args) => {
            let view = ApiClient::from_args(&args.api)?.experiment(&args.name).await?;
            output::print(terminal, args.api.format, &view, draw)
        }
        ExperimentCommand::List(args) => {
            let list = ApiClient::from_args(&args.api)?.experiments(args.site.as_deref()).await?;
            output::print(terminal, args.api.format, &list, table)
        }
        ExperimentCommand::Import(args) => import(args, terminal).await,
    }
}

async fn start(args: ExperimentStartArgs, terminal: &mut Terminal) -> Result<(), Failure> {
    let client = ApiClient::from_args(&args.api)?;
    let mut body = ExperimentStart {
        name: args.name,
        site: args.site,
        profile: args.profile,
        images: args.images,
        nodes: args.nodes,
        primary: Some(args.primary),
        margin_seconds: Some(args.margin),
        seed: args.seed,
        paired: args.pairs,
        dry_run: true,
        actor: args.planned.who.actor,
        reason: args.planned.reason,
    };
    let plan = client.start_experiment(&body).await?;
    if args.planned.dry_run {
        return output::print(terminal, args.api.format, &plan, draw);
    }
    if !args.planned.yes {
        terminal.message(&draw(&plan, terminal.style()));
        confirm(&body.name, "experiment, which erases these nodes", terminal)?;
    }
    // What was shown is what is done.
    (body.seed, body.dry_run) = (Some(plan.seed), false);
    let view = client.start_experiment(&body).await?;
    output::print(terminal, args.api.format, &view, draw)
}

async fn order(
    args: &ExperimentStopArgs,
    order: &str,
    terminal: &mut Terminal,
) -> Result<(), Failure> {
    let body = ExperimentStop { actor: args.who.actor.clone(), reason: args.reason.clone() };
    let view = ApiClient::from_args(&args.api)?.order_experiment(&args.name, order, &body).await?;
    output::print(terminal, args.api.format, &view, draw)
}

/// A file of earlier times.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct EarlierTimes {
    arms: Vec<ImportedArm>,
}

async fn import(args: ExperimentImportArgs, terminal: &mut Terminal) -> Result<(), Failure> {
    let text = read_file(&args.file)?;
    let times: EarlierTimes = serde_json::from_str(&text).map_err(|error| {
        Failure::usage(CommandCode::FileUnreadable, format!("{}: {error}", args.file.display()))
            .hint("see --help of this command for the file format")
    })?;
    let body = ExperimentImport {
        name: args.name,
        site: args.site,
        arms: times.arms,
        primary: None,
        margin_seconds: None,
        actor: args.who.actor,
        reason: args.reason,
    };
    let view = ApiClient::from_args(&args.api)?.import_experiment(&body).await?;
    output::print(terminal, args.api.format, &view, draw)
}

fn table(list: &List<ExperimentView>, style: Style) -> String {
    let row = |one: &ExperimentView| {
        let verdict = one.measures.first().map(|primary| primary.verdict.to_string());
        let images: Vec<&str> = one.arms.iter().map(|arm| arm.image.as_str()).collect();
        vec![
            one.id.clone(),
            one.site.clone(),
            one.state.to_string(),
            images.join(" / "),
            one.planned_n.to_string(),
            or_dash(verdict.as_deref()),
        ]
    };
    let header = ["EXPERIMENT", "SITE", "STATE", "IMAGES", "N", "VERDICT"];
    output::table_dropping(style, &header, &["SITE", "N"], list.items.iter().map(row))
}

fn draw(one: &ExperimentView, style: Style) -> String {
    let mut text = output::fields(&[
        ("experiment", one.id.clone()),
        ("site", one.site.clone()),
        ("profile", one.profile.clone()),
        ("state", one.state.to_string()),
        ("primary", one.primary.to_string()),
        ("planned", one.planned_n.to_string()),
        ("pairs", if one.paired { "yes" } else { "no" }.to_owned()),
        ("seed", one.seed.to_string()),
        (
            "begun",
            format!("{} by {}: {}", style.moment(one.created_at), one.created_by, one.reason),
        ),
    ]);
    for (name, arm) in ["a", "b"].iter().zip(&one.arms) {
        let digest: String = arm.digest.chars().take(12).collect();
        text.push_str(&format!(
            "{name}: {} {digest}, {} nodes, {} failures\n",
            arm.image, arm.nodes, arm.failures
        ));
    }
    for node in one.assignments.iter().filter(|_| one.measures.is_empty()) {
        let status = node.status.map(|status| status.to_string());
        text.push_str(&format!("{} {} {}\n", node.arm, node.node, or_dash(status.as_deref())));
    }
    if let Some(failures) = &one.failures {
        text.push_str(&format!("failures: {} (p {:.3})\n", failures.verdict, failures.p));
    }
    if one.measures.is_empty() {
        return text;
    }
    let seconds = |value: Option<f64>| value.map(|value| format!("{value:.1}"));
    let rows = one.measures.iter().map(|measure| {
        let interval = measure.interval_seconds.map(|[low, high]| format!("{low:.1} to {high:.1}"));
        vec![
            measure.name.clone(),
            format!("{}/{}", measure.n_a, measure.n_b),
            or_dash(seconds(measure.p50_a).as_deref()),
            or_dash(seconds(measure.p50_b).as_deref()),
            or_dash(seconds(measure.shift_seconds).as_deref()),
            or_dash(interval.as_deref()),
            or_dash(measure.p_adjusted.map(|p| format!("{p:.4}")).as_deref()),
            measure.verdict.to_string(),
        ]
    });
    let header = ["MEASURE", "N", "P50 A", "P50 B", "SHIFT", "95 %", "P", "VERDICT"];
    text.push_str(&output::table_dropping(style, &header, &["95 %", "P", "N"], rows));
    text
}
