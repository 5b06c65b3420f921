//! The spans of the log that become spans of a trace.
//!
//! Which spans those are, and which of their fields go along, is one table, [`TRACED`]: what it does not
//! name leaves this process in no trace, so no secret does. A span's parent is the one that its field
//! `trace.parent` names, else the span around it; `trace.own` says which identifier it has got already,
//! because an answer or a run has been told.

use std::fmt;
use std::sync::Arc;

use gpuaas_api::TraceCounters;
use gpuaas_engine::{Clock as _, RealClock};
use gpuaas_types::trace_context::TraceContext;
use gpuaas_types::{RandomIds, Timestamp};
use tokio::sync::mpsc::Sender;
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Metadata, Subscriber};
use tracing_subscriber::Layer;
use tracing_subscriber::layer::Context;
use tracing_subscriber::registry::LookupSpan;

/// A kind of span, as OTLP numbers it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SpanKind {
    Internal = 1,
    Server = 2,
    Client = 3,
}

/// A row of [`TRACED`].
struct TracedSpan {
    name: &'static str,
    kind: SpanKind,
    /// Fields, and what they are called in a trace.
    fields: &'static [(&'static str, &'static str)],
}

/// Names of fields are those of OpenTelemetry's semantic conventions where these have one.
const TRACED: &[TracedSpan] = &[
    TracedSpan {
        name: "request",
        kind: SpanKind::Server,
        fields: &[
            ("method", "http.request.method"),
            ("path", "url.path"),
            ("status", "http.response.status_code"),
        ],
    },
    TracedSpan {
        name: "run",
        kind: SpanKind::Internal,
        fields: &[
            ("run_id", "gpuaas.run.id"),
            ("node", "gpuaas.node"),
            ("site", "gpuaas.site"),
            ("kind", "gpuaas.run.kind"),
        ],
    },
    TracedSpan { name: "step", kind: SpanKind::Internal, fields: &[("step", "gpuaas.step")] },
    TracedSpan { name: "effect", kind: SpanKind::Internal, fields: &[("effect", "gpuaas.effect")] },
    TracedSpan {
        name: "maas_call",
        kind: SpanKind::Client,
        fields: &[("call", "gpuaas.maas.call"), ("status", "http.response.status_code")],
    },
];

/// Whether a span of this name becomes one of a trace.
pub(crate) fn is_traced(metadata: &Metadata<'_>) -> bool {
    let is_ours =
        ["gpuaas_", "maas_client"].iter().any(|begin| metadata.target().starts_with(begin));
    metadata.is_span() && is_ours && row(metadata.name()).is_some()
}

fn row(name: &str) -> Option<&'static TracedSpan> {
    TRACED.iter().find(|row| row.name == name)
}

/// A span that is over.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct EndedSpan {
    pub(crate) own: TraceContext,
    pub(crate) parent: Option<[u8; 8]>,
    pub(crate) name: &'static str,
    pub(crate) kind: SpanKind,
    pub(crate) began: Timestamp,
    pub(crate) ended: Timestamp,
    pub(crate) attributes: Vec<(&'static str, String)>,
}

/// A span that is not over.
struct OpenSpan {
    own: TraceContext,
    parent: Option<[u8; 8]>,
    began: Timestamp,
    attributes: Vec<(&'static str, String)>,
}

/// Hands ended spans to the exporter, and never waits for it.
pub(crate) struct SpanLayer {
    queue: Sender<EndedSpan>,
    counters: Arc<TraceCounters>,
}

impl SpanLayer {
    pub(crate) const fn new(queue: Sender<EndedSpan>, counters: Arc<TraceCounters>) -> Self {
        Self { queue, counters }
    }
}

impl<S> Layer<S> for SpanLayer
where
    S: Subscriber + for<'a> LookupSpan<'a>,
{
    fn on_new_span(&self, attributes: &Attributes<'_>, id: &Id, context: Context<'_, S>) {
        let Some(span) = context.span(id) else { return };
        let Some(row) = row(span.name()) else { return };
        let mut read = FieldReader { row, parent: None, own: None, attributes: Vec::new() };
        attributes.record(&mut read);
        let around = || {
            let outer = span.parent()?;
            let extensions = outer.extensions();
            extensions.get::<OpenSpan>().map(|open| open.own)
        };
        let began = RealClock.now();
        let parent = read.parent.or_else(around);
        let own = read.own.unwrap_or_else(|| TraceContext::next(&RandomIds, began, parent));
        let open = OpenSpan {
            own,
            parent: parent.map(|parent| parent.span_id),
            began,
            attributes: read.attributes,
        };
        span.extensions_mut().insert(open);
    }

    fn on_record(&self, id: &Id, values: &Record<'_>, context: Context<'_, S>) {
        let Some(span) = context.span(id) else { return };
        let Some(row) = row(span.name()) else { return };
        let mut read = FieldReader { row, parent: None, own: None, attributes: Vec::new() };
        values.record(&mut read);
        if let Some(open) = span.extensions_mut().get_mut::<OpenSpan>() {
            open.attributes.extend(read.attributes);
        }
    }

    fn on_close(&self, id: Id, context: Context<'_, S>) {
        let Some(span) = context.span(&id) else { return };
        let Some(row) = row(span.name()) else { return };
        let Some(open) = span.extensions_mut().remove::<OpenSpan>() else { return };
        if !open.own.is_sampled {
            return;
        }
        let ended = EndedSpan {
            own: open.own,
            parent: open.parent,
            name: row.name,
            kind: row.kind,
            began: open.began,
            ended: RealClock.now(),
            attributes: open.attributes,
        };
        if self.queue.try_send(ended).is_err() {
            self.counters.note_dropped(1);
        }
    }
}

/// Reads what the table names of a span's fields.
struct FieldReader {
    row: &'static TracedSpan,
    parent: Option<TraceContext>,
    own: Option<TraceContext>,
    attributes: Vec<(&'static str, String)>,
}

impl FieldReader {
    fn note(&mut self, field: &Field, text: String) {
        match field.name() {
            "trace.parent" => self.parent = text.parse().ok(),
            "trace.own" => self.own = text.parse().ok(),
            name => {
                let known = self.row.fields.iter().find(|(known, _)| *known == name);
                if let Some((_, attribute)) = known {
                    self.attributes.push((attribute, text));
                }
            }
        }
    }
}

impl Visit for FieldReader {
    fn record_str(&mut self, field: &Field, value: &str) {
        self.note(field, value.to_owned());
    }

    fn record_u64(&mut self, field: &Field, value: u64) {
        self.note(field, value.to_string());
    }

    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        self.note(field, format!("{value:?}"));
    }
}
