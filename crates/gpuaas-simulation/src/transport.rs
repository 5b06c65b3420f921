//! MAAS without a socket: the client's transport over the region, on the virtual clock.
//!
//! A request takes its time there and back, as on a network; without that, an answer would carry
//! the moment of its question and nothing could be newer than anything. Once it left, it arrives,
//! whatever becomes of the process that sent it: the [`Network`] belongs to the world and not to a
//! control plane. What arrives and changes something is kept as an [`Arrival`], so that somebody
//! can ask whose intent it carries out.

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
use tokio::sync::oneshot;

use crate::failpoint::Fuse;

/// Seconds that a request needs to the region, and an answer back.
const TRAVEL_SECONDS: f64 = 0.004;

/// A change that reached the region.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Arrival {
    /// When, by the world's clock.
    pub at: Timestamp,
    /// Which control plane sent it.
    pub replica: u32,
    /// The effect that it is, as in the journal; none: a change that the journal knows nothing of.
    pub effect: Option<EffectKind>,
    /// MAAS' identifier of the machine; none for a machine that is to be created.
    pub system_id: Option<String>,
    /// Hostname of the machine that is to be created.
    pub hostname: Option<String>,
}

type Answer = Result<Response, TransportError>;

enum Flight {
    There { replica: u32, request: Box<maas_sim::SimRequest>, timeout: Duration },
    Back(Answer),
}

#[derive(Default)]
struct Air {
    last: u64,
    flights: BTreeMap<(Timestamp, u64), (Flight, oneshot::Sender<Answer>)>,
    arrivals: Vec<Arrival>,
}

impl Air {
    fn add(&mut self, at: Timestamp, flight: Flight, answer: oneshot::Sender<Answer>) {
        self.last += 1;
        self.flights.insert((at, self.last), (flight, answer));
    }
}

/// What is on its way between control planes and the region.
pub(crate) struct Network {
    region: Arc<SharedRegion>,
    air: Mutex<Air>,
}

impl Network {
    pub(crate) fn new(region: Arc<SharedRegion>) -> Self {
        Self { region, air: Mutex::default() }
    }

    fn lock(&self) -> MutexGuard<'_, Air> {
        self.air.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// When something arrives next.
    pub(crate) fn next(&self) -> Option<Timestamp> {
        self.lock().flights.keys().next().map(|(at, _)| *at)
    }

    /// Changes that arrived since the last time this was asked.
    pub(crate) fn take_arrivals(&self) -> Vec<Arrival> {
        std::mem::take(&mut self.lock().arrivals)
    }

    /// Lets arrive what has arrived by `now`. Answers whether anything did.
    pub(crate) fn deliver(&self, now: Timestamp) -> bool {
        let mut any = false;
        loop {
            let mut air = self.lock();
            let Some(first) = air.flights.first_entry().filter(|first| first.key().0 <= now) else {
                return any;
            };
            any = true;
            let (flight, answer) = first.remove();
            match flight {
                // Whoever asked may be gone.
                Flight::Back(came) => drop(answer.send(came)),
                Flight::There { replica, request, timeout } => {
                    if request.method != "GET" {
                        air.arrivals.extend(arrival(now, replica, &request));
                    }
                    drop(air);
                    let (seconds, came) = self.ask(&request, timeout);
                    let at = now.plus_seconds(seconds);
                    self.lock().add(at, Flight::Back(came), answer);
                }
            }
        }
    }

    /// The region's answer, and how long it is on its way.
    fn ask(&self, request: &maas_sim::SimRequest, timeout: Duration) -> (f64, Answer) {
        let answer = self.region.call(request);
        #[expect(clippy::cast_precision_loss, reason = "a wait of minutes")]
        let seconds = answer.delay_us as f64 / 1e6 + TRAVEL_SECONDS;
        if seconds > timeout.as_secs_f64() {
            return (timeout.as_secs_f64(), Err(TransportError::Timeout));
        }
        if answer.delivery == ResponseDelivery::Reset {
            return (seconds, Err(TransportError::Reset("connection closed".to_owned())));
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

/// A change of a machine; none where the request is about something else.
fn arrival(at: Timestamp, replica: u32, request: &maas_sim::SimRequest) -> Option<Arrival> {
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
    Some(Arrival { at, replica, effect, system_id, hostname })
}

/// Connects the engine of one control plane to a region in the same process.
pub(crate) struct Within {
    line: Arc<Line>,
    signed_by: Arc<dyn Clock>,
}

struct Line {
    network: Arc<Network>,
    clock: VirtualClock,
    fuse: Arc<Fuse>,
    replica: u32,
}

impl Within {
    pub(crate) fn new(
        network: Arc<Network>,
        clock: &VirtualClock,
        fuse: Arc<Fuse>,
        replica: u32,
        signed_by: Arc<dyn Clock>,
    ) -> Self {
        let line = Line { network, clock: clock.clone(), fuse, replica };
        Self { line: Arc::new(line), signed_by }
    }
}

impl Connect for Within {
    fn connect(&self, site: &SiteSpec, key: ApiKey) -> Result<Client, MaasError> {
        let config = Config::new(site.url.clone(), key);
        let clock = Arc::clone(&self.signed_by);
        let line = Arc::clone(&self.line) as Arc<dyn Transport>;
        Client::with_transport(&config, line, Arc::new(move || clock.now().as_seconds()))
    }
}

#[async_trait]
impl Transport for Line {
    async fn send(&self, request: Request, timeout: Duration) -> Answer {
        self.fuse.leaves(self.replica).await;
        let (answer, coming) = oneshot::channel();
        let at = self.clock.now().plus_seconds(TRAVEL_SECONDS);
        let request = Box::new(as_seen(request));
        let flight = Flight::There { replica: self.replica, request, timeout };
        self.network.lock().add(at, flight, answer);
        self.fuse.left(self.replica).await;
        let came = coming.await;
        self.fuse.came(self.replica).await;
        came.unwrap_or_else(|_| Err(TransportError::Reset("the world ended".to_owned())))
    }
}

fn as_seen(request: Request) -> maas_sim::SimRequest {
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
