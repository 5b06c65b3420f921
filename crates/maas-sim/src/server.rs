//! The faces: HTTP, and calls within the process.
//!
//! A request holds the region's lock only while it is answered; a machine's body is rendered at
//! most once between two changes, so most answers are a copy of a pointer. One driver task moves
//! the heap along and hands the notices out.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use http_body_util::{BodyExt as _, Full};
use hyper::body::{Bytes, Incoming};
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Notify, mpsc, watch};
use tokio::task::JoinHandle;

use crate::class::{H200, HardwareClass};
use crate::clock::{PacedClock, SimClock};
use crate::faults::Fault;
use crate::notice::Notice;
use crate::region::{Region, RegionConfig};
use crate::wire::{Delivery, Request, Response};

/// A region that several tasks use.
pub struct Shared {
    region: Mutex<Region>,
    clock: Arc<dyn SimClock>,
    changed: Notify,
}

impl std::fmt::Debug for Shared {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Shared").finish_non_exhaustive()
    }
}

impl Shared {
    /// Shares a region that lives on `clock`.
    #[must_use]
    pub fn new(region: Region, clock: Arc<dyn SimClock>) -> Arc<Self> {
        Arc::new(Self { region: Mutex::new(region), clock, changed: Notify::new() })
    }

    fn lock(&self) -> MutexGuard<'_, Region> {
        // A panic in one request must not take the region away from the others.
        self.region.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Does something with the region, e.g. injects a fault or reads the statistics.
    pub fn with<T>(&self, act: impl FnOnce(&mut Region) -> T) -> T {
        let out = act(&mut self.lock());
        self.changed.notify_one();
        out
    }

    /// The clock.
    #[must_use]
    pub fn clock(&self) -> &Arc<dyn SimClock> {
        &self.clock
    }

    /// Answers a request at the present time; does not wait for [`Response::delay_us`].
    pub fn call(&self, request: &Request) -> Response {
        let (now, wall) = (self.clock.now_us(), self.clock.wall_seconds());
        let (response, wake) = {
            let mut region = self.lock();
            let before = region.next_event_at();
            let response = region.handle(now, wall, request);
            let after = region.next_event_at();
            (response, after != before || region.wants_attention(now))
        };
        if wake {
            self.changed.notify_one();
        }
        response
    }
}

/// Calls a region without a socket, with the waits that a socket would show.
#[derive(Debug, Clone)]
pub struct InProcess(pub Arc<Shared>);

impl InProcess {
    /// Answers a request after the time that the real region would have taken. A connection
    /// that is lost on the way back shows as [`Delivery::Reset`].
    pub async fn call(&self, request: &Request) -> Response {
        let response = self.0.call(request);
        if response.delay_us > 0 {
            let at = self.0.clock.now_us() + response.delay_us;
            self.0.clock.wait_until(at).await;
        }
        response
    }
}

/// Returns when the simulator is told to stop; a dropped handle tells it nothing.
async fn stopped(stop: &mut watch::Receiver<bool>) {
    if stop.wait_for(|told| *told).await.is_err() {
        std::future::pending::<()>().await;
    }
}

/// Lets the heap run on the clock; notices go to `out`. Returns when `stop` says so.
async fn drive(
    shared: Arc<Shared>,
    out: mpsc::UnboundedSender<Notice>,
    mut stop: watch::Receiver<bool>,
) {
    loop {
        let now = shared.clock.now_us();
        let (notices, next) = {
            let mut region = shared.lock();
            (region.advance(now), region.next_event_at())
        };
        for notice in notices {
            // Without a listener the hosts' software simply does not run.
            out.send(notice).ok();
        }
        let sleep = async {
            match next {
                Some(at) => shared.clock.wait_until(at).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            () = sleep => {}
            () = shared.changed.notified() => {}
            () = stopped(&mut stop) => return,
        }
    }
}

#[derive(Debug, thiserror::Error)]
#[error("connection closed on purpose")]
struct Lost;

async fn answer(
    shared: Arc<Shared>,
    request: hyper::Request<Incoming>,
) -> Result<hyper::Response<Full<Bytes>>, Lost> {
    let (head, body) = request.into_parts();
    let header =
        |name: &str| head.headers.get(name).and_then(|v| v.to_str().ok()).map(str::to_owned);
    let request = Request {
        method: head.method.as_str().to_owned(),
        path: head.uri.path().to_owned(),
        query: head.uri.query().unwrap_or("").to_owned(),
        authorization: header("authorization"),
        content_type: header("content-type"),
        body: body.collect().await.map_err(|_| Lost)?.to_bytes(),
    };
    let response = InProcess(shared).call(&request).await;
    if response.delivery == Delivery::Reset {
        return Err(Lost);
    }
    let mut out = hyper::Response::builder()
        .status(response.status)
        .header("Server", "TwistedWeb/24.3.0")
        .header("Content-Type", response.content_type);
    for (name, value) in &response.headers {
        out = out.header(*name, value);
    }
    out.body(Full::new(response.body)).map_err(|_| Lost)
}

async fn connection(shared: Arc<Shared>, stream: TcpStream, mut stop: watch::Receiver<bool>) {
    stream.set_nodelay(true).ok();
    let service = service_fn(move |request| answer(shared.clone(), request));
    let serving =
        hyper::server::conn::http1::Builder::new().serve_connection(TokioIo::new(stream), service);
    tokio::select! {
        // A caller that goes away is no news.
        _ = serving => {}
        () = stopped(&mut stop) => {}
    }
}

/// Serves a shared region on a listener until `stop` says so.
///
/// # Errors
/// When the listener fails.
pub async fn serve(
    listener: TcpListener,
    shared: Arc<Shared>,
    mut stop: watch::Receiver<bool>,
) -> Result<Infallible, std::io::Error> {
    loop {
        tokio::select! {
            accepted = listener.accept() => {
                let (stream, _) = accepted?;
                tokio::spawn(connection(shared.clone(), stream, stop.clone()));
            }
            () = stopped(&mut stop) => return Err(std::io::Error::other("stopped")),
        }
    }
}

/// How a simulator is started.
pub struct SimOptions {
    /// Address to listen on; port 0 for any.
    pub listen: SocketAddr,
    /// Racked machines that MAAS does not know yet.
    pub machines: usize,
    /// Their names; the rest is called `node0001` and on.
    pub names: Vec<String>,
    /// Their class.
    pub class: &'static HardwareClass,
    /// Seed of everything random.
    pub seed: u64,
    /// Time.
    pub clock: Arc<dyn SimClock>,
    /// Multiplies hardware durations; 0 for none.
    pub scale: f64,
    /// API key of the administrator, `consumer:token:secret`; absent for one made from the seed.
    pub api_key: Option<String>,
    /// Faults from the start.
    pub faults: Vec<Fault>,
    /// Custom images that are there from the start.
    pub images: Vec<String>,
}

impl Default for SimOptions {
    fn default() -> Self {
        Self {
            listen: SocketAddr::from(([127, 0, 0, 1], 0)),
            machines: 0,
            names: Vec::new(),
            class: &H200,
            seed: 1,
            clock: Arc::new(PacedClock::new(1.0)),
            scale: 1.0,
            api_key: None,
            faults: Vec::new(),
            images: Vec::new(),
        }
    }
}

impl std::fmt::Debug for SimOptions {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SimOptions")
            .field("listen", &self.listen)
            .field("machines", &self.machines)
            .finish_non_exhaustive()
    }
}

