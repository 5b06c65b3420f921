//! What a deployed host shows of its image and of its login user, against the profile.
//!
//! Both are read by the agent from the host's files (crate `host-facts`) and come with the facts of
//! its diagnostics. A host that shows neither, because its image has no record or its agent is older,
//! is not asked for them.

use gpuaas_types::api::CheckResult;
use serde::Deserialize;
use serde_json::Value;

use crate::policy::normalise_distro_series;
use crate::snapshot::Snapshot;

/// Name of the check that the image says it is the one of the profile.
pub const IMAGE_BUILD: &str = "image_build";
/// Name of the check that somebody can log in as the profile's `deploy_user`.
pub const DEPLOY_USER_LOGIN: &str = "deploy_user_login";
/// Most characters of a text of the host that are shown.
const SHOWN_CHARS: usize = 100;
/// Most items of a list of the host that are shown.
const SHOWN_ITEMS: usize = 8;

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct ImageBuild {
    image: Option<String>,
    version: Option<String>,
    built_at: Option<String>,
    lineage: Vec<String>,
    bundles: Vec<String>,
    malformed: bool,
}

impl ImageBuild {
    /// One sentence without its subject.
    fn sentence(&self) -> String {
        let mut parts = Vec::new();
        let texts =
            [("image", &self.image), ("version", &self.version), ("built at", &self.built_at)];
        parts.extend(texts.into_iter().filter_map(|(name, text)| {
            text.as_deref().map(|text| format!("{name} {}", shown(text)))
        }));
        let lists = [("from", &self.lineage, " > "), ("with", &self.bundles, " and ")];
        parts.extend(lists.into_iter().filter(|(_, items, _)| !items.is_empty()).map(
            |(name, items, between)| {
                let items: Vec<String> =
                    items.iter().take(SHOWN_ITEMS).map(|item| shown(item)).collect();
                format!("{name} {}", items.join(between))
            },
        ));
        if parts.is_empty() { "nothing".to_owned() } else { parts.join(", ") }
    }
}

