//! Which connections a listener has, and which one goes when there are too many.
//!
//! A connection is *silent* until its first byte, and takes a place only then. Silent connections
//! cost their sender nothing, so there may be few of them, and a new one is always let in: the
//! oldest of the address that has most of them goes. Places are refused beyond what one address may
//! have, and where all are taken, one between two requests is closed for the new one, of the address
//! that has most, or of its own. So whoever opens many connections takes them from himself. How many
//! places an address takes in a second is limited as well: what follows costs a handshake.

use std::collections::{BTreeMap, HashMap};
use std::net::{IpAddr, Ipv6Addr};
use std::sync::Arc;

use gpuaas_types::limits::{Limit, ListenerLimits};
use parking_lot::Mutex;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::activity::Activity;

/// Addresses from which on those that may take all their places at once are forgotten.
const MANY_ADDRESSES: usize = 4_096;

/// How many connections a listener may have.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Capacity {
    pub(super) silent: usize,
    pub(super) places: usize,
    pub(super) places_per_address: usize,
    /// Places that an address may take in a second, in the long run.
    pub(super) new_per_second: f64,
}

impl Capacity {
    pub(super) fn new(limits: &ListenerLimits) -> Self {
        let places = limits.count(Limit::Connections);
        let of_one = limits.count(Limit::ConnectionsPerAddress);
        // One address that could take all places would keep all others out.
        let of_one = if of_one == usize::MAX { places } else { of_one.min(places.div_ceil(2)) };
        let silent = limits.count(Limit::SilentConnections);
        #[expect(clippy::cast_precision_loss, reason = "connections per second")]
        let new_per_second = limits.get(Limit::NewConnectionsPerSecond) as f64;
        Self { silent, places, places_per_address: of_one, new_per_second }
    }

    /// Places that an address may take at once, after a pause.
    #[expect(clippy::cast_precision_loss, reason = "connections")]
    const fn burst(&self) -> f64 {
        self.places_per_address as f64
    }
}

/// Places that an address may take at once, and when that was counted.
#[derive(Debug, Clone, Copy)]
struct Allowance {
    places: f64,
    at: Instant,
}

impl Allowance {
    fn refill(self, capacity: &Capacity, now: Instant) -> f64 {
        let seconds = now.saturating_duration_since(self.at).as_secs_f64();
        (self.places + seconds * capacity.new_per_second).min(capacity.burst())
    }
}

/// Why a connection does not get a place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum NoPlace {
    /// Its address takes too many in a second.
    TooFast,
    /// Its address has as many as it may.
    OfAddress,
    /// All are taken, by requests that are being answered.
    OfAll,
    /// It was closed to make room for another one.
    Closed,
}

/// A connection in the table.
#[derive(Debug)]
struct Row {
    network: IpAddr,
    /// None while it is silent.
    activity: Option<Arc<Activity>>,
    close: CancellationToken,
}

#[derive(Debug, Default, Clone, Copy)]
struct Count {
    silent: usize,
    places: usize,
}

#[derive(Debug, Default)]
struct Table {
    next_id: u64,
    /// By number, so in the order of their arrival.
    rows: BTreeMap<u64, Row>,
    by_network: HashMap<IpAddr, Count>,
    all: Count,
    allowances: HashMap<IpAddr, Allowance>,
}

impl Table {
    fn count(&mut self, network: IpAddr, change: impl Fn(&mut Count)) {
        change(&mut self.all);
        let count = self.by_network.entry(network).or_default();
        change(count);
        if count.silent == 0 && count.places == 0 {
            self.by_network.remove(&network);
        }
    }

    /// Takes one place of what an address may take; answers whether there was one.
    fn spend(&mut self, network: IpAddr, capacity: &Capacity, now: Instant) -> bool {
        if self.allowances.len() >= MANY_ADDRESSES {
            self.allowances.retain(|_, left| left.refill(capacity, now) < capacity.burst());
        }
        let full = Allowance { places: capacity.burst(), at: now };
        let left = self.allowances.entry(network).or_insert(full);
        let places = left.refill(capacity, now);
        let is_allowed = places >= 1.0;
        *left = Allowance { places: if is_allowed { places - 1.0 } else { places }, at: now };
        is_allowed
    }

    fn remove(&mut self, id: u64) -> Option<Row> {
        let row = self.rows.remove(&id)?;
        let is_silent = row.activity.is_none();
        self.count(row.network, |count| {
            *(if is_silent { &mut count.silent } else { &mut count.places }) -= 1;
        });
        Some(row)
    }

    fn close(&mut self, id: u64) {
        if let Some(row) = self.remove(id) {
            row.close.cancel();
        }
    }

    /// The network that has most of something.
    fn largest(&self, of: impl Fn(&Count) -> usize) -> Option<IpAddr> {
        self.by_network.iter().max_by_key(|(_, count)| of(count)).map(|(network, _)| *network)
    }

