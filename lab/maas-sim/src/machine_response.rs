//! Answers that show machines, from a cache of rendered bodies.

use bytes::{Bytes, BytesMut};

use crate::json::JsonWriter;
use crate::model::Machine;
use crate::region::Region;
use crate::render::{self, Environment};
use crate::wire::{RestOfList, SimResponse};

/// Bytes of rendered bodies in the cache. A body of an eight-GPU server has 65 KB: without a bound
/// they would be most of a region's memory.
const BODY_CACHE_BYTES: usize = 32 * 1024 * 1024;

/// Machines that are rendered at one time, while the region is held.
const LIST_PART: usize = 32;

impl Region {
    fn environment<'a>(&'a self, m: &'a Machine) -> Environment<'a> {
        let host = &self.hosts[m.host];
        Environment {
            net: &self.net,
            class: host.class,
            serial: &host.serial,
            zone: self.settings.zone(&m.zone),
            pool: self.settings.pool(&m.pool),
            ip_addresses: self.cfg.ip_addresses,
        }
    }

    /// The machine's JSON. What was rendered lately and has not changed is not rendered again.
    pub(crate) fn body(&mut self, key: u32, depth: usize) -> Bytes {
        let slot = depth.min(1);
        let Some(m) = self.machines.get(&key) else {
            return Bytes::new();
        };
        if let Some(done) = &m.body[slot] {
            return done.clone();
        }
        let bytes = self.rendered_body(m, slot);
        self.cache_body(key, slot, &bytes);
        bytes
    }

    fn rendered_body(&self, m: &Machine, depth: usize) -> Bytes {
        let mut j = JsonWriter::at(depth, 8 * 1024 + 3 * 1024 * (m.nics.len() + m.disks.len()));
        let environment = self.environment(m);
        j.object(|j| render::machine(j, m, &environment));
        Bytes::from(j.finish())
    }

    fn cache_body(&mut self, key: u32, slot: usize, body: &Bytes) {
        if let Some(m) = self.machines.get_mut(&key) {
            m.body[slot] = Some(body.clone());
        }
        self.rendered.push_back((key, slot, body.len()));
        self.rendered_bytes += body.len();
        while self.rendered_bytes > BODY_CACHE_BYTES
            && let Some((key, slot, length)) = self.rendered.pop_front()
        {
            self.rendered_bytes -= length;
            if let Some(m) = self.machines.get_mut(&key) {
                m.body[slot] = None;
            }
        }
    }

    /// 200 with the machine's JSON.
    pub(crate) fn machine_response(&mut self, key: u32) -> SimResponse {
        let body = self.body(key, 0);
        SimResponse::new(200, crate::wire::JSON, body)
    }

    /// The machine's JSON with one more member, as allocate answers.
    pub(crate) fn machine_response_with(&mut self, key: u32, extra: &str) -> SimResponse {
        let body = self.body(key, 0);
        let text = String::from_utf8_lossy(&body);
        let cut = text.rfind('\n').unwrap_or(text.len().saturating_sub(1));
        SimResponse::new(200, crate::wire::JSON, format!("{},\n    {extra}\n}}", &text[..cut]))
    }

    /// 200 with the short body that an anonymous enlistment gets.
    pub(crate) fn enlistment_response(&self, key: u32) -> SimResponse {
        let Some(m) = self.machines.get(&key) else {
            return SimResponse::not_found("Machine");
        };
        let mut j = JsonWriter::at(0, 1024);
        let environment = self.environment(m);
        j.object(|j| render::enlistment(j, m, &environment));
        SimResponse::new(200, crate::wire::JSON, j.finish())
    }

    /// A list of machines. That of a fleet begins here only; [`Region::list_part`] goes on.
    pub(crate) fn machine_list_response(&mut self, keys: &[u32]) -> SimResponse {
        let rest =
            RestOfList { keys: keys.iter().copied().collect(), started: false, label: "list" };
        if keys.len() > LIST_PART {
            let mut response = SimResponse::new(200, crate::wire::JSON, "[");
            response.rest = Some(rest);
            return response;
        }
        let mut out = BytesMut::from(&b"["[..]);
        let mut rest = Some(rest);
        out.extend(self.list_part(&mut rest));
        SimResponse::new(200, crate::wire::JSON, out.freeze())
    }

    /// The next part of a list, and its end with the last. What is not in the cache of bodies is not
    /// put there: a fleet would push out all that is asked for one by one.
    pub(crate) fn list_part(&mut self, rest: &mut Option<RestOfList>) -> Bytes {
        let Some(list) = rest else {
            return Bytes::new();
        };
        let mut out = BytesMut::new();
        let few = list.keys.len() <= LIST_PART && !list.started;
        for key in list.keys.drain(..list.keys.len().min(LIST_PART)) {
            let body = if few { self.body(key, 1) } else { self.body_once(key) };
            // One that was deleted since the list began is not in it.
            if !body.is_empty() {
                out.extend_from_slice(if list.started { b",\n    " } else { b"\n    " });
                out.extend_from_slice(&body);
                list.started = true;
            }
        }
        if list.keys.is_empty() {
            out.extend_from_slice(if list.started { b"\n]" } else { b"]" });
        }
        self.stats.count_sent(list.label, out.len());
        if list.keys.is_empty() {
            *rest = None;
        }
        out.freeze()
    }

    /// All of an answer, at once.
    pub(crate) fn complete(&mut self, mut response: SimResponse) -> SimResponse {
        if response.rest.is_some() {
            let mut out = BytesMut::from(&response.body[..]);
            while response.rest.is_some() {
                out.extend(self.list_part(&mut response.rest));
            }
            response.body = out.freeze();
        }
        response
    }

    /// The machine's JSON inside a list, from the cache or rendered for this once.
    fn body_once(&self, key: u32) -> Bytes {
        let Some(m) = self.machines.get(&key) else {
            return Bytes::new();
        };
        m.body[1].clone().unwrap_or_else(|| self.rendered_body(m, 1))
    }
}
