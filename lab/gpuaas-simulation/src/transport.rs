//! MAAS without a socket: the client's transport over the region, on the virtual clock.
//!
//! Request and response take time, as on a network; otherwise both would have the same moment and
//! no observation could be newer than another. Once it
//! was sent, it arrives even if the process that sent it dies: the [`Network`] belongs to the
//! simulation and not to a control plane. A request that changes something is kept as an
//! [`ArrivedChange`], so that the invariants can find its intent.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use gpuaas_engine::{Clock, Connect, VirtualClock};
use gpuaas_types::spec::SiteSpec;
use gpuaas_types::{EffectKind, Timestamp};
use maas_client::{
    ApiKey, Client, Config, Error as MaasError, Request, Response, Transport, TransportError,
};
use maas_sim::{ResponseDelivery, SharedRegion};
use serde::Serialize;
use tokio::sync::oneshot;

use crate::failpoint::FailpointTrigger;

/// Seconds that a request needs to the region, and an answer back.
const TRAVEL_SECONDS: f64 = 0.004;

/// A change that reached the region.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ArrivedChange {
    /// When, by the simulation's clock.
    pub at: Timestamp,
    /// Which control plane sent it.
    pub replica: u32,
    /// The effect that it is, as in the journal; none: a change that the journal knows nothing of.
    pub effect: Option<EffectKind>,
    /// System ID of the machine in MAAS; none for a machine that is to be created.
    pub system_id: Option<String>,
    /// Hostname of the machine that is to be created.
    pub hostname: Option<String>,
    /// The machine as MAAS showed it when the change arrived.
    pub shown: Option<ShownMachine>,
}

/// Who has a machine, as MAAS shows it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ShownMachine {
    /// Its owner.
    pub owner: Option<String>,
    /// Whether it is locked.
    pub locked: bool,
    /// Its hostname.
    pub hostname: String,
    /// Status number.
    pub status: i64,
}

type Answer = Result<Response, TransportError>;

enum Message {
    Request {
        replica: u32,
        request: Box<maas_sim::SimRequest>,
        timeout: Duration,
    },
    /// A request in the queue of the region, or of a proxy before it, whose turn comes.
    Queued {
        request: Box<maas_sim::SimRequest>,
        timeout: Duration,
    },
    Response(Answer),
}

/// How a region is away.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum OutageKind {
    /// Connections are refused.
    Refused,
    /// Requests get lost on their way.
    Silent,
    /// 503, and nothing is done.
    Unavailable503,
    /// 504 of the gateway: every other request was done.
    Gateway504,
    /// Requests arrive and are done, and their answers get lost.
    HalfOpen,
    /// The API key was deleted; it ends when the operator gives the site another one.
    KeyRevoked,
    /// The region's process ends with all connections, and starts again.
    Restarted,
}

impl OutageKind {
    /// Each of them.
    pub const ALL: [Self; 7] = [
        Self::Refused,
        Self::Silent,
        Self::Unavailable503,
        Self::Gateway504,
        Self::HalfOpen,
        Self::KeyRevoked,
        Self::Restarted,
    ];
}

#[derive(Default)]
struct InFlight {
    outage: Option<OutageKind>,
    /// Requests that came during an outage.
    met_outage: u64,
    last: u64,
    messages: BTreeMap<(Timestamp, u64), (Message, oneshot::Sender<Answer>)>,
    arrivals: Vec<ArrivedChange>,
}

impl InFlight {
    fn add(&mut self, at: Timestamp, message: Message, answer: oneshot::Sender<Answer>) {
        self.last += 1;
        self.messages.insert((at, self.last), (message, answer));
    }
}

/// What is on its way between control planes and the region.
pub(crate) struct Network {
    region: Arc<SharedRegion>,
    in_flight: Mutex<InFlight>,
}

impl Network {
    pub(crate) fn new(region: Arc<SharedRegion>) -> Self {
        Self { region, in_flight: Mutex::default() }
    }

