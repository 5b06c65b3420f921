//! Keys that sign tasks for agents.
//!
//! One key is active. A new one is staged first, so that agents learn of it while the old one
//! still vouches for it; activated, it takes over, and the old one counts for a grace time. The
//! revision grows with every change, and agents take nothing older than what they have.

use async_recursion::async_recursion as boxed;
use gpuaas_types::Timestamp;
use gpuaas_types::agent::{TaskKeyState, TaskKeys};
use gpuaas_types::codes::ProblemCode;
use secrecy::SecretString;
use uuid::Uuid;

use crate::audit::rows::{self as audit, NewAuditEntry};
use crate::database::schema::meta::one_at_a_time;
use crate::database::{Conn, args};
use crate::error::StoreError;
use crate::identity::secret::rows::put_secret;
use crate::identity::task_key_rows::read_task_keys;
use crate::store::Store;

/// Lock under which keys change: the revision of each is greater than those before.
const KEYS: &str = "task_key_lock";
/// Begin of the names of the private halves.
const SECRET: &str = "task_key/";

fn secret_name(public_key: &str) -> String {
    format!("{SECRET}{public_key}")
}

impl Store {
    /// Keys in any state; revision 0 when there is none.
    ///
    /// # Errors
    /// [`StoreError::Unavailable`] or [`StoreError::Corrupt`].
    #[boxed]
    pub async fn task_keys(&self) -> Result<TaskKeys, StoreError> {
        match self.shared_reads() {
            Some((reads, _guard)) => Ok(reads.task_keys.get(()).await?.unwrap_or_default()),
            None => read_task_keys(&mut self.reader().await?).await,
        }
    }

    /// The private half of a key.
    ///
    /// # Errors
    /// [`StoreError::NotFound`]; [`StoreError::Unavailable`] or [`StoreError::Corrupt`].
    #[boxed]
    pub async fn task_key_secret(&self, public_key: &str) -> Result<SecretString, StoreError> {
        let kept = self.secret(Uuid::nil(), &secret_name(public_key)).await?;
        kept.ok_or_else(|| StoreError::not_found("task key", public_key))
    }

    /// Keeps a key: active where there is none yet, else staged, or, where `only_first`, not at
    /// all. Answers its state. Of several that are kept first at once, one is.
    ///
    /// # Errors
    /// `task_key_staged` when another one is staged; [`StoreError::Unavailable`] or
    /// [`StoreError::Corrupt`].
    #[boxed]
    pub async fn add_task_key(
        &self,
        now: Timestamp,
        public_key: &str,
        secret: &SecretString,
        audit: Option<NewAuditEntry>,
    ) -> Result<Option<TaskKeyState>, StoreError> {
        let name = secret_name(public_key);
        let sealed = self.seal(Uuid::nil(), &name, secret)?;
        let public_key = public_key.to_owned();
        let only_first = audit.is_none();
        self.write(move |conn| {
            Box::pin(async move {
                one_at_a_time(conn, KEYS).await?;
                let mut kept = None;
                for state in [TaskKeyState::Active, TaskKeyState::Staged] {
                    if kept.is_none() && insert_key(conn, &public_key, state).await? {
                        kept = Some(state);
                    }
                    if only_first {
                        break;
                    }
                }
                if kept.is_some() {
                    put_secret(conn, Uuid::nil(), &name, sealed).await?;
                    if let Some(audit) = audit {
                        audit::append(conn, now, &audit).await?;
                    }
                } else if !only_first {
                    let detail = "a staged key is waiting to be activated";
                    return Err(StoreError::conflict(ProblemCode::TaskKeyStaged, detail));
                }
                Ok(kept)
            })
        })
        .await
    }

    /// Lets the staged key sign; what the active one signed counts until `grace_until`.
    ///
    /// # Errors
    /// `no_task_key_staged`; [`StoreError::Unavailable`] or [`StoreError::Corrupt`].
    #[boxed]
    pub async fn activate_task_key(
        &self,
        now: Timestamp,
        grace_until: Timestamp,
        audit: NewAuditEntry,
    ) -> Result<(), StoreError> {
        self.write(move |conn| {
            Box::pin(async move {
                one_at_a_time(conn, KEYS).await?;
                let sql = "SELECT public_key FROM task_key WHERE state = 'staged'";
                if conn.first(sql, args![]).await?.is_none() {
                    let detail = "no key is staged";
                    return Err(StoreError::conflict(ProblemCode::NoTaskKeyStaged, detail));
                }
                change(conn, TaskKeyState::Active, TaskKeyState::Grace, Some(grace_until)).await?;
                change(conn, TaskKeyState::Staged, TaskKeyState::Active, None).await?;
                audit::append(conn, now, &audit).await
            })
        })
        .await
    }

    /// Withdraws a key that does not sign: at once, whatever its grace time.
    ///
    /// # Errors
    /// `task_key_active` when it is the one that signs, [`StoreError::NotFound`];
    /// [`StoreError::Unavailable`] or [`StoreError::Corrupt`].
    #[boxed]
    pub async fn retire_task_key(
        &self,
        now: Timestamp,
        public_key: &str,
        audit: NewAuditEntry,
    ) -> Result<(), StoreError> {
        let public_key = public_key.to_owned();
        self.write(move |conn| {
            Box::pin(async move {
                one_at_a_time(conn, KEYS).await?;
                let retired = conn
                    .execute(
                        "UPDATE task_key SET state = 'retired', \
                         revision = (SELECT MAX(revision) + 1 FROM task_key) \
                         WHERE public_key = $1 AND state <> 'active'",
                        args![&public_key],
                    )
                    .await?;
                if retired > 0 {
                    return audit::append(conn, now, &audit).await;
                }
                let sql = "SELECT state FROM task_key WHERE public_key = $1";
                match conn.first(sql, args![&public_key]).await? {
                    None => Err(StoreError::not_found("task key", &public_key)),
                    Some(_) => Err(StoreError::conflict(
                        ProblemCode::TaskKeyActive,
                        "this is the active signing key; stage and activate another one first",
                    )),
                }
            })
        })
        .await
    }
}

/// Keeps a key where there is none in `state`, of which there may be one. Answers whether it did.
async fn insert_key(
    conn: &mut Conn,
    public_key: &str,
    state: TaskKeyState,
) -> Result<bool, StoreError> {
    let sql = "INSERT INTO task_key (public_key, state, until, revision) VALUES \
               ($1, $2, NULL, (SELECT COALESCE(MAX(revision), 0) + 1 FROM task_key)) \
               ON CONFLICT DO NOTHING";
    Ok(conn.execute(sql, args![public_key, state.as_str()]).await? == 1)
}

async fn change(
    conn: &mut Conn,
    from: TaskKeyState,
    to: TaskKeyState,
    until: Option<Timestamp>,
) -> Result<(), StoreError> {
    conn.execute(
        "UPDATE task_key SET state = $2, until = $3, \
         revision = (SELECT MAX(revision) + 1 FROM task_key) WHERE state = $1",
        args![from.as_str(), to.as_str(), until],
    )
    .await
    .map(drop)
}
