//! Authorities that sign nodes' certificates, and how one takes over from another.
//!
//! One is active. A new one is staged first, so that nodes learn to trust it while the old one still
//! signs; activated, it signs, and the old one is trusted until it is retired. Keys are sealed; the first
//! one lies where control planes of before look for it.

use async_recursion::async_recursion as boxed;
use gpuaas_types::api::{AuthorityState, AuthorityView};
use gpuaas_types::codes::ProblemCode;
use gpuaas_types::{NodeId, Timestamp};
use secrecy::SecretString;
use uuid::Uuid;

use crate::audit::rows::{self as audit, NewAuditEntry};
use crate::database::schema::meta::{one_at_a_time, set as set_meta};
use crate::database::{Conn, Row, args};
use crate::error::StoreError;
use crate::identity::secret::rows::{delete_secret, put_secret};
use crate::store::Store;

/// Lock under which authorities change.
const LOCK: &str = "certificate_authority_lock";
/// The migration that a control plane has to know which follows several authorities.
const MIGRATION: i64 = 470;
/// Name of the first one's key.
const FIRST_KEY: &str = "node_authority";

/// An authority to be kept.
#[derive(Debug, Clone)]
pub struct NewAuthority {
    /// Its certificate, PEM.
    pub certificate_pem: String,
    /// SHA-256 of the certificate's DER, hexadecimal.
    pub digest: String,
    /// Last moment of the certificate.
    pub not_after: Timestamp,
    /// Its key, certified by the active one, PEM; none: it is the first.
    pub cross_pem: Option<String>,
}

/// An authority that is or was kept.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredAuthority {
    /// What operators see.
    pub view: AuthorityView,
    /// Its certificate, PEM.
    pub certificate_pem: String,
    /// Its key, certified by the one before it, PEM.
    pub cross_pem: Option<String>,
}

/// Hostnames of nodes that another authority's take-over would leave behind.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct AuthorityLaggards {
    /// Those whose agents have not said that they have the bundle of trust anchors.
    pub without_bundle: Vec<String>,
    /// Those with a live certificate of a former authority alone.
    pub with_former_certificate: Vec<String>,
    /// Those that may still enroll with user-data of before the next authority was staged.
    pub to_enroll: Vec<String>,
}

fn key_name(generation: i64) -> String {
    match generation {
        1 => FIRST_KEY.to_owned(),
        other => format!("{FIRST_KEY}/{other}"),
    }
}

fn read(row: &Row) -> Result<StoredAuthority, StoreError> {
    let mut cols = row.cols();
    Ok(StoredAuthority {
        view: AuthorityView {
            generation: cols.next()?,
            state: cols.enum_str()?,
            digest: cols.next()?,
            not_after: cols.at()?,
            staged_at: cols.at()?,
            activated_at: cols.opt_at()?,
            retired_at: cols.opt_at()?,
        },
        certificate_pem: cols.next()?,
        cross_pem: cols.next()?,
    })
}

async fn all(conn: &mut Conn) -> Result<Vec<StoredAuthority>, StoreError> {
    let sql = "SELECT generation, state, digest, not_after, staged_at, activated_at, retired_at, \
               certificate_pem, cross_pem FROM certificate_authority ORDER BY generation";
    conn.all(sql, args![]).await?.iter().map(read).collect()
}

async fn insert(
    conn: &mut Conn,
    now: Timestamp,
    (generation, state): (i64, AuthorityState),
    new: &NewAuthority,
) -> Result<bool, StoreError> {
    let activated = Some(now).filter(|_| state == AuthorityState::Active);
    let sql = "INSERT INTO certificate_authority (generation, state, certificate_pem, cross_pem, \
               digest, not_after, staged_at, activated_at) VALUES ($1, $2, $3, $4, $5, $6, $7, $8) \
               ON CONFLICT DO NOTHING";
    let NewAuthority { certificate_pem, digest, not_after, cross_pem } = new;
    let values = args![
        generation,
        state.as_str(),
        certificate_pem,
        cross_pem.as_deref(),
        digest,
        *not_after,
        now,
        activated
    ];
    Ok(conn.execute(sql, values).await? == 1)
}