    fn close_oldest_silent(&mut self) {
        let Some(network) = self.largest(|count| count.silent) else { return };
        let is_victim = |row: &Row| row.network == network && row.activity.is_none();
        if let Some(id) = self.oldest(is_victim) {
            self.close(id);
        }
    }

    /// Closes a connection of `network` that is between two requests; answers whether there is one.
    fn close_oldest_unused(&mut self, network: IpAddr) -> bool {
        let is_unused = |row: &Row| {
            let activity = row.activity.as_ref();
            row.network == network
                && activity.is_some_and(|activity| activity.is_between_requests())
        };
        let Some(id) = self.oldest(is_unused) else { return false };
        self.close(id);
        true
    }

    fn oldest(&self, is_victim: impl Fn(&Row) -> bool) -> Option<u64> {
        self.rows.iter().find(|(_, row)| is_victim(row)).map(|(id, _)| *id)
    }
}

/// The connections of one listener.
#[derive(Debug)]
pub(super) struct Connections {
    capacity: Capacity,
    table: Mutex<Table>,
    /// As many as there may be sockets. A connection that was closed for another one counts until
    /// its socket is gone.
    sockets: Arc<Semaphore>,
}

impl Connections {
    pub(super) fn new(capacity: Capacity) -> Arc<Self> {
        let sockets = capacity.silent.saturating_add(capacity.places).min(Semaphore::MAX_PERMITS);
        let sockets = Arc::new(Semaphore::new(sockets));
        Arc::new(Self { capacity, table: Mutex::default(), sockets })
    }

    /// Waits until there may be another socket. It does not wait for clients: where all sockets are
    /// taken, one of the silent connections is being closed.
    pub(super) async fn socket(&self) -> Option<OwnedSemaphorePermit> {
        Arc::clone(&self.sockets).acquire_owned().await.ok()
    }

    /// Adds a silent connection.
    pub(super) fn add(self: &Arc<Self>, address: IpAddr, socket: OwnedSemaphorePermit) -> Entry {
        let (network, close) = (network(address), CancellationToken::new());
        let mut table = self.table.lock();
        let id = table.next_id;
        table.next_id += 1;
        let row = Row { network, activity: None, close: close.clone() };
        table.rows.insert(id, row);
        table.count(network, |count| count.silent += 1);
        // At the limit already, so that a socket comes free for the next one.
        if table.all.silent >= self.capacity.silent && table.all.silent > 1 {
            table.close_oldest_silent();
        }
        drop(table);
        Entry { connections: Arc::clone(self), id, close, _socket: socket }
    }

    /// Closes a silent connection, where there is one: the process is out of files.
    pub(super) fn close_one_silent(&self) {
        self.table.lock().close_oldest_silent();
    }

    fn take_place(&self, id: u64, activity: &Arc<Activity>, now: Instant) -> Result<(), NoPlace> {
        let mut table = self.table.lock();
        let network = table.rows.get(&id).ok_or(NoPlace::Closed)?.network;
        if !table.spend(network, &self.capacity, now) {
            return Err(NoPlace::TooFast);
        }
        let own = table.by_network.get(&network).map_or(0, |count| count.places);
        if own >= self.capacity.places_per_address && !table.close_oldest_unused(network) {
            return Err(NoPlace::OfAddress);
        }
        if table.all.places >= self.capacity.places {
            let largest = table.largest(|count| count.places).ok_or(NoPlace::OfAll)?;
            if !table.close_oldest_unused(largest) && !table.close_oldest_unused(network) {
                return Err(NoPlace::OfAll);
            }
        }
        table.count(network, |count| {
            count.silent -= 1;
            count.places += 1;
        });
        if let Some(row) = table.rows.get_mut(&id) {
            row.activity = Some(Arc::clone(activity));
        }
        Ok(())
    }
}

/// A connection in the table, for as long as this is there.
#[derive(Debug)]
pub(super) struct Entry {
    connections: Arc<Connections>,
    id: u64,
    close: CancellationToken,
    _socket: OwnedSemaphorePermit,
}

impl Entry {
    /// Takes a place: the first byte has come.
    ///
    /// # Errors
    /// [`NoPlace`].
    pub(super) fn take_place(&self, activity: &Arc<Activity>, now: Instant) -> Result<(), NoPlace> {
        self.connections.take_place(self.id, activity, now)
    }

    /// Waits until the connection has to make room for another one.
    pub(super) async fn closed(&self) {
        self.close.cancelled().await;
    }
}

impl Drop for Entry {
    fn drop(&mut self) {
        self.connections.table.lock().remove(self.id);
    }
}

