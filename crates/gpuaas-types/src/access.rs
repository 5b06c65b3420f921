//! Who may do what: the roles, what each operation of the admin API asks for, and the tokens of
//! programs.
//!
//! [`OPERATIONS`] is the whole of it: an address that is not in the table opens to nobody.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::SecretText;
use crate::ids::TokenId;
use crate::string_enum::string_enum;
use crate::text;
use crate::time::Timestamp;

string_enum! {
    /// What somebody may do. Each role may also look at everything.
    Role {
        /// Look, and change nothing.
        Viewer = "viewer",
        /// Bring nodes into service and out of it, and keep their runs going.
        Operator = "operator",
        /// Say which bundles and agents may run on hosts, and which slots may be leased.
        Approver = "approver",
        /// Everything, credentials and sites among it.
        Admin = "admin",
    }
}

impl Role {
    /// Whether whoever has this role may do what `needed` may.
    #[must_use]
    pub fn includes(self, needed: Self) -> bool {
        matches!((self, needed), (Self::Admin, _) | (_, Self::Viewer)) || self == needed
    }
}

/// A role, and where it holds.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct RoleGrant {
    /// The role.
    pub role: Role,
    /// Names of the sites where it holds; none: everywhere.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1))]
    pub sites: Option<Vec<String>>,
}

impl RoleGrant {
    /// Whether the role holds at `site`; none: at every site.
    #[must_use]
    pub fn holds_at(&self, site: Option<&str>) -> bool {
        match (&self.sites, site) {
            (None, _) => true,
            (Some(sites), Some(site)) => sites.iter().any(|name| name == site),
            (Some(_), None) => false,
        }
    }
}

/// What decides at which site a role has to hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scope {
    /// Nothing: what is touched is the same for every site, or each caller sees of it what is of its
    /// sites.
    Shared,
    /// What is touched concerns every site, so the role has to hold everywhere.
    Everywhere,
    /// The site that the path names.
    SiteOfPath,
    /// The site of the node that the path names.
    SiteOfNode,
    /// The site of the run that the path names.
    SiteOfRun,
    /// The site of the task that the path names.
    SiteOfTask,
    /// The site of the batch that the path names.
    SiteOfBatch,
    /// The site of the claim that the path names.
    SiteOfClaim,
    /// The site of the approval that the path names.
    SiteOfApproval,
    /// The site of the experiment that the path names.
    SiteOfExperiment,
    /// The `site` of the query; without one, the role has to hold everywhere.
    SiteOfQuery,
    /// The site that the body names.
    SiteOfBody,
}

impl Scope {
    /// Where the role has to hold, for people.
    #[must_use]
    pub const fn text(self) -> &'static str {
        match self {
            Self::Shared => "at any site",
            Self::Everywhere => "everywhere",
            Self::SiteOfPath => "at the site",
            Self::SiteOfNode => "at the node's site",
            Self::SiteOfRun => "at the run's site",
            Self::SiteOfTask => "at the task's site",
            Self::SiteOfBatch => "at the batch's site",
            Self::SiteOfClaim => "at the claim's site",
            Self::SiteOfApproval => "at the approval's site",
            Self::SiteOfExperiment => "at the experiment's site",
            Self::SiteOfQuery => "at the site in the query, or everywhere if it names none",
            Self::SiteOfBody => "at the site in the request body",
        }
    }
}

/// A row of [`OPERATIONS`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OperationRow {
    /// HTTP method.
    pub method: &'static str,
    /// Path, with parameters in braces.
    pub path: &'static str,
    /// The least role that may do it.
    pub role: Role,
    /// Where that role has to hold.
    pub scope: Scope,
}

/// The row of a request; none: nobody may send it.
#[must_use]
pub fn operation(method: &str, path: &str) -> Option<&'static OperationRow> {
    OPERATIONS.iter().find(|row| row.method == method && row.path == path)
}

macro_rules! operations {
    ($($method:ident $path:literal $role:ident $scope:ident;)+) => {
        /// Every operation of the admin API that wants a credential.
        pub const OPERATIONS: &[OperationRow] = &[$(OperationRow {
            method: stringify!($method),
            path: $path,
            role: Role::$role,
            scope: Scope::$scope,
        }),+];
    };
}

