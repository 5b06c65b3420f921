//! A region under test and a caller of it.

use maas_sim::{Notice, Region, RegionConfig, SimRequest, SimResponse, User};
use serde_json::Value;

/// 2026-11-20T13:00:00Z in microseconds since the Unix epoch.
pub(crate) const START_US: i64 = 1_795_179_600_000_000;

pub(crate) struct TestRegion {
    pub(crate) region: Region,
    pub(crate) now: i64,
    nonce: u64,
    pub(crate) user: &'static str,
}

pub(crate) fn user(name: &str, admin: bool) -> User {
    User {
        name: name.to_owned(),
        password: Some(name.to_owned()),
        email: format!("{name}@example.com"),
        admin,
        keys: vec![format!("{name}-ck:{name}-tk:{name}-ts")],
    }
}

impl TestRegion {
    pub(crate) fn new(config: RegionConfig) -> Self {
        let users = vec![user("admin", true), user("alice", false)];
        let region = Region::new(RegionConfig { users, ..config });
        Self { region, now: START_US, nonce: 0, user: "admin" }
    }

    pub(crate) fn header(&mut self, user: &str) -> String {
        self.nonce += 1;
        format!(
            "OAuth oauth_version=\"1.0\", oauth_signature_method=\"PLAINTEXT\", oauth_consumer_key=\"{user}-ck\", oauth_token=\"{user}-tk\", oauth_signature=\"%26{user}-ts\", oauth_nonce=\"n{}\", oauth_timestamp=\"{}\"",
            self.nonce,
            self.now / 1_000_000
        )
    }

    pub(crate) fn send(&mut self, method: &str, path: &str, form: &str) -> SimResponse {
        let user = self.user;
        let authorization = (!user.is_empty()).then(|| self.header(user));
        let (path, query) = path.split_once('?').unwrap_or((path, ""));
        let request = SimRequest {
            method: method.to_owned(),
            path: format!("/MAAS/api/2.0/{path}"),
            query: query.to_owned(),
            authorization,
            content_type: (!form.is_empty())
                .then(|| "application/x-www-form-urlencoded".to_owned()),
            body: form.to_owned().into(),
        };
        self.region.handle(self.now, self.now / 1_000_000, &request)
    }

    pub(crate) fn get(&mut self, path: &str) -> Value {
        let response = self.send("GET", path, "");
        assert_eq!(response.status, 200, "{path}: {}", response.body_text());
        response.body_json()
    }

    pub(crate) fn post(&mut self, path: &str, form: &str) -> SimResponse {
        self.send("POST", path, form)
    }

    /// Lets time pass until nothing is due within it.
    pub(crate) fn advance_seconds(&mut self, seconds: i64) -> Vec<Notice> {
        self.now += seconds * 1_000_000;
        self.region.advance(self.now)
    }
}

pub(crate) fn zero() -> RegionConfig {
    RegionConfig { class: &maas_sim::ZERO, scale: 0.0, ..RegionConfig::default() }
}
