//! `gpuaas serve`: opens what lasts, starts the engine and the API, and stops both in order.
//!
//! An embedded store belongs to one process: its writer commits in groups and its leases are
//! those of this process, so a lock file keeps a second one out, and leases found at the start
//! belong to a predecessor that is dead. PostgreSQL may be shared by any number of processes.

use std::fs::{self, File, TryLockError};
use std::io;
use std::net::SocketAddr;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use gpuaas_api::{ApiSettings, ApiState, NodeAccess};
use gpuaas_artifact::{Artifact, ArtifactStore, BundleCatalog, CatalogError};
use gpuaas_bundle::SigningKey;
use gpuaas_client::executables::{AGENT, find_agent};
use gpuaas_client::failure::{Exit, Failure, store_failure};
use gpuaas_engine::bundles::{self, SeedError};
use gpuaas_engine::{
    Clock, Connect, Engine, EngineConfig, EngineParts, Failpoints, HttpConnect, ReadKey, RealClock,
};
use gpuaas_events::{EventDelivery, NatsOptions};
use gpuaas_store::{ExposeSecret as _, SchemaChange, SecretString, Store};
use gpuaas_types::agent::AGENT_VERSION;
use gpuaas_types::codes::CommandCode;
use gpuaas_types::limits::LimitSetting;
use gpuaas_types::{IdSource, RandomIds};
use tokio::net::{TcpListener, TcpSocket};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

pub(crate) mod admin_token;
mod audit_relay;
mod authority_watch;
mod control_plane;
mod data_folder;
mod limits;
mod listeners;
mod nodes;
mod operators;
#[cfg(feature = "lab")]
mod planted_panic;
mod preflight;
mod retention;
mod server_certificate;
mod socket_activation;

use crate::master_key::MasterKeySources;
use crate::vault::VaultKeys;

use self::authority_watch::{AuthorityWatch, Followers, OwnHttp};
use self::data_folder::unwritable;
pub(crate) use self::data_folder::{database_url, embedded_path, make_private_dir};
use self::limits::BothLimits;
use self::listeners::{Loops, Sockets};
pub(crate) use self::preflight::database_is_verified;

pub use nodes::{NodeListenerOptions, TlsOptions};
pub use operators::{OperatorListenerOptions, OperatorSecurity};
#[cfg(feature = "lab")]
pub use planted_panic::PlantedPanic;
pub use retention::Retention;
pub use server_certificate::ServerFiles;
pub use socket_activation::ActivatedSockets;

/// How long open requests (agents' long polls, mostly) may go on after a stop.
const DRAIN: Duration = Duration::from_secs(2);

/// Connections that the kernel holds until they are accepted, as far as it holds so many
/// (`net.core.somaxconn`): it drops what is more, and a client tries again after a second.
const BACKLOG: u32 = 4_096;

/// How a control plane is started.
pub struct ServeOptions {
    /// Address to listen on for operators; port 0 for any.
    pub listen: SocketAddr,
    /// Sockets that are open already, in the place of those addresses.
    pub activated: ActivatedSockets,
    /// How operators reach it.
    pub operators: OperatorListenerOptions,
    /// How nodes reach it.
    pub nodes: NodeListenerOptions,
    /// Folder of the embedded store, the artifacts, the master key and the admin token.
    pub data: PathBuf,
    /// Database URL; none: `gpuaas.db` in `data`.
    pub database: Option<String>,
    /// Let a PostgreSQL on another host be reached without verifying its certificate.
    pub insecure_database: bool,
    /// Where the master keys are.
    pub master_key: MasterKeySources,
    /// URL under which nodes reach it; none: the address that it listens on for them.
    pub advertise: Option<String>,
    /// The node agent's executable; none: beside this process's own.
    pub agent_binary: Option<PathBuf>,
    /// Limits of the listeners that differ from their defaults.
    pub limits: Vec<LimitSetting>,
    /// Make another admin token, in the place of one that was lost.
    pub new_admin_token: bool,
    /// What is exported and deleted when it is old; none: everything is kept.
    pub retention: Option<Retention>,
    /// Where events are published; none: nowhere, by this control plane.
    pub nats: Option<NatsOptions>,
    /// The clock that the control plane reads and sleeps on.
    pub clock: Arc<dyn Clock>,
    /// Where identifiers come from.
    pub ids: Arc<dyn IdSource>,
    /// Clients for MAAS; none: over HTTP, signed by `clock`.
    pub connect: Option<Arc<dyn Connect>>,
    /// What agents are told.
    pub settings: ApiSettings,
    /// Changes to the engine's usual settings.
    pub tune: fn(&mut EngineConfig),
    /// Hooks of a test; none in service.
    pub failpoints: Option<Arc<dyn Failpoints>>,
    /// Changes of PostgreSQL's tables that a later version makes; none in service, whose changes are in
    /// the executable. A test starts such a version beside this one.
    pub later_schema: Vec<SchemaChange>,
    /// Version that it says it is where others share the database.
    pub version: String,
}

