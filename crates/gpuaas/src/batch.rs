//! `gpuaas batch`: many machines as one piece of work.

use std::fmt::Write as _;
use std::time::Duration;

use gpuaas_client::ApiClient;
use gpuaas_client::failure::{Exit, Failure};
use gpuaas_client::output::{self, fields, or_dash, table, table_dropping};
use gpuaas_client::terminal::{Style, Terminal};
use gpuaas_types::api::List;
use gpuaas_types::batch::{
    BatchAccepted, BatchActionRequest, BatchCreate, BatchResource, BatchSpec,
};
use gpuaas_types::codes::CommandCode;
use gpuaas_types::filter::ListFilter;
use gpuaas_types::plan::OnboardPlan;
use gpuaas_types::{BatchPhase, MemberState, Timestamp};
use tokio::time::{MissedTickBehavior, interval, timeout};

use crate::args::{BatchCommand, BatchOrderArgs, BatchStartArgs, ShowArgs, WatchedShowArgs};
use crate::confirm::confirm;
use crate::manifest;
use crate::onboarding::{draw_plans, take_over_word};
use crate::watch::{Watch, print_list};

const LOOK: Duration = Duration::from_secs(1);
/// Looks in a row that may fail before following is given up: a restart takes less.
const PATIENCE: u32 = 30;
/// Machines that an error names.
const NAMED: usize = 5;

/// One of the commands.
///
/// # Errors
/// What the control plane or this machine refused; a batch that did not bring every machine to
/// active.
pub async fn run(command: BatchCommand, terminal: &mut Terminal) -> Result<(), Failure> {
    match command {
        BatchCommand::Start(args) => start(&args, terminal).await,
        BatchCommand::List(args) => {
            let filter = args.filter.as_ref().map(ListFilter::compact);
            let client = ApiClient::from_args(&args.api)?;
            let ask = async || client.batches(args.site.as_deref(), filter.as_deref()).await;
            print_list((&client, &args.api), args.watch, terminal, ask, list).await
        }
        BatchCommand::Show(args) => {
            let WatchedShowArgs { show: ShowArgs { name, api }, watch: again } = args;
            let client = ApiClient::from_args(&api)?;
            let site = client.batch(&name).await?.spec.site;
            let events = vec![("site", Some(site))];
            let watch = Watch { client: &client, events, format: api.format, again };
            let is_over = |batch: &BatchResource| batch.status.phase == BatchPhase::Done;
            watch.run(terminal, async || client.batch(&name).await, show, is_over).await
        }
        BatchCommand::Resume(args) => send_batch_command("resume", &args, terminal).await,
        BatchCommand::Stop(args) => send_batch_command("stop", &args, terminal).await,
    }
}

async fn start(args: &BatchStartArgs, terminal: &mut Terminal) -> Result<(), Failure> {
    let spec = manifest::batch(&args.file)?;
    let client = ApiClient::from_args(&args.api)?;
    let mut body = BatchCreate { spec, dry_run: args.dry_run };
    if args.take_over {
        let plans = take_over(args, &client, &mut body.spec, terminal).await?;
        if args.dry_run {
            return output::print(terminal, args.api.format, &plans, draw_plans);
        }
    }
    let started = client.start_batch(&body, args.idempotency_key.as_deref()).await;
    let accepted =
        started.map_err(|failure| manifest::name_hosts(failure, &args.file, &body.spec))?;
    if args.dry_run {
        return output::print(terminal, args.api.format, &accepted, plan);
    }
    terminal.message(&plan(&accepted, terminal.style()));
    let batch = match args.wait {
        true => follow(&client, &accepted.name, args.timeout, terminal).await?,
        false => client.batch(&accepted.name).await?,
    };
    output::print(terminal, args.api.format, &batch, show)?;
    if args.wait { verdict(&batch) } else { Ok(()) }
}

