//! The table of actions: what a person may change from a page.
//!
//! Buttons, the palette, the sheet of keys and [`crate::map`] are drawn from this table. Roles are
//! not in it: they come from the API's own table, [`gpuaas_types::access::OPERATIONS`].

use gpuaas_types::access::{OperationRow, Role, Scope, operation};

use crate::api::Viewer;

/// A change that pages offer: one operation of the API, and one command.
#[derive(Debug)]
pub(crate) struct Action {
    /// Name: the words of the command behind `gpuaas`.
    pub(crate) name: &'static str,
    /// Text of its button.
    pub(crate) title: &'static str,
    /// Method of the operation.
    pub(crate) method: &'static str,
    /// Path of the operation, with parameters in braces.
    pub(crate) path: &'static str,
    /// Identifier of the operation in `docs/openapi.json`.
    pub(crate) operation: &'static str,
    /// The command line that does the same.
    pub(crate) cli: &'static str,
    /// Key that presses its button; empty: none.
    pub(crate) key: &'static str,
    /// Whether it destroys what cannot be made again with one more action.
    pub(crate) is_destructive: bool,
    /// Paths of the pages that offer it, as [`crate::site_map`] names them.
    pub(crate) pages: &'static [&'static str],
}

impl Action {
    /// The API's own row of the operation: the role that it needs, and where.
    pub(crate) fn row(&self) -> Option<&'static OperationRow> {
        operation(self.method, self.path)
    }

    /// Roles that may do it.
    pub(crate) fn roles(&self) -> Vec<Role> {
        let includes = |role: &&Role| self.row().is_some_and(|row| role.includes(row.role));
        Role::ALL.iter().filter(includes).copied().collect()
    }
}

macro_rules! actions {
    ($($constant:ident $name:literal $title:literal $method:ident $path:literal $operation:literal
        $cli:literal key $key:literal destructive $destructive:literal
        on [$($page:literal),+];)+) => {
        $(pub(crate) const $constant: &Action = &Action {
            name: $name,
            title: $title,
            method: stringify!($method),
            path: $path,
            operation: $operation,
            cli: $cli,
            key: $key,
            is_destructive: $destructive,
            pages: &[$($page),+],
        };)+

        /// Every action of every page.
        pub(crate) const ACTIONS: &[&Action] = &[$($constant),+];
    };
}

actions! {
    ONBOARD "node onboard" "Onboard" POST "/api/v1/nodes" "nodes_onboard_post"
        "gpuaas node onboard HOST --site SITE --profile PROFILE"
        key "" destructive true on ["/onboard"];
    RUN_RESUME "run resume" "Resume" POST "/api/v1/runs/{run}/resume" "runs_resume_post"
        "gpuaas run resume RUN --reason WHY"
        key "r" destructive false on ["/runs/{run}", "/nodes/{node}"];
    RUN_RETRY "run retry" "Retry step" POST "/api/v1/runs/{run}/retry" "runs_retry_post"
        "gpuaas run retry RUN --reason WHY"
        key "t" destructive false on ["/runs/{run}", "/nodes/{node}"];
    RUN_CANCEL "run cancel" "Cancel run" POST "/api/v1/runs/{run}/cancel" "runs_cancel_post"
        "gpuaas run cancel RUN --reason WHY"
        key "c" destructive true on ["/runs/{run}", "/nodes/{node}"];
    APPROVAL_APPROVE "approval approve" "Approve"
        POST "/api/v1/approvals/{approval}/approve" "approvals_approve_post"
        "gpuaas approval approve ID --reason WHY"
        key "" destructive false on ["/approvals"];
    APPROVAL_DENY "approval deny" "Deny"
        POST "/api/v1/approvals/{approval}/deny" "approvals_deny_post"
        "gpuaas approval deny ID --reason WHY"
        key "" destructive true on ["/approvals"];
    BUNDLE_APPROVE "bundle approve" "Approve for site"
        POST "/api/v1/bundles/{bundle}/approve" "bundles_approve_post"
        "gpuaas bundle approve BUNDLE --site SITE --reason WHY"
        key "" destructive false on ["/bundles/{bundle}"];
    BUNDLE_WITHDRAW "bundle withdraw" "Withdraw from site"
        POST "/api/v1/bundles/{bundle}/withdraw" "bundles_withdraw_post"
        "gpuaas bundle withdraw BUNDLE --site SITE --reason WHY"
        key "" destructive true on ["/bundles/{bundle}"];
    IMAGE_APPROVE "image approve" "Approve"
        POST "/api/v1/images/{image}/transition" "images_transition_post"
        "gpuaas image approve IMAGE --site SITE --reason WHY"
        key "" destructive false on ["/images/{site}/{image}"];
    IMAGE_DEPRECATE "image deprecate" "Deprecate"
        POST "/api/v1/images/{image}/transition" "images_transition_post"
        "gpuaas image deprecate IMAGE --site SITE --reason WHY"
        key "" destructive false on ["/images/{site}/{image}"];
    IMAGE_REVOKE "image revoke" "Revoke permanently"
        POST "/api/v1/images/{image}/transition" "images_transition_post"
        "gpuaas image revoke IMAGE --site SITE --reason WHY"
        key "" destructive true on ["/images/{site}/{image}"];
    EXPERIMENT_NEXT "experiment next" "Start more runs"
        POST "/api/v1/experiments/{experiment}/next" "experiments_next_post"
        "gpuaas experiment next NAME --reason WHY"
        key "b" destructive false on ["/experiments/{experiment}"];
    EXPERIMENT_STOP "experiment stop" "Stop"
        POST "/api/v1/experiments/{experiment}/stop" "experiments_stop_post"
        "gpuaas experiment stop NAME --reason WHY"
        key "s" destructive true on ["/experiments/{experiment}"];
    BATCH_RESUME "batch resume" "Resume batch"
        POST "/api/v1/batches/{batch}/resume" "batches_resume_post"
        "gpuaas batch resume NAME --reason WHY"
        key "r" destructive false on ["/batches/{batch}"];
    BATCH_STOP "batch stop" "Stop batch"
        POST "/api/v1/batches/{batch}/stop" "batches_stop_post"
        "gpuaas batch stop NAME --reason WHY"
        key "s" destructive false on ["/batches/{batch}"];
    TOKEN_REVOKE "token revoke" "Revoke"
        POST "/api/v1/tokens/{token}/revoke" "tokens_revoke_post"
        "gpuaas token revoke NAME --reason WHY"
        key "" destructive true on ["/tokens"];
}

