//! `gpuaas console`: the way into the pages.

use std::process::{Command, Stdio};

use gpuaas_client::ApiClient;
use gpuaas_client::failure::Failure;
use gpuaas_client::output;
use gpuaas_client::terminal::{Style, Terminal};
use serde::Serialize;

use crate::args::{ConsoleCommand, ConsoleOpenArgs};

/// What starts the user's browser on a desktop (xdg-utils).
const OPENER: &str = "xdg-open";

/// An address that signs in once.
#[derive(Serialize)]
struct Address {
    url: String,
    expires_in_seconds: f64,
}

/// `gpuaas console`.
///
/// # Errors
/// What the control plane refused.
pub(crate) async fn run(command: ConsoleCommand, terminal: &mut Terminal) -> Result<(), Failure> {
    let ConsoleCommand::Open(ConsoleOpenArgs { print, api }) = command;
    let (url, expires_in_seconds) = ApiClient::from_args(&api)?.console_address().await?;
    let is_opened = !print && starts_browser(&url);
    output::print(
        terminal,
        api.format,
        &Address { url, expires_in_seconds },
        |address: &Address, _: Style| {
            let Address { url, expires_in_seconds } = address;
            match is_opened {
                true => "the console opens in your browser".to_owned(),
                false => format!("{url}\nvalid once, for {expires_in_seconds:.0} s"),
            }
        },
    )
}

fn starts_browser(url: &str) -> bool {
    let mut opener = Command::new(OPENER);
    opener.arg(url).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    opener.status().is_ok_and(|status| status.success())
}
