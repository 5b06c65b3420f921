//! What the log of a small onboarding says.

#![expect(clippy::unwrap_used, reason = "a test")]

mod common;

use std::io;
use std::sync::{Arc, Mutex};

use common::Harness;
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

// One thread, so that every line comes to this test's subscriber.
#[tokio::test]
async fn every_line_of_a_run_names_run_node_step_and_effect() {
    let memory = LogBuffer::default();
    let subscriber = tracing_subscriber::fmt()
        .json()
        .with_max_level(tracing::Level::INFO)
        .with_writer(memory.clone())
        .finish();
    let _guard = tracing::subscriber::set_default(subscriber);
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
    let [watched] = said("site watched").try_into().unwrap();
    assert_eq!(of_spans(&watched, "site"), Some("lab"), "{watched}");
}