/// Finds the machines of a manifest that are in use, shows them, asks once, and writes the word for
/// each into the manifest: for the machine and the owner that were shown, and for no others. Answers
/// the plans of these machines.
async fn take_over(
    args: &BatchStartArgs,
    client: &ApiClient,
    spec: &mut BatchSpec,
    terminal: &mut Terminal,
) -> Result<List<OnboardPlan>, Failure> {
    // A manifest with mistakes is refused before MAAS is asked about any of its machines.
    let checked = BatchCreate { spec: spec.clone(), dry_run: true };
    let checked = client.start_batch(&checked, None).await;
    checked.map_err(|failure| manifest::name_hosts(failure, &args.file, spec))?;
    let reason = args.reason.as_deref().unwrap_or_default();
    let mut plans = Vec::new();
    for machine in &mut spec.machines {
        let request = machine.onboard_request(&spec.site, &spec.profile);
        let plan = client.plan_onboarding(&request).await?;
        if let Some(word) = take_over_word(&plan, &args.who.actor, reason) {
            machine.take_over = Some(word);
            plans.push(plan);
        }
    }
    let plans = List::whole(plans);
    if plans.items.is_empty() {
        terminal.message(&format!("{}: no machine in use needs to be taken over", spec.name));
    } else if !args.dry_run {
        terminal.message(&draw_plans(&plans, terminal.style()));
        if !args.yes {
            confirm(&spec.name, "take-over", terminal)?;
        }
    }
    Ok(plans)
}

async fn send_batch_command(
    order: &str,
    args: &BatchOrderArgs,
    terminal: &mut Terminal,
) -> Result<(), Failure> {
    let client = ApiClient::from_args(&args.api)?;
    let body = BatchActionRequest { actor: args.who.actor.clone(), reason: args.reason.clone() };
    let mut batch = client.order_batch(&args.name, order, &body).await?;
    if args.wait {
        batch = follow(&client, &args.name, args.timeout, terminal).await?;
    }
    output::print(terminal, args.api.format, &batch, show)?;
    if args.wait { verdict(&batch) } else { Ok(()) }
}

/// Whether nothing will happen before a person acts, or ever.
fn settled(batch: &BatchResource) -> bool {
    let counts = &batch.status.counts;
    match batch.status.phase {
        BatchPhase::Done => true,
        BatchPhase::Stopped => counts.running == 0,
        BatchPhase::Canary | BatchPhase::Rolling => counts.running + counts.waiting == 0,
    }
}

async fn follow(
    client: &ApiClient,
    name: &str,
    seconds: u64,
    terminal: &mut Terminal,
) -> Result<BatchResource, Failure> {
    let mut looks = interval(LOOK);
    looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut last = String::new();
    let work = async {
        let mut missed = 0;
        loop {
            looks.tick().await;
            match client.batch(name).await {
                Ok(batch) => {
                    missed = 0;
                    let line = progress(&batch);
                    if line != last {
                        terminal.message(&line);
                        last = line;
                    }
                    if settled(&batch) {
                        return Ok(batch);
                    }
                }
                Err(failure) if failure.exit == Exit::Unreachable && missed < PATIENCE => {
                    missed += 1;
                }
                Err(failure) => return Err(failure),
            }
        }
    };
    timeout(Duration::from_secs(seconds), work).await.unwrap_or_else(|_| {
        let title = format!("The batch did not finish within {seconds} s");
        Err(Failure::new(Exit::TimedOut, CommandCode::WaitTimedOut, name.to_owned())
            .title(&title)
            .hint(format!(
                "the work continues; run `gpuaas batch show {name}` to see its progress"
            )))
    })
}

fn progress(batch: &BatchResource) -> String {
    let status = &batch.status;
    let all = batch.spec.machines.len();
    format!(
        "{:<12} {:<8} {}/{all} active; waits for {}",
        batch.spec.name, status.phase, status.counts.active, status.waiting_for
    )
}

/// The failure of a batch that did not bring every machine to active.
fn verdict(batch: &BatchResource) -> Result<(), Failure> {
    let short = |state| !matches!(state, MemberState::Active | MemberState::Withdrawn);
    let members = &batch.status.members;
    let names: Vec<&str> =
        members.iter().filter(|m| short(m.state)).map(|m| m.hostname.as_str()).collect();
    if names.is_empty() {
        return Ok(());
    }
    let name = &batch.spec.name;
    let title = format!("{} of {} machines did not become active", names.len(), members.len());
    let (code, why) = match &batch.status.stop {
        Some(stop) => (stop.code.as_str(), stop.text.clone()),
        None => (CommandCode::BatchIncomplete.as_str(), batch.status.waiting_for.clone()),
    };
    let more = names.len().saturating_sub(NAMED);
    let mut listed = names[..names.len() - more].join(", ");
    if more > 0 {
        listed = format!("{listed} and {more} more");
    }
    let hint = match &batch.status.stop {
        Some(_) => format!("fix the cause, then run `gpuaas batch resume {name} --reason WHY`"),
        None => format!(
            "run `gpuaas batch show {name}` to list them, and `gpuaas explain HOST` to see why"
        ),
    };
    Err(Failure::coded(Exit::Parked, code, &title, format!("{why}: {listed}")).hint(hint))
}

