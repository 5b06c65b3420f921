//! Answers to changes that were asked with an idempotency key, to be given again.
//!
//! A key belongs to the caller that sent it. A request takes its key before it is carried out and
//! leaves its answer there; one that comes meanwhile is told so, and a key whose holder died is free
//! again after a while. The request is kept as a digest and the answer whole, both sealed: a digest of
//! a short password, or the answer that shows a new token, would tell who reads the database.

use async_recursion::async_recursion as boxed;
use secrecy::{ExposeSecret as _, SecretString};
use serde::{Deserialize, Serialize};

use gpuaas_types::Timestamp;
use gpuaas_types::codes::ProblemCode;

use crate::database::args;
use crate::error::StoreError;
use crate::identity::secret::sealed_columns::replay_owner;
use crate::store::Store;

/// Seconds for which answers are kept, and the notes of what was made with their keys: a key that is
/// forgotten is forgotten in both places.
const KEPT_SECONDS: f64 = 7.0 * 86_400.0;

/// An idempotency key, and whose it is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReplayKey {
    /// Name of the caller, as it was authenticated.
    pub caller: String,
    /// The caller's key.
    pub key: String,
}

/// An answer that is kept.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct KeptResponse {
    /// HTTP status.
    pub status: u16,
    /// Type of the body; none: there is no body.
    pub content_type: Option<String>,
    /// Tag of the revision that it shows; none: it shows none.
    #[serde(default)]
    pub etag: Option<String>,
    /// The body.
    pub body: String,
}

/// What is sealed of a request.
#[derive(Debug, Serialize, Deserialize)]
struct StoredRequest {
    digest: [u8; 32],
    response: Option<KeptResponse>,
}

impl Store {
    /// Takes a key for a request with this digest, or answers what was answered to it before.
    /// `held_seconds`: for so long a request that has not ended keeps its key.
    ///
    /// # Errors
    /// `idempotency_key_reused` where the key was another request's; `idempotency_key_in_use` while
    /// the first request is under way; [`StoreError::Unavailable`] or [`StoreError::Corrupt`].
    #[boxed]
    pub async fn begin_replayable(
        &self,
        now: Timestamp,
        key: &ReplayKey,
        digest: [u8; 32],
        held_seconds: f64,
    ) -> Result<Option<KeptResponse>, StoreError> {
        let sealed = self.seal_request(key, &StoredRequest { digest, response: None })?;
        let row = key.clone();
        let found = self
            .write(move |conn| {
                Box::pin(async move {
                    let ReplayKey { caller, key } = &row;
                    let old = now.plus_seconds(-KEPT_SECONDS);
                    conn.execute("DELETE FROM request_replay WHERE started_at < $1", args![old])
                        .await?;
                    conn.execute(
                        "DELETE FROM idempotency_record WHERE created_at < $1",
                        args![old],
                    )
                    .await?;
                    let made = conn
                        .execute(
                            "INSERT INTO request_replay (caller, key, started_at, sealed) \
                             VALUES ($1, $2, $3, $4) ON CONFLICT DO NOTHING",
                            vec![caller.into(), key.into(), now.into(), sealed.as_slice().into()],
                        )
                        .await?;
                    if made == 1 {
                        return Ok(None);
                    }
                    let row = conn
                        .first(
                            "SELECT started_at, sealed FROM request_replay \
                             WHERE caller = $1 AND key = $2",
                            args![caller, key],
                        )
                        .await?;
                    let Some(row) = row else { return Err(in_use()) };
                    let mut cols = row.cols();
                    let started_at = cols.at()?;
                    let sealed: Vec<u8> = cols.next()?;
                    Ok(Some((started_at, sealed)))
                })
            })
            .await?;
        let Some((started_at, earlier)) = found else { return Ok(None) };
        let stored = self.open_request(key, &earlier)?;
        if stored.digest != digest {
            let key = &key.key;
            let detail = format!("idempotency key {key:?} was already used for another request");
            return Err(StoreError::conflict(ProblemCode::IdempotencyKeyReused, detail));
        }
        if stored.response.is_some() {
            return Ok(stored.response);
        }
        if now < started_at.plus_seconds(held_seconds) {
            return Err(in_use());
        }
        self.take_over(now, key, started_at).await?;
        Ok(None)
    }

    /// Takes the key of a request whose process died; of two that try, one gets it.
    async fn take_over(
        &self,
        now: Timestamp,
        key: &ReplayKey,
        started_at: Timestamp,
    ) -> Result<(), StoreError> {
        let row = key.clone();
        self.write(move |conn| {
            Box::pin(async move {
                let taken = conn
                    .execute(
                        "UPDATE request_replay SET started_at = $3 \
                         WHERE caller = $1 AND key = $2 AND started_at = $4",
                        args![&row.caller, &row.key, now, started_at],
                    )
                    .await?;
                if taken == 1 { Ok(()) } else { Err(in_use()) }
            })
        })
        .await
    }

    /// Keeps the answer to a request that has its key; none frees the key for another try.
    ///
    /// # Errors
    /// [`StoreError::Unavailable`] or [`StoreError::Corrupt`].
    #[boxed]
    pub async fn end_replayable(
        &self,
        key: &ReplayKey,
        digest: [u8; 32],
        response: Option<KeptResponse>,
    ) -> Result<(), StoreError> {
        let sealed = match response {
            Some(_) => Some(self.seal_request(key, &StoredRequest { digest, response })?),
            None => None,
        };
        let row = key.clone();
        self.write(move |conn| {
            Box::pin(async move {
                let ReplayKey { caller, key } = &row;
                match &sealed {
                    Some(sealed) => {
                        conn.execute(
                            "UPDATE request_replay SET sealed = $3 WHERE caller = $1 AND key = $2",
                            vec![caller.into(), key.into(), sealed.as_slice().into()],
                        )
                        .await?
                    }
                    None => {
                        conn.execute(
                            "DELETE FROM request_replay WHERE caller = $1 AND key = $2",
                            args![caller, key],
                        )
                        .await?
                    }
                };
                Ok(())
            })
        })
        .await
    }

    fn seal_request(&self, key: &ReplayKey, stored: &StoredRequest) -> Result<Vec<u8>, StoreError> {
        let text = serde_json::to_string(stored)
            .map_err(|error| StoreError::corrupt("request", error.to_string()))?;
        self.key().seal(&replay_owner(&key.caller, &key.key), &SecretString::from(text))
    }

    fn open_request(&self, key: &ReplayKey, sealed: &[u8]) -> Result<StoredRequest, StoreError> {
        let text = self.key().open(&replay_owner(&key.caller, &key.key), sealed)?;
        serde_json::from_str(text.expose_secret())
            .map_err(|error| StoreError::corrupt("request", error.to_string()))
    }
}

fn in_use() -> StoreError {
    let detail = "the first request with this key is still in progress";
    StoreError::conflict(ProblemCode::IdempotencyKeyInUse, detail)
}
