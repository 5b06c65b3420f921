use crate::client::{Call, Client};
use crate::encode::Params;
use crate::error::Error;
use crate::events::{EventLevel, Events};

/// Largest page that MAAS gives (docs/maas.md#events).
pub const MAX_EVENTS: u32 = 1000;

/// Selects events (docs/maas.md#events).
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct EventQuery {
    /// The oldest `limit` events above this id. Ids are handed out before commit: overlap a
    /// little, or sweep again.
    pub after: Option<u64>,
    /// The newest `limit` events below this id.
    pub before: Option<u64>,
    /// Only of these machines; empty for all.
    pub ids: Vec<String>,
    /// Only of these host names; empty for all.
    pub hostnames: Vec<String>,
    /// This level and above; INFO where `None`. Status changes are DEBUG.
    pub level: Option<EventLevel>,
    /// At most so many; 100 where `None`, [`MAX_EVENTS`] at most.
    pub limit: Option<u32>,
}

impl Client {
    /// Events, newest first (docs/maas.md#events). The cheap feed of status changes: 11 ms at any
    /// fleet size (docs/maas.md#costs).
    ///
    /// # Errors
    /// [`Error::Invalid`] for both `after` and `before`, or a limit over [`MAX_EVENTS`].
    pub async fn events(&self, filter: &EventQuery) -> Result<Events, Error> {
        if filter.after.is_some() && filter.before.is_some() {
            return Err(Error::invalid("MAAS events cannot be filtered by both after and before"));
        }
        if filter.limit.is_some_and(|limit| limit > MAX_EVENTS) {
            return Err(Error::invalid(format!(
                "too many events: expected at most {MAX_EVENTS} per call"
            )));
        }
        let mut query = Params::default();
        query.add("op", "query");
        query.each("id", &filter.ids);
        query.each("hostname", &filter.hostnames);
        query.opt("after", filter.after);
        query.opt("before", filter.before);
        query.opt("limit", filter.limit);
        query.opt("level", filter.level.map(EventLevel::as_str));
        self.send_for_json(Call::get("events/", "GET events/ op=query").query(query)).await
    }
}
