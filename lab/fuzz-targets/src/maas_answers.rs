//! What a region of MAAS answers.

use std::fmt::Debug;
use std::hint::black_box;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use maas_client::{
    Client, Config, CurrentSet, Error, EventQuery, MAX_TEXT_CHARS, MachineFilter, NewBootResource,
    Request, Response, ResultQuery, ScriptFilter, StatusChange, Transport, TransportError,
    UploadTarget, parse_maas_time,
};

/// Secret of the key that the client has; a region's text may hold it. It begins with a letter that no
/// escape ends with: a tab before `ok` is shown as `\\tok`.
const SECRET: &str = "Top-secret";
/// Status codes of answers.
const STATUSES: [u16; 16] =
    [200, 201, 204, 301, 400, 401, 403, 404, 405, 409, 418, 500, 502, 503, 504, 200];
const TYPES: [Option<&str>; 4] =
    [Some("application/json; charset=utf-8"), Some("text/plain"), Some("text/html"), None];

/// An answer to each call, as its first two bytes say: a letter for the call, then a character whose
/// number gives status and type. The first line of the body is the server's date as well.
///
/// Whatever a region answers, a call ends with a value or with an error that has a code, a text of bounded
/// length, and no secret in it.
pub fn maas_answers(data: &[u8]) {
    let [letter, kind, body @ ..] = data else { return };
    let kind = kind.wrapping_sub(b'0');
    let text = String::from_utf8_lossy(body);
    let date = text.lines().next().unwrap_or_default();
    black_box((parse_maas_time(date), StatusChange::parse(date), UploadTarget::parse(date)));
    let response = Response {
        status: STATUSES[usize::from(kind % 16)],
        content_type: TYPES[usize::from(kind / 16 % 4)].map(str::to_owned),
        retry_after: None,
        date: Some(date.to_owned()),
        body: body.to_vec().into(),
    };
    let Ok(client) = client(response) else { unreachable!("the configuration is a constant") };
    let called = pin!(call(&client, letter.wrapping_sub(b'a')));
    let Poll::Ready(answer) = called.poll(&mut Context::from_waker(Waker::noop())) else {
        unreachable!("the transport answers at once")
    };
    match answer {
        Ok(shown) => assert!(shown <= 64 * 1024 + 64 * body.len(), "{shown} bytes"),
        Err(error) => judge(&error),
    }
}

fn judge(error: &Error) {
    let text = format!("{error} {error:?}");
    assert!(!text.contains(SECRET), "{text}");
    assert!(!error.code().is_empty());
    let messages = error.fields().into_iter().flatten().flat_map(|(_, messages)| messages);
    for message in messages {
        assert!(message.chars().count() <= MAX_TEXT_CHARS + 1, "{message}");
    }
    assert!(error.to_string().chars().count() <= MAX_TEXT_CHARS + 200, "{text}");
}

/// Always the same answer.
struct FixedAnswer(Response);

#[async_trait::async_trait]
impl Transport for FixedAnswer {
    async fn send(&self, _: Request, _: Duration) -> Result<Response, TransportError> {
        Ok(self.0.clone())
    }
}

fn client(response: Response) -> Result<Client, Error> {
    let config = Config::new("http://127.0.0.1:5240/MAAS", format!("ck:tk:{SECRET}").parse()?);
    let now = Arc::new(|| 1_795_181_527);
    Client::with_transport(&config, Arc::new(FixedAnswer(response)), now)
}

/// One call for each type of answer; how many bytes its value is when shown.
async fn call(client: &Client, index: u8) -> Result<usize, Error> {
    fn shown<T: Debug>(value: T) -> usize {
        format!("{value:?}").len()
    }
    Ok(match index % 27 {
        0 => {
            let version = client.version().await?;
            shown((version.release(), version))
        }
        1 => shown(client.clock_offset_seconds().await?),
        2 => shown(client.whoami().await?),
        3 => shown(client.get_config("maas_url").await?),
        4 => shown((client.resource_pools().await?, client.zones().await?)),
        5 => shown(client.subnets().await?),
        6 => shown(client.results("abc123", &ResultQuery::default()).await?),
        7 => {
            let set = CurrentSet::Commissioning;
            shown(client.current_results("abc123", set, &ResultQuery::default()).await?)
        }
        8 => {
            let events = client.events(&EventQuery::default()).await?;
            let each = events.events.iter();
            let changes: Vec<_> =
                each.map(|event| (event.created_seconds(), event.status_change())).collect();
            shown((events.newest_id(), changes, &events))
        }
        9 => shown(client.machines(&MachineFilter::hostname("j22u11")).await?),
        10 => {
            let machine = client.machine("abc123").await?;
            shown((machine.boot_interface_full(), &machine))
        }
        11 => shown(client.power_on("abc123", None).await?),
        12 => {
            let parameters = client.power_parameters_all().await?;
            let all = parameters.values().filter_map(|one| one.password.as_ref());
            let digests: Vec<String> = all.map(|password| password.fingerprint("salt")).collect();
            shown((digests, &parameters))
        }
        13 => shown(client.power_parameters("abc123").await?),
        14 => shown(client.query_power_state("abc123").await?),
        15 => shown(client.interfaces("abc123").await?),
        16 => shown(client.interface("abc123", 1).await?),
        17 => shown(client.tags().await?),
        18 => shown(client.create_tag("gpuaas", None, None).await?),
        19 => shown(client.update_tag_nodes("gpuaas", &[], &[]).await?),
        20 => shown(client.block_devices("abc123").await?),
        21 => shown(client.scripts(&ScriptFilter::default()).await?),
        22 => {
            let script = client.script("burn", true).await?;
            shown((script.content(), &script))
        }
        23 => shown(client.boot_resources().await?),
        24 => shown(client.boot_resource(1).await?),
        25 => shown(client.create_boot_resource(&NewBootResource::default()).await?),
        _ => shown(client.delete_machine("abc123").await?),
    })
}
