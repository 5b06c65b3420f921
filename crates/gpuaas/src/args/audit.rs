//! `gpuaas audit`.

use clap::{Args, Subcommand};
use gpuaas_client::arguments::ApiArgs;
use gpuaas_types::Timestamp;

/// `gpuaas audit`.
#[derive(Debug, Subcommand)]
pub enum AuditCommand {
    /// List who did what, the newest first.
    List(AuditListArgs),
}

/// `gpuaas audit list`.
#[derive(Debug, Clone, Args)]
pub struct AuditListArgs {
    /// Only what was done to this site, its nodes or its batches; it may be removed by now.
    #[arg(long)]
    pub site: Option<String>,
    /// Only what was done to this node or its runs: hostname, node id, MAAS system id or MAC.
    #[arg(long, value_name = "HOST")]
    pub node: Option<String>,
    /// Only what this actor did.
    #[arg(long, value_name = "NAME")]
    pub actor: Option<String>,
    /// Only what was done then or later: 2026-11-23, or 2026-11-23T14:05:00Z.
    #[arg(long, value_name = "WHEN", value_parser = moment)]
    pub since: Option<Timestamp>,
    /// Which page of the list.
    #[command(flatten)]
    pub page: PageArgs,
    /// Where to ask and how to print.
    #[command(flatten)]
    pub api: ApiArgs,
}

/// `gpuaas node timeline`.
#[derive(Debug, Clone, Args)]
pub struct NodeTimelineArgs {
    /// Hostname, node id, MAAS system id or MAC.
    #[arg(value_name = "HOST")]
    pub node: String,
    /// Which page of the list.
    #[command(flatten)]
    pub page: PageArgs,
    /// Where to ask and how to print.
    #[command(flatten)]
    pub api: ApiArgs,
}

/// A page of a list whose items have numbers.
#[derive(Debug, Clone, Args)]
pub struct PageArgs {
    /// Only what comes after this item in the list.
    #[arg(long, value_name = "ID")]
    pub after: Option<i64>,
    /// How many at most.
    #[arg(long, value_name = "N", default_value_t = 100)]
    pub limit: u32,
}

impl PageArgs {
    /// The parameters of the query.
    #[must_use]
    pub fn query(&self) -> [(&'static str, Option<String>); 2] {
        [("after", self.after.map(|id| id.to_string())), ("limit", Some(self.limit.to_string()))]
    }
}

fn moment(text: &str) -> Result<Timestamp, String> {
    Timestamp::from_rfc3339(text)
        .or_else(|| Timestamp::from_rfc3339(&format!("{text}T00:00:00Z")))
        .ok_or_else(|| "write it as 2026-11-23, or as 2026-11-23T14:05:00Z".to_owned())
}

#[cfg(test)]
mod tests {
    use super::moment;

    #[test]
    fn a_day_begins_at_midnight_of_utc() {
        assert_eq!(moment("2026-11-23"), moment("2026-11-23T01:00:00+01:00"));
        assert!(moment("2026-11-23T14:05:00Z") > moment("2026-11-23"));
        assert!(moment("yesterday").is_err());
    }
}
