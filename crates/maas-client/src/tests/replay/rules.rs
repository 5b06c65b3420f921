//! Whether the client can express a recorded request.

use base64::Engine as _;

use super::recording::Exchange;
use super::routes::Route;

/// What the client sends for one parameter.
pub(crate) enum Rule {
    /// Any text, once.
    Text,
    /// Any text, any number of times.
    Many,
    /// Lower-case text, any number of times.
    Lower,
    /// A number, as digits.
    Number,
    /// A number up to this one.
    Limit(u32),
    /// One of these words.
    Words(&'static [&'static str]),
    /// Standard base64 with padding.
    Base64,
    /// All keys that begin with this key.
    Prefix,
}

pub(crate) struct Param {
    pub(crate) key: &'static str,
    pub(crate) rule: Rule,
    pub(crate) required: bool,
}

pub(crate) const fn optional(key: &'static str, rule: Rule) -> Param {
    Param { key, rule, required: false }
}

pub(crate) const fn required(key: &'static str, rule: Rule) -> Param {
    Param { key, rule, required: true }
}

pub(crate) fn expressible(route: &Route, segments: &[String], exchange: &Exchange) -> bool {
    let mutation = exchange.method != "GET";
    let pairs = if mutation { &exchange.form } else { &exchange.query };
    let elsewhere = if mutation { &exchange.query } else { &exchange.form };
    if exchange.odd_request || exchange.path.is_empty() || !elsewhere.is_empty() {
        return false;
    }
    if !segments_fit(route, segments) || !files_fit(route, exchange) {
        return false;
    }
    let known = |key: &str| {
        route.params.iter().find(|param| match param.rule {
            Rule::Prefix => key.starts_with(param.key),
            _ => key == param.key,
        })
    };
    let mut given: Vec<&str> = Vec::new();
    for (key, value) in pairs.iter().filter(|(key, _)| key != "op") {
        let Some(param) = known(key) else {
            return false;
        };
        let repeated = given.contains(&key.as_str());
        if !fits(&param.rule, value, repeated) {
            return false;
        }
        given.push(key);
    }
    let missing = |param: &&Param| param.required && !given.contains(&param.key);
    let nothing = route.at_least_one && given.is_empty();
    let both = route.not_both.iter().all(|key| given.contains(key)) && !route.not_both.is_empty();
    // Power parameters are sent together with their type.
    let untyped = given.iter().any(|key| key.starts_with("power_parameters_"))
        && !given.contains(&"power_type");
    !(route.params.iter().any(|param| missing(&param)) || nothing || both || untyped)
}

fn fits(rule: &Rule, value: &str, repeated: bool) -> bool {
    match rule {
        Rule::Many => true,
        Rule::Lower => value.to_ascii_lowercase() == value,
        _ if repeated => false,
        Rule::Text | Rule::Prefix => true,
        Rule::Number => value.parse::<u32>().is_ok_and(|number| number.to_string() == value),
        Rule::Limit(limit) => value.parse::<u32>().is_ok_and(|number| number <= *limit),
        Rule::Words(words) => words.contains(&value),
        Rule::Base64 => base64::engine::general_purpose::STANDARD.decode(value).is_ok(),
    }
}

fn segments_fit(route: &Route, segments: &[String]) -> bool {
    let patterns = route.path.split('/').filter(|part| part.starts_with('{'));
    patterns
        .zip(segments)
        .all(|(pattern, segment)| pattern != "{n}" || segment.parse::<u64>().is_ok())
}

fn files_fit(route: &Route, exchange: &Exchange) -> bool {
    let name = exchange.form.iter().find(|(key, _)| key == "name").map(|(_, name)| name);
    match (route.file_part, exchange.files.as_slice()) {
        (None, []) => true,
        (Some(part), [file]) => file.part == part && Some(&file.name) == name,
        _ => false,
    }
}
