//! The event feed.

use super::call::{Call, HandlerResult};
use super::filters::matching_machines;
use super::forms::is_mac;
use crate::events::{NODE_FILTERS, Query};
use crate::region::Region;
use crate::wire::{JSON, Params, SimResponse};

/// Handles `events/?op=query`.
pub(super) fn query_events(region: &mut Region, call: &Call<'_>) -> HandlerResult {
    let mut query = Query::parse(&call.query)?;
    if NODE_FILTERS.iter().any(|f| call.query.has(f)) {
        let mut only = Params::default();
        for (name, value) in call.query.iter().filter(|(k, _)| NODE_FILTERS.contains(k)) {
            only.push(name, value);
        }
        if let Some(mac) = only.all("mac_address").find(|mac| !is_mac(mac)) {
            let text = format!("'{mac}' is not a valid MAC address.");
            return Err(SimResponse::invalid("mac_address", text));
        }
        query.nodes = Some(matching_machines(region, &only, call));
    }
    let name = |key: u32| region.machine(key).map(|m| (m.system_id.as_str(), m.hostname.as_str()));
    Ok(SimResponse::new(200, JSON, region.events.page(&query, &call.query, name)))
}
