//! `gpuaas node task` and `gpuaas node tasks`.

use std::fmt::Write as _;
use std::path::Path;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use gpuaas_client::ApiClient;
use gpuaas_client::failure::{Exit, Failure};
use gpuaas_client::output;
use gpuaas_client::terminal::{Style, Terminal};
use gpuaas_types::agent::{Finding, Operation, Registry, TaskArchive, TaskResult};
use gpuaas_types::api::List;
use gpuaas_types::codes::CommandCode;
use gpuaas_types::filter::ListFilter;
use gpuaas_types::task::{TaskRequest, TaskState, TaskView};
use tokio::time::{MissedTickBehavior, interval, timeout};

use crate::args::{NodeTaskArgs, NodeTaskKind, NodeTasksArgs, TaskOptions};
use crate::input_file::read_file;
use crate::watch::Watch;

const LOOK: Duration = Duration::from_millis(500);
/// Looks in a row that may fail before waiting is given up: a restart takes less.
const PATIENCE: u32 = 60;

/// `gpuaas node task`.
///
/// # Errors
/// What the control plane refused; with `--wait` a task that was not carried out, or not in time.
pub async fn issue(args: &NodeTaskArgs, terminal: &mut Terminal) -> Result<(), Failure> {
    let (operation, options, save) = operation(&args.kind)?;
    let client = ApiClient::from_args(&options.api)?;
    let request = TaskRequest {
        operation,
        dry_run: options.dry_run,
        actor: options.who.actor.clone(),
        reason: options.reason.clone(),
        within_seconds: options.within,
    };
    let mut task = client.give_task(&args.node, &request, options.key.as_deref()).await?;
    if options.wait {
        task = wait_with_limit(&client, task, options.timeout, terminal).await?;
        if let Some(path) = save {
            save_archive(&task, path, terminal)?;
        }
    }
    output::print(terminal, options.api.format, &task, draw)?;
    if options.wait { verdict(&task) } else { Ok(()) }
}

/// The task once nothing more is to come, within `seconds`.
///
/// # Errors
/// `wait_timed_out`, or what the control plane refused.
pub(crate) async fn wait_with_limit(
    client: &ApiClient,
    task: TaskView,
    seconds: u64,
    terminal: &mut Terminal,
) -> Result<TaskView, Failure> {
    terminal.message(&format!("{:<12} {} {}", task.hostname, task.operation.kind(), task.id));
    let id = task.id.to_string();
    let waited = timeout(Duration::from_secs(seconds), wait_for_end(client, &id)).await;
    waited.map_err(|_| late(&task, seconds))?
}

/// `gpuaas node tasks`.
///
/// # Errors
/// What the control plane refused.
pub async fn list(args: &NodeTasksArgs, terminal: &mut Terminal) -> Result<(), Failure> {
    let NodeTasksArgs { node, filter, watch: again, api } = args;
    let client = ApiClient::from_args(api)?;
    let filter = filter.as_ref().map(ListFilter::compact);
    let events = vec![("node", Some(node.clone()))];
    let watch = Watch { client: &client, events, format: api.format, again: *again };
    watch
        .run(terminal, async || client.tasks(node, filter.as_deref()).await, table, |_| false)
        .await
}

fn operation(kind: &NodeTaskKind) -> Result<(Operation, &TaskOptions, Option<&Path>), Failure> {
    Ok(match kind {
        NodeTaskKind::Service { action, unit, options } => {
            (Operation::Service { action: *action, unit: unit.clone() }, options, None)
        }
        NodeTaskKind::RepairDrift { gates, options } => {
            (Operation::RepairDrift { gates: gates.clone() }, options, None)
        }
        NodeTaskKind::RefreshTrust { registry, ca_file, mirrors, options } => {
            let ca_pem = ca_file.as_deref().map(read_file).transpose()?.unwrap_or_default();
            let registry = Registry { host: registry.clone(), ca_pem, mirrors: mirrors.clone() };
            (Operation::RefreshTrust { registries: vec![registry] }, options, None)
        }
        NodeTaskKind::UpdatePackages {
            packages,
            along,
            hold,
            refresh_lists,
            lock_seconds,
            options,
        } => {
            let operation = Operation::UpdatePackages {
                packages: packages.clone(),
                along: along.clone(),
                hold: hold.clone(),
                refresh_lists: *refresh_lists,
                lock_seconds: *lock_seconds,
            };
            (operation, options, None)
        }
        NodeTaskKind::Diagnostics { units, journal_lines, most_bytes, save, options } => {
            let operation = Operation::CollectDiagnostics {
                units: units.clone(),
                journal_lines: *journal_lines,
                most_bytes: *most_bytes,
            };
            (operation, options, save.as_deref())
        }
        NodeTaskKind::AgentUpdate { bundle, confirm_seconds, options } => {
            let operation = Operation::AgentUpdate {
                bundle: bundle.clone().unwrap_or_default(),
                version: String::new(),
                digest: String::new(),
                size_bytes: 0,
                url: String::new(),
                floor: String::new(),
                confirm_seconds: *confirm_seconds,
            };
            (operation, options, None)
        }
    })
}

