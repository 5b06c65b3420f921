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
    /// File of these options, YAML or JSON, by their names without dashes; the command line and the
    /// environment win.
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// Address to listen on for operators.
    #[arg(long, value_name = "ADDR", default_value = "127.0.0.1:8080")]
    pub listen: SocketAddr,
    /// Speak TLS to operators on loopback, too; elsewhere that is the rule.
    #[arg(long, conflicts_with_all = ["plain_http", "stand_ins"])]
    pub tls: bool,
    /// Speak plain HTTP to operators although others than this host reach the listener, such as
    /// behind a proxy that ends TLS.
    #[arg(long)]
    pub plain_http: bool,
    /// Certificate of the operators' listener, PEM, the leaf first, read again when it changes
    /// [default: from the authority; DATA/ca.pem has what clients have to trust].
    #[arg(long, value_name = "FILE", requires = "key_file", conflicts_with_all = ["plain_http", "stand_ins"])]
    pub certificate_file: Option<PathBuf>,
    /// Its key, PEM.
    #[arg(long, value_name = "FILE", requires = "certificate_file")]
    pub key_file: Option<PathBuf>,
    /// Names and addresses that operators reach it under, for a certificate of the authority
    /// [default: the address that it listens on, and this host's name].
    #[arg(long, value_name = "NAME", value_delimiter = ',')]
    pub tls_names: Vec<String>,
    /// Address to listen on for nodes, over TLS.
    #[arg(long, value_name = "ADDR", default_value = "127.0.0.1:8443")]
    pub node_listen: SocketAddr,
    /// Take regions at http:// addresses on other hosts: whoever is on the way can change what MAAS is
    /// told.
    #[arg(long)]
    pub insecure_regions: bool,
    /// Take regions and webhooks at addresses of this host: whoever may set them reaches the services that
    /// listen on loopback alone.
    #[arg(long)]
    pub loopback_targets: bool,
    /// Use a PostgreSQL on another host without `sslmode=verify-full`: whoever is on the way can read
    /// and change what is kept.
    #[arg(long)]
    pub insecure_database: bool,
    /// Folder of the embedded store, the artifacts, the master key and the admin token.
    #[arg(long, value_name = "DIR", default_value = "gpuaas-data")]
    pub data: PathBuf,
    /// `postgres://USER:PASSWORD@HOST:PORT/DATABASE` or `sqlite:PATH` [default: DATA/gpuaas.db].
    #[arg(long, value_name = "URL", env = "GPUAAS_DATABASE", hide_env_values = true)]
    pub database: Option<String>,
    /// Where the master key is.
    #[command(flatten)]
    pub master_key: MasterKeyArgs,
    /// `nats://[USER:PASSWORD@]HOST[:PORT]`, or `tls://` for TLS: every event is published there, on
    /// the stream GPUAAS_EVENTS of JetStream, which is made where it is missing.
    #[arg(long, value_name = "URL", env = "GPUAAS_NATS", hide_env_values = true)]
    pub nats: Option<String>,
    /// Credentials for it, as nsc(1) writes them.
    #[arg(long, value_name = "FILE", requires = "nats")]
    pub nats_credentials: Option<PathBuf>,
    /// Collector that traces are sent to, the base address of OTLP over HTTP, such as
    /// http://127.0.0.1:4318 [default: none are sent].
    #[arg(long, value_name = "URL")]
    pub otlp_endpoint: Option<String>,
    /// URL under which nodes reach this control plane [default: https://NODE_LISTEN].
    #[arg(long, value_name = "URL")]
    pub advertise: Option<String>,
    /// Certificate of the node listener, PEM, the leaf first [default: from the authority].
    #[arg(long, value_name = "FILE", requires = "node_key_file")]
    pub node_certificate_file: Option<PathBuf>,
    /// Its key, PEM.
    #[arg(long, value_name = "FILE", requires = "node_certificate_file")]
    pub node_key_file: Option<PathBuf>,
    /// What nodes shall trust for it, PEM [default: the authorities of their system].
    #[arg(long, value_name = "FILE", requires = "node_certificate_file")]
    pub node_anchor_file: Option<PathBuf>,
    /// Program that signs certificates in the built-in authority's place; it gets a JSON object
    /// and prints a chain.
    #[arg(long, value_name = "PROGRAM", requires = "authority_anchor_file")]
    pub authority_command: Option<PathBuf>,
    /// What everything leads up to that it signs, PEM.
    #[arg(long, value_name = "FILE", requires = "authority_command")]
    pub authority_anchor_file: Option<PathBuf>,
    /// How long a node's certificate lives, in days; its agent renews it after two thirds.
    #[arg(long, value_name = "DAYS", default_value = "30", value_parser = positive)]
    pub node_certificate_days: f64,
    /// Take bearer credentials in plain text, for stand-ins of simulated fleets.
    #[arg(long, hide = true, conflicts_with_all = ["node_listen", "authority_command", "node_certificate_file"])]
    pub stand_ins: bool,
    /// The node agent's executable [default: gpuaas-node-agent beside this executable].
    #[arg(long, value_name = "PATH")]
    pub agent_binary: Option<PathBuf>,
    /// Limits of the listeners that differ from those of docs/reference/limits.md, such as
    /// operators.idle-seconds=30,nodes.connections=20000.
    #[arg(long, value_name = "LISTENER.LIMIT=N", value_delimiter = ',')]
    pub limits: Vec<LimitSetting>,
    /// Make another admin token, in the place of one that was lost; the one before counts no more.
    #[arg(long)]
    pub new_admin_token: bool,
    /// Export and delete what is older than this: timelines, the audit log, tokens, tasks and
    /// reports, never of open runs [default: keep everything].
    #[arg(long, value_name = "DAYS", value_parser = positive, requires = "retention_export")]
    pub retention_days: Option<f64>,
    /// Folder of the exports, JSON lines in a file per table and day.
    #[arg(long, value_name = "DIR", requires = "retention_days")]
    pub retention_export: Option<PathBuf>,
    /// Sign-in of people.
    #[command(flatten)]
    pub oidc: OidcArgs,
    /// Socket of the service manager, which is told when requests are answered (sd_notify(3)).
    #[arg(long, hide = true, env = "NOTIFY_SOCKET", hide_env_values = true)]
    pub notify_socket: Option<OsString>,
    /// Microseconds in which the service manager wants to hear of the process (sd_watchdog_enabled(3)).
    #[arg(long, hide = true, env = "WATCHDOG_USEC", hide_env_values = true)]
    pub watchdog_usec: Option<u64>,
    /// Process that these are meant for.
    #[arg(long, hide = true, env = "WATCHDOG_PID", hide_env_values = true)]
    pub watchdog_pid: Option<u32>,
    /// Names of the listening sockets that the service manager passes on (sd_listen_fds(3)).
    #[arg(long, hide = true, env = "LISTEN_FDNAMES", hide_env_values = true)]
    pub listen_fdnames: Option<String>,
    /// Let a loop panic once a file is there, to see how the process ends.
    #[cfg(feature = "lab")]
    #[arg(long, value_name = "LOOP=FILE", hide = true)]
    pub panic_in_loop: Option<crate::serve::PlantedPanic>,
    /// Run on a clock shared with a simulator.
    #[arg(long, value_name = "CLOCK", default_value = "real", hide = true)]
    pub clock: ClockChoice,
}

