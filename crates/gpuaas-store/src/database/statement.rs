//! Texts of statements: lists of values, and what the two databases say differently.

use std::borrow::Cow;
use std::fmt::Write as _;

/// Text of a statement, with `$1` placeholders and `{LIST}`, `{SKIP}`, `{LOCK}`,
/// `{LOCK_KEY}`, `{SHARE_NODE}`, `{SHARE_NODE_SKIP}` or `{NOW}`.
pub(crate) type Sql = Cow<'static, str>;

/// `text` with `{LIST}` replaced by `$first, $first+1, ...` for `count` values.
pub(crate) fn with_list(text: &str, first: usize, count: usize) -> Sql {
    let mut list = String::with_capacity(count * 5);
    for n in first..first + count {
        if n > first {
            list.push(',');
        }
        write!(list, "${n}").unwrap_or_default();
    }
    Cow::Owned(text.replace("{LIST}", &list))
}

/// The values in chunks of at most 256, each padded to a power of two with its last value.
pub(crate) fn padded<T: Copy>(ids: impl IntoIterator<Item = T>) -> Vec<Vec<T>> {
    let ids: Vec<T> = ids.into_iter().collect();
    ids.chunks(256)
        .map(|chunk| {
            let mut chunk = chunk.to_vec();
            if let Some(last) = chunk.last().copied() {
                chunk.resize(chunk.len().next_power_of_two(), last);
            }
            chunk
        })
        .collect()
}

/// The database's clock, in microseconds.
const NOW_ON_POSTGRES: &str = "CAST(EXTRACT(EPOCH FROM clock_timestamp()) * 1000000 AS BIGINT)";
const NOW_ON_SQLITE: &str = "CAST(unixepoch('subsec') * 1000000 AS INTEGER)";

/// `sql` as the database wants it. To SQLite `$2` is a name, which it looks for among all others; `?2`
/// is a number.
pub(crate) fn in_dialect(sql: Sql, postgres: bool) -> Sql {
    let sql = if postgres { sql } else { Cow::Owned(sql.replace('$', "?")) };
    if !sql.contains('{') {
        return sql;
    }
    let of = |clause| if postgres { clause } else { "" };
    let sql = sql
        .replace("{SKIP}", of("FOR NO KEY UPDATE SKIP LOCKED"))
        .replace("{LOCK}", of("FOR NO KEY UPDATE"))
        .replace("{LOCK_KEY}", of("FOR UPDATE"))
        .replace("{SHARE_NODE}", of("FOR SHARE OF node"))
        .replace("{SHARE_NODE_SKIP}", of("FOR SHARE OF node SKIP LOCKED"))
        .replace("{NOW}", if postgres { NOW_ON_POSTGRES } else { NOW_ON_SQLITE });
    Cow::Owned(sql)
}
