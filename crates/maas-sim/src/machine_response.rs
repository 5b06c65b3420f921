//! Answers that show machines, from a cache of rendered bodies.

use bytes::Bytes;

use crate::json::JsonWriter;
use crate::model::Machine;
use crate::region::Region;
use crate::render::{self, Environment};
use crate::wire::SimResponse;

/// Bytes of rendered bodies in the cache. A body of an eight-GPU server has 65 KB: without a bound
/// they would be most of a region's memory.
const BODY_CACHE_BYTES: usize = 32 * 1024 * 1024;

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
        let mut j = JsonWriter::at(slot, 8 * 1024 + 3 * 1024 * (m.nics.len() + m.disks.len()));
        let environment = self.environment(m);
        j.object(|j| render::machine(j, m, &environment));
        let bytes = Bytes::from(j.finish());
        self.cache_body(key, slot, &bytes);
        bytes
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

    /// A list of machines.
    pub(crate) fn machine_list_response(&mut self, keys: &[u32]) -> SimResponse {
        let bodies: Vec<Bytes> = keys.iter().map(|k| self.body(*k, 1)).collect();
        let mut out = String::with_capacity(16 + bodies.iter().map(|b| b.len() + 8).sum::<usize>());
        out.push('[');
        for (i, body) in bodies.iter().enumerate() {
            out.push_str(if i == 0 { "\n    " } else { ",\n    " });
            out.push_str(&String::from_utf8_lossy(body));
        }
        out.push_str(if bodies.is_empty() { "]" } else { "\n]" });
        SimResponse::new(200, crate::wire::JSON, out)
    }
}
