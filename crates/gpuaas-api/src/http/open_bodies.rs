//! Bytes of request bodies that are not handled yet, by caller and in all.
//!
//! A body is held in memory until its last byte is here, so a caller that sends many and ends none makes
//! the process grow. A body with a `Content-Length` takes its bytes before the first one is read; one
//! without takes them as they come. Operators and nodes have bytes of their own, so nodes cannot use up
//! those of operators, and the last quarter of the operators' bytes is for administrators.

use std::collections::HashMap;
use std::sync::Arc;

use axum::body::{Body, Bytes};
use axum::http::HeaderMap;
use axum::http::header::CONTENT_LENGTH;
use futures::StreamExt as _;
use gpuaas_types::Problem;
use gpuaas_types::codes::ProblemCode;
use gpuaas_types::limits::{Limit, ListenerKind, ListenerLimits};
use parking_lot::Mutex;

use crate::http::problem::problem;
use crate::http::zeroed::ZeroedBytes;

/// One of this many parts of the operators' bytes is for administrators.
const ADMINISTRATORS_PART: u64 = 4;
const HINT: &str =
    "send fewer requests at a time, and retry after the time in the `Retry-After` header";

/// The caller whose body it is. Extractors of credentials put it into the request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct BodyOwner {
    pub(crate) kind: ListenerKind,
    pub(crate) caller: String,
    pub(crate) is_administrator: bool,
}

impl BodyOwner {
    /// The bodies of a node.
    pub(crate) fn node(node_id: impl std::fmt::Display) -> Self {
        let (kind, caller) = (ListenerKind::Nodes, node_id.to_string());
        Self { kind, caller, is_administrator: false }
    }
}

#[derive(Debug, Default)]
struct Counts {
    callers: HashMap<String, u64>,
    all: u64,
}

/// The bytes of one listener.
#[derive(Debug)]
struct Pool {
    per_caller: u64,
    all: u64,
    /// What callers that are no administrators may take of it.
    open_to_all: u64,
    counts: Mutex<Counts>,
}

impl Pool {
    fn new(limits: &ListenerLimits, administrators_part: u64) -> Arc<Self> {
        let all = limits.get(Limit::BodyBytes);
        let per_caller = limits.get(Limit::BodyBytesPerCaller);
        let open_to_all = all - all.checked_div(administrators_part).unwrap_or(0);
        Arc::new(Self { per_caller, all, open_to_all, counts: Mutex::default() })
    }

    fn take(&self, owner: &BodyOwner, held: u64, more: u64) -> Result<(), Problem> {
        let mut counts = self.counts.lock();
        let own = counts.callers.get(&owner.caller).copied().unwrap_or_default();
        let refused = |detail: String| {
            Err(problem(ProblemCode::TooManyRequests).with_detail(detail).with_hint(HINT))
        };
        // Without others it is the caller's only body, which the endpoint alone limits.
        if own > held && own.saturating_add(more) > self.per_caller {
            return refused(format!(
                "too many unfinished request bodies: this caller has {own} bytes open and sends \
                 {more} more; expected at most {}",
                self.per_caller
            ));
        }
        let most = if owner.is_administrator { self.all } else { self.open_to_all };
        let all = counts.all.saturating_add(more);
        if all > most {
            return refused(format!(
                "too many unfinished request bodies: all callers have {} bytes open and this \
                 request adds {more}; expected at most {most}",
                counts.all
            ));
        }
        counts.all = all;
        *counts.callers.entry(owner.caller.clone()).or_default() += more;
        Ok(())
    }
}

/// The bodies of both listeners.
#[derive(Debug)]
pub(crate) struct OpenBodies {
    operators: Arc<Pool>,
    nodes: Arc<Pool>,
}

impl OpenBodies {
    pub(crate) fn new(operators: &ListenerLimits, nodes: &ListenerLimits) -> Self {
        Self { operators: Pool::new(operators, ADMINISTRATORS_PART), nodes: Pool::new(nodes, 0) }
    }

    fn open(&self, owner: BodyOwner) -> OpenBody {
        let pool = match owner.kind {
            ListenerKind::Operators => &self.operators,
            ListenerKind::Nodes => &self.nodes,
        };
        OpenBody { pool: Arc::clone(pool), owner, bytes: 0 }
    }

