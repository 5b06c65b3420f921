//! How SQLite would carry out a statement, for tests.

use rusqlite::types::Null;

use crate::{MasterKey, Store};

/// What a statement with so many placeholders reads row by row: tables, aliases and parts of the statement,
/// as `EXPLAIN QUERY PLAN` names them; see <https://sqlite.org/eqp.html>.
pub(crate) async fn scanned(text: &str, placeholders: usize) -> Vec<String> {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("gpuaas.db");
    let url = format!("sqlite:{}", path.display());
    Store::open(&url, MasterKey::from_bytes([7; 32])).await.unwrap().close().await;
    let database = rusqlite::Connection::open(&path).unwrap();
    let mut plan = database.prepare(&format!("EXPLAIN QUERY PLAN {text}")).unwrap();
    let nulls = rusqlite::params_from_iter(vec![Null; placeholders]);
    let steps = plan.query_map(nulls, |row| row.get::<_, String>(3)).unwrap();
    let steps: Vec<String> = steps.map(Result::unwrap).collect();
    let of_scans = steps.iter().filter_map(|step| step.strip_prefix("SCAN "));
    of_scans.map(str::to_owned).collect()
}
