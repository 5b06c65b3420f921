//! Both listeners of a control plane on real sockets, and clients that show what they are told to.

use std::fmt::Write as _;
use std::sync::Arc;

use gpuaas_api::{ApiSettings, NodeAccess};
use gpuaas_engine::{Clock as _, RealClock};
use gpuaas_identity::listener::{ServerCertificate, server_config};
use gpuaas_identity::server::{HttpServer, Security};
use gpuaas_identity::{Authority, BuiltIn, Issuer, Lifetimes};
use gpuaas_store::TokenPurpose;
use gpuaas_types::NodeId;
use gpuaas_types::agent::NodeCertificate;
use gpuaas_types::api::OnboardAccepted;
use gpuaas_types::limits::{ListenerKind, ListenerLimits};
use rcgen::{CertificateParams, KeyPair};
use serde_json::{Value, json};
use sqlx::Connection as _;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use crate::rig::Rig;

/// How long certificates live here, in seconds.
pub(crate) const LIFE_SECONDS: i64 = 3600;

/// A key on a host, and what it got for it.
#[derive(Clone)]
pub(crate) struct Key {
    pub(crate) pem: String,
    pub(crate) csr: String,
}

impl Key {
    pub(crate) fn new() -> Self {
        let key = KeyPair::generate().unwrap();
        let csr = CertificateParams::default().serialize_request(&key).unwrap().pem().unwrap();
        Self { pem: key.serialize_pem(), csr }
    }
}

pub(crate) struct Tls {
    pub(crate) rig: Rig,
    pub(crate) issuer: Arc<Issuer>,
    /// Where operators are.
    pub(crate) operators: String,
    /// Where nodes are.
    pub(crate) nodes: String,
    /// That of the nodes' listener.
    certificate: Arc<ServerCertificate>,
}

/// An authority of somebody's.
pub(crate) fn issuer() -> Arc<Issuer> {
    issuer_with(Arc::new(BuiltIn::generate(RealClock.now()).unwrap()))
}

/// An issuer whose authority this is.
pub(crate) fn issuer_with(authority: Arc<dyn Authority>) -> Arc<Issuer> {
    #[expect(clippy::cast_precision_loss, reason = "an hour")]
    let lifetimes = Lifetimes { node_seconds: LIFE_SECONDS as f64, ..Lifetimes::default() };
    Arc::new(Issuer::new(authority, lifetimes))
}

impl Tls {
    /// With a site and a profile. Its clock stands at ten days ago, so that it may be moved both
    /// ways without overtaking the wall's.
    pub(crate) async fn new() -> Self {
        Self::with(ApiSettings::default()).await
    }

    /// The same, with other settings.
    pub(crate) async fn with(settings: ApiSettings) -> Self {
        Self::issued_by(issuer(), settings).await
    }

    /// The same, with certificates of this issuer.
    pub(crate) async fn issued_by(issuer: Arc<Issuer>, settings: ApiSettings) -> Self {
        let begin = RealClock.now().plus_seconds(-10.0 * 86_400.0).as_micros();
        let access = NodeAccess::Certificates(Arc::clone(&issuer));
        let mut rig = Rig::set(access, begin, settings).await;
        rig.add_site().await;
        let any = async || TcpListener::bind("127.0.0.1:0").await.unwrap();
        let (plain, tls) = (any().await, any().await);
        let operators = format!("http://{}", plain.local_addr().unwrap());
        let nodes = format!("https://{}", tls.local_addr().unwrap());
        let names = vec!["127.0.0.1".to_owned()];
        let (certified, _) = issuer.server(names, RealClock.now()).await.unwrap();
        let certificate = Arc::new(ServerCertificate::new(certified));
        let config = server_config(Arc::clone(&certificate)).unwrap();
        let security = Security::Tls { config, reader: Some(issuer.reader().unwrap()) };
        let spawn = |socket, security, kind, router| {
            let limits = ListenerLimits::defaults(kind);
            let server = HttpServer::new(socket, security, limits, CancellationToken::new());
            tokio::spawn(async move { server.run(router).await.unwrap() });
        };
        spawn(tls, security, ListenerKind::Nodes, rig.nodes.take().unwrap());
        spawn(plain, Security::Plain, ListenerKind::Operators, rig.router.clone());
        Self { rig, issuer, operators, nodes, certificate }
    }

