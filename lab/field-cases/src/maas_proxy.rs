//! A proxy in front of a simulated region: it passes calls on, and changes what a case's rules say.
//!
//! The rules are the misbehaviour; the region itself stays sound, so what it did can be looked at.

use std::io;
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use serde_json::{Map, Value};

use crate::case::{ObjectRule, ProxyRule};
use crate::http_message::Message;

/// A rule with how often it was used.
struct CountedRule {
    rule: ProxyRule,
    used: AtomicU64,
}

/// Starts the proxy; it ends with this process.
///
/// # Errors
/// No port is free.
pub(crate) fn start(region: SocketAddr, rules: &[ProxyRule]) -> io::Result<SocketAddr> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let address = listener.local_addr()?;
    let count = |rule: &ProxyRule| CountedRule { rule: rule.clone(), used: AtomicU64::new(0) };
    let rules: Arc<Vec<CountedRule>> = Arc::new(rules.iter().map(count).collect());
    thread::spawn(move || {
        for client in listener.incoming().flatten() {
            let rules = Arc::clone(&rules);
            // A client that went away is nobody's fault.
            thread::spawn(move || serve(&client, region, &rules).ok());
        }
    });
    Ok(address)
}

fn serve(client: &TcpStream, region: SocketAddr, rules: &[CountedRule]) -> io::Result<()> {
    let Some(request) = Message::read(client)? else { return Ok(()) };
    let rule = rules.iter().find(|one| one.takes(&request)).map(|one| &one.rule);
    let passed = if rule.is_some_and(|rule| rule.keep_from_region) {
        Message::default()
    } else {
        let upstream = TcpStream::connect(region)?;
        request.write(&upstream)?;
        Message::read(&upstream)?.unwrap_or_default()
    };
    let Some(rule) = rule else { return passed.write(client) };
    if rule.wait_seconds > 0.0 {
        wait(Duration::from_secs_f64(rule.wait_seconds));
    }
    if rule.cut || passed.first.is_empty() && rule.answer.is_none() {
        return client.shutdown(Shutdown::Both);
    }
    answer(rule, passed).write(client)
}

#[expect(clippy::disallowed_methods, reason = "a slow region is slow on the clock of its client")]
fn wait(time: Duration) {
    thread::sleep(time);
}

impl CountedRule {
    /// Whether the rule is for this call, which it counts then.
    fn takes(&self, request: &Message) -> bool {
        let rule = &self.rule;
        let (path, body) = (request.word(1), String::from_utf8_lossy(&request.body));
        let bare = path.split('?').next().unwrap_or_default();
        let fits = (rule.method.is_empty() || rule.method == request.word(0))
            && path.contains(&rule.path)
            && bare.ends_with(&rule.path_ends)
            && body.contains(&rule.body)
            && (rule.body_without.is_empty() || !body.contains(&rule.body_without));
        fits && rule.times.is_none_or(|times| self.used.fetch_add(1, Ordering::Relaxed) < times)
    }
}

/// What the client gets.
fn answer(rule: &ProxyRule, mut passed: Message) -> Message {
    if let Some(made) = &rule.answer {
        let status = if made.status == 0 { 200 } else { made.status };
        return Message {
            first: format!("HTTP/1.1 {status} Made"),
            headers: made.headers.clone().into_iter().collect(),
            body: made.body.clone().into_bytes(),
        };
    }
    if !rule.replace.is_empty() {
        let mut text = String::from_utf8_lossy(&passed.body).into_owned();
        for (from, to) in &rule.replace {
            text = text.replace(from, to);
        }
        passed.body = text.into_bytes();
    }
    if let Some(objects) = &rule.objects
        && let Ok(mut value) = serde_json::from_slice::<Value>(&passed.body)
    {
        change_objects(&mut value, objects);
        passed.body = value.to_string().into_bytes();
    }
    passed
}