impl ServeArgs {
    /// What is exported and deleted when it is old.
    #[must_use]
    pub fn retention(&self) -> Option<Retention> {
        let (days, export) = self.retention_days.zip(self.retention_export.clone())?;
        Some(Retention { days, export })
    }

    /// Where events are published.
    ///
    /// # Errors
    /// `nats_url_invalid`.
    pub fn nats(&self) -> Result<Option<NatsOptions>, Failure> {
        let Some(url) = &self.nats else { return Ok(None) };
        let options = NatsOptions::new(url, self.nats_credentials.clone());
        options.map(Some).map_err(|error| {
            Failure::usage(CommandCode::NatsUrlInvalid, error.to_string())
                .hint("write it as nats://nats.example:4222, or tls://nats.example:4222 for TLS")
        })
    }

    /// Where traces go; none: nowhere.
    ///
    /// # Errors
    /// `command_line_invalid` where the collector's address is no URL; `http_unavailable`.
    pub(crate) fn traces(&self) -> Result<Option<TracePipe>, Failure> {
        let Some(endpoint) = &self.otlp_endpoint else { return Ok(None) };
        let version = env!("GPUAAS_VERSION").to_owned();
        let resource = Resource { version, instance: self.listen.to_string() };
        pipe(endpoint, resource).map(Some)
    }

    /// How operators reach the control plane.
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

    /// How nodes reach the control plane.
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
