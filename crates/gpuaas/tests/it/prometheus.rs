//! The files of `ops` in a real Prometheus, which scrapes a control plane that runs.

use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use serde_json::Value;

use gpuaas_testkit::processes::{Rig, until};

const SITE: &str = "lab";

fn ops(name: &str) -> String {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../ops");
    std::fs::read_to_string(folder.join(name)).unwrap()
}

/// Queries of the dashboard's panels, each with its panel's title.
fn panel_queries() -> Vec<(String, String)> {
    let dashboard: Value = serde_json::from_str(&ops("grafana/gpuaas.json")).unwrap();
    let mut queries = Vec::new();
    for panel in dashboard["panels"].as_array().unwrap() {
        for target in panel["targets"].as_array().into_iter().flatten() {
            let expr = target["expr"].as_str().unwrap().replace("$site", SITE);
            queries.push((panel["title"].as_str().unwrap().to_owned(), expr));
        }
    }
    queries
}

/// `gpuaas_x{a!="", b!=""}` for each `gpuaas_x{a="1", b=~"2|3"}` of a query: the same series, whatever
/// the values of its labels are, as long as it has them.
fn selectors(query: &str) -> Vec<String> {
    let is_name = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let mut found = Vec::new();
    for (at, _) in query.match_indices("gpuaas_") {
        let rest = &query[at..];
        let (name, rest) = rest.split_at(rest.find(|c| !is_name(c)).unwrap_or(rest.len()));
        let matchers = rest.strip_prefix('{').and_then(|rest| rest.split_once('}'));
        let labels = matchers.map_or("", |(inside, _)| inside).split(['"', ',']);
        let labels =
            labels.filter_map(|word| word.trim().trim_end_matches('~').strip_suffix(['=', '!']));
        let labels: Vec<String> =
            labels.map(|label| format!("{}!=\"\"", label.trim_end_matches('!'))).collect();
        found.push(format!("{name}{{{}}}", labels.join(", ")));
    }
    found
}

/// A Prometheus that runs until it is dropped.
struct Prometheus {
    child: Child,
    url: String,
}

impl Drop for Prometheus {
    fn drop(&mut self) {
        self.child.kill().ok();
        self.child.wait().ok();
    }
}

impl Prometheus {
    /// One that scrapes the rig by the configuration of `ops`, and asks the rules each second.
    fn start(rig: &Rig) -> Self {
        let target = rig.control_plane.value("listening").trim_start_matches("http://");
        let scrape = ops("prometheus/scrape.yaml")
            .replace("/etc/prometheus/gpuaas.token", &rig.path("prometheus.token"))
            .replace("127.0.0.1:8080", target)
            .replace("scrape_interval: 15s", "scrape_interval: 1s");
        let rules = rig.path("rules.yaml");
        std::fs::write(&rules, ops("prometheus/gpuaas.rules.yaml")).unwrap();
        let file = rig.path("prometheus.yml");
        let global =
            format!("global: {{evaluation_interval: 1s}}\nrule_files: [{rules}]\n{scrape}");
        std::fs::write(&file, global).unwrap();
        let mut check = Command::new("promtool");
        let checked = check.args(["check", "config", &file]).output().unwrap();
        assert!(checked.status.success(), "{}", String::from_utf8_lossy(&checked.stderr));
        let free = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        let log = std::fs::File::create(rig.path("prometheus.log")).unwrap();
        let child = Command::new("prometheus")
            .args([format!("--config.file={file}"), format!("--web.listen-address={free}")])
            .arg(format!("--storage.tsdb.path={}", rig.path("tsdb")))
            .stdout(Stdio::null())
            .stderr(log)
            .spawn()
            .unwrap();
        Self { child, url: format!("http://{free}") }
    }

    fn get(&self, path: &str, query: &[&str]) -> Option<Value> {
        let mut curl = Command::new("curl");
        curl.args(["-sSG", "--noproxy", "*", "--max-time", "20"]);
        for one in query {
            curl.args(["--data-urlencode", one]);
        }
        let output = curl.arg(format!("{}/api/v1/{path}", self.url)).output().unwrap();
        serde_json::from_slice(&output.stdout).ok()
    }

    /// How many series the query gives.
    fn count(&self, query: &str) -> usize {
        let Some(answer) = self.get("query", &[&format!("query={query}")]) else { return 0 };
        assert_eq!(answer["status"], "success", "{query}: {answer}");
        answer["data"]["result"].as_array().unwrap().len()
    }