/// Hostnames of nodes with a live certificate whose agents do not have the bundle of this digest.
async fn without_bundle(
    conn: &mut Conn,
    now: Timestamp,
    digest: &str,
) -> Result<Vec<String>, StoreError> {
    let sql = "SELECT DISTINCT n.hostname FROM node_certificate AS c JOIN node AS n \
               ON n.id = c.node_id LEFT JOIN heartbeat AS h ON h.node_id = c.node_id \
               WHERE c.ended_as IS NULL AND c.not_after > $1 \
               AND COALESCE(h.trust_digest, '') <> $2 ORDER BY n.hostname";
    names(&conn.all(sql, args![now, digest]).await?)
}

/// Hostnames of nodes that may enroll with user-data of before `staged_at`.
async fn to_enroll(
    conn: &mut Conn,
    now: Timestamp,
    staged_at: Timestamp,
) -> Result<Vec<String>, StoreError> {
    let sql = "SELECT DISTINCT n.hostname FROM token AS t JOIN node AS n ON n.id = t.node_id \
               WHERE t.purpose = 'enrollment' AND t.used_at IS NULL AND t.revoked_at IS NULL \
               AND COALESCE(t.expires_at, $2) >= $2 AND t.created_at < $1 ORDER BY n.hostname";
    names(&conn.all(sql, args![staged_at, now]).await?)
}

/// Hostnames of nodes with a live certificate of an authority before this generation.
async fn of_former(
    conn: &mut Conn,
    now: Timestamp,
    generation: i64,
) -> Result<Vec<String>, StoreError> {
    let sql = "SELECT DISTINCT n.hostname FROM node_certificate AS c JOIN node AS n \
               ON n.id = c.node_id WHERE c.ended_as IS NULL AND c.not_after > $1 \
               AND c.authority < $2 AND NOT EXISTS (SELECT 1 FROM node_certificate AS d \
               WHERE d.node_id = c.node_id AND d.ended_as IS NULL AND d.authority >= $2 \
               AND d.not_after > $1) ORDER BY n.hostname";
    names(&conn.all(sql, args![now, generation]).await?)
}

/// Has control planes end, or not start, that know one authority alone: they would refuse what the next
/// one signs, and hand out the first one's anchor.
async fn raise_floor(conn: &mut Conn) -> Result<(), StoreError> {
    let sql = "SELECT value FROM store_meta WHERE name = 'schema_floor'";
    let floor: Option<String> =
        conn.first(sql, args![]).await?.map(|row| row.cols().next()).transpose()?;
    if floor.and_then(|floor| floor.parse::<i64>().ok()).is_some_and(|floor| floor >= MIGRATION) {
        return Ok(());
    }
    set_meta(conn, "schema_floor", &MIGRATION.to_string()).await
}

fn names(rows: &[Row]) -> Result<Vec<String>, StoreError> {
    rows.iter().map(|row| row.cols().next()).collect()
}

fn of_state(all: &[StoredAuthority], state: AuthorityState) -> Option<&StoredAuthority> {
    all.iter().find(|one| one.view.state == state)
}

/// When user-data began to carry the authority that takes over; none: no take-over is under way.
fn taken_over_since(all: &[StoredAuthority]) -> Option<Timestamp> {
    let retiring = of_state(all, AuthorityState::Retiring);
    let next = retiring.and_then(|_| of_state(all, AuthorityState::Active));
    next.or(of_state(all, AuthorityState::Staged)).map(|next| next.view.staged_at)
}

/// Refuses where nodes would be left behind.
fn check_left(mut left: Vec<String>, code: ProblemCode, why: &str) -> Result<(), StoreError> {
    left.sort();
    left.dedup();
    if left.is_empty() {
        return Ok(());
    }
    let shown = left.iter().take(20).cloned().collect::<Vec<_>>().join(", ");
    let more = left.len().saturating_sub(20);
    let more = if more > 0 { format!(" and {more} more") } else { String::new() };
    Err(StoreError::conflict(code, format!("{why}: {shown}{more}")))
}

impl Store {
    /// Every authority, oldest first.
    ///
    /// # Errors
    /// [`StoreError::Unavailable`] or [`StoreError::Corrupt`].
    #[boxed]
    pub async fn authorities(&self) -> Result<Vec<StoredAuthority>, StoreError> {
        all(&mut self.reader().await?).await
    }

