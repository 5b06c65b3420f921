//! Bodies: extractors that refuse with a problem, and the answer that most calls of nodes get.

use std::marker::PhantomData;

use axum::body::Bytes;
use axum::extract::{FromRequest, FromRequestParts, Path, Query, Request};
use axum::http::header::CONTENT_TYPE;
use axum::http::request::Parts;
use gpuaas_types::SiteId;
use gpuaas_types::codes::ProblemCode;
use schemars::JsonSchema;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::ctx::Ctx;
use crate::http::open_bodies::{BodyOwner, OpenBody};
use crate::http::problem::{ApiResult, Refusal, problem};
use crate::http::strict;

/// Largest body of an admin request, an enrollment or a callback, in bytes.
pub const MAX_BODY_BYTES: usize = 1 << 20;
/// Largest body of the result of a task that collects diagnostics, in bytes.
pub const MAX_RESULT_BYTES: usize = 4 << 20;
/// Largest body of a published bundle, in bytes: 16 MiB in base64, and a signature.
pub const MAX_BUNDLE_BODY_BYTES: usize = 22 << 20;

/// Most bytes of a request's body, where an extractor before it knows, and what a longer one is refused as.
#[derive(Debug, Clone, Copy)]
pub(crate) struct BodyLimit {
    pub(crate) bytes: usize,
    pub(crate) beyond: ProblemCode,
}

/// A body that was read whole. A layer that needs the bytes puts it into the request.
#[derive(Debug, Clone)]
pub(crate) struct WholeBody(pub(crate) Bytes);

/// The bytes of a JSON body.
pub(crate) struct JsonBytes(pub(crate) Bytes);

impl FromRequest<Ctx> for JsonBytes {
    type Rejection = Refusal;

    async fn from_request(request: Request, ctx: &Ctx) -> Result<Self, Refusal> {
        read_json(request, ctx).await.map(|(bytes, _)| Self(bytes))
    }
}

/// The bytes of a JSON body, with what counts them where no layer does.
async fn read_json(request: Request, ctx: &Ctx) -> ApiResult<(Bytes, Option<OpenBody>)> {
    let kind = request.headers().get(CONTENT_TYPE).and_then(|value| value.to_str().ok());
    if let Some(kind) = kind.filter(|kind| !is_json(kind)) {
        let kind: String = kind.chars().take(100).collect();
        return Err(problem(ProblemCode::UnsupportedMediaType).with_detail(kind).into());
    }
    let (mut parts, body) = request.into_parts();
    if let Some(WholeBody(bytes)) = parts.extensions.remove() {
        return Ok((bytes, None));
    }
    let Some(owner) = parts.extensions.remove::<BodyOwner>() else {
        tracing::error!(path = parts.uri.path(), "a request body was read without a credential");
        return Err(problem(ProblemCode::Internal).into());
    };
    let at_most = BodyLimit { bytes: MAX_BODY_BYTES, beyond: ProblemCode::BodyTooLarge };
    let BodyLimit { bytes, beyond } = parts.extensions.remove().unwrap_or(at_most);
    match ctx.open_bodies().read(owner, &parts.headers, body, bytes).await {
        Ok((bytes, open)) => Ok((bytes, Some(open))),
        Err(refused) if refused.code == ProblemCode::BodyTooLarge.as_str() => {
            Err(problem(beyond).with_detail(refused.detail).into())
        }
        Err(refused) => Err(refused.into()),
    }
}

fn is_json(kind: &str) -> bool {
    let kind = kind.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
    kind == "application/json" || kind.ends_with("+json")
}

/// A JSON body of type `T`.
pub(crate) struct Body<T>(pub(crate) T);

impl<T: DeserializeOwned> FromRequest<Ctx> for Body<T> {
    type Rejection = Refusal;

    async fn from_request(request: Request, ctx: &Ctx) -> Result<Self, Refusal> {
        let (bytes, _counted) = read_json(request, ctx).await?;
        Ok(Self(strict::from_slice(&bytes)?))
    }
}

/// The one parameter of the path, as text.
pub(crate) struct Key(pub(crate) String);

impl<S: Send + Sync> FromRequestParts<S> for Key {
    type Rejection = Refusal;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Refusal> {
        Keys::from_request_parts(parts, state).await.map(|Keys(text)| Self(text))
    }
}

/// The parameters of a path that has several, as text.
pub(crate) struct Keys<T>(pub(crate) T);

impl<S: Send + Sync, T: DeserializeOwned + Send> FromRequestParts<S> for Keys<T> {
    type Rejection = Refusal;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Refusal> {
        let path = Path::<T>::from_request_parts(parts, state).await;
        path.map(|Path(keys)| Self(keys)).map_err(|_| {
            problem(ProblemCode::NotFound).with_detail("the URL path is not valid UTF-8").into()
        })
    }
}

/// The query of the URL.
pub(crate) struct QueryParams<T>(pub(crate) T);

impl<S: Send + Sync, T: DeserializeOwned> FromRequestParts<S> for QueryParams<T> {
    type Rejection = Refusal;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Refusal> {
        Query::<T>::try_from_uri(&parts.uri).map(|Query(params)| Self(params)).map_err(
            |rejection| {
                problem(ProblemCode::InvalidQuery).with_detail(rejection.body_text()).into()
            },
        )
    }
}

/// Answer to a callback, a heartbeat or a result.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct Accepted {
    /// False where an earlier request said the same.
    pub(crate) new: bool,
}

/// A query that may name a site, and a page of a list whose items are named by a `C`.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, bound = "")]
pub(crate) struct SitePageFilter<C> {
    /// Only of this site.
    pub(crate) site: Option<String>,
    /// Filter expression, such as `site=s1,s2`.
    #[schemars(length(max = 2000))]
    pub(crate) filter: Option<String>,
    /// After this item, in the order of the list.
    #[schemars(with = "Option<C>")]
    pub(crate) after: Option<String>,
    /// Most items.
    #[schemars(range(min = 1))]
    pub(crate) limit: Option<u32>,
    #[serde(skip)]
    _named_by: PhantomData<C>,
}

/// A query that may narrow a list that has no pages.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct WholeListFilter {
    /// Filter expression, such as `name~rack`.
    #[schemars(length(max = 2000))]
    pub(crate) filter: Option<String>,
}

/// A query that may name a page of a list whose items are named by a `C`.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, bound = "")]
pub(crate) struct PageFilter<C> {
    /// After this item, in the order of the list.
    #[schemars(with = "Option<C>")]
    pub(crate) after: Option<String>,
    /// Most items.
    #[schemars(range(min = 1))]
    pub(crate) limit: Option<u32>,
    #[serde(skip)]
    _named_by: PhantomData<C>,
}

/// The site of this name, where one is given.
///
/// # Errors
/// `site_not_found`, or the database's.
pub(crate) async fn site_id(ctx: &Ctx, name: Option<&str>) -> ApiResult<Option<SiteId>> {
    match name {
        Some(name) => Ok(Some(ctx.store.site_by_name(name).await?.id)),
        None => Ok(None),
    }
}