/// The region that these options describe, and its administrator's key.
#[must_use]
pub fn build(options: &SimOptions) -> (Region, String) {
    let mut config = RegionConfig {
        seed: options.seed,
        scale: options.scale,
        class: options.class,
        ..RegionConfig::default()
    };
    let key = options.api_key.clone().unwrap_or_else(|| {
        let mut chance = crate::chance::Chance::of(options.seed, "api-key");
        let mut word = || chance.uuid().replace('-', "");
        format!("{}:{}:{}", word(), word(), word())
    });
    for user in config.users.iter_mut().filter(|u| u.name == "admin") {
        user.keys = vec![key.clone()];
    }
    let mut region = Region::new(config);
    let names = options.names.iter().cloned().chain((1..).map(|n| format!("node{n:04}")));
    for name in names.take(options.machines.max(options.names.len())) {
        region.rack(&name, options.class);
    }
    options.images.iter().for_each(|name| region.preload_image(name));
    options.faults.iter().cloned().for_each(|fault| {
        region.inject(fault);
    });
    (region, key)
}

/// Where a caller on this machine finds a listener.
fn reachable(mut addr: SocketAddr) -> SocketAddr {
    if addr.ip().is_unspecified() {
        addr.set_ip(std::net::Ipv4Addr::LOCALHOST.into());
    }
    addr
}

/// A running simulator.
pub struct SimServer;

/// What a started simulator hands back. Dropping it does not stop the simulator.
#[derive(Debug)]
pub struct SimHandle {
    /// Where it listens.
    pub addr: SocketAddr,
    /// The administrator's API key.
    pub api_key: String,
    /// Hosts that begin and end to run.
    pub notices: mpsc::UnboundedReceiver<Notice>,
    /// The region behind it.
    pub region: Arc<Shared>,
    stop: watch::Sender<bool>,
    tasks: Vec<JoinHandle<()>>,
}

impl SimServer {
    /// Starts a simulator of the region that the options describe.
    ///
    /// # Errors
    /// When the address cannot be listened on.
    pub async fn start(options: SimOptions) -> Result<SimHandle, std::io::Error> {
        let (region, api_key) = build(&options);
        Self::start_region(region, api_key, options.listen, options.clock).await
    }

    /// Starts a simulator of a region that was set up by hand.
    ///
    /// # Errors
    /// When the address cannot be listened on.
    pub async fn start_region(
        mut region: Region,
        api_key: String,
        listen: SocketAddr,
        clock: Arc<dyn SimClock>,
    ) -> Result<SimHandle, std::io::Error> {
        let listener = TcpListener::bind(listen).await?;
        let addr = listener.local_addr()?;
        region.set_public_url(&format!("http://{}", reachable(addr)));
        let shared = Shared::new(region, clock);
        let (stop, stopped) = watch::channel(false);
        let (sender, notices) = mpsc::unbounded_channel();
        let (served, ends) = (shared.clone(), stopped.clone());
        let tasks = vec![
            tokio::spawn(drive(shared.clone(), sender, stopped)),
            tokio::spawn(async move {
                serve(listener, served, ends).await.ok();
            }),
        ];
        Ok(SimHandle { addr, api_key, notices, region: shared, stop, tasks })
    }
}

impl SimHandle {
    /// `http://HOST:PORT/MAAS/`.
    #[must_use]
    pub fn url(&self) -> String {
        format!("http://{}/MAAS/", reachable(self.addr))
    }

    /// Stops listening and lets open connections go.
    pub async fn shutdown(self) {
        self.stop.send(true).ok();
        for task in self.tasks {
            task.await.ok();
        }
    }

    /// Waits for the end of the server, which comes only with a failure of the listener.
    pub async fn run(mut self) {
        if let Some(task) = self.tasks.pop() {
            task.await.ok();
        }
    }
}