    /// The key and the certificate of an authority that is not retired, PEM.
    ///
    /// # Errors
    /// [`StoreError::NotFound`]; [`StoreError::Unavailable`] or [`StoreError::Corrupt`].
    #[boxed]
    pub async fn authority_key(&self, generation: i64) -> Result<SecretString, StoreError> {
        let kept = self.secret(Uuid::nil(), &key_name(generation)).await?;
        kept.ok_or_else(|| StoreError::not_found("certificate authority", generation))
    }

    /// Notes the first authority, whose key is kept, as the active one. Does nothing where there is one.
    ///
    /// # Errors
    /// [`StoreError::Unavailable`] or [`StoreError::Corrupt`].
    #[boxed]
    pub async fn note_first_authority(
        &self,
        now: Timestamp,
        new: NewAuthority,
    ) -> Result<(), StoreError> {
        self.write(move |conn| {
            Box::pin(
                async move { insert(conn, now, (1, AuthorityState::Active), &new).await.map(drop) },
            )
        })
        .await
    }

    /// Keeps the next authority, which signs nothing yet. Answers its generation.
    ///
    /// # Errors
    /// `authority_staged` while another one takes over; [`StoreError::Unavailable`] or
    /// [`StoreError::Corrupt`].
    #[boxed]
    pub async fn stage_authority(
        &self,
        now: Timestamp,
        generation: i64,
        new: NewAuthority,
        key: &SecretString,
        audit: NewAuditEntry,
    ) -> Result<(), StoreError> {
        let name = key_name(generation);
        let sealed = self.seal(Uuid::nil(), &name, key)?;
        self.write(move |conn| {
            Box::pin(async move {
                one_at_a_time(conn, LOCK).await?;
                let known = all(conn).await?;
                let under_way = known.iter().find(|one| {
                    matches!(one.view.state, AuthorityState::Staged | AuthorityState::Retiring)
                });
                if let Some(StoredAuthority { view, .. }) = under_way {
                    let detail = format!("authority {} is {}", view.generation, view.state);
                    return Err(StoreError::conflict(ProblemCode::AuthorityStaged, detail));
                }
                if !insert(conn, now, (generation, AuthorityState::Staged), &new).await? {
                    let detail = format!("authority {generation} already exists");
                    return Err(StoreError::conflict(ProblemCode::AuthorityStaged, detail));
                }
                raise_floor(conn).await?;
                put_secret(conn, Uuid::nil(), &name, sealed).await?;
                audit::append(conn, now, &audit).await
            })
        })
        .await
    }

    /// Lets the staged authority sign; its generation is the subject of the audit entry. `trust_digest`: what every agent has to have; none: agents are
    /// given no bundle, or nodes are left behind.
    ///
    /// # Errors
    /// `no_authority_staged`; `authority_not_trusted`, which names the nodes;
    /// [`StoreError::Unavailable`] or [`StoreError::Corrupt`].
    #[boxed]
    pub async fn activate_authority(
        &self,
        now: Timestamp,
        trust_digest: Option<String>,
        audit: NewAuditEntry,
    ) -> Result<(), StoreError> {
        self.write(move |conn| {
            Box::pin(async move {
                one_at_a_time(conn, LOCK).await?;
                let known = all(conn).await?;
                let Some(staged) = of_state(&known, AuthorityState::Staged) else {
                    let detail = "no certificate authority is staged";
                    return Err(StoreError::conflict(ProblemCode::NoAuthorityStaged, detail));
                };
                if let Some(digest) = trust_digest {
                    let mut left = without_bundle(conn, now, &digest).await?;
                    left.extend(to_enroll(conn, now, staged.view.staged_at).await?);
                    let why = "these nodes do not trust the staged certificate authority yet";
                    check_left(left, ProblemCode::AuthorityNotTrusted, why)?;
                }
                let sql = "UPDATE certificate_authority SET state = 'retiring' \
                           WHERE state = 'active'";
                conn.execute(sql, args![]).await?;
                let sql = "UPDATE certificate_authority SET state = 'active', activated_at = $1 \
                           WHERE state = 'staged'";
                conn.execute(sql, args![now]).await?;
                let subject = staged.view.generation.to_string();
                audit::append(conn, now, &NewAuditEntry { subject, ..audit }).await
            })
        })
        .await
    }

