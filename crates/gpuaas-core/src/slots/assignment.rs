//! Which device goes to which GPU: the assignment of least cost, found exactly.
//!
//! The Hungarian method in the form with potentials: for each row an alternating path of least cost,
//! O(rows² · columns). Eight GPUs and a hundred functions take some ten thousand steps.

/// How well a device suits a GPU: a lower tier always wins, then the lower distance.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Preference {
    /// Class of the device, from 0; at most 9.
    pub(super) tier: u8,
    /// Distance of the device; at most a million.
    pub(super) distance: u32,
}

/// Cost of leaving a GPU without a device; no assignment of all is as dear.
const NOTHING: i128 = 10_i128.pow(25);
/// Cost of a device that the GPU cannot have: worse than nothing.
const FORBIDDEN: i128 = 2 * NOTHING;
const TIER: i128 = 10_i128.pow(21);
const DISTANCE: i128 = 10_i128.pow(12);
/// What leaving a GPU without a device costs more than leaving the next one.
const LATER: i128 = 10_i128.pow(9);
/// What a device costs more than the one before it, beside which the GPUs keep their order.
const ORDER: i128 = 10_000;
/// Most devices and most GPUs, so that costs stay apart from each other.
const MAX_DEVICES: usize = 4096;
const MAX_ROWS: usize = 16;

/// For each of `rows` GPUs one of `columns` devices, or none. As many GPUs as can get one; of these
/// assignments the one of least cost; among equal ones the last GPUs go without, and the others have
/// the lowest devices in their order.
/// `None` from `preference`: the GPU cannot have the device. What is beyond 16 GPUs gets none.
pub(super) fn assign(
    rows: usize,
    columns: usize,
    preference: impl Fn(usize, usize) -> Option<Preference>,
) -> Vec<Option<usize>> {
    let (used_rows, used_columns) = (rows.min(MAX_ROWS), columns.min(MAX_DEVICES));
    let number = |at: usize| i128::try_from(at).unwrap_or(i128::MAX);
    let cost = |row: usize, column: usize| {
        // One column of nothing for each row.
        if column >= used_columns {
            return NOTHING + number(used_rows - row) * LATER;
        }
        preference(row, column).map_or(FORBIDDEN, |wish| {
            let order = number(column) * (ORDER + number(used_rows - row));
            i128::from(wish.tier) * TIER + i128::from(wish.distance) * DISTANCE + order
        })
    };
    let matrix: Vec<Vec<i128>> = (0..used_rows)
        .map(|row| (0..used_columns + used_rows).map(|column| cost(row, column)).collect())
        .collect();
    let mut chosen: Vec<Option<usize>> = least_cost(&matrix)
        .into_iter()
        .map(|column| (column < used_columns).then_some(column))
        .collect();
    chosen.resize(rows, None);
    chosen
}

/// The column of each row in an assignment of least sum; there are at least as many columns as rows.
fn least_cost(matrix: &[Vec<i128>]) -> Vec<usize> {
    let rows = matrix.len();
    let columns = matrix.first().map_or(0, Vec::len);
    // Rows and columns count from 1; 0 is the row that a search begins in.
    let mut row_potential = vec![0i128; rows + 1];
    let mut column_potential = vec![0i128; columns + 1];
    let mut row_of = vec![0usize; columns + 1];
    for row in 1..=rows {
        row_of[0] = row;
        let mut least = vec![i128::MAX; columns + 1];
        let mut before = vec![0usize; columns + 1];
        let mut used = vec![false; columns + 1];
        let mut column = 0;
        while row_of[column] != 0 {
            used[column] = true;
            let at = row_of[column];
            let (mut delta, mut next) = (i128::MAX, 0);
            for other in 1..=columns {
                if used[other] {
                    continue;
                }
                let reduced =
                    matrix[at - 1][other - 1] - row_potential[at] - column_potential[other];
                if reduced < least[other] {
                    (least[other], before[other]) = (reduced, column);
                }
                if least[other] < delta {
                    (delta, next) = (least[other], other);
                }
            }
            for other in 0..=columns {
                if used[other] {
                    row_potential[row_of[other]] += delta;
                    column_potential[other] -= delta;
                } else if least[other] < i128::MAX {
                    least[other] -= delta;
                }
            }
            column = next;
        }
        while column != 0 {
            row_of[column] = row_of[before[column]];
            column = before[column];
        }
    }
    let mut chosen = vec![0; rows];
    for (column, row) in row_of.iter().enumerate().skip(1).filter(|(_, row)| **row != 0) {
        chosen[row - 1] = column - 1;
    }
    chosen
}

#[cfg(test)]
mod tests {
    use super::*;

    fn near(distance: u32) -> Option<Preference> {
        Some(Preference { tier: 0, distance })
    }

    #[test]
    fn the_sum_is_least_and_not_each_choice() {
        // The first GPU is nearest to device 0, which is the only one near the second.
        let table = [[1, 2], [1, 9]];
        assert_eq!(assign(2, 2, |gpu, device| near(table[gpu][device])), [Some(1), Some(0)]);
    }

    #[test]
    fn equal_devices_go_in_order_and_lowest_first() {
        assert_eq!(assign(3, 5, |_, _| near(4)), [Some(0), Some(1), Some(2)]);
    }

    #[test]
    fn a_gpu_goes_without_where_there_is_nothing_for_it() {
        assert_eq!(assign(3, 2, |_, _| near(4)), [Some(0), Some(1), None]);
        assert_eq!(assign(2, 0, |_, _| near(4)), [None, None]);
        assert_eq!(assign(0, 2, |_, _| near(4)), []);
        let only_second = assign(2, 1, |gpu, _| if gpu == 1 { near(4) } else { None });
        assert_eq!(only_second, [None, Some(0)]);
    }

    #[test]
    fn a_better_tier_outweighs_any_distance() {
        let wish = |_: usize, device: usize| {
            Some(Preference {
                tier: u8::from(device == 0),
                distance: if device == 0 { 0 } else { 2650 },
            })
        };
        assert_eq!(assign(1, 2, wish), [Some(1)]);
    }

    /// Every assignment of four to five, tried one by one.
    #[test]
    fn no_other_assignment_costs_less() {
        fn best(table: &[[u32; 5]; 4], row: usize, used: [bool; 5]) -> u32 {
            if row == 4 {
                return 0;
            }
            let rest = |column: usize| {
                let mut used = used;
                used[column] = true;
                table[row][column] + best(table, row + 1, used)
            };
            (0..5).filter(|column| !used[*column]).map(rest).min().unwrap()
        }
        let mut state = 1u32;
        let mut draw = || {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            (state >> 16) % 40
        };
        for _ in 0..500 {
            let table: [[u32; 5]; 4] = std::array::from_fn(|_| std::array::from_fn(|_| draw()));
            let chosen = assign(4, 5, |row, column| near(table[row][column]));
            let sum: u32 = chosen.iter().enumerate().map(|(row, at)| table[row][at.unwrap()]).sum();
            assert_eq!(sum, best(&table, 0, [false; 5]), "{table:?}");
        }
    }
}
