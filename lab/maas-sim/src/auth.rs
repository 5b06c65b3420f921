//! Users, API keys and OAuth 1.0a PLAINTEXT, with the refusals of the real region
//! (docs/maas.md#authentication).

use std::collections::{HashMap, HashSet};

use crate::wire::{HTML, SimResponse, TEXT_BARE, unquote};

/// Greatest age of a timestamp in seconds; one in the future is accepted.
const THRESHOLD_SECONDS: i64 = 300;

/// A user of the region.
#[derive(Debug, Clone)]
pub struct User {
    /// Login name.
    pub name: String,
    /// Password of `accounts/authenticate/`; `None` for one who cannot log in.
    pub password: Option<String>,
    /// E-mail address.
    pub email: String,
    /// Whether the user is an administrator.
    pub admin: bool,
    /// API keys, each `consumer:token:secret`.
    pub keys: Vec<String>,
}

#[derive(Debug, Default, Clone)]
pub(crate) struct Accounts {
    pub(crate) users: Vec<User>,
    /// Used nonces of the present window and of the one before; older ones cannot be replayed.
    nonces: [HashSet<String>; 2],
    rotated_at_seconds: i64,
}

/// Why a request has no user.
#[derive(Debug)]
pub(crate) enum AuthFailure {
    /// No usable OAuth header: the request counts as anonymous.
    Anonymous,
    /// Wrong credentials, with the answer that tells so.
    Refused(SimResponse),
}

fn refused(message: &str) -> AuthFailure {
    AuthFailure::Refused(
        SimResponse::new(401, HTML, format!("Authorization Error: {message}"))
            .header("WWW-Authenticate", "OAuth realm=\"OAuth\""),
    )
}

fn header_fields(header: &str) -> Option<HashMap<String, String>> {
    let rest = header.strip_prefix("OAuth")?;
    let mut out = HashMap::new();
    for piece in rest.split(',') {
        if let Some((key, value)) = piece.trim().split_once('=') {
            out.insert(key.to_owned(), unquote(value.trim().trim_matches('"')));
        }
    }
    Some(out)
}

impl Accounts {
    pub(crate) fn new(users: Vec<User>) -> Self {
        Self { users, ..Self::default() }
    }

    /// Name of the first administrator with an API key, who owns what the simulator itself does.
    pub(crate) fn first_admin(&self) -> String {
        let admin = self.users.iter().find(|user| user.admin && !user.keys.is_empty());
        admin.or_else(|| self.users.first()).map(|user| user.name.clone()).unwrap_or_default()
    }

    pub(crate) fn anonymous_refusal() -> SimResponse {
        SimResponse::new(401, TEXT_BARE, "Forbidden")
    }