operations! {
    GET    "/metrics"                                            Viewer   Everywhere;
    GET    "/api/v1/access"                                      Viewer   Shared;
    GET    "/api/v1/audit"                                       Viewer   SiteOfQuery;
    GET    "/api/v1/audit/chain"                                 Viewer   Everywhere;
    GET    "/api/v1/events"                                      Viewer   Shared;
    GET    "/api/v1/event-sinks"                                 Viewer   Everywhere;
    POST   "/api/v1/event-sinks/{sink}/remove"                   Admin    Everywhere;
    POST   "/api/v1/webhooks"                                    Admin    Everywhere;
    GET    "/api/v1/dead-letters"                                Viewer   Everywhere;
    POST   "/api/v1/dead-letters/replay"                         Operator Everywhere;
    GET    "/api/v1/approvals"                                   Viewer   SiteOfQuery;
    GET    "/api/v1/approvals/{approval}"                        Viewer   SiteOfApproval;
    POST   "/api/v1/approvals/{approval}/approve"                Approver SiteOfApproval;
    POST   "/api/v1/approvals/{approval}/deny"                   Approver SiteOfApproval;
    GET    "/api/v1/tokens"                                      Admin    Everywhere;
    POST   "/api/v1/tokens"                                      Admin    Everywhere;
    POST   "/api/v1/tokens/{token}/revoke"                       Admin    Everywhere;
    GET    "/api/v1/bundles"                                     Viewer   Shared;
    POST   "/api/v1/bundles"                                     Operator Everywhere;
    GET    "/api/v1/bundles/{bundle}"                            Viewer   Shared;
    GET    "/api/v1/bundles/{bundle}/archive"                    Viewer   Shared;
    POST   "/api/v1/bundles/{bundle}/approve"                    Approver SiteOfBody;
    POST   "/api/v1/bundles/{bundle}/withdraw"                   Approver Everywhere;
    GET    "/api/v1/images"                                      Viewer   SiteOfQuery;
    POST   "/api/v1/images"                                      Operator SiteOfBody;
    POST   "/api/v1/image-verdicts"                              Operator SiteOfBody;
    GET    "/api/v1/images/{image}"                              Viewer   SiteOfQuery;
    POST   "/api/v1/images/{image}/transition"                   Approver SiteOfBody;
    POST   "/api/v1/images/{image}/delete"                       Admin    SiteOfBody;
    GET    "/api/v1/experiments"                                 Viewer   SiteOfQuery;
    POST   "/api/v1/experiments"                                 Operator SiteOfBody;
    POST   "/api/v1/experiments/import"                          Operator SiteOfBody;
    GET    "/api/v1/experiments/{experiment}"                    Viewer   SiteOfExperiment;
    POST   "/api/v1/experiments/{experiment}/next"               Operator SiteOfExperiment;
    POST   "/api/v1/experiments/{experiment}/stop"               Operator SiteOfExperiment;
    GET    "/api/v1/bundle-keys"                                 Viewer   Shared;
    POST   "/api/v1/bundle-keys"                                 Admin    Everywhere;
    GET    "/api/v1/sites"                                       Viewer   Shared;
    POST   "/api/v1/sites"                                       Admin    Everywhere;
    GET    "/api/v1/sites/{name}"                                Viewer   SiteOfPath;
    PATCH  "/api/v1/sites/{name}"                                Admin    SiteOfPath;
    POST   "/api/v1/sites/{name}/remove"                         Admin    SiteOfPath;
    POST   "/api/v1/sites/{name}/take-control"                   Admin    SiteOfPath;
    GET    "/api/v1/sites/{name}/secrets"                        Viewer   SiteOfPath;
    PUT    "/api/v1/sites/{name}/secrets/{bundle}/{input}"       Admin    SiteOfPath;
    DELETE "/api/v1/sites/{name}/secrets/{bundle}/{input}"       Admin    SiteOfPath;
    GET    "/api/v1/profiles"                                    Viewer   Shared;
    POST   "/api/v1/profiles"                                    Admin    Everywhere;
    GET    "/api/v1/profiles/{name}"                             Viewer   Shared;
    PATCH  "/api/v1/profiles/{name}"                             Admin    Everywhere;
    POST   "/api/v1/profiles/{name}/remove"                      Admin    Everywhere;
    POST   "/api/v1/profiles/{name}/rollback-image"              Admin    Everywhere;
    GET    "/api/v1/profiles/{name}/secrets"                     Viewer   Shared;
    PUT    "/api/v1/profiles/{name}/secrets/{bundle}/{input}"    Admin    Everywhere;
    DELETE "/api/v1/profiles/{name}/secrets/{bundle}/{input}"    Admin    Everywhere;
    GET    "/api/v1/admin/maas-sites/{site}/profiles/{profile}"  Viewer   Shared;
    PATCH  "/api/v1/admin/maas-sites/{site}/profiles/{profile}"  Admin    Everywhere;
    GET    "/api/v1/profile-presets"                             Viewer   Shared;
    GET    "/api/v1/roce-assignments"                            Viewer   SiteOfQuery;
    POST   "/api/v1/roce-assignments"                            Operator SiteOfBody;
    POST   "/api/v1/roce-assignments/change"                     Operator SiteOfBody;
    POST   "/api/v1/roce-assignments/remove"                     Operator SiteOfBody;
    GET    "/api/v1/nodes"                                       Viewer   SiteOfQuery;
    POST   "/api/v1/nodes"                                       Operator SiteOfBody;
    POST   "/api/v1/onboarding-plans"                            Operator SiteOfBody;
    GET    "/api/v1/nodes/stuck"                                 Viewer   SiteOfQuery;
    GET    "/api/v1/nodes/{node}"                                Viewer   SiteOfNode;
    PATCH  "/api/v1/nodes/{node}"                                Operator SiteOfNode;
    GET    "/api/v1/nodes/{node}/explain"                        Viewer   SiteOfNode;
    GET    "/api/v1/nodes/{node}/timeline"                       Viewer   SiteOfNode;
    GET    "/api/v1/nodes/{node}/certificates"                   Viewer   SiteOfNode;
    POST   "/api/v1/nodes/{node}/revoke-certificate"             Operator SiteOfNode;
    GET    "/api/v1/nodes/{node}/telemetry"                      Viewer   SiteOfNode;
    GET    "/api/v1/nodes/{node}/telemetry/"                     Viewer   SiteOfNode;
    GET    "/api/v1/nodes/{node}/telemetry/{*path}"              Viewer   SiteOfNode;
    POST   "/api/v1/nodes/{node}/runs"                           Operator SiteOfNode;
    GET    "/api/v1/nodes/{node}/tasks"                          Viewer   SiteOfNode;
    POST   "/api/v1/nodes/{node}/tasks"                          Operator SiteOfNode;
    POST   "/api/v1/admin/nodes/{node}/slice-topology/discovery" Operator SiteOfNode;
    GET    "/api/v1/admin/nodes/{node}/slice-topology"           Viewer   SiteOfNode;
    GET    "/api/v1/admin/nodes/{node}/slice-topology/diff"      Viewer   SiteOfNode;
    POST   "/api/v1/admin/nodes/{node}/slice-topology/approval"  Approver SiteOfNode;
    GET    "/api/v1/admin/slots"                                 Viewer   SiteOfQuery;
    GET    "/api/v1/admin/slice-claims"                          Viewer   SiteOfQuery;
    POST   "/api/v1/admin/slice-claims"                          Operator SiteOfBody;
    GET    "/api/v1/admin/slice-claims/{claim}"                  Viewer   SiteOfClaim;
    DELETE "/api/v1/admin/slice-claims/{claim}"                  Operator SiteOfClaim;
    POST   "/api/v1/admin/slice-claims/{claim}/launch"           Operator SiteOfClaim;
    POST   "/api/v1/admin/node-claims"                           Operator SiteOfBody;
    POST   "/api/v1/admin/nodes/{node}/slots/{index}/recovery"   Approver SiteOfNode;
    GET    "/api/v1/tasks/{task}"                                Viewer   SiteOfTask;
    GET    "/api/v1/drift"                                       Viewer   SiteOfQuery;
    GET    "/api/v1/runs"                                        Viewer   SiteOfQuery;
    GET    "/api/v1/runs/{run}"                                  Viewer   SiteOfRun;
    POST   "/api/v1/runs/{run}/resume"                           Operator SiteOfRun;
    POST   "/api/v1/runs/{run}/retry"                            Operator SiteOfRun;
    POST   "/api/v1/runs/{run}/cancel"                           Operator SiteOfRun;
    POST   "/api/v1/runs/{run}/skip-check"                       Operator SiteOfRun;
    POST   "/api/v1/runs/{run}/take-over"                        Operator SiteOfRun;
    GET    "/api/v1/authority"                                   Admin    Everywhere;
    POST   "/api/v1/authority"                                   Admin    Everywhere;
    POST   "/api/v1/authority/activate"                          Admin    Everywhere;
    POST   "/api/v1/authority/retire"                            Admin    Everywhere;
    GET    "/api/v1/task-keys"                                   Viewer   Shared;
    POST   "/api/v1/task-keys"                                   Admin    Everywhere;
    POST   "/api/v1/task-keys/activate"                          Admin    Everywhere;
    POST   "/api/v1/task-keys/retire"                            Admin    Everywhere;
    GET    "/api/v1/batches"                                     Viewer   SiteOfQuery;
    POST   "/api/v1/batches"                                     Operator SiteOfBody;
    GET    "/api/v1/batches/{batch}"                             Viewer   SiteOfBatch;
    POST   "/api/v1/batches/{batch}/stop"                        Operator SiteOfBatch;
    POST   "/api/v1/batches/{batch}/resume"                      Operator SiteOfBatch;
}

