//! Watches the loops that have to run for as long as the process does.
//!
//! A loop that is spawned and forgotten dies unseen: its panic stays in a join handle that nobody
//! reads. Here each has a name, and the first one that ends before it was told to is kept for
//! whoever ends the process then, and for the health check.

use std::fmt::Display;
use std::sync::Arc;

use tokio::sync::watch;
use tokio::task::JoinHandle;

use crate::loops::failpoint::Failpoints;
use crate::loops::panics::{self, catch_panic};

/// A loop that ended although nobody told it to.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the loop \"{name}\" ended: {cause}")]
pub struct EndedLoop {
    /// Name of the loop, such as `worker`.
    pub name: String,
    /// What it panicked with, or that it returned.
    pub cause: String,
}

/// Spawns loops and watches them. Clones are one supervisor.
#[derive(Clone)]
pub struct Supervisor(Arc<State>);

struct State {
    stopping: watch::Sender<bool>,
    ended: watch::Sender<Option<EndedLoop>>,
    failpoints: Option<Arc<dyn Failpoints>>,
}

impl Default for Supervisor {
    fn default() -> Self {
        Self::new(None)
    }
}

impl std::fmt::Debug for Supervisor {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Supervisor").field(&*self.0.ended.borrow()).finish()
    }
}

impl Supervisor {
    /// One without loops. `failpoints` are called by every loop when it begins.
    #[must_use]
    pub fn new(failpoints: Option<Arc<dyn Failpoints>>) -> Self {
        panics::install_hook();
        let (stopping, _) = watch::channel(false);
        let (ended, _) = watch::channel(None);
        Self(Arc::new(State { stopping, ended, failpoints }))
    }

    /// Spawns a loop that ends only after [`Self::stop`].
    pub fn spawn(
        &self,
        name: impl Into<String>,
        work: impl Future<Output = ()> + Send + 'static,
    ) -> JoinHandle<()> {
        self.spawn_named(name.into(), false, async {
            work.await;
            Ok::<(), String>(())
        })
    }

    /// Spawns a loop that ends only after [`Self::stop`], or with an error.
    pub fn spawn_fallible<E: Display>(
        &self,
        name: impl Into<String>,
        work: impl Future<Output = Result<(), E>> + Send + 'static,
    ) -> JoinHandle<()> {
        self.spawn_named(name.into(), false, work)
    }

    /// Spawns work that may come to its end, but not panic.
    pub fn spawn_finite(
        &self,
        name: impl Into<String>,
        work: impl Future<Output = ()> + Send + 'static,
    ) -> JoinHandle<()> {
        self.spawn_named(name.into(), true, async {
            work.await;
            Ok::<(), String>(())
        })
    }

    fn spawn_named<E: Display>(
        &self,
        name: String,
        may_return: bool,
        work: impl Future<Output = Result<(), E>> + Send + 'static,
    ) -> JoinHandle<()> {
        let supervisor = self.clone();
        tokio::spawn(async move {
            let ran = catch_panic(async {
                supervisor.reach_loop(&name);
                work.await.map_err(|error| error.to_string())
            });
            let stopping = || *supervisor.0.stopping.borrow();
            match ran.await {
                Err(panic) => supervisor.record_end(name, format!("it panicked: {panic}")),
                Ok(_) if stopping() => {}
                Ok(Ok(())) if may_return => {}
                Ok(Ok(())) => supervisor.record_end(name, "it returned".to_owned()),
                Ok(Err(error)) => supervisor.record_end(name, format!("it failed: {error}")),
            }
        })
    }

    /// Calls the hook of the loop `name`, where a test has set one.
    pub fn reach_loop(&self, name: &str) {
        if let Some(failpoints) = &self.0.failpoints {
            failpoints.reach_loop(name);
        }
    }

    fn record_end(&self, name: String, cause: String) {
        let ended = EndedLoop { name, cause };
        tracing::error!(loop_name = ended.name, cause = ended.cause, "a loop ended");
        self.0.ended.send_if_modified(|first| {
            let is_first = first.is_none();
            first.get_or_insert(ended);
            is_first
        });
    }

    /// Has the loops end once their work in hand has come to rest.
    pub fn stop(&self) {
        self.0.stopping.send_replace(true);
    }

    /// Turns true when the loops are to end.
    #[must_use]
    pub fn stopping(&self) -> watch::Receiver<bool> {
        self.0.stopping.subscribe()
    }

    /// The first loop that ended although nobody told it to.
    #[must_use]
    pub fn ended_loop(&self) -> Option<EndedLoop> {
        self.0.ended.borrow().clone()
    }

    /// Waits until a loop ends although nobody told it to.
    pub async fn wait_for_end(&self) -> EndedLoop {
        let mut ended = self.0.ended.subscribe();
        loop {
            if let Some(ended) = ended.borrow_and_update().clone() {
                return ended;
            }
            if ended.changed().await.is_err() {
                std::future::pending::<()>().await;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_loop_that_panics_or_returns_is_named() {
        let supervisor = Supervisor::default();
        supervisor.spawn_finite("errand", async {}).await.unwrap();
        assert_eq!(supervisor.ended_loop(), None);
        supervisor.spawn("idle", async {}).await.unwrap();
        let ended = supervisor.wait_for_end().await;
        assert_eq!(ended.to_string(), "the loop \"idle\" ended: it returned");
        supervisor.spawn("late", async { panic!("no") }).await.unwrap();
        assert_eq!(supervisor.ended_loop(), Some(ended), "the first one counts");

        let supervisor = Supervisor::default();
        supervisor.spawn_finite("errand", async { panic!("lost") }).await.unwrap();
        let ended = supervisor.wait_for_end().await;
        assert!(ended.cause.starts_with("it panicked: lost at "), "{ended}");

        let supervisor = Supervisor::default();
        let mut stopping = supervisor.stopping();
        let waiting = supervisor.spawn("waiting", async move {
            stopping.changed().await.ok();
        });
        supervisor.stop();
        waiting.await.unwrap();
        assert_eq!(supervisor.ended_loop(), None, "it was told to end");
    }
}
