//! What is on the stream of events in the end.

use std::collections::BTreeSet;
use std::time::Duration;

use async_nats::jetstream::{self, ErrorCode};
use gpuaas_client::failure::Failure;
use tokio::time::timeout;

use super::failure::not_met;

/// Name of the stream that control planes publish events on.
const STREAM: &str = "GPUAAS_EVENTS";
/// Longest time of one question.
const QUESTION: Duration = Duration::from_secs(30);

/// Messages of the stream.
#[derive(Debug, Default)]
pub(super) struct Messages {
    /// How many there are.
    pub(super) total: u64,
    /// Identifiers of their events.
    pub(super) ids: BTreeSet<String>,
}

fn failed(error: impl ToString) -> Failure {
    not_met(&format!("NATS: {}", error.to_string()))
}

/// Reads all of them; none where there is no such stream yet.
///
/// # Errors
/// `benchmark_unusable` where NATS does not answer.
pub(super) async fn messages(url: &str) -> Result<Messages, Failure> {
    let client = timeout(QUESTION, async_nats::connect(url)).await.map_err(failed)?;
    let context = jetstream::new(client.map_err(failed)?);
    let mut stream = match timeout(QUESTION, context.get_stream(STREAM)).await.map_err(failed)? {
        Ok(stream) => stream,
        Err(error) => {
            let missing = matches!(
                error.kind(),
                jetstream::context::GetStreamErrorKind::JetStream(error)
                    if error.error_code() == ErrorCode::STREAM_NOT_FOUND
            );
            return if missing { Ok(Messages::default()) } else { Err(failed(error)) };
        }
    };
    let state = stream.info().await.map_err(failed)?.state.clone();
    let mut messages = Messages { total: state.messages, ids: BTreeSet::new() };
    if state.messages == 0 {
        return Ok(messages);
    }
    for sequence in state.first_sequence..=state.last_sequence {
        let message = timeout(QUESTION, stream.get_raw_message(sequence)).await.map_err(failed)?;
        let Ok(message) = message else { continue };
        messages.ids.extend(message.headers.get("Nats-Msg-Id").map(ToString::to_string));
    }
    Ok(messages)
}
