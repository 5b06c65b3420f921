//! Panics in a write, turned into an error that says where they came from.
//!
//! A panic must cost its own caller and nobody else: unwinding through the SQLite writer would end
//! the thread that every write of the process goes through. The location of a panic is known to
//! the panic hook only, so a hook in front of the one that was installed before notes it, for the
//! thread that panics; the payload, which [`catch_panic`] gets, has the message.

use std::cell::RefCell;
use std::panic::{self, AssertUnwindSafe};
use std::sync::Once;

use futures::FutureExt as _;

use crate::error::StoreError;

thread_local! {
    static LAST_PANIC: RefCell<Option<String>> = const { RefCell::new(None) };
}

/// Has the locations of panics noted from now on. The hook that was installed before still runs.
pub(crate) fn note_panic_locations() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let earlier = panic::take_hook();
        panic::set_hook(Box::new(move |info| {
            let location = info.location().map(ToString::to_string);
            // A thread that is being torn down has no such value any more.
            LAST_PANIC.try_with(|last| last.replace(location)).ok();
            earlier(info);
        }));
    });
}

/// Runs `write`; a panic in it becomes [`StoreError::Panicked`].
pub(crate) async fn catch_panic<T>(
    write: impl Future<Output = Result<T, StoreError>>,
) -> Result<T, StoreError> {
    AssertUnwindSafe(write).catch_unwind().await.unwrap_or_else(|payload| {
        let text = payload.downcast_ref::<&str>().map(ToString::to_string);
        let message = text.or_else(|| payload.downcast_ref::<String>().cloned());
        let location = LAST_PANIC.try_with(RefCell::take).ok().flatten();
        let error = StoreError::Panicked {
            location: location.unwrap_or_else(|| "an unknown location".to_owned()),
            message: message.unwrap_or_default(),
        };
        tracing::error!(%error, "rolled back a write that panicked");
        Err(error)
    })
}
