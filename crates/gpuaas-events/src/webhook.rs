//! Webhooks as the Standard Webhooks specification has them: what is posted, and how it is signed.

use std::time::Duration;

use async_trait::async_trait;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use gpuaas_store::{ExposeSecret as _, SecretString};
use gpuaas_types::Timestamp;
use gpuaas_types::event::{DeliveryFault, NodeEvent};
use reqwest::redirect::Policy;
use reqwest::{Client, Response, Url};
use ring::hmac;
use serde_json::json;

use crate::target::{Delivered, DeliveryFailure, Target};

/// Time until a connection is there.
const CONNECT: Duration = Duration::from_secs(5);
/// Time until an answer is there, whole.
const CALL: Duration = Duration::from_secs(10);
/// Bytes of an answer that are looked at.
const ANSWER_BYTES: usize = 1_024;
/// Events of one delivery; so many calls take less than a lease.
const BATCH: usize = 4;
/// What secrets begin with.
const SECRET_PREFIX: &str = "whsec_";

/// A receiver.
pub(crate) struct Webhook {
    url: Url,
    key: hmac::Key,
    http: Client,
}

impl Webhook {
    /// One that is ready to be posted to.
    ///
    /// # Errors
    /// What about it cannot be used.
    pub(crate) fn new(url: &str, secret: &SecretString) -> Result<Self, DeliveryFailure> {
        Self::within(url, secret, CALL)
    }

    /// The same, where an answer has to be there within `limit`.
    ///
    /// # Errors
    /// What about it cannot be used.
    pub(crate) fn within(
        url: &str,
        secret: &SecretString,
        limit: Duration,
    ) -> Result<Self, DeliveryFailure> {
        let unusable = |text: String| DeliveryFailure::new(DeliveryFault::Denied, text);
        let url: Url = url.parse().map_err(|error| unusable(format!("its URL: {error}")))?;
        let bytes = secret
            .expose_secret()
            .strip_prefix(SECRET_PREFIX)
            .and_then(|text| STANDARD.decode(text).ok())
            .ok_or_else(|| unusable("cannot read its secret".to_owned()))?;
        let builder = Client::builder()
            .connect_timeout(CONNECT)
            .timeout(limit)
            .redirect(Policy::none())
            .user_agent(concat!("gpuaas/", env!("CARGO_PKG_VERSION")));
        // Plain http, which is for loopback alone, needs no proxy and no authorities; a bare host has none.
        let builder = match url.scheme() {
            "http" => builder.no_proxy().tls_certs_only([]),
            _ => builder,
        };
        let http = builder.build().map_err(|error| unusable(with_causes(&error)))?;
        Ok(Self { url, key: hmac::Key::new(hmac::HMAC_SHA256, &bytes), http })
    }

    async fn post(&self, now: Timestamp, event: &NodeEvent) -> Result<(), DeliveryFailure> {
        let body = json!({
            "type": format!("node.{}", event.line.code),
            "timestamp": event.line.at,
            "data": event,
        })
        .to_string();
        let (id, seconds) = (event.id.to_string(), now.as_micros().div_euclid(1_000_000));
        let signature = self.signature(&id, seconds, &body);
        let request = self
            .http
            .post(self.url.clone())
            .header("content-type", "application/json")
            .header("webhook-id", id)
            .header("webhook-timestamp", seconds.to_string())
            .header("webhook-signature", signature)
            .body(body);
        let response = request.send().await.map_err(unanswered)?;
        let status = response.status().as_u16();
        match fault_of(status) {
            None => Ok(()),
            Some(fault) => {
                let said = begin_of(response).await;
                Err(DeliveryFailure::new(
                    fault,
                    format!("the receiver answered {status} {said}").trim(),
                ))
            }
        }
    }

    /// `v1,` and the HMAC-SHA256 of id, moment and body.
    fn signature(&self, id: &str, seconds: i64, body: &str) -> String {
        let tag = hmac::sign(&self.key, format!("{id}.{seconds}.{body}").as_bytes());
        format!("v1,{}", STANDARD.encode(tag))
    }
}

#[async_trait]
impl Target for Webhook {
    fn batch(&self) -> usize {
        BATCH
    }

    async fn deliver(&self, now: Timestamp, events: &[&NodeEvent]) -> Delivered {
        for (count, event) in events.iter().enumerate() {
            if let Err(failure) = self.post(now, event).await {
                return Delivered { count, failure: Some(failure) };
            }
        }
        Delivered { count: events.len(), failure: None }
    }
}

/// What a status says; none: the event was taken.
const fn fault_of(status: u16) -> Option<DeliveryFault> {
    match status {
        200..=299 => None,
        300..=399 => Some(DeliveryFault::Redirected),
        // The message itself: as it is, it will never be taken.
        400 | 413 | 415 | 422 => Some(DeliveryFault::Refused),
        401 | 403..=407 | 410 => Some(DeliveryFault::Denied),
        _ => Some(DeliveryFault::Unavailable),
    }
}

fn unanswered(error: reqwest::Error) -> DeliveryFailure {
    let fault =
        if error.is_timeout() { DeliveryFault::Timeout } else { DeliveryFault::Unreachable };
    // A URL may have a credential in its query.
    DeliveryFailure::new(fault, with_causes(&error.without_url()))
}

fn with_causes(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        text = format!("{text}: {error}");
        cause = error.source();
    }
    text
}

/// The begin of what was answered.
async fn begin_of(mut response: Response) -> String {
    let mut bytes = Vec::new();
    while bytes.len() < ANSWER_BYTES {
        match response.chunk().await {
            Ok(Some(chunk)) => bytes.extend_from_slice(&chunk[..chunk.len().min(ANSWER_BYTES)]),
            _ => break,
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The example of the specification ("Signature scheme"), made with its own libraries.
    #[test]
    fn a_signature_is_that_of_the_specification() {
        drop(rustls::crypto::ring::default_provider().install_default());
        let secret = SecretString::from("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw".to_owned());
        let hook = Webhook::new("http://127.0.0.1:1/", &secret).unwrap();
        let body = r#"{"test": 2432232314}"#;
        let signature = hook.signature("msg_p5jXN8AQM9LWM0D4loKWxJek", 1_614_265_330, body);
        assert_eq!(signature, "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=");
    }

    #[test]
    fn a_status_says_whether_the_event_or_the_receiver_is_at_fault() {
        for status in [200, 202, 204] {
            assert_eq!(fault_of(status), None);
        }
        for (status, fault) in [
            (302, DeliveryFault::Redirected),
            (308, DeliveryFault::Redirected),
            (422, DeliveryFault::Refused),
            (401, DeliveryFault::Denied),
            (404, DeliveryFault::Denied),
            (410, DeliveryFault::Denied),
            (408, DeliveryFault::Unavailable),
            (429, DeliveryFault::Unavailable),
            (503, DeliveryFault::Unavailable),
        ] {
            assert_eq!(fault_of(status), Some(fault), "{status}");
        }
    }

    #[test]
    fn a_secret_that_cannot_be_read_is_named() {
        let secret = SecretString::from("hush".to_owned());
        let failure = Webhook::new("https://hooks.example/", &secret).map(drop).unwrap_err();
        assert_eq!(failure.fault, DeliveryFault::Denied);
        assert!(!failure.text.contains("hush"), "{}", failure.text);
    }
}
