//! `gpuaas audit`.

use std::path::PathBuf;

use clap::{Args, Subcommand, ValueEnum};
use gpuaas_client::arguments::{ApiArgs, ConnectionArgs};
use gpuaas_core::audit_chain::parse_digest;
use gpuaas_types::Timestamp;
use gpuaas_types::audit::AuditChainEnd;
use gpuaas_types::filter::{FilterList, ListFilter};

use super::shared::filter_of;

/// `gpuaas audit`.
#[derive(Debug, Subcommand)]
pub enum AuditCommand {
    /// List who did what, newest first.
    List(AuditListArgs),
    /// Check that no row was changed, removed or inserted, and show the first that was.
    Verify(AuditVerifyArgs),
    /// Export the log as verifiable JSON lines or as syslog messages.
    Export(AuditExportArgs),
}

/// `gpuaas audit verify`.
#[derive(Debug, Clone, Args)]
pub struct AuditVerifyArgs {
    /// Verify a file written by `gpuaas audit export`, without contacting a control plane.
    #[arg(long, value_name = "FILE")]
    pub file: Option<PathBuf>,
    /// Row shown by an earlier verification; the log must still contain it unchanged.
    #[arg(long, value_name = "SEQ:DIGEST", value_parser = chain_end)]
    pub expect: Option<AuditChainEnd>,
    /// Connection and output options.
    #[command(flatten)]
    pub api: ApiArgs,
}

/// `gpuaas audit export`.
#[derive(Debug, Clone, Args)]
pub struct AuditExportArgs {
    /// Only rows after this one in the chain.
    #[arg(long, value_name = "SEQ", default_value_t = 0)]
    pub after: i64,
    /// Format of the rows.
    #[arg(long, value_enum, default_value_t = AuditForm::JsonLines)]
    pub form: AuditForm,
    /// Target: a file to append to, udp://HOST:PORT, tcp://HOST:PORT, or - for stdout.
    #[arg(long, value_name = "TARGET", default_value = "-", value_parser = target)]
    pub to: AuditTarget,
    /// Hostname in syslog messages [default: this system's hostname].
    #[arg(long, value_name = "NAME")]
    pub hostname: Option<String>,
    /// Connection options.
    #[command(flatten)]
    pub connection: ConnectionArgs,
}

/// Format of exported rows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum AuditForm {
    /// One JSON object per row.
    JsonLines,
    /// RFC 5424 messages.
    Syslog,
}

/// Target of exported rows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AuditTarget {
    /// Standard output of the command.
    Stdout,
    /// A file to append to, created if missing.
    File(PathBuf),
    /// UDP receiver, HOST:PORT; one row per datagram.
    Udp(String),
    /// TCP receiver, HOST:PORT, of octet-counted syslog (RFC 6587) or JSON lines.
    Tcp(String),
}

/// `gpuaas audit list`.
#[derive(Debug, Clone, Args)]
pub struct AuditListArgs {
    /// Only actions on this site, its nodes or its batches; works for removed sites, too.
    #[arg(long)]
    pub site: Option<String>,
    /// Only actions on this node or its runs: hostname, node ID, MAAS system ID or MAC.
    #[arg(long, value_name = "HOST")]
    pub node: Option<String>,
    /// Only actions by this actor.
    #[arg(long, value_name = "NAME")]
    pub actor: Option<String>,
    /// Only actions since this time: 2026-11-23, or 2026-11-23T14:05:00Z.
    #[arg(long, value_name = "WHEN", value_parser = moment)]
    pub since: Option<Timestamp>,
    /// Filter expression, such as `action~node. result!=done`: docs/reference/filters.md.
    #[arg(long, value_name = "FILTER", value_parser = filter_of(FilterList::Audit))]
    pub filter: Option<ListFilter>,
    /// Refresh on every event and every ten seconds, until interrupted.
    #[arg(long)]
    pub watch: bool,
    /// Paging options.
    #[command(flatten)]
    pub page: PageArgs,
    /// Connection and output options.
    #[command(flatten)]
    pub api: ApiArgs,
}

