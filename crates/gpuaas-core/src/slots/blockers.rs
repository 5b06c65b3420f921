//! How a blocker is made of its row.

use gpuaas_types::codes::SlotBlockerCode;
use gpuaas_types::slot::SlotBlocker;

/// The blocker of `code`: what has to be there, and what is.
pub(super) fn blocker(
    code: SlotBlockerCode,
    expected: impl Into<String>,
    seen: impl Into<String>,
) -> SlotBlocker {
    let row = code.row();
    SlotBlocker {
        code: code.into(),
        expected: expected.into(),
        seen: seen.into(),
        fixed_by: row.fixed_by,
        overridable: row.overridable,
    }
}
