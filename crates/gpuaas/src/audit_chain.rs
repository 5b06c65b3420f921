//! `gpuaas audit verify` and `gpuaas audit export`: the audit log row by row, in the order of its
//! chain. Digests are computed here, of what the control plane sends or a file has.

use std::fs::File;
use std::io::{BufRead as _, BufReader};
use std::path::Path;

use gpuaas_client::ApiClient;
use gpuaas_client::failure::Failure;
use gpuaas_client::output;
use gpuaas_client::terminal::{Style, Terminal};
use gpuaas_core::audit_chain::ChainVerifier;
use gpuaas_types::audit::{
    AuditChainEnd, AuditChainPage, AuditFault, AuditVerdict, ChainedAuditRecord,
};
use gpuaas_types::codes::CommandCode;

use crate::args::{AuditExportArgs, AuditForm, AuditVerifyArgs};
use crate::audit_sink::AuditSink;
use crate::syslog;

const DAY_SECONDS: u64 = 86_400;
/// Rows that are asked for at once.
const PAGE_ROWS: u32 = 1000;
/// Where Linux says what this host is called (uname(2), `nodename`).
const HOSTNAME: &str = "/proc/sys/kernel/hostname";

/// `gpuaas audit verify`.
///
/// # Errors
/// `audit_tampered` where a row does not fit; `audit_export_failed` where the file cannot be read;
/// what the control plane refused.
pub(crate) async fn verify(args: AuditVerifyArgs, terminal: &mut Terminal) -> Result<(), Failure> {
    let AuditVerifyArgs { file, expect, api } = args;
    let verdict = match &file {
        Some(file) => verify_file(file, expect)?,
        None => verify_log(&ApiClient::from_args(&api)?, expect).await?,
    };
    output::print(terminal, api.format, &verdict, table)?;
    let Some(fault) = verdict.fault else { return Ok(()) };
    let row = match (fault.seq, fault.id) {
        (Some(seq), Some(id)) => format!("row {seq}, entry {id}"),
        (Some(seq), None) => format!("row {seq}"),
        (None, id) => format!("entry {}", id.unwrap_or_default()),
    };
    let detail = format!("{row} was {}: {}", fault.kind, fault.text);
    Err(Failure::local(CommandCode::AuditTampered, detail).hint(
        "copy the database now, and compare it with an earlier output of `gpuaas audit export` or \
         with a backup",
    ))
}

fn table(verdict: &AuditVerdict, style: Style) -> String {
    let fault = verdict.fault.as_ref();
    let fault =
        fault.map_or_else(|| "-".to_owned(), |fault| format!("{}: {}", fault.kind, fault.text));
    let end = |end: &AuditChainEnd| match end.seq {
        0 => "-".to_owned(),
        seq => format!("{seq}:{}", end.digest),
    };
    let oldest = verdict.oldest_at.map_or_else(|| "-".to_owned(), |at| at.to_string());
    let kept = match verdict.retention_seconds {
        Some(seconds) if seconds < DAY_SECONDS => format!("{seconds} s"),
        Some(seconds) => format!("{} days", seconds / DAY_SECONDS),
        None if verdict.oldest_at.is_some() => "ever".to_owned(),
        None => "-".to_owned(),
    };
    let rows = [
        vec!["intact".to_owned(), if verdict.intact { "yes" } else { "NO" }.to_owned()],
        vec!["rows".to_owned(), verdict.rows.to_string()],
        vec!["expired".to_owned(), verdict.expired.to_string()],
        vec!["begins after".to_owned(), end(&verdict.anchor)],
        vec!["last row".to_owned(), end(&verdict.head)],
        vec!["fault".to_owned(), fault],
        vec!["oldest entry".to_owned(), oldest],
        vec!["kept for".to_owned(), kept],
    ];
    output::table(style, &["WHAT", "VALUE"], rows)
}

fn verdict(found: Result<AuditVerdict, AuditFault>, rows: u64) -> AuditVerdict {
    found.unwrap_or_else(|fault| AuditVerdict {
        intact: false,
        rows,
        expired: 0,
        anchor: AuditChainEnd::default(),
        head: AuditChainEnd::default(),
        fault: Some(fault),
        retention_seconds: None,
        oldest_at: None,
    })
}

