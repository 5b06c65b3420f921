//! Who sends a request to the admin API, as its credential says.

use axum::extract::FromRequestParts;
use axum::http::request::Parts;
use gpuaas_store::ApprovalRequester;
use gpuaas_types::access::{AccessView, OperationRow, Role, RoleGrant, TokenView};
use gpuaas_types::codes::ProblemCode;
use gpuaas_types::limits::ListenerKind;
use gpuaas_types::{Problem, TokenId};

use crate::check;
use crate::ctx::Ctx;
use crate::http::open_bodies::BodyOwner;
use crate::http::problem::{ApiResult, Refusal, problem};

/// The first admin token's name.
const ADMIN: &str = "admin";
/// Names that stand for something else in the audit log.
pub(crate) const RESERVED_NAMES: [&str; 3] = [ADMIN, "experiment", "unknown"];
/// Characters of what a caller writes of itself that are kept.
const NOTE_CHARS: usize = 100;

/// Whoever sent a request, and the operation that it asks for. The access check puts it into the
/// request, so a handler that names it is not reached without a credential.
#[derive(Debug, Clone)]
pub(crate) struct Caller {
    /// Whom it is told from others by.
    id: String,
    /// The same, with what people call it.
    name: String,
    grants: Vec<RoleGrant>,
    needs: Role,
    /// The person behind it, who may have several credentials.
    person: String,
    /// The token that it sent, where it is one that is made here.
    token: Option<TokenId>,
    /// Digest of what another person agreed to, where the request is carried out for that.
    approved_target: Option<String>,
    /// Whether the erasing runs of this request were counted before, with the experiment that they are of.
    is_counted: bool,
}

impl Caller {
    /// A holder of a credential. It may do nothing before [`Self::asks_for`].
    fn new(id: String, name: String, grants: Vec<RoleGrant>) -> Self {
        let (person, token, approved_target) = (id.clone(), None, None);
        let is_counted = false;
        Self { id, name, grants, needs: Role::Admin, person, token, approved_target, is_counted }
    }

    /// The holder of a token that is made here.
    pub(crate) fn of_token(token: TokenView) -> Self {
        // The identifier, since another token may get the name later.
        let caller = Self::new(token.id.to_string(), token.name, token.grants);
        Self { person: token.person, token: Some(token.id), ..caller }
    }

    /// Somebody whom a provider knows as `id`, and who is called `display` there: that may change, and
    /// is nobody's alone.
    pub(crate) fn signed_in(id: String, display: Option<String>, grants: Vec<RoleGrant>) -> Self {
        let name = display.map_or_else(|| id.clone(), |display| format!("{id} [{display}]"));
        Self::new(id, name, grants)
    }

    /// Whoever asked for what another person has agreed to since.
    pub(crate) fn agreed(requester: ApprovalRequester, target_digest: String) -> Self {
        let ApprovalRequester { id, name, grants, person, token } = requester;
        let approved_target = Some(target_digest);
        Self { person, token, approved_target, ..Self::new(id, name, grants) }
    }

    /// The holder of the first admin token.
    pub(crate) fn admin() -> Self {
        let grants = vec![RoleGrant { role: Role::Admin, sites: None }];
        Self::new(ADMIN.to_owned(), ADMIN.to_owned(), grants)
    }

    /// The person who began an experiment, for its later runs.
    pub(crate) fn of_experiment(requester: ApprovalRequester) -> Self {
        let ApprovalRequester { id, name, grants, person, token } = requester;
        let caller = Self::new(id, name, grants);
        Self { needs: Role::Operator, person, token, ..caller }
    }

    /// The same caller for runs that were counted with their experiment.
    pub(crate) fn counted(self) -> Self {
        Self { is_counted: true, ..self }
    }

    /// The same caller for runs that are counted one by one.
    pub(crate) fn uncounted(self) -> Self {
        Self { is_counted: false, ..self }
    }

    /// Whether the erasing runs of this request were counted before.
    pub(crate) const fn is_counted(&self) -> bool {
        self.is_counted
    }

    /// The name that was authenticated, and in parentheses what the caller says of itself.
    pub(crate) fn actor(&self, note: &str) -> String {
        match check::plain_text(note, NOTE_CHARS).trim() {
            "" => self.name.clone(),
            note if note == self.name => self.name.clone(),
            note => format!("{} ({note})", self.name),
        }
    }

