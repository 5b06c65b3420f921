//! How MAAS logs in at the BMCs of nodes in service, as far as one has to know it to see that somebody
//! changed it.

use async_recursion::async_recursion as boxed;
use std::collections::HashMap;

use gpuaas_types::api::TimelineEvent;
use gpuaas_types::{NodeId, Timestamp};
use secrecy::{ExposeSecret as _, SecretString};
use serde::{Deserialize, Serialize};

use crate::error::StoreError;
use crate::identity::secret::rows::{put_secret, secrets_of_owners};
use crate::node::rows::BMC_ACCESS;
use crate::run::timeline_rows;
use crate::store::Store;

/// How MAAS logged in at a BMC when that was looked at. Sealed like a password: who can guess the
/// password could try guesses against its fingerprint.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct BmcAccess {
    /// Read of the machine by the node's latest run: after another one this is not what to expect.
    pub read_at: Timestamp,
    /// User; none: MAAS has none.
    pub user: Option<String>,
    /// Salt of the fingerprint.
    pub salt: String,
    /// What tells the password from another one; none: MAAS has none.
    pub fingerprint: Option<String>,
}

/// What is remembered of a node from now on.
#[derive(Debug, Clone, PartialEq)]
pub struct BmcAccessNote {
    /// Node that it is about.
    pub node_id: NodeId,
    /// How MAAS logs in.
    pub access: BmcAccess,
    /// Line for the timeline of the node; none: it is remembered for the first time.
    pub line: Option<TimelineEvent>,
}

impl Store {
    /// How MAAS logged in at the BMCs of these nodes; a node of which nothing is remembered is left
    /// out.
    ///
    /// # Errors
    /// [`StoreError::Unavailable`] or [`StoreError::Corrupt`].
    pub async fn bmc_accesses(
        &self,
        ids: impl IntoIterator<Item = NodeId>,
    ) -> Result<HashMap<NodeId, BmcAccess>, StoreError> {
        let mut conn = self.reader().await?;
        let sealed = secrets_of_owners(&mut conn, ids.into_iter().map(|id| id.0)).await?;
        let mut known = HashMap::new();
        for ((owner, _), sealed) in sealed.iter().filter(|((_, name), _)| name == BMC_ACCESS) {
            let text = self.open_sealed(*owner, BMC_ACCESS, sealed)?;
            let access = serde_json::from_str(text.expose_secret());
            let access = access.map_err(|error| {
                StoreError::corrupt(format!("BMC login of node {owner}"), error)
            })?;
            known.insert(NodeId(*owner), access);
        }
        Ok(known)
    }

    /// Remembers how MAAS logs in at BMCs.
    ///
    /// # Errors
    /// [`StoreError::Unavailable`] or [`StoreError::Corrupt`].
    #[boxed]
    pub async fn remember_bmc_accesses(&self, notes: Vec<BmcAccessNote>) -> Result<(), StoreError> {
        let mut sealed = Vec::new();
        for note in &notes {
            let text = serde_json::to_string(&note.access);
            let text = text.map_err(|error| StoreError::corrupt("BMC login", error))?;
            sealed.push(self.seal(note.node_id.0, BMC_ACCESS, &SecretString::from(text))?);
        }
        self.write(move |conn| {
            Box::pin(async move {
                for (note, sealed) in notes.iter().zip(sealed) {
                    put_secret(conn, note.node_id.0, BMC_ACCESS, sealed).await?;
                    let line = note.line.iter().map(|line| (note.node_id, line));
                    timeline_rows::append(conn, line).await?;
                }
                Ok(())
            })
        })
        .await
    }
}