/// Changes the objects that fit, on every level.
fn change_objects(value: &mut Value, rule: &ObjectRule) {
    match value {
        Value::Array(list) => list.iter_mut().for_each(|one| change_objects(one, rule)),
        Value::Object(object) => {
            if rule.with.iter().all(|(name, wanted)| object.get(name) == Some(wanted)) {
                change_object(object, rule);
                // What is inside belongs to it.
                return;
            }
            object.values_mut().for_each(|one| change_objects(one, rule));
        }
        _ => {}
    }
}

fn change_object(object: &mut Map<String, Value>, rule: &ObjectRule) {
    for path in &rule.null {
        at_path(object, path, &|object, name| {
            object.insert(name.to_owned(), Value::Null);
        });
    }
    for path in &rule.remove {
        at_path(object, path, &|object, name| {
            object.remove(name);
        });
    }
    for (path, value) in &rule.set {
        at_path(object, path, &|object, name| {
            object.insert(name.to_owned(), value.clone());
        });
    }
}

/// Does something with the last name of a path, in each object that leads to it.
fn at_path(
    object: &mut Map<String, Value>,
    path: &str,
    change: &dyn Fn(&mut Map<String, Value>, &str),
) {
    let Some((first, rest)) = path.split_once('.') else { return change(object, path) };
    match object.get_mut(first) {
        Some(Value::Object(inner)) => at_path(inner, rest, change),
        Some(Value::Array(list)) => {
            let rest = rest.strip_prefix("*.").unwrap_or(rest);
            for inner in list.iter_mut().filter_map(Value::as_object_mut) {
                at_path(inner, rest, change);
            }
        }
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn request(text: &str, body: &str) -> Message {
        Message { first: text.to_owned(), headers: Vec::new(), body: body.as_bytes().to_vec() }
    }

    #[test]
    fn a_rule_is_for_calls_that_fit_and_so_many_of_them() {
        let rule = ProxyRule {
            method: "POST".to_owned(),
            path_ends: "/machines/".to_owned(),
            body_without: "op=".to_owned(),
            times: Some(1),
            ..ProxyRule::default()
        };
        let counted = CountedRule { rule, used: AtomicU64::new(0) };
        let create = request("POST /MAAS/api/2.0/machines/?x=1 HTTP/1.1", "hostname=a");
        assert!(!counted.takes(&request("GET /MAAS/api/2.0/machines/ HTTP/1.1", "")));
        assert!(!counted.takes(&request("POST /MAAS/api/2.0/machines/ HTTP/1.1", "op=x")));
        assert!(counted.takes(&create) && !counted.takes(&create));
    }

    #[test]
    fn objects_are_changed_where_they_fit() {
        let rule: ObjectRule = serde_json::from_value(json!({
            "with": {"hostname": "q3"},
            "null": ["pool", "interface_set.*.vendor"],
            "remove": ["zone"],
            "set": {"new": {"a": 1}},
        }))
        .unwrap();
        let mut value = json!([
            {"hostname": "q3", "pool": 1, "zone": 2, "interface_set": [{"vendor": "x", "name": "y"}]},
            {"hostname": "q4", "pool": 1},
        ]);
        change_objects(&mut value, &rule);
        assert_eq!(
            value,
            json!([
                {"hostname": "q3", "pool": null, "interface_set": [{"vendor": null, "name": "y"}], "new": {"a": 1}},
                {"hostname": "q4", "pool": 1},
            ])
        );
    }

    #[test]
    fn answers_are_replaced_whole_or_in_part() {
        let passed = || Message {
            first: "HTTP/1.1 200 OK".to_owned(),
            body: b"node".to_vec(),
            ..Message::default()
        };
        let mut rule = ProxyRule {
            replace: [("node".to_owned(), "NODE".to_owned())].into(),
            ..ProxyRule::default()
        };
        assert_eq!(answer(&rule, passed()).body, b"NODE");
        rule.answer = Some(crate::case::ProxyAnswer { status: 504, ..Default::default() });
        assert_eq!(answer(&rule, passed()).word(1), "504");
    }
}
