//! What the table of resources is made of, and one call of an action.

use crate::region::Region;
use crate::wire::{Params, SimRequest, SimResponse};

/// What a handler returns; `Err` is a refusal, answered as it is.
pub(crate) type HandlerResult = Result<SimResponse, SimResponse>;

/// Who may call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Access {
    /// Anybody, with or without credentials.
    Anonymous,
    /// Any user.
    User,
    /// 403 with MAAS's sentence for others.
    Admin,
    /// 403 with an empty body for others.
    AdminEmptyBody,
}

pub(crate) struct Action {
    pub(crate) method: &'static str,
    pub(crate) op: Option<&'static str>,
    /// Name in `describe/`.
    pub(crate) name: &'static str,
    pub(crate) label: &'static str,
    pub(crate) access: Access,
    pub(crate) run: fn(&mut Region, &Call<'_>) -> HandlerResult,
}

pub(crate) struct Resource {
    pub(crate) handler: &'static str,
    /// Path below `/MAAS/api/2.0/`, with `{name}` for parameters.
    pub(crate) uri: &'static str,
    /// MAAS has an anonymous counterpart of this handler: no credentials mean fewer operations, not 401.
    pub(crate) with_anonymous: bool,
    pub(crate) actions: &'static [Action],
}

/// One call of an action.
pub(crate) struct Call<'a> {
    pub(crate) request: &'a SimRequest,
    /// What is called.
    pub(crate) resource: &'static Resource,
    /// All resources of the API, for `describe/`.
    pub(crate) resources: &'static [&'static [Resource]],
    /// Path parameters in order.
    pub(crate) parts: Vec<String>,
    pub(crate) query: Params,
    pub(crate) form: Params,
    /// Name of the caller; empty for anonymous.
    pub(crate) user: String,
    pub(crate) admin: bool,
}

impl Call<'_> {
    /// The parameters that the method reads.
    pub(crate) fn params(&self) -> &Params {
        if matches!(self.request.method.as_str(), "GET" | "DELETE") {
            &self.query
        } else {
            &self.form
        }
    }

    /// The same call with another form.
    pub(crate) fn with_form(&self, form: Params) -> Self {
        Self {
            form,
            parts: self.parts.clone(),
            query: self.query.clone(),
            user: self.user.clone(),
            ..*self
        }
    }

    pub(crate) fn part(&self, index: usize) -> &str {
        self.parts.get(index).map_or("", String::as_str)
    }
}
