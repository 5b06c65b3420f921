//! `gpuaas completion`: what a shell may write for whoever types, live names included.
//!
//! The script that a shell reads calls this program back (`GPUAAS_COMPLETE`) with the words so far, and
//! is answered from the same tree of commands as the parser uses. Names are asked of the control plane
//! that a command without `--server` would ask; one that does not answer within a second has none.

use std::collections::BTreeSet;
use std::time::Duration;

use clap::{Command, Parser};
use clap_complete::CompleteEnv;
use clap_complete::engine::{ArgValueCandidates, CompletionCandidate};
use clap_complete::env::{Bash, EnvCompleter, Fish, Zsh};
use gpuaas_client::ApiClient;
use gpuaas_client::arguments::ConnectionArgs;
use gpuaas_client::contexts::ContextFile;
use gpuaas_client::failure::Failure;
use gpuaas_client::terminal::Terminal;
use gpuaas_types::codes::CommandCode;

use crate::args::{Shell, tree};

const PROGRAM: &str = "gpuaas";
const VARIABLE: &str = "GPUAAS_COMPLETE";
/// Whoever pressed the key waits.
const PATIENCE: Duration = Duration::from_secs(1);

/// Things that have names of their own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Named {
    Node,
    Site,
    Profile,
    /// By the hostnames of open runs.
    Run,
    Batch,
    Bundle,
    Context,
}

/// Answers a shell that asks how the words go on, and ends the process then.
pub(crate) fn answer() {
    let factory = || with_names(tree(), "", live);
    CompleteEnv::with_factory(factory).var(VARIABLE).bin(PROGRAM).completer(PROGRAM).complete();
}

/// Prints what a shell has to read.
///
/// # Errors
/// When stdout cannot be written.
pub(crate) fn print(shell: Shell, terminal: &mut Terminal) -> Result<(), Failure> {
    let shell: &dyn EnvCompleter = match shell {
        Shell::Bash => &Bash,
        Shell::Zsh => &Zsh,
        Shell::Fish => &Fish,
    };
    let mut script = Vec::new();
    shell
        .write_registration(VARIABLE, PROGRAM, PROGRAM, PROGRAM, &mut script)
        .map_err(|error| Failure::local(CommandCode::AnswerUnprintable, error.to_string()))?;
    terminal.data(&String::from_utf8_lossy(&script))
}

/// The tree whose arguments know where their names come from.
fn with_names(command: Command, path: &str, names: fn(Named) -> Vec<String>) -> Command {
    let command = command.mut_subcommands(|inner| {
        let path = format!("{path} {}", inner.get_name());
        with_names(inner, path.trim_start(), names)
    });
    command.mut_args(|arg| match named(path, arg.get_id().as_str()) {
        Some(named) => {
            let candidates =
                move || names(named).into_iter().map(CompletionCandidate::new).collect();
            arg.add(ArgValueCandidates::new(candidates))
        }
        None => arg,
    })
}

/// What an argument of a command names; none: something else, or something new.
fn named(path: &str, id: &str) -> Option<Named> {
    let group = path.split(' ').next().unwrap_or_default();
    match (group, id) {
        _ if matches!(path, "site add" | "profile add" | "context add" | "node onboard")
            && matches!(id, "name" | "hosts") =>
        {
            None
        }
        (_, "site") => Some(Named::Site),
        (_, "profile") => Some(Named::Profile),
        ("context", "name") | (_, "context") => Some(Named::Context),
        ("node", "node" | "name") | ("explain" | "run", "node") | ("roce", "host") => {
            Some(Named::Node)
        }
        ("site", "name") => Some(Named::Site),
        ("profile", "name") => Some(Named::Profile),
        ("run", "id" | "run" | "name") => Some(Named::Run),
        ("batch", "name") => Some(Named::Batch),
        ("bundle", "bundle") => Some(Named::Bundle),
        _ => None,
    }
}

/// The environment's connection, as every command reads it.
#[derive(Parser)]
struct Environment {
    #[command(flatten)]
    connection: ConnectionArgs,
}

/// Names as they are now; none where nobody answers, which is no time to complain.
fn live(named: Named) -> Vec<String> {
    let Ok(Environment { connection }) = Environment::try_parse_from([PROGRAM]) else {
        return Vec::new();
    };
    if named == Named::Context {
        let file = ContextFile::below(connection.config.config_home.as_deref());
        let contexts = file.load().unwrap_or_default().contexts;
        return contexts.into_keys().collect();
    }
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let (Ok(client), Ok(runtime)) = (ApiClient::connect(&connection), runtime) else {
        return Vec::new();
    };
    let asked = async { tokio::time::timeout(PATIENCE, ask(&client, named)).await };
    match runtime.block_on(asked) {
        Ok(Ok(names)) => names.into_iter().collect(),
        _ => Vec::new(),
    }
}

async fn ask(client: &ApiClient, named: Named) -> Result<BTreeSet<String>, Failure> {
    Ok(match named {
        Named::Node => names(client.nodes(None, None).await?.items, |node| node.hostname),
        Named::Site => names(client.sites().await?.items, |site| site.spec.name),
        Named::Profile => names(client.profiles().await?.items, |profile| profile.status.name),
        Named::Run => {
            let open = [("open", "true".to_owned())];
            names(client.runs(&open).await?.items, |run| run.hostname)
        }
        Named::Batch => batches(client).await?,
        Named::Bundle => names(client.bundles().await?.items, |bundle| bundle.bundle),
        Named::Context => BTreeSet::new(),
    })
}

