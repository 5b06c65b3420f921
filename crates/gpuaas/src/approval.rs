//! `gpuaas approval`: what waits for another person, and that person's word.

use gpuaas_client::ApiClient;
use gpuaas_client::failure::{Exit, Failure};
use gpuaas_client::output;
use gpuaas_client::terminal::{Style, Terminal};
use gpuaas_types::api::List;
use gpuaas_types::approval::{ApprovalDecision, ApprovalState, ApprovalView};
use gpuaas_types::codes::CommandCode;

use crate::args::{ApprovalApproveArgs, ApprovalCommand};
use crate::confirm::confirm;
use crate::watch::print_list;

/// Runs the command.
///
/// # Errors
/// What the control plane refuses, or that it does not answer; what was agreed to and not done.
pub(crate) async fn run(command: ApprovalCommand, terminal: &mut Terminal) -> Result<(), Failure> {
    match command {
        ApprovalCommand::List(args) => {
            let client = ApiClient::from_args(&args.api)?;
            let ask = async || client.approvals(args.site.as_deref(), !args.all).await;
            print_list((&client, &args.api), args.watch, terminal, ask, table).await
        }
        ApprovalCommand::Show(args) => {
            let approval = ApiClient::from_args(&args.api)?.approval(&args.name).await?;
            output::print(terminal, args.api.format, &approval, draw)
        }
        ApprovalCommand::Approve(args) => approve(args, terminal).await,
        ApprovalCommand::Deny(args) => {
            let body = ApprovalDecision { actor: args.who.actor, reason: args.reason };
            let client = ApiClient::from_args(&args.api)?;
            let approval = client.decide_approval(&args.id, "deny", &body).await?;
            output::print(terminal, args.api.format, &approval, draw)
        }
    }
}

async fn approve(args: ApprovalApproveArgs, terminal: &mut Terminal) -> Result<(), Failure> {
    let ApprovalApproveArgs { id, planned, api } = args;
    let client = ApiClient::from_args(&api)?;
    let asked = client.approval(&id).await?;
    if planned.dry_run {
        return output::print(terminal, api.format, &asked, draw);
    }
    terminal.message(&draw(&asked, terminal.style()));
    if !planned.yes {
        confirm(asked.node.as_deref().unwrap_or(&asked.site), "approval", terminal)?;
    }
    let body = ApprovalDecision { actor: planned.who.actor, reason: planned.reason };
    let approval = client.decide_approval(&asked.id.to_string(), "approve", &body).await?;
    output::print(terminal, api.format, &approval, draw)?;
    if approval.state == ApprovalState::Done {
        return Ok(());
    }
    let text = |member: &str| {
        let answer = approval.answer.as_ref().and_then(|answer| answer.get(member));
        answer.and_then(serde_json::Value::as_str).unwrap_or_default().to_owned()
    };
    let detail = format!("{}: {} {}", approval.summary, text("code"), text("detail"));
    Err(Failure::new(Exit::Refused, CommandCode::ApprovalNotCarriedOut, detail.trim_end()).hint(
        format!(
            "run `gpuaas approval show {}` for details, then send the request again",
            approval.id
        ),
    ))
}

fn table(list: &List<ApprovalView>, style: Style) -> String {
    let rows = list.items.iter().map(|one| {
        vec![
            one.id.to_string(),
            one.site.clone(),
            one.state.to_string(),
            one.requested_by.clone(),
            style.moment(one.requested_at),
            one.summary.clone(),
        ]
    });
    let header = ["APPROVAL", "SITE", "STATE", "ASKED BY", "ASKED", "WHAT"];
    output::table_dropping(style, &header, &["ASKED", "SITE"], rows)
}

fn draw(one: &ApprovalView, style: Style) -> String {
    let at = |moment: Option<gpuaas_types::Timestamp>| {
        moment.map(|at| style.exact_moment(at)).unwrap_or_default()
    };
    let request = one.request.as_ref().map(|request| {
        let body = serde_json::to_string(&request.body).unwrap_or_default();
        let path = match request.path.split_once('{') {
            Some((before, rest)) => {
                let after = rest.split_once('}').map_or("", |(_, after)| after);
                format!("{before}{}{after}", request.key)
            }
            None => request.path.clone(),
        };
        (format!("{} {path}", request.method), body)
    });
    let (request, body) = request.unwrap_or_default();
    let answer = one.answer.as_ref().map(ToString::to_string).unwrap_or_default();
    output::fields(&[
        ("what", one.summary.clone()),
        ("state", one.state.to_string()),
        ("site", one.site.clone()),
        ("node", one.node.clone().unwrap_or_default()),
        ("requested by", one.requested_by.clone()),
        ("reason", one.reason.clone()),
        ("requested", style.exact_moment(one.requested_at)),
        ("expires", style.exact_moment(one.expires_at)),
        ("request", request),
        ("body", body),
        ("digest", one.digest.clone()),
        ("decided by", one.decided_by.clone().unwrap_or_default()),
        ("decided", at(one.decided_at)),
        ("decision reason", one.decision_reason.clone().unwrap_or_default()),
        ("answer", answer),
        ("id", one.id.to_string()),
    ])
}
