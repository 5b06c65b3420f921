//! Sends a sequence to a simulated region: names become the region's own ids, and where the real
//! region had moved on between two calls, time passes here too.

use std::collections::HashMap;

use maas_sim::{Region, RegionConfig, SimRequest, SimResponse, User};
use serde_json::Value;

use super::compare::{Difference, differences};
use super::entry::{Entry, Part, kind_of};

/// 2026-11-22T09:00:00Z in microseconds since the Unix epoch.
const START_US: i64 = 1_795_338_000_000_000;
/// Between two calls.
const STEP_US: i64 = 20_000;
/// Long enough for all that machines do by themselves.
const WAIT_US: i64 = 3 * 3_600_000_000;
const API: &str = "/MAAS/api/2.0/";
const FORM: &str = "application/x-www-form-urlencoded";

#[derive(Clone)]
pub(crate) struct Caller {
    region: Region,
    now: i64,
    nonce: u64,
    part: usize,
    /// `(kind, the region's id)` to the simulator's.
    pairs: HashMap<(String, String), String>,
    /// What a name stands for, until the next part.
    bound: HashMap<String, String>,
    /// Machines made in this part: hostname, system id.
    made: Vec<(String, String)>,
    tokens: Vec<String>,
    events: Vec<i64>,
    upload: String,
}

/// How a call went.
pub(crate) struct Outcome {
    /// None where the region's answer was kept back.
    pub(crate) differences: Option<Vec<Difference>>,
}

fn quote(text: &str) -> String {
    let plain = |b: u8| b.is_ascii_alphanumeric() || b"-_.~".contains(&b);
    text.bytes()
        .map(|b| if plain(b) { char::from(b).to_string() } else { format!("%{b:02X}") })
        .collect()
}

fn encode(pairs: &[(String, String)]) -> String {
    let text: Vec<String> =
        pairs.iter().map(|(k, v)| format!("{}={}", quote(k), quote(v))).collect();
    text.join("&")
}

impl Caller {
    pub(crate) fn new() -> Self {
        let user = |name: &str, admin, password: Option<&str>, keys: &[&str]| User {
            name: name.to_owned(),
            password: password.map(str::to_owned),
            email: format!("{name}@example.com"),
            admin,
            keys: keys.iter().map(|k| (*k).to_owned()).collect(),
        };
        let users = vec![
            user("MAAS", true, None, &[]),
            user("admin", true, Some("admin"), &["ck:tk:ts"]),
            user("maas-init-node", false, None, &[]),
        ];
        let mut out = Self {
            region: Region::new(RegionConfig { users, ..RegionConfig::default() }),
            now: START_US,
            nonce: 0,
            part: 1,
            pairs: HashMap::new(),
            bound: HashMap::new(),
            made: Vec::new(),
            tokens: Vec::new(),
            events: Vec::new(),
            upload: String::new(),
        };
        // A region in use has machines, an image of its own and commissioning scripts.
        out.region.preload_image("site-image");
        out.region.put_script("site-check", "#!/bin/sh\n");
        out.admin("POST", "devices/", "hostname=some-switch&mac_addresses=52:54:00:00:00:fe");
        let form = "architecture=amd64&hostname=in-use&mac_addresses=52:54:00:00:00:ff\
            &power_type=ipmi&power_parameters_power_address=198.18.250.1";
        let made = out.admin("POST", "machines/", form).body_json();
        out.wait();
        let id = made["system_id"].as_str().unwrap_or("").to_owned();
        out.admin("POST", &format!("machines/{id}/"), "op=deploy");
        out.wait();
        out
    }

