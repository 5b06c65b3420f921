//! Errors that carry a stable code and a hint, so that any crate can report them alike.

/// An error with a stable code and what the reader should do next.
pub trait CodedError: std::error::Error {
    /// Stable code, snake case.
    fn code(&self) -> &str;

    /// What the reader should do next; empty where the message says it all.
    fn hint(&self) -> &str;
}
