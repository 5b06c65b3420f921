//! The address of an identity provider.

use std::fmt;
use std::str::FromStr;

use crate::text::is_loopback_host;

/// The address of a provider, exactly as it writes it into its tokens: https, or http on this host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IssuerUrl(String);

impl IssuerUrl {
    /// The address.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Where the provider says what it has (OpenID Connect Discovery 1.0, section 4).
    #[must_use]
    pub fn discovery(&self) -> String {
        format!("{}/.well-known/openid-configuration", self.0.trim_end_matches('/'))
    }

    /// Whether keys and tokens may be fetched from this address: what is read in clear text can be
    /// changed by whoever is in between, so only this host's own may be.
    #[must_use]
    pub fn is_safe(url: &str) -> bool {
        let host = |rest: &str| {
            let authority = rest.split(['/', '?', '#']).next().unwrap_or_default();
            (!authority.contains('@')).then(|| authority.to_owned())
        };
        if let Some(rest) = url.strip_prefix("https://") {
            return host(rest).is_some_and(|host| !host.is_empty());
        }
        let Some(host) = url.strip_prefix("http://").and_then(host) else { return false };
        let name = match host.strip_prefix('[') {
            Some(rest) => rest.split(']').next().unwrap_or_default(),
            None => host.rsplit_once(':').map_or(host.as_str(), |(name, _)| name),
        };
        is_loopback_host(name)
    }
}

impl fmt::Display for IssuerUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl FromStr for IssuerUrl {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let plain = text.bytes().all(|byte| byte.is_ascii_graphic()) && !text.contains(['"', '\\']);
        if !plain || text.contains(['?', '#']) || !Self::is_safe(text) {
            return Err(
                "expected the issuer as in its tokens, such as https://idp.example/realms/ops; \
                        http is allowed only on loopback"
                    .to_owned(),
            );
        }
        Ok(Self(text.to_owned()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clear_text_is_for_this_host_alone() {
        for good in [
            "https://idp.example",
            "https://idp.example:8443/realms/ops/",
            "http://127.0.0.1:9480",
            "http://[::1]:9480/x",
            "http://localhost",
        ] {
            assert!(good.parse::<IssuerUrl>().is_ok(), "{good}");
        }
        for bad in [
            "",
            "idp.example",
            "http://idp.example",
            "http://127.0.0.1.example",
            "http://localhost@idp.example",
            "https://user@idp.example",
            "https://",
            "https://idp.example?x",
            "https://idp.example/\"",
            "ftp://127.0.0.1",
        ] {
            assert!(bad.parse::<IssuerUrl>().is_err(), "{bad}");
        }
        let issuer: IssuerUrl = "https://idp.example/realms/ops/".parse().unwrap();
        let wanted = "https://idp.example/realms/ops/.well-known/openid-configuration";
        assert_eq!(issuer.discovery(), wanted);
    }
}
