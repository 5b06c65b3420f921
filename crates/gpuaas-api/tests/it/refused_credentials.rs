//! Junk of one address on both listeners.

use std::net::{IpAddr, Ipv4Addr};

use gpuaas_types::limits::Limit;
use serde_json::json;

use crate::tls::{Key, Tls, answer, beat};

/// A client at an address of loopback that shows what it is told to.
fn client(tls: &Tls, last: u8, shows: Option<(&Key, &str)>) -> reqwest::Client {
    let address = IpAddr::V4(Ipv4Addr::new(127, 0, 0, last));
    tls.client_builder(shows).local_address(address).build().unwrap()
}

#[tokio::test]
async fn junk_of_an_address_is_refused_unread_and_shuts_out_nobody_else() {
    let tls = Tls::new().await;
    let agent = tls.enrolled("j22u11").await;
    let burst = Limit::RefusedCredentialBurst.row().operators;
    let url = format!("{}/api/v1/sites", tls.operators);
    let (mallory, ann) = (client(&tls, 1, None), client(&tls, 2, None));
    let get = async |client: &reqwest::Client, token: &str| {
        let (status, body) = answer(client.get(&url), Some(token)).await;
        (status, body["code"].as_str().unwrap_or_default().to_owned())
    };
    assert_eq!(get(&mallory, &tls.rig.admin).await.0, 200);
    for n in 0..burst {
        assert_eq!(get(&mallory, &format!("junk-{n}")).await.1, "token_unknown");
    }
    let refused = mallory.get(&url).bearer_auth("gptoken_junk").send().await.unwrap();
    assert_eq!(refused.status(), 429);
    assert_eq!(refused.headers()["retry-after"], "1");
    let problem: serde_json::Value = refused.json().await.unwrap();
    assert_eq!(problem["code"], "too_many_requests");
    assert!(problem["hint"].as_str().unwrap().contains("Retry-After"), "{problem}");
    assert_eq!(get(&mallory, &tls.rig.admin).await.0, 200, "it was accepted from there before");
    assert_eq!(get(&ann, "junk").await.1, "token_unknown", "another address has its own");

    // Boot, enrollment and certificates, on the listener of nodes.
    let stranger = Tls::new().await.unwritten(agent.node.node_id).await;
    let shown = client(&tls, 1, Some((&stranger.0, &stranger.1)));
    let run = agent.node.run_id;
    let progress = format!("{}/bootstrap/v1/runs/{run}/progress", tls.nodes);
    let enroll = format!("{}/agent/v1/enroll", tls.nodes);
    let heartbeat = format!("{}/agent/v1/heartbeat", tls.nodes);
    let body = json!({});
    let mut seen = std::collections::BTreeMap::<String, u64>::new();
    for n in 0..burst + 6 {
        let junk = format!("junk-{n}");
        let (request, token) = match n % 3 {
            0 => (mallory.post(&progress), Some(junk.as_str())),
            1 => (mallory.post(&enroll), Some(junk.as_str())),
            _ => (shown.post(&heartbeat), None),
        };
        let (_, problem) = answer(request.json(&body), token).await;
        *seen.entry(problem["code"].as_str().unwrap().to_owned()).or_default() += 1;
    }
    assert_eq!(seen["too_many_requests"], 6, "{seen:?}");
    let other = client(&tls, 3, Some((&agent.key, &agent.certificate.chain_pem)));
    let (status, body) = answer(other.post(&heartbeat).json(&beat(&agent.node)), None).await;
    assert_eq!(status, 200, "{body}");
    // The clock of the control plane gives the address its tries back.
    tls.rig.advance(60);
    assert_eq!(get(&mallory, "junk").await.1, "token_unknown");
}
