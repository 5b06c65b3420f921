//! How many refused credentials one address may send.
//!
//! A credential that nobody knows costs up to four reads and a line of the audit log, so an address that
//! sends junk without end makes everybody wait. Each address has a bucket of refusals. Once that is empty,
//! credentials of the address are read only if they were accepted before, so callers that share the
//! address with the sender of junk are not shut out with it.

use std::collections::{HashMap, HashSet};
use std::net::{IpAddr, Ipv6Addr};

use axum::extract::ConnectInfo;
use axum::http::Extensions;
use gpuaas_identity::Peer;
use gpuaas_types::codes::ProblemCode;
use gpuaas_types::limits::{Limit, ListenerKind, ListenerLimits};
use gpuaas_types::{Problem, Timestamp};
use parking_lot::Mutex;

use crate::http::problem::problem;
use crate::http::rate_limit::{Bucket, Rate};

/// Addresses from which on full buckets are forgotten: they are as new.
const MANY_ADDRESSES: usize = 4_096;
/// Accepted credentials that are remembered; then all are forgotten, and remembered anew.
const MANY_CREDENTIALS: usize = 65_536;
const HINT: &str = "use a credential of this control plane, and retry after the time in the \
                    `Retry-After` header";

/// A credential that a request shows, and where it comes from.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ShownCredential {
    kind: ListenerKind,
    /// None: the request came over no socket.
    network: Option<IpAddr>,
    digest: [u8; 32],
}

impl ShownCredential {
    /// A credential with this SHA-256 in a request with these extensions.
    pub(crate) fn new(kind: ListenerKind, extensions: &Extensions, digest: [u8; 32]) -> Self {
        let peer = extensions.get::<ConnectInfo<Peer>>();
        let network = peer.map(|ConnectInfo(peer)| network(peer.address.ip()));
        Self { kind, network, digest }
    }
}

/// An IPv4 address, or the /64 of an IPv6 address: a client that has one of its addresses has all of them.
fn network(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(address) => {
            let [a, b, c, d, ..] = address.segments();
            IpAddr::V6(Ipv6Addr::new(a, b, c, d, 0, 0, 0, 0))
        }
        address @ IpAddr::V4(_) => address,
    }
}

#[derive(Debug, Default)]
struct Seen {
    buckets: HashMap<(ListenerKind, IpAddr), Bucket>,
    accepted: HashSet<[u8; 32]>,
}

/// What addresses have left, and credentials that are known to be good.
#[derive(Debug)]
pub(crate) struct RefusedCredentials {
    operators: Rate,
    nodes: Rate,
    seen: Mutex<Seen>,
}

impl RefusedCredentials {
    pub(crate) fn new(operators: &ListenerLimits, nodes: &ListenerLimits) -> Self {
        let (per_second, burst) =
            (Limit::RefusedCredentialsPerSecond, Limit::RefusedCredentialBurst);
        let rate = |limits| Rate::new(limits, per_second, burst);
        Self { operators: rate(operators), nodes: rate(nodes), seen: Mutex::default() }
    }

    const fn rate(&self, kind: ListenerKind) -> Rate {
        match kind {
            ListenerKind::Operators => self.operators,
            ListenerKind::Nodes => self.nodes,
        }
    }

    /// Checks that a credential may be read.
    ///
    /// # Errors
    /// `too_many_requests`, with how long to wait.
    pub(crate) fn check(&self, shown: ShownCredential, now: Timestamp) -> Result<(), Problem> {
        let Some(network) = shown.network else { return Ok(()) };
        let rate = self.rate(shown.kind);
        let seen = self.seen.lock();
        let Some(bucket) = seen.buckets.get(&(shown.kind, network)) else { return Ok(()) };
        let left = rate.refill(*bucket, now);
        if left >= 1.0 || seen.accepted.contains(&shown.digest) {
            return Ok(());
        }
        let wait = (1.0 - left) / rate.per_second;
        let detail = format!(
            "too many rejected credentials from {network}: expected at most {} per second and {} \
             at once; retry in {wait:.3} s",
            rate.per_second, rate.burst
        );
        Err(problem(ProblemCode::TooManyRequests).with_detail(detail).with_hint(HINT))
    }

    /// Notes how a credential was judged.
    pub(crate) fn note(&self, shown: ShownCredential, is_accepted: bool, now: Timestamp) {
        let Some(network) = shown.network else { return };
        let seen = &mut *self.seen.lock();
        if is_accepted {
            if seen.accepted.len() >= MANY_CREDENTIALS {
                seen.accepted.clear();
            }
            seen.accepted.insert(shown.digest);
            return;
        }
        seen.accepted.remove(&shown.digest);
        if seen.buckets.len() >= MANY_ADDRESSES {
            seen.buckets.retain(|(kind, _), bucket| {
                let rate = self.rate(*kind);
                rate.refill(*bucket, now) < rate.burst
            });
        }
        let rate = self.rate(shown.kind);
        let full = Bucket { requests: rate.burst, at: now };
        let bucket = seen.buckets.entry((shown.kind, network)).or_insert(full);
        let requests = (rate.refill(*bucket, now) - 1.0).max(0.0);
        *bucket = Bucket { requests, at: now };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(address: &str, digest: u8) -> ShownCredential {
        let network = Some(network(address.parse().unwrap()));
        ShownCredential { kind: ListenerKind::Operators, network, digest: [digest; 32] }
    }

    fn refused(per_second: u64, burst: u64) -> RefusedCredentials {
        let mut limits = ListenerLimits::defaults(ListenerKind::Operators);
        limits.set(Limit::RefusedCredentialsPerSecond, per_second);
        limits.set(Limit::RefusedCredentialBurst, burst);
        RefusedCredentials::new(&limits, &limits)
    }

    #[test]
    fn junk_of_an_address_is_read_up_to_a_number_and_then_as_it_comes_back() {
        let refused = refused(2, 3);
        let begin = Timestamp::from_micros(0);
        let send = |address: &str, seconds: f64| {
            let (shown, now) = (shown(address, 1), begin.plus_seconds(seconds));
            refused.check(shown, now).map(|()| refused.note(shown, false, now))
        };
        assert!((0..3).all(|_| send("192.0.2.1", 0.0).is_ok()));
        let too_many = send("192.0.2.1", 0.25).unwrap_err();
        assert_eq!(too_many.code, "too_many_requests");
        assert!(too_many.detail.ends_with("in 0.250 s"), "{}", too_many.detail);
        send("::ffff:192.0.2.1", 0.25).unwrap_err();
        send("192.0.2.2", 0.25).unwrap();
        send("192.0.2.1", 0.5).unwrap();
        for n in 0..3 {
            send(&format!("2001:db8::{n}"), 0.0).unwrap();
        }
        send("2001:db8::ffff:1", 0.0).unwrap_err();
        send("2001:db8:0:1::1", 0.0).unwrap();
    }

    #[test]
    fn a_credential_that_was_accepted_is_read_beside_junk_of_its_address() {
        let refused = refused(1, 1);
        let now = Timestamp::from_micros(0);
        let (good, bad) = (shown("192.0.2.1", 1), shown("192.0.2.1", 2));
        refused.note(good, true, now);
        refused.note(bad, false, now);
        refused.check(bad, now).unwrap_err();
        refused.check(good, now).unwrap();
        // Once it is revoked it is junk as well.
        refused.note(good, false, now);
        refused.check(good, now).unwrap_err();
    }
}
