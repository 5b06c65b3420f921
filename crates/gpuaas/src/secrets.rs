//! `gpuaas site secret` and `gpuaas profile secret`: a value goes in from a file, never from the
//! command line, which every user of the machine can read, and is never printed.

use gpuaas_client::failure::Failure;
use gpuaas_client::output;
use gpuaas_client::terminal::{Style, Terminal};
use gpuaas_client::{ApiClient, SecretScope};
use gpuaas_types::api::List;
use gpuaas_types::bundle::{InputSecretSet, InputSecretView};

use crate::args::SecretCommand;
use crate::input_file::read_secret;

/// Runs the command.
///
/// # Errors
/// What the control plane or this machine refuses, or that the former does not answer.
pub async fn run(
    of: SecretScope,
    command: SecretCommand,
    terminal: &mut Terminal,
) -> Result<(), Failure> {
    match command {
        SecretCommand::Set(args) => {
            let body = InputSecretSet { value: read_secret(&args.file)?, actor: args.who.actor };
            let client = ApiClient::from_args(&args.api)?;
            let set = client.set_secret(of, &args.name, &args.bundle, &args.input, &body).await?;
            terminal
                .message("deployments from now on get it; a host that is up gets it by a reimage");
            let one = |set: &InputSecretView, style| table(&List::whole(vec![set.clone()]), style);
            output::print(terminal, args.api.format, &set, one)
        }
        SecretCommand::List(args) => {
            let set = ApiClient::from_args(&args.api)?.secrets(of, &args.name).await?;
            output::print(terminal, args.api.format, &set, table)
        }
        SecretCommand::Delete(args) => {
            let client = ApiClient::from_args(&args.api)?;
            let (bundle, input) = (&args.bundle, &args.input);
            let left = client.delete_secret(of, &args.name, bundle, input, &args.who.actor).await?;
            terminal.message(&format!("{bundle} {input} is forgotten; what is still set:"));
            output::print(terminal, args.api.format, &left, table)
        }
    }
}

fn table(list: &List<InputSecretView>, style: Style) -> String {
    let rows = list.items.iter().map(|one| {
        let InputSecretView { bundle, input, set_by, set_at } = one;
        vec![bundle.clone(), input.clone(), set_by.clone(), set_at.to_string()]
    });
    output::table(style, &["BUNDLE", "INPUT", "SET BY", "AT"], rows)
}