    fn lock(&self) -> MutexGuard<'_, InFlight> {
        self.in_flight.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// When something arrives next.
    pub(crate) fn next(&self) -> Option<Timestamp> {
        self.lock().messages.keys().next().map(|(at, _)| *at)
    }

    /// The region is away from now on, or back.
    pub(crate) fn set_outage(&self, outage: Option<OutageKind>) {
        let mut in_flight = self.lock();
        in_flight.outage = outage;
        if outage == Some(OutageKind::Restarted) {
            for (message, _) in in_flight.messages.values_mut() {
                *message = Message::Response(reset());
            }
        }
    }

    /// Changes that arrived since the last time this was asked.
    pub(crate) fn take_arrived_changes(&self) -> Vec<ArrivedChange> {
        std::mem::take(&mut self.lock().arrivals)
    }

    /// Lets arrive what has arrived by `now`. Answers whether anything did.
    pub(crate) fn deliver(&self, now: Timestamp) -> bool {
        let mut any = false;
        loop {
            let mut in_flight = self.lock();
            let Some(first) = in_flight.messages.first_entry().filter(|first| first.key().0 <= now)
            else {
                return any;
            };
            any = true;
            let (message, answer) = first.remove();
            match message {
                // Whoever asked may be gone.
                Message::Response(came) => drop(answer.send(came)),
                Message::Queued { request, timeout } => {
                    drop(in_flight);
                    let (seconds, came) = self.call_region(&request, timeout);
                    let at = now.plus_seconds(seconds);
                    self.lock().add(at, Message::Response(came), answer);
                }
                Message::Request { replica, request, timeout } => {
                    if request.method != "GET" {
                        let arrived =
                            arrival(now, replica, &request).map(|one| self.with_machine(one));
                        in_flight.arrivals.extend(arrived);
                    }
                    let outage = in_flight.outage;
                    in_flight.met_outage += u64::from(outage.is_some());
                    let odd = in_flight.met_outage % 2 == 1;
                    drop(in_flight);
                    let queued = outage.map_or_else(|| self.region.queue_us(&request), |_| 0);
                    if queued > 0 {
                        self.queue(now, queued, request, timeout, answer);
                        continue;
                    }
                    let (seconds, came) = match outage {
                        None | Some(OutageKind::KeyRevoked) => self.call_region(&request, timeout),
                        Some(kind) => self.call_away(kind, odd, &request, timeout),
                    };
                    let at = now.plus_seconds(seconds);
                    self.lock().add(at, Message::Response(came), answer);
                }
            }
        }
    }

    /// With the machine as it is before the change is carried out.
    fn with_machine(&self, arrived: ArrivedChange) -> ArrivedChange {
        let id = arrived.system_id.clone();
        let json = id.and_then(|id| self.region.with(|region| region.machine_json(&id)));
        let shown = json.map(|machine| ShownMachine {
            owner: machine["owner"].as_str().map(str::to_owned),
            locked: machine["locked"].as_bool().unwrap_or_default(),
            hostname: machine["hostname"].as_str().unwrap_or_default().to_owned(),
            status: machine["status"].as_i64().unwrap_or_default(),
        });
        ArrivedChange { shown, ..arrived }
    }

    /// Has a request wait for its turn. Its caller waits no longer than it may, and the region carries
    /// it out all the same.
    fn queue(
        &self,
        now: Timestamp,
        queued_us: i64,
        request: Box<maas_sim::SimRequest>,
        timeout: Duration,
        answer: oneshot::Sender<Answer>,
    ) {
        let wait = Duration::from_micros(queued_us.unsigned_abs());
        let turn = now.plus_seconds(wait.as_secs_f64());
        let mut in_flight = self.lock();
        match timeout.checked_sub(wait) {
            Some(timeout) => in_flight.add(turn, Message::Queued { request, timeout }, answer),
            None => {
                let given_up = now.plus_seconds(timeout.as_secs_f64());
                let lost = Err(TransportError::Timeout);
                in_flight.add(given_up, Message::Response(lost), answer);
                let (nobody, _) = oneshot::channel();
                in_flight.add(turn, Message::Queued { request, timeout }, nobody);
            }
        }
    }