/// `gpuaas node timeline`.
#[derive(Debug, Clone, Args)]
pub struct NodeTimelineArgs {
    /// Hostname, node ID, MAAS system ID or MAC.
    #[arg(value_name = "HOST")]
    pub node: String,
    /// Paging options.
    #[command(flatten)]
    pub page: PageArgs,
    /// Connection and output options.
    #[command(flatten)]
    pub api: ApiArgs,
}

/// Paging options of a list with numbered items.
#[derive(Debug, Clone, Args)]
pub struct PageArgs {
    /// Only items after this one.
    #[arg(long, value_name = "ID")]
    pub after: Option<i64>,
    /// Maximum number of items.
    #[arg(long, value_name = "N", default_value_t = 100)]
    pub limit: u32,
}

impl PageArgs {
    /// Query parameters.
    #[must_use]
    pub fn query(&self) -> [(&'static str, Option<String>); 2] {
        [("after", self.after.map(|id| id.to_string())), ("limit", Some(self.limit.to_string()))]
    }
}

fn target(text: &str) -> Result<AuditTarget, String> {
    let address = |text: &str| match text.rsplit_once(':') {
        Some((host, port)) if !host.is_empty() && port.parse::<u16>().is_ok() => {
            Ok(text.to_owned())
        }
        _ => Err("expected udp://HOST:PORT or tcp://HOST:PORT".to_owned()),
    };
    match text.split_once("://") {
        Some(("udp", text)) => address(text).map(AuditTarget::Udp),
        Some(("tcp", text)) => address(text).map(AuditTarget::Tcp),
        Some(_) => Err("expected a file, udp://HOST:PORT, tcp://HOST:PORT or -".to_owned()),
        None if text == "-" => Ok(AuditTarget::Stdout),
        None => Ok(AuditTarget::File(PathBuf::from(text))),
    }
}

fn chain_end(text: &str) -> Result<AuditChainEnd, String> {
    let end = text.split_once(':').and_then(|(seq, digest)| {
        parse_digest(digest)?;
        Some(AuditChainEnd { seq: seq.parse().ok()?, digest: digest.to_ascii_lowercase() })
    });
    end.ok_or_else(|| "expected SEQ:DIGEST, the last row of `gpuaas audit verify`".to_owned())
}

fn moment(text: &str) -> Result<Timestamp, String> {
    Timestamp::from_rfc3339(text)
        .or_else(|| Timestamp::from_rfc3339(&format!("{text}T00:00:00Z")))
        .ok_or_else(|| {
            "expected a date or time, such as 2026-11-23 or 2026-11-23T14:05:00Z".to_owned()
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_day_begins_at_midnight_of_utc() {
        assert_eq!(moment("2026-11-23"), moment("2026-11-23T01:00:00+01:00"));
        assert!(moment("2026-11-23T14:05:00Z") > moment("2026-11-23"));
        assert!(moment("yesterday").is_err());
    }

    #[test]
    fn targets_are_told_apart() {
        assert_eq!(target("-"), Ok(AuditTarget::Stdout));
        assert_eq!(target("a/b"), Ok(AuditTarget::File("a/b".into())));
        assert_eq!(target("udp://[::1]:514"), Ok(AuditTarget::Udp("[::1]:514".to_owned())));
        assert_eq!(target("tcp://h:6514"), Ok(AuditTarget::Tcp("h:6514".to_owned())));
        for refused in ["tcp://h", "udp://:514", "http://h:1", "tcp://h:x"] {
            assert!(target(refused).is_err(), "{refused}");
        }
        assert!(chain_end(&format!("7:{}", "ab".repeat(32))).is_ok_and(|end| end.seq == 7));
        assert!(chain_end("7").is_err() && chain_end("7:abc").is_err());
    }
}
