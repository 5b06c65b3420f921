//! Changes whose connection is reset at once: each one that took effect has its entry in the audit log, and
//! each entry its effect.

use std::time::Duration;

use gpuaas_client::failure::Failure;
use serde::Serialize;
use serde_json::{Value, json};
use tokio::io::AsyncWriteExt as _;
use tokio::net::TcpStream;
use tokio::time::{Instant, sleep_until};

use super::attacker::failed;
use super::target::Target;

/// Latest moment of a reset after its request.
const LATEST: Duration = Duration::from_millis(30);
/// Time between two looks at what came of the requests.
const LOOK: Duration = Duration::from_millis(200);
/// Looks at most, and looks that see the same after which nothing is in progress any more.
const LOOKS: (usize, usize) = (100, 5);
/// What the names of the changes begin with.
const NAME: &str = "hang-up-";

/// What came of changes whose connection was reset.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct HangUps {
    /// Requests.
    pub requests: usize,
    /// Those that took effect.
    pub effects: usize,
    /// Those that have an entry in the audit log.
    pub entries: usize,
}

/// Sends so many changes, each on a connection that is reset a little later than that of the one before.
///
/// # Errors
/// `attack_failed`.
pub(super) async fn measure(
    target: &Target,
    token: &str,
    requests: usize,
) -> Result<HangUps, Failure> {
    for number in 0..requests {
        let body = json!({ "name": format!("{NAME}{number}"), "spec": {} }).to_string();
        let request = format!(
            "POST /api/v1/profiles HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {token}\r\n\
             content-type: application/json\r\ncontent-length: {}\r\n\r\n{body}",
            body.len()
        );
        let connected = TcpStream::connect(target.operators).await;
        let mut stream = connected.map_err(|error| failed(&error))?;
        stream.write_all(request.as_bytes()).await.map_err(|error| failed(&error))?;
        let wait =
            LATEST * u32::try_from(number).unwrap_or(0) / u32::try_from(requests).unwrap_or(1);
        sleep_until(Instant::now() + wait).await;
        // What is closed like this is reset.
        stream.set_zero_linger().map_err(|error| failed(&error))?;
    }
    settled(target, token, requests).await
}

/// What came of the requests, once it does not change any more.
async fn settled(target: &Target, token: &str, requests: usize) -> Result<HangUps, Failure> {
    let (most, same_looks) = LOOKS;
    let (mut last, mut same) = (look(target, token, requests).await?, 0);
    for _ in 0..most {
        sleep_until(Instant::now() + LOOK).await;
        let now = look(target, token, requests).await?;
        same = if now == last { same + 1 } else { 0 };
        last = now;
        if same == same_looks {
            return Ok(last);
        }
    }
    Err(failed(&format!("the number of changes does not settle: {last:?}")))
}

async fn look(target: &Target, token: &str, requests: usize) -> Result<HangUps, Failure> {
    let profiles = items(target, token, "profiles").await?;
    let entries = items(target, token, "audit?limit=1000&filter=action=profile.create").await?;
    let ours = |items: &[Value], name: &dyn Fn(&Value) -> Option<String>| {
        items.iter().filter(|item| name(item).is_some_and(|name| name.starts_with(NAME))).count()
    };
    let text = |value: &Value| value.as_str().map(str::to_owned);
    let effects = ours(&profiles, &|item| text(&item["status"]["name"]));
    let entries = ours(&entries, &|item| text(&item["subject"]));
    Ok(HangUps { requests, effects, entries })
}

async fn items(target: &Target, token: &str, path: &str) -> Result<Vec<Value>, Failure> {
    let url = format!("http://{}/api/v1/{path}", target.operators);
    let answer = reqwest::Client::new().get(url).bearer_auth(token).send().await;
    let answer = answer.and_then(reqwest::Response::error_for_status);
    let page: Value = match answer {
        Ok(answer) => answer.json().await.map_err(|error| failed(&error))?,
        Err(error) => return Err(failed(&error)),
    };
    Ok(page["items"].as_array().cloned().unwrap_or_default())
}

/// A token of an operator, for the attacker.
///
/// # Errors
/// `attack_failed`.
pub(super) async fn operator_token(target: &Target, token: &str) -> Result<String, Failure> {
    let url = format!("http://{}/api/v1/tokens", target.operators);
    let body =
        json!({ "name": "attacker", "grants": [{ "role": "operator" }], "reason": "bench attack" });
    let sent = reqwest::Client::new().post(url).bearer_auth(token).json(&body).send().await;
    let made: Value = match sent.and_then(reqwest::Response::error_for_status) {
        Ok(answer) => answer.json().await.map_err(|error| failed(&error))?,
        Err(error) => return Err(failed(&error)),
    };
    made["token"]
        .as_str()
        .map(str::to_owned)
        .ok_or_else(|| failed(&"the control plane's answer contains no token"))
}
