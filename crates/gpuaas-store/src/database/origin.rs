//! Where a write comes from: what is known of the request that it is made for.
//!
//! The request's task has it (`with_origin`), and a write takes it along to the connection, which may
//! be another task's. So whatever a request writes down in the audit names the request, and no
//! function between the two has to hand it on.

use std::future::Future;

use gpuaas_types::trace_context::TraceContext;

/// What is known of a request, for the audit.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RequestOrigin {
    /// Role that the operation asks for.
    pub role: Option<String>,
    /// Address that it came from.
    pub address: Option<String>,
    /// Identifier of the request.
    pub request_id: Option<String>,
    /// Its span, where it is traced.
    pub trace: Option<TraceContext>,
}

tokio::task_local! {
    static ORIGIN: RequestOrigin;
}

/// Runs `future`, whose writes come from a request.
pub async fn with_origin<F: Future>(origin: RequestOrigin, future: F) -> F::Output {
    ORIGIN.scope(origin, future).await
}

/// The origin that the task has; an empty one outside of a request.
#[must_use]
pub fn current_origin() -> RequestOrigin {
    ORIGIN.try_with(Clone::clone).unwrap_or_default()
}