    fn header(&mut self, mode: &str) -> String {
        if let Some(raw) = mode.strip_prefix("raw:") {
            return raw.to_owned();
        }
        self.nonce += 1;
        let seconds = self.now / 1_000_000;
        let stamp = match mode {
            "past" => (seconds - 400).to_string(),
            "past250" => (seconds - 250).to_string(),
            "future" => (seconds + 4000).to_string(),
            "badtime" => "yesterday".to_owned(),
            _ => seconds.to_string(),
        };
        let pick = |wanted: &str, odd: &str, usual: &str| {
            (if mode == wanted { odd } else { usual }).to_owned()
        };
        let nonce = if mode == "nonce" { 0 } else { self.nonce };
        let signature = match mode {
            "badsecret" => "%26wrong",
            "consumersecret" => "secret%26ts",
            _ => "%26ts",
        };
        let method = match mode {
            "hmac" => "HMAC-SHA1",
            "rsa" => "RSA-SHA1",
            _ => "PLAINTEXT",
        };
        let token = pick("badtoken", "nosuchtoken", if mode == "emptytoken" { "" } else { "tk" });
        let fields = [
            ("oauth_version", "1.0".to_owned(), ""),
            ("oauth_signature_method", method.to_owned(), ""),
            ("oauth_consumer_key", pick("badconsumer", "nosuchconsumer", "ck"), ""),
            ("oauth_token", token, "notoken"),
            ("oauth_signature", signature.to_owned(), "nosig"),
            ("oauth_nonce", format!("{nonce:032x}"), "nononce"),
            ("oauth_timestamp", stamp, "notime"),
        ];
        let sent = fields.iter().filter(|(_, _, without)| *without != mode || without.is_empty());
        let text: Vec<String> = sent.map(|(k, v, _)| format!("{k}=\"{v}\"")).collect();
        format!("OAuth {}", text.join(", "))
    }

    fn send(&mut self, request: &SimRequest) -> SimResponse {
        self.now += STEP_US;
        self.region.handle(self.now, self.now / 1_000_000, request)
    }

    fn admin(&mut self, method: &str, path: &str, form: &str) -> SimResponse {
        let (path, query) = path.split_once('?').unwrap_or((path, ""));
        let request = SimRequest {
            method: method.to_owned(),
            path: format!("{API}{path}"),
            query: query.to_owned(),
            authorization: Some(self.header("good")),
            content_type: (!form.is_empty()).then(|| FORM.to_owned()),
            body: form.to_owned().into(),
        };
        self.send(&request)
    }

    fn read(&mut self, path: &str) -> Value {
        self.admin("GET", path, "").body_json()
    }

    /// The recorder begins on a region without the machines of its last run.
    fn enter_part(&mut self, part: usize) {
        if self.part == part {
            return;
        }
        self.part = part;
        self.bound.clear();
        for (_, id) in std::mem::take(&mut self.made) {
            self.admin("DELETE", &format!("machines/{id}/"), "");
        }
    }

    /// Lets everything happen that machines do by themselves.
    fn wait(&mut self) {
        self.now += WAIT_US;
        self.region.advance(self.now);
    }

    /// Somebody ends what the machine of the call is doing: it is as after a release.
    fn released(&mut self, entry: &Entry) {
        let name = entry.path.split('/').nth(1).unwrap_or("").trim_matches(['{', '}']).to_owned();
        let Some(id) = self.value(entry, &name) else { return };
        for op in ["exit_rescue_mode", "abort", "release"] {
            self.admin("POST", &format!("machines/{id}/"), &format!("op={op}"));
        }
        self.wait();
    }

    /// Sends the call; where the answer shows that the region's machines had moved on meanwhile,
    /// they move on here.
    pub(crate) fn play(&mut self, entry: &Entry) -> Outcome {
        self.enter_part(entry.part);
        let Some(there) = &entry.answer else {
            let response = self.call(entry);
            self.learn(entry, &response);
            return Outcome { differences: None };
        };
        let moves: [fn(&mut Self, &Entry); 3] = [|_, _| {}, |run, _| run.wait(), Self::released];
        let mut best: Option<(Self, SimResponse, Vec<Difference>)> = None;
        for step in moves {
            let mut tried = self.clone();
            step(&mut tried, entry);
            let response = tried.call(entry);
            let found = differences(there, &response, &tried.twins());
            if best.as_ref().is_none_or(|(_, _, least)| weight(&found) < weight(least)) {
                best = Some((tried, response, found));
            }
            if best.as_ref().is_some_and(|(_, _, least)| least.is_empty()) {
                break;
            }
        }
        let Some((after, response, found)) = best else {
            return Outcome { differences: None };
        };
        *self = after;
        self.learn(entry, &response);
        Outcome { differences: Some(found) }
    }

    fn twins(&self) -> Vec<(String, String)> {
        let nodes = self.pairs.iter().filter(|((kind, _), _)| kind == "node");
        nodes.map(|((_, there), here)| (there.clone(), here.clone())).collect()
    }

