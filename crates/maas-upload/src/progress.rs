//! What a region's `progress` says of bytes.
//!
//! `progress` is a percentage over all region controllers: each keeps the bytes that came to it, and
//! the sum is divided by the size times their number. So one of three that has all of a file shows
//! 33.3 until the others have copied it. How many there are shows in the first piece that was
//! acknowledged: what should be `n` bytes shows as a whole fraction of that.

/// Region controllers that are believed; more is no installation of MAAS.
const MOST_CONTROLLERS: u32 = 64;

/// Bytes of a file that `progress` percent of `size` are, where one of `controllers` gets them.
#[must_use]
#[expect(
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "53 bits hold the size of any image to the byte; negative becomes 0"
)]
pub fn received_bytes(progress: f64, size: u64, controllers: u32) -> u64 {
    (progress.max(0.0) / 100.0 * size as f64 * f64::from(controllers)).round() as u64
}

/// How many region controllers `progress` is spread over, when `acknowledged` bytes of `size` are
/// known to be there; none where no number explains it.
#[must_use]
pub fn region_controllers(progress: f64, acknowledged: u64, size: u64) -> Option<u32> {
    (1..=MOST_CONTROLLERS).find(|count| received_bytes(progress, size, *count) == acknowledged)
}

/// What became of a piece whose answer is missing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ChunkVerdict {
    /// The region has it.
    Taken,
    /// The region does not have it, or not yet.
    Absent,
    /// The region has something else than the file's beginning: bytes of somebody else, or a piece
    /// twice.
    Diverged,
}

/// Judges a piece of `length` bytes at `offset` by the bytes that the region has of the file. Where
/// the piece ends the file, more may show: other controllers copy what is whole.
#[must_use]
pub fn judge(received: u64, offset: u64, length: u64, size: u64) -> ChunkVerdict {
    let end = offset + length;
    match received {
        _ if received == end || (end == size && received > end) => ChunkVerdict::Taken,
        _ if received == offset => ChunkVerdict::Absent,
        _ => ChunkVerdict::Diverged,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    #[test]
    fn percent_becomes_the_exact_number_of_bytes() {
        for size in [1, 7, 4 * MIB + 1, 6_442_450_944, 87_654_321_012] {
            for received in [0, 1, size / 3, size / 2, size - 1, size] {
                for controllers in [1, 2, 3, 5] {
                    #[expect(clippy::cast_precision_loss, reason = "as a region computes it")]
                    let shown = 100.0 * received as f64 / (size as f64 * f64::from(controllers));
                    assert_eq!(received_bytes(shown, size, controllers), received);
                }
            }
        }
        assert_eq!(received_bytes(-1.0, 10, 1), 0);
    }

    #[test]
    fn the_first_acknowledged_piece_tells_how_many_controllers_there_are() {
        let size = 1000 * MIB;
        assert_eq!(region_controllers(0.4, 4 * MIB, size), Some(1));
        assert_eq!(region_controllers(0.4 / 3.0, 4 * MIB, size), Some(3));
        assert_eq!(region_controllers(0.8, 4 * MIB, size), None, "twice what was sent");
        assert_eq!(region_controllers(0.0, 4 * MIB, size), None);
    }

    #[test]
    fn a_piece_is_there_or_not_or_something_else_is() {
        let (offset, length, size) = (8 * MIB, 4 * MIB, 20 * MIB);
        let judged = |received: u64| judge(received, offset, length, size);
        assert_eq!(judged(12 * MIB), ChunkVerdict::Taken);
        assert_eq!(judged(8 * MIB), ChunkVerdict::Absent);
        for received in [0, 9 * MIB, 16 * MIB, 20 * MIB] {
            assert_eq!(judged(received), ChunkVerdict::Diverged, "{received}");
        }
        // The last piece, which two more controllers copy.
        assert_eq!(judge(50 * MIB, 16 * MIB, 4 * MIB, size), ChunkVerdict::Taken);
    }
}