/// An action as a page offers it. A button that cannot be pressed says why.
#[derive(Debug)]
pub(crate) struct Button {
    pub(crate) action: &'static Action,
    /// Where its form is sent.
    pub(crate) href: String,
    /// Why it cannot be used now; empty: it can.
    pub(crate) why_not: String,
}

impl Button {
    /// The button of `action` on something of `site`, if the page knows the site. `obstacle` says
    /// what else than a role is in the way, if anything is.
    pub(crate) fn new(
        action: &'static Action,
        href: String,
        viewer: &Viewer,
        site: Option<&str>,
        obstacle: &str,
    ) -> Self {
        let why_not = match action.row() {
            None => "no role allows it".to_owned(),
            Some(row) => missing_role(viewer, row, site).unwrap_or_else(|| obstacle.to_owned()),
        };
        Self { action, href, why_not }
    }
}

/// The role that a person lacks for an operation; none: the role is there.
fn missing_role(viewer: &Viewer, row: &OperationRow, site: Option<&str>) -> Option<String> {
    let role = row.role;
    let of_role = || viewer.access.grants.iter().filter(|grant| grant.role.includes(role));
    match (row.scope, site) {
        (Scope::Everywhere, _) => (!of_role().any(|grant| grant.holds_at(None)))
            .then(|| format!("needs the role {role} at every site")),
        (Scope::Shared, _) | (_, None) => {
            of_role().next().is_none().then(|| format!("needs the role {role}"))
        }
        (_, Some(site)) => (!of_role().any(|grant| grant.holds_at(Some(site))))
            .then(|| format!("needs the role {role} at site {site}")),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use serde_json::Value;

    fn document(path: &str) -> String {
        let root = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");
        std::fs::read_to_string(format!("{root}/{path}")).unwrap()
    }

    #[test]
    fn each_action_is_an_operation_of_the_api_and_a_command() {
        let api: Value = serde_json::from_str(&document("docs/openapi.json")).unwrap();
        let cli = document("docs/reference/cli.md");
        for action in ACTIONS {
            let operation = &api["paths"][action.path][action.method.to_ascii_lowercase()];
            assert_eq!(operation["operationId"], action.operation, "{}", action.name);
            assert!(cli.contains(&format!("\n## gpuaas {}\n", action.name)), "{}", action.name);
            assert!(action.cli.starts_with(&format!("gpuaas {}", action.name)), "{}", action.cli);
            assert!(!action.roles().is_empty(), "{}", action.name);
        }
    }

    #[test]
    fn names_are_unique_and_so_are_the_keys_of_a_page() {
        let (mut names, mut keys) = (BTreeSet::new(), BTreeSet::new());
        for action in ACTIONS {
            assert!(names.insert(action.name), "{}", action.name);
            for page in action.pages.iter().filter(|_| !action.key.is_empty()) {
                assert!(keys.insert((*page, action.key)), "{page} {}", action.key);
                assert!(!["j", "k", "o", "g", "/", "?"].contains(&action.key), "{}", action.name);
            }
        }
    }

    /// A button that the table lacks has no role, no command and no operation.
    #[test]
    fn each_control_of_each_template_is_in_the_table() {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/templates");
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            let text = std::fs::read_to_string(&path).unwrap();
            for form in text.split("<form").skip(1) {
                let form = form.split("</form>").next().unwrap();
                let signs = ["action=\"/login\"", "action=\"/logout\""];
                if !form.contains("method=\"post\"") || signs.iter().any(|it| form.contains(it)) {
                    continue;
                }
                for button in form.split("<button").skip(1) {
                    let name = button.split("data-op=\"").nth(1).map(|rest| rest.split('"').next());
                    let name = name.flatten().unwrap_or_default();
                    let is_known = name == "{{ item.action.name }}"
                        || ACTIONS.iter().any(|action| action.name == name);
                    assert!(is_known, "{}: {button}", path.display());
                }
            }
        }
    }
}
