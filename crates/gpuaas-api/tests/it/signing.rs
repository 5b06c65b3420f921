//! What an agent makes the authority sign.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use futures::future::join_all;
use gpuaas_api::ApiSettings;
use gpuaas_engine::{Clock as _, RealClock};
use gpuaas_identity::{Authority, AuthorityError, BuiltIn, CertificateRequest};
use rustls::pki_types::CertificateDer;
use serde_json::json;

use crate::tls::{Enrolled, Key, Tls, enrollment, issuer_with};

/// Certificates of a node that may be good at the same time.
const MOST: usize = 8;

/// An authority that counts what it signs.
#[derive(Debug)]
struct Counting {
    inner: BuiltIn,
    signed: Arc<AtomicUsize>,
}

#[async_trait::async_trait]
impl Authority for Counting {
    fn anchors(&self) -> &[CertificateDer<'static>] {
        self.inner.anchors()
    }

    fn anchors_pem(&self) -> &str {
        self.inner.anchors_pem()
    }

    async fn issue(&self, request: &CertificateRequest) -> Result<String, AuthorityError> {
        self.signed.fetch_add(1, Ordering::SeqCst);
        self.inner.issue(request).await
    }
}

async fn counting() -> (Tls, Arc<AtomicUsize>) {
    let signed = Arc::new(AtomicUsize::new(0));
    let inner = BuiltIn::generate(RealClock.now()).unwrap();
    let issuer = issuer_with(Arc::new(Counting { inner, signed: Arc::clone(&signed) }));
    (Tls::issued_by(issuer, ApiSettings::default()).await, signed)
}

#[tokio::test]
async fn certificates_of_a_node_are_counted_before_one_is_signed() {
    let (tls, signed) = counting().await;
    let agent = tls.enrolled("j22u11").await;
    let begun = signed.load(Ordering::SeqCst);
    let client = agent.client(&tls);
    let ask = async || {
        let body = json!({ "run_id": agent.node.run_id, "csr_pem": Key::new().csr });
        let (status, problem) = tls.post(&client, "/agent/v1/certificate", None, &body).await;
        assert!(status == 200 || (status == 429 && problem["hint"] != ""), "{status} {problem}");
        status == 200
    };
    let at_once = join_all((0..30).map(|_| ask())).await;
    let mut given = at_once.into_iter().filter(|given| *given).count();
    assert_eq!(signed.load(Ordering::SeqCst) - begun, given, "nothing is signed in vain");
    for _ in 0..MOST + 2 {
        given += usize::from(ask().await);
    }
    assert_eq!((given, signed.load(Ordering::SeqCst) - begun), (MOST - 1, MOST - 1));
}

#[tokio::test]
async fn an_enrollment_that_is_sent_again_is_counted_before_it_is_signed() {
    let (tls, signed) = counting().await;
    let Enrolled { node, token, key, .. } = tls.enrolled("j22u11").await;
    let begun = signed.load(Ordering::SeqCst);
    let body = enrollment(&node, Some(&key.csr));
    let client = tls.client(None);
    let mut given = 0;
    for _ in 0..MOST + 4 {
        let (status, problem) = tls.post(&client, "/agent/v1/enroll", Some(&token), &body).await;
        assert!(status == 200 || problem["code"] == "certificates_too_many", "{problem}");
        given += usize::from(status == 200);
    }
    assert_eq!((given, signed.load(Ordering::SeqCst) - begun), (MOST - 1, MOST - 1));
}