/// The task once nothing more is to come. A control plane that is away for a while is waited for.
async fn wait_for_end(client: &ApiClient, id: &str) -> Result<TaskView, Failure> {
    let mut looks = interval(LOOK);
    looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut missed = 0;
    loop {
        looks.tick().await;
        match client.task(id).await {
            Ok(task) if !task.state.is_open() => return Ok(task),
            Ok(_) => missed = 0,
            Err(failure) if failure.exit == Exit::Unreachable && missed < PATIENCE => missed += 1,
            Err(failure) => return Err(failure),
        }
    }
}

fn late(task: &TaskView, seconds: u64) -> Failure {
    let detail = format!("task {} of {} is still in progress", task.id, task.hostname);
    Failure::new(Exit::TimedOut, CommandCode::WaitTimedOut, detail)
        .title(&format!("No result within {seconds} s"))
        .hint(format!("run `gpuaas node tasks {}` to see the task", task.hostname))
}

/// Whether the task was carried out.
///
/// # Errors
/// The code of its result.
pub(crate) fn verdict(task: &TaskView) -> Result<(), Failure> {
    let failed = |code: &str, detail: String| {
        Err(Failure::coded(Exit::Parked, code, "The task was not carried out", detail)
            .hint(format!("run `gpuaas node tasks {}` to see the task", task.hostname)))
    };
    match (&task.state, &task.result) {
        (TaskState::Done, _) => Ok(()),
        (TaskState::Expired, _) => {
            failed("task_expired", format!("the agent of {} did not respond", task.hostname))
        }
        (_, Some(result)) => {
            let code = if result.code.is_empty() { "task_failed" } else { &result.code };
            failed(code, format!("{}: {}", task.hostname, result.message))
        }
        _ => failed("task_failed", task.hostname.clone()),
    }
}

/// Writes the archive to a file.
fn save_archive(task: &TaskView, path: &Path, terminal: &mut Terminal) -> Result<(), Failure> {
    let archive = task.result.as_ref().and_then(|result| result.archive.as_ref());
    let Some(TaskArchive { data: Some(data), .. }) = archive else {
        let place = archive.and_then(|archive| archive.path.as_deref());
        terminal.message(&place.map_or_else(
            || "the task returned no archive".to_owned(),
            |place| format!("the archive is too large to download; it is on the host: {place}"),
        ));
        return Ok(());
    };
    let failed = |detail: String| Failure::local(CommandCode::ArchiveUnwritable, detail);
    let bytes = BASE64.decode(data).map_err(|error| failed(error.to_string()))?;
    std::fs::write(path, bytes).map_err(|error| failed(format!("{}: {error}", path.display())))
}

fn table(list: &List<TaskView>, style: Style) -> String {
    let rows = list.items.iter().map(|task| {
        let kind = task.operation.kind();
        let kind = if task.dry_run { format!("{kind} (dry run)") } else { kind.to_owned() };
        let said = task.result.as_ref().map(|result| result.message.clone()).unwrap_or_default();
        vec![
            task.id.to_string(),
            kind,
            task.state.as_str().to_owned(),
            style.moment(task.created_at),
            task.actor.clone(),
            said,
        ]
    });
    output::table_dropping(
        style,
        &["TASK", "KIND", "STATE", "ASKED", "BY", "RESULT"],
        &["BY", "ASKED"],
        rows,
    )
}

/// A task for a person.
#[must_use]
pub fn draw(task: &TaskView, style: Style) -> String {
    let how = if task.dry_run { ", dry run" } else { "" };
    let mut text = output::fields(&[
        ("task", task.id.to_string()),
        ("node", task.hostname.clone()),
        ("kind", format!("{}{how}", task.operation.kind())),
        ("state", task.state.as_str().to_owned()),
        (
            "asked",
            format!("{} by {}: {}", style.exact_moment(task.created_at), task.actor, task.reason),
        ),
    ]);
    let Some(result) = &task.result else { return text };
    let TaskResult { code, message, changes, findings, archive, .. } = result;
    // Writing to a String cannot fail.
    let said = if code.is_empty() { message.clone() } else { format!("{code}: {message}") };
    if !said.is_empty() {
        writeln!(text, "{:<18}{said}", "result:").ok();
    }
    for change in changes {
        let word = if task.dry_run { "would change" } else { "changed" };
        writeln!(text, "{word:<18}{}: {} -> {}", change.what, change.before, change.after).ok();
    }
    for Finding { name, passed, seen } in findings {
        let word = match passed {
            Some(true) => "good",
            Some(false) => "not good",
            None => "seen",
        };
        writeln!(text, "{word:<18}{name}: {seen}").ok();
    }
    if let Some(archive) = archive {
        let place = archive.path.as_deref().unwrap_or("with this result");
        writeln!(
            text,
            "{:<18}{} bytes, {place}, {}",
            "archive:", archive.size_bytes, archive.digest
        )
        .ok();
    }
    text
}