    /// What comes of a request to a region that is away, and when.
    fn call_away(
        &self,
        kind: OutageKind,
        odd: bool,
        request: &maas_sim::SimRequest,
        timeout: Duration,
    ) -> (f64, Answer) {
        let lost = (timeout.as_secs_f64(), Err(TransportError::Timeout));
        let with_status = |status: u16, seconds: Option<u64>, text: &str| {
            let response = Response {
                status,
                content_type: Some("text/plain; charset=utf-8".to_owned()),
                retry_after: seconds.map(Duration::from_secs),
                date: None,
                body: text.to_owned().into(),
            };
            (TRAVEL_SECONDS, Ok(response))
        };
        match kind {
            OutageKind::Silent => lost,
            OutageKind::HalfOpen => {
                self.region.call(request);
                lost
            }
            OutageKind::Unavailable503 => with_status(503, Some(10), "no rack controller"),
            OutageKind::Gateway504 => {
                if odd {
                    self.region.call(request);
                }
                with_status(504, None, "gateway time-out")
            }
            OutageKind::Refused | OutageKind::Restarted | OutageKind::KeyRevoked => {
                let refused = TransportError::Connect("connection refused".to_owned());
                (TRAVEL_SECONDS, Err(refused))
            }
        }
    }

    /// The region's answer, and how long it is on its way.
    fn call_region(&self, request: &maas_sim::SimRequest, timeout: Duration) -> (f64, Answer) {
        let answer = self.region.call(request);
        #[expect(clippy::cast_precision_loss, reason = "a wait of minutes")]
        let seconds = answer.delay_us as f64 / 1e6 + TRAVEL_SECONDS;
        if seconds > timeout.as_secs_f64() {
            return (timeout.as_secs_f64(), Err(TransportError::Timeout));
        }
        if answer.delivery == ResponseDelivery::Reset {
            return (seconds, reset());
        }
        let retry_after = answer
            .headers
            .iter()
            .find(|(name, _)| name.eq_ignore_ascii_case("retry-after"))
            .and_then(|(_, value)| value.parse().ok())
            .map(Duration::from_secs);
        let response = Response {
            status: answer.status,
            content_type: Some(answer.content_type.to_owned()),
            retry_after,
            date: None,
            body: answer.body,
        };
        (seconds, Ok(response))
    }
}

fn reset() -> Answer {
    Err(TransportError::Reset("connection closed".to_owned()))
}

/// A change of a machine; none where the request is about something else.
fn arrival(at: Timestamp, replica: u32, request: &maas_sim::SimRequest) -> Option<ArrivedChange> {
    let body = String::from_utf8_lossy(&request.body);
    let field = |name: &str| {
        let pairs = request.query.split('&').chain(body.split('&'));
        pairs.filter_map(|pair| pair.split_once('=')).find(|(key, _)| *key == name)
    };
    let word = |name: &str| field(name).map(|(_, value)| value.to_owned());
    let of = |kind: &str| {
        let (_, rest) = request.path.split_once(kind)?;
        rest.split('/').next().filter(|id| !id.is_empty()).map(str::to_owned)
    };
    let system_id = of("/machines/").or_else(|| of("/nodes/"));
    if system_id.is_none() && !request.path.ends_with("/machines/") {
        return None;
    }
    let effect = match (word("op").as_deref(), &system_id) {
        (Some("format"), _) => Some(EffectKind::FormatBlockDevice),
        (Some("mount"), _) => Some(EffectKind::MountBlockDevice),
        (Some(op), _) => op.parse().ok(),
        (None, None) => Some(EffectKind::CreateMachine),
        (None, Some(_)) => None,
    };
    let creates = effect == Some(EffectKind::CreateMachine);
    let hostname = if creates { word("hostname") } else { None };
    Some(ArrivedChange { at, replica, effect, system_id, hostname, shown: None })
}

