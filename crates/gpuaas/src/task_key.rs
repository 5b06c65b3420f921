//! `gpuaas task-key`: the keys that sign tasks for agents.

use gpuaas_client::ApiClient;
use gpuaas_client::failure::Failure;
use gpuaas_client::output;
use gpuaas_client::terminal::{Style, Terminal};
use gpuaas_types::agent::TaskKeys;
use gpuaas_types::api::{ActivateTaskKey, RetireTaskKey};

use crate::args::{ApiArgs, TaskKeyCommand};

/// Runs the command.
///
/// # Errors
/// What the control plane refuses, or that it does not answer.
pub async fn run(command: TaskKeyCommand, terminal: &mut Terminal) -> Result<(), Failure> {
    let client = |api: &ApiArgs| ApiClient::from_args(api);
    let (keys, format) = match command {
        TaskKeyCommand::List(args) => (client(&args.api)?.task_keys().await?, args.api.format),
        TaskKeyCommand::Stage(args) => {
            (client(&args.api)?.stage_task_key().await?, args.api.format)
        }
        TaskKeyCommand::Activate(args) => {
            let body = ActivateTaskKey { grace_seconds: args.grace_seconds };
            (client(&args.api)?.activate_task_key(&body).await?, args.api.format)
        }
        TaskKeyCommand::Retire(args) => {
            let body = RetireTaskKey { public_key: args.public_key };
            (client(&args.api)?.retire_task_key(&body).await?, args.api.format)
        }
    };
    output::print(terminal, format, &keys, table)
}

fn table(keys: &TaskKeys, style: Style) -> String {
    let rows = keys.keys.iter().map(|key| {
        let until = key.until.map(|at| style.moment(at)).unwrap_or_default();
        vec![key.state.as_str().to_owned(), key.public_key.clone(), until]
    });
    output::table(style, &["STATE", "KEY", "COUNTS UNTIL"], rows)
}
