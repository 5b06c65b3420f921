//! Bodies: extractors that refuse with a problem, and the answer that most calls of nodes get.

use std::marker::PhantomData;

use axum::body::Bytes;
use axum::extract::{FromRequest, FromRequestParts, Path, Query, Request};
use axum::http::StatusCode;
use axum::http::header::CONTENT_TYPE;
use axum::http::request::Parts;
use gpuaas_types::SiteId;
use gpuaas_types::codes::ProblemCode;
use schemars::JsonSchema;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::ctx::Ctx;
use crate::problem::{ApiResult, Refusal, problem};
use crate::strict;

/// Largest body of an admin request, an enrollment or a callback, in bytes.
pub const MAX_BODY_BYTES: usize = 1 << 20;
/// Largest body of a task result, in bytes.
pub const MAX_RESULT_BYTES: usize = 4 << 20;
/// Largest body of a published bundle, in bytes: 16 MiB in base64, and a signature.
pub const MAX_BUNDLE_BODY_BYTES: usize = 22 << 20;

/// The bytes of a JSON body.
pub(crate) struct JsonBytes(pub(crate) Bytes);

impl<S: Send + Sync> FromRequest<S> for JsonBytes {
    type Rejection = Refusal;

    async fn from_request(request: Request, state: &S) -> Result<Self, Refusal> {
        let kind = request.headers().get(CONTENT_TYPE).and_then(|value| value.to_str().ok());
        if let Some(kind) = kind.filter(|kind| !is_json(kind)) {
            let kind: String = kind.chars().take(100).collect();
            return Err(problem(ProblemCode::UnsupportedMediaType).with_detail(kind).into());
        }
        match Bytes::from_request(request, state).await {
            Ok(bytes) => Ok(Self(bytes)),
            Err(rejection) if rejection.status() == StatusCode::PAYLOAD_TOO_LARGE => {
                Err(problem(ProblemCode::BodyTooLarge).into())
            }
            Err(_) => {
                let detail = "the connection broke before the body was complete";
                Err(problem(ProblemCode::MalformedJson).with_detail(detail).into())
            }
        }
    }
}

fn is_json(kind: &str) -> bool {
    let kind = kind.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
    kind == "application/json" || kind.ends_with("+json")
}

/// A JSON body of type `T`.
pub(crate) struct Body<T>(pub(crate) T);

impl<S: Send + Sync, T: DeserializeOwned> FromRequest<S> for Body<T> {
    type Rejection = Refusal;

    async fn from_request(request: Request, state: &S) -> Result<Self, Refusal> {
        let JsonBytes(bytes) = JsonBytes::from_request(request, state).await?;
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
            problem(ProblemCode::NotFound).with_detail("the address is not UTF-8").into()
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
    /// Only what this lets pass, such as `site=s1,s2`.
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
    /// Only what this lets pass, such as `name~rack`.
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