    /// Who does something and why, in the form that the audit keeps.
    ///
    /// # Errors
    /// `invalid_field` where the reason is empty.
    pub(crate) fn actor_and_reason(
        &self,
        note: &str,
        reason: &str,
    ) -> Result<(String, String), Problem> {
        Ok((self.actor(note), check::reason(reason)?))
    }

    /// Whom it is told from others by: what belongs to a caller is kept under this.
    pub(crate) fn id(&self) -> &str {
        &self.id
    }

    /// The owner of the request's body.
    pub(crate) fn body_owner(&self) -> BodyOwner {
        let of_admin = |grant: &RoleGrant| grant.role == Role::Admin && grant.holds_at(None);
        BodyOwner {
            kind: ListenerKind::Operators,
            caller: self.id.clone(),
            is_administrator: self.grants.iter().any(of_admin),
        }
    }

    /// The person behind the credential.
    pub(crate) fn person(&self) -> &str {
        &self.person
    }

    /// Digest of what another person agreed to; none: nobody was asked.
    pub(crate) fn approved_target(&self) -> Option<&str> {
        self.approved_target.as_deref()
    }

    /// Who it is, for the time when another person has agreed.
    pub(crate) fn requester(&self) -> ApprovalRequester {
        ApprovalRequester {
            id: self.id.clone(),
            name: self.name.clone(),
            grants: self.grants.clone(),
            person: self.person.clone(),
            token: self.token,
        }
    }

    /// The name that was authenticated.
    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// Who it is and what it may do.
    pub(crate) fn view(&self) -> AccessView {
        AccessView { name: self.name.clone(), grants: self.grants.clone() }
    }

    /// Holds the caller to the role of an operation, at whatever site.
    ///
    /// # Errors
    /// `role_missing`.
    pub(crate) fn asks_for(mut self, row: &OperationRow) -> Result<Self, Problem> {
        self.needs = row.role;
        if self.fitting().next().is_some() {
            return Ok(self);
        }
        let has: Vec<&str> = self.grants.iter().map(|grant| grant.role.as_str()).collect();
        let detail = format!(
            "{} has the role {}; {} {} requires {}",
            self.name,
            has.join(" and "),
            row.method,
            row.path,
            row.role
        );
        Err(problem(ProblemCode::RoleMissing).with_detail(detail))
    }

    fn fitting(&self) -> impl Iterator<Item = &RoleGrant> {
        self.grants.iter().filter(|grant| grant.role.includes(self.needs))
    }

    /// Whether the role that the operation wants holds at every site.
    pub(crate) fn holds_everywhere(&self) -> bool {
        self.fitting().any(|grant| grant.holds_at(None))
    }

    /// Whether the role that the operation wants holds at this site.
    pub(crate) fn holds_at(&self, site: &str) -> bool {
        self.fitting().any(|grant| grant.holds_at(Some(site)))
    }

    /// Refuses an operation at a site, or at all of them, where the role does not hold there.
    ///
    /// # Errors
    /// `site_not_granted`.
    pub(crate) fn check_site(&self, site: Option<&str>) -> Result<(), Problem> {
        if self.fitting().any(|grant| grant.holds_at(site)) {
            return Ok(());
        }
        let sites: Vec<&str> = self
            .fitting()
            .filter_map(|g| g.sites.as_deref())
            .flatten()
            .map(String::as_str)
            .collect();
        let there = site.map_or_else(|| "everywhere".to_owned(), |site| format!("at {site}"));
        let detail = format!(
            "{} is {} at {}, not {there}",
            self.name,
            self.needs,
            if sites.is_empty() { "no site".to_owned() } else { sites.join(", ") }
        );
        Err(problem(ProblemCode::SiteNotGranted).with_detail(detail))
    }
}

impl FromRequestParts<Ctx> for Caller {
    type Rejection = Refusal;

    async fn from_request_parts(parts: &mut Parts, _: &Ctx) -> ApiResult<Self> {
        parts.extensions.get().cloned().ok_or_else(|| {
            tracing::error!(
                path = parts.uri.path(),
                "an operation was reached without a credential"
            );
            problem(ProblemCode::Internal).into()
        })
    }
}
