//! `gpuaas token`: credentials of programs. A token goes into a file for its owner alone, never
//! onto a terminal that keeps what it showed, but where stdout is asked for.

use std::path::Path;

use gpuaas_client::ApiClient;
use gpuaas_client::failure::Failure;
use gpuaas_client::output;
use gpuaas_client::terminal::{Style, Terminal};
use gpuaas_engine::{Clock as _, RealClock};
use gpuaas_types::access::{AccessView, RoleGrant, TokenRequest, TokenRevocation, TokenView};
use gpuaas_types::api::List;
use gpuaas_types::codes::CommandCode;
use gpuaas_types::filter::ListFilter;

use crate::args::{TokenAddArgs, TokenCommand};
use crate::private_file::PrivateFile;
use crate::serve::admin_token;
use crate::watch::print_list;

/// Seconds of a day.
const DAY_SECONDS: u64 = 86_400;

/// Runs the command.
///
/// # Errors
/// What the control plane or this machine refuses, or that the former does not answer.
pub async fn run(command: TokenCommand, terminal: &mut Terminal) -> Result<(), Failure> {
    match command {
        TokenCommand::Add(args) => add(args, terminal).await,
        TokenCommand::List(args) => {
            let filter = args.filter.as_ref().map(ListFilter::compact);
            let client = ApiClient::from_args(&args.api)?;
            let ask = async || client.tokens(filter.as_deref()).await;
            print_list((&client, &args.api), args.watch, terminal, ask, table).await
        }
        TokenCommand::Revoke(args) => {
            let body = TokenRevocation { reason: args.reason };
            let left = ApiClient::from_args(&args.api)?.revoke_token(&args.name, &body).await?;
            terminal
                .message(&format!("revoked {}; it is rejected from the next request", args.name));
            output::print(terminal, args.api.format, &left, table)
        }
        TokenCommand::Reset(args) => {
            let reason = args.reason.trim();
            if reason.is_empty() {
                let failure = Failure::usage(CommandCode::CommandLineInvalid, "--reason is empty");
                return Err(failure.hint("pass a reason, which is recorded in the audit log"));
            }
            let (now, actor) = (RealClock.now(), &args.actor.actor);
            let database = args.database.as_deref();
            let keys = args.master_key.sources();
            let file = admin_token::reset(&args.data, database, &keys, now, actor, reason).await?;
            let said = "wrote a new admin token to its file; the former one is revoked";
            terminal.message(said);
            terminal.data(&file.display().to_string())
        }
        TokenCommand::Whoami(args) => {
            let access = ApiClient::from_args(&args.api)?.access().await?;
            output::print(terminal, args.api.format, &access, |access: &AccessView, style| {
                let row = vec![access.name.clone(), grants_text(&access.grants)];
                output::table(style, &["NAME", "MAY"], [row])
            })
        }
    }
}

async fn add(args: TokenAddArgs, terminal: &mut Terminal) -> Result<(), Failure> {
    let client = ApiClient::from_args(&args.api)?;
    let to_stdout = args.to == Path::new("-");
    // Made before the token: one that could not be kept would count and be nobody's.
    let file = if to_stdout { None } else { Some(PrivateFile::create(&args.to)?) };
    let seconds = u64::from(args.expires_in_days) * DAY_SECONDS;
    let body = TokenRequest {
        name: args.name,
        grants: args.roles.into_iter().map(|grant| grant.0).collect(),
        person: args.person,
        expires_in_seconds: (!args.no_end).then_some(seconds),
        reason: args.reason,
    };
    let made = match (client.add_token(&body).await, file) {
        (Ok(made), Some(file)) => {
            file.write_secret(made.token.expose())?;
            made
        }
        (Ok(made), None) => return terminal.data(made.token.expose()),
        (Err(failure), file) => {
            if let Some(file) = file {
                file.discard();
            }
            return Err(failure);
        }
    };
    terminal.message(&format!("wrote the token of {} to {}", made.view.name, args.to.display()));
    let one = |token: &TokenView, style| table(&List::whole(vec![token.clone()]), style);
    output::print(terminal, args.api.format, &made.view, one)
}

fn table(list: &List<TokenView>, style: Style) -> String {
    let rows = list.items.iter().map(|token| {
        let at = |moment: Option<gpuaas_types::Timestamp>, none: &str| {
            moment.map_or_else(|| none.to_owned(), |at| style.moment(at))
        };
        let ends = match token.revoked_at {
            Some(at) => format!("revoked {}", style.moment(at)),
            None => at(token.expires_at, "never"),
        };
        vec![
            token.name.clone(),
            grants_text(&token.grants),
            ends,
            at(token.last_used_at, "never"),
            token.created_by.clone(),
            token.person.clone(),
        ]
    });
    let header = ["NAME", "MAY", "ENDS", "LAST USED", "MADE BY", "PERSON"];
    output::table_dropping(style, &header, &["PERSON", "LAST USED"], rows)
}

/// Roles, and where they hold, in the form of the command line.
pub(crate) fn grants_text(grants: &[RoleGrant]) -> String {
    let texts = grants.iter().map(|grant| match &grant.sites {
        Some(sites) => format!("{}@{}", grant.role, sites.join(",")),
        None => grant.role.to_string(),
    });
    texts.collect::<Vec<_>>().join(" ")
}