    fn call(&mut self, entry: &Entry) -> SimResponse {
        for (name, kind, there) in entry.named_segments() {
            self.bind(entry, &name, &kind, &there);
        }
        let path = match &entry.raw_path {
            Some(raw) if raw == "{upu}" => self.upload.clone(),
            Some(raw) => raw.clone(),
            None => format!("{API}{}", self.filled(entry, &entry.path, true)),
        };
        let fill = |caller: &mut Self, list: &[(String, String)]| -> Vec<(String, String)> {
            list.iter().map(|(k, v)| (k.clone(), caller.filled(entry, v, false))).collect()
        };
        let query = encode(&fill(self, &entry.query));
        let (body, content_type) = if let Some(parts) = &entry.parts {
            (multipart(parts), Some("multipart/form-data; boundary=BOUNDARY".to_owned()))
        } else if let Some(form) = &entry.form {
            (encode(&fill(self, form)).into_bytes(), Some(FORM.to_owned()))
        } else {
            (entry.body.clone().unwrap_or_default(), entry.content_type.clone())
        };
        let authorization = entry.auth.clone().map(|mode| self.header(&mode));
        let method = entry.method.clone();
        let request =
            SimRequest { method, path, query, authorization, content_type, body: body.into() };
        self.send(&request)
    }

    /// Replaces `{names}`; one that stands for nothing stays, as it did in the recorder.
    fn filled(&mut self, entry: &Entry, text: &str, in_path: bool) -> String {
        let mut out = String::new();
        let mut rest = text;
        while let Some(at) = rest.find('{') {
            let (before, from) = rest.split_at(at);
            out.push_str(before);
            let end = from.find('}').map_or(0, |e| e + 1);
            let name = from.get(1..end.saturating_sub(1)).unwrap_or("");
            let is_name = !name.is_empty() && name.chars().all(|c| c.is_ascii_alphanumeric());
            let sent = in_path && entry.sent_as.contains(&format!("{{{name}}}"));
            let value = if is_name && !sent { self.value(entry, name) } else { None };
            match value {
                Some(value) => {
                    out.push_str(&value);
                    rest = &from[end..];
                }
                None => {
                    out.push('{');
                    rest = &from[1..];
                }
            }
        }
        out + rest
    }

    fn bind(&mut self, entry: &Entry, name: &str, kind: &str, there: &str) {
        let known = self.pairs.get(&(kind.to_owned(), there.to_owned())).cloned();
        if let Some(here) = known.or_else(|| self.value(entry, name)) {
            self.pairs.insert((kind.to_owned(), there.to_owned()), here.clone());
            self.bound.insert(name.to_owned(), here);
        }
    }

    /// What a name of the recorder stands for in this region.
    fn value(&mut self, entry: &Entry, name: &str) -> Option<String> {
        if let Some(known) = self.bound.get(name) {
            return Some(known.clone());
        }
        let digit = name.chars().last().and_then(|c| c.to_digit(10)).unwrap_or(0) as usize;
        let letters = name.trim_end_matches(|c: char| c.is_ascii_digit());
        let subnet = |caller: &mut Self, wanted: &str, at: &[&str]| {
            let list = caller.read("subnets/");
            let found = list.as_array()?.iter().find(|s| s["name"] == wanted)?.clone();
            let value = at.iter().fold(&found, |v, key| &v[*key]);
            Some(value.as_str().map_or_else(|| value.to_string(), str::to_owned))
        };
        let found = match name {
            "pxe" => subnet(self, "pxe", &["id"]),
            "pxevlan" => subnet(self, "pxe", &["vlan", "id"]),
            "pxefab" => subnet(self, "pxe", &["vlan", "fabric_id"]),
            "bmcnet" => subnet(self, "bmc", &["id"]),
            "bmcvlan" => subnet(self, "bmc", &["vlan", "id"]),
            "pre" => subnet(self, "pxe", &["cidr"])
                .map(|cidr| cidr.split('.').take(2).collect::<Vec<_>>().join(".")),
            "ev" => self.events.get(self.events.len() / 2).map(i64::to_string),
            "tk" => self.tokens.first().cloned(),
            "tk2" => self.tokens.get(1).cloned(),
            "bn" => self.inner(entry, "interfaces/", |l| l.first().cloned()),
            "rs" => self.inner(entry, "results/?type=commissioning", |l| l.first().cloned()),
            _ => match letters {
                "n" => self.inner(entry, "interfaces/", |l| l.get(digit).cloned()),
                "d" if name != "d" => self.inner(entry, "blockdevices/", |l| l.get(digit).cloned()),
                "l" => self.link(entry, digit),
                _ => self.machine(name),
            },
        }?;
        self.bound.insert(name.to_owned(), found.clone());
        Some(found)
    }

