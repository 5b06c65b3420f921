//! The pages of experiments.

use serde_json::{Value, json};

use super::answers::Answers;

fn node(name: &str, arm: &str, seconds: f64) -> Value {
    json!({
        "node": name, "arm": arm, "run": "01a1f9af-a400-7202-8202-020202020202",
        "status": "succeeded", "sample": {"host": name, "time_to_active": seconds},
    })
}

fn measure(name: &str, shift: f64, verdict: &str) -> Value {
    json!({
        "name": name, "test": "rank_sum", "n_a": 8, "n_b": 8,
        "p50_a": 550.0, "p50_b": 550.0 + shift,
        "p95_a": 660.0, "p95_b": 660.0 + shift, "shift_seconds": shift,
        "interval_seconds": [shift - 30.0, shift + 30.0], "p": 0.01, "p_adjusted": 0.02,
        "verdict": verdict,
    })
}

fn experiment(is_judged: bool) -> Value {
    let mut one = json!({
        "id": "noble-vs-baked", "site": "lab", "profile": "h200", "seed": 7, "paired": false,
        "state": if is_judged { "ended" } else { "running" }, "comparable": true,
        "arms": [
            {"image": "custom/h200-6", "digest": "ab", "nodes": 2, "failures": 0},
            {"image": "ubuntu/noble", "digest": "", "nodes": 2, "failures": 1},
        ],
        "primary": "time_to_active", "planned_n": 2, "looks": 1, "measures": [],
        "assignments": [
            node("j22u11", "a", 500.0), node("<b>j22u12", "a", 560.0), node("j22u13", "b", 420.0),
            {"node": "j22u14", "arm": "b"},
        ],
        "created_by": "ann", "created_at": "2025-11-24T10:00:00Z", "reason": "<i>kernel",
    });
    if is_judged {
        let mut none = measure("first_boot", 0.0, "insufficient_sample");
        none["interval_seconds"] = Value::Null;
        none["p_adjusted"] = Value::Null;
        one["measures"] = json!([
            measure("time_to_active", -128.0, "faster"),
            measure("site_bootstrap", 60.0, "slower"),
            none,
        ]);
        one["failures"] = json!({
            "p": 0.5, "verdict": "no_evidence_of_worse", "classes": {"cloud_init": [0, 1]},
            "interventions": [0, 4],
        });
    }
    one
}

fn loaded(is_judged: bool) -> Answers {
    let one = experiment(is_judged);
    Answers::new()
        .with("/api/v1/experiments/noble-vs-baked", &one)
        .with_list("/api/v1/experiments", [one])
}

#[tokio::test]
async fn experiment_shows_both_arms_with_intervals() {
    let page = loaded(true).page("/experiments/noble-vs-baked").await;
    assert!(!page.contains("<i>kernel") && !page.contains("<b>j22"), "{page}");
    insta::assert_snapshot!(page);
}

#[tokio::test]
async fn nothing_is_judged_before_all_runs_have_ended() {
    let page = loaded(false).page("/experiments/noble-vs-baked").await;
    for shown in ["not enough runs yet", "3 of 4 have ended", "Start more runs"] {
        assert!(page.contains(shown), "{shown}: {page}");
    }
    assert!(!page.contains("table-measures"), "{page}");
}

#[tokio::test]
async fn list_of_experiments() {
    let page = loaded(true).page("/experiments").await;
    insta::assert_snapshot!(page);
    let page = Answers::new().with_list("/api/v1/experiments", [0; 0]).page("/experiments").await;
    assert!(page.contains("No experiments."), "{page}");
    let page = Answers::new().page("/experiments").await;
    assert!(page.contains("not_found") && page.contains("<h1>Experiments</h1>"), "{page}");
    let page = Answers::new().page("/experiments/none").await;
    assert!(page.contains("not_found"), "{page}");
    let answer = loaded(true).json("/experiments/noble-vs-baked.json").await;
    assert_eq!(answer["seed"], 7);
    assert_eq!(loaded(true).json("/experiments.json").await["items"][0]["seed"], 7);
}

#[tokio::test]
async fn experiment_is_stopped_with_a_reason() {
    let (status, sent) =
        Answers::new().post("/experiments/noble-vs-baked/stop", "reason=hosts+needed").await;
    let body = json!({"actor": "ann", "reason": "hosts needed"});
    assert_eq!(sent, [("/api/v1/experiments/noble-vs-baked/stop".to_owned(), body)]);
    assert_eq!(status, 303);
}