/// Names of all batches, or of those of the sites that the token's role is for.
async fn batches(client: &ApiClient) -> Result<BTreeSet<String>, Failure> {
    if let Ok(all) = client.batches(None, None).await {
        return Ok(names(all.items, |batch| batch.spec.name));
    }
    let mut found = BTreeSet::new();
    for site in client.sites().await?.items {
        if let Ok(own) = client.batches(Some(&site.spec.name), None).await {
            found.extend(names(own.items, |batch| batch.spec.name));
        }
    }
    Ok(found)
}

fn names<T>(items: Vec<T>, name: impl Fn(T) -> String) -> BTreeSet<String> {
    items.into_iter().map(name).collect()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::ffi::OsString;

    use axum::extract::Query;
    use axum::http::StatusCode;
    use axum::response::{IntoResponse as _, Response};
    use axum::routing::get;
    use axum::{Json, Router};
    use gpuaas_testkit::views;
    use gpuaas_types::api::List;

    use super::*;
    use crate::batch::tests::rolling;

    /// Each kind by its own name.
    fn planted(named: Named) -> Vec<String> {
        vec![format!("{named:?}-one").to_lowercase(), format!("{named:?}-two").to_lowercase()]
    }

    fn completed(line: &str) -> Vec<String> {
        let words: Vec<OsString> = line.split(' ').map(OsString::from).collect();
        let last = words.len() - 1;
        let mut tree = with_names(tree(), "", planted);
        let found = clap_complete::engine::complete(&mut tree, words, last, None).unwrap();
        found.iter().map(|one| one.get_value().to_string_lossy().into_owned()).collect()
    }

    #[test]
    fn names_stand_where_commands_take_them() {
        for (line, name) in [
            ("gpuaas node show no", "node-one"),
            ("gpuaas node decommission ", "node-two"),
            ("gpuaas node list --site ", "site-one"),
            ("gpuaas site show ", "site-one"),
            ("gpuaas site secret list ", "site-one"),
            ("gpuaas profile set ", "profile-one"),
            ("gpuaas node onboard h --profile pro", "profile-two"),
            ("gpuaas run resume ", "run-one"),
            ("gpuaas run list --node ", "node-one"),
            ("gpuaas batch stop ", "batch-one"),
            ("gpuaas bundle approve ", "bundle-one"),
            ("gpuaas explain ", "node-one"),
            ("gpuaas node list --context ", "context-one"),
            ("gpuaas context use ", "context-one"),
        ] {
            let found = completed(line);
            assert!(found.iter().any(|one| one == name), "{line}: {found:?}");
        }
        for line in ["gpuaas site add ", "gpuaas profile add ", "gpuaas context add "] {
            assert!(!completed(line).iter().any(|one| one.ends_with("-one")), "{line}");
        }
        assert_eq!(completed("gpuaas nod"), ["node"]);
        assert!(completed("gpuaas site add x --ur").contains(&"--url".to_owned()));
    }

    #[test]
    fn each_shell_can_read_its_script() {
        for (shell, program) in [(Shell::Bash, "bash"), (Shell::Zsh, "zsh"), (Shell::Fish, "fish")]
        {
            let (mut terminal, captured) = Terminal::captured();
            print(shell, &mut terminal).unwrap();
            let script = captured.stdout();
            assert!(script.contains(VARIABLE) && script.contains(PROGRAM), "{script}");
            let file = tempfile::NamedTempFile::new().unwrap();
            std::fs::write(file.path(), &script).unwrap();
            let mut checked = std::process::Command::new(program);
            match checked.arg("-n").arg(file.path()).status() {
                Ok(status) => assert!(status.success(), "{program} does not read it:\n{script}"),
                Err(_) => test_report::skip(program, "not installed"),
            }
        }
    }

    #[tokio::test]
    async fn names_are_asked_of_the_control_plane() {
        let nodes = || async { Json(List::whole(vec![views::parked_node()])) };
        let sites = || async { Json(List::whole(vec![views::site()])) };
        let router =
            Router::new().route("/api/v1/nodes", get(nodes)).route("/api/v1/sites", get(sites));
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let server = format!("http://{}", listener.local_addr().unwrap());
        tokio::spawn(async move { axum::serve(listener, router).await.unwrap() });
        let client = ApiClient::new(&server, "t").unwrap();
        let asked = async |named| ask(&client, named).await.map(Vec::from_iter);
        assert_eq!(asked(Named::Node).await.unwrap(), ["j22u15"]);
        assert_eq!(asked(Named::Site).await.unwrap(), ["lab"]);
        assert!(asked(Named::Profile).await.is_err(), "which a shell is not told");
    }

    /// A token whose role is for one site is refused the list of all.
    #[tokio::test]
    async fn names_of_batches_are_those_of_the_sites_that_the_token_is_for() {
        async fn batches(Query(query): Query<BTreeMap<String, String>>) -> Response {
            match query.get("site").map(String::as_str) {
                Some("lab") => Json(List::whole(vec![rolling()])).into_response(),
                _ => StatusCode::FORBIDDEN.into_response(),
            }
        }
        let sites = || async { Json(List::whole(vec![views::site()])) };
        let router =
            Router::new().route("/api/v1/batches", get(batches)).route("/api/v1/sites", get(sites));
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let server = format!("http://{}", listener.local_addr().unwrap());
        tokio::spawn(async move { axum::serve(listener, router).await.unwrap() });
        let client = ApiClient::new(&server, "t").unwrap();
        assert_eq!(
            Vec::from_iter(ask(&client, Named::Batch).await.unwrap()),
            [rolling().spec.name]
        );
    }
}
