//! What the log of a small onboarding says.

#![expect(clippy::unwrap_used, reason = "a test")]

use std::io;
use std::sync::{Arc, Mutex};

use crate::common::Harness;
use gpuaas_types::RunStatus;
use gpuaas_types::spec::ProfileSpec;
use serde_json::Value;
use tracing_subscriber::fmt::MakeWriter;

/// A log in memory.
#[derive(Clone, Default)]
struct LogBuffer(Arc<Mutex<Vec<u8>>>);

impl io::Write for LogBuffer {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl<'a> MakeWriter<'a> for LogBuffer {
    type Writer = Self;

    fn make_writer(&'a self) -> Self {
        self.clone()
    }
}

impl LogBuffer {
    fn lines(&self) -> Vec<Value> {
        let bytes = self.0.lock().unwrap().clone();
        let text = String::from_utf8(bytes).unwrap();
        text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }
}

/// The value of `field` in the spans around a line, the innermost first.
fn of_spans<'a>(line: &'a Value, field: &str) -> Option<&'a str> {
    let spans = line["spans"].as_array()?;
    spans.iter().rev().find_map(|span| span[field].as_str())
}

/// Collects what this thread logs from `level` on.
fn collect(level: tracing::Level) -> (LogBuffer, tracing::subscriber::DefaultGuard) {
    let memory = LogBuffer::default();
    let subscriber =
        tracing_subscriber::fmt().json().with_max_level(level).with_writer(memory.clone()).finish();
    (memory, tracing::subscriber::set_default(subscriber))
}

/// The value of `field` in a line or in the spans around it.
fn field_or_span<'a>(line: &'a Value, field: &str) -> Option<&'a str> {
    line["fields"][field].as_str().or_else(|| of_spans(line, field))
}

// One thread, so that every line comes to this test's subscriber.
#[tokio::test]
async fn a_site_and_a_host_are_named_and_not_told_by_their_ids_alone() {
    let (memory, _guard) = collect(tracing::Level::DEBUG);
    let harness = Harness::start(1, ProfileSpec::default()).await;
    let accepted = harness.onboard(&harness.hosts[0]).await;
    assert_eq!(harness.rest(accepted.run_id).await.status, RunStatus::Succeeded);
    harness.change_site(|site| site.url = "http://127.0.0.1:1/MAAS".to_owned()).await;
    let engine = harness.restart_sweeping(0.05).await;
    let says = |line: &Value, text: &str| line["fields"]["message"] == text;
    let about_the_site = ["site health changed", "the sweep stopped halfway"];
    harness
        .until(async || {
            let lines = memory.lines();
            about_the_site.iter().all(|text| lines.iter().any(|line| says(line, text)))
        })
        .await;
    engine.stop().await;

    for line in memory.lines() {
        if !line["target"].as_str().is_some_and(|target| target.starts_with("gpuaas_engine")) {
            continue;
        }
        let about_site = about_the_site.iter().any(|text| says(&line, text));
        if about_site || field_or_span(&line, "site_id").is_some() {
            assert_eq!(field_or_span(&line, "site"), Some("lab"), "{line}");
        }
        let about_host = ["node_id", "run_id"].iter().any(|id| field_or_span(&line, id).is_some());
        if about_host {
            let name = harness.hosts[0].name.as_str();
            assert_eq!(field_or_span(&line, "node"), Some(name), "{line}");
        }
    }
}

// One thread, so that every line comes to this test's subscriber.
#[tokio::test]
async fn every_line_of_a_run_names_run_node_step_and_effect() {
    let (memory, _guard) = collect(tracing::Level::INFO);
    let harness = Harness::start(1, ProfileSpec::default()).await;
    let accepted = harness.onboard(&harness.hosts[0]).await;
    let run = harness.rest(accepted.run_id).await;
    assert_eq!(run.status, RunStatus::Succeeded, "{:?}", run.park);
    harness.engine.stop().await;

    let lines = memory.lines();
    let run_id = accepted.run_id.to_string();
    let said = |text: &str| {
        let of_text = lines.iter().filter(|line| line["fields"]["message"] == text);
        of_text.cloned().collect::<Vec<_>>()
    };
    let entered = said("step entered");
    let steps: Vec<&str> =
        entered.iter().filter_map(|line| line["fields"]["entered"].as_str()).collect();
    let spans = harness.store.spans(accepted.run_id).await.unwrap();
    let kept: Vec<&str> = spans.iter().skip(1).map(|span| span.step.as_str()).collect();
    assert_eq!(steps, kept, "one line for each step");
    for line in entered.iter().chain(&said("run ended")).chain(&said("run waits")) {
        assert_eq!(of_spans(line, "run_id"), Some(run_id.as_str()), "{line}");
        assert_eq!(of_spans(line, "node"), Some(harness.hosts[0].name.as_str()), "{line}");
        assert_eq!(of_spans(line, "site"), Some("lab"), "{line}");
        assert!(of_spans(line, "step").is_some(), "{line}");
        assert_eq!(line["level"], "INFO", "{line}");
    }
    let effects = said("effect accepted");
    let names: Vec<_> = effects.iter().filter_map(|line| of_spans(line, "effect")).collect();
    assert!(names.contains(&"deploy") && names.contains(&"commission"), "{names:?}");
    assert_eq!(names.len(), effects.len(), "each names its effect");
    let [ended] = said("run ended").try_into().unwrap();
    assert_eq!(ended["fields"]["status"], "succeeded");
    let [watched] = said("watching the site").try_into().unwrap();
    assert_eq!(of_spans(&watched, "site"), Some("lab"), "{watched}");
}