impl ServeOptions {
    /// The usual: the wall clock, random identifiers, MAAS over HTTP, nodes over TLS on any port
    /// of loopback.
    #[must_use]
    pub fn new(listen: SocketAddr, data: PathBuf) -> Self {
        Self {
            listen,
            activated: ActivatedSockets::default(),
            operators: OperatorListenerOptions::default(),
            nodes: NodeListenerOptions::tls(([127, 0, 0, 1], 0).into()),
            data,
            database: None,
            insecure_database: false,
            master_key: MasterKeySources::default(),
            advertise: None,
            agent_binary: None,
            limits: Vec::new(),
            new_admin_token: false,
            retention: None,
            nats: None,
            clock: Arc::new(RealClock),
            ids: Arc::new(RandomIds),
            connect: None,
            settings: ApiSettings::default(),
            tune: |_| {},
            failpoints: None,
            later_schema: Vec::new(),
            version: env!("GPUAAS_VERSION").to_owned(),
        }
    }
}

/// A running control plane.
pub struct ServeHandle {
    /// Where it listens for operators.
    pub addr: SocketAddr,
    /// `http` or `https`.
    scheme: &'static str,
    /// URL that nodes are told.
    pub node_url: String,
    /// The admin token, where this process knows it: made now, or kept in `data`.
    pub admin_token: Option<String>,
    /// Whether the token was made now.
    pub token_is_new: bool,
    /// The database that holds all state.
    pub store: Store,
    /// The engine.
    pub engine: Arc<Engine>,
    stop: CancellationToken,
    listeners: Vec<JoinHandle<()>>,
    _lock: Option<File>,
}

impl ServeHandle {
    /// Base URL on this machine.
    #[must_use]
    pub fn url(&self) -> String {
        format!("{}://{}", self.scheme, self.addr)
    }

    /// Waits until `stop`, or until a loop ends by itself.
    ///
    /// # Errors
    /// `loop_ended` with the name of the loop.
    pub async fn until_stopped(&self, stop: impl Future<Output = ()>) -> Result<(), Failure> {
        let ended = tokio::select! {
            () = stop => return Ok(()),
            ended = self.engine.supervisor().wait_for_end() => ended,
        };
        Err(Failure::local(CommandCode::LoopEnded, ended.to_string()).hint(
            "restart the control plane, which continues its runs, and report the error of the loop",
        ))
    }

    /// Takes no more requests, lets work in hand come to rest, closes the database.
    pub async fn shutdown(self) {
        self.engine.supervisor().stop();
        self.stop.cancel();
        self.engine.stop().await;
        let ends = self.listeners.into_iter().map(|listener| async move {
            let abort = listener.abort_handle();
            match tokio::time::timeout(DRAIN, listener).await {
                Ok(Ok(())) => {}
                Ok(Err(error)) => tracing::error!(%error, "a listener failed during shutdown"),
                Err(_) => abort.abort(),
            }
        });
        futures::future::join_all(ends).await;
        control_plane::withdraw(&self.store).await;
        self.store.close().await;
    }
}

