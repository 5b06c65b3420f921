//! Statements that travel together.
//!
//! SQLite runs on a thread of its own. A statement takes it some microseconds; the way there and
//! back, with two wake-ups of a thread, takes several times that, and a worker's commit is made of
//! six to nine statements. So a statement whose answer nobody needs waits, and goes in one text
//! with the next one whose answer somebody does need, or with the end of its request at the
//! latest. `BEGIN` and `COMMIT` are such statements, too: most commits are two trips.
//!
//! An error of a statement that waited shows where it went. That is always within its request,
//! so the request fails and is rolled back as a whole; nothing else may be concluded from an
//! error, which is why [`Conn::later`](crate::db::Conn::later) is not for statements that can
//! fail in a way that somebody handles.
//!
//! Texts are kept prepared by their letters. To keep their number small, few statements wait at a
//! time, and long lists of rows travel alone.

use std::fmt::Write as _;

use sqlx::SqliteConnection;

use crate::db::{Sql, Val};

/// Most statements that wait.
const STATEMENTS: usize = 8;

/// A connection to an SQLite file, and what waits for it.
pub(crate) struct Lite {
    pub(crate) connection: SqliteConnection,
    pub(crate) waiting: Waiting,
    /// How often something was sent.
    pub(crate) trips: u64,
    /// The transaction ended with its one statement.
    pub(crate) ended: bool,
}

/// Begins a transaction that writes.
pub(crate) const BEGIN: &str = "BEGIN IMMEDIATE";

impl Lite {
    pub(crate) fn new(connection: SqliteConnection) -> Self {
        Self { connection, waiting: Waiting::default(), trips: 0, ended: false }
    }
}

/// Statements that nobody sent yet.
#[derive(Default)]
pub(crate) struct Waiting {
    text: String,
    values: Vec<Val>,
    count: usize,
}

impl Waiting {
    /// Lets a statement wait.
    pub(crate) fn add(&mut self, sql: &str, values: Vec<Val>) {
        renumbered(&mut self.text, sql, self.values.len());
        self.text.push(';');
        self.values.extend(values);
        self.count += 1;
    }

    /// Whether a transaction would begin with the next statement.
    pub(crate) fn only_begins(&self) -> bool {
        self.text.strip_suffix(';') == Some(BEGIN)
    }

    pub(crate) const fn is_empty(&self) -> bool {
        self.count == 0
    }

    pub(crate) const fn is_full(&self) -> bool {
        self.count >= STATEMENTS
    }

    /// Everything that waits, and then this statement.
    pub(crate) fn and(&mut self, sql: Sql, values: Vec<Val>) -> (Sql, Vec<Val>) {
        if self.is_empty() {
            return (sql, values);
        }
        self.add(&sql, values);
        self.take()
    }

    /// Everything that waits.
    pub(crate) fn take(&mut self) -> (Sql, Vec<Val>) {
        let Self { text, values, .. } = std::mem::take(self);
        (Sql::Owned(text), values)
    }
}

/// Appends `sql` with its `$n` counted from `before` on.
fn renumbered(text: &mut String, sql: &str, before: usize) {
    if before == 0 {
        return text.push_str(sql);
    }
    let mut pieces = sql.split('$');
    text.push_str(pieces.next().unwrap_or_default());
    for piece in pieces {
        let digits = piece.find(|c: char| !c.is_ascii_digit()).unwrap_or(piece.len());
        let (number, rest) = piece.split_at(digits);
        match number.parse::<usize>() {
            // Writing to a String cannot fail.
            Ok(number) => write!(text, "${}{rest}", number + before).unwrap_or_default(),
            Err(_) => write!(text, "${piece}").unwrap_or_default(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::db::args;

    #[test]
    fn values_keep_their_places() {
        let mut waiting = Waiting::default();
        waiting.add("BEGIN", Vec::new());
        waiting.add("UPDATE a SET b = $2 WHERE id = $1 AND c < $1", args![7, 8]);
        let (text, values) = waiting.and("INSERT INTO d VALUES ($1,$2)".into(), args![9, 10]);
        let together = "BEGIN;UPDATE a SET b = $2 WHERE id = $1 AND c < $1;\
             INSERT INTO d VALUES ($3,$4);";
        assert_eq!(text, together);
        let values: Vec<String> = values.iter().map(|value| format!("{value:?}")).collect();
        assert_eq!(values, ["Int(Some(7))", "Int(Some(8))", "Int(Some(9))", "Int(Some(10))"]);
        assert!(waiting.is_empty());
        let (text, _) = waiting.and("SELECT 1".into(), Vec::new());
        assert_eq!(text, "SELECT 1");
    }
}
