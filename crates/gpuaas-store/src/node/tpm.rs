//! Keys of nodes' TPMs: a machine has the key that its agent showed the first time.

use async_recursion::async_recursion as boxed;
use gpuaas_types::{NodeId, RunId, Timestamp};

use crate::database::args;
use crate::error::StoreError;
use crate::node::tpm_rows::tpm_keys;
use crate::store::Store;

impl Store {
    /// SHA-256 of the key of a node's TPM, hexadecimal; `None`: its agents have shown none.
    ///
    /// # Errors
    /// [`StoreError::Unavailable`] or [`StoreError::Corrupt`].
    #[boxed]
    pub async fn node_tpm_key(&self, node_id: NodeId) -> Result<Option<String>, StoreError> {
        match self.shared_reads() {
            Some((reads, _guard)) => reads.tpm_keys.get(node_id).await,
            None => Ok(tpm_keys(&mut self.reader().await?, [node_id]).await?.remove(&node_id)),
        }
    }

    /// Notes the key of a node's TPM, unless one is known: the first stays, until an enrollment of the run
    /// that it was shown in is contested, or an operator revokes the node's certificates.
    ///
    /// # Errors
    /// [`StoreError::Unavailable`] or [`StoreError::Corrupt`].
    #[boxed]
    pub async fn note_node_tpm_key(
        &self,
        now: Timestamp,
        node_id: NodeId,
        run_id: RunId,
        key_sha256: String,
    ) -> Result<(), StoreError> {
        self.write(move |conn| {
            Box::pin(async move {
                let sql = "INSERT INTO node_tpm (node_id, key_sha256, run_id, since) \
                           VALUES ($1, $2, $3, $4) ON CONFLICT (node_id) DO NOTHING";
                conn.execute(sql, args![node_id.0, &key_sha256, run_id.0, now]).await?;
                Ok(())
            })
        })
        .await
    }
}
