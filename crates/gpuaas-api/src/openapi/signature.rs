//! What a handler takes and gives, read from its signature.

use axum::Json;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode, Uri};
use axum::response::Response;
use schemars::{JsonSchema, SchemaGenerator};
use serde_json::{Map, Value, json};

use crate::ctx::Ctx;
use crate::event::events::LastEvent;
use crate::http::body::{Body, JsonBytes, Key, Keys, QueryParams};
use crate::http::etag::{IfMatch, Tagged};
use crate::http::problem::Refusal;
use crate::identity::caller::Caller;

/// Makes the schemas of what is sent and of what is answered: a field that may be left out in one is
/// always there in the other.
pub(crate) struct Schemas {
    /// Of requests.
    pub(crate) sent: SchemaGenerator,
    /// Of answers.
    pub(crate) answered: SchemaGenerator,
}

/// What a signature says of an operation, as OpenAPI writes it.
#[derive(Debug, Default)]
pub(crate) struct Signature {
    /// Parameters of the query and the headers.
    pub(crate) parameters: Vec<Value>,
    /// Schema of the JSON body; none: it takes none.
    pub(crate) body: Option<Value>,
    /// Schema of the JSON answer; none: it answers something else.
    pub(crate) answer: Option<Value>,
    /// Headers of the answer.
    pub(crate) headers: Map<String, Value>,
}

/// Something that a handler takes of a request.
pub(crate) trait Input {
    /// Adds what it reads of the request.
    fn describe(_: &mut Signature, _: &mut Schemas) {}
}

impl Input for State<Ctx> {}
impl Input for Caller {}
impl Input for Key {}
impl Input for HeaderMap {}
impl Input for JsonBytes {}
impl Input for Uri {}
impl<T> Input for Keys<T> {}

impl<T: JsonSchema> Input for Body<T> {
    fn describe(signature: &mut Signature, schemas: &mut Schemas) {
        signature.body = Some(schemas.sent.subschema_for::<T>().to_value());
    }
}

impl<T: JsonSchema> Input for QueryParams<T> {
    fn describe(signature: &mut Signature, schemas: &mut Schemas) {
        let schema = T::json_schema(&mut schemas.sent).to_value();
        let required = schema["required"].as_array().cloned().unwrap_or_default();
        for (name, schema) in schema["properties"].as_object().into_iter().flatten() {
            let mut schema = schema.clone();
            let text = schema.as_object_mut().and_then(|fields| fields.remove("description"));
            signature.parameters.push(json!({
                "name": name,
                "in": "query",
                "description": text.unwrap_or_default(),
                "required": required.contains(&json!(name)),
                "schema": without_null(schema),
            }));
        }
    }
}

/// A parameter is left out or has a value; JSON's `null` cannot be written in a query.
fn without_null(mut schema: Value) -> Value {
    if let Some(kinds) = schema["type"].as_array_mut() {
        kinds.retain(|kind| kind != "null");
        if let [kind] = kinds.as_slice() {
            schema["type"] = kind.clone();
        }
    }
    let variants = schema["anyOf"].as_array().cloned().unwrap_or_default();
    match variants.as_slice() {
        [one, other] if *other == json!({ "type": "null" }) => one.clone(),
        _ => schema,
    }
}

impl Input for IfMatch {
    fn describe(signature: &mut Signature, _: &mut Schemas) {
        signature.parameters.push(json!({
            "name": "If-Match",
            "in": "header",
            "description": "The `ETag` of the revision to change; the request is refused if \
                            another revision is current",
            "required": false,
            "schema": { "type": "string" },
        }));
    }
}

impl Input for LastEvent {
    fn describe(signature: &mut Signature, _: &mut Schemas) {
        signature.parameters.push(json!({
            "name": "Last-Event-ID",
            "in": "header",
            "description": "The `id` of the last event received; the stream continues after it",
            "required": false,
            "schema": { "type": "string" },
        }));
    }
}

/// What a handler answers.
pub(crate) trait Output {
    /// Adds what the answer holds.
    fn describe(signature: &mut Signature, schemas: &mut Schemas);
}

impl<T: JsonSchema> Output for Json<T> {
    fn describe(signature: &mut Signature, schemas: &mut Schemas) {
        signature.answer = Some(schemas.answered.subschema_for::<T>().to_value());
    }
}

impl<T: Output> Output for (StatusCode, T) {
    fn describe(signature: &mut Signature, schemas: &mut Schemas) {
        T::describe(signature, schemas);
    }
}

impl<T: JsonSchema> Output for Tagged<T> {
    fn describe(signature: &mut Signature, schemas: &mut Schemas) {
        Json::<T>::describe(signature, schemas);
        let tag = json!({
            "description": "The revision, for `If-Match`",
            "schema": { "type": "string" },
        });
        signature.headers.insert("ETag".to_owned(), tag);
    }
}

impl Output for Response {
    fn describe(_: &mut Signature, _: &mut Schemas) {}
}

impl<T: Output> Output for Result<T, Refusal> {
    fn describe(signature: &mut Signature, schemas: &mut Schemas) {
        T::describe(signature, schemas);
    }
}

/// A handler, described by its arguments and its answer.
pub(crate) trait Described<Arguments> {
    /// What its signature says.
    fn signature(schemas: &mut Schemas) -> Signature;
}

macro_rules! described {
    ($($argument:ident)*) => {
        impl<Handler, Answer, $($argument,)*> Described<($($argument,)*)> for Handler
        where
            Handler: Fn($($argument),*) -> Answer,
            Answer: Future,
            Answer::Output: Output,
            $($argument: Input,)*
        {
            fn signature(schemas: &mut Schemas) -> Signature {
                let mut signature = Signature::default();
                $($argument::describe(&mut signature, schemas);)*
                <Answer::Output as Output>::describe(&mut signature, schemas);
                signature
            }
        }
    };
}

described!();
described!(A);
described!(A B);
described!(A B C);
described!(A B C D);
described!(A B C D E);