    /// Gives the nodes' listener a certificate of the authority that signs now.
    pub(crate) async fn renew_listener(&self) {
        let names = vec!["127.0.0.1".to_owned()];
        let (certified, _) = self.issuer.server(names, RealClock.now()).await.unwrap();
        self.certificate.replace(certified);
    }

    /// A client that trusts the control plane and shows this.
    pub(crate) fn client(&self, shows: Option<(&Key, &str)>) -> reqwest::Client {
        self.client_builder(shows).build().unwrap()
    }

    /// The same, for somebody who has more to say of it.
    pub(crate) fn client_builder(&self, shows: Option<(&Key, &str)>) -> reqwest::ClientBuilder {
        drop(rustls::crypto::ring::default_provider().install_default());
        let anchors = self.issuer.anchors_pem();
        let anchors = reqwest::Certificate::from_pem_bundle(anchors.as_bytes()).unwrap();
        let builder = reqwest::Client::builder().tls_certs_only(anchors);
        match shows {
            Some((key, chain)) => {
                let pem = format!("{}{chain}", key.pem);
                builder.identity(reqwest::Identity::from_pem(pem.as_bytes()).unwrap())
            }
            None => builder,
        }
    }

    /// Everything in the database but what tells of refusals.
    pub(crate) async fn rows(&self) -> String {
        match self.rig.store.engine() {
            "postgresql" => self.rows_of_server().await,
            _ => self.rows_of_file(),
        }
    }

    async fn rows_of_server(&self) -> String {
        let url = &self.rig.test_database.url;
        let mut connection = sqlx::PgConnection::connect(url).await.unwrap();
        let sql = "SELECT table_name::text FROM information_schema.tables \
                   WHERE table_schema = 'public' AND table_name NOT IN \
                   ('audit_chain', 'audit_entry', 'audit_head', 'timeline_event') ORDER BY table_name";
        let tables: Vec<String> = sqlx::query_scalar(sql).fetch_all(&mut connection).await.unwrap();
        assert!(tables.len() > 15, "{tables:?}");
        let mut text = String::new();
        for table in tables {
            let sql = format!("SELECT {table}::text FROM {table} ORDER BY 1");
            let all = sqlx::query_scalar::<_, String>(sqlx::AssertSqlSafe(sql));
            for row in all.fetch_all(&mut connection).await.unwrap() {
                writeln!(text, "{table} {row}").unwrap();
            }
        }
        text
    }

    fn rows_of_file(&self) -> String {
        let connection = rusqlite::Connection::open(&self.rig.test_database.url).unwrap();
        let sql = "SELECT name FROM sqlite_master WHERE type = 'table' AND name NOT IN \
                   ('audit_chain', 'audit_entry', 'audit_head', 'timeline_event', \
                   'sqlite_sequence') ORDER BY name";
        let mut tables = connection.prepare(sql).unwrap();
        let tables: Vec<String> =
            tables.query_map([], |row| row.get(0)).unwrap().map(Result::unwrap).collect();
        assert!(tables.len() > 15, "{tables:?}");
        let mut text = String::new();
        for table in tables {
            let mut all = connection.prepare(&format!("SELECT * FROM {table}")).unwrap();
            let columns = all.column_count();
            let mut rows = all.query([]).unwrap();
            while let Some(row) = rows.next().unwrap() {
                write!(text, "{table}").unwrap();
                for column in 0..columns {
                    write!(text, " {:?}", row.get_ref(column).unwrap()).unwrap();
                }
                text.push('\n');
            }
        }
        text
    }

