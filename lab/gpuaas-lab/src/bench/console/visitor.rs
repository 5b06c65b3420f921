//! A browser without a screen: it signs in with a one-time address and requests pages.

use std::collections::BTreeSet;
use std::net::SocketAddr;

use gpuaas_client::failure::Failure;
use reqwest::header::{
    ACCEPT_ENCODING, AUTHORIZATION, COOKIE, ETAG, IF_NONE_MATCH, LOCATION, SET_COOKIE,
};
use reqwest::redirect::Policy;
use reqwest::{Client, Method, Response};
use serde_json::Value;

use super::unusable;

/// An answer as it came over the wire.
pub(super) struct Page {
    pub(super) bytes: Vec<u8>,
    /// Entity tag; empty: none.
    pub(super) tag: String,
}

/// A signed-in person, and the same person's token for the API.
#[derive(Clone)]
pub(super) struct Visitor {
    http: Client,
    base: String,
    cookie: String,
    bearer: String,
}

impl Visitor {
    pub(super) async fn sign_in(listen: SocketAddr, token: &str) -> Result<Self, Failure> {
        Self::begin(format!("http://{listen}"), token).await
    }

    /// Another person at the same control plane.
    pub(super) async fn of_other(&self, token: &str) -> Result<Self, Failure> {
        Self::begin(self.base.clone(), token).await
    }

    async fn begin(base: String, token: &str) -> Result<Self, Failure> {
        let http = Client::builder().tls_certs_only([]).redirect(Policy::none());
        let mut visitor = Self {
            http: http.build().map_err(unusable)?,
            base,
            cookie: String::new(),
            bearer: format!("Bearer {token}"),
        };
        let address =
            visitor.change(Method::POST, "/console/login-addresses", &Value::Null).await?;
        let path = address["path"]
            .as_str()
            .ok_or_else(|| unusable("the answer contains no sign-in address"))?;
        let answer = visitor.send(path, &[]).await?;
        let cookie = answer.headers().get(SET_COOKIE).and_then(|value| value.to_str().ok());
        let cookie = cookie.and_then(|value| value.split(';').next());
        cookie
            .ok_or_else(|| unusable("the sign-in address set no cookie"))?
            .clone_into(&mut visitor.cookie);
        Ok(visitor)
    }

    async fn send(&self, path: &str, headers: &[(&str, &str)]) -> Result<Response, Failure> {
        let url = format!("{}{path}", self.base);
        let mut request = self.http.get(&url).header(COOKIE, &self.cookie);
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let answer = request.send().await.map_err(|error| unusable(format!("{url}: {error}")))?;
        let status = answer.status();
        // A page that sends its visitor to sign in measures nothing.
        let signs_in =
            answer.headers().get(LOCATION).is_some_and(|to| to.as_bytes().starts_with(b"/login"));
        if status.is_client_error() || status.is_server_error() || signs_in {
            return Err(unusable(format!("{url}: {status}")));
        }
        Ok(answer)
    }

    /// A page as a browser requests it, compressed if the server does that.
    pub(super) async fn page(&self, path: &str, tag: &str) -> Result<Page, Failure> {
        let mut headers = vec![(ACCEPT_ENCODING.as_str(), "gzip")];
        if !tag.is_empty() {
            headers.push((IF_NONE_MATCH.as_str(), tag));
        }
        let answer = self.send(path, &headers).await?;
        let tag = answer.headers().get(ETAG).and_then(|tag| tag.to_str().ok());
        let tag = tag.unwrap_or_default().to_owned();
        let bytes = answer.bytes().await.map_err(unusable)?.into();
        Ok(Page { bytes, tag })
    }

    /// A page as its author wrote it.
    pub(super) async fn html(&self, path: &str) -> Result<String, Failure> {
        let answer = self.send(path, &[(ACCEPT_ENCODING.as_str(), "identity")]).await?;
        answer.text().await.map_err(unusable)
    }

    /// An endless answer.
    pub(super) async fn stream(&self, path: &str) -> Result<Response, Failure> {
        self.send(path, &[]).await
    }

    /// An answer of the API.
    pub(super) async fn api(&self, path: &str) -> Result<Vec<u8>, Failure> {
        let answer = self.send(path, &[(AUTHORIZATION.as_str(), &self.bearer)]).await?;
        Ok(answer.bytes().await.map_err(unusable)?.into())
    }

    /// A change through the API.
    pub(super) async fn change(
        &self,
        method: Method,
        path: &str,
        body: &Value,
    ) -> Result<Value, Failure> {
        let url = format!("{}{path}", self.base);
        let mut request = self.http.request(method, &url).header(AUTHORIZATION, &self.bearer);
        if !body.is_null() {
            request = request.json(body);
        }
        let answer = request.send().await.map_err(|error| unusable(format!("{url}: {error}")))?;
        let status = answer.status();
        let text = answer.text().await.map_err(unusable)?;
        if !status.is_success() {
            return Err(unusable(format!("{url}: {status} {text}")));
        }
        serde_json::from_str(&text).map_err(unusable)
    }

    /// A number that the control plane counts, over all its labels that `admits` wants.
    async fn metric(&self, name: &str, admits: impl Fn(&str) -> bool) -> Result<u64, Failure> {
        let text = String::from_utf8(self.api("/metrics").await?).map_err(unusable)?;
        let values = text.lines().filter_map(|line| {
            let (sample, value) = line.rsplit_once(' ')?;
            let (found, labels) = sample.split_once('{').unwrap_or((sample, ""));
            let value = value.strip_suffix(".0").unwrap_or(value).parse::<u64>().ok()?;
            (found == name && admits(labels)).then_some(value)
        });
        Ok(values.sum())
    }

    /// Statements that the control plane has sent to its database.
    pub(super) async fn statements(&self) -> Result<u64, Failure> {
        self.metric("gpuaas_database_statements_total", |_| true).await
    }

    /// Runs that have not ended.
    pub(super) async fn open_runs(&self) -> Result<u64, Failure> {
        let open = ["\"running\"", "\"waiting\"", "\"parked\""];
        self.metric("gpuaas_runs", |labels| open.iter().any(|status| labels.contains(status))).await
    }

    /// Bytes and requests of the first page and of what it loads.
    pub(super) async fn first_visit(&self) -> Result<(usize, usize), Failure> {
        let html = self.html("/nodes").await?;
        let mut wanted = BTreeSet::from(["/nodes"]);
        wanted.extend(html.split('"').filter(|text| text.starts_with("/assets/")));
        let mut bytes = 0;
        for path in &wanted {
            bytes += self.page(path, "").await?.bytes.len();
        }
        Ok((bytes, wanted.len()))
    }
}
