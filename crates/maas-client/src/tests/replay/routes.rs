//! The endpoints that the client uses, as a table. A row tells how to recognise a recording of it,
//! which parameters the client can send, and the call.

use std::future::Future;
use std::pin::Pin;

use crate::{Client, Error};

use super::facts::{Fact, Facts};
use super::recording::{Exchange, Pairs};
use super::rules::Param;

pub(crate) type FactsFuture<'a> = Pin<Box<dyn Future<Output = Result<Vec<Fact>, Error>> + 'a>>;

pub(crate) struct Route {
    pub(crate) method: &'static str,
    /// Relative to the API root; `{s}` is any segment, `{n}` a number.
    pub(crate) path: &'static str,
    pub(crate) op: Option<&'static str>,
    pub(crate) params: &'static [Param],
    /// Parameters that stand in for a request the client would not send.
    pub(crate) sample: &'static [(&'static str, &'static str)],
    pub(crate) run: for<'a> fn(&'a Client, &'a Args) -> FactsFuture<'a>,
    pub(crate) anonymous: bool,
    /// The client refuses to send it without any parameter.
    pub(crate) at_least_one: bool,
    /// The client refuses to send all of these at once.
    pub(crate) not_both: &'static [&'static str],
    pub(crate) file_part: Option<&'static str>,
}

impl Route {
    pub(crate) const fn new(
        method: &'static str,
        path: &'static str,
        op: Option<&'static str>,
        params: &'static [Param],
        run: for<'a> fn(&'a Client, &'a Args) -> FactsFuture<'a>,
    ) -> Self {
        Self {
            method,
            path,
            op,
            params,
            sample: &[],
            run,
            anonymous: false,
            at_least_one: false,
            not_both: &[],
            file_part: None,
        }
    }

    pub(crate) const fn sample(mut self, sample: &'static [(&'static str, &'static str)]) -> Self {
        self.sample = sample;
        self
    }
}

/// The route of an exchange and the segments that its wildcards stand for. An answer without a
/// request belongs to the op alone.
pub(crate) fn find<'a>(
    routes: &'a [Route],
    exchange: &Exchange,
) -> Option<(&'a Route, Vec<String>)> {
    routes.iter().find_map(|route| {
        if route.method != exchange.method || route.op != exchange.op.as_deref() {
            return None;
        }
        if exchange.path.is_empty() {
            return exchange.op.as_ref().map(|_| (route, vec!["1".to_owned(); 2]));
        }
        segments(route.path, &exchange.path).map(|segments| (route, segments))
    })
}

fn segments(pattern: &str, path: &str) -> Option<Vec<String>> {
    let (pattern, path): (Vec<&str>, Vec<&str>) =
        (pattern.split('/').collect(), path.split('/').collect());
    if pattern.len() != path.len() {
        return None;
    }
    let mut found = Vec::new();
    for (part, given) in pattern.iter().zip(path) {
        match *part {
            "{s}" | "{n}" if !given.is_empty() => found.push(given.to_owned()),
            exact if exact == given => {}
            _ => return None,
        }
    }
    Some(found)
}

pub(crate) struct Args {
    segments: Vec<String>,
    params: Pairs,
    pub(crate) content: Vec<u8>,
}

impl Args {
    pub(crate) fn recorded(segments: Vec<String>, exchange: &Exchange) -> Self {
        let pairs = if exchange.method == "GET" { &exchange.query } else { &exchange.form };
        let content = exchange.files.first().map(|file| file.content.clone()).unwrap_or_default();
        Self { segments, params: pairs.clone(), content }
    }

    pub(crate) fn sample(route: &Route, segments: Vec<String>) -> Self {
        let owned = |(key, value): &(&str, &str)| ((*key).to_owned(), (*value).to_owned());
        let params = route.sample.iter().map(owned).collect();
        Self { segments, params, content: b"#!/bin/sh\n".to_vec() }
    }

    /// The n-th wildcard.
    pub(crate) fn segment(&self, n: usize) -> &str {
        &self.segments[n]
    }

    /// The n-th wildcard as a number; 1 where the recording has none.
    pub(crate) fn number_at(&self, n: usize) -> u64 {
        self.segments[n].parse().unwrap_or(1)
    }

    pub(crate) fn text(&self, key: &str) -> Option<&str> {
        self.params.iter().find(|(known, _)| known == key).map(|(_, value)| value.as_str())
    }

    pub(crate) fn owned(&self, key: &str) -> Option<String> {
        self.text(key).map(str::to_owned)
    }

    pub(crate) fn number<T: std::str::FromStr>(&self, key: &str) -> Option<T> {
        self.text(key).and_then(|text| text.parse().ok())
    }

    pub(crate) fn many(&self, key: &str) -> Vec<String> {
        let values = self.params.iter().filter(|(known, _)| known == key);
        values.map(|(_, value)| value.clone()).collect()
    }

    pub(crate) fn flag(&self, key: &str) -> bool {
        matches!(self.text(key), Some("true" | "1"))
    }

    /// One comma-separated value as a list.
    pub(crate) fn list(&self, key: &str) -> Option<Vec<String>> {
        self.text(key).map(|text| text.split(',').map(str::to_owned).collect())
    }

    /// All parameters that begin with a prefix, without it.
    pub(crate) fn prefixed(&self, prefix: &str) -> Vec<(String, String)> {
        let stripped = |(key, value): &(String, String)| {
            key.strip_prefix(prefix).map(|key| (key.to_owned(), value.clone()))
        };
        self.params.iter().filter_map(stripped).collect()
    }
}

/// Awaits a call and turns its value into facts.
pub(crate) async fn facts_of<T: Facts>(
    call: impl Future<Output = Result<T, Error>>,
) -> Result<Vec<Fact>, Error> {
    call.await.map(|value| value.facts(""))
}
