//! When a provider's keys are fetched, as a pure function of the time.
//!
//! Keys change while people are signed in: a token that names a key which is not known has them
//! fetched, and whoever sends made-up names of keys has that done a few times and no more. Keys that
//! are withdrawn are to be forgotten soon, so keys are fetched again after a minute; but a provider
//! that does not answer must not lock everybody out at once, so the last known ones count for an hour.

use std::sync::Arc;

use gpuaas_types::Timestamp;

use super::key_set::KeySet;
use super::token::TokenHead;

/// Seconds after which keys are fetched again.
pub const FRESH_SECONDS: f64 = 60.0;
/// Seconds for which keys count while the provider does not answer.
pub const STALE_SECONDS: f64 = 3600.0;
/// Seconds after a try that failed, before the next one.
pub const RETRY_SECONDS: f64 = 5.0;
/// Fetches for keys that are not known that may follow on each other; one more every ten seconds.
pub const FETCH_BURST: u32 = 5;
const FETCHES_PER_SECOND: f64 = 0.1;

/// What is to be done for a token.
#[derive(Debug, Clone)]
pub enum KeyPlan {
    /// These keys judge it.
    Use(Arc<KeySet>),
    /// Fetch the keys; where that is being done already, or fails, these judge it.
    Refresh(Arc<KeySet>),
    /// Take one's turn, and look again with [`KeyCache::plan_in_turn`].
    TakeTurn,
    /// The provider did not answer a moment ago.
    Unavailable,
}

/// What is to be done for a token by whoever alone may fetch.
#[derive(Debug, Clone)]
pub enum KeyTurnPlan {
    /// These keys judge it: somebody fetched them meanwhile.
    Use(Arc<KeySet>),
    /// Fetch the keys.
    Fetch,
    /// Its key is not known, and is not asked for again so soon.
    Unknown,
    /// The provider did not answer a moment ago.
    Unavailable,
}

/// The keys of a provider, and what is known of fetching them.
#[derive(Debug)]
pub struct KeyCache {
    keys: Option<(Arc<KeySet>, Timestamp)>,
    failed_at: Option<Timestamp>,
    /// Fetches for unknown keys that are left, and since when.
    fetches: f64,
    counted_at: Timestamp,
}

impl Default for KeyCache {
    fn default() -> Self {
        Self {
            keys: None,
            failed_at: None,
            fetches: f64::from(FETCH_BURST),
            counted_at: Timestamp::EPOCH,
        }
    }
}

impl KeyCache {
    /// What is to be done for a token with this head.
    #[must_use]
    pub fn plan(&self, head: &TokenHead, now: Timestamp) -> KeyPlan {
        let may_try = self.may_try(now);
        match self.keys_for(head, now) {
            Some((keys, age)) if age <= FRESH_SECONDS || !may_try => KeyPlan::Use(keys),
            Some((keys, _)) => KeyPlan::Refresh(keys),
            None if may_try => KeyPlan::TakeTurn,
            None => KeyPlan::Unavailable,
        }
    }

    /// The same, for whoever has waited for its turn to fetch. Whoever fetches for a key that is not
    /// known uses up one of a few such fetches.
    pub fn plan_in_turn(&mut self, head: &TokenHead, now: Timestamp) -> KeyTurnPlan {
        match self.keys_for(head, now) {
            Some((keys, _)) => KeyTurnPlan::Use(keys),
            None if !self.may_try(now) => KeyTurnPlan::Unavailable,
            None if self.counting(now).is_none() || self.take_fetch(now) => KeyTurnPlan::Fetch,
            None => KeyTurnPlan::Unknown,
        }
    }

    fn may_try(&self, now: Timestamp) -> bool {
        self.failed_at.is_none_or(|at| now.seconds_since(at) >= RETRY_SECONDS)
    }

    /// The keys and their age in seconds; none: there are none that count.
    fn counting(&self, now: Timestamp) -> Option<(&Arc<KeySet>, f64)> {
        let (keys, at) = self.keys.as_ref()?;
        Some((keys, now.seconds_since(*at))).filter(|(_, age)| *age <= STALE_SECONDS)
    }

    fn keys_for(&self, head: &TokenHead, now: Timestamp) -> Option<(Arc<KeySet>, f64)> {
        let (keys, age) = self.counting(now)?;
        head.has_key_in(keys).then(|| (Arc::clone(keys), age))
    }

    /// Notes keys that were fetched.
    pub fn fetched(&mut self, keys: KeySet, now: Timestamp) -> Arc<KeySet> {
        let keys = Arc::new(keys);
        self.keys = Some((Arc::clone(&keys), now));
        self.failed_at = None;
        keys
    }

