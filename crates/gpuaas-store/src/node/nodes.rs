//! Nodes: finding them and listing them.

use async_recursion::async_recursion as boxed;
use futures::future::BoxFuture;

use gpuaas_core::record::NodeRecord;
use gpuaas_types::api::{Park, Wait};
use gpuaas_types::filter::{FilterList, ListFilter};
use gpuaas_types::{NodeId, NodeState, RunId, RunKind, RunStatus, SiteId, Step, Timestamp};
use secrecy::SecretString;

use crate::database::list_filter::with_filter;
use crate::database::page::Page;
use crate::database::{Cols, args};
use crate::error::StoreError;
use crate::node::rows::{BMC_PASSWORD, node_columns, node_from, read_node};
use crate::site::rows::sites_of_region;
use crate::store::Store;

/// Which nodes to list; what is left empty does not matter.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct NodeFilter<'a> {
    /// Only nodes of this site.
    pub site_id: Option<SiteId>,
    /// Only nodes in this state.
    pub state: Option<NodeState>,
    /// Only nodes whose latest run has this status.
    pub run_status: Option<RunStatus>,
    /// Only nodes whose latest run is open.
    pub open: bool,
    /// Only nodes that this lets pass.
    pub expression: Option<&'a ListFilter>,
}

/// A run without its working state.
#[derive(Debug, Clone, PartialEq)]
pub struct RunBrief {
    /// Identifier of the run.
    pub id: RunId,
    /// Kind of the run.
    pub kind: RunKind,
    /// Step that it is in.
    pub step: Step,
    /// Status of the run.
    pub status: RunStatus,
    /// What it waits for; none: for nothing.
    pub wait: Option<Wait>,
    /// Why it parked; none: it is not parked.
    pub park: Option<Park>,
    /// Moment at which it was made.
    pub created_at: Timestamp,
    /// Moment at which the current step began.
    pub step_since: Timestamp,
    /// Moment at which it ended; none: it is open.
    pub ended_at: Option<Timestamp>,
}

/// A node with the names and the neighbours that a view shows.
#[derive(Debug, Clone, PartialEq)]
pub struct ListedNode {
    /// Row of the node.
    pub node: NodeRecord,
    /// Name of its site.
    pub site: String,
    /// Name of its profile.
    pub profile: String,
    /// Name of the batch that it was made by.
    pub batch: Option<String>,
    /// The open run, or the latest one.
    pub run: Option<RunBrief>,
    /// Status number of its machine in MAAS.
    pub maas_status: Option<i64>,
    /// Moment at which MAAS was asked for the status.
    pub maas_status_at: Option<Timestamp>,
}

/// Nodes read by each statement of [`Store::list_nodes`].
const NODES_PER_PAGE: u32 = 500;

macro_rules! listed_select {
    ($rest:expr) => {
        listed_select!(node_from!(), $rest)
    };
    ($from:expr, $rest:expr) => {
        concat!(
            "SELECT ",
            node_columns!(),
            ", site.name, profile.name, observation.status, observation.status_at, batch.name, \
             run.id, run.kind, run.step, run.status, run.wait, run.park, run.created_at, \
             run.step_since, run.ended_at FROM ",
            $from,
            " JOIN site ON site.id = node.site_id JOIN profile ON profile.id = node.profile_id \
             LEFT JOIN run ON run.id = node.run_id \
             LEFT JOIN observation ON observation.node_id = node.id \
             LEFT JOIN batch_member ON batch_member.node_id = node.id \
             LEFT JOIN batch ON batch.id = batch_member.batch_id ",
            $rest
        )
    };
}

macro_rules! list_of_nodes {
    ($after:literal) => {
        listed_select!(concat!(
            "WHERE ($1 IS NULL OR node.site_id = $1) AND ($2 IS NULL OR node.state = $2) \
             AND ($3 IS NULL OR run.status = $3) \
             AND (NOT $4 OR run.status IN ('running', 'waiting', 'parked')) ",
            $after,
            " {FILTER} ORDER BY node.hostname, node.id LIMIT $5"
        ))
    };
}