    fn rules(&self) -> Vec<Value> {
        let groups = self.get("rules", &[]).map(|mut answer| answer["data"]["groups"].take());
        let groups: Vec<Value> =
            serde_json::from_value(groups.unwrap_or_default()).unwrap_or_default();
        groups.iter().flat_map(|group| group["rules"].as_array().unwrap().clone()).collect()
    }
}

/// A control plane with something to see in each metric: a node that is active and ready for slices, one
/// that waits, a sink of events
/// that takes none, a collector of traces that is away.
fn busy_rig() -> Rig {
    let nobody = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let rig = Rig::serving(&["--otlp-endpoint", &format!("http://{nobody}")]);
    let to = |name: &str| PathBuf::from(rig.path(name)).display().to_string();
    rig.good(&format!(
        "token add prometheus --role viewer --to {} --reason metrics",
        to("prometheus.token")
    ));
    rig.good(&format!(
        "webhook add chat --url http://{nobody}/x --to {} --reason test",
        to("webhook.secret")
    ));
    rig.add_site();
    rig.good(concat!(
        "profile add h200 --set site_bootstrap_bundle_ref=",
        gpuaas_types::built_in_bundle!("h200-slice-vm")
    ));
    let pass = rig.path("bmc.pass");
    rig.good("profile add missing --set distro_series=custom/missing");
    let onboard = |name: &str, profile: &str| {
        let (mac, bmc) = rig.machine(name);
        format!(
            "node onboard {name} --site {SITE} --profile {profile} --bmc-address {bmc} --mac {mac} \
             --bmc-user admin --bmc-pass-file {pass}"
        )
    };
    rig.good(&format!("{} --wait --timeout 120", onboard("j22u11", "h200")));
    rig.good(&onboard("j22u15", "missing"));
    let fault = r#"{"kind": "deploy_failed", "machine": "j27u15"}"#;
    let mut curl = Command::new("curl");
    curl.args(["-sSf", "--noproxy", "*", "--max-time", "20", "-d", fault]);
    let url = rig.sim.value("listening").trim_end_matches("/MAAS/");
    assert!(curl.arg(format!("{url}/sim/v1/faults")).status().unwrap().success());
    rig.good(&onboard("j27u15", "h200"));
    let parked = r#"gpuaas_failed_runs{site="lab",kind="onboard",status="parked""#;
    until("the third node is parked", || rig.metrics().contains(parked));
    let waits = r#"status="waiting",code="predeploy_checks_failing""#;
    until("the second node waits", || rig.metrics().contains(waits));
    let ready = r#"gpuaas_time_to_slice_ready_seconds_count{site="lab",kind="onboard"} 1"#;
    until("the first node is ready for slices", || rig.metrics().contains(ready));
    let image = r#"gpuaas_run_bucket_duration_seconds_count{site="lab",kind="onboard",bucket="image_deploy"} 1"#;
    assert!(rig.metrics().contains(image), "{}", rig.metrics());
    rig
}

#[test]
fn every_query_of_the_rules_and_the_dashboard_is_answered() {
    if !["prometheus", "promtool"]
        .iter()
        .all(|name| Command::new(name).arg("--version").output().is_ok())
    {
        test_report::skip("prometheus", "there is no prometheus");
        return;
    }
    let rig = busy_rig();
    let prometheus = Prometheus::start(&rig);
    let log = || std::fs::read_to_string(rig.path("prometheus.log")).unwrap();
    until("it scrapes", || prometheus.count("up{job=\"gpuaas\"} == 1") == 1);

    let panels = panel_queries();
    assert!(panels.len() > 20, "{panels:?}");
    for (title, query) in &panels {
        until(&format!("{title}: {query}"), || prometheus.count(query) > 0);
    }
    let rules = || prometheus.rules();
    let known = |rule: &Value| rule["health"] != "unknown";
    until("each rule was asked", || !rules().is_empty() && rules().iter().all(known));
    for rule in rules() {
        let query = rule["query"].as_str().unwrap();
        assert_eq!(rule["health"], "ok", "{rule}\n{}", log());
        for selector in selectors(query) {
            assert!(prometheus.count(&selector) > 0, "{}: no series {selector}", rule["name"]);
        }
    }
    let lost = || rules().into_iter().find(|rule| rule["name"] == "GpuaasTracesLost").unwrap();
    until("an alert sees that the collector is away", || lost()["state"] == "pending");
}

#[test]
fn a_selector_loses_the_values_of_its_labels() {
    let query = "sum by (a) (rate(gpuaas_x_total{a=~\"5..|4\", b!=\"c\"}[5m])) / gpuaas_y > 1";
    let expected = ["gpuaas_x_total{a!=\"\", b!=\"\"}", "gpuaas_y{}"];
    assert_eq!(selectors(query), expected);
}