    /// Ends the trust in the authority that signs no more, or in a staged one; what it signed counts no
    /// more, and its key is deleted. `trust_digest` as for [`Self::activate_authority`].
    ///
    /// # Errors
    /// `no_authority_retiring`; `authority_in_use`, which names the nodes;
    /// [`StoreError::Unavailable`] or [`StoreError::Corrupt`].
    #[boxed]
    pub async fn retire_authority(
        &self,
        now: Timestamp,
        trust_digest: Option<String>,
        audit: NewAuditEntry,
    ) -> Result<i64, StoreError> {
        self.write(move |conn| {
            Box::pin(async move {
                one_at_a_time(conn, LOCK).await?;
                let known = all(conn).await?;
                let retiring = of_state(&known, AuthorityState::Retiring);
                let Some(leaves) = retiring.or(of_state(&known, AuthorityState::Staged)) else {
                    let detail = "only the active certificate authority is trusted";
                    return Err(StoreError::conflict(ProblemCode::NoAuthorityRetiring, detail));
                };
                let generation = leaves.view.generation;
                if let (Some(digest), Some(_)) = (trust_digest, retiring) {
                    let mut left = of_former(conn, now, generation + 1).await?;
                    left.extend(without_bundle(conn, now, &digest).await?);
                    if let Some(since) = taken_over_since(&known) {
                        left.extend(to_enroll(conn, now, since).await?);
                    }
                    let why = "these nodes have a certificate from it, trust no other authority, \
                               or may still enroll with older user-data";
                    check_left(left, ProblemCode::AuthorityInUse, why)?;
                }
                let sql = "UPDATE node_certificate SET ended_as = 'revoked', ended_at = $2, \
                           end_reason = 'its certificate authority was retired' \
                           WHERE authority = $1 AND ended_as IS NULL";
                conn.execute(sql, args![generation, now]).await?;
                let sql = "UPDATE certificate_authority SET state = 'retired', retired_at = $2 \
                           WHERE generation = $1";
                conn.execute(sql, args![generation, now]).await?;
                delete_secret(conn, Uuid::nil(), &key_name(generation)).await?;
                let subject = generation.to_string();
                audit::append(conn, now, &NewAuditEntry { subject, ..audit }).await?;
                Ok(generation)
            })
        })
        .await
    }

    /// Whom a take-over would leave behind: nodes whose agents do not have the bundle of trust anchors of
    /// this digest, those with a live certificate of an authority before `generation` alone, and those
    /// that may still enroll with user-data of before.
    ///
    /// # Errors
    /// [`StoreError::Unavailable`] or [`StoreError::Corrupt`].
    #[boxed]
    pub async fn authority_laggards(
        &self,
        now: Timestamp,
        trust_digest: Option<&str>,
        generation: i64,
    ) -> Result<AuthorityLaggards, StoreError> {
        let mut reader = self.reader().await?;
        let mut laggards = AuthorityLaggards {
            with_former_certificate: of_former(&mut reader, now, generation).await?,
            ..AuthorityLaggards::default()
        };
        if let Some(digest) = trust_digest {
            laggards.without_bundle = without_bundle(&mut reader, now, digest).await?;
            if let Some(since) = taken_over_since(&all(&mut reader).await?) {
                laggards.to_enroll = to_enroll(&mut reader, now, since).await?;
            }
        }
        Ok(laggards)
    }

    /// Notes which bundle of trust anchors a node's agent has.
    ///
    /// # Errors
    /// [`StoreError::Unavailable`] or [`StoreError::Corrupt`].
    #[boxed]
    pub async fn note_trust_digest(&self, node_id: NodeId, digest: &str) -> Result<(), StoreError> {
        let digest = digest.to_owned();
        self.write(move |conn| {
            Box::pin(async move {
                let sql = "UPDATE heartbeat SET trust_digest = $2 \
                           WHERE node_id = $1 AND trust_digest <> $2";
                conn.execute(sql, args![node_id.0, &digest]).await.map(drop)
            })
        })
        .await
    }
}
