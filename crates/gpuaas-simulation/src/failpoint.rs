//! Ends a control plane, or stops it for a while, at a moment that was chosen beforehand.
//!
//! Two kinds of moments matter. A *call boundary* lies before a request leaves, and after its
//! answer has come: there the journal and MAAS know different things. A *write* that was
//! committed, and whose caller has not been told yet, is the other: a process that dies there has
//! written one thing and not the next. One control plane at a time has a fuse, and its own
//! boundaries alone burn it.

use std::future::poll_fn;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::task::Poll;

/// What happens at the end of the fuse.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum End {
    /// The control plane dies.
    Dies,
    /// It is not scheduled any more, with whatever it has in hand; what left, left.
    Stops,
}

/// What the fuse counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Counts {
    /// Boundaries of calls.
    Calls,
    /// Writes that were committed.
    Writes,
}

#[derive(Debug, Clone, Copy)]
struct Lit {
    replica: u32,
    counts: Counts,
    left: u32,
    end: End,
}

#[derive(Debug, Default)]
struct State {
    lit: Option<Lit>,
    burnt: Option<(u32, End)>,
}

/// See the module text.
#[derive(Debug, Default)]
pub struct Fuse {
    state: Mutex<State>,
}

impl Fuse {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Lets `replica` come to its end at the `left`-th of what is counted from here.
    pub fn light(&self, replica: u32, counts: Counts, left: u32, end: End) {
        self.lock().lit = Some(Lit { replica, counts, left: left.max(1), end });
    }

    /// Whose end has come, and what kind of end.
    #[must_use]
    pub fn burnt(&self) -> Option<(u32, End)> {
        self.lock().burnt
    }

    /// Ends `replica` here and now: it stands where it is, and whoever drives the world decides
    /// whether it dies there.
    pub(crate) fn burn(&self, replica: u32) {
        self.lock().burnt = Some((replica, End::Stops));
    }

    /// A new fuse that nobody has lit.
    pub fn replace(&self) {
        *self.lock() = State::default();
    }

    /// Counts one, where the fuse counts this; answers what kind of end has come.
    fn count(&self, replica: u32, counts: Counts, ends: &[End]) -> Option<End> {
        let mut state = self.lock();
        let lit = state.lit.as_mut()?;
        if lit.replica != replica || lit.counts != counts || !ends.contains(&lit.end) {
            return None;
        }
        lit.left -= 1;
        if lit.left > 0 {
            return None;
        }
        let end = lit.end;
        state.lit = None;
        state.burnt = Some((replica, end));
        Some(end)
    }

    async fn boundary(&self, replica: u32, ends: &[End]) {
        match self.count(replica, Counts::Calls, ends) {
            None => {}
            Some(End::Dies) => std::future::pending().await,
            Some(End::Stops) => pause().await,
        }
    }

    /// A request is about to leave. Nobody stops here: a request that leaves late is one that
    /// nothing but MAAS could refuse.
    pub(crate) async fn leaves(&self, replica: u32) {
        self.boundary(replica, &[End::Dies]).await;
    }

    /// The request has left. To stop here is to have a change in flight and not to hear of it; to
    /// die here is to die before it left, as far as anybody can tell.
    pub(crate) async fn left(&self, replica: u32) {
        self.boundary(replica, &[End::Stops]).await;
    }

    /// Its answer has come.
    pub(crate) async fn came(&self, replica: u32) {
        self.boundary(replica, &[End::Dies, End::Stops]).await;
    }

    /// A write was committed. Nobody stops here, holding a connection that others wait for.
    pub(crate) fn wrote(&self, replica: u32, writes: u64) {
        for _ in 0..writes {
            self.count(replica, Counts::Writes, &[End::Dies]);
        }
    }
}

/// Gives way once: whoever polls decides when it goes on.
async fn pause() {
    let mut gave_way = false;
    poll_fn(|context| {
        if std::mem::replace(&mut gave_way, true) {
            return Poll::Ready(());
        }
        context.waker().wake_by_ref();
        Poll::Pending
    })
    .await;
}
