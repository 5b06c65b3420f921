//! Which value of a claim gives which role, where.

use std::str::FromStr;

use gpuaas_types::access::{Role, RoleGrant};

/// One value of the claim, and the role that it gives.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RoleRule {
    value: String,
    grant: RoleGrant,
}

impl FromStr for RoleRule {
    type Err = String;

    /// Reads `VALUE=ROLE` or `VALUE=ROLE@SITE,SITE`; the last `=` counts.
    fn from_str(text: &str) -> Result<Self, String> {
        let form = "write VALUE=ROLE or VALUE=ROLE@SITE,SITE, such as gpu-ops=operator@lab";
        let (value, grant) = text.rsplit_once('=').ok_or(form)?;
        if value.trim().is_empty() {
            return Err(form.to_owned());
        }
        let (role, sites) = match grant.split_once('@') {
            Some((role, sites)) => (role, Some(sites)),
            None => (grant, None),
        };
        let role = role.trim().parse().map_err(|_| {
            let all: Vec<&str> = Role::ALL.iter().map(|role| role.as_str()).collect();
            format!("unknown role: expected one of {}", all.join(", "))
        })?;
        let sites = sites.map(|sites| sites.split(',').map(str::trim).map(str::to_owned).collect());
        let sites: Option<Vec<String>> = sites;
        if sites.iter().flatten().any(String::is_empty) {
            return Err(form.to_owned());
        }
        Ok(Self { value: value.trim().to_owned(), grant: RoleGrant { role, sites } })
    }
}

/// All rules. A value that no rule names gives nothing.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RoleRules(pub Vec<RoleRule>);

impl RoleRules {
    /// What somebody with these values may do; empty: nothing.
    #[must_use]
    pub fn grants(&self, values: &[String]) -> Vec<RoleGrant> {
        let mut grants: Vec<RoleGrant> = Vec::new();
        for rule in self.0.iter().filter(|rule| values.contains(&rule.value)) {
            if !grants.contains(&rule.grant) {
                grants.push(rule.grant.clone());
            }
        }
        grants
    }

    /// The values that give a role, in the order of the rules.
    pub fn values(&self) -> impl Iterator<Item = &str> {
        self.0.iter().map(|rule| rule.value.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rules(texts: &[&str]) -> RoleRules {
        RoleRules(texts.iter().map(|text| text.parse().unwrap()).collect())
    }

    #[test]
    fn values_give_what_their_rules_say_and_others_nothing() {
        let rules = rules(&["gpu-admins=admin", "ops=operator@lab, prod", "ops=approver@lab"]);
        let texts = |values: &[&str]| {
            let values: Vec<String> = values.iter().map(|value| (*value).to_owned()).collect();
            let grants = rules.grants(&values).into_iter();
            let text = |grant: RoleGrant| format!("{}@{:?}", grant.role, grant.sites);
            grants.map(text).collect::<Vec<_>>()
        };
        assert_eq!(texts(&["gpu-admins"]), ["admin@None"]);
        assert_eq!(
            texts(&["ops", "other"]),
            [r#"operator@Some(["lab", "prod"])"#, r#"approver@Some(["lab"])"#]
        );
        assert!(texts(&["OPS", "", "gpu-admin"]).is_empty());
        assert_eq!(rules.values().collect::<Vec<_>>(), ["gpu-admins", "ops", "ops"]);
    }

    #[test]
    fn names_of_a_directory_have_equals_signs_of_their_own() {
        let rule: RoleRule = "CN=gpu,OU=infra,DC=example=viewer".parse().unwrap();
        assert_eq!(
            (rule.value.as_str(), rule.grant.role),
            ("CN=gpu,OU=infra,DC=example", Role::Viewer)
        );
        for wrong in ["", "gpu-admins", "=admin", "x=boss", "x=operator@", "x=operator@a,,b"] {
            assert!(wrong.parse::<RoleRule>().is_err(), "{wrong}");
        }
    }
}