fn shown(text: &str) -> String {
    text.chars().take(SHOWN_CHARS).collect()
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Login {
    user: String,
    keys: u32,
    password: bool,
}

/// What the facts of a host show of its image and of its login user.
pub(super) fn host_image_checks(s: &Snapshot<'_>, facts: &Value) -> Vec<CheckResult> {
    [image_build(s, facts), login(s, facts)].into_iter().flatten().collect()
}

/// The record of the image, where there is one. A record that names another image than an uploaded
/// one of the profile fails.
fn image_build(s: &Snapshot<'_>, facts: &Value) -> Option<CheckResult> {
    let record = facts.get("image_build").filter(|record| !record.is_null())?;
    let record = ImageBuild::deserialize(record).ok().filter(|record| !record.malformed);
    let Some(record) = record else {
        let text = "cannot read the image's build record: expected a JSON object";
        return Some(s.check(IMAGE_BUILD, false, text));
    };
    let deployed = normalise_distro_series(&s.profile.distro_series);
    let said = record.sentence();
    let wanted = deployed.strip_prefix("custom/");
    let other = match (wanted, record.image.as_deref()) {
        (Some(wanted), Some(image)) => image.strip_prefix("custom/").unwrap_or(image) != wanted,
        _ => false,
    };
    let text = if other {
        format!("the profile deploys {deployed}, but the host's build record says: {said}")
    } else {
        format!("deployed as {deployed}; the host's build record says: {said}")
    };
    Some(s.check(IMAGE_BUILD, !other, text))
}

/// Whether the profile's `deploy_user` has a key or a password on the host.
fn login(s: &Snapshot<'_>, facts: &Value) -> Option<CheckResult> {
    let wanted = &s.profile.deploy_user;
    let logins = Vec::<Login>::deserialize(facts.get("logins")?).ok()?;
    if wanted.is_empty() || logins.is_empty() {
        return None;
    }
    let found = logins.iter().find(|login| login.user == *wanted);
    let (passed, text) = match found {
        None => (false, format!("the host has no user {wanted}")),
        Some(Login { keys: 0, password: false, .. }) => {
            let with_keys = logins.iter().filter(|login| login.keys > 0);
            let others: Vec<&str> = with_keys.map(|login| login.user.as_str()).collect();
            let others = match others.as_slice() {
                [] => "no user has one".to_owned(),
                names => format!("users with a key: {}", names.join(", ")),
            };
            let text = format!(
                "{wanted} has no SSH key and no password ({others}): add a key through the site \
                 bundle (input `login_keys` of h200-ib), or clear deploy_user to use the image's own user"
            );
            (false, text)
        }
        Some(Login { keys, password, .. }) => {
            let password = if *password { "a password" } else { "no password" };
            (true, format!("{wanted} has {keys} SSH keys and {password}"))
        }
    };
    Some(s.check(DEPLOY_USER_LOGIN, passed, text))
}

#[cfg(test)]
mod tests {
    use gpuaas_types::Step;
    use serde_json::json;

    use super::*;
    use crate::decide::fixture::Case;

    fn checks(image: &str, user: &str, facts: &Value) -> Vec<(String, bool, String)> {
        let mut case = Case::new(Step::PrereqChecks);
        case.profile.distro_series = image.to_owned();
        case.profile.deploy_user = user.to_owned();
        let found = host_image_checks(&case.snapshot(), facts).into_iter();
        found.map(|check| (check.name, check.passed, check.evidence)).collect()
    }

    #[test]
    fn the_record_has_to_name_the_uploaded_image_of_the_profile() {
        let record = json!({ "image": "h200-noble", "version": "7", "built_at": "2026-04-26",
            "lineage": ["ubuntu-24.04", "base-3"], "bundles": ["h200-ib@1.0.0"] });
        let facts = json!({ "image_build": record });
        for (image, passed) in [
            ("h200-noble", true),
            ("custom/h200-noble", true),
            ("custom/h200-noble-2", false),
            ("ubuntu/noble", true),
        ] {
            let found = checks(image, "", &facts);
            assert_eq!((found.len(), found[0].1), (1, passed), "{image}: {found:?}");
            let said = "image h200-noble, version 7, built at 2026-04-26, from ubuntu-24.04 > base-3, \
                        with h200-ib@1.0.0";
            assert!(found[0].2.ends_with(said), "{found:?}");
        }
        let nameless = json!({ "image_build": { "version": "7" } });
        assert!(checks("h200-noble", "", &nameless)[0].1);
        for torn in [json!({ "malformed": true }), json!("text"), json!({ "image": 7 })] {
            let found = checks("h200-noble", "", &json!({ "image_build": torn }));
            assert!(!found[0].1, "{found:?}");
        }
        for none in [json!({}), json!(null), json!({ "image_build": null })] {
            assert_eq!(checks("h200-noble", "", &none), []);
        }
    }

    #[test]
    fn somebody_has_to_be_able_to_log_in_as_the_deploy_user() {
        let login = |user: &str, keys, password| json!({ "user": user, "keys": keys, "password": password });
        let facts = |logins: Value| json!({ "logins": logins });
        let ubuntu = login("ubuntu", 2, false);
        for (logins, passed) in [
            (json!([ubuntu, login("hpcadmin", 1, false)]), true),
            (json!([ubuntu, login("hpcadmin", 0, true)]), true),
            (json!([ubuntu, login("hpcadmin", 0, false)]), false),
            (json!([ubuntu]), false),
        ] {
            let found = checks("noble", "hpcadmin", &facts(logins.clone()));
            assert_eq!((found[0].0.as_str(), found[0].1), (DEPLOY_USER_LOGIN, passed), "{logins}");
        }
        let found =
            checks("noble", "hpcadmin", &facts(json!([ubuntu, login("hpcadmin", 0, false)])));
        assert!(found[0].2.contains("users with a key: ubuntu"), "{found:?}");
        assert_eq!(checks("noble", "", &facts(json!([ubuntu]))), []);
        assert_eq!(checks("noble", "hpcadmin", &json!({})), []);
    }
}
