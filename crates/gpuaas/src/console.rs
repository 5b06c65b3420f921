//! `gpuaas console`: the way into the pages.

use std::process::{Command, Stdio};

use gpuaas_client::ApiClient;
use gpuaas_client::failure::Failure;
use gpuaas_client::output;
use gpuaas_client::terminal::{Style, Terminal};
use serde::Serialize;

use serde_json::Value;

use crate::args::{ConsoleCommand, ConsoleMapArgs, ConsoleOpenArgs, Format};

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
    let ConsoleOpenArgs { print, api } = match command {
        ConsoleCommand::Open(args) => args,
        ConsoleCommand::Map(args) => return map(&args, terminal),
    };
    let (url, expires_in_seconds) = ApiClient::from_args(&api)?.console_address().await?;
    let is_opened = !print && starts_browser(&url);
    output::print(
        terminal,
        api.format,
        &Address { url, expires_in_seconds },
        |address: &Address, _: Style| {
            let Address { url, expires_in_seconds } = address;
            match is_opened {
                true => "opening the console in your browser".to_owned(),
                false => format!("{url}\nvalid for one use within {expires_in_seconds:.0} s"),
            }
        },
    )
}

/// What the console has: for people its pages and commands, for programs everything.
fn map(args: &ConsoleMapArgs, terminal: &mut Terminal) -> Result<(), Failure> {
    let format = if args.json { Format::Json } else { Format::Table };
    output::print(terminal, format, &gpuaas_console::map(), |map, _: Style| {
        let map = serde_json::to_value(map).unwrap_or_default();
        let rows = |list: &str, first: &str, second: &str| -> String {
            let items = map[list].as_array().into_iter().flatten();
            let row = |item: &Value| {
                let text = |name: &str| item[name].as_str().unwrap_or_default().to_owned();
                format!("{:<36} {}\n", text(first), text(second))
            };
            items.map(row).collect()
        };
        format!("{}\n{}", rows("pages", "path", "title"), rows("actions", "name", "cli"))
    })
}

fn starts_browser(url: &str) -> bool {
    let mut opener = Command::new(OPENER);
    opener.arg(url).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    opener.status().is_ok_and(|status| status.success())
}
