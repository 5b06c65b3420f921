//! Where work belongs in a trace, in the form of W3C Trace Context (`traceparent`, level 1).

use std::fmt;
use std::str::FromStr;

use crate::ids::IdSource;
use crate::time::Timestamp;

/// The header that carries it.
pub const TRACEPARENT_HEADER: &str = "traceparent";

/// A span of a trace, as the next one names its parent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct TraceContext {
    /// Identifier of the trace; never all zeros.
    pub trace_id: [u8; 16],
    /// Identifier of the span; never all zeros.
    pub span_id: [u8; 8],
    /// Whether whoever began the trace records it.
    pub is_sampled: bool,
}

/// A text is no `traceparent`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NoTraceContext;

impl fmt::Display for NoTraceContext {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("expected 00-TRACE-SPAN-FLAGS in lowercase hexadecimal digits")
    }
}

impl std::error::Error for NoTraceContext {}

impl TraceContext {
    /// The first span of a new trace, or the next one of `parent`'s.
    #[must_use]
    pub fn next(ids: &dyn IdSource, now: Timestamp, parent: Option<Self>) -> Self {
        // Identifiers begin with their time; what is random in them is at their end.
        let (trace, span) = (ids.uuid(now).into_bytes(), ids.uuid(now).into_bytes());
        let mut span_id = [0; 8];
        span_id.copy_from_slice(&span[8..]);
        let trace_id = parent.map_or(trace, |parent| parent.trace_id);
        Self { trace_id, span_id, is_sampled: parent.is_none_or(|parent| parent.is_sampled) }
    }

    /// The trace in hexadecimal digits.
    #[must_use]
    pub fn trace_hex(&self) -> String {
        hex(&self.trace_id)
    }

    /// The span in hexadecimal digits.
    #[must_use]
    pub fn span_hex(&self) -> String {
        hex(&self.span_id)
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

impl fmt::Display for TraceContext {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let flags = u8::from(self.is_sampled);
        write!(f, "00-{}-{}-{flags:02x}", self.trace_hex(), self.span_hex())
    }
}

impl FromStr for TraceContext {
    type Err = NoTraceContext;

    /// Reads version 00, and of a later one what version 00 has (section 3.2.4 of the recommendation).
    fn from_str(text: &str) -> Result<Self, NoTraceContext> {
        let mut parts = text.split('-');
        let mut part = || parts.next().ok_or(NoTraceContext);
        let (version, trace, span, flags) = (part()?, part()?, part()?, part()?);
        let more = parts.next().is_some();
        let [version] = bytes(version)?;
        if version == 0xff || (version == 0 && more) {
            return Err(NoTraceContext);
        }
        let (trace_id, span_id, [flags]) = (bytes(trace)?, bytes(span)?, bytes(flags)?);
        if trace_id == [0; 16] || span_id == [0; 8] {
            return Err(NoTraceContext);
        }
        Ok(Self { trace_id, span_id, is_sampled: flags & 1 == 1 })
    }
}

/// So many bytes of lower case hexadecimal digits, and nothing else.
fn bytes<const N: usize>(text: &str) -> Result<[u8; N], NoTraceContext> {
    let digit = |byte: u8| match byte {
        b'0'..=b'9' => Ok(byte - b'0'),
        b'a'..=b'f' => Ok(byte - b'a' + 10),
        _ => Err(NoTraceContext),
    };
    let digits = text.as_bytes();
    if digits.len() != 2 * N {
        return Err(NoTraceContext);
    }
    let mut read = [0; N];
    for (byte, pair) in read.iter_mut().zip(digits.chunks(2)) {
        *byte = digit(pair[0])? << 4 | digit(pair[1])?;
    }
    Ok(read)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::RandomIds;

    const EXAMPLE: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";

    #[test]
    fn the_recommendation_s_example_is_read_and_written() {
        let context: TraceContext = EXAMPLE.parse().unwrap();
        assert!(context.is_sampled);
        assert_eq!(context.to_string(), EXAMPLE);
        let unsampled = EXAMPLE.replace("-01", "-00");
        assert!(!unsampled.parse::<TraceContext>().unwrap().is_sampled);
        let later = format!("{}-what-comes", EXAMPLE.replacen("00", "cc", 1));
        assert_eq!(later.parse(), Ok(context), "a later version says more");
    }

    #[test]
    fn anything_else_is_none() {
        for text in [
            "",
            "00",
            "ff-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
            "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01-more",
            "00-0AF7651916CD43DD8448EB211C80319C-b7ad6b7169203331-01",
            "00-00000000000000000000000000000000-b7ad6b7169203331-01",
            "00-0af7651916cd43dd8448eb211c80319c-0000000000000000-01",
            "00-0af7651916cd43dd8448eb211c80319-b7ad6b7169203331-01",
            "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-1",
            "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-é1",
        ] {
            assert_eq!(text.parse::<TraceContext>(), Err(NoTraceContext), "{text}");
        }
    }

    #[test]
    fn a_child_is_of_its_parent_s_trace() {
        let parent: TraceContext = EXAMPLE.parse().unwrap();
        let now = Timestamp::from_micros(1_795_190_400_000_000);
        let child = TraceContext::next(&RandomIds, now, Some(parent));
        assert_eq!((child.trace_id, child.is_sampled), (parent.trace_id, true));
        assert_ne!(child.span_id, parent.span_id);
        let first = TraceContext::next(&RandomIds, now, None);
        assert_ne!(first.trace_id, TraceContext::next(&RandomIds, now, None).trace_id);
        assert_eq!(first.to_string().parse(), Ok(first));
    }
}
