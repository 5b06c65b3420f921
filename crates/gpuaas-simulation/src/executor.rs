//! Everybody in a world, one at a time.
//!
//! A member is a future. It runs until it can go no further in this moment: until it is done, or
//! sleeps on the virtual clock, or waits for another member. Waiting for the database is neither:
//! the store says how many callers wait for it, and while one does, the member is waited for in real
//! time, so that no moment passes and nobody else runs. Members that were woken run in the order in
//! which they were woken.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::future::poll_fn;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Wake, Waker};

use futures::task::AtomicWaker;
use gpuaas_store::Store;
use tokio::task::unconstrained;

use crate::failpoint::Fuse;

/// Whose a member is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Group {
    /// A control plane's: gone when it crashes, and not scheduled while it is stopped.
    Plane(u32),
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
pub(crate) struct Crew {
    members: BTreeMap<u64, Member>,
    last: u64,
    queue: Arc<Queue>,
    stopped: BTreeSet<u32>,
    /// Members of stopped control planes whose turn has come meanwhile, in that order.
    held: Vec<u64>,
}

impl Crew {
    /// Takes a member in; it runs at the next [`Crew::settle`].
    pub(crate) fn add(
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
    pub(crate) fn has(&self, id: u64) -> bool {
        self.members.contains_key(&id)
    }

    /// Drops a member where it is.
    pub(crate) fn end(&mut self, id: u64) {
        self.members.remove(&id);
    }

    /// Drops every member of a control plane where it is.
    pub(crate) fn dismiss(&mut self, replica: u32) {
        self.stopped.remove(&replica);
        self.members.retain(|_, member| member.group != Group::Plane(replica));
    }

    /// Schedules no member of a control plane any more.
    pub(crate) fn stop(&mut self, replica: u32) {
        self.stopped.insert(replica);
    }

    /// Schedules them again, first those whose turn had come meanwhile.
    pub(crate) fn go_on(&mut self, replica: u32) {
        self.stopped.remove(&replica);
        self.queue.lock().extend(self.held.drain(..));
    }

    fn is_stopped(&self, member: &Member) -> bool {
        matches!(member.group, Group::Plane(replica) if self.stopped.contains(&replica))
    }

    /// Whether somebody can run now.
    pub(crate) fn is_ready(&self) -> bool {
        !self.queue.lock().is_empty()
    }

    /// Runs whoever can run until nobody can, or the fuse is burnt. Answers whether anybody ran.
    pub(crate) async fn settle(&mut self, store: &Store, fuse: &Fuse) -> bool {
        let mut ran = false;
        while fuse.burnt().is_none() {
            let Some(id) = self.queue.lock().pop_front() else { break };
            let Some(mut member) = self.members.remove(&id) else { continue };
            if self.is_stopped(&member) {
                self.held.push(id);
                self.members.insert(id, member);
                continue;
            }
            ran = true;
            if !self.run(&mut member, store, fuse).await {
                self.members.insert(id, member);
            }
        }
        ran
    }

    /// Runs one member as far as this moment lets it. Answers whether it is done.
    async fn run(&self, member: &mut Member, store: &Store, fuse: &Fuse) -> bool {
        let written = || store.counters().write_transactions;
        loop {
            let before = written();
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
            if let Group::Plane(replica) = member.group {
                fuse.wrote(replica, written() - before);
            }
            if fuse.burnt().is_some() {
                return false;
            }
            self.queue.lock().retain(|id| *id != member.bell.id);
        }
    }
}