/// Body of `POST /api/v1/tokens`: a credential for a program.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct TokenRequest {
    /// Name of whoever gets it; the audit shows it as the actor.
    #[schemars(with = "text::NameText")]
    pub name: String,
    /// What it may do.
    #[schemars(length(min = 1, max = 32))]
    pub grants: Vec<RoleGrant>,
    /// The person who uses it, where a site wants a second person's word; none: whoever has it made.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<text::PrintableText>")]
    pub person: Option<String>,
    /// Seconds after which it is refused; none: it has no end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 60, max = 316_224_000))]
    pub expires_in_seconds: Option<u64>,
    /// Reason, as the audit keeps it.
    #[schemars(with = "text::WordsText")]
    pub reason: String,
}

/// Answer to a [`TokenRequest`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct MintedToken {
    /// The credential. It is stored as a hash, so nobody can show it again.
    #[schemars(with = "String")]
    pub token: SecretText,
    /// What is known of it.
    #[serde(flatten)]
    pub view: TokenView,
}

/// A token, without its secret.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct TokenView {
    /// Identifier of the token.
    pub id: TokenId,
    /// Name of whoever has it.
    pub name: String,
    /// What it may do.
    pub grants: Vec<RoleGrant>,
    /// Who had it made.
    pub created_by: String,
    /// The person behind it, as far as a second person's word is concerned.
    pub person: String,
    /// Moment of that.
    pub created_at: Timestamp,
    /// Refused from then on; none: it has no end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires_at: Option<Timestamp>,
    /// Last use, within a minute; none: never.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_used_at: Option<Timestamp>,
    /// Moment at which it was revoked; none: it was not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub revoked_at: Option<Timestamp>,
}

