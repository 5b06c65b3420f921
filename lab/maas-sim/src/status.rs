//! The 23 states of a MAAS machine and the table of transitions that the region allows
//! (docs/maas.md#statuses, docs/maas.md#transitions).

/// What MAAS says about a machine. Discriminants are MAAS's own numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u8)]
#[expect(missing_docs, reason = "the labels of the table below say what each is")]
pub enum Status {
    New = 0,
    Commissioning = 1,
    FailedCommissioning = 2,
    Missing = 3,
    Ready = 4,
    Reserved = 5,
    Deployed = 6,
    Retired = 7,
    Broken = 8,
    Deploying = 9,
    Allocated = 10,
    FailedDeployment = 11,
    Releasing = 12,
    FailedReleasing = 13,
    DiskErasing = 14,
    FailedDiskErasing = 15,
    RescueMode = 16,
    EnteringRescueMode = 17,
    FailedEnteringRescueMode = 18,
    ExitingRescueMode = 19,
    FailedExitingRescueMode = 20,
    Testing = 21,
    FailedTesting = 22,
}

use Status as S;

struct Row {
    status: Status,
    label: &'static str,
    filter_name: &'static str,
    next: &'static [Status],
}

const PREVIOUS_AFTER_RESCUE: &[Status] = &[
    S::New,
    S::FailedCommissioning,
    S::Missing,
    S::Ready,
    S::Reserved,
    S::Deployed,
    S::Retired,
    S::Broken,
    S::Allocated,
    S::FailedDeployment,
    S::FailedReleasing,
    S::FailedDiskErasing,
    S::RescueMode,
    S::FailedEnteringRescueMode,
    S::FailedExitingRescueMode,
    S::FailedTesting,
];

const PREVIOUS_AFTER_TESTING: &[Status] = &[
    S::New,
    S::Commissioning,
    S::Missing,
    S::Ready,
    S::Reserved,
    S::Deployed,
    S::Retired,
    S::Broken,
    S::Allocated,
    S::FailedDeployment,
    S::FailedReleasing,
    S::FailedDiskErasing,
    S::FailedEnteringRescueMode,
    S::FailedExitingRescueMode,
    S::FailedTesting,
];

const DEPLOYED_NEXT: &[Status] = &[
    S::Allocated,
    S::Missing,
    S::Broken,
    S::Ready,
    S::DiskErasing,
    S::Releasing,
    S::EnteringRescueMode,
    S::Testing,
];

