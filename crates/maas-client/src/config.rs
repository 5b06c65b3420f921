//! What it takes to talk to one region.

use std::net::{SocketAddr, ToSocketAddrs as _};
use std::time::Duration;

use reqwest::Url;

use crate::error::Error;
use crate::oauth::ApiKey;

/// Upper bounds of waiting. A total timeout on a mutation leaves its outcome unknown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Timeouts {
    /// Until the connection stands, TLS included.
    pub connect: Duration,
    /// Between two pieces of an answer's body.
    pub read: Duration,
    /// Whole exchange of a read.
    pub total_read: Duration,
    /// Whole exchange of a mutation that waits for no hardware. Must exceed the 26 s that MAAS
    /// takes to refuse a duplicate BMC (docs/maas.md#duplicate-bmc).
    pub total_write: Duration,
    /// Whole exchange of an op that MAAS answers only after the BMC acted
    /// (docs/maas.md#unknown-outcomes).
    pub total_power: Duration,
    /// Whole exchange of a piece of an image. A region compares the signed time when the last byte is
    /// there, so a longer one would be refused (docs/maas.md#authentication).
    pub total_upload: Duration,
}

impl Default for Timeouts {
    fn default() -> Self {
        Self {
            connect: Duration::from_secs(5),
            read: Duration::from_secs(30),
            total_read: Duration::from_secs(60),
            total_write: Duration::from_secs(90),
            total_power: Duration::from_secs(300),
            total_upload: Duration::from_secs(290),
        }
    }
}

/// Where a region is and how to enter it.
#[derive(Debug, Clone)]
pub struct Config {
    /// `http://host:5240/MAAS`, with or without a trailing slash or `/api/2.0/`; a bare
    /// `http://host:5240` gets `/MAAS`.
    pub base_url: String,
    /// The API key.
    pub api_key: ApiKey,
    /// Upper bounds of waiting.
    pub timeouts: Timeouts,
    /// Certificates (PEM) to trust besides the system's.
    pub extra_ca_pem: Option<Vec<u8>>,
    /// The one address to connect to, of those that the URL's host has; the name stays that of
    /// certificates and of the header `Host`. None: whichever the resolver names first.
    pub address: Option<SocketAddr>,
}

impl Config {
    /// Default timeouts, no extra CA.
    pub fn new(base_url: impl Into<String>, api_key: ApiKey) -> Self {
        Self {
            base_url: base_url.into(),
            api_key,
            timeouts: Timeouts::default(),
            extra_ca_pem: None,
            address: None,
        }
    }

    /// The addresses of the URL's host, in the order in which the resolver names them.
    ///
    /// # Errors
    /// [`Error::Invalid`] for a URL that makes no sense; [`Error::Unavailable`] for a name that
    /// nobody knows.
    pub fn addresses(&self) -> Result<Vec<SocketAddr>, Error> {
        let url = self.parsed()?;
        let host = url.host_str().unwrap_or_default().trim_matches(['[', ']']);
        let port = url.port_or_known_default().unwrap_or(80);
        let unknown = |text: String| Error::Unavailable { sent: false, retry_after: None, text };
        let found = (host, port).to_socket_addrs();
        let found: Vec<SocketAddr> =
            found.map_err(|error| unknown(format!("{host}: {error}")))?.collect();
        if found.is_empty() {
            Err(unknown(format!("no address found for {host}")))
        } else {
            Ok(found)
        }
    }

    /// The URL with its path cleared.
    pub(crate) fn origin(&self) -> Result<Url, Error> {
        let mut url = self.parsed()?;
        url.set_path("/");
        Ok(url)
    }

    /// The absolute path of the API root, e.g. `/MAAS/api/2.0/`.
    pub(crate) fn api_root(&self) -> Result<String, Error> {
        let url = self.parsed()?;
        let path = url.path().trim_end_matches('/');
        let path = path.strip_suffix("/api/2.0").unwrap_or(path);
        let path = if path.is_empty() { "/MAAS" } else { path };
        Ok(format!("{path}/api/2.0/"))
    }

    fn parsed(&self) -> Result<Url, Error> {
        let bad = |why: &str| {
            Error::invalid(format!(
                "invalid MAAS URL: {why}; expected http://host:5240/MAAS or similar"
            ))
        };
        let url = Url::parse(self.base_url.trim()).map_err(|error| bad(&error.to_string()))?;
        if !matches!(url.scheme(), "http" | "https") {
            return Err(bad("the scheme is neither http nor https"));
        }
        if url.host_str().is_none_or(str::is_empty) {
            return Err(bad("it has no host"));
        }
        if !url.username().is_empty() || url.password().is_some() {
            return Err(bad("it contains a user or password"));
        }
        if url.query().is_some() || url.fragment().is_some() {
            return Err(bad("it contains a query or fragment"));
        }
        Ok(url)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config(url: &str) -> Config {
        Config::new(url, "a:b:sekrit".parse().unwrap())
    }

    #[test]
    fn all_spellings_of_a_region_mean_the_same() {
        for url in [
            "http://h:5240/MAAS",
            "http://h:5240/MAAS/",
            "http://h:5240/MAAS/api/2.0",
            " http://h:5240/MAAS/api/2.0/ ",
            "http://h:5240",
            "http://h:5240/",
        ] {
            assert_eq!(config(url).api_root().unwrap(), "/MAAS/api/2.0/", "{url}");
            assert_eq!(config(url).origin().unwrap().as_str(), "http://h:5240/", "{url}");
        }
        assert_eq!(config("https://x/region1/MAAS").api_root().unwrap(), "/region1/MAAS/api/2.0/");
    }

    #[test]
    fn refuses_what_is_no_region_url() {
        for url in [
            "",
            "h:5240/MAAS",
            "ftp://h/MAAS",
            "http://u:p@h/MAAS",
            "http://h/MAAS?x=1",
            "not a url",
        ] {
            assert_eq!(config(url).api_root().unwrap_err().code(), "maas_invalid_request", "{url}");
        }
    }

    #[test]
    fn a_host_has_addresses_with_the_port_of_the_url() {
        let addresses = config("http://127.0.0.1:5240/MAAS").addresses().unwrap();
        assert_eq!(addresses, ["127.0.0.1:5240".parse().unwrap()]);
        assert_eq!(
            config("https://[::1]/MAAS").addresses().unwrap(),
            ["[::1]:443".parse().unwrap()]
        );
        assert_eq!(config("ftp://h").addresses().unwrap_err().code(), "maas_invalid_request");
    }

    #[test]
    fn debug_hides_the_key() {
        assert!(!format!("{:?}", config("http://h")).contains("sekrit"));
    }
}
