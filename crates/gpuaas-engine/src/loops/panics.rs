//! Catches panics and says where they were.
//!
//! A caught panic brings its message only; the place is known to the panic hook alone. So a hook,
//! set once per process in front of the one before, notes message and place of the latest panic
//! of each thread. A poll that panics unwinds on the thread that polls, which reads the note.

use std::cell::RefCell;
use std::fmt;
use std::panic::{self, AssertUnwindSafe, PanicHookInfo};
use std::pin::pin;
use std::sync::Once;
use std::task::Poll;

thread_local! {
    static LATEST: RefCell<Option<PanicReport>> = const { RefCell::new(None) };
}

/// What a panic said, and where it was.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct PanicReport {
    /// The panic's message.
    pub(crate) message: String,
    /// `file:line` of the source; empty: not known.
    pub(crate) place: String,
}

impl fmt::Display for PanicReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.place.as_str() {
            "" => write!(f, "{}", self.message),
            place => write!(f, "{} at {place}", self.message),
        }
    }
}

/// Sets the hook that notes the place of panics; once per process, however often it is called.
pub(crate) fn install_hook() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let before = panic::take_hook();
        panic::set_hook(Box::new(move |info| {
            LATEST.with(|latest| {
                // A panic amid this note would be one within the hook, which ends the process.
                if let Ok(mut latest) = latest.try_borrow_mut() {
                    *latest = Some(report(info));
                }
            });
            before(info);
        }));
    });
}

fn report(info: &PanicHookInfo<'_>) -> PanicReport {
    let message = info.payload_as_str().unwrap_or("panic without a message").to_owned();
    let place =
        info.location().map_or_else(String::new, |at| format!("{}:{}", at.file(), at.line()));
    PanicReport { message, place }
}

/// Runs `work` to its end, or to its panic.
///
/// # Errors
/// What the panic said. What `work` held is dropped.
pub(crate) async fn catch_panic<T>(work: impl Future<Output = T>) -> Result<T, PanicReport> {
    let mut work = pin!(work);
    std::future::poll_fn(|context| {
        let polled = panic::catch_unwind(AssertUnwindSafe(|| work.as_mut().poll(context)));
        match polled {
            Ok(Poll::Pending) => Poll::Pending,
            Ok(Poll::Ready(value)) => Poll::Ready(Ok(value)),
            Err(payload) => Poll::Ready(Err(noted(&*payload))),
        }
    })
    .await
}

fn noted(payload: &(dyn std::any::Any + Send)) -> PanicReport {
    let noted = LATEST.with(|latest| latest.try_borrow_mut().ok().and_then(|mut one| one.take()));
    noted.unwrap_or_else(|| {
        let text = payload.downcast_ref::<&str>().map(|text| (*text).to_owned());
        let text = text.or_else(|| payload.downcast_ref::<String>().cloned());
        let message = text.unwrap_or_else(|| "panic without a message".to_owned());
        PanicReport { message, place: String::new() }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_panic_is_caught_with_its_place() {
        install_hook();
        install_hook();
        let (line, caught) = (line!(), catch_panic(async { panic!("no bytes left: {}", 7) }).await);
        let report = caught.map(|(): ()| ()).unwrap_err();
        assert_eq!(report.message, "no bytes left: 7");
        assert_eq!(report.place, format!("{}:{line}", file!()));
        assert_eq!(catch_panic(async { 3 }).await, Ok(3));
    }
}
