//! `gpuaas token`.

use std::path::PathBuf;
use std::str::FromStr;

use clap::{Args, Subcommand};
use gpuaas_client::arguments::ApiArgs;
use gpuaas_types::access::{Role, RoleGrant};
use gpuaas_types::filter::{FilterList, ListFilter};

use super::key::MasterKeyArgs;
use super::shared::{ActorArgs, ListArgs, filter_of};

/// `gpuaas token`.
#[derive(Debug, Subcommand)]
pub enum TokenCommand {
    /// Create a token for a program, with the roles that it needs.
    Add(TokenAddArgs),
    /// List tokens of programs, without their secrets.
    List(TokenListArgs),
    /// Revoke a token; it is rejected from the next request.
    Revoke(TokenRevokeArgs),
    /// Replace the admin token; run on the control plane's host, without the API. The former token
    /// is revoked.
    Reset(TokenResetArgs),
    /// Show the identity and roles of the token in use.
    Whoami(ListArgs),
}

/// `gpuaas token add`.
#[derive(Debug, Clone, Args)]
pub struct TokenAddArgs {
    /// Name of the token's user, shown in the audit log.
    pub name: String,
    /// Role: viewer, operator, approver or admin, optionally with sites after @, such as
    /// `operator@lab,prod`. Repeat for more roles.
    #[arg(long = "role", value_name = "ROLE[@SITE,...]", required = true)]
    pub roles: Vec<GrantArgument>,
    /// File for the token, readable only by its owner; it must not exist yet. `-` is stdout.
    #[arg(long, value_name = "FILE")]
    pub to: PathBuf,
    /// Person who uses the token, for sites that require a second person [default: the token's
    /// creator].
    #[arg(long, value_name = "NAME")]
    pub person: Option<String>,
    /// Days until the token expires.
    #[arg(long, value_name = "DAYS", default_value_t = 90, value_parser = clap::value_parser!(u32).range(1..=3650))]
    pub expires_in_days: u32,
    /// Create a token that never expires.
    #[arg(long, conflicts_with = "expires_in_days")]
    pub no_end: bool,
    /// Reason, recorded in the audit log.
    #[arg(long, value_name = "TEXT")]
    pub reason: String,
    /// Connection and output options.
    #[command(flatten)]
    pub api: ApiArgs,
}

/// `gpuaas token revoke`.
#[derive(Debug, Clone, Args)]
pub struct TokenRevokeArgs {
    /// Name of the token.
    pub name: String,
    /// Reason, recorded in the audit log.
    #[arg(long, value_name = "TEXT")]
    pub reason: String,
    /// Connection and output options.
    #[command(flatten)]
    pub api: ApiArgs,
}

/// `gpuaas token reset`.
#[derive(Debug, Clone, Args)]
pub struct TokenResetArgs {
    /// Data folder of the control plane; the new token is written to its `admin-token`.
    #[arg(long, value_name = "DIR", default_value = "gpuaas-data")]
    pub data: PathBuf,
    /// Database of the control plane, as given to `gpuaas serve` [default: DATA/gpuaas.db].
    #[arg(long, value_name = "URL", env = "GPUAAS_DATABASE", hide_env_values = true)]
    pub database: Option<String>,
    /// Master key options.
    #[command(flatten)]
    pub master_key: MasterKeyArgs,
    /// Reason, recorded in the audit log.
    #[arg(long, value_name = "TEXT")]
    pub reason: String,
    /// Actor recorded for the change.
    #[command(flatten)]
    pub actor: ActorArgs,
}

/// `ROLE` or `ROLE@SITE,SITE`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GrantArgument(pub RoleGrant);

impl FromStr for GrantArgument {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (role, sites) = match text.split_once('@') {
            Some((role, sites)) => (role, Some(sites)),
            None => (text, None),
        };
        let role = role.parse().map_err(|_| {
            let all: Vec<&str> = Role::ALL.iter().map(|role| role.as_str()).collect();
            format!("expected one of {}", all.join(", "))
        })?;
        let sites = sites.map(|sites| sites.split(',').map(str::trim).map(str::to_owned).collect());
        let sites: Option<Vec<String>> = sites;
        if sites.iter().flatten().any(String::is_empty) {
            return Err("expected site names after @, such as operator@lab".to_owned());
        }
        Ok(Self(RoleGrant { role, sites }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_role_may_name_its_sites() {
        let parse = |text: &str| text.parse::<GrantArgument>().map(|grant| grant.0);
        let grant = |role, sites: Option<&[&str]>| RoleGrant {
            role,
            sites: sites.map(|names| names.iter().map(|name| (*name).to_owned()).collect()),
        };
        assert_eq!(parse("viewer"), Ok(grant(Role::Viewer, None)));
        assert_eq!(parse("operator@lab, prod"), Ok(grant(Role::Operator, Some(&["lab", "prod"]))));
        assert!(parse("operator@").is_err() && parse("operator@lab,").is_err());
        assert!(parse("root").unwrap_err().contains("viewer, operator, approver, admin"));
    }
}

/// `gpuaas token list`.
#[derive(Debug, Clone, Args)]
pub struct TokenListArgs {
    /// Filter expression, such as `revoked=false used<2026-11-01`: docs/reference/filters.md.
    #[arg(long, value_name = "FILTER", value_parser = filter_of(FilterList::Tokens))]
    pub filter: Option<ListFilter>,
    /// Refresh on every event and every ten seconds, until interrupted.
    #[arg(long)]
    pub watch: bool,
    /// Connection and output options.
    #[command(flatten)]
    pub api: ApiArgs,
}
