//! A control plane whose loop dies, as the process that it is.

use std::time::Duration;

use serde_json::Value;

use gpuaas_testkit::processes::{Server, agent};

/// Health answers of the control plane at `url`, until it does not answer any more.
async fn health_until_gone(url: &str) -> Vec<(u16, Value)> {
    let client = reqwest::Client::new();
    let mut ticks = tokio::time::interval(Duration::from_millis(20));
    let mut answers = Vec::new();
    loop {
        ticks.tick().await;
        let Ok(answer) = client.get(format!("{url}/api/v1/health")).send().await else {
            return answers;
        };
        let status = answer.status().as_u16();
        answers.push((status, answer.json().await.unwrap_or_default()));
    }
}

#[test]
fn a_loop_that_dies_turns_health_red_and_ends_the_process_with_its_name() {
    let dir = tempfile::tempdir().unwrap();
    let path = |name: &str| dir.path().join(name).to_str().unwrap().to_owned();
    let (data, planted) = (path("data"), format!("site watchers={}", path("now")));
    let agent = agent();
    let line = ["serve", "--listen", "127.0.0.1:0", "--node-listen", "127.0.0.1:0"];
    let rest = ["--agent-binary", agent.to_str().unwrap(), "--data", &data];
    let plant = ["--panic-in-loop", &planted];
    let line = [&line[..], &rest, &plant].concat();
    let mut server = Server::start(&line, dir.path().join("serve.log"), "nodes");

    gpuaas_client::install_cryptography();
    let url = server.value("listening").to_owned();
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let answers = runtime.block_on(async {
        let first = reqwest::get(format!("{url}/api/v1/health")).await.unwrap();
        assert_eq!(first.status().as_u16(), 200);
        std::fs::write(path("now"), "").unwrap();
        health_until_gone(&url).await
    });
    let red: Vec<_> = answers.iter().filter(|(status, _)| *status == 503).collect();
    let (_, problem) = red.first().unwrap_or_else(|| panic!("never red: {answers:?}"));
    assert_eq!(problem["code"], "loop_ended");
    assert!(problem["detail"].as_str().unwrap().contains("\"site watchers\""), "{problem}");
    assert_eq!(server.wait().code(), Some(1));
    let log = server.log();
    assert!(log.contains("error loop_ended"), "{log}");
    assert!(log.contains("the loop \"site watchers\" ended: it panicked"), "{log}");
}
