//! Control planes say what they are, and two versions of them share PostgreSQL while one takes over.

use futures::future::join_all;
use gpuaas_store::{
    ControlPlaneView, NodeFilter, SchemaChange, SchemaChangeKind, SchemaVersion, Store,
    inspect_database,
};
use sqlx::Connection as _;

use crate::fixture::{Fixture, TestDatabase, code, key, on_each_database};

/// What a later version does: it adds a column, and takes away one that this version reads.
const LATER: [SchemaChange; 3] = [
    SchemaChange {
        name: "9001_add",
        text: "ALTER TABLE node ADD COLUMN bmc_host TEXT",
        kind: SchemaChangeKind::Expand,
    },
    SchemaChange {
        name: "9002_drop",
        text: "ALTER TABLE node DROP COLUMN bmc_address",
        kind: SchemaChangeKind::Contract { since: 9001 },
    },
    SchemaChange {
        name: "9003_add",
        text: "CREATE TABLE rack (name TEXT PRIMARY KEY)",
        kind: SchemaChangeKind::Expand,
    },
];

/// Sorted: two that started within SQLite's millisecond are in no order.
fn versions(planes: &[ControlPlaneView]) -> Vec<&str> {
    let mut versions: Vec<&str> = planes.iter().map(|plane| plane.version.as_str()).collect();
    versions.sort_unstable();
    versions
}

async fn later(database: &TestDatabase) -> Store {
    Store::open_with_later(&database.url, key(), &LATER).await.unwrap()
}

/// Numbers of the later version's migrations that were made.
async fn made(database: &TestDatabase) -> Vec<i64> {
    let mut connection = sqlx::PgConnection::connect(&database.url).await.unwrap();
    let sql = "SELECT version FROM _sqlx_migrations WHERE version > 9000 ORDER BY version";
    sqlx::query_scalar(sql).fetch_all(&mut connection).await.unwrap()
}

#[test]
fn who_has_the_database_open_says_so_by_lease() {
    on_each_database(|database| async move {
        let (store, other) = (database.open().await, database.open().await);
        assert!(store.control_planes().await.unwrap().is_empty());
        store.renew_control_plane("1.0.0", 60).await.unwrap();
        store.renew_control_plane("1.0.0", 60).await.unwrap();
        other.renew_control_plane("1.1.0", 60).await.unwrap();
        let planes = other.control_planes().await.unwrap();
        assert_eq!(versions(&planes), ["1.0.0", "1.1.0"]);
        assert!(planes[0].renewed_at >= planes[0].started_at);
        assert_eq!(planes[0].schema_known, planes[1].schema_known);
        store.withdraw_control_plane().await.unwrap();
        assert_eq!(versions(&other.control_planes().await.unwrap()), ["1.1.0"]);
        // A lease that has ended is one of nobody.
        other.renew_control_plane("1.1.0", 0).await.unwrap();
        assert!(store.control_planes().await.unwrap().is_empty());
        assert_eq!(store.finish_migrations().await.unwrap(), 0);
        other.close().await;
        store.close().await;
    });
}

#[test]
fn two_versions_share_a_database_while_one_takes_over() {
    on_each_database(|database| async move {
        if !database.url.starts_with("postgres") {
            // One process has the file; its version makes everything.
            let store = later(&database).await;
            store.renew_control_plane("2.0.0", 60).await.unwrap();
            return store.close().await;
        }
        let fixture = Fixture::new(database).await;
        let (old, url) = (&fixture.store, fixture.database.url.clone());
        old.renew_control_plane("1.0.0", 60).await.unwrap();
        // Onboardings go on while the newer one starts and adds.
        let onboardings = join_all((0..40).map(|n| {
            let onboarding = fixture.onboarding(&format!("j22u{n}"));
            async move { old.onboard(crate::fixture::NOON, onboarding).await.unwrap() }
        }));
        let (made_nodes, new) = futures::join!(onboardings, later(&fixture.database));
        assert_eq!(made_nodes.len(), 40);
        assert_eq!(made(&fixture.database).await, [9001, 9003], "what takes away has to wait");
        new.renew_control_plane("2.0.0", 60).await.unwrap();
        assert_eq!(new.finish_migrations().await.unwrap(), 1);
        fixture.node("after").await;
        let inspection = inspect_database(&url).await.unwrap();
        assert_eq!(inspection.schema, SchemaVersion::Expanded);

        // The older executable starts once more: nothing is gone that it uses.
        let again = fixture.database.open().await;
        assert_eq!(versions(&again.control_planes().await.unwrap()), ["1.0.0", "2.0.0"]);
        assert_eq!(again.list_nodes(NodeFilter::default()).await.unwrap().len(), 41);
        again.close().await;

        // The last one of the older version goes.
        old.withdraw_control_plane().await.unwrap();
        assert_eq!(new.finish_migrations().await.unwrap(), 0);
        assert_eq!(made(&fixture.database).await, [9001, 9002, 9003]);
        let refused = Store::open(&url, key()).await.unwrap_err();
        assert_eq!(refused.code(), "schema_contracted");
        assert!(!refused.hint().is_empty());
        // One that stood still meanwhile hears that it has to end.
        assert_eq!(code(old.renew_control_plane("1.0.0", 60).await), "schema_contracted");
        assert_eq!(versions(&new.control_planes().await.unwrap()), ["2.0.0"]);
        assert_eq!(inspect_database(&url).await.unwrap().schema, SchemaVersion::Newer);
        new.close().await;
        later(&fixture.database).await.close().await;
        old.close().await;
    });
}

#[test]
fn an_empty_database_gets_everything_at_once() {
    on_each_database(|database| async move {
        if database.url.starts_with("postgres") {
            later(&database).await.close().await;
            assert_eq!(made(&database).await, [9001, 9002, 9003]);
        }
    });
}
