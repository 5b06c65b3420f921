//! Limits of the two listeners of a control plane: how many connections, how slow they may be, how
//! large a request's head, and how often one caller may ask.
//!
//! [`LIMITS`] is the whole of it. What a listener enforces is a [`ListenerLimits`], which begins
//! with the defaults of the table.

use std::time::Duration;

use crate::string_enum::string_enum;

string_enum! {
    /// Something that a listener has a limit for.
    Limit {
        /// Connections whose first byte has not come.
        SilentConnections = "silent-connections",
        /// Connections that have sent something.
        Connections = "connections",
        /// Those of them that come from one address.
        ConnectionsPerAddress = "connections-per-address",
        /// Those that one address may begin to use in a second.
        NewConnectionsPerSecond = "new-connections-per-second",
        /// Time to the first byte.
        FirstByteSeconds = "first-byte-seconds",
        /// Time of a TLS handshake.
        HandshakeSeconds = "handshake-seconds",
        /// Time in which the head of a request has to be complete.
        HeaderSeconds = "header-seconds",
        /// Time between two requests on one connection.
        IdleSeconds = "idle-seconds",
        /// Time in which nothing of a body comes, or nothing of an answer is taken.
        StallSeconds = "stall-seconds",
        /// Length of a request's head.
        HeaderBytes = "header-bytes",
        /// Fields of a request's head.
        HeaderFields = "header-fields",
        /// Requests of one caller in the long run.
        RequestsPerSecond = "requests-per-second",
        /// Requests of one caller at once.
        RequestBurst = "request-burst",
        /// Bytes of request bodies of one caller at once.
        BodyBytesPerCaller = "body-bytes-per-caller",
        /// Bytes of request bodies of all callers at once.
        BodyBytes = "body-bytes",
        /// Refused credentials of one address in the long run.
        RefusedCredentialsPerSecond = "refused-credentials-per-second",
        /// Refused credentials of one address at once.
        RefusedCredentialBurst = "refused-credential-burst",
    }
}

string_enum! {
    /// A listener of a control plane.
    ListenerKind {
        /// That of operators and their programs.
        Operators = "operators",
        /// That of nodes.
        Nodes = "nodes",
    }
}

/// A row of [`LIMITS`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LimitRow {
    /// What is limited.
    pub limit: Limit,
    /// Default of the operators' listener.
    pub operators: u64,
    /// Default of the nodes' listener.
    pub nodes: u64,
    /// The lowest value that can be set.
    pub lowest: u64,
    /// What is counted, and what happens beyond it.
    pub doc: &'static str,
}

macro_rules! limits {
    ($($limit:ident $operators:literal $nodes:literal $lowest:literal $doc:literal;)+) => {
        /// Every limit of a listener, in the order of [`Limit`].
        pub const LIMITS: &[LimitRow] = &[$(LimitRow {
            limit: Limit::$limit,
            operators: $operators,
            nodes: $nodes,
            lowest: $lowest,
            doc: $doc,
        }),+];
    };
}

limits! {
    SilentConnections 256 1_024 1
        "connections that have sent nothing yet; above the limit, the oldest connection of the address with the most connections is closed";
    Connections 1_024 65_536 1
        "connections that have sent something; above the limit, an idle connection of the address with the most connections is closed, or the new one if none is idle";
    ConnectionsPerAddress 128 512 1
        "connections that have sent something, per IPv4 address or IPv6 /64; capped at half of `connections`";
    NewConnectionsPerSecond 50 50 1
        "connections per second and address, counted at their first byte, on average, with bursts of up to `connections-per-address`; more are closed before the TLS handshake";
    FirstByteSeconds 10 10 1
        "time from opening a connection to its first byte; slower ones are closed";
    HandshakeSeconds 10 10 1
        "time from the first byte to the end of the TLS handshake";
    HeaderSeconds 10 10 1
        "time from the first byte of a request to the end of its headers";
    IdleSeconds 90 90 1
        "idle time between a response and the next request on the connection";
    StallSeconds 30 30 1
        "time in which no byte of the request body arrives, or the client reads no byte of the response";
    HeaderBytes 16_384 16_384 1_024
        "size of the request headers; larger ones get 431";
    HeaderFields 64 64 16
        "number of request header fields; more get 431";
    RequestsPerSecond 500 20 1
        "average requests per second of a token or node; more get 429";
    RequestBurst 1_000 100 1
        "requests that a token or node can send in a burst after a pause";
    BodyBytesPerCaller 8_388_608 8_388_608 1_048_576
        "bytes of unfinished request bodies per token or node, by `Content-Length`, or as received without that header; more get 429, unless it is the caller's only body";
    BodyBytes 33_554_432 100_663_296 4_194_304
        "bytes of unfinished request bodies of all callers; more get 429; on the operators' listener, the last quarter is reserved for administrators";
    RefusedCredentialsPerSecond 10 10 1
        "average rejected credentials per second of an IPv4 address or IPv6 /64; above the limit, only previously accepted credentials are checked, others get 429";
    RefusedCredentialBurst 100 100 1
        "rejected credentials that one address can send in a burst after a pause";
}

