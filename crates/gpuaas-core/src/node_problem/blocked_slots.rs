//! Slots of a host that cannot be used: which, why, and who can change that.

use std::collections::{BTreeMap, BTreeSet};

use gpuaas_types::Timestamp;
use gpuaas_types::api::Owner;
use gpuaas_types::codes::SlotBlockerCode;
use gpuaas_types::slot::{BlockerFixer, SlotBlocker, SlotMap};

/// Blockers that a problem names; `gpuaas slice map` has all of them.
const NAMED_BLOCKERS: usize = 4;
/// Command that looks at the host again, whose answer ends the problem.
const DISCOVER: &str = "`gpuaas slice discover NODE --wait`";

/// What the last discovery of a slice host found.
#[derive(Debug, Clone, Copy)]
pub struct BlockedSlots<'a> {
    /// When it was.
    pub observed_at: Timestamp,
    /// The map of it.
    pub map: &'a SlotMap,
    /// Numbers of the slots that an operator approved.
    pub approved: &'a BTreeSet<u32>,
}

/// What is said of slots that cannot be used.
pub(super) struct BlockedSlotsSummary {
    pub(super) text: String,
    pub(super) owner: Owner,
    /// With `NODE` in the place of the hostname.
    pub(super) next_action: String,
}

/// A blocker, and what has it.
struct NamedBlocker<'a> {
    blocker: &'a SlotBlocker,
    /// Slots, by number; empty: the whole host.
    slots: Vec<u32>,
}

impl BlockedSlots<'_> {
    /// Whether a slot with this blocker cannot be used. An operator approves a slot in spite of those that may
    /// be overridden.
    fn counts(&self, slot: u32, blocker: &SlotBlocker) -> bool {
        !(blocker.overridable && self.approved.contains(&slot))
    }

    /// None: every slot can be used, or waits for its approval alone.
    pub(super) fn summary(&self) -> Option<BlockedSlotsSummary> {
        let SlotMap { host_blockers, slots, .. } = self.map;
        let mut blocked = BTreeSet::new();
        let mut of_slots: BTreeMap<&str, NamedBlocker<'_>> = BTreeMap::new();
        for slot in slots {
            for blocker in slot.blockers.iter().filter(|one| self.counts(slot.index, one)) {
                blocked.insert(slot.index);
                let named = NamedBlocker { blocker, slots: Vec::new() };
                of_slots.entry(&blocker.code).or_insert(named).slots.push(slot.index);
            }
        }
        let of_host: Vec<NamedBlocker<'_>> = host_blockers
            .iter()
            .filter(|one| slots.is_empty() || slots.iter().any(|slot| self.counts(slot.index, one)))
            .map(|blocker| NamedBlocker { blocker, slots: Vec::new() })
            .collect();
        for blocker in &of_host {
            let with_it = slots.iter().filter(|slot| self.counts(slot.index, blocker.blocker));
            blocked.extend(with_it.map(|slot| slot.index));
        }
        // Of the host first, and then in the order of the table.
        let mut named: Vec<NamedBlocker<'_>> = of_slots.into_values().collect();
        named.sort_by_key(|one| SlotBlockerCode::from_code(&one.blocker.code));
        let named: Vec<NamedBlocker<'_>> = of_host.into_iter().chain(named).collect();
        let first = named.first()?;
        let row = SlotBlockerCode::from_code(&first.blocker.code).map(SlotBlockerCode::row);
        let shown: Vec<String> =
            named.iter().take(NAMED_BLOCKERS).map(NamedBlocker::text).collect();
        let more = match named.len().saturating_sub(NAMED_BLOCKERS) {
            0 => String::new(),
            more => format!("; and {more} more"),
        };
        let (count, all) = (blocked.len(), slots.len());
        let text = format!("{count} of {all} slots cannot be used: {}{more}", shown.join("; "));
        let advice = row
            .map_or("`gpuaas slice map NODE` lists the blockers: fix them", |row| row.next_action);
        Some(BlockedSlotsSummary {
            text,
            owner: owner_of(first.blocker.fixed_by),
            next_action: with_discovery(advice),
        })
    }
}

impl NamedBlocker<'_> {
    fn text(&self) -> String {
        let SlotBlocker { code, expected, seen, .. } = self.blocker;
        let of = match self.slots.as_slice() {
            [] => "the host".to_owned(),
            [one] => format!("slot {one}"),
            many => {
                let numbers: Vec<String> = many.iter().map(u32::to_string).collect();
                format!("slots {}", numbers.join(", "))
            }
        };
        format!("{code} on {of} (expected {expected}, found {seen})")
    }
}

const fn owner_of(fixer: BlockerFixer) -> Owner {
    match fixer {
        BlockerFixer::Hardware | BlockerFixer::Fabric => Owner::InfraOperator,
        BlockerFixer::Bundle => Owner::BundleOwner,
        BlockerFixer::Operator | BlockerFixer::Profile => Owner::PlatformOperator,
    }
}

/// An advice with the discovery that shows whether it helped, before its alternatives.
fn with_discovery(advice: &str) -> String {
    if advice.contains(DISCOVER) {
        return advice.to_owned();
    }
    match advice.split_once("; or ") {
        Some((first, rest)) => format!("{first}; then {DISCOVER}; or {rest}"),
        None => format!("{advice}; then {DISCOVER}"),
    }
}