    /// Notes that the provider did not answer, or not with keys.
    pub const fn failed(&mut self, now: Timestamp) {
        self.failed_at = Some(now);
    }

    fn take_fetch(&mut self, now: Timestamp) -> bool {
        let passed = now.seconds_since(self.counted_at).max(0.0);
        self.fetches = (self.fetches + passed * FETCHES_PER_SECOND).min(f64::from(FETCH_BURST));
        self.counted_at = now;
        if self.fetches < 1.0 {
            return false;
        }
        self.fetches -= 1.0;
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const X: &str = "AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8";

    fn keys(id: &str) -> KeySet {
        let key = format!(r#"{{"kty":"EC","crv":"P-256","kid":"{id}","x":"{X}","y":"{X}"}}"#);
        KeySet::parse(format!(r#"{{"keys":[{key}]}}"#).as_bytes()).unwrap()
    }

    fn plan(cache: &mut KeyCache, id: &str, seconds: f64) -> &'static str {
        let head = TokenHead::of_key(id);
        match cache.plan(&head, at(seconds)) {
            KeyPlan::Use(_) => "use",
            KeyPlan::Refresh(_) => "refresh",
            KeyPlan::Unavailable => "unavailable",
            KeyPlan::TakeTurn => match cache.plan_in_turn(&head, at(seconds)) {
                KeyTurnPlan::Use(_) => "use in turn",
                KeyTurnPlan::Fetch => "fetch",
                KeyTurnPlan::Unknown => "unknown",
                KeyTurnPlan::Unavailable => "unavailable in turn",
            },
        }
    }

    fn at(seconds: f64) -> Timestamp {
        Timestamp::EPOCH.plus_seconds(1e6 + seconds)
    }

    #[test]
    fn keys_are_fetched_when_they_are_old_and_count_for_an_hour_without_their_provider() {
        let mut cache = KeyCache::default();
        assert_eq!(plan(&mut cache, "a", 0.0), "fetch");
        cache.fetched(keys("a"), at(0.0));
        assert_eq!(plan(&mut cache, "a", 60.0), "use");
        assert_eq!(plan(&mut cache, "a", 61.0), "refresh");
        cache.failed(at(61.0));
        assert_eq!(plan(&mut cache, "a", 65.0), "use", "no request waits for a dead provider");
        assert_eq!(plan(&mut cache, "a", 66.0), "refresh");
        cache.failed(at(66.0));
        assert_eq!(plan(&mut cache, "a", 3600.0), "refresh");
        assert_eq!(plan(&mut cache, "a", 3601.0), "fetch");
        cache.failed(at(3601.0));
        assert_eq!(plan(&mut cache, "a", 3602.0), "unavailable");
    }

    #[test]
    fn a_key_that_is_not_known_is_asked_for_and_a_storm_of_them_a_few_times() {
        let mut cache = KeyCache::default();
        cache.fetched(keys("a"), at(0.0));
        let plans: Vec<&str> = (0..100).map(|n| plan(&mut cache, &format!("x{n}"), 1.0)).collect();
        assert_eq!(plans.iter().filter(|plan| **plan == "fetch").count(), 5);
        assert_eq!(plans[99], "unknown");
        assert_eq!(plan(&mut cache, "a", 1.0), "use", "others notice nothing of it");
        assert_eq!(plan(&mut cache, "b", 11.0), "fetch", "ten seconds later there is one more");
        cache.fetched(keys("b"), at(11.0));
        assert_eq!(plan(&mut cache, "b", 11.0), "use");
        assert_eq!(plan(&mut cache, "a", 11.0), "unknown", "a key that was withdrawn is forgotten");
        cache.failed(at(50.0));
        assert_eq!(plan(&mut cache, "y", 51.0), "unavailable");
    }

    #[test]
    fn who_waited_for_another_ones_fetch_takes_what_that_brought() {
        let mut cache = KeyCache::default();
        cache.fetched(keys("a"), at(0.0));
        let head = TokenHead::of_key("b");
        assert!(matches!(cache.plan(&head, at(1.0)), KeyPlan::TakeTurn));
        cache.fetched(keys("b"), at(1.0));
        for _ in 0..100 {
            assert!(matches!(cache.plan_in_turn(&head, at(1.0)), KeyTurnPlan::Use(_)));
        }
        cache.failed(at(2.0));
        let unknown = TokenHead::of_key("c");
        assert!(matches!(cache.plan_in_turn(&unknown, at(3.0)), KeyTurnPlan::Unavailable));
    }
}