    /// The user of a request, by index into `users`.
    pub(crate) fn authenticate(
        &mut self,
        header: Option<&str>,
        wall_seconds: i64,
    ) -> Result<usize, AuthFailure> {
        let fields = header.and_then(header_fields).ok_or(AuthFailure::Anonymous)?;
        let get = |key: &str| fields.get(key).map(String::as_str);
        // A missing signature is told apart, because its name begins that of the method.
        let (Some(consumer), Some(token), Some(method), Some(stamp), Some(nonce)) = (
            get("oauth_consumer_key"),
            get("oauth_token"),
            get("oauth_signature_method"),
            get("oauth_timestamp"),
            get("oauth_nonce"),
        ) else {
            return Err(AuthFailure::Anonymous);
        };
        let mut known = false;
        let mut found = None;
        for (index, user) in self.users.iter().enumerate() {
            for key in &user.keys {
                let mut parts = key.splitn(3, ':');
                let (c, t, s) = (parts.next(), parts.next(), parts.next());
                known |= c == Some(consumer);
                if c == Some(consumer) && t == Some(token) {
                    found = s.map(|secret| (index, secret.to_owned()));
                }
            }
        }
        if !known {
            return Err(refused("Invalid API key."));
        }
        let Some((index, secret)) = found else {
            return Err(refused(&format!("'Invalid access token: {token}'")));
        };
        let given: i64 = stamp.trim().parse().map_err(|_| {
            let text = format!("invalid literal for int() with base 10: '{stamp}'");
            AuthFailure::Refused(SimResponse::text(500, text))
        })?;
        if wall_seconds - given > THRESHOLD_SECONDS {
            return Err(refused(&format!(
                "'Expired timestamp: given {given} and now {wall_seconds} has a greater difference than threshold {THRESHOLD_SECONDS}'"
            )));
        }
        self.use_nonce(&format!("{token} {nonce}"), wall_seconds)
            .map_err(|()| refused(&format!("'Nonce already used: {nonce}'")))?;
        if method != "PLAINTEXT" && method != "HMAC-SHA1" {
            return Err(refused(&format!(
                "'Signature method {method} not supported try one of the following: PLAINTEXT, HMAC-SHA1'"
            )));
        }
        let signature = get("oauth_signature").ok_or_else(|| refused("'Missing signature.'"))?;
        // A plain signature is no HMAC; nobody here computes one.
        if method == "HMAC-SHA1" || signature != format!("&{secret}") {
            return Err(refused(&format!(
                "'Invalid signature. Expected signature base string: &{secret}'"
            )));
        }
        Ok(index)
    }

    /// Marks a nonce as used.
    ///
    /// # Errors
    /// Where it was used before.
    fn use_nonce(&mut self, nonce: &str, wall_seconds: i64) -> Result<(), ()> {
        if wall_seconds - self.rotated_at_seconds > 2 * THRESHOLD_SECONDS {
            self.nonces[1] = std::mem::take(&mut self.nonces[0]);
            self.rotated_at_seconds = wall_seconds;
        }
        if self.nonces[1].contains(nonce) || !self.nonces[0].insert(nonce.to_owned()) {
            return Err(());
        }
        Ok(())
    }

    /// A user by name and password.
    pub(crate) fn login(&self, name: &str, password: &str) -> Option<usize> {
        self.users.iter().position(|u| u.name == name && u.password.as_deref() == Some(password))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn accounts() -> Accounts {
        let user = User {
            name: "admin".into(),
            password: None,
            email: String::new(),
            admin: true,
            keys: vec!["ck:tk:ts".into()],
        };
        Accounts { users: vec![user], ..Accounts::default() }
    }

    fn header(nonce: &str, stamp: i64) -> String {
        format!(
            "OAuth realm=\"\", oauth_signature_method=\"PLAINTEXT\", oauth_consumer_key=\"ck\",oauth_token=\"tk\", oauth_signature=\"%26ts\", oauth_nonce=\"{nonce}\", oauth_timestamp=\"{stamp}\""
        )
    }

    fn text(denied: AuthFailure) -> String {
        match denied {
            AuthFailure::Anonymous => "anonymous".into(),
            AuthFailure::Refused(r) => r.body_text(),
        }
    }

    #[test]
    fn nonces_are_single_use_and_clocks_matter() {
        let mut a = accounts();
        assert_eq!(a.authenticate(Some(&header("n1", 1000)), 1000).ok(), Some(0));
        assert_eq!(
            text(a.authenticate(Some(&header("n1", 1000)), 1001).expect_err("replay")),
            "Authorization Error: 'Nonce already used: n1'"
        );
        assert_eq!(
            text(a.authenticate(Some(&header("n2", 600)), 1000).expect_err("old")),
            "Authorization Error: 'Expired timestamp: given 600 and now 1000 has a greater difference than threshold 300'"
        );
        assert!(a.authenticate(Some(&header("n3", 9000)), 1000).is_ok());
        assert_eq!(text(a.authenticate(Some("Basic x"), 1000).expect_err("basic")), "anonymous");
    }
}