/// Starts a control plane.
///
/// # Errors
/// A [`Failure`] with a code and, where one helps, a hint: `data_unwritable`, `data_in_use`,
/// `address_in_use`, `address_unusable`, `advertise_missing`, `advertise_loopback`,
/// `agent_missing`, `master_key_missing`, `admin_token_unreadable`, those of the store
/// (`database_unreachable`, `master_key_wrong`, ...) and of the bundle catalog.
pub async fn start(options: ServeOptions) -> Result<ServeHandle, Failure> {
    keep_stand_ins_local(&options)?;
    preflight::url_names_a_host(&options.nodes, options.advertise.as_deref())?;
    let Opened { store, lock, socket, addr, node_socket, artifacts, agent } =
        open(&options).await?;
    let FirstStart { bundles, bundle_key, admin_token, token_is_new, nodes } =
        seed_first_start(&store, &artifacts, &options, node_socket).await?;
    let advertise = options.advertise.as_deref();
    let plain = || advertise.map_or_else(|| format!("http://{addr}"), str::to_owned);
    let node_url = nodes.as_ref().map_or_else(plain, |nodes| nodes.advertise.clone());
    let anchor_pem = nodes.as_ref().and_then(|nodes| nodes.anchor_pem.clone());
    let issuer = nodes.as_ref().map(|nodes| &nodes.issuer);
    let operators = operators::prepare(&options.operators, addr, issuer).await?;
    let anchors = [operators.anchor_pem.as_deref(), anchor_pem.as_deref()];
    operators::write_anchors(&options.data, anchors)?;
    let http = Arc::new(OwnHttp::default());
    let limits = BothLimits::new(&options.limits, nodes.is_none())
        .within_open_files(limits::raise_open_files(), nodes.is_none());
    let settings = ApiSettings {
        agent: Some(agent.clone()),
        operators: limits.operators,
        nodes: limits.nodes,
        retention_seconds: options.retention.as_ref().map(Retention::seconds),
        ..options.settings
    };
    let mut config = EngineConfig::new(&node_url, agent);
    config.node_anchors.replace(anchor_pem);
    let followers = Followers { anchors: config.node_anchors.clone() };
    let watch = AuthorityWatch::new(&store, &options.data, (nodes.as_ref(), &operators), followers);
    (options.tune)(&mut config);
    let (keys, clock) = (&options.master_key, &options.clock);
    let connect = options.connect.unwrap_or_else(|| connect_over_http(keys, clock));
    let (bundles, artifacts) = (Arc::new(bundles), Arc::new(artifacts));
    let parts = EngineParts {
        store: store.clone(),
        clock: Arc::clone(&options.clock),
        ids: Arc::clone(&options.ids),
        connect: Arc::clone(&connect),
        bundles: Arc::clone(&bundles),
        artifacts: Arc::clone(&artifacts),
        http,
        config,
    };
    let engine = Engine::start_with(parts, options.failpoints);
    let access = nodes
        .as_ref()
        .map_or(NodeAccess::StandIns, |nodes| NodeAccess::Certificates(Arc::clone(&nodes.issuer)));
    let state = ApiState {
        store: store.clone(),
        clock: Arc::clone(&options.clock),
        ids: options.ids,
        connect,
        bundles,
        bundle_key: Arc::new(bundle_key),
        artifacts,
        wake: Arc::new(|| {}),
        nodes: access,
        supervisor: engine.supervisor().clone(),
        engine: Some(Arc::clone(&engine)),
        settings,
    };
    let delivery = event_delivery(&state, options.nats).await?;
    let (stop, scheme) = (CancellationToken::new(), operators.scheme());
    let loops = Loops { retention: options.retention, version: options.version };
    let sockets = Sockets { socket, operators, nodes, limits, watch };
    let listeners = listeners::spawn(sockets, loops, delivery, state, &stop);
    Ok(ServeHandle {
        addr,
        scheme,
        node_url,
        admin_token,
        token_is_new,
        store,
        engine,
        stop,
        listeners,
        _lock: lock,
    })
}

/// Refuses a listener that trusts whoever says which node it is, where others reach it.
fn keep_stand_ins_local(options: &ServeOptions) -> Result<(), Failure> {
    let is_local = options.listen.ip().is_loopback();
    if matches!(options.nodes, NodeListenerOptions::StandIns) && !is_local {
        return Err(stand_ins_not_local(options.listen));
    }
    Ok(())
}

/// Deliveries of events, once the sink of NATS is known.
async fn event_delivery(
    state: &ApiState,
    nats: Option<NatsOptions>,
) -> Result<EventDelivery, Failure> {
    let delivery = EventDelivery {
        store: state.store.clone(),
        clock: Arc::clone(&state.clock),
        ids: Arc::clone(&state.ids),
        supervisor: state.supervisor.clone(),
        nats,
    };
    delivery.prepare().await.map_err(store_failure)?;
    Ok(delivery)
}

/// What a control plane has before it does anything.
struct Opened<'a> {
    store: Store,
    lock: Option<File>,
    /// That of operators.
    socket: TcpListener,
    addr: SocketAddr,
    node_socket: Option<(&'a TlsOptions, TcpListener)>,
    artifacts: ArtifactStore,
    agent: Artifact,
}

