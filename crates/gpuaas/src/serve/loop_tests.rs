//! A control plane whose loops die.

use std::fs;
use std::path::Path;
use std::sync::Arc;

use gpuaas_client::failure::Exit;
use gpuaas_engine::Failpoints;
use gpuaas_types::Problem;

use super::{ServeHandle, ServeOptions, start};

/// A panic in the loop of this name when it begins.
struct PanicInLoop(&'static str);

impl Failpoints for PanicInLoop {
    fn reach_loop(&self, name: &str) {
        assert!(name != self.0, "planted in a loop");
    }
}

async fn started(dir: &Path, failpoints: Option<Arc<dyn Failpoints>>) -> ServeHandle {
    let agent = dir.join("agent");
    fs::write(&agent, "#!/bin/sh\n").unwrap();
    let mut options = ServeOptions::new(([127, 0, 0, 1], 0).into(), dir.join("data"));
    options.agent_binary = Some(agent);
    options.failpoints = failpoints;
    start(options).await.unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_loop_that_panics_ends_the_command_with_its_name() {
    gpuaas_client::install_cryptography();
    for name in [
        "worker",
        "site watchers",
        "sweep",
        "batches",
        "slice runs",
        "agent watch",
        "operator listener",
        "node listener",
        "certificate authority",
        "node listener certificate",
        "task signals",
        "event delivery",
    ] {
        let dir = tempfile::tempdir().unwrap();
        let handle = started(dir.path(), Some(Arc::new(PanicInLoop(name)))).await;
        let failure = handle.until_stopped(std::future::pending()).await.unwrap_err();
        assert_eq!((failure.exit, failure.code()), (Exit::Local, "loop_ended"));
        let text = failure.to_string();
        assert!(text.contains(&format!("the loop \"{name}\" ended: it panicked")), "{text}");
        if name != "operator listener" {
            let answer = reqwest::get(format!("{}/api/v1/health", handle.url())).await.unwrap();
            assert_eq!(answer.status().as_u16(), 503, "{name}");
            assert_eq!(answer.json::<Problem>().await.unwrap().code, "loop_ended");
        }
        handle.shutdown().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_control_plane_that_is_told_to_stop_ends_well() {
    gpuaas_client::install_cryptography();
    let dir = tempfile::tempdir().unwrap();
    let handle = started(dir.path(), None).await;
    let answer = reqwest::get(format!("{}/api/v1/health", handle.url())).await.unwrap();
    assert_eq!(answer.status().as_u16(), 200);
    handle.until_stopped(std::future::ready(())).await.unwrap();
    let supervisor = handle.engine.supervisor().clone();
    handle.shutdown().await;
    assert_eq!(supervisor.ended_loop(), None);
}
