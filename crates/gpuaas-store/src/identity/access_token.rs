//! Tokens of programs that use the admin API: named, with roles, and with an end.
//!
//! A token outlives no revocation: what is revoked stays as a row, so that the audit's names keep
//! their meaning, and gives its name up.

use async_recursion::async_recursion as boxed;
use gpuaas_types::access::{RoleGrant, TokenView};
use gpuaas_types::codes::ProblemCode;
use gpuaas_types::filter::{FilterList, ListFilter};
use gpuaas_types::{Timestamp, TokenId};

use crate::audit::rows::{self as audit, NewAuditEntry};
use crate::database::list_filter::with_filter;
use crate::database::{Cols, Val, args};
use crate::error::{StoreError, TokenRejection};
use crate::store::Store;

/// Seconds for which a use is not written down again: a busy program would write at every request.
const USE_SECONDS: f64 = 60.0;

const COLUMNS: &str = "id, name, grants, created_by, COALESCE(person, created_by), created_at, \
                       expires_at, last_used_at, revoked_at";

/// A token to be stored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewAccessToken {
    /// Identifier of the token.
    pub id: TokenId,
    /// SHA-256 of the token.
    pub hash: [u8; 32],
    /// Name of whoever gets it.
    pub name: String,
    /// What it may do.
    pub grants: Vec<RoleGrant>,
    /// Who had it made.
    pub created_by: String,
    /// The person behind it.
    pub person: String,
    /// Refused from then on; none: it has no end.
    pub expires_at: Option<Timestamp>,
}

fn view(mut cols: Cols<'_>) -> Result<TokenView, StoreError> {
    Ok(TokenView {
        id: cols.id(TokenId)?,
        name: cols.next()?,
        grants: cols.json()?,
        created_by: cols.next()?,
        person: cols.next()?,
        created_at: cols.at()?,
        expires_at: cols.opt_at()?,
        last_used_at: cols.opt_at()?,
        revoked_at: cols.opt_at()?,
    })
}

impl Store {
    /// Stores a token, and writes that down.
    ///
    /// # Errors
    /// `token_name_taken` where a token of this name is not revoked; [`StoreError::Unavailable`] or
    /// [`StoreError::Corrupt`].
    #[boxed]
    pub async fn add_access_token(
        &self,
        now: Timestamp,
        token: NewAccessToken,
        entry: NewAuditEntry,
    ) -> Result<TokenView, StoreError> {
        let row = token.clone();
        self.write(move |conn| {
            Box::pin(async move {
                let made = conn
                    .execute(
                        "INSERT INTO access_token (id, name, hash, grants, created_by, \
                         person, created_at, expires_at) \
                         VALUES ($1, $2, $3, $4, $5, $6, $7, $8) \
                         ON CONFLICT DO NOTHING",
                        vec![
                            row.id.0.into(),
                            (&row.name).into(),
                            (&row.hash).into(),
                            Val::json(&row.grants)?,
                            (&row.created_by).into(),
                            (&row.person).into(),
                            now.into(),
                            row.expires_at.into(),
                        ],
                    )
                    .await?;
                if made == 0 {
                    let detail = format!("a token named {} already exists", row.name);
                    return Err(StoreError::conflict(ProblemCode::TokenNameTaken, detail));
                }
                audit::append(conn, now, &entry).await
            })
        })
        .await?;
        Ok(TokenView {
            id: token.id,
            name: token.name,
            grants: token.grants,
            created_by: token.created_by,
            person: token.person,
            created_at: now,
            expires_at: token.expires_at,
            last_used_at: None,
            revoked_at: None,
        })
    }

    /// Whose token this is, if it counts now. Its use is written down, at most once a minute.
    ///
    /// # Errors
    /// [`StoreError::Token`]; [`StoreError::Unavailable`] or [`StoreError::Corrupt`].
    #[boxed]
    pub async fn use_access_token(
        &self,
        now: Timestamp,
        hash: [u8; 32],
    ) -> Result<TokenView, StoreError> {
        let sql = format!("SELECT {COLUMNS} FROM access_token WHERE hash = $1");
        let row = self.reader().await?.first(sql, args![&hash]).await?;
        let row = row.ok_or(StoreError::Token(TokenRejection::Unknown))?;
        let token = view(row.cols())?;
        if token.revoked_at.is_some() {
            return Err(StoreError::Token(TokenRejection::Revoked));
        }
        if token.expires_at.is_some_and(|end| now >= end) {
            return Err(StoreError::Token(TokenRejection::Expired));
        }
        if token.last_used_at.is_none_or(|at| now.seconds_since(at) >= USE_SECONDS) {
            let id = token.id;
            self.write(move |conn| {
                Box::pin(async move {
                    let sql = "UPDATE access_token SET last_used_at = $2 WHERE id = $1";
                    conn.execute(sql, args![id.0, now]).await.map(drop)
                })
            })
            .await?;
        }
        Ok(token)
    }

    /// The name of the token with this hash, good or not; none: nobody was given it.
    ///
    /// # Errors
    /// [`StoreError::Unavailable`] or [`StoreError::Corrupt`].
    #[boxed]
    pub async fn access_token_name(&self, hash: [u8; 32]) -> Result<Option<String>, StoreError> {
        let sql = "SELECT name FROM access_token WHERE hash = $1";
        let row = self.reader().await?.first(sql, args![&hash]).await?;
        row.map(|row| row.cols().next()).transpose()
    }

    /// Every token, by name; those that are revoked last.
    ///
    /// # Errors
    /// [`StoreError::Unavailable`] or [`StoreError::Corrupt`].
    #[boxed]
    pub async fn access_tokens(&self) -> Result<Vec<TokenView>, StoreError> {
        self.list_access_tokens(None).await
    }

    /// The tokens that a filter lets pass, by name; those that are revoked last.
    ///
    /// # Errors
    /// [`StoreError::Unavailable`] or [`StoreError::Corrupt`].
    #[boxed]
    pub async fn list_access_tokens(
        &self,
        filter: Option<&ListFilter>,
    ) -> Result<Vec<TokenView>, StoreError> {
        let sql = format!(
            "SELECT {COLUMNS} FROM access_token WHERE TRUE {{FILTER}} \
             ORDER BY (revoked_at IS NOT NULL), name, created_at"
        );
        let mut values = args![];
        let sql = with_filter(&sql, FilterList::Tokens, filter, &mut values)?;
        let rows = self.reader().await?.all(sql, values).await?;
        rows.iter().map(|row| view(row.cols())).collect()
    }

    /// Revokes the token of this name, and writes that down.
    ///
    /// # Errors
    /// [`StoreError::NotFound`] where no token of this name counts; [`StoreError::Unavailable`] or
    /// [`StoreError::Corrupt`].
    #[boxed]
    pub async fn revoke_access_token(
        &self,
        now: Timestamp,
        name: &str,
        entry: NewAuditEntry,
    ) -> Result<(), StoreError> {
        let name = name.to_owned();
        self.write(move |conn| {
            Box::pin(async move {
                let sql = "UPDATE access_token SET revoked_at = $2 \
                           WHERE name = $1 AND revoked_at IS NULL";
                if conn.execute(sql, args![&name, now]).await? == 0 {
                    return Err(StoreError::not_found("access token", name));
                }
                audit::append(conn, now, &entry).await
            })
        })
        .await
    }
}
