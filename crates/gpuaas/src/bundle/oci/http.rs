//! The HTTP client of a registry and of its token realms: limits, redirects, and the failure of a
//! request without a response.

use std::time::Duration;

use gpuaas_client::failure::{Exit, Failure};
use gpuaas_client::{chain, direct_to_loopback, install_cryptography};
use gpuaas_types::codes::CommandCode;
use reqwest::{Url, redirect};

/// Longest time of connecting.
const CONNECT: Duration = Duration::from_secs(5);
/// Longest time of one request; the link to a registry may be slow.
const CALL: Duration = Duration::from_secs(300);
/// Redirects of one download.
const MOST_REDIRECTS: usize = 5;
/// Largest manifest and largest signature that are read, in bytes.
pub(super) const MAX_SMALL_BYTES: u64 = 1 << 20;

/// A client for a registry, or for a realm that gives tokens for it, which never leads elsewhere.
pub(super) fn client(url: &Url, stays: bool) -> Result<reqwest::Client, Failure> {
    install_cryptography();
    let redirects = if stays {
        redirect::Policy::none()
    } else {
        // Blobs may lie elsewhere; what was shown to the registry is not shown there (reqwest),
        // and TLS is not left on the way.
        redirect::Policy::custom(|attempt| {
            let was_https = attempt.previous().last().is_some_and(|url| url.scheme() == "https");
            if attempt.previous().len() > MOST_REDIRECTS {
                attempt.error("too many redirects")
            } else if was_https && attempt.url().scheme() != "https" {
                attempt.error("redirect from https to http")
            } else {
                attempt.follow()
            }
        })
    };
    let builder =
        reqwest::Client::builder().connect_timeout(CONNECT).timeout(CALL).redirect(redirects);
    let builder = direct_to_loopback(builder, url);
    // A plain http registry needs no certificate authorities, and a bare host may have none.
    let builder = if url.scheme() == "http" { builder.tls_certs_only([]) } else { builder };
    builder.build().map_err(|error| Failure::local(CommandCode::HttpUnavailable, chain(&error)))
}

/// The failure of a request to which a registry or a realm gave no response.
pub(super) fn unreachable_failure(url: &Url, error: reqwest::Error) -> Failure {
    let origin = url.origin().ascii_serialization();
    let detail = format!("{origin}: {}", chain(&error.without_url()));
    Failure::new(Exit::Unreachable, CommandCode::RegistrySilent, detail)
}
