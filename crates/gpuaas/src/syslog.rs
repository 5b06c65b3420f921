//! Rows of the audit log as syslog messages (RFC 5424), for whoever collects these.

use gpuaas_types::audit::{AuditRecord, ChainedAuditRecord};

/// Facility `log audit` (RFC 5424, section 6.2.1).
const FACILITY: u8 = 13;
const NOTICE: u8 = 5;
const WARNING: u8 = 4;
/// Name of the structured data. 32473 is the number for examples (RFC 5612): this project has none
/// of its own.
const DATA_NAME: &str = "audit@32473";
/// Most characters of a host's name, of the action.
const HOSTNAME_CHARS: usize = 255;
const MESSAGE_ID_CHARS: usize = 32;

/// The message of a row; none: its record is gone.
pub(crate) fn message(row: &ChainedAuditRecord, hostname: &str) -> Option<String> {
    let record = row.record.as_ref()?;
    let severity = if record.result == "done" { NOTICE } else { WARNING };
    let priority = FACILITY * 8 + severity;
    let (host, action) =
        (header(hostname, HOSTNAME_CHARS), header(&record.action, MESSAGE_ID_CHARS));
    let data = structured_data(row, record);
    let detail = &record.detail;
    Some(format!("<{priority}>1 {} {host} gpuaas - {action} {data} {detail}", record.at))
}

fn structured_data(row: &ChainedAuditRecord, record: &AuditRecord) -> String {
    let (seq, id) = (row.seq.to_string(), record.id.to_string());
    let node_id = record.node_id.map(|id| id.to_string());
    let members = [
        ("seq", Some(seq.as_str())),
        ("id", Some(&id)),
        ("digest", Some(&row.digest)),
        ("rowDigest", Some(&row.row_digest)),
        ("actor", Some(&record.actor)),
        ("role", record.role.as_deref()),
        ("address", record.address.as_deref()),
        ("subject", Some(&record.subject)),
        ("node", node_id.as_deref()),
        ("site", record.site.as_deref()),
        ("before", record.before.as_deref()),
        ("after", record.after.as_deref()),
        ("result", Some(&record.result)),
        ("request", record.request_id.as_deref()),
    ];
    let mut text = format!("[{DATA_NAME}");
    for (name, value) in members {
        if let Some(value) = value {
            text.push_str(&format!(" {name}=\"{}\"", escaped(value)));
        }
    }
    text.push(']');
    text
}

/// A value of structured data: `"`, `\` and `]` behind a backslash, and nothing that controls a
/// terminal or ends a line.
fn escaped(value: &str) -> String {
    let mut text = String::with_capacity(value.len());
    for c in value.chars() {
        match c {
            '"' | '\\' | ']' => text.extend(['\\', c]),
            c if gpuaas_types::text::is_invisible(c) => text.push('\u{fffd}'),
            c => text.push(c),
        }
    }
    text
}

/// A field of the header: printable ASCII without spaces, `-` where there is nothing.
fn header(value: &str, chars: usize) -> String {
    let printable = |c: char| if c.is_ascii_graphic() { c } else { '?' };
    let text: String = value.trim().chars().map(printable).take(chars).collect();
    if text.is_empty() { "-".to_owned() } else { text }
}

#[cfg(test)]
mod tests {
    use gpuaas_types::Timestamp;
    use serde_json::json;

    use super::*;

    fn row() -> ChainedAuditRecord {
        ChainedAuditRecord {
            seq: 7,
            row_digest: "aa".to_owned(),
            digest: "bb".to_owned(),
            expired: None,
            record: Some(AuditRecord {
                id: 9,
                at: Timestamp::from_micros(1_795_190_400_123_456),
                actor: "ann \"]\\\n\u{1b}[2J".to_owned(),
                role: Some("operator".to_owned()),
                address: Some("192.0.2.7".to_owned()),
                action: "run.resume".to_owned(),
                subject: "j22u11".to_owned(),
                node_id: None,
                site: None,
                before: None,
                after: None,
                result: "done".to_owned(),
                request_id: Some("r1".to_owned()),
                detail: json!({ "reason": "one\ntwo" }),
            }),
        }
    }

    #[test]
    fn a_message_is_one_line_that_nobody_can_break_out_of() {
        let expected = "<109>1 2026-11-20T16:00:00.123456Z plane-1 gpuaas - run.resume \
             [audit@32473 seq=\"7\" id=\"9\" digest=\"bb\" rowDigest=\"aa\" \
             actor=\"ann \\\"\\]\\\\\u{fffd}\u{fffd}[2J\" role=\"operator\" address=\"192.0.2.7\" \
             subject=\"j22u11\" result=\"done\" request=\"r1\"] {\"reason\":\"one\\ntwo\"}";
        assert_eq!(message(&row(), "plane-1").unwrap(), expected);
    }

    #[test]
    fn what_was_refused_warns_and_what_is_gone_has_no_message() {
        let mut row = row();
        row.record.as_mut().unwrap().result = "token_unknown".to_owned();
        assert!(message(&row, "a b").unwrap().starts_with("<108>1 "));
        assert!(message(&row, "a b").unwrap().contains(" a?b gpuaas "));
        assert!(message(&row, "").unwrap().contains("Z - gpuaas "));
        row.record = None;
        assert_eq!(message(&row, "h"), None);
    }
}
