//! Everybody in a world, one at a time.
//!
//! A member is a future. It runs until it can go no further in this moment: until it is done, or
//! sleeps on the virtual clock, or waits for another member. Waiting for the database is neither:
//! the store says how many callers wait for it, and while one does, the member is waited for in real
//! time, so that no moment passes and nobody else runs. Members that were woken run in the order in
//! which they were woken.

use std::collections::{BTreeMap, VecDeque};
use std::future::poll_fn;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Wake, Waker};

use futures::task::AtomicWaker;
use gpuaas_store::Store;
use tokio::task::unconstrained;

use super::transport::Fuse;

/// Whose a member is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Group {
    /// The control plane's: gone when it crashes.
    Plane,
    /// Those of a control plane that stands still: nobody runs them.
    Still,
    /// Anybody else's.
    World,
}

#[derive(Default)]
struct Queue {
    ready: Mutex<VecDeque<u64>>,
    driver: AtomicWaker,
}

impl Queue {
    fn lock(&self) -> MutexGuard<'_, VecDeque<u64>> {
        self.ready.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

struct Bell {
    id: u64,
    rung: AtomicBool,
    queue: Arc<Queue>,
}

impl Wake for Bell {
    fn wake(self: Arc<Self>) {
        if !self.rung.swap(true, Ordering::SeqCst) {
            self.queue.lock().push_back(self.id);
        }
        self.queue.driver.wake();
    }
}

struct Member {
    group: Group,
    bell: Arc<Bell>,
    waker: Waker,
    future: Pin<Box<dyn Future<Output = ()> + Send>>,
}

/// See the module text.
#[derive(Default)]
pub(super) struct Crew {
    members: BTreeMap<u64, Member>,
    last: u64,
    queue: Arc<Queue>,
}

impl Crew {
    /// Takes a member in; it runs at the next [`Crew::settle`].
    pub(super) fn add(
        &mut self,
        group: Group,
        future: impl Future<Output = ()> + Send + 'static,
    ) -> u64 {
        self.last += 1;
        let id = self.last;
        let bell =
            Arc::new(Bell { id, rung: AtomicBool::new(false), queue: Arc::clone(&self.queue) });
        let waker = Waker::from(Arc::clone(&bell));
        // Tokio's budget counts what a real scheduler gives back between polls; here nobody does.
        let future = Box::pin(unconstrained(future));
        self.members.insert(id, Member { group, bell, waker: waker.clone(), future });
        waker.wake();
        id
    }

    /// Whether a member is still there.
    pub(super) fn has(&self, id: u64) -> bool {
        self.members.contains_key(&id)
    }

    /// Drops a member where it is.
    pub(super) fn end(&mut self, id: u64) {
        self.members.remove(&id);
    }

    /// Drops every member of a group where it is.
    pub(super) fn dismiss(&mut self, group: Group) {
        self.members.retain(|_, member| member.group != group);
    }

    /// Lets the members of a group stand still: woken or not, they run when they are let go.
    pub(super) fn hold(&mut self, group: Group) {
        for member in self.members.values_mut().filter(|member| member.group == group) {
            member.group = Group::Still;
        }
    }

    /// Lets all that stand still go on, as members of `group`.
    pub(super) fn let_go(&mut self, group: Group) {
        for member in self.members.values_mut().filter(|m| m.group == Group::Still) {
            member.group = group;
            member.bell.rung.store(false, Ordering::SeqCst);
            self.queue.lock().retain(|id| *id != member.bell.id);
            member.waker.wake_by_ref();
        }
    }

    /// Whether somebody can run now.
    pub(super) fn is_ready(&self) -> bool {
        !self.queue.lock().is_empty()
    }

    /// Runs whoever can run until nobody can, or the fuse is burnt. Answers whether anybody ran.
    pub(super) async fn settle(&mut self, store: &Store, fuse: &Fuse) -> bool {
        let mut ran = false;
        while !fuse.is_burnt() {
            let Some(id) = self.queue.lock().pop_front() else { break };
            let Some(mut member) = self.members.remove(&id) else { continue };
            if member.group == Group::Still {
                self.members.insert(id, member);
                continue;
            }
            ran = true;
            if !self.run(&mut member, store).await {
                self.members.insert(id, member);
            }
        }
        ran
    }

    /// Runs one member as far as this moment lets it. Answers whether it is done.
    async fn run(&self, member: &mut Member, store: &Store) -> bool {
        loop {
            member.bell.rung.store(false, Ordering::SeqCst);
            let mut context = Context::from_waker(&member.waker);
            if member.future.as_mut().poll(&mut context).is_ready() {
                return true;
            }
            if !member.bell.rung.load(Ordering::SeqCst) {
                if store.in_flight() == 0 {
                    return false;
                }
                poll_fn(|context| {
                    self.queue.driver.register(context.waker());
                    if member.bell.rung.load(Ordering::SeqCst) {
                        Poll::Ready(())
                    } else {
                        Poll::Pending
                    }
                })
                .await;
            }
            self.queue.lock().retain(|id| *id != member.bell.id);
        }
    }
}
