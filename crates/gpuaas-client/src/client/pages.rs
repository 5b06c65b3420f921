//! Lists that the server gives in pages.

use gpuaas_types::api::{
    List, NodeDrift, NodeView, ProfileResource, RoceResource, SiteResource, StuckNode,
};
use gpuaas_types::audit::{AuditChainPage, AuditItem, TimelineLine};
use gpuaas_types::change::RunListItem;
use serde::de::DeserializeOwned;

use super::ApiClient;
use crate::failure::Failure;

/// Items of each page of a list but the first, whose size the server chooses: the most it gives.
const NEXT_PAGES_LIMIT: u32 = 1000;

impl ApiClient {
    /// The whole of a list that the server gives in pages.
    ///
    /// # Errors
    /// See [`ApiClient::add_site`].
    pub(super) async fn get_all<T: DeserializeOwned>(
        &self,
        path: &[&str],
        filter: &[(&str, Option<&str>)],
    ) -> Result<List<T>, Failure> {
        let mut items = Vec::new();
        let mut after: Option<String> = None;
        loop {
            let mut url = self.url(path)?;
            for (name, value) in filter {
                if let Some(value) = value {
                    url.query_pairs_mut().append_pair(name, value);
                }
            }
            // The first page is asked for as an older server understands it.
            if let Some(after) = &after {
                let limit = NEXT_PAGES_LIMIT.to_string();
                url.query_pairs_mut().append_pair("after", after).append_pair("limit", &limit);
            }
            let page: List<T> = self.answer(self.http.get(url)).await?;
            items.extend(page.items);
            // A server that would give the same page for ever is not followed.
            if page.next.is_none() || page.next == after {
                return Ok(List::whole(items));
            }
            after = page.next;
        }
    }

    /// `GET /api/v1/nodes`, with these parameters of the query.
    ///
    /// # Errors
    /// See [`ApiClient::add_site`].
    pub async fn nodes_with(
        &self,
        query: &[(&str, Option<&str>)],
    ) -> Result<List<NodeView>, Failure> {
        self.get_all(&["nodes"], query).await
    }

    /// `GET /api/v1/sites?filter=`.
    ///
    /// # Errors
    /// See [`ApiClient::add_site`].
    pub async fn filtered_sites(
        &self,
        filter: Option<&str>,
    ) -> Result<List<SiteResource>, Failure> {
        self.get_all(&["sites"], &[("filter", filter)]).await
    }

    /// `GET /api/v1/profiles?filter=`.
    ///
    /// # Errors
    /// See [`ApiClient::add_site`].
    pub async fn filtered_profiles(
        &self,
        filter: Option<&str>,
    ) -> Result<List<ProfileResource>, Failure> {
        self.get_all(&["profiles"], &[("filter", filter)]).await
    }

    /// `GET /api/v1/roce-assignments?filter=`.
    ///
    /// # Errors
    /// See [`ApiClient::add_site`].
    pub async fn roces(&self, filter: Option<&str>) -> Result<List<RoceResource>, Failure> {
        self.get_all(&["roce-assignments"], &[("filter", filter)]).await
    }

    /// `GET /api/v1/drift?site=&filter=`.
    ///
    /// # Errors
    /// See [`ApiClient::add_site`].
    pub async fn drift(
        &self,
        site: Option<&str>,
        filter: Option<&str>,
    ) -> Result<List<NodeDrift>, Failure> {
        self.get_all(&["drift"], &[("site", site), ("filter", filter)]).await
    }

    /// `GET /api/v1/nodes/stuck?site=&filter=`.
    ///
    /// # Errors
    /// See [`ApiClient::add_site`].
    pub async fn stuck(
        &self,
        site: Option<&str>,
        filter: Option<&str>,
    ) -> Result<List<StuckNode>, Failure> {
        self.get_all(&["nodes", "stuck"], &[("site", site), ("filter", filter)]).await
    }

    /// `GET /api/v1/runs`, with these parameters of the query.
    ///
    /// # Errors
    /// See [`ApiClient::add_site`].
    pub async fn runs(&self, query: &[(&str, String)]) -> Result<List<RunListItem>, Failure> {
        self.page(&["runs"], query).await
    }

    /// `GET /api/v1/audit`, with these parameters of the query.
    ///
    /// # Errors
    /// See [`ApiClient::add_site`].
    pub async fn audit(&self, query: &[(&str, String)]) -> Result<List<AuditItem>, Failure> {
        self.page(&["audit"], query).await
    }

    /// `GET /api/v1/audit/chain`: rows after position `after` of the chain.
    ///
    /// # Errors
    /// See [`ApiClient::add_site`].
    pub async fn audit_chain(&self, after: i64, limit: u32) -> Result<AuditChainPage, Failure> {
        let mut url = self.url(&["audit", "chain"])?;
        url.query_pairs_mut()
            .append_pair("after", &after.to_string())
            .append_pair("limit", &limit.to_string());
        self.answer(self.http.get(url)).await
    }

    /// `GET /api/v1/nodes/NODE/timeline`, with these parameters of the query.
    ///
    /// # Errors
    /// See [`ApiClient::add_site`].
    pub async fn timeline(
        &self,
        node: &str,
        query: &[(&str, String)],
    ) -> Result<List<TimelineLine>, Failure> {
        self.page(&["nodes", node, "timeline"], query).await
    }

    /// One page of a list.
    async fn page<T: DeserializeOwned>(
        &self,
        path: &[&str],
        query: &[(&str, String)],
    ) -> Result<List<T>, Failure> {
        let mut url = self.url(path)?;
        for (name, value) in query {
            url.query_pairs_mut().append_pair(name, value);
        }
        self.answer(self.http.get(url)).await
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use axum::extract::Query;
    use axum::routing::get;
    use axum::{Json, Router};

    use super::*;

    async fn read(route: axum::routing::MethodRouter) -> Result<List<u32>, Failure> {
        let router = Router::new().route("/api/v1/numbers", route);
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let server = format!("http://{}/", listener.local_addr().unwrap());
        tokio::spawn(async move { axum::serve(listener, router).await.unwrap() });
        let client = ApiClient::new(&server, "t").unwrap();
        client.get_all(&["numbers"], &[("site", Some("lab")), ("state", None)]).await
    }

    #[tokio::test]
    async fn every_page_is_asked_for() {
        let route = get(|Query(asked): Query<HashMap<String, String>>| async move {
            assert_eq!((asked["site"].as_str(), asked.get("state")), ("lab", None));
            let after: Option<u32> = asked.get("after").map(|text| text.parse().unwrap());
            assert_eq!(asked.contains_key("limit"), after.is_some());
            let first = after.map_or(0, |after| after + 1);
            let next = (first < 4).then(|| (first + 1).to_string());
            Json(List { items: vec![first, first + 1], next })
        });
        assert_eq!(read(route).await.unwrap(), List::whole((0..6).collect()));
    }

    #[tokio::test]
    async fn a_server_that_repeats_a_page_is_left() {
        let route = get(|| async { Json(List { items: vec![1], next: Some("1".to_owned()) }) });
        assert_eq!(read(route).await.unwrap(), List::whole(vec![1, 1]));
    }
}