#[rustfmt::skip]
const TABLE: &[Row] = &[
    Row { status: S::New, label: "New", filter_name: "new", next: &[S::Commissioning, S::Testing, S::Missing, S::Ready, S::Retired, S::Broken, S::EnteringRescueMode] },
    Row { status: S::Commissioning, label: "Commissioning", filter_name: "commissioning", next: &[S::FailedCommissioning, S::Ready, S::Retired, S::Missing, S::New, S::Broken, S::Testing] },
    Row { status: S::FailedCommissioning, label: "Failed commissioning", filter_name: "failed_commissioning", next: &[S::Commissioning, S::Missing, S::Retired, S::Broken, S::EnteringRescueMode, S::Testing] },
    Row { status: S::Missing, label: "Missing", filter_name: "missing", next: &[S::New, S::Ready, S::Allocated, S::Commissioning, S::Broken, S::EnteringRescueMode, S::Testing] },
    Row { status: S::Ready, label: "Ready", filter_name: "ready", next: &[S::EnteringRescueMode, S::Commissioning, S::Allocated, S::Reserved, S::Retired, S::Missing, S::Broken, S::Testing] },
    Row { status: S::Reserved, label: "Reserved", filter_name: "reserved", next: &[S::Ready, S::Allocated, S::Retired, S::Missing, S::Broken, S::DiskErasing, S::Releasing, S::EnteringRescueMode, S::Testing] },
    Row { status: S::Deployed, label: "Deployed", filter_name: "deployed", next: DEPLOYED_NEXT },
    Row { status: S::Retired, label: "Retired", filter_name: "retired", next: &[S::New, S::Ready, S::Missing, S::Broken, S::EnteringRescueMode, S::Testing] },
    Row { status: S::Broken, label: "Broken", filter_name: "broken", next: &[S::Commissioning, S::Ready, S::DiskErasing, S::Releasing, S::EnteringRescueMode, S::Testing, S::Deployed] },
    Row { status: S::Deploying, label: "Deploying", filter_name: "deploying", next: &[S::Allocated, S::Missing, S::Broken, S::FailedDeployment, S::Deployed, S::Ready, S::DiskErasing, S::Releasing] },
    Row { status: S::Allocated, label: "Allocated", filter_name: "allocated", next: &[S::Ready, S::Retired, S::Missing, S::Broken, S::Deploying, S::DiskErasing, S::Releasing, S::EnteringRescueMode, S::Testing] },
    Row { status: S::FailedDeployment, label: "Failed deployment", filter_name: "failed_deployment", next: DEPLOYED_NEXT },
    Row { status: S::Releasing, label: "Releasing", filter_name: "releasing", next: &[S::New, S::Allocated, S::Reserved, S::Deployed, S::Ready, S::Broken, S::Missing, S::FailedDeployment, S::FailedDiskErasing, S::FailedReleasing] },
    Row { status: S::FailedReleasing, label: "Releasing failed", filter_name: "failed_releasing", next: &[S::Releasing, S::DiskErasing, S::Ready, S::Broken, S::Testing] },
    Row { status: S::DiskErasing, label: "Disk erasing", filter_name: "disk_erasing", next: &[S::Broken, S::DiskErasing, S::FailedDiskErasing, S::Ready, S::Releasing] },
    Row { status: S::FailedDiskErasing, label: "Failed disk erasing", filter_name: "failed_disk_erasing", next: &[S::DiskErasing, S::Releasing, S::Broken, S::Allocated, S::Ready, S::EnteringRescueMode, S::Testing] },
    Row { status: S::RescueMode, label: "Rescue mode", filter_name: "rescue_mode", next: &[S::Broken, S::ExitingRescueMode, S::Testing] },
    Row { status: S::EnteringRescueMode, label: "Entering rescue mode", filter_name: "entering_rescue_mode", next: &[S::Ready, S::Broken, S::Deployed, S::RescueMode, S::FailedEnteringRescueMode, S::ExitingRescueMode] },
    Row { status: S::FailedEnteringRescueMode, label: "Failed to enter rescue mode", filter_name: "failed_entering_rescue_mode", next: &[S::Broken, S::EnteringRescueMode, S::ExitingRescueMode, S::Testing] },
    Row { status: S::ExitingRescueMode, label: "Exiting rescue mode", filter_name: "exiting_rescue_mode", next: PREVIOUS_AFTER_RESCUE },
    Row { status: S::FailedExitingRescueMode, label: "Failed to exit rescue mode", filter_name: "failed_exiting_rescue_mode", next: &[S::Broken, S::ExitingRescueMode, S::Testing] },
    Row { status: S::Testing, label: "Testing", filter_name: "testing", next: PREVIOUS_AFTER_TESTING },
    Row { status: S::FailedTesting, label: "Failed testing", filter_name: "failed_testing", next: &[S::Commissioning, S::Broken, S::Missing, S::EnteringRescueMode, S::Testing, S::Ready, S::Deployed] },
];

impl Status {
    /// Every state, in the order of MAAS's numbers.
    pub fn all() -> impl Iterator<Item = Status> {
        TABLE.iter().map(|row| row.status)
    }

    fn row(self) -> &'static Row {
        &TABLE[self as usize]
    }

    /// MAAS's number.
    #[must_use]
    pub fn code(self) -> i64 {
        self as i64
    }

    /// The text of `status_name`.
    #[must_use]
    pub fn label(self) -> &'static str {
        self.row().label
    }

    /// The word of the `status` list filter.
    #[must_use]
    pub fn filter_name(self) -> &'static str {
        self.row().filter_name
    }

    /// From the word of the list filter.
    #[must_use]
    pub fn from_filter_name(name: &str) -> Option<Status> {
        TABLE.iter().find(|row| row.filter_name == name).map(|row| row.status)
    }

    /// From MAAS's number.
    #[must_use]
    pub fn from_code(code: i64) -> Option<Status> {
        usize::try_from(code).ok().and_then(|i| TABLE.get(i)).map(|row| row.status)
    }

    /// From the text of `status_name`.
    #[must_use]
    pub fn from_label(label: &str) -> Option<Status> {
        TABLE.iter().find(|row| row.label == label).map(|row| row.status)
    }

    /// Whether MAAS's own table allows this change.
    #[must_use]
    pub fn may_become(self, next: Status) -> bool {
        self.row().next.contains(&next)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn table_is_in_number_order() {
        for (i, row) in TABLE.iter().enumerate() {
            assert_eq!(row.status.code(), i as i64);
            assert_eq!(Status::from_filter_name(row.filter_name), Some(row.status));
        }
    }
}
