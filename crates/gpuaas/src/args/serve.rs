//! `gpuaas serve`.

use std::ffi::OsString;
use std::net::SocketAddr;
use std::path::PathBuf;

use clap::Args;
use gpuaas_client::arguments::positive;
use gpuaas_client::failure::Failure;
use gpuaas_engine::ClockChoice;
use gpuaas_events::NatsOptions;
use gpuaas_identity::Lifetimes;
use gpuaas_types::codes::CommandCode;
use gpuaas_types::limits::LimitSetting;

use super::key::MasterKeyArgs;
use super::oidc::OidcArgs;
use crate::serve::{
    NodeListenerOptions, OperatorListenerOptions, OperatorSecurity, Retention, ServerFiles,
    TlsOptions,
};
use crate::traces::{Resource, TracePipe, pipe};

/// `gpuaas serve`.
#[derive(Debug, Clone, Args)]
pub struct ServeArgs {
    /// YAML or JSON file of these options, named without leading dashes; the command line and the
    /// environment take precedence.
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// Listen address for operators.
    #[arg(long, value_name = "ADDR", default_value = "127.0.0.1:8080")]
    pub listen: SocketAddr,
    /// Use TLS for operators even on loopback; other addresses always use TLS.
    #[arg(long, conflicts_with_all = ["plain_http", "stand_ins"])]
    pub tls: bool,
    /// Use plain HTTP for operators although other hosts can reach the listener, such as behind a
    /// proxy that terminates TLS.
    #[arg(long)]
    pub plain_http: bool,
    /// PEM certificate chain of the operators' listener, leaf first; reloaded when it changes
    /// [default: issued by the authority; clients must trust DATA/ca.pem].
    #[arg(long, value_name = "FILE", requires = "key_file", conflicts_with_all = ["plain_http", "stand_ins"])]
    pub certificate_file: Option<PathBuf>,
    /// PEM key of that certificate.
    #[arg(long, value_name = "FILE", requires = "certificate_file")]
    pub key_file: Option<PathBuf>,
    /// Names and addresses at which operators reach the listener, for a certificate issued by the
    /// authority [default: the listen address and this host's name].
    #[arg(long, value_name = "NAME", value_delimiter = ',')]
    pub tls_names: Vec<String>,
    /// Listen address for nodes, over TLS.
    #[arg(long, value_name = "ADDR", default_value = "127.0.0.1:8443")]
    pub node_listen: SocketAddr,
    /// Allow regions at http:// addresses on other hosts; anyone on the network path can then
    /// change requests to MAAS.
    #[arg(long)]
    pub insecure_regions: bool,
    /// Allow regions and webhooks at addresses of this host; anyone who can set them then reaches
    /// services that listen only on loopback.
    #[arg(long)]
    pub loopback_targets: bool,
    /// Allow a PostgreSQL server on another host without `sslmode=verify-full`; anyone on the
    /// network path can then read and change the data.
    #[arg(long)]
    pub insecure_database: bool,
    /// Data folder: embedded database, artifacts, master key and admin token.
    #[arg(long, value_name = "DIR", default_value = "gpuaas-data")]
    pub data: PathBuf,
    /// Database, as `postgres://USER:PASSWORD@HOST:PORT/DATABASE` or `sqlite:PATH` [default:
    /// DATA/gpuaas.db].
    #[arg(long, value_name = "URL", env = "GPUAAS_DATABASE", hide_env_values = true)]
    pub database: Option<String>,
    /// Master key options.
    #[command(flatten)]
    pub master_key: MasterKeyArgs,
    /// NATS server that receives all events, as `nats://[USER:PASSWORD@]HOST[:PORT]`, or `tls://`
    /// for TLS; the JetStream stream GPUAAS_EVENTS is created if missing.
    #[arg(long, value_name = "URL", env = "GPUAAS_NATS", hide_env_values = true)]
    pub nats: Option<String>,
    /// NATS credentials file, as written by nsc(1).
    #[arg(long, value_name = "FILE", requires = "nats")]
    pub nats_credentials: Option<PathBuf>,
    /// Collector for traces: OTLP/HTTP base URL, such as http://127.0.0.1:4318 [default: no traces
    /// are sent].
    #[arg(long, value_name = "URL")]
    pub otlp_endpoint: Option<String>,
    /// URL at which nodes reach this control plane [default: https://NODE_LISTEN].
    #[arg(long, value_name = "URL")]
    pub advertise: Option<String>,
    /// PEM certificate chain of the node listener, leaf first [default: issued by the authority].
    #[arg(long, value_name = "FILE", requires = "node_key_file")]
    pub node_certificate_file: Option<PathBuf>,
    /// PEM key of that certificate.
    #[arg(long, value_name = "FILE", requires = "node_certificate_file")]
    pub node_key_file: Option<PathBuf>,
    /// PEM file of certificate authorities that nodes trust for the node listener [default: the
    /// authorities of their system].
    #[arg(long, value_name = "FILE", requires = "node_certificate_file")]
    pub node_anchor_file: Option<PathBuf>,
    /// Program that signs certificates instead of the built-in authority; it receives a JSON object
    /// and prints a chain.
    #[arg(long, value_name = "PROGRAM", requires = "authority_anchor_file")]
    pub authority_command: Option<PathBuf>,
    /// PEM file of the root certificates of that program.
    #[arg(long, value_name = "FILE", requires = "authority_command")]
    pub authority_anchor_file: Option<PathBuf>,
    /// Lifetime of node certificates in days; agents renew them after two thirds of it.
    #[arg(long, value_name = "DAYS", default_value = "30", value_parser = positive)]
    pub node_certificate_days: f64,
    /// Accept bearer tokens over plain HTTP, for stand-ins of simulated fleets.
    #[arg(long, hide = true, conflicts_with_all = ["node_listen", "authority_command", "node_certificate_file"])]
    pub stand_ins: bool,
    /// Executable of the node agent [default: gpuaas-node-agent next to this executable].
    #[arg(long, value_name = "PATH")]
    pub agent_binary: Option<PathBuf>,
    /// Listener limits that override the defaults in docs/reference/limits.md, such as
    /// operators.idle-seconds=30,nodes.connections=20000.
    #[arg(long, value_name = "LISTENER.LIMIT=N", value_delimiter = ',')]
    pub limits: Vec<LimitSetting>,
    /// Create a new admin token to replace a lost one; the former token is revoked.
    #[arg(long)]
    pub new_admin_token: bool,
    /// Export and delete timelines, audit entries, tokens, tasks and reports older than this,
    /// except those of open runs [default: keep everything].
    #[arg(long, value_name = "DAYS", value_parser = positive, requires = "retention_export")]
    pub retention_days: Option<f64>,
    /// Folder for exports; one JSON Lines file per table and day.
    #[arg(long, value_name = "DIR", requires = "retention_days")]
    pub retention_export: Option<PathBuf>,
    /// Sign-in options.
    #[command(flatten)]
    pub oidc: OidcArgs,
    /// Socket of the service manager, for readiness and watchdog messages (sd_notify(3)).
    #[arg(long, hide = true, env = "NOTIFY_SOCKET", hide_env_values = true)]
    pub notify_socket: Option<OsString>,
    /// Watchdog interval of the service manager in microseconds (sd_watchdog_enabled(3)).
    #[arg(long, hide = true, env = "WATCHDOG_USEC", hide_env_values = true)]
    pub watchdog_usec: Option<u64>,
    /// Process that the watchdog interval is for.
    #[arg(long, hide = true, env = "WATCHDOG_PID", hide_env_values = true)]
    pub watchdog_pid: Option<u32>,
    /// Names of the listening sockets passed by the service manager (sd_listen_fds(3)).
    #[arg(long, hide = true, env = "LISTEN_FDNAMES", hide_env_values = true)]
    pub listen_fdnames: Option<String>,
    /// Panic in a loop once this file exists, to test how the process ends.
    #[cfg(feature = "lab")]
    #[arg(long, value_name = "LOOP=FILE", hide = true)]
    pub panic_in_loop: Option<crate::serve::PlantedPanic>,
    /// Run on a clock shared with a simulator.
    #[arg(long, value_name = "CLOCK", default_value = "real", hide = true)]
    pub clock: ClockChoice,
}