    fn machine(&self, name: &str) -> Option<String> {
        let is = |host: &str| host.rsplit('-').next() == Some(name);
        self.made.iter().rev().find(|(host, _)| is(host)).map(|(_, id)| id.clone())
    }

    /// Id of a part of the machine that the path names.
    fn inner(
        &mut self,
        entry: &Entry,
        list: &str,
        pick: impl Fn(&[Value]) -> Option<Value>,
    ) -> Option<String> {
        let name = entry.path.split('/').nth(1)?.trim_matches(['{', '}']).to_owned();
        let machine = self.value(entry, &name)?;
        let all = self.read(&format!("nodes/{machine}/{list}"));
        Some(pick(all.as_array()?)?["id"].to_string())
    }

    /// A link of the interface that the path names: the first, or the newest.
    fn link(&mut self, entry: &Entry, which: usize) -> Option<String> {
        let pieces: Vec<&str> = entry.path.split('/').collect();
        let mut name = |at: usize| {
            let name = pieces.get(at)?.trim_matches(['{', '}']).to_owned();
            self.value(entry, &name)
        };
        let (machine, nic) = (name(1)?, name(3)?);
        let nic = self.read(&format!("nodes/{machine}/interfaces/{nic}/"));
        let links = nic["links"].as_array()?;
        let link = if which == 0 { links.first() } else { links.last() };
        Some(link?["id"].to_string())
    }

    /// Pairs the ids of two answers to the same call, and keeps what later calls may name.
    fn learn(&mut self, entry: &Entry, response: &SimResponse) {
        let here = response.body_json();
        if let Some(list) = here["events"].as_array() {
            self.events = list.iter().filter_map(|e| e["id"].as_i64()).collect();
        }
        if let Some(token) = here["token_key"].as_str() {
            self.tokens.push(token.to_owned());
        }
        if let Some(uri) = upload_uri(&here) {
            self.upload = uri;
        }
        if entry.method != "POST" || response.status >= 300 {
            return;
        }
        let collection = entry.path.trim_end_matches('/').rsplit('/').next().unwrap_or("");
        let kind = kind_of(collection).to_owned();
        let field = if kind == "node" { "system_id" } else { "id" };
        let text = |v: &Value| v.as_str().map_or_else(|| v.to_string(), str::to_owned);
        if here[field].is_null() || collection.starts_with('{') {
            return;
        }
        if kind == "node" && !self.made.iter().any(|(_, id)| *id == text(&here[field])) {
            self.made.push((text(&here["hostname"]), text(&here[field])));
        }
        let Some(answer) = &entry.answer else {
            // The next name that the path does not explain stands for this.
            let name = match kind.as_str() {
                "partition" => "pt",
                "interface" => "br",
                "resourcepool" => "pool",
                _ => return,
            };
            self.bound.insert(name.to_owned(), text(&here[field]));
            return;
        };
        let there = answer.body.as_deref().unwrap_or(&answer.start);
        if let Some(id) = first_field(there, field) {
            self.pairs.insert((kind, id), text(&here[field]));
        }
    }
}

/// Status outweighs type, type text, text shape.
fn weight(found: &[Difference]) -> usize {
    let of = |kind: &str| match kind {
        "status" => 10_000,
        "type" => 1_000,
        "text" => 500,
        _ => 1,
    };
    found.iter().map(|(kind, _)| of(kind)).sum()
}

fn first_field(text: &str, field: &str) -> Option<String> {
    let at = text.find(&format!("\"{field}\": "))? + field.len() + 4;
    let value = text[at..].split([',', '}', '\n']).next()?;
    Some(value.trim().trim_matches('"').to_owned()).filter(|v| !v.is_empty())
}

fn upload_uri(value: &Value) -> Option<String> {
    let set = value["sets"].as_object()?.values().next_back()?;
    let file = set["files"].as_object()?.values().next()?;
    file["upload_uri"].as_str().map(str::to_owned)
}

fn multipart(parts: &[Part]) -> Vec<u8> {
    let mut out = Vec::new();
    for part in parts {
        out.extend(b"--BOUNDARY\r\nContent-Disposition: form-data; name=\"");
        match part {
            Part::Text(name, value) => {
                out.extend(format!("{name}\"\r\n\r\n{value}\r\n").bytes());
            }
            Part::File(name, file, content) => {
                out.extend(format!("{name}\"; filename=\"{file}\"\r\n\r\n").bytes());
                out.extend(content);
                out.extend(b"\r\n");
            }
        }
    }
    out.extend(b"--BOUNDARY--\r\n");
    out
}