    /// Reads a body to its end. Its bytes count until the second part of the result is dropped.
    ///
    /// # Errors
    /// `body_too_large` beyond `limit`; `too_many_requests`; `malformed_json` where the connection broke.
    pub(crate) async fn read(
        &self,
        owner: BodyOwner,
        headers: &HeaderMap,
        body: Body,
        limit: usize,
    ) -> Result<(Bytes, OpenBody), Problem> {
        let declared = headers.get(CONTENT_LENGTH).and_then(|value| value.to_str().ok());
        let declared: u64 = declared.and_then(|text| text.parse().ok()).unwrap_or(0);
        let declared = usize::try_from(declared).unwrap_or(usize::MAX);
        let too_large = || {
            problem(ProblemCode::BodyTooLarge)
                .with_detail(format!("expected at most {limit} bytes"))
        };
        if declared > limit {
            return Err(too_large());
        }
        let mut open = self.open(owner);
        open.grow_to(declared)?;
        let mut bytes = ZeroedBytes::with_capacity(declared);
        let mut chunks = body.into_data_stream();
        while let Some(chunk) = chunks.next().await {
            let chunk = chunk.map_err(|_| {
                let detail = "the connection closed before the request body was complete";
                problem(ProblemCode::MalformedJson).with_detail(detail)
            })?;
            let length = bytes.len() + chunk.len();
            if length > limit {
                return Err(too_large());
            }
            open.grow_to(length)?;
            bytes.push(&chunk);
        }
        Ok((bytes.into_bytes(), open))
    }
}

/// A body that counts; dropping it gives its bytes back.
#[derive(Debug)]
pub(crate) struct OpenBody {
    pool: Arc<Pool>,
    owner: BodyOwner,
    bytes: u64,
}

impl OpenBody {
    fn grow_to(&mut self, bytes: usize) -> Result<(), Problem> {
        let more = u64::try_from(bytes).unwrap_or(u64::MAX).saturating_sub(self.bytes);
        if more > 0 {
            self.pool.take(&self.owner, self.bytes, more)?;
            self.bytes += more;
        }
        Ok(())
    }
}

impl Drop for OpenBody {
    fn drop(&mut self) {
        let mut counts = self.pool.counts.lock();
        counts.all -= self.bytes;
        if let Some(own) = counts.callers.get_mut(&self.owner.caller) {
            *own -= self.bytes;
            if *own == 0 {
                counts.callers.remove(&self.owner.caller);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MEGABYTE: usize = 1 << 20;

    fn bodies() -> OpenBodies {
        let limits = ListenerLimits::defaults;
        OpenBodies::new(&limits(ListenerKind::Operators), &limits(ListenerKind::Nodes))
    }

    fn operator(caller: &str, is_administrator: bool) -> BodyOwner {
        BodyOwner { kind: ListenerKind::Operators, caller: caller.to_owned(), is_administrator }
    }

    fn take(bodies: &OpenBodies, owner: BodyOwner, bytes: usize) -> Option<OpenBody> {
        let mut open = bodies.open(owner);
        open.grow_to(bytes).ok().map(|()| open)
    }

    #[test]
    fn a_caller_has_its_own_bytes_and_an_ended_body_gives_them_back() {
        let bodies = bodies();
        let node = || BodyOwner::node("n1");
        let mut own: Vec<_> = (0..100).filter_map(|_| take(&bodies, node(), MEGABYTE)).collect();
        assert_eq!(own.len(), 8);
        assert!(take(&bodies, BodyOwner::node("n2"), MEGABYTE).is_some());
        own.pop();
        own.extend(take(&bodies, node(), MEGABYTE));
        assert_eq!(own.len(), 8);
        drop(own);
        let counts = bodies.nodes.counts.lock();
        assert_eq!((counts.all, counts.callers.len()), (0, 0));
    }

    #[test]
    fn the_only_body_of_a_caller_may_be_a_large_one() {
        let bodies = bodies();
        let large = take(&bodies, operator("ann", false), 22 * MEGABYTE).unwrap();
        assert!(take(&bodies, operator("ann", false), 1).is_none());
        drop(large);
        assert!(take(&bodies, operator("ann", false), 1).is_some());
    }

    #[test]
    fn all_callers_leave_room_for_administrators() {
        let bodies = bodies();
        let of_nodes: Vec<_> =
            (0..200).filter_map(|n| take(&bodies, BodyOwner::node(n), MEGABYTE)).collect();
        assert_eq!(of_nodes.len(), 96);
        let others: Vec<_> = (0..200)
            .filter_map(|n| take(&bodies, operator(&n.to_string(), false), MEGABYTE))
            .collect();
        assert_eq!(others.len(), 24);
        let admins: Vec<_> = (0..200)
            .filter_map(|n| take(&bodies, operator(&format!("admin {n}"), true), MEGABYTE))
            .collect();
        assert_eq!(admins.len(), 8);
    }
}