    /// What was written of refusals: the codes in the audit.
    pub(crate) async fn refusals(&self) -> Vec<String> {
        let all = self.rig.store.audit_entries(0, 10_000).await.unwrap();
        let refused = all.into_iter().filter(|line| line.entry.action == "credential.refused");
        refused.map(|line| line.entry.detail["code"].as_str().unwrap().to_owned()).collect()
    }

    /// Onboards a node and enrolls its agent.
    pub(crate) async fn enrolled(&self, hostname: &str) -> Enrolled {
        let node = self.rig.onboard(hostname).await;
        let purpose = TokenPurpose::Enrollment;
        let token = self.rig.token(purpose, node.node_id, node.run_id, Some(86_400)).await;
        self.enroll(&node, &token, Key::new()).await
    }

    /// Enrolls another system of the node.
    pub(crate) async fn enrolled_again(&self, node: &OnboardAccepted) -> Enrolled {
        let purpose = TokenPurpose::Enrollment;
        let token = self.rig.token(purpose, node.node_id, node.run_id, None).await;
        self.enroll(node, &token, Key::new()).await
    }

    /// Enrolls with this key.
    pub(crate) async fn enroll(&self, node: &OnboardAccepted, token: &str, key: Key) -> Enrolled {
        let body = enrollment(node, Some(&key.csr));
        let answer = self.post(&self.client(None), "/agent/v1/enroll", Some(token), &body).await;
        assert_eq!(answer.0, 200, "{}", answer.1);
        assert!(answer.1["credential"].is_null(), "a certificate comes in its place");
        let certificate = serde_json::from_value(answer.1["certificate"].clone()).unwrap();
        Enrolled { node: node.clone(), token: token.to_owned(), key, certificate }
    }

    /// A certificate of this control plane that nobody wrote down.
    pub(crate) async fn unwritten(&self, node: NodeId) -> (Key, String) {
        let key = Key::new();
        let now = self.rig.clock.now();
        let issued = self.issuer.node(node, &key.csr, now).await.unwrap();
        (key, issued.chain_pem)
    }

    /// Status and body of an answer on the nodes' listener.
    pub(crate) async fn post(
        &self,
        client: &reqwest::Client,
        path: &str,
        token: Option<&str>,
        body: &Value,
    ) -> (u16, Value) {
        let request = client.post(format!("{}{path}", self.nodes)).json(body);
        answer(request, token).await
    }
}

/// Sends a request.
pub(crate) async fn answer(
    mut request: reqwest::RequestBuilder,
    token: Option<&str>,
) -> (u16, Value) {
    if let Some(token) = token {
        request = request.bearer_auth(token);
    }
    let answer = request.send().await.unwrap();
    let status = answer.status().as_u16();
    let body = answer.bytes().await.unwrap();
    (status, serde_json::from_slice(&body).unwrap_or(Value::Null))
}

/// A node with its agent.
#[derive(Clone)]
pub(crate) struct Enrolled {
    pub(crate) node: OnboardAccepted,
    pub(crate) token: String,
    pub(crate) key: Key,
    pub(crate) certificate: NodeCertificate,
}

impl Enrolled {
    pub(crate) fn client(&self, tls: &Tls) -> reqwest::Client {
        tls.client(Some((&self.key, &self.certificate.chain_pem)))
    }
}

pub(crate) fn enrollment(node: &OnboardAccepted, csr: Option<&str>) -> Value {
    json!({
        "run_id": node.run_id, "hostname": "j22u11", "agent_version": "0.1.0",
        "started_at": "2026-11-20T16:00:00Z", "facts": {}, "csr_pem": csr,
    })
}

pub(crate) fn beat(node: &OnboardAccepted) -> Value {
    json!({ "run_id": node.run_id, "agent_version": "0.1.0", "uptime_seconds": 12.5 })
}
