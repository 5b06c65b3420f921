//! Which control plane changes the machines of a region.
//!
//! The mark in the region says it (`gpuaas_core::control_mark`). Whoever watches a site looks at the
//! mark when it begins and then once a minute, and writes it every five: a read and a fifth of a
//! write a minute, whatever the number of machines. The database remembers under which names it has
//! written, so its replicas, and who takes over from a watcher, are one control plane.
//!
//! A control plane that yielded, or does not know yet whether its database is a copy, makes no change
//! ([`refuses_change`]): its runs wait, and it goes on reading.

use gpuaas_core::control_mark::{
    ControlClaim, ControlDecision, ControlMark, ControlPace, ControlRecord, ControlState,
    decide_control,
};
use gpuaas_store::{NewAuditEntry, Store, StoreError};
use gpuaas_types::api::SiteControl;
use gpuaas_types::codes::WaitCode;
use gpuaas_types::{IdSource, SiteId, Timestamp};
use maas_client::{Client, Error as MaasError};

use crate::shared::Shared;
use crate::site::Site;
use crate::site::outage;
use crate::site::region_identity::{read_mark, write_mark};

/// Looks at the mark from one write to the next.
const LOOKS_PER_WRITE: f64 = 5.0;

/// What a look at the mark showed of the region itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct MarkSeen {
    /// The mark that was kept is gone.
    pub(crate) lost: bool,
    /// The mark is an older one of ours: the region was restored from a backup.
    pub(crate) restored: bool,
    /// Whether another control plane answers is not known yet.
    pub(crate) unconfirmed: bool,
}

fn pace(shared: &Shared) -> ControlPace {
    let look = shared.config.mark_seconds;
    ControlPace { look, renewal: look * LOOKS_PER_WRITE }
}

/// Looks at the mark of the region, which is known as `region`, and does what follows from it. None:
/// the region has not told.
///
/// # Errors
/// The store's.
pub(crate) async fn check_mark(
    shared: &Shared,
    site: &Site,
    region: &str,
) -> Result<Option<MarkSeen>, StoreError> {
    let (store, site_id) = (&shared.store, site.record.id);
    let plane = store.plane_identity().await?;
    let known = store.site_control(site_id).await?;
    let mark = site.read_promptly(|client| async move { read_mark(&client).await }).await;
    let mark = match mark {
        Ok(mark) => mark,
        Err(error) => {
            tracing::debug!(%error, "cannot read the control mark of the region");
            return Ok(None);
        }
    };
    let now = shared.clock.now();
    let lost = mark.is_none() && known.confirmed > 0;
    let seen = mark.and_then(|mark| mark.claim);
    let mut record = known.clone();
    record.note_seen(seen.as_ref());
    let look = decide_control(&record, &plane, seen.as_ref(), pace(shared), now);
    let mut claim = None;
    match look.decision {
        ControlDecision::Keep => {}
        ControlDecision::Become(state) => record.state = state,
        ControlDecision::Write(state) => {
            let writer = shared.ids.uuid(now).to_string();
            claim = Some(record.begin_write(&plane, writer, seen.as_ref(), now));
            record.state = state;
            if state == ControlState::Unconfirmed {
                record.challenged_at = Some(now);
            }
        }
    }
    if record != known {
        let control = store.site(site_id).await?.status.control;
        let control = describe(&record, seen.as_ref(), control, now);
        if !store
            .set_site_control(now, site_id, known.clone(), record.clone(), control, None)
            .await?
        {
            return Ok(None);
        }
    }
    if let Some(claim) = claim {
        let mark = ControlMark { region: region.to_owned(), claim: Some(claim) };
        let written = site.change(|client| async move { write_mark(&client, &mark).await }).await;
        if let Err(error) = written {
            tracing::debug!(%error, "cannot write the control mark of the region");
        }
    }
    tell_runs(shared, site_id, &known, &record).await?;
    let unconfirmed = record.state == ControlState::Unconfirmed;
    Ok(Some(MarkSeen { lost, restored: look.restored, unconfirmed }))
}

/// Lets runs go on, or holds them, where that has changed; what they wait for says why.
async fn tell_runs(
    shared: &Shared,
    site_id: SiteId,
    known: &ControlRecord,
    record: &ControlRecord,
) -> Result<(), StoreError> {
    match (known.may_change(), record.may_change()) {
        (true, false) => {
            tracing::warn!("another control plane now manages the machines of the region");
            shared.sites.set_changeable_until(site_id, Timestamp::EPOCH).await;
        }
        (false, true) => {
            tracing::info!("this control plane now manages the machines of the region")
        }
        _ => {}
    }
    if known.state != record.state {
        let runs = outage::waiting_runs(shared, site_id).await?;
        shared.store.wake(shared.clock.now(), runs).await?;
    }
    Ok(())
}