impl ServeArgs {
    /// Retention of old rows: age and export folder.
    #[must_use]
    pub fn retention(&self) -> Option<Retention> {
        let (days, export) = self.retention_days.zip(self.retention_export.clone())?;
        Some(Retention { days, export })
    }

    /// Target of published events.
    ///
    /// # Errors
    /// `nats_url_invalid`.
    pub fn nats(&self) -> Result<Option<NatsOptions>, Failure> {
        let Some(url) = &self.nats else { return Ok(None) };
        let options = NatsOptions::new(url, self.nats_credentials.clone());
        options.map(Some).map_err(|error| {
            Failure::usage(CommandCode::NatsUrlInvalid, error.to_string())
                .hint("use nats://nats.example:4222, or tls://nats.example:4222 for TLS")
        })
    }

    /// Target of traces; `None` turns them off.
    ///
    /// # Errors
    /// `command_line_invalid` if the collector's address is not a URL; `http_unavailable`.
    pub(crate) fn traces(&self) -> Result<Option<TracePipe>, Failure> {
        let Some(endpoint) = &self.otlp_endpoint else { return Ok(None) };
        let version = env!("GPUAAS_VERSION").to_owned();
        let resource = Resource { version, instance: self.listen.to_string() };
        pipe(endpoint, resource).map(Some)
    }

    /// Configuration of the operators' listener.
    #[must_use]
    pub fn operator_listener(&self) -> OperatorListenerOptions {
        let security = match (self.tls, self.plain_http) {
            (true, _) => OperatorSecurity::Tls,
            (_, true) => OperatorSecurity::Plain,
            (false, false) => OperatorSecurity::OffLoopback,
        };
        let files = self.certificate_file.clone().zip(self.key_file.clone());
        let files = files.map(|(certificate, key)| ServerFiles { certificate, key, anchor: None });
        OperatorListenerOptions { security, files, names: self.tls_names.clone() }
    }

    /// Configuration of the node listener.
    #[must_use]
    pub fn node_listener(&self) -> NodeListenerOptions {
        if self.stand_ins {
            return NodeListenerOptions::StandIns;
        }
        let certificate = self.node_certificate_file.clone().zip(self.node_key_file.clone());
        let anchor = self.node_anchor_file.clone();
        let files = certificate.map(|(certificate, key)| ServerFiles { certificate, key, anchor });
        let node_seconds = self.node_certificate_days * 86_400.0;
        NodeListenerOptions::Tls(Box::new(TlsOptions {
            listen: self.node_listen,
            files,
            authority: self.authority_command.clone().zip(self.authority_anchor_file.clone()),
            lifetimes: Lifetimes { node_seconds, ..Lifetimes::default() },
        }))
    }
}
