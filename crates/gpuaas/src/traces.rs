//! Traces of OpenTelemetry: from a request through the run that it begins to the calls of MAAS
//! (docs/adr/0038-traces.md).

mod exporter;
mod otlp;
mod span_layer;

pub(crate) use exporter::{TraceExporter, TracePipe, pipe};
pub(crate) use otlp::Resource;
pub(crate) use span_layer::{SpanLayer, is_traced};