const LIST: &str = list_of_nodes!("");
const LIST_AFTER: &str = list_of_nodes!(
    "AND (node.hostname, node.id) > (SELECT before.hostname, before.id FROM node AS before \
     WHERE before.id = $6)"
);

/// Identifiers first, and from there to the nodes: PostgreSQL reads all nodes for a row that fits one of
/// several conditions, and keeps the order of joins that is written here
/// (`database/postgres/startup.rs`).
const FIND: &str = listed_select!(
    "(SELECT id FROM node WHERE id = $2 \
     UNION SELECT id FROM node WHERE hostname = $3 \
     UNION SELECT id FROM node WHERE system_id = $1 \
     UNION SELECT id FROM node WHERE bmc_address = $1 \
     UNION SELECT node_id FROM node_mac WHERE mac_address = $3 \
     UNION SELECT node_id FROM run WHERE id = $2 \
     UNION SELECT host.id FROM roce_assignment JOIN node AS host \
     ON host.site_id = roce_assignment.site_id AND host.hostname = roce_assignment.hostname \
     WHERE roce_assignment.ip_address = $1) AS found \
     JOIN node ON node.id = found.id LEFT JOIN heartbeat ON heartbeat.node_id = node.id",
    "ORDER BY CASE WHEN node.state IN ('retired', 'detached', 'deleted') THEN 1 ELSE 0 END, \
     node.created_at DESC"
);

fn read_listed_node(mut cols: Cols<'_>) -> Result<ListedNode, StoreError> {
    Ok(ListedNode {
        node: read_node(&mut cols)?,
        site: cols.next()?,
        profile: cols.next()?,
        maas_status: cols.next()?,
        maas_status_at: cols.opt_at()?,
        batch: cols.next()?,
        run: match cols.opt_id(RunId)? {
            None => None,
            Some(id) => Some(RunBrief {
                id,
                kind: cols.enum_str()?,
                step: cols.enum_str()?,
                status: cols.enum_str()?,
                wait: cols.opt_json()?,
                park: cols.opt_json()?,
                created_at: cols.at()?,
                step_since: cols.at()?,
                ended_at: cols.opt_at()?,
            }),
        },
    })
}

impl Store {
    /// A node.
    ///
    /// # Errors
    /// [`StoreError::NotFound`]; [`StoreError::Unavailable`] or [`StoreError::Corrupt`].
    #[boxed]
    pub async fn node(&self, id: NodeId) -> Result<NodeRecord, StoreError> {
        const SQL: &str =
            concat!("SELECT ", node_columns!(), " FROM ", node_from!(), " WHERE node.id = $1");
        let row = self.reader().await?.first(SQL, args![id.0]).await?;
        read_node(&mut row.ok_or_else(|| StoreError::not_found("node", id))?.cols())
    }

    /// Nodes that answer to `text`, as views show them: identifier of the node or of one of its
    /// runs, hostname, MAAS' `system_id`, MAC address, BMC address or fabric address. Nodes in
    /// service first, then the newest.
    ///
    /// # Errors
    /// [`StoreError::Unavailable`] or [`StoreError::Corrupt`].
    #[boxed]
    pub async fn find_nodes(&self, text: &str) -> Result<Vec<ListedNode>, StoreError> {
        let id = uuid::Uuid::parse_str(text).ok();
        let values = args![text, id, &text.to_ascii_lowercase()];
        let rows = self.reader().await?.all(FIND, values).await?;
        rows.iter().map(|row| read_listed_node(row.cols())).collect()
    }

    /// A node as views show it.
    ///
    /// # Errors
    /// [`StoreError::NotFound`]; [`StoreError::Unavailable`] or [`StoreError::Corrupt`].
    #[boxed]
    pub async fn listed_node(&self, id: NodeId) -> Result<ListedNode, StoreError> {
        let sql = listed_select!("WHERE node.id = $1");
        let row = self.reader().await?.first(sql, args![id.0]).await?;
        read_listed_node(row.ok_or_else(|| StoreError::not_found("node", id))?.cols())
    }

