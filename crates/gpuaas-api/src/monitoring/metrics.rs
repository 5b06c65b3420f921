//! `GET /metrics`: what Prometheus scrapes. The table of names is [`gpuaas_types::metrics`].

use std::fmt;

use axum::extract::{MatchedPath, Request, State};
use axum::http::header::CONTENT_TYPE;
use axum::middleware::Next;
use axum::response::{IntoResponse as _, Response};
use futures::FutureExt as _;
use gpuaas_core::run_times::{RUN_TIME_BOUNDS, RunTime};
use gpuaas_engine::site::SiteUsage;
use gpuaas_engine::{Clock as _, RealClock};
use gpuaas_identity::server::Held;
use gpuaas_store::{FleetCounts, RUN_DURATION_BOUNDS, RunTimes, Store};
use gpuaas_types::Timestamp;
use gpuaas_types::codes::ProblemCode;
use gpuaas_types::event::EventSinkView;
use gpuaas_types::metrics::{self as table, Metric, MetricKind};
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, MetricEncoder, NoLabelSet};
use prometheus_client::metrics::MetricType;
use prometheus_client::registry::Registry;

use crate::ctx::Ctx;
use crate::http::problem::{ApiResult, problem};

/// The text form of OpenMetrics.
const FORM: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// A value of one series.
#[derive(Debug)]
enum Value {
    Number(f64),
    Histogram { sum: f64, count: u64, buckets: Vec<(f64, u64)> },
}

/// A series: the values of the labels, in their order, and what it shows.
type Series = (Vec<String>, Value);

/// What one scrape shows of what is not counted where it happens.
#[derive(Debug, Default)]
struct Scrape(Vec<(Metric, Vec<Series>)>);

impl Scrape {
    fn push(&mut self, metric: Metric, series: impl IntoIterator<Item = Series>) {
        self.0.push((metric, series.into_iter().collect()));
    }

    fn push_fleet(&mut self, counts: &FleetCounts, now: Timestamp) {
        let nodes = counts.nodes.iter();
        self.push(
            table::NODES,
            nodes.map(|one| (vec![one.site.clone(), one.state.to_string()], number(one.nodes))),
        );
        let runs = counts.open.iter().map(|one| {
            let code = one.code.clone().unwrap_or_default();
            let labels = [one.site.clone(), one.kind.to_string(), one.status.to_string(), code];
            (labels.to_vec(), number(one.runs))
        });
        self.push(table::RUNS, runs);
        let failed = counts.failed.iter().map(|one| {
            let class = one.class.clone();
            let labels = [one.site.clone(), one.kind.to_string(), one.status.to_string(), class];
            (labels.to_vec(), number(one.runs))
        });
        self.push(table::FAILED_RUNS, failed);
        let mut oldest: Vec<(Vec<String>, Timestamp)> = Vec::new();
        for one in &counts.open {
            let labels = vec![one.site.clone(), one.status.to_string()];
            match oldest.iter_mut().find(|(known, _)| *known == labels) {
                Some((_, since)) => *since = (*since).min(one.oldest_since),
                None => oldest.push((labels, one.oldest_since)),
            }
        }
        let age = |since: Timestamp| Value::Number(now.seconds_since(since).max(0.0));
        self.push(
            table::OLDEST_RUN,
            oldest.into_iter().map(|(labels, since)| (labels, age(since))),
        );
        let ended = counts.ended.iter().map(|one| {
            let labels = [one.site.clone(), one.kind.to_string(), one.status.to_string()];
            let mut below = 0;
            let mut buckets = Vec::new();
            for (bound, up_to) in RUN_DURATION_BOUNDS.iter().zip(one.up_to) {
                buckets.push((as_float(*bound), as_count(up_to - below)));
                below = up_to;
            }
            buckets.push((f64::INFINITY, as_count(one.runs - below)));
            let count = as_count(one.runs);
            (labels.to_vec(), Value::Histogram { sum: one.seconds, count, buckets })
        });
        self.push(table::RUN_DURATION, ended);
    }