/// What a manifest will do.
#[must_use]
pub fn plan(accepted: &BatchAccepted, _: Style) -> String {
    let BatchAccepted { batch_id, name, profile_revision, canaries, rest } = accepted;
    let id =
        batch_id.map_or_else(|| "dry run, nothing was created".to_owned(), |id| id.to_string());
    let first = if canaries.is_empty() { "nobody".to_owned() } else { canaries.join(", ") };
    fields(&[
        ("batch", format!("{name} ({id})")),
        ("profile revision", profile_revision.to_string()),
        ("canaries", first),
        ("then", machines(rest.len())),
    ])
}

fn machines(count: usize) -> String {
    if count == 1 { "1 machine".to_owned() } else { format!("{count} machines") }
}

/// Batches, one line each.
#[must_use]
pub fn list(list: &List<BatchResource>, style: Style) -> String {
    let header = ["BATCH", "SITE", "PHASE", "ACTIVE", "RUN", "WAIT", "STOPPED", "WAITING FOR"];
    let rows = list.items.iter().map(|batch| {
        let (spec, status) = (&batch.spec, &batch.status);
        vec![
            spec.name.clone(),
            spec.site.clone(),
            status.phase.to_string(),
            format!("{}/{}", status.counts.active, spec.machines.len()),
            status.counts.running.to_string(),
            status.counts.waiting.to_string(),
            (status.counts.parked + status.counts.failed).to_string(),
            status.waiting_for.clone(),
        ]
    });
    table_dropping(style, &header, &["STOPPED", "WAIT", "RUN", "SITE"], rows)
}

/// One batch, machine by machine.
#[must_use]
pub fn show(batch: &BatchResource, style: Style) -> String {
    let (spec, status) = (&batch.spec, &batch.status);
    let seconds = |value: Option<f64>| value.map(|s| format!("{s:.0} s")).unwrap_or_default();
    let at = |at: Option<Timestamp>| at.map(|at| style.exact_moment(at)).unwrap_or_default();
    let share = format!(
        "{:.2}, stops above {} once {} have ended",
        status.failure_ratio,
        spec.stop_at_failure_ratio,
        spec.min_ended()
    );
    let counts = &status.counts;
    let mut text = fields(&[
        ("batch", format!("{} ({})", spec.name, batch.id)),
        ("site", spec.site.clone()),
        ("profile", format!("{} revision {}", spec.profile, status.profile_revision)),
        ("phase", status.phase.to_string()),
        ("waits for", status.waiting_for.clone()),
        ("active", format!("{} of {}", counts.active, spec.machines.len())),
        ("in progress", counts.running.to_string()),
        ("not started", counts.waiting.to_string()),
        ("parked", counts.parked.to_string()),
        ("failed", counts.failed.to_string()),
        ("failure share", share),
        ("p50 to active", seconds(status.p50_seconds)),
        ("p95 to active", seconds(status.p95_seconds)),
        ("expected end", at(status.estimated_end)),
        ("ended", at(status.ended_at)),
    ]);
    if let Some(stop) = &status.stop {
        // Writing to a String cannot fail.
        writeln!(text, "{}", fields(&[("stopped", format!("{} ({})", stop.text, stop.code))])).ok();
    } else {
        text.push('\n');
    }
    let rows = status.members.iter().map(|member| {
        let mut marks = Vec::new();
        if member.canary {
            marks.push("canary");
        }
        if member.written_off {
            marks.push("written off");
        }
        vec![
            member.hostname.clone(),
            member.state.to_string(),
            or_dash(Some(&marks.join(", "))),
            or_dash(member.step.map(gpuaas_types::Step::as_str)),
            or_dash(Some(&member.waiting_for)),
        ]
    });
    text.push_str(&table(style, &["NODE", "STATE", "MARKS", "STEP", "WAITING FOR"], rows));
    text
}

#[cfg(test)]
pub(crate) mod tests;
