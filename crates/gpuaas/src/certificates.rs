//! `gpuaas node certificates`, `gpuaas node revoke-certificate`.

use std::cell::OnceCell;

use gpuaas_client::ApiClient;
use gpuaas_client::failure::Failure;
use gpuaas_client::output;
use gpuaas_client::terminal::{Style, Terminal};
use gpuaas_types::api::{CertificateState, NodeCertificates, RevokeCertificate};

use crate::args::{PlannedArgs, RevokeCertificateArgs, ShowArgs};
use crate::planned::Planned;

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
    let revocation = Planned {
        what: "revocation",
        name: |node: &NodeCertificates| &node.hostname,
        question,
        draw: table,
    };
    // What was shown is what is done, whoever has the name by then.
    let shown: OnceCell<String> = OnceCell::new();
    let ask = async |dry_run| {
        let PlannedArgs { who, reason, .. } = args.planned.clone();
        let asked = RevokeCertificate { actor: who.actor, reason, dry_run };
        let node = client.revoke_certificate(shown.get().unwrap_or(&args.node), &asked).await?;
        shown.get_or_init(|| node.node_id.to_string());
        Ok(node)
    };
    let done = revocation.carry_out(&args.planned, args.api.format, terminal, ask).await?;
    let Some(node) = done else { return Ok(()) };
    let hostname = &node.hostname;
    terminal.message(&format!(
        "{hostname}: the agent is rejected from now on; run `gpuaas node reimage {hostname}` to \
         issue a new certificate"
    ));
    output::print(terminal, args.api.format, &node, table)
}

fn question(node: &NodeCertificates, _: Style) -> String {
    let valid = node.certificates.iter().filter(|one| one.state == CertificateState::Valid);
    let (hostname, valid) = (&node.hostname, valid.count());
    format!(
        "{hostname}: {valid} certificates will be revoked, and the agent is rejected from its \
         next call"
    )
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
            style.moment(one.not_before),
            style.moment(one.not_after),
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
