//! What tests and tools read of a region beside its API; nothing here is counted as a call.

use std::collections::BTreeMap;

use serde_json::Value;

use crate::events::FeedEvent;
use crate::model::Machine;
use crate::ops;
use crate::region::Region;
use crate::status::Status;
use crate::wire::SimRequest;

impl Region {
    /// Bytes that were appended to files of uploaded images.
    #[must_use]
    pub fn uploaded_bytes(&self) -> u64 {
        let images = self.images.list.iter().filter(|image| image.uploaded);
        images.flat_map(|image| &image.sets).flat_map(|(_, files)| files).map(|f| f.received).sum()
    }

    /// A machine by hostname, host name or system id.
    #[must_use]
    pub fn system_id_of(&self, name: &str) -> Option<String> {
        let hit = |m: &&Machine| {
            m.hostname == name
                || m.system_id == name
                || self.hosts.get(m.host).is_some_and(|h| h.name == name)
        };
        self.machines.values().find(hit).map(|m| m.system_id.clone())
    }

    /// Status of a machine by hostname, host name or system id.
    #[must_use]
    pub fn status_of(&self, name: &str) -> Option<Status> {
        self.system_id_of(name).and_then(|id| self.key_of(&id)).map(|key| self.status(key))
    }

    /// All that the event feed says of a machine from INFO up, oldest first, by hostname, host name
    /// or system id.
    #[must_use]
    pub fn event_feed(&self, name: &str) -> Vec<FeedEvent> {
        let key = self.system_id_of(name).and_then(|id| self.key_of(&id));
        let events = key.into_iter().flat_map(|key| self.events.events_of_machine(key));
        events
            .map(|(id, at_us, content)| FeedEvent {
                id,
                at_us,
                kind: content.kind,
                text: content.text.clone(),
            })
            .collect()
    }

    /// Number of the newest event in the feed, of whatever level and machine.
    #[must_use]
    pub fn newest_event(&self) -> Option<i64> {
        self.events.newest()
    }

    /// What MAAS shows of a machine, by hostname, host name or system id: the answer to
    /// `GET machines/ID/`, outside the statistics' calls.
    pub fn machine_json(&mut self, machine: &str) -> Option<Value> {
        let id = self.system_id_of(machine)?;
        let request = SimRequest {
            method: "GET".to_owned(),
            path: format!("/MAAS/api/2.0/machines/{id}/"),
            ..SimRequest::default()
        };
        let admin = self.accounts.first_admin();
        serde_json::from_slice(&ops::as_user(self, &request, &admin).body).ok()
    }

    /// Texts of the scripts that somebody added, by name.
    #[must_use]
    pub fn added_scripts(&self) -> BTreeMap<String, String> {
        let added = self.scripts.list.iter().filter(|script| !script.builtin);
        added
            .map(|script| (script.name.clone(), String::from_utf8_lossy(&script.text).into_owned()))
            .collect()
    }

    /// Names of the scripts of a machine's current commissioning and tests, by hostname.
    #[must_use]
    pub fn current_scripts(&self, hostname: &str) -> Vec<String> {
        let machine = self.machines.values().find(|m| m.hostname == hostname);
        let sets = machine.into_iter().flat_map(|m| {
            [m.set(m.current_commissioning), m.set(m.current_testing)].into_iter().flatten()
        });
        sets.flat_map(|set| set.scripts.iter().cloned()).collect()
    }
}
