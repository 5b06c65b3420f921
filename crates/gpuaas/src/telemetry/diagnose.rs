//! `gpuaas node telemetry`: where a fault of a node's telemetry is, as the control plane sees it.

use gpuaas_client::ApiClient;
use gpuaas_client::failure::{Exit, Failure};
use gpuaas_client::output;
use gpuaas_client::terminal::{Style, Terminal};
use gpuaas_types::telemetry::{TelemetryReport, TelemetryVerdict};

use crate::args::ShowArgs;

/// Runs the command.
///
/// # Errors
/// What the control plane refuses, or that it does not answer; the verdict, unless it is `ok`.
pub async fn run(args: &ShowArgs, terminal: &mut Terminal) -> Result<(), Failure> {
    let report = ApiClient::from_args(&args.api)?.telemetry(&args.name).await?;
    output::print(terminal, args.api.format, &report, draw)?;
    if report.verdict == TelemetryVerdict::Ok {
        return Ok(());
    }
    let detail = format!("{}: {}", report.hostname, report.text);
    let title = "Cannot read the telemetry of the node";
    Err(Failure::coded(Exit::Parked, report.verdict.as_str(), title, detail)
        .hint(&report.next_action))
}

fn draw(report: &TelemetryReport, style: Style) -> String {
    let address = match (&report.address, &report.address_from) {
        (Some(address), Some(from)) => format!("{address}, according to {from}"),
        _ => String::new(),
    };
    let gate = report.gate.as_ref().map_or_else(
        || "never reported by the agent".to_owned(),
        |gate| {
            let red: Vec<&str> = gate.failing.iter().map(|check| check.name.as_str()).collect();
            let (word, age) = (if gate.open { "open" } else { "closed" }, gate.age_seconds);
            let red = if red.is_empty() { String::new() } else { format!(": {}", red.join(", ")) };
            format!("{word}, reported {age:.0} s ago{red}")
        },
    );
    let mut text = output::fields(&[
        ("node", report.hostname.clone()),
        ("address", address),
        ("in its bundles", if report.expected { "yes" } else { "no" }.to_owned()),
        ("agent's gate", gate),
        ("verdict", format!("{}: {}", report.verdict.as_str(), report.text)),
        ("next", report.next_action.clone()),
    ]);
    text.push('\n');
    let rows = report.probes.iter().map(|probe| {
        let word = if probe.passed { "good" } else { "not good" };
        vec![probe.name.clone(), word.to_owned(), probe.expected.clone(), probe.seen.clone()]
    });
    text.push_str(&output::table(style, &["LOOKED AT", "IS", "EXPECTED", "SEEN"], rows));
    text
}

#[cfg(test)]
mod tests {
    use axum::routing::get;
    use axum::{Json, Router};
    use gpuaas_types::agent::GateCheck;
    use gpuaas_types::telemetry::{TelemetryGate, TelemetryProbe};
    use gpuaas_types::{NodeId, Timestamp};
    use uuid::Uuid;

    use super::*;
    use crate::args::{ApiArgs, ConnectionArgs, Format};

    fn report(verdict: TelemetryVerdict) -> TelemetryReport {
        let probe = |name: &str, passed, seen: &str| TelemetryProbe {
            name: name.to_owned(),
            passed,
            expected: "as it should".to_owned(),
            seen: seen.to_owned(),
        };
        let red = GateCheck {
            name: "unit nginx.service".to_owned(),
            passed: false,
            expected: "active".to_owned(),
            seen: "failed".to_owned(),
            reason: String::new(),
            blocks: Vec::new(),
        };
        TelemetryReport {
            node_id: NodeId(Uuid::from_u128(7)),
            hostname: "j22u11".to_owned(),
            expected: true,
            address: Some("10.177.36.171:19999".to_owned()),
            address_from: Some("MAAS, interface eno1".to_owned()),
            probes: vec![
                probe("maas", true, "Deployed, power on, as of 12 s ago"),
                probe("connect", false, "connection refused"),
            ],
            gate: Some(TelemetryGate {
                open: false,
                said_at: Timestamp::EPOCH,
                age_seconds: 41.5,
                failing: vec![red],
            }),
            verdict,
            text: "10.177.36.171 answers, and nothing listens on port 19999".to_owned(),
            next_action: "gpuaas node converge-telemetry --host 10.177.36.171 --user ubuntu"
                .to_owned(),
        }
    }

    async fn asked(verdict: TelemetryVerdict, format: Format) -> (String, Result<(), Failure>) {
        let answer = move || async move { Json(report(verdict)) };
        let router = Router::new().route("/api/v1/nodes/j22u11/telemetry", get(answer));
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let server = format!("http://{}", listener.local_addr().unwrap());
        tokio::spawn(async move { axum::serve(listener, router).await.unwrap() });
        let (server, token) = (Some(server), Some("t".to_owned()));
        let connection = ConnectionArgs { server, token, ..ConnectionArgs::default() };
        let api = ApiArgs { format, connection };
        let (mut terminal, said) = Terminal::captured();
        let ended = run(&ShowArgs { name: "j22u11".to_owned(), api }, &mut terminal).await;
        (said.stdout(), ended)
    }

    #[tokio::test]
    async fn a_fault_is_drawn_and_ends_the_command_with_its_code() {
        let (said, ended) = asked(TelemetryVerdict::TelemetryEdgeDown, Format::Table).await;
        let failure = ended.unwrap_err();
        assert_eq!((failure.exit, failure.code()), (Exit::Parked, "telemetry_edge_down"));
        assert!(failure.problem.hint.starts_with("gpuaas node converge-telemetry --host "));
        insta::assert_snapshot!(said);
        let (said, ended) = asked(TelemetryVerdict::Ok, Format::Json).await;
        assert_eq!(ended, Ok(()));
        let printed: TelemetryReport = serde_json::from_str(&said).unwrap();
        assert_eq!(printed, report(TelemetryVerdict::Ok));
    }
}