    fn push_run_times(&mut self, times: &[RunTimes]) {
        for metric in
            [table::TIME_TO_ACTIVE, table::TIME_TO_SLICE_READY, table::RUN_BUCKET_DURATION]
        {
            let of_metric = |one: &&RunTimes| metric_of(one.time).0 == metric;
            let series = times.iter().filter(of_metric).map(|one| {
                let bucket = metric_of(one.time).1;
                let labels = [one.site.clone(), one.kind.to_string()].into_iter();
                (labels.chain(bucket).collect(), histogram_of(one))
            });
            self.push(metric, series);
        }
    }

    fn push_events(&mut self, sinks: &[EventSinkView], now: Timestamp) {
        let sink = |one: &EventSinkView| vec![one.name.clone()];
        let lag = |one: &EventSinkView| {
            let seconds = one.waiting_since.map_or(0.0, |since| now.seconds_since(since));
            Value::Number(seconds.max(0.0))
        };
        self.push(table::EVENTS_LAG, sinks.iter().map(|one| (sink(one), lag(one))));
        let dead = sinks.iter().map(|one| (sink(one), counted(one.dead_letters)));
        self.push(table::EVENTS_DEAD, dead);
        let delivered = sinks.iter().map(|one| (sink(one), counted(one.delivered)));
        self.push(table::EVENTS_DELIVERED, delivered);
    }

    fn push_sites(&mut self, sites: &[SiteUsage]) {
        let site = |one: &SiteUsage| vec![one.name.clone()];
        let reachable = |one: &SiteUsage| Value::Number(if one.reachable { 1.0 } else { 0.0 });
        self.push(table::SITE_REACHABLE, sites.iter().map(|one| (site(one), reachable(one))));
        let calls = sites.iter().flat_map(|one| {
            one.calls.iter().map(|(operation, calls)| {
                (vec![one.name.clone(), (*operation).to_owned()], counted(calls.calls))
            })
        });
        self.push(table::MAAS_CALLS, calls);
        let sent = |one: &SiteUsage| one.calls.values().map(|calls| calls.request_bytes).sum();
        self.push(table::MAAS_SENT, sites.iter().map(|one| (site(one), counted(sent(one)))));
        let got = |one: &SiteUsage| one.calls.values().map(|calls| calls.response_bytes).sum();
        self.push(table::MAAS_RECEIVED, sites.iter().map(|one| (site(one), counted(got(one)))));
    }
}

/// The metric that shows a measure, and the last one of its labels where that is a bucket.
fn metric_of(time: RunTime) -> (Metric, Option<String>) {
    match time {
        RunTime::Active => (table::TIME_TO_ACTIVE, None),
        RunTime::SliceReady => (table::TIME_TO_SLICE_READY, None),
        RunTime::Bucket(bucket) => (table::RUN_BUCKET_DURATION, Some(bucket.to_string())),
    }
}

fn histogram_of(times: &RunTimes) -> Value {
    let bounds = RUN_TIME_BOUNDS.into_iter().map(f64::from).chain([f64::INFINITY]);
    let buckets = bounds.zip(times.classes.map(as_count)).collect();
    Value::Histogram { sum: times.seconds, count: as_count(times.runs), buckets }
}

/// Counts what runs have done since the last scrape: so many moments at once, and so many times. What
/// is left then is counted at the next scrape, and a scrape shows what is counted.
async fn count_run_times(store: &Store) {
    const MOMENTS: i64 = 200;
    const TIMES: usize = 20;
    for _ in 0..TIMES {
        match store.count_run_times(MOMENTS).await {
            Ok(true) => {}
            Ok(false) => return,
            Err(error) => {
                tracing::warn!(%error, "cannot count run times");
                return;
            }
        }
    }
}

#[expect(clippy::cast_precision_loss, reason = "counts and seconds are far below 2^52")]
fn as_float(value: i64) -> f64 {
    value as f64
}

fn as_count(value: i64) -> u64 {
    u64::try_from(value).unwrap_or_default()
}

fn number(value: i64) -> Value {
    Value::Number(as_float(value))
}

fn counted(value: u64) -> Value {
    number(i64::try_from(value).unwrap_or(i64::MAX))
}

