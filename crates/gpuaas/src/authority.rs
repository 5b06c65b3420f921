//! `gpuaas authority`: the certificate authority of nodes.

use gpuaas_client::ApiClient;
use gpuaas_client::failure::Failure;
use gpuaas_client::output;
use gpuaas_client::terminal::{Style, Terminal};
use gpuaas_types::api::{AuthorityReport, ChangeAuthority, StageAuthority};

use crate::args::{ApiArgs, AuthorityChangeArgs, AuthorityCommand};

/// Runs the command.
///
/// # Errors
/// What the control plane refuses, or that it does not answer.
pub(crate) async fn run(command: AuthorityCommand, terminal: &mut Terminal) -> Result<(), Failure> {
    let client = |api: &ApiArgs| ApiClient::from_args(api);
    let change = |args: &AuthorityChangeArgs| ChangeAuthority {
        reason: args.reason.clone(),
        actor: args.who.actor.clone(),
        force: args.force,
    };
    let (report, format) = match command {
        AuthorityCommand::Show(args) => (client(&args.api)?.authority().await?, args.api.format),
        AuthorityCommand::Stage(args) => {
            let body = StageAuthority { reason: args.reason, actor: args.who.actor };
            (client(&args.api)?.stage_authority(&body).await?, args.api.format)
        }
        AuthorityCommand::Activate(args) => {
            let body = change(&args);
            (client(&args.api)?.change_authority("activate", &body).await?, args.api.format)
        }
        AuthorityCommand::Retire(args) => {
            let body = change(&args);
            (client(&args.api)?.change_authority("retire", &body).await?, args.api.format)
        }
    };
    output::print(terminal, format, &report, draw)
}

fn draw(report: &AuthorityReport, style: Style) -> String {
    let rows = report.authorities.iter().map(|one| {
        vec![
            one.generation.to_string(),
            one.state.as_str().to_owned(),
            one.digest.chars().take(16).collect(),
            style.moment(one.not_after),
            one.activated_at.map(|at| style.moment(at)).unwrap_or_default(),
        ]
    });
    let mut text =
        output::table(style, &["GENERATION", "STATE", "SHA-256", "ENDS", "SIGNS SINCE"], rows);
    for (what, nodes) in [
        ("that do not trust it yet", &report.nodes_without_bundle),
        ("with a certificate of a former authority", &report.nodes_with_former_certificate),
        ("that will enroll with outdated user-data", &report.nodes_to_enroll),
    ] {
        if !nodes.is_empty() {
            text.push_str(&format!("{} nodes {what}: {}\n", nodes.len(), nodes.join(", ")));
        }
    }
    text
}
