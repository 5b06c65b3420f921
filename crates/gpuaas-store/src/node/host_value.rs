//! Values that one host of a site has and no other: addresses that a site sets by host, and those that a
//! host derives, which nobody set. Each is held by the node that was first to claim it, until the node
//! claims others or leaves.

use async_recursion::async_recursion as boxed;
use gpuaas_types::{NodeId, SiteId};

use crate::database::{Conn, args};
use crate::error::StoreError;
use crate::store::Store;

/// A value that another node of the site holds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HeldValue {
    /// Name of the input.
    pub input: String,
    /// The value.
    pub value: String,
    /// Hostname of the node that holds it.
    pub hostname: String,
}

async fn claim(
    conn: &mut Conn,
    site_id: SiteId,
    node_id: NodeId,
    values: &[(String, String)],
) -> Result<Option<HeldValue>, StoreError> {
    // Claims of a site one by one: two nodes that claim one value at once see each other.
    conn.first("SELECT id FROM site WHERE id = $1 {LOCK}", args![site_id.0]).await?;
    for (input, value) in values {
        let holder = conn
            .first(
                "SELECT node.hostname FROM host_value JOIN node ON node.id = host_value.node_id \
                 WHERE host_value.site_id = $1 AND host_value.input = $2 \
                 AND host_value.value = $3 AND host_value.node_id <> $4 \
                 AND node.state NOT IN ('retired', 'detached', 'deleted')",
                args![site_id.0, input, value, node_id.0],
            )
            .await?;
        if let Some(holder) = holder {
            let (input, value) = (input.clone(), value.clone());
            return Ok(Some(HeldValue { input, value, hostname: holder.cols().next()? }));
        }
    }
    release(conn, node_id).await?;
    for (input, value) in values {
        // A row that is there is of a node that left, or of this one.
        conn.execute(
            "INSERT INTO host_value (site_id, input, value, node_id) VALUES ($1, $2, $3, $4) \
             ON CONFLICT (site_id, input, value) DO UPDATE SET node_id = excluded.node_id",
            args![site_id.0, input, value, node_id.0],
        )
        .await?;
    }
    Ok(None)
}

/// Gives up what the node holds.
pub(crate) async fn release(conn: &mut Conn, node_id: NodeId) -> Result<(), StoreError> {
    conn.execute("DELETE FROM host_value WHERE node_id = $1", args![node_id.0]).await.map(drop)
}

impl Store {
    /// Holds `values`, an input and its value each, for a node of the site, in the place of those that
    /// the node held. Answers the first that another node holds; then nothing is changed.
    ///
    /// # Errors
    /// [`StoreError::Unavailable`] or [`StoreError::Corrupt`].
    #[boxed]
    pub async fn claim_host_values(
        &self,
        site_id: SiteId,
        node_id: NodeId,
        values: Vec<(String, String)>,
    ) -> Result<Option<HeldValue>, StoreError> {
        self.write(move |conn| {
            Box::pin(async move { claim(conn, site_id, node_id, &values).await })
        })
        .await
    }
}