async fn open(options: &ServeOptions) -> Result<Opened<'_>, Failure> {
    let agent = find_agent(options.agent_binary.as_deref())?;
    make_private_dir(&options.data)?;
    let database = database_url(&options.data, options.database.as_deref());
    if !options.insecure_database {
        let anyway = "gpuaas serve --database URL --insecure-database";
        preflight::database_is_verified(&database, anyway)?;
    }
    let embedded = embedded_path(&database);
    let lock = embedded.as_deref().map(lock).transpose()?;
    let place = (database.as_str(), embedded.as_deref());
    let (keys, later) = (&options.master_key, options.later_schema.as_slice());
    let store = preflight::open_store(place, &options.data, keys, later).await?;
    control_plane::announce(&store, &options.version).await?;
    let socket = bind(options.listen, options.activated.operators.as_ref())?;
    let addr = socket.local_addr().map_err(|e| Failure::cannot_listen(options.listen, &e))?;
    let node_socket = match &options.nodes {
        NodeListenerOptions::Tls(tls) => {
            Some((tls.as_ref(), bind(tls.listen, options.activated.nodes.as_ref())?))
        }
        NodeListenerOptions::StandIns => None,
    };
    let artifacts = ArtifactStore::open(&options.data.join("artifacts"))
        .map_err(|error| unwritable(&options.data, &error))?;
    let agent = store_agent(&artifacts, &agent)?;
    if lock.is_some() {
        store.end_leases_of_dead_owner(options.clock.now()).await.map_err(store_failure)?;
    }
    Ok(Opened { store, lock, socket, addr, node_socket, artifacts, agent })
}

/// Puts the agent's executable among the files that nodes fetch.
fn store_agent(artifacts: &ArtifactStore, agent: &Path) -> Result<Artifact, Failure> {
    let stored = artifacts.put_file(agent).map_err(|error| {
        let detail = format!("{}: {error}", agent.display());
        Failure::local(CommandCode::AgentUnreadable, detail)
    })?;
    Ok(ArtifactStore::artifact(AGENT, AGENT_VERSION, stored))
}

/// What the first start of a control plane makes, and later ones find.
struct FirstStart {
    bundles: BundleCatalog,
    bundle_key: SigningKey,
    admin_token: Option<String>,
    token_is_new: bool,
    nodes: Option<nodes::Prepared>,
}

/// Makes what is missing. One control plane of a database does so at a time.
async fn seed_first_start(
    store: &Store,
    artifacts: &ArtifactStore,
    options: &ServeOptions,
    node_socket: Option<(&TlsOptions, TcpListener)>,
) -> Result<FirstStart, Failure> {
    let startup = store.lock_startup().await.map_err(store_failure)?;
    let (bundles, bundle_key) = bundles(store, artifacts, options.clock.as_ref()).await?;
    let (admin_token, token_is_new) =
        admin_token::ensure(store, &options.data, options.clock.now(), options.new_admin_token)
            .await?;
    let tls = node_socket.as_ref().and_then(|(_, socket)| socket.local_addr().ok());
    if let Some(url) = options.advertise.clone().or_else(|| Some(format!("https://{}", tls?))) {
        preflight::nodes_reach(store, &url).await?;
    }
    let nodes = nodes::prepare_any(store, node_socket, options.advertise.as_deref()).await?;
    startup.release().await;
    Ok(FirstStart { bundles, bundle_key, admin_token, token_is_new, nodes })
}

/// Listens at the address, on the socket that is open there already if there is one.
fn bind(
    address: SocketAddr,
    activated: Option<&std::net::TcpListener>,
) -> Result<TcpListener, Failure> {
    let listen = || -> io::Result<TcpListener> {
        if let Some(socket) = activated {
            socket.set_nonblocking(true)?;
            return TcpListener::from_std(socket.try_clone()?);
        }
        let socket = if address.is_ipv4() { TcpSocket::new_v4()? } else { TcpSocket::new_v6()? };
        socket.set_reuseaddr(true)?;
        socket.bind(address)?;
        socket.listen(BACKLOG)
    };
    listen().map_err(|error| Failure::cannot_listen(address, &error))
}

fn stand_ins_not_local(address: SocketAddr) -> Failure {
    let detail = format!("{address} is reachable from other hosts");
    Failure::usage(CommandCode::StandInsNotLocal, detail)
        .hint("listen on loopback, or omit --stand-ins")
}