/// Connects the engine of one control plane to a region in the same process.
pub(crate) struct InProcessConnector {
    transport: Arc<InProcessTransport>,
    signed_by: Arc<dyn Clock>,
}

struct InProcessTransport {
    network: Arc<Network>,
    clock: VirtualClock,
    failpoint: Arc<FailpointTrigger>,
    replica: u32,
}

impl InProcessConnector {
    pub(crate) fn new(
        network: Arc<Network>,
        clock: &VirtualClock,
        failpoint: Arc<FailpointTrigger>,
        replica: u32,
        signed_by: Arc<dyn Clock>,
    ) -> Self {
        let transport = InProcessTransport { network, clock: clock.clone(), failpoint, replica };
        Self { transport: Arc::new(transport), signed_by }
    }
}

impl Connect for InProcessConnector {
    fn connect(&self, site: &SiteSpec, key: ApiKey) -> Result<Client, MaasError> {
        let config = Config::new(site.url.clone(), key);
        let clock = Arc::clone(&self.signed_by);
        let transport = Arc::clone(&self.transport) as Arc<dyn Transport>;
        Client::with_transport(&config, transport, Arc::new(move || clock.now().as_seconds()))
    }
}

#[async_trait]
impl Transport for InProcessTransport {
    async fn send(&self, request: Request, timeout: Duration) -> Answer {
        self.failpoint.before_request(self.replica).await;
        let (answer, coming) = oneshot::channel();
        let at = self.clock.now().plus_seconds(TRAVEL_SECONDS);
        let request = Box::new(to_sim_request(request));
        let message = Message::Request { replica: self.replica, request, timeout };
        self.network.lock().add(at, message, answer);
        self.failpoint.after_request(self.replica).await;
        let came = coming.await;
        self.failpoint.after_response(self.replica).await;
        came.unwrap_or_else(|_| Err(TransportError::Reset("the simulation ended".to_owned())))
    }
}

fn to_sim_request(request: Request) -> maas_sim::SimRequest {
    let header = |name: &str| request.header(name).map(str::to_owned);
    let (authorization, content_type) = (header("authorization"), header("content-type"));
    let (path, query) =
        request.path_and_query.split_once('?').unwrap_or((&request.path_and_query, ""));
    maas_sim::SimRequest {
        method: request.method.as_str().to_owned(),
        path: path.to_owned(),
        query: query.to_owned(),
        authorization,
        content_type,
        body: request.body,
    }
}

/// Connects the admin API to the region: its calls are answered at once, while the simulation's time
/// stands still.
pub(crate) struct DirectConnector {
    region: Arc<SharedRegion>,
    clock: VirtualClock,
}

impl DirectConnector {
    pub(crate) fn new(region: &Arc<SharedRegion>, clock: &VirtualClock) -> Self {
        Self { region: Arc::clone(region), clock: clock.clone() }
    }
}

impl Connect for DirectConnector {
    fn connect(&self, site: &SiteSpec, key: ApiKey) -> Result<Client, MaasError> {
        let config = Config::new(site.url.clone(), key);
        let transport = Arc::new(DirectTransport(Arc::clone(&self.region)));
        let clock = self.clock.clone();
        Client::with_transport(&config, transport, Arc::new(move || clock.now().as_seconds()))
    }
}

struct DirectTransport(Arc<SharedRegion>);

#[async_trait]
impl Transport for DirectTransport {
    async fn send(&self, request: Request, _: Duration) -> Answer {
        let answer = self.0.call(&to_sim_request(request));
        Ok(Response {
            status: answer.status,
            content_type: Some(answer.content_type.to_owned()),
            body: answer.body,
            ..Response::default()
        })
    }
}