    /// All nodes that a filter lets pass, as views show them, by hostname; read page by page.
    ///
    /// # Errors
    /// [`StoreError::Unavailable`] or [`StoreError::Corrupt`].
    pub fn list_nodes<'a>(
        &'a self,
        filter: NodeFilter<'a>,
    ) -> BoxFuture<'a, Result<Vec<ListedNode>, StoreError>> {
        Box::pin(async move {
            let mut all: Vec<ListedNode> = Vec::new();
            loop {
                let after = all.last().map(|last| last.node.id);
                let page = self.nodes_page(filter, Page { after, limit: NODES_PER_PAGE }).await?;
                let full = u32::try_from(page.len()) == Ok(NODES_PER_PAGE);
                all.extend(page);
                if !full {
                    return Ok(all);
                }
            }
        })
    }

    /// A page of the nodes that a filter lets pass, as views show them, by hostname.
    ///
    /// # Errors
    /// [`StoreError::Unavailable`] or [`StoreError::Corrupt`].
    pub fn nodes_page<'a>(
        &'a self,
        filter: NodeFilter<'a>,
        page: Page<NodeId>,
    ) -> BoxFuture<'a, Result<Vec<ListedNode>, StoreError>> {
        Box::pin(async move {
            let mut values = args![
                filter.site_id.map(|id| id.0),
                filter.state.map(NodeState::as_str),
                filter.run_status.map(RunStatus::as_str),
                filter.open,
                i64::from(page.limit)
            ];
            // Two statements: where the comparison is one side of an OR, no index leads to the page.
            let sql = match page.after {
                Some(after) => {
                    values.extend(args![after.0]);
                    LIST_AFTER
                }
                None => LIST,
            };
            let sql = with_filter(sql, FilterList::Nodes, filter.expression, &mut values)?;
            let rows = self.reader().await?.all(sql, values).await?;
            rows.iter().map(|row| read_listed_node(row.cols())).collect()
        })
    }

    /// The node in care that holds a machine of the site's region, whichever site of the region the
    /// node is of.
    ///
    /// # Errors
    /// [`StoreError::Unavailable`] or [`StoreError::Corrupt`].
    #[boxed]
    pub async fn node_by_system_id(
        &self,
        site_id: SiteId,
        system_id: &str,
    ) -> Result<Option<NodeRecord>, StoreError> {
        const SQL: &str = concat!(
            "SELECT ",
            node_columns!(),
            " FROM ",
            node_from!(),
            " WHERE node.system_id = $2 AND node.site_id IN ",
            sites_of_region!(),
            " AND node.state NOT IN ('retired', 'detached', 'deleted') ORDER BY node.created_at"
        );
        let row = self.reader().await?.first(SQL, args![site_id.0, system_id]).await?;
        row.map(|row| read_node(&mut row.cols())).transpose()
    }

    /// Whether nodes of the site are in service: active, or held back, with a machine.
    ///
    /// # Errors
    /// [`StoreError::Unavailable`] or [`StoreError::Corrupt`].
    #[boxed]
    pub async fn has_nodes_in_service(&self, site_id: SiteId) -> Result<bool, StoreError> {
        let row = self
            .reader()
            .await?
            .first(
                "SELECT 1 FROM node WHERE site_id = $1 AND system_id IS NOT NULL \
                 AND state IN ('active', 'offline', 'quarantined', 'draining') LIMIT 1",
                args![site_id.0],
            )
            .await?;
        Ok(row.is_some())
    }

    /// The password of a node's BMC.
    ///
    /// # Errors
    /// [`StoreError::Corrupt`]; [`StoreError::Unavailable`] or [`StoreError::Corrupt`].
    #[boxed]
    pub async fn bmc_password(&self, id: NodeId) -> Result<Option<SecretString>, StoreError> {
        self.secret(id.0, BMC_PASSWORD).await
    }
}