impl Collector for Scrape {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        for (metric, series) in &self.0 {
            let kind = match metric.kind {
                MetricKind::Gauge => MetricType::Gauge,
                MetricKind::Counter => MetricType::Counter,
                MetricKind::Histogram => MetricType::Histogram,
            };
            let mut family = encoder.encode_descriptor(metric.name, metric.help, None, kind)?;
            for (values, value) in series {
                let labels: Vec<(&str, &str)> =
                    metric.labels.iter().copied().zip(values.iter().map(String::as_str)).collect();
                if labels.is_empty() {
                    encode_value(metric.kind, value, &mut family)?;
                } else {
                    encode_value(metric.kind, value, &mut family.encode_family(&labels)?)?;
                }
            }
        }
        Ok(())
    }
}

fn encode_value(
    kind: MetricKind,
    value: &Value,
    series: &mut MetricEncoder<'_>,
) -> Result<(), fmt::Error> {
    match value {
        Value::Number(value) if kind == MetricKind::Counter => {
            series.encode_counter::<NoLabelSet, _, f64>(value, None)
        }
        Value::Number(value) => series.encode_gauge(value),
        Value::Histogram { sum, count, buckets } => {
            series.encode_histogram::<NoLabelSet>(*sum, *count, buckets, None)
        }
    }
}

/// Counts the request once it is answered.
pub(crate) async fn count(State(ctx): State<Ctx>, request: Request, next: Next) -> Response {
    let method = request.method().clone();
    let route = request.extensions().get::<MatchedPath>().cloned();
    let began = RealClock.now();
    let mut response = next.run(request).await;
    let note = move |response: &Response| {
        let seconds = RealClock.now().seconds_since(began);
        let route = route.as_ref().map(MatchedPath::as_str);
        ctx.request_metrics().note(&method, route, response.status().as_u16(), seconds);
    };
    if Held::is_in(&response) {
        // Not an async block, which would keep what it was given twice.
        Held::wrap(&mut response, |later| later.inspect(note));
    } else {
        note(&response);
    }
    response
}

/// `GET /metrics`.
pub(crate) async fn show(State(ctx): State<Ctx>) -> ApiResult<Response> {
    let mut scrape = Scrape::default();
    let about = vec![ctx.settings.version.clone(), ctx.store.engine().to_owned()];
    scrape.push(table::CONTROL_PLANE, [(about, Value::Number(1.0))]);
    scrape.push_fleet(&ctx.store.fleet_counts().await?, ctx.now());
    count_run_times(&ctx.store).await;
    scrape.push_run_times(&ctx.store.run_times().await?);
    scrape.push_events(&ctx.store.event_sinks().await?, ctx.now());
    let sites = match &ctx.engine {
        Some(engine) => engine.site_usage().await,
        None => Vec::new(),
    };
    scrape.push_sites(&sites);
    let sent = ctx.store.counters();
    scrape.push(table::STATEMENTS, [(Vec::new(), counted(sent.statements))]);
    scrape.push(table::TRANSACTIONS, [(Vec::new(), counted(sent.transactions))]);
    let traces = ctx.settings.traces.iter().flat_map(|traces| traces.by_outcome());
    let traces = traces.map(|(outcome, spans)| (vec![outcome.to_owned()], counted(spans)));
    scrape.push(table::TRACE_SPANS, traces);
    let heartbeats = ctx.request_metrics().heartbeats();
    let heartbeats = heartbeats.map(|(form, taken)| (vec![form.to_owned()], counted(taken)));
    scrape.push(table::HEARTBEATS, heartbeats);
    let mut registry = Registry::with_prefix("gpuaas");
    registry.register_collector(Box::new(scrape));
    let requests = ctx.request_metrics();
    let (answers, durations) = (table::HTTP_REQUESTS, table::HTTP_DURATION);
    registry.register(answers.name, answers.help, requests.answers.clone());
    registry.register(durations.name, durations.help, requests.durations.clone());
    let mut text = String::new();
    if let Err(error) = prometheus_client::encoding::text::encode(&mut text, &registry) {
        tracing::error!(%error, "cannot write metrics");
        return Err(problem(ProblemCode::Internal).into());
    }
    Ok(([(CONTENT_TYPE, FORM)], text).into_response())
}