async fn verify_log(
    client: &ApiClient,
    expect: Option<AuditChainEnd>,
) -> Result<AuditVerdict, Failure> {
    let first = client.audit_chain(0, PAGE_ROWS).await?;
    let (retention_seconds, oldest_at) = (first.retention_seconds, first.oldest_at);
    let verdict = verify_rows(client, first, expect).await?;
    Ok(AuditVerdict { retention_seconds, oldest_at, ..verdict })
}

async fn verify_rows(
    client: &ApiClient,
    mut page: AuditChainPage,
    expect: Option<AuditChainEnd>,
) -> Result<AuditVerdict, Failure> {
    let mut rows = 0;
    let mut verifier = match ChainVerifier::new(&page.anchor, expect) {
        Ok(verifier) => verifier,
        Err(fault) => return Ok(verdict(Err(fault), rows)),
    };
    loop {
        for row in &page.items {
            rows += 1;
            if let Err(fault) = verifier.check(row) {
                return Ok(verdict(Err(fault), rows));
            }
        }
        // What is written meanwhile is behind the rows that were read: asked for once more.
        let is_end = page.items.is_empty() || page.head.seq <= verifier.seq();
        if page.next.is_none() && is_end {
            return Ok(verdict(verifier.finish(&page.head, &page.strays), rows));
        }
        page = client.audit_chain(verifier.seq(), PAGE_ROWS).await?;
    }
}

fn verify_file(file: &Path, expect: Option<AuditChainEnd>) -> Result<AuditVerdict, Failure> {
    let unreadable = |detail: String| {
        let detail = format!("{}: {detail}", file.display());
        Failure::local(CommandCode::AuditExportFailed, detail)
            .hint("use a file written by `gpuaas audit export --form json-lines --to FILE`")
    };
    let lines = File::open(file).map_err(|error| unreadable(error.to_string()))?;
    let mut begun: Option<ChainVerifier> = None;
    let (mut rows, mut head) = (0, AuditChainEnd::default());
    for line in BufReader::new(lines).lines() {
        let line = line.map_err(|error| unreadable(error.to_string()))?;
        rows += 1;
        let row: ChainedAuditRecord = serde_json::from_str(&line)
            .map_err(|error| unreadable(format!("line {rows}: {error}")))?;
        let verifier = begun.get_or_insert_with(|| ChainVerifier::from_row(&row, expect.clone()));
        if let Err(fault) = verifier.check(&row) {
            return Ok(verdict(Err(fault), rows));
        }
        head = AuditChainEnd { seq: row.seq, digest: row.digest };
    }
    let verifier = begun.ok_or_else(|| unreadable("the file is empty".to_owned()))?;
    Ok(verdict(verifier.finish(&head, &[]), rows))
}

/// `gpuaas audit export`.
///
/// # Errors
/// `audit_export_failed`; what the control plane refused.
pub(crate) async fn export(args: AuditExportArgs, terminal: &mut Terminal) -> Result<(), Failure> {
    let client = ApiClient::connect(&args.connection)?;
    let hostname = match args.hostname {
        Some(name) => name,
        None => std::fs::read_to_string(HOSTNAME).unwrap_or_default(),
    };
    let mut sink = AuditSink::open(&args.to).await?;
    let (mut after, mut rows) = (args.after, 0_u64);
    loop {
        let page = client.audit_chain(after, PAGE_ROWS).await?;
        for item in &page.items {
            let text = match args.form {
                AuditForm::JsonLines => Some(json_line(item)?),
                AuditForm::Syslog => syslog::message(item, &hostname),
            };
            if let Some(text) = text {
                let sent = sink.send(&args.to, args.form, &text, terminal).await;
                sent.inspect_err(|_| terminal.message(&next(after)))?;
                rows += 1;
            }
            after = item.seq;
        }
        if page.next.is_none() {
            break;
        }
    }
    sink.close(&args.to).await?;
    terminal.message(&format!("wrote {rows} rows; {}", next(after)));
    Ok(())
}

fn next(after: i64) -> String {
    format!("continue with --after {after}")
}

fn json_line(item: &ChainedAuditRecord) -> Result<String, Failure> {
    serde_json::to_string(item)
        .map_err(|error| Failure::local(CommandCode::AnswerUnprintable, error.to_string()))
}
