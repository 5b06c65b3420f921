//! What each page costs: time, bytes, elements and statements.

use std::sync::Arc;

use gpuaas_client::ApiClient;
use gpuaas_client::failure::Failure;
use gpuaas_engine::{Clock as _, RealClock};
use serde::Serialize;
use serde_json::Value;
use tokio::task::JoinSet;

use super::visitor::Visitor;
use super::{percentile_ms, unusable};
use crate::operator::{PROFILE, SITE};
use crate::record::MachineInventory;

/// Times that each client requests a page.
const ROUNDS: usize = 20;
/// Times that a page's statements are counted; the smallest number is the page's own, since the
/// engine and the agents send some at any time.
const COUNTS: usize = 7;

/// One page.
#[derive(Debug, Clone, Serialize)]
pub struct PageCost {
    /// Path of the page.
    pub path: String,
    /// Path of the API with the same data.
    pub api: String,
    /// Half of the requests were answered within this time.
    pub p50_ms: f64,
    /// 95 of 100 requests were answered within this time.
    pub p95_ms: f64,
    /// The same for the data from the API.
    pub api_p95_ms: f64,
    /// Bytes of the page.
    pub html_bytes: usize,
    /// Bytes on the wire.
    pub wire_bytes: usize,
    /// Elements of the page.
    pub elements: usize,
    /// Statements that the control plane sends to its database for one page.
    pub statements: u64,
}

/// Every page with its size and statements; times are zero.
pub(super) async fn counted(
    visitor: &Visitor,
    client: &ApiClient,
    machines: &[MachineInventory],
) -> Result<Vec<PageCost>, Failure> {
    let node = &machines.first().ok_or_else(|| unusable("the fleet has no node"))?.name;
    let listed = visitor.api(&format!("/api/v1/runs?node={node}&limit=1")).await?;
    let listed: Value = serde_json::from_slice(&listed).map_err(unusable)?;
    let run = listed["items"][0]["id"].as_str().unwrap_or_default();
    // The client's own view, so that a page of an unknown name is not measured.
    client.node(node).await?;
    let paths = [
        ("/nodes".to_owned(), "/api/v1/nodes?limit=50".to_owned()),
        (
            "/nodes?filter=state%3Dactive".to_owned(),
            "/api/v1/nodes?limit=50&filter=state%3Dactive".to_owned(),
        ),
        (format!("/nodes/{node}"), format!("/api/v1/nodes/{node}/explain")),
        ("/runs".to_owned(), "/api/v1/runs?limit=50".to_owned()),
        (format!("/runs/{run}"), format!("/api/v1/runs/{run}")),
        ("/stuck".to_owned(), "/api/v1/nodes/stuck?limit=1000".to_owned()),
        ("/wall".to_owned(), "/api/v1/nodes/stuck?limit=1000".to_owned()),
        ("/batches".to_owned(), "/api/v1/batches".to_owned()),
        ("/claims".to_owned(), "/api/v1/admin/slice-claims".to_owned()),
        ("/experiments".to_owned(), "/api/v1/experiments".to_owned()),
        ("/images".to_owned(), "/api/v1/images".to_owned()),
        ("/bundles".to_owned(), "/api/v1/bundles".to_owned()),
        ("/profiles".to_owned(), "/api/v1/profiles".to_owned()),
        (format!("/sites/{SITE}/profiles/{PROFILE}"), format!("/api/v1/profiles/{PROFILE}")),
        ("/sites".to_owned(), "/api/v1/sites".to_owned()),
        ("/approvals".to_owned(), "/api/v1/approvals".to_owned()),
        ("/tokens".to_owned(), "/api/v1/tokens".to_owned()),
        ("/audit".to_owned(), "/api/v1/audit?limit=50".to_owned()),
    ];
    let mut pages = Vec::new();
    for (path, api) in paths {
        pages.push(count(visitor, path, api).await?);
    }
    Ok(pages)
}

async fn count(visitor: &Visitor, path: String, api: String) -> Result<PageCost, Failure> {
    let html = visitor.html(&path).await?;
    let wire_bytes = visitor.page(&path, "").await?.bytes.len();
    let mut statements = u64::MAX;
    let mut of_nothing = u64::MAX;
    for _ in 0..COUNTS {
        let before = visitor.statements().await?;
        let between = visitor.statements().await?;
        visitor.page(&path, "").await?;
        let after = visitor.statements().await?;
        of_nothing = of_nothing.min(between - before);
        statements = statements.min(after - between);
    }
    Ok(PageCost {
        path,
        api,
        p50_ms: 0.0,
        p95_ms: 0.0,
        api_p95_ms: 0.0,
        html_bytes: html.len(),
        wire_bytes,
        elements: elements(&html),
        statements: statements.saturating_sub(of_nothing),
    })
}

/// Opening tags.
fn elements(html: &str) -> usize {
    html.split('<').skip(1).filter(|tag| tag.starts_with(|c: char| c.is_ascii_alphabetic())).count()
}

/// Measures the time of every page and of its data, with all clients at once.
pub(super) async fn timed(
    visitor: &Visitor,
    clients: usize,
    pages: &mut [PageCost],
) -> Result<(), Failure> {
    for page in pages {
        let asked = Arc::new((page.path.clone(), page.api.clone()));
        let mut running = JoinSet::new();
        for _ in 0..clients {
            let (visitor, asked) = (visitor.clone(), Arc::clone(&asked));
            running.spawn(async move { rounds(&visitor, &asked.0, &asked.1).await });
        }
        let (mut drawn, mut data) = (Vec::new(), Vec::new());
        while let Some(done) = running.join_next().await {
            let (of_page, of_api) = done.map_err(unusable)??;
            drawn.extend(of_page);
            data.extend(of_api);
        }
        page.p50_ms = percentile_ms(&mut drawn, 50);
        page.p95_ms = percentile_ms(&mut drawn, 95);
        page.api_p95_ms = percentile_ms(&mut data, 95);
    }
    Ok(())
}

async fn rounds(visitor: &Visitor, path: &str, api: &str) -> Result<(Vec<f64>, Vec<f64>), Failure> {
    let (mut drawn, mut data) = (Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        let begin = RealClock.now();
        visitor.page(path, "").await?;
        let between = RealClock.now();
        visitor.api(api).await?;
        drawn.push(between.seconds_since(begin));
        data.push(RealClock.now().seconds_since(between));
    }
    Ok((drawn, data))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn opening_tags_are_counted() {
        assert_eq!(elements("<!doctype html><p>1 &lt; 2 <b>x</b><br></p><!-- <i> -->"), 4);
    }
}
