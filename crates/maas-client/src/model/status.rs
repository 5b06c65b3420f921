//! The statuses of a machine (docs/maas.md#statuses).

/// One status: its number, MAAS's label (`status_name`), and the name that list filters take.
pub type StatusRow = (i64, &'static str, &'static str);

/// Never commissioned.
pub const NEW: i64 = 0;
/// Commissioning scripts run.
pub const COMMISSIONING: i64 = 1;
/// A commissioning script failed or timed out.
pub const FAILED_COMMISSIONING: i64 = 2;
/// Not seen for long.
pub const MISSING: i64 = 3;
/// Free to allocate.
pub const READY: i64 = 4;
/// Set aside for later use.
pub const RESERVED: i64 = 5;
/// Runs its deployed system.
pub const DEPLOYED: i64 = 6;
/// Out of use.
pub const RETIRED: i64 = 7;
/// Marked broken by its owner.
pub const BROKEN: i64 = 8;
/// Being installed.
pub const DEPLOYING: i64 = 9;
/// Owned, not installed.
pub const ALLOCATED: i64 = 10;
/// The installation failed; must be released before the next.
pub const FAILED_DEPLOYMENT: i64 = 11;
/// Being released.
pub const RELEASING: i64 = 12;
/// The release failed.
pub const FAILED_RELEASING: i64 = 13;
/// Disks are being erased.
pub const DISK_ERASING: i64 = 14;
/// The erasure failed.
pub const FAILED_DISK_ERASING: i64 = 15;
/// In rescue mode.
pub const RESCUE_MODE: i64 = 16;
/// On the way into rescue mode.
pub const ENTERING_RESCUE_MODE: i64 = 17;
/// Did not get into rescue mode.
pub const FAILED_ENTERING_RESCUE_MODE: i64 = 18;
/// On the way out of rescue mode.
pub const EXITING_RESCUE_MODE: i64 = 19;
/// Did not get out of rescue mode.
pub const FAILED_EXITING_RESCUE_MODE: i64 = 20;
/// Test scripts run.
pub const TESTING: i64 = 21;
/// A test script failed.
pub const FAILED_TESTING: i64 = 22;

/// All statuses, each at the index of its number.
pub const TABLE: [StatusRow; 23] = [
    (NEW, "New", "new"),
    (COMMISSIONING, "Commissioning", "commissioning"),
    (FAILED_COMMISSIONING, "Failed commissioning", "failed_commissioning"),
    (MISSING, "Missing", "missing"),
    (READY, "Ready", "ready"),
    (RESERVED, "Reserved", "reserved"),
    (DEPLOYED, "Deployed", "deployed"),
    (RETIRED, "Retired", "retired"),
    (BROKEN, "Broken", "broken"),
    (DEPLOYING, "Deploying", "deploying"),
    (ALLOCATED, "Allocated", "allocated"),
    (FAILED_DEPLOYMENT, "Failed deployment", "failed_deployment"),
    (RELEASING, "Releasing", "releasing"),
    (FAILED_RELEASING, "Releasing failed", "failed_releasing"),
    (DISK_ERASING, "Disk erasing", "disk_erasing"),
    (FAILED_DISK_ERASING, "Failed disk erasing", "failed_disk_erasing"),
    (RESCUE_MODE, "Rescue mode", "rescue_mode"),
    (ENTERING_RESCUE_MODE, "Entering rescue mode", "entering_rescue_mode"),
    (FAILED_ENTERING_RESCUE_MODE, "Failed to enter rescue mode", "failed_entering_rescue_mode"),
    (EXITING_RESCUE_MODE, "Exiting rescue mode", "exiting_rescue_mode"),
    (FAILED_EXITING_RESCUE_MODE, "Failed to exit rescue mode", "failed_exiting_rescue_mode"),
    (TESTING, "Testing", "testing"),
    (FAILED_TESTING, "Failed testing", "failed_testing"),
];

/// The status number of a label, as status events carry it; `None` for an unknown label.
pub fn number_of_label(label: &str) -> Option<i64> {
    TABLE.iter().find(|row| row.1 == label).map(|row| row.0)
}

/// The name that list filters take for a status number; `None` for an unknown number.
pub fn filter_name(number: i64) -> Option<&'static str> {
    TABLE.iter().find(|row| row.0 == number).map(|row| row.2)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_their_places() {
        for (place, row) in TABLE.iter().enumerate() {
            assert_eq!(row.0, i64::try_from(place).unwrap());
            assert_eq!(number_of_label(row.1), Some(row.0));
            assert_eq!(filter_name(row.0), Some(row.2));
        }
        assert_eq!((number_of_label("ready"), filter_name(99)), (None, None));
    }
}
