//! Problems of the HTTP API.

#[macro_use]
mod request;
#[macro_use]
mod credential;
#[macro_use]
mod resource;
#[macro_use]
mod service;
#[macro_use]
mod slice;
#[macro_use]
mod image;

use crate::api::Owner;

/// A row of [`PROBLEMS`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ProblemRow {
    /// The code.
    pub code: ProblemCode,
    /// HTTP status.
    pub status: u16,
    /// What is wrong, in a few words.
    pub title: &'static str,
    /// Who has to act; `None` stands for the caller.
    pub owner: Option<Owner>,
    /// What to do: the default hint, used if the endpoint sets no more specific one.
    pub next_action: &'static str,
    /// When a request is refused with this code.
    pub doc: &'static str,
}

rows_of_images! { rows_of_slices! { rows_of_services! { rows_of_resources! { rows_of_credentials! { rows_of_requests! { codes! {
/// Why the HTTP API refused a request, as `code` of the problem body names it.
ProblemCode, ProblemRow, PROBLEMS;
} } } } } } }