/// The catalog with everything that is kept, and the key that this control plane signs with. It is
/// made once and sealed in the database, so all control planes of one have the same.
async fn bundles(
    store: &Store,
    artifacts: &ArtifactStore,
    clock: &dyn Clock,
) -> Result<(BundleCatalog, SigningKey), Failure> {
    let failed = |error: &CatalogError| {
        Failure::coded(Exit::Local, error.code(), "Cannot use the bundles", error.to_string())
            .hint(error.hint())
    };
    let of_key = |error: gpuaas_bundle::SignatureError| {
        Failure::local(CommandCode::SigningKeyUnusable, error.to_string())
    };
    let proposed = SecretString::from(SigningKey::generate().map_err(of_key)?.to_pem());
    let kept = store.ensure_signing_key(&proposed).await.map_err(store_failure)?;
    let key = SigningKey::from_pem(kept.expose_secret()).map_err(of_key)?;
    let catalog = BundleCatalog::new(artifacts.clone(), &key);
    // Hosts verify by their own clocks, which a clock of a simulation may run ahead of.
    let now = clock.now().min(RealClock.now());
    bundles::seed_built_in(store, &catalog, &key, now).await.map_err(|error| match error {
        SeedError::Store(error) => store_failure(error),
        SeedError::Catalog(error) => failed(&error),
    })?;
    Ok((catalog, key))
}

/// Takes the embedded store for this process. The lock goes with the process, however it ends.
///
/// # Errors
/// `data_in_use`, `database_unwritable`.
pub(crate) fn lock(database: &Path) -> Result<File, Failure> {
    let mut path = database.as_os_str().to_owned();
    path.push(".lock");
    let refused = |error: &io::Error| {
        let detail = format!("{}: {error}", database.display());
        Failure::local(CommandCode::DatabaseUnwritable, detail).hint(
            "create its folder and make it writable for this user, or choose another one with \
             --data",
        )
    };
    let mut options = fs::OpenOptions::new();
    options.write(true).create(true).truncate(false).mode(0o600);
    let file = options.open(&path).map_err(|error| refused(&error))?;
    match file.try_lock() {
        Ok(()) => Ok(file),
        Err(TryLockError::WouldBlock) => Err(Failure::local(
            CommandCode::DataInUse,
            format!("{} is locked", database.display()),
        )
        .hint(
            "stop the other process, or choose another --data; to run several control planes, use \
             one PostgreSQL database for all with --database",
        )),
        Err(TryLockError::Error(error)) => Err(refused(&error)),
    }
}

/// Clients of regions over HTTP, whose keys may be kept in the Vault that this control plane knows.
fn connect_over_http(keys: &MasterKeySources, clock: &Arc<dyn Clock>) -> Arc<dyn Connect> {
    let vault = keys.vault.clone();
    let keys = vault.map(|vault| Arc::new(VaultKeys::new(vault)) as Arc<dyn ReadKey>);
    Arc::new(HttpConnect::new(Arc::clone(clock)).with_keys(keys))
}

#[cfg(test)]
mod loop_tests;
#[cfg(test)]
mod start_tests;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_process_per_embedded_store() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("gpuaas.db");
        let held = lock(&path).unwrap();
        assert_eq!(lock(&path).unwrap_err().code(), "data_in_use");
        drop(held);
        assert!(lock(&path).is_ok());
        assert_eq!(lock(&dir.path().join("no/db")).unwrap_err().code(), "database_unwritable");
    }

    #[test]
    fn which_databases_are_embedded() {
        assert_eq!(embedded_path("postgres://u@h/d"), None);
        assert_eq!(embedded_path("sqlite:/a/b.db"), Some(PathBuf::from("/a/b.db")));
        assert_eq!(embedded_path("c.db"), Some(PathBuf::from("c.db")));
    }

    #[tokio::test]
    async fn stand_ins_are_served_on_loopback_only() {
        let mut options = ServeOptions::new(([0, 0, 0, 0], 0).into(), PathBuf::from("/no/data"));
        options.nodes = NodeListenerOptions::StandIns;
        let failure = start(options).await.map(drop).unwrap_err();
        assert_eq!(failure.code(), "stand_ins_not_local");
    }

    #[tokio::test]
    async fn a_taken_port_is_named() {
        let taken = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let dir = tempfile::tempdir().unwrap();
        let agent = dir.path().join("agent");
        fs::write(&agent, "#!/bin/sh\n").unwrap();
        let mut options = ServeOptions::new(taken.local_addr().unwrap(), dir.path().join("data"));
        options.agent_binary = Some(agent);
        let failure = start(options).await.map(drop).unwrap_err();
        assert_eq!(failure.code(), "address_in_use");
    }
}
