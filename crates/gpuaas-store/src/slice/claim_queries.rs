//! Claims as they stand, and whether slots, devices and claims fit each other.

use async_recursion::async_recursion as boxed;
use futures::future::BoxFuture;
use gpuaas_types::claim::ClaimedSlot;
use gpuaas_types::filter::{FilterList, ListFilter};
use gpuaas_types::{ClaimId, SiteId};

use crate::database::args;
use crate::database::list_filter::with_filter;
use crate::database::page::Page;
use crate::error::StoreError;
use crate::slice::claim_rows::{SlotClaim, devices, read_claim, select_claims};
use crate::store::Store;

/// Which claims to read.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct SlotClaimFilter<'a> {
    /// Only of this site.
    pub site_id: Option<SiteId>,
    /// Those that ended as well.
    pub ended: bool,
    /// Only those that this lets pass.
    pub expression: Option<&'a ListFilter>,
}

/// What does not fit between slots, devices and claims; all zero where nothing is wrong.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct SlotAccounts {
    /// Claims that are live.
    pub live_claims: u64,
    /// Slots that are claimed.
    pub claimed_slots: u64,
    /// Slots that no live claim has and that are not free all the same, or that are free with a claim.
    pub leaked_slots: u64,
    /// Devices of claims that are not live.
    pub leaked_devices: u64,
    /// Claims whose slots or devices are not theirs.
    pub broken_claims: u64,
}

impl Store {
    /// A claim.
    ///
    /// # Errors
    /// [`StoreError::NotFound`]; [`StoreError::Unavailable`] or [`StoreError::Corrupt`].
    #[boxed]
    pub async fn slot_claim(&self, id: ClaimId) -> Result<SlotClaim, StoreError> {
        let sql = select_claims!("WHERE slice_claim.id = $1");
        let row = self.reader().await?.first(sql, args![id.0]).await?;
        read_claim(row.ok_or_else(|| StoreError::not_found("claim", id))?.cols())
    }

    /// A page of claims, newest first.
    ///
    /// # Errors
    /// [`StoreError::Unavailable`] or [`StoreError::Corrupt`].
    pub fn slot_claims<'a>(
        &'a self,
        filter: SlotClaimFilter<'a>,
        page: Page<ClaimId>,
    ) -> BoxFuture<'a, Result<Vec<SlotClaim>, StoreError>> {
        Box::pin(async move {
            let sql = select_claims!(
                "WHERE ($1 IS NULL OR node.site_id = $1) AND ($2 OR slice_claim.ended_at IS NULL) \
                 AND ($3 IS NULL OR slice_claim.id < $3) {FILTER} ORDER BY slice_claim.id DESC LIMIT $4"
            );
            let SlotClaimFilter { site_id, ended, expression } = filter;
            let after = page.after.map(|id| id.0);
            let mut values = args![site_id.map(|id| id.0), ended, after, i64::from(page.limit)];
            let sql = with_filter(sql, FilterList::Claims, expression, &mut values)?;
            let rows = self.reader().await?.all(sql, values).await?;
            rows.iter().map(|row| read_claim(row.cols())).collect()
        })
    }

    /// Compares slots, devices and claims with each other.
    ///
    /// # Errors
    /// [`StoreError::Unavailable`] or [`StoreError::Corrupt`].
    #[boxed]
    pub async fn slot_accounts(&self) -> Result<SlotAccounts, StoreError> {
        const SQL: &str = "SELECT \
             (SELECT COUNT(*) FROM slice_claim WHERE ended_at IS NULL), \
             (SELECT COUNT(*) FROM slice_slot WHERE claim_id IS NOT NULL), \
             (SELECT COUNT(*) FROM slice_slot LEFT JOIN slice_claim AS claim \
             ON claim.id = slice_slot.claim_id AND claim.ended_at IS NULL \
             WHERE (claim.id IS NULL) <> (slice_slot.state \
             NOT IN ('reserved', 'preparing', 'in_use', 'releasing', 'cleanup_blocked')) \
             OR (slice_slot.claim_id IS NOT NULL AND claim.id IS NULL)), \
             (SELECT COUNT(*) FROM slice_claim_device AS device LEFT JOIN slice_slot AS slot \
             ON slot.node_id = device.node_id AND slot.slot_index = device.slot_index \
             WHERE device.kind <> 'node' \
             AND (slot.claim_id IS NULL OR slot.claim_id <> device.claim_id)) \
             + (SELECT COUNT(*) FROM slice_claim_device AS device LEFT JOIN slice_claim AS claim \
             ON claim.id = device.claim_id AND claim.ended_at IS NULL \
             WHERE device.kind = 'node' AND claim.id IS NULL)";
        let mut conn = self.reader().await?;
        let row = conn.first(SQL, Vec::new()).await?;
        let row = row.ok_or_else(|| StoreError::corrupt("accounts", "row is missing"))?;
        let mut cols = row.cols();
        let mut count = || -> Result<u64, StoreError> {
            Ok(u64::try_from(cols.next::<i64>()?).unwrap_or_default())
        };
        let mut accounts = SlotAccounts {
            live_claims: count()?,
            claimed_slots: count()?,
            leaked_slots: count()?,
            leaked_devices: count()?,
            broken_claims: 0,
        };
        let sql = "SELECT claim.id, claim.whole_node, claim.slots, (SELECT COUNT(*) FROM slice_slot AS slot \
                   WHERE slot.node_id = claim.node_id AND slot.claim_id = claim.id), \
                   (SELECT COUNT(*) FROM slice_claim_device AS device \
                   WHERE device.node_id = claim.node_id AND device.claim_id = claim.id) \
                   FROM slice_claim AS claim WHERE claim.ended_at IS NULL";
        for row in conn.all(sql, Vec::new()).await? {
            let mut cols = row.cols();
            let _ = cols.id(ClaimId)?;
            let whole_node: bool = cols.next()?;
            let slots: Vec<ClaimedSlot> = cols.json()?;
            let (held, with_devices): (i64, i64) = (cols.next()?, cols.next()?);
            let of_slots: usize = slots.iter().map(|slot| devices(slot).count()).sum();
            let wanted = of_slots + usize::from(whole_node);
            let fits = usize::try_from(held) == Ok(slots.len())
                && usize::try_from(with_devices) == Ok(wanted);
            accounts.broken_claims += u64::from(!fits);
        }
        Ok(accounts)
    }
}
