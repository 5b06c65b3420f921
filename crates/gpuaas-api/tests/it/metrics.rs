//! What Prometheus scrapes, and what watches over the process.

use std::collections::{BTreeMap, BTreeSet};

use gpuaas_types::RunStatus;
use gpuaas_types::metrics::{METRICS, Metric};
use serde_json::json;

use crate::rig::Rig;

/// The value of each series of a scrape.
struct Scrape(BTreeMap<String, f64>);

impl Scrape {
    async fn fetch(rig: &Rig) -> Self {
        let answer = rig.get("/metrics").await;
        assert_eq!(answer.status, 200, "{answer:?}");
        let form = answer.headers["content-type"].to_str().unwrap();
        assert!(form.starts_with("application/openmetrics-text; version=1.0.0"), "{form}");
        let text = String::from_utf8(answer.bytes).unwrap();
        assert!(text.ends_with("# EOF\n"), "{text}");
        assert_eq!(types(&text), METRICS.iter().map(described).collect(), "{text}");
        let series = text.lines().filter(|line| !line.starts_with('#')).map(|line| {
            let (name, value) = line.rsplit_once(' ').unwrap();
            (name.to_owned(), value.parse().unwrap())
        });
        Self(series.collect())
    }

    fn value(&self, series: &str) -> f64 {
        let value = self.0.get(series);
        assert!(value.is_some(), "no {series} among {:#?}", self.0.keys());
        *value.unwrap()
    }
}

/// What a scrape says of a metric before its series.
fn described(metric: &Metric) -> String {
    format!("gpuaas_{} {}", metric.name, metric.kind)
}

fn types(text: &str) -> BTreeSet<String> {
    text.lines().filter_map(|line| line.strip_prefix("# TYPE ")).map(str::to_owned).collect()
}

#[tokio::test]
async fn nodes_runs_and_requests_are_counted_for_prometheus() {
    let rig = Rig::with_site().await;
    for hostname in ["j22u11", "j22u15"] {
        rig.onboard(hostname).await;
    }
    let ended = rig.onboard("j27u15").await;
    rig.advance(700);
    rig.put_run(ended.run_id, RunStatus::Parked).await;
    rig.get("/api/v1/nodes/j22u11").await.ok();
    rig.get("/api/v1/nodes/nobody").await;
    rig.get("/api/v1/nowhere").await;
    let scrape = Scrape::fetch(&rig).await;
    assert_eq!(scrape.value(r#"gpuaas_nodes{site="lab",state="registered"}"#), 3.0);
    let runs = |status: &str, code: &str| {
        format!(r#"gpuaas_runs{{site="lab",kind="onboard",status="{status}",code="{code}"}}"#)
    };
    assert_eq!(scrape.value(&runs("running", "")), 2.0);
    let age = r#"gpuaas_oldest_run_step_age_seconds{site="lab",status="running"}"#;
    assert!(scrape.value(age) >= 700.0);
    let answered = |route: &str, status: u16| {
        format!(r#"gpuaas_http_requests_total{{method="GET",route="{route}",status="{status}"}}"#)
    };
    assert_eq!(scrape.value(&answered("/api/v1/nodes/{node}", 200)), 1.0);
    assert_eq!(scrape.value(&answered("/api/v1/nodes/{node}", 404)), 1.0);
    assert_eq!(scrape.value(&answered("other", 404)), 1.0, "no label is a caller's word");
    let duration =
        r#"gpuaas_http_request_duration_seconds_count{method="GET",route="/api/v1/nodes/{node}"}"#;
    assert_eq!(scrape.value(duration), 2.0);
    assert!(scrape.value("gpuaas_database_statements_total") > 0.0);
    assert!(scrape.value("gpuaas_database_transactions_total") > 0.0);
    let again = Scrape::fetch(&rig).await;
    assert_eq!(again.value(&answered("/metrics", 200)), 1.0);
}

/// The times of ended runs are a histogram whose buckets hold what is below them.
#[tokio::test]
async fn times_of_ended_runs_are_a_histogram() {
    let rig = Rig::with_site().await;
    for (hostname, seconds) in [("j22u11", 500), ("j22u15", 400)] {
        let accepted = rig.onboard(hostname).await;
        rig.advance(seconds);
        rig.put_run(accepted.run_id, RunStatus::Succeeded).await;
    }
    let scrape = Scrape::fetch(&rig).await;
    let labels = r#"site="lab",kind="onboard",status="succeeded""#;
    let bucket = |le: &str| {
        scrape.value(&format!(r#"gpuaas_run_duration_seconds_bucket{{le="{le}",{labels}}}"#))
    };
    let of_all =
        |what: &str| scrape.value(&format!("gpuaas_run_duration_seconds_{what}{{{labels}}}"));
    assert_eq!(
        (of_all("count"), bucket("300.0"), bucket("600.0"), bucket("+Inf")),
        (2.0, 0.0, 2.0, 2.0)
    );
    assert_eq!(of_all("sum"), 900.0);
}

/// What succeeded runs took is counted in the database, as a whole and by bucket.
#[tokio::test]
async fn times_to_active_and_by_bucket_are_histograms() {
    let rig = Rig::with_site().await;
    for (hostname, seconds, status) in
        [("j22u11", 500, RunStatus::Succeeded), ("j22u15", 400, RunStatus::Failed)]
    {
        let accepted = rig.onboard(hostname).await;
        rig.advance(seconds);
        rig.put_run(accepted.run_id, status).await;
    }
    for _ in 0..2 {
        let scrape = Scrape::fetch(&rig).await;
        let labels = r#"site="lab",kind="onboard""#;
        let active = |le: &str| {
            scrape.value(&format!(r#"gpuaas_time_to_active_seconds_bucket{{le="{le}",{labels}}}"#))
        };
        assert_eq!((active("300.0"), active("600.0"), active("+Inf")), (0.0, 1.0, 1.0));
        assert_eq!(scrape.value(&format!("gpuaas_time_to_active_seconds_sum{{{labels}}}")), 500.0);
        let accept = format!(r#"{{{labels},bucket="accept"}}"#);
        let of_bucket = |what: &str| {
            scrape.value(&format!("gpuaas_run_bucket_duration_seconds_{what}{accept}"))
        };
        assert_eq!((of_bucket("sum"), of_bucket("count")), (500.0, 1.0));
    }
}

#[tokio::test]
async fn metrics_want_a_token_that_may_look_everywhere() {
    let rig = Rig::with_site().await;
    let token = async |name: &str, sites: serde_json::Value| {
        let grants = json!([{ "role": "viewer", "sites": sites }]);
        let body = json!({ "name": name, "grants": grants, "reason": "test" });
        rig.post("/api/v1/tokens", body).await.ok()["token"].as_str().unwrap().to_owned()
    };
    let (all, one) = (token("prometheus", json!(null)).await, token("north", json!(["lab"])).await);
    let get = async |token: Option<&str>| rig.call("GET", "/metrics", token, None).await;
    assert_eq!(get(None).await.status, 401);
    assert_eq!(get(Some(&all)).await.status, 200);
    assert_eq!(get(Some(&one)).await.status, 403);
}

/// A process whose loop ended is to be started again; one whose database is silent is not.
#[tokio::test]
async fn a_process_that_lives_is_told_from_one_that_is_ready() {
    let rig = Rig::new().await;
    let get = async |path: &str| rig.call("GET", path, None, None).await;
    assert_eq!((get("/healthz").await.status, get("/readyz").await.status), (200, 200));
    rig.store.close().await;
    rig.advance(5);
    assert_eq!((get("/healthz").await.status, get("/readyz").await.status), (200, 503));
}