/// What the site's status says of it; none: machines are changed from here.
fn describe(
    record: &ControlRecord,
    seen: Option<&ControlClaim>,
    before: Option<SiteControl>,
    now: Timestamp,
) -> Option<SiteControl> {
    let code = wait_code(record)?;
    if let Some(before) = before.filter(|before| code == before.code.as_str()) {
        return Some(before);
    }
    let text = match seen.filter(|_| record.state == ControlState::Yielded) {
        Some(seen) => format!(
            "control plane {} manages the region (it wrote its mark at {}); this control plane \
             changes no machines",
            seen.plane, seen.at
        ),
        None => {
            "the database was copied or moved here: GPUaaS checks for a little more than a minute \
             whether another control plane manages the region, and changes no machines until \
             then"
                .to_owned()
        }
    };
    Some(SiteControl { code: code.into(), text, since: now })
}

/// What runs wait for that are about to change a machine; none: nothing.
fn wait_code(record: &ControlRecord) -> Option<WaitCode> {
    match record.state {
        ControlState::Unclaimed | ControlState::Held => None,
        ControlState::Unconfirmed => Some(WaitCode::SiteControlUnconfirmed),
        ControlState::Yielded => Some(WaitCode::SiteControlledElsewhere),
    }
}

/// Why no machine of the site may be changed from here; none: it may. That it may is remembered for
/// as long as another replica's change of a site's row.
///
/// # Errors
/// The store's.
pub(crate) async fn refuses_change(
    shared: &Shared,
    site_id: SiteId,
) -> Result<Option<SiteControl>, StoreError> {
    if shared.config.mark_seconds <= 0.0 || shared.sites.is_changeable(site_id).await {
        return Ok(None);
    }
    let record = shared.store.site_control(site_id).await?;
    let now = shared.clock.now();
    if record.may_change() {
        shared.sites.set_changeable(site_id).await;
        return Ok(None);
    }
    let known = shared.store.site(site_id).await?.status.control;
    Ok(describe(&record, None, known, now))
}

/// Why control was not taken.
#[derive(Debug, thiserror::Error)]
pub enum TakeControlError {
    /// The region's.
    #[error(transparent)]
    Maas(#[from] MaasError),
    /// The store's.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// Who has the region, as its mark says; none: this control plane, or nobody.
///
/// # Errors
/// The region's and the store's.
pub async fn other_control_plane(
    store: &Store,
    client: &Client,
    site_id: SiteId,
) -> Result<Option<ControlClaim>, TakeControlError> {
    let record = store.site_control(site_id).await?;
    let seen = read_mark(client).await?.and_then(|mark| mark.claim);
    Ok(seen.filter(|seen| !record.writers.contains(&seen.writer)))
}

/// Takes the region at an operator's word: whoever has it finds that out when it looks at the mark
/// next. The runs that waited for it go on. Answers whether the region and the database were as
/// they had just been read; else nothing is decided, and it may be tried again.
///
/// # Errors
/// The region's and the store's.
pub async fn take_control(
    store: &Store,
    client: &Client,
    ids: &dyn IdSource,
    (site_id, region): (SiteId, &str),
    now: Timestamp,
    audit: &NewAuditEntry,
) -> Result<bool, TakeControlError> {
    let plane = store.plane_identity().await?;
    let known = store.site_control(site_id).await?;
    let mark = read_mark(client).await?;
    let region = mark.as_ref().map_or_else(|| region.to_owned(), |mark| mark.region.clone());
    let seen = mark.and_then(|mark| mark.claim);
    let mut named = known.clone();
    let mut record = known.clone();
    record.take(seen.as_ref(), now);
    let claim = record.begin_write(&plane, ids.uuid(now).to_string(), seen.as_ref(), now);
    // The name goes first: the answer to the write may be lost. The entry goes with it: after a kill, a
    // region that was taken has one.
    named.writers.clone_from(&record.writers);
    let status = store.site(site_id).await?.status;
    let audit = Some(audit.clone());
    if !store.set_site_control(now, site_id, known, named.clone(), status.control, audit).await? {
        return Ok(false);
    }
    write_mark(client, &ControlMark { region, claim: Some(claim) }).await?;
    if !store.set_site_control(now, site_id, named, record, None, None).await? {
        return Ok(false);
    }
    let runs = outage::waiting_runs_of(store, site_id).await?;
    store.wake(now, runs).await?;
    Ok(true)
}
