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
    /// Make a credential for a program, with the roles that it needs.
    Add(TokenAddArgs),
    /// List the credentials of programs; never their secrets.
    List(TokenListArgs),
    /// End a credential: it is refused from the next request on.
    Revoke(TokenRevokeArgs),
    /// Make another admin token on the control plane's host, without the API; the one before ends.
    Reset(TokenResetArgs),
    /// Show whose credential this command uses, and what it may do.
    Whoami(ListArgs),
}

/// `gpuaas token add`.
#[derive(Debug, Clone, Args)]
pub struct TokenAddArgs {
    /// Name of whoever gets it; the audit shows it.
    pub name: String,
    /// What it may do: viewer, operator, approver or admin; after @ the sites, such as
    /// `operator@lab,prod`. Repeat it for several roles.
    #[arg(long = "role", value_name = "ROLE[@SITE,...]", required = true)]
    pub roles: Vec<GrantArgument>,
    /// File that gets the token, for its owner alone; it must not exist. `-` is stdout.
    #[arg(long, value_name = "FILE")]
    pub to: PathBuf,
    /// The person who uses it, where a site wants a second person's word [default: whoever makes it].
    #[arg(long, value_name = "NAME")]
    pub person: Option<String>,
    /// Days after which it is refused.
    #[arg(long, value_name = "DAYS", default_value_t = 90, value_parser = clap::value_parser!(u32).range(1..=3650))]
    pub expires_in_days: u32,
    /// Let it have no end.
    #[arg(long, conflicts_with = "expires_in_days")]
    pub no_end: bool,
    /// Why; kept in the audit.
    #[arg(long, value_name = "TEXT")]
    pub reason: String,
    /// Where to ask and how to print.
    #[command(flatten)]
    pub api: ApiArgs,
}

/// `gpuaas token revoke`.
#[derive(Debug, Clone, Args)]
pub struct TokenRevokeArgs {
    /// Name of the token.
    pub name: String,
    /// Why; kept in the audit.
    #[arg(long, value_name = "TEXT")]
    pub reason: String,
    /// Where to ask and how to print.
    #[command(flatten)]
    pub api: ApiArgs,
}

/// `gpuaas token reset`.
#[derive(Debug, Clone, Args)]
pub struct TokenResetArgs {
    /// Data folder of the control plane; its `admin-token` gets the new one.
    #[arg(long, value_name = "DIR", default_value = "gpuaas-data")]
    pub data: PathBuf,
    /// Its database, as `gpuaas serve` is started with [default: DATA/gpuaas.db].
    #[arg(long, value_name = "URL", env = "GPUAAS_DATABASE", hide_env_values = true)]
    pub database: Option<String>,
    /// Its master keys.
    #[command(flatten)]
    pub master_key: MasterKeyArgs,
    /// Why; kept in the audit.
    #[arg(long, value_name = "TEXT")]
    pub reason: String,
    /// Who does so.
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
            format!("a role is one of {}", all.join(", "))
        })?;
        let sites = sites.map(|sites| sites.split(',').map(str::trim).map(str::to_owned).collect());
        let sites: Option<Vec<String>> = sites;
        if sites.iter().flatten().any(String::is_empty) {
            return Err("expected the names of sites after @, such as operator@lab".to_owned());
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
    /// Only what this lets pass, such as `revoked=false used<2026-11-01`: docs/reference/filters.md.
    #[arg(long, value_name = "FILTER", value_parser = filter_of(FilterList::Tokens))]
    pub filter: Option<ListFilter>,
    /// Look again whenever something happens, and every ten seconds, until interrupted.
    #[arg(long)]
    pub watch: bool,
    /// Where to ask and how to print.
    #[command(flatten)]
    pub api: ApiArgs,
}