/// Body of `POST /api/v1/tokens/NAME/revoke`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct TokenRevocation {
    /// Reason, as the audit keeps it.
    #[schemars(with = "text::WordsText")]
    pub reason: String,
}

/// Answer to `GET /api/v1/access`: who the credential of the request stands for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct AccessView {
    /// Name, as the audit shows it.
    pub name: String,
    /// What it may do.
    pub grants: Vec<RoleGrant>,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn grant(role: Role, sites: Option<&[&str]>) -> RoleGrant {
        let sites = sites.map(|names| names.iter().map(|name| (*name).to_owned()).collect());
        RoleGrant { role, sites }
    }

    #[test]
    fn a_role_includes_looking_and_itself() {
        for role in Role::ALL {
            assert!(role.includes(*role) && role.includes(Role::Viewer), "{role}");
            assert!(Role::Admin.includes(*role), "{role}");
        }
        for (role, other) in [(Role::Operator, Role::Approver), (Role::Approver, Role::Operator)] {
            assert!(!role.includes(other) && !role.includes(Role::Admin), "{role}");
        }
        assert!(Role::ALL[1..].iter().all(|role| !Role::Viewer.includes(*role)));
    }

    #[test]
    fn a_grant_for_some_sites_holds_there_alone() {
        let some = grant(Role::Operator, Some(&["lab"]));
        assert!(some.holds_at(Some("lab")));
        assert!(!some.holds_at(Some("other")) && !some.holds_at(None));
        let all = grant(Role::Operator, None);
        assert!(all.holds_at(None) && all.holds_at(Some("lab")));
        assert!(!grant(Role::Admin, Some(&[])).holds_at(Some("lab")));
    }

    #[test]
    fn an_operation_has_one_row_and_changes_are_not_for_viewers() {
        for (index, row) in OPERATIONS.iter().enumerate() {
            let first = operation(row.method, row.path);
            assert_eq!(first, Some(&OPERATIONS[index]), "{} {}", row.method, row.path);
            assert!(row.method == "GET" || row.role != Role::Viewer, "{}", row.path);
        }
        assert_eq!(operation("DELETE", "/api/v1/nodes"), None);
    }
}