impl Limit {
    const fn index(self) -> usize {
        self as usize
    }

    /// The row of this limit.
    #[must_use]
    pub const fn row(self) -> &'static LimitRow {
        &LIMITS[self.index()]
    }
}

/// What a listener allows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ListenerLimits([u64; LIMITS.len()]);

impl ListenerLimits {
    /// The defaults of a listener.
    #[must_use]
    pub fn defaults(kind: ListenerKind) -> Self {
        let mut values = [0; LIMITS.len()];
        for row in LIMITS {
            values[row.limit.index()] = match kind {
                ListenerKind::Operators => row.operators,
                ListenerKind::Nodes => row.nodes,
            };
        }
        Self(values)
    }

    /// Replaces a value.
    pub const fn set(&mut self, limit: Limit, value: u64) {
        self.0[limit.index()] = value;
    }

    /// A value, in the unit that the limit's name says.
    #[must_use]
    pub const fn get(&self, limit: Limit) -> u64 {
        self.0[limit.index()]
    }

    /// A number of things.
    #[must_use]
    pub fn count(&self, limit: Limit) -> usize {
        usize::try_from(self.get(limit)).unwrap_or(usize::MAX)
    }

    /// A time.
    #[must_use]
    pub const fn time(&self, limit: Limit) -> Duration {
        Duration::from_secs(self.get(limit))
    }

    /// Removes what is counted per caller and per address: for programs on this host that stand in
    /// for many callers.
    #[must_use]
    pub const fn for_one_address(mut self) -> Self {
        self.set(Limit::ConnectionsPerAddress, u64::MAX);
        self.set(Limit::NewConnectionsPerSecond, u64::MAX);
        self.set(Limit::RequestsPerSecond, u64::MAX);
        self.set(Limit::RequestBurst, u64::MAX);
        self.set(Limit::BodyBytesPerCaller, u64::MAX);
        self.set(Limit::RefusedCredentialsPerSecond, u64::MAX);
        self.set(Limit::RefusedCredentialBurst, u64::MAX);
        self
    }
}

/// A limit of a listener that differs from its default: `operators.idle-seconds=30`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LimitSetting {
    /// The listener that has the limit.
    pub listener: ListenerKind,
    /// What is limited.
    pub limit: Limit,
    /// The value.
    pub value: u64,
}

impl std::str::FromStr for LimitSetting {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let form =
            || "expected LISTENER.LIMIT=NUMBER, such as operators.idle-seconds=30".to_owned();
        let (name, value) = text.split_once('=').ok_or_else(form)?;
        let (listener, limit) = name.split_once('.').ok_or_else(form)?;
        let listener: ListenerKind = listener
            .parse()
            .map_err(|_| format!("unknown listener {listener:?}: expected operators or nodes"))?;
        let limit: Limit = limit.parse().map_err(|_| {
            let names: Vec<&str> = Limit::ALL.iter().map(|limit| limit.as_str()).collect();
            format!("unknown limit {limit:?}: expected one of {}", names.join(", "))
        })?;
        let lowest = limit.row().lowest;
        match value.parse() {
            Ok(value) if value >= lowest => Ok(Self { listener, limit, value }),
            _ => Err(format!(
                "invalid value {value:?}: expected a whole number of at least {lowest}"
            )),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_limit_has_its_row_and_its_defaults_can_be_set() {
        assert_eq!(LIMITS.len(), Limit::ALL.len());
        for limit in Limit::ALL {
            let row = limit.row();
            assert_eq!(row.limit, *limit);
            assert!(row.operators >= row.lowest && row.nodes >= row.lowest, "{limit}");
        }
    }

    #[test]
    fn a_setting_is_a_listener_a_limit_and_a_number() {
        let setting: LimitSetting = "nodes.idle-seconds=7".parse().unwrap();
        let mut limits = ListenerLimits::defaults(setting.listener);
        assert_eq!(limits.time(Limit::IdleSeconds), Duration::from_secs(90));
        limits.set(setting.limit, setting.value);
        assert_eq!(limits.time(Limit::IdleSeconds), Duration::from_secs(7));
        assert_eq!(limits.count(Limit::Connections), 65_536);
        for bad in ["", "nodes.idle-seconds", "idle-seconds=7", "nodes.idle-seconds=0", "nodes.x=1"]
        {
            assert!(bad.parse::<LimitSetting>().is_err(), "{bad}");
        }
        let unknown = "nodes.idle=1".parse::<LimitSetting>().unwrap_err();
        assert!(unknown.contains("idle-seconds"), "{unknown}");
    }
}
