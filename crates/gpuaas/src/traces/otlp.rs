//! Spans in the JSON form of OTLP (opentelemetry-proto 1.x, `ExportTraceServiceRequest`): identifiers in
//! hexadecimal digits, numbers of 64 bits as texts, names in camel case.

use gpuaas_types::Timestamp;
use serde::Serialize;

use super::span_layer::EndedSpan;

/// Where the spans come from.
#[derive(Debug, Clone)]
pub(crate) struct Resource {
    /// Version of the control plane.
    pub(crate) version: String,
    /// Which of several it is.
    pub(crate) instance: String,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Request<'a> {
    resource_spans: [ResourceSpans<'a>; 1],
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct ResourceSpans<'a> {
    resource: ResourceOf<'a>,
    scope_spans: [ScopeSpans<'a>; 1],
}

#[derive(Serialize)]
struct ResourceOf<'a> {
    attributes: Vec<KeyValue<'a>>,
}

#[derive(Serialize)]
struct ScopeSpans<'a> {
    scope: Scope<'a>,
    spans: Vec<Span<'a>>,
}

#[derive(Serialize)]
struct Scope<'a> {
    name: &'static str,
    version: &'a str,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Span<'a> {
    trace_id: String,
    span_id: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    parent_span_id: Option<String>,
    name: &'static str,
    kind: u8,
    start_time_unix_nano: String,
    end_time_unix_nano: String,
    attributes: Vec<KeyValue<'a>>,
}

#[derive(Serialize)]
struct KeyValue<'a> {
    key: &'static str,
    value: AnyValue<'a>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct AnyValue<'a> {
    string_value: &'a str,
}

fn attribute<'a>(key: &'static str, value: &'a str) -> KeyValue<'a> {
    KeyValue { key, value: AnyValue { string_value: value } }
}

fn nanoseconds(at: Timestamp) -> String {
    format!("{}000", at.as_micros().max(0))
}

fn span(ended: &EndedSpan) -> Span<'_> {
    let hex = |id: [u8; 8]| id.iter().map(|byte| format!("{byte:02x}")).collect();
    Span {
        trace_id: ended.own.trace_hex(),
        span_id: ended.own.span_hex(),
        parent_span_id: ended.parent.map(hex),
        name: ended.name,
        kind: ended.kind as u8,
        start_time_unix_nano: nanoseconds(ended.began),
        end_time_unix_nano: nanoseconds(ended.ended.max(ended.began)),
        attributes: ended.attributes.iter().map(|(key, value)| attribute(key, value)).collect(),
    }
}

/// The body of a request that exports these spans.
pub(crate) fn body(resource: &Resource, spans: &[EndedSpan]) -> Vec<u8> {
    let Resource { version, instance } = resource;
    let request = Request {
        resource_spans: [ResourceSpans {
            resource: ResourceOf {
                attributes: vec![
                    attribute("service.name", "gpuaas"),
                    attribute("service.version", version),
                    attribute("service.instance.id", instance),
                ],
            },
            scope_spans: [ScopeSpans {
                scope: Scope { name: "gpuaas", version },
                spans: spans.iter().map(span).collect(),
            }],
        }],
    };
    serde_json::to_vec(&request).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use gpuaas_types::trace_context::TraceContext;
    use serde_json::{Value, json};

    use super::super::span_layer::SpanKind;
    use super::*;

    #[test]
    fn a_span_is_written_as_the_protocol_has_it() {
        let own: TraceContext =
            "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01".parse().unwrap();
        let ended = EndedSpan {
            own,
            parent: Some([0, 1, 2, 3, 4, 5, 6, 255]),
            name: "maas_call",
            kind: SpanKind::Client,
            began: Timestamp::from_micros(1_795_190_400_000_001),
            ended: Timestamp::from_micros(1_795_190_400_000_000),
            attributes: vec![("gpuaas.maas.call", "GET machines/{id}/".to_owned())],
        };
        let resource = Resource { version: "1.2.3".to_owned(), instance: "a".to_owned() };
        let written: Value = serde_json::from_slice(&body(&resource, &[ended])).unwrap();
        let text =
            |key: &str, value: &str| json!({ "key": key, "value": { "stringValue": value } });
        let wanted = json!({ "resourceSpans": [{
            "resource": { "attributes": [
                text("service.name", "gpuaas"), text("service.version", "1.2.3"),
                text("service.instance.id", "a"),
            ]},
            "scopeSpans": [{
                "scope": { "name": "gpuaas", "version": "1.2.3" },
                "spans": [{
                    "traceId": "0af7651916cd43dd8448eb211c80319c",
                    "spanId": "b7ad6b7169203331",
                    "parentSpanId": "00010203040506ff",
                    "name": "maas_call",
                    "kind": 3,
                    "startTimeUnixNano": "1795190400000001000",
                    "endTimeUnixNano": "1795190400000001000",
                    "attributes": [text("gpuaas.maas.call", "GET machines/{id}/")],
                }],
            }],
        }]});
        assert_eq!(written, wanted);
    }
}
