//! The database of a test: a file in the test's folder, or, where `GPUAAS_TEST_DATABASE` is the
//! `postgres://...` of a server, a database there that is dropped with the test.

use std::path::Path;
use std::sync::atomic::{AtomicU32, Ordering};

use gpuaas_store::ScratchDatabase;

static LAST: AtomicU32 = AtomicU32::new(0);

pub(crate) struct TestDatabase {
    pub(crate) url: String,
    scratch: Option<ScratchDatabase>,
}

impl TestDatabase {
    /// An empty one. `folder` keeps the file.
    #[expect(clippy::disallowed_methods, reason = "tests are configured by the environment")]
    pub(crate) async fn new(folder: &Path) -> Self {
        let server = std::env::var("GPUAAS_TEST_DATABASE").unwrap_or_default();
        if server.is_empty() {
            let url = folder.join("gpuaas.db").to_string_lossy().into_owned();
            return Self { url, scratch: None };
        }
        let number = LAST.fetch_add(1, Ordering::Relaxed);
        let name = format!("gpuaas_rig_{}_{number}", std::process::id());
        let scratch = ScratchDatabase::create(&server, &name).await.unwrap();
        Self { url: scratch.url().to_owned(), scratch: Some(scratch) }
    }
}

impl Drop for TestDatabase {
    fn drop(&mut self) {
        let Some(scratch) = self.scratch.take() else { return };
        // The runtime of the test may be ending, so the statement goes out on another.
        let dropping = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
            runtime.unwrap().block_on(scratch.drop_database())
        });
        let dropped = matches!(dropping.join(), Ok(Ok(())));
        assert!(dropped || std::thread::panicking(), "the test's database was not dropped");
    }
}
