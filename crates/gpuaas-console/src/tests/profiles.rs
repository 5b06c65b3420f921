//! The pages of profiles and of one site.

use gpuaas_testkit::views;
use serde_json::{Value, json};

use super::answers::Answers;

const PATH: &str = "/api/v1/admin/maas-sites/lab/profiles/h200";

fn entry(id: i64, action: &str, detail: &Value) -> Value {
    json!({
        "id": id, "at": "2025-11-20T10:00:00Z", "actor": "<b>eve</b>", "action": action,
        "subject": "h200", "result": "done", "detail": detail,
    })
}

fn loaded() -> Answers {
    let mut profile = views::profile();
    profile.revision = 4;
    profile.spec.kernel_arguments = "<i>nokaslr".to_owned();
    profile.spec.sites = vec!["lab".to_owned()];
    let mut other = views::profile();
    other.status.name = "gb200".to_owned();
    let entries = [
        entry(3, "profile.rollback_image", &json!({"revision": 4})),
        entry(2, "profile.change", &json!({"revision": 2, "fields": ["kernel_arguments"]})),
        entry(1, "profile.create", &json!({"revision": 1})),
    ];
    let preset = json!({"name": "slice", "description": "x", "spec": {"fabric_mode": "ib"}});
    Answers::new()
        .with(PATH, &profile)
        .with("/api/v1/profiles/h200", &profile)
        .with_list("/api/v1/profiles", [&profile, &other])
        .with_list("/api/v1/profile-presets", [preset])
        .with_list("/api/v1/audit", entries)
        .with_list("/api/v1/nodes", [views::commissioning_node()])
}

#[tokio::test]
async fn profile_shows_values_revisions_and_nodes() {
    let page = loaded().page("/sites/lab/profiles/h200?against=preset:slice&since=2").await;
    assert!(!page.contains("<i>") && !page.contains("<b>eve"), "{page}");
    insta::assert_snapshot!(page);
}

#[tokio::test]
async fn profile_remains_without_its_revisions_and_nodes() {
    let answers = loaded().refusing("/api/v1/audit", 403, "forbidden");
    let answers = answers.with_list("/api/v1/nodes", [0; 0]);
    let page = answers.page("/profiles/h200").await;
    assert!(page.contains("forbidden") && page.contains("No node has this profile."), "{page}");
}

#[tokio::test]
async fn unknown_profile_is_not_shown() {
    let page = Answers::new().page("/sites/lab/profiles/h200").await;
    assert!(page.contains("not_found") && page.contains("Try again"), "{page}");
}

#[tokio::test]
async fn list_of_profiles_at_a_site() {
    let page = loaded().page("/sites/lab/profiles").await;
    assert!(page.contains("/sites/lab/profiles/gb200"), "{page}");
    insta::assert_snapshot!(page);
    let page = loaded().page("/sites/elsewhere/profiles").await;
    assert!(page.contains("/profiles/gb200") && !page.contains("/profiles/h200"), "{page}");
    let page = Answers::new().with_list("/api/v1/profiles", [0; 0]).page("/profiles").await;
    assert!(page.contains("No profiles."), "{page}");
    let page = Answers::new().page("/profiles").await;
    assert!(page.contains("not_found") && page.contains("<h1>Profiles</h1>"), "{page}");
}

#[tokio::test]
async fn json_has_the_profile_and_its_revisions() {
    let answer = loaded().json("/sites/lab/profiles/h200.json").await;
    assert_eq!(answer["profile"]["revision"], 4);
    assert_eq!(answer["revisions"][2]["action"], "profile.create");
    assert_eq!(loaded().json("/profiles.json").await["items"][1]["status"]["name"], "gb200");
}

#[tokio::test]
async fn site_shows_reachability_settings_and_the_age_of_its_key() {
    let mut site = views::site();
    site.spec.pool = Some("<u>rack".to_owned());
    site.status.health = "unreachable".to_owned();
    site.status.health_detail = "no route".to_owned();
    let entries = [
        entry(3, "site.change", &json!({"api_key": false})),
        entry(2, "site.change", &json!({"api_key": true})),
    ];
    let answers =
        Answers::new().with("/api/v1/sites/lab", &site).with_list("/api/v1/audit", entries);
    let page = answers.clone().page("/sites/lab").await;
    assert!(!page.contains("<u>"), "{page}");
    insta::assert_snapshot!(page);
    assert_eq!(answers.json("/sites/lab.json").await["spec"]["pool"], "<u>rack");
    let page = Answers::new().page("/sites/lab").await;
    assert!(page.contains("not_found"), "{page}");
}
