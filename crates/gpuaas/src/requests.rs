//! Commands that are requests to a control plane.

use gpuaas_client::failure::Failure;
use gpuaas_client::terminal::Terminal;
use gpuaas_types::codes::CommandCode;

use crate::args::Command;
use crate::{
    approval, audit, authority, batch, bundle, commands, console, events, experiment, image, login,
    slice, task_key, token,
};

/// Carries out a command that asks a control plane for something.
///
/// # Errors
/// What the control plane or this machine refused; `not_a_request` for a command that runs one, or
/// simulates one.
pub(crate) async fn run(command: Command, terminal: &mut Terminal) -> Result<(), Failure> {
    match command {
        Command::Site(command) => commands::site(command, terminal).await,
        Command::Profile(command) => commands::profile(command, terminal).await,
        Command::Roce(command) => commands::roce(command, terminal).await,
        Command::Node(command) => commands::node(command, terminal).await,
        Command::Batch(command) => batch::run(command, terminal).await,
        Command::Events(args) => events::run(args, terminal).await,
        Command::Approval(command) => approval::run(command, terminal).await,
        Command::Webhook(command) => events::webhook(command, terminal).await,
        Command::Audit(command) => audit::run(command, terminal).await,
        Command::Slice(command) => slice::run(command, terminal).await,
        Command::Authority(command) => authority::run(command, terminal).await,
        Command::TaskKey(command) => task_key::run(command, terminal).await,
        Command::Token(command) => token::run(command, terminal).await,
        Command::Console(command) => console::run(command, terminal).await,
        Command::Login(args) => login::login(args, terminal).await,
        Command::Logout(args) => login::logout(args, terminal).await,
        Command::Run(command) => commands::run(command, terminal).await,
        Command::Drift(command) => commands::drift(command, terminal).await,
        Command::Bundle(command) => bundle::run(command, terminal).await,
        Command::Image(command) => image::run(command, terminal).await,
        Command::Experiment(command) => experiment::run(command, terminal).await,
        Command::Explain(args) => commands::explain(args, terminal).await,
        _ => Err(Failure::usage(
            CommandCode::NotARequest,
            "this command runs or simulates a control plane".to_owned(),
        )),
    }
}
