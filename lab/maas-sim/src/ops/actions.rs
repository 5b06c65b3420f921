//! How the rows of the tables of resources are written.

use super::call::{Access, Action, Call, HandlerResult, Resource};
use crate::region::Region;

pub(super) type Run = fn(&mut Region, &Call<'_>) -> HandlerResult;

pub(super) const fn row(
    method: &'static str,
    op: Option<&'static str>,
    name: &'static str,
    label: &'static str,
    run: Run,
) -> Action {
    Action { method, op, name, label, access: Access::User, run }
}

pub(super) const fn read(label: &'static str, run: Run) -> Action {
    row("GET", None, "read", label, run)
}

pub(super) const fn create(label: &'static str, run: Run) -> Action {
    row("POST", None, "create", label, run)
}

pub(super) const fn update(label: &'static str, run: Run) -> Action {
    row("PUT", None, "update", label, run)
}

pub(super) const fn delete(label: &'static str, run: Run) -> Action {
    row("DELETE", None, "delete", label, run)
}

pub(super) const fn get(op: &'static str, label: &'static str, run: Run) -> Action {
    row("GET", Some(op), op, label, run)
}

pub(super) const fn post(op: &'static str, label: &'static str, run: Run) -> Action {
    row("POST", Some(op), op, label, run)
}

impl Action {
    pub(super) const fn admin(mut self) -> Self {
        self.access = Access::Admin;
        self
    }

    pub(super) const fn admin_empty_body(mut self) -> Self {
        self.access = Access::AdminEmptyBody;
        self
    }

    pub(super) const fn for_anonymous(mut self) -> Self {
        self.access = Access::Anonymous;
        self
    }
}

pub(super) const fn resource(
    handler: &'static str,
    uri: &'static str,
    actions: &'static [Action],
) -> Resource {
    Resource { handler, uri, with_anonymous: false, actions }
}

pub(super) const fn with_anonymous(
    handler: &'static str,
    uri: &'static str,
    actions: &'static [Action],
) -> Resource {
    Resource { handler, uri, with_anonymous: true, actions }
}
