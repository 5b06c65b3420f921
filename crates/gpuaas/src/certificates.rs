//! `gpuaas node certificates`, `gpuaas node revoke-certificate`.

use gpuaas_client::ApiClient;
use gpuaas_client::failure::Failure;
use gpuaas_client::output;
use gpuaas_client::terminal::{Style, Terminal};
use gpuaas_types::api::{CertificateState, NodeCertificates, RevokeCertificate};

use crate::args::{RevokeCertificateArgs, ShowArgs};
use crate::confirm::confirm;

/// Shows what a node was given.
///
/// # Errors
/// What the control plane refuses, or that it does not answer.
pub async fn show(args: &ShowArgs, terminal: &mut Terminal) -> Result<(), Failure> {
    let client = ApiClient::from_args(&args.api)?;
    let node = client.certificates(&args.name).await?;
    output::print(terminal, args.api.format, &node, table)
}

/// Withdraws it.
///
/// # Errors
/// As [`show`]; `no_certificate` when there is nothing to withdraw.
pub async fn revoke(args: &RevokeCertificateArgs, terminal: &mut Terminal) -> Result<(), Failure> {
    let client = ApiClient::from_args(&args.api)?;
    let (reason, actor) = (args.reason.clone(), args.who.actor.clone());
    let mut asked = RevokeCertificate { reason, actor, dry_run: true };
    let planned = client.revoke_certificate(&args.node, &asked).await?;
    if args.dry_run {
        return output::print(terminal, args.api.format, &planned, table);
    }
    let valid = planned.certificates.iter().filter(|one| one.state == CertificateState::Valid);
    terminal.message(&format!(
        "{}: {} certificates are withdrawn, and its agent is refused from the next call on",
        planned.hostname,
        valid.count()
    ));
    if !args.yes {
        confirm(&planned.hostname, "revocation", terminal)?;
    }
    asked.dry_run = false;
    let node = client.revoke_certificate(&planned.node_id.to_string(), &asked).await?;
    let hostname = &node.hostname;
    terminal.message(&format!(
        "{hostname}: its agent is refused; `gpuaas node reimage {hostname}` gives it another"
    ));
    output::print(terminal, args.api.format, &node, table)
}

fn table(node: &NodeCertificates, style: Style) -> String {
    let rows = node.certificates.iter().map(|one| {
        let state = match one.state {
            CertificateState::Valid => "valid",
            CertificateState::Expired => "expired",
            CertificateState::Revoked => "revoked",
            CertificateState::Superseded => "superseded",
        };
        let why = one.reason.clone().unwrap_or_default();
        vec![
            state.to_owned(),
            one.serial.clone(),
            one.not_before.to_string(),
            one.not_after.to_string(),
            why,
        ]
    });
    output::table_dropping(
        style,
        &["STATE", "SERIAL", "FROM", "UNTIL", "WHY IT ENDED"],
        &["FROM", "UNTIL"],
        rows,
    )
}
