//! Answers that show machines, from a cache of rendered bodies.

use bytes::Bytes;

use crate::json::Json;
use crate::model::Machine;
use crate::region::Region;
use crate::render::{self, Surroundings};
use crate::wire::Response;

/// Bytes of rendered bodies that are kept in case the same machine is asked for again. A body of an
/// eight-GPU server has 65 KB: kept for good, they would be most of what a region weighs.
const KEPT_BODY_BYTES: usize = 32 * 1024 * 1024;

impl Region {
    fn surroundings<'a>(&'a self, m: &'a Machine) -> Surroundings<'a> {
        let host = &self.hosts[m.host];
        Surroundings {
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
        let mut j = Json::at(slot, 8 * 1024 + 3 * 1024 * (m.nics.len() + m.disks.len()));
        let around = self.surroundings(m);
        j.object(|j| render::machine(j, m, &around));
        let bytes = Bytes::from(j.finish());
        self.keep(key, slot, &bytes);
        bytes
    }

    fn keep(&mut self, key: u32, slot: usize, body: &Bytes) {
        if let Some(m) = self.machines.get_mut(&key) {
            m.body[slot] = Some(body.clone());
        }
        self.rendered.push_back((key, slot, body.len()));
        self.rendered_bytes += body.len();
        while self.rendered_bytes > KEPT_BODY_BYTES
            && let Some((key, slot, length)) = self.rendered.pop_front()
        {
            self.rendered_bytes -= length;
            if let Some(m) = self.machines.get_mut(&key) {
                m.body[slot] = None;
            }
        }
    }

    /// 200 with the machine's JSON.
    pub(crate) fn show(&mut self, key: u32) -> Response {
        let body = self.body(key, 0);
        Response::new(200, crate::wire::JSON, body)
    }

    /// The machine's JSON with one more member, as allocate answers.
    pub(crate) fn show_with(&mut self, key: u32, extra: &str) -> Response {
        let body = self.body(key, 0);
        let text = String::from_utf8_lossy(&body);
        let cut = text.rfind('\n').unwrap_or(text.len().saturating_sub(1));
        Response::new(200, crate::wire::JSON, format!("{},\n    {extra}\n}}", &text[..cut]))
    }

    pub(crate) fn enlisted(&self, key: u32) -> Response {
        let Some(m) = self.machines.get(&key) else {
            return Response::missing("Machine");
        };
        let mut j = Json::at(0, 1024);
        let around = self.surroundings(m);
        j.object(|j| render::enlisted(j, m, &around));
        Response::new(200, crate::wire::JSON, j.finish())
    }

    /// A list of machines.
    pub(crate) fn show_list(&mut self, keys: &[u32]) -> Response {
        let bodies: Vec<Bytes> = keys.iter().map(|k| self.body(*k, 1)).collect();
        let mut out = String::with_capacity(16 + bodies.iter().map(|b| b.len() + 8).sum::<usize>());
        out.push('[');
        for (i, body) in bodies.iter().enumerate() {
            out.push_str(if i == 0 { "\n    " } else { ",\n    " });
            out.push_str(&String::from_utf8_lossy(body));
        }
        out.push_str(if bodies.is_empty() { "]" } else { "\n]" });
        Response::new(200, crate::wire::JSON, out)
    }
}
