//! Server-sent events.

use gpuaas_client::server_sent::{Message, ServerSent};
use gpuaas_types::Problem;
use gpuaas_types::event::NodeEvent;

use crate::round_trip::assert_json_round_trip;

/// A stream of events, cut as its first byte says.
///
/// However a stream is cut, the same messages are read of it, or it is refused; no message is longer than
/// what came; what a message holds reads back as the same event.
pub fn sse(data: &[u8]) {
    let Some((cut, stream)) = data.split_first() else { return };
    let step = 1 + usize::from(*cut);
    let whole = read(stream, &[stream.len().max(1)]);
    let pieces = read(stream, &[step, 1, step / 2 + 1, 2]);
    assert_eq!(whole, pieces, "cut by {step}");
    for message in whole.iter().flatten() {
        assert!(message.data.len() + message.name.len() <= stream.len());
        assert!(!message.data.contains('\r') && !message.name.contains(['\r', '\n']));
        if let Ok(event) = serde_json::from_str::<NodeEvent>(&message.data) {
            assert_json_round_trip(&event);
        }
        if let Ok(problem) = serde_json::from_str::<Problem>(&message.data) {
            assert_json_round_trip(&problem);
        }
    }
}

/// The messages of a stream that comes in pieces of these lengths, over and over; none: it is refused.
fn read(mut stream: &[u8], lengths: &[usize]) -> Option<Vec<Message>> {
    let (mut parser, mut messages) = (ServerSent::default(), Vec::new());
    for length in lengths.iter().cycle() {
        let (piece, rest) = stream.split_at((*length).min(stream.len()));
        messages.extend(parser.push(piece).ok()?);
        stream = rest;
        if stream.is_empty() {
            break;
        }
    }
    Some(messages)
}
