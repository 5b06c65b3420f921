//! Where a write comes from: what is known of the request that it is made for.
//!
//! The request's task has it (`with_origin`), and a write takes it along to the connection, which may
//! be another task's. So whatever a request writes down in the audit names the request, and no
//! function between the two has to hand it on.

use std::future::Future;

use gpuaas_types::ApprovalId;
use gpuaas_types::trace_context::TraceContext;
use uuid::Uuid;

/// One execution of an approved request.
///
/// The first audit entry that it commits marks the approval as done, in the same transaction. So an
/// approval that is still `approved` had no effect, and of two executions one has an effect.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ApprovalExecution {
    /// The approved request.
    pub approval: ApprovalId,
    /// Tells this execution from others of the same request.
    pub token: Uuid,
}

/// What is known of a request, for the audit.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RequestOrigin {
    /// Role that the operation asks for.
    pub role: Option<String>,
    /// Address that it came from.
    pub address: Option<String>,
    /// Identifier of the request.
    pub request_id: Option<String>,
    /// Program that sent it, as its `User-Agent` header says.
    pub user_agent: Option<String>,
    /// Listener that took it: `operators` or `nodes`.
    pub listener: Option<&'static str>,
    /// Its span, where it is traced.
    pub trace: Option<TraceContext>,
    /// The approved request that is executed; none: the request is executed as it was sent.
    pub execution: Option<ApprovalExecution>,
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