/// What counts as one address: an IPv6 client has a /64 of them.
fn network(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(v6) => Ipv6Addr::from_bits(v6.to_bits() & (u128::MAX << 64)).into(),
        v4 => v4,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MANY: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(192, 0, 2, 1));
    const FEW: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(192, 0, 2, 2));

    fn connections(silent: usize, places: usize, places_per_address: usize) -> Arc<Connections> {
        let new_per_second = f64::MAX;
        Connections::new(Capacity { silent, places, places_per_address, new_per_second })
    }

    fn add(connections: &Arc<Connections>, address: IpAddr) -> Entry {
        let socket = Arc::clone(&connections.sockets).try_acquire_owned().unwrap();
        connections.add(address, socket)
    }

    fn take_place(entry: &Entry) -> Result<Arc<Activity>, NoPlace> {
        let now = Instant::now();
        let activity = Arc::new(Activity::new(now));
        entry.take_place(&activity, now).map(|()| activity)
    }

    #[test]
    fn silent_connections_make_room_for_others_of_any_address() {
        let connections = connections(3, 1, 1);
        let quiet = add(&connections, FEW);
        let crowd: Vec<Entry> = (0..2).map(|_| add(&connections, MANY)).collect();
        assert!(crowd[0].close.is_cancelled(), "the oldest of the address that has most");
        assert!(!crowd[1].close.is_cancelled() && !quiet.close.is_cancelled());
        assert_eq!(take_place(&crowd[0]).unwrap_err(), NoPlace::Closed);
        drop(crowd);
        assert_eq!(connections.table.lock().by_network.len(), 1, "nothing is kept of who is gone");
        assert_eq!(connections.sockets.available_permits(), 3);
    }

    #[test]
    fn an_address_has_no_more_places_than_it_may() {
        let connections = connections(10, 10, 2);
        let entries: Vec<Entry> = (0..4).map(|_| add(&connections, MANY)).collect();
        let used = [take_place(&entries[0]).unwrap(), take_place(&entries[1]).unwrap()];
        used.iter().for_each(|activity| activity.begin_request());
        assert_eq!(take_place(&entries[2]).unwrap_err(), NoPlace::OfAddress);
        take_place(&add(&connections, FEW)).unwrap();
        used[1].end_request(Instant::now());
        take_place(&entries[3]).unwrap();
        assert!(entries[1].close.is_cancelled(), "its own idle one makes room");
        assert!(!entries[0].close.is_cancelled());
    }

    #[test]
    fn an_idle_connection_of_the_largest_address_makes_room() {
        let connections = connections(10, 3, 3);
        let crowd: Vec<Entry> = (0..3).map(|_| add(&connections, MANY)).collect();
        let used: Vec<_> = crowd.iter().map(|entry| take_place(entry).unwrap()).collect();
        used.iter().for_each(|activity| activity.begin_request());
        let late = add(&connections, FEW);
        assert_eq!(take_place(&late).unwrap_err(), NoPlace::OfAll);
        used[2].end_request(Instant::now());
        take_place(&late).unwrap();
        assert!(crowd[2].close.is_cancelled());
        assert_eq!(connections.table.lock().all.places, 3);
    }

    #[test]
    fn an_address_takes_places_at_a_pace() {
        let (silent, places, places_per_address) = (100, 100, 3);
        let capacity = Capacity { silent, places, places_per_address, new_per_second: 2.0 };
        let (mut table, begin) = (Table::default(), Instant::now());
        let spend = |table: &mut Table, network, millis| {
            table.spend(network, &capacity, begin + std::time::Duration::from_millis(millis))
        };
        assert!((0..3).all(|_| spend(&mut table, MANY, 0)) && !spend(&mut table, MANY, 0));
        assert!(spend(&mut table, FEW, 0), "others are not slowed down");
        assert!(!spend(&mut table, MANY, 400) && spend(&mut table, MANY, 500));
        assert!((0..3).all(|_| spend(&mut table, MANY, 9_000)) && !spend(&mut table, MANY, 9_000));
    }

    #[test]
    fn half_of_the_places_are_for_others() {
        let mut limits = ListenerLimits::defaults(gpuaas_types::limits::ListenerKind::Operators);
        limits.set(Limit::Connections, 51);
        assert_eq!(Capacity::new(&limits).places_per_address, 26);
        assert_eq!(Capacity::new(&limits.for_one_address()).places_per_address, 51);
    }

    #[test]
    fn an_address_is_a_whole_ipv6_network() {
        let network = |text: &str| super::network(text.parse().unwrap());
        assert_eq!(network("2001:db8:1:2:3:4:5:6"), network("2001:db8:1:2::9"));
        assert_ne!(network("2001:db8:1:2::9"), network("2001:db8:1:3::9"));
        assert_eq!(network("::ffff:192.0.2.1"), MANY);
    }
}
