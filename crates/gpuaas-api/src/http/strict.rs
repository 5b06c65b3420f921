//! Reading request bodies so that a mistake is named, with its place and what was meant.
//!
//! A body is parsed to JSON once, with a field that is given twice as a mistake, and read from there
//! by the deserializer here. Its error type keeps what serde's own drops: the path, the unknown name,
//! and the names that would be known. It never repeats a value, because the value in the wrong place
//! may be a password. Types are read by this deserializer alone, so each is compiled once.

use std::fmt;

use gpuaas_types::Problem;
use gpuaas_types::codes::ProblemCode;
use serde::Serialize;
use serde::de::value::StrDeserializer;
use serde::de::{
    self, Deserialize, DeserializeOwned, DeserializeSeed, Deserializer, IntoDeserializer,
    MapAccess, SeqAccess, Unexpected, Visitor,
};
use serde::forward_to_deserialize_any;
use serde_json::{Map, Value};

use crate::http::problem::problem;
use crate::http::zeroed::ZeroedJson;

/// How many names a hint lists.
const NEAREST: usize = 3;
/// Similarity (Jaro-Winkler) from which a name counts as meant.
const ALIKE: f64 = 0.75;

/// Reads `bytes` as JSON into `T`.
///
/// # Errors
/// `malformed_json` with the position, `unknown_field`, `missing_field` or `invalid_field`.
pub(crate) fn from_slice<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, Problem> {
    from_value(&ZeroedJson(parse(bytes)?).0)
}

/// Parses a body.
fn parse(bytes: &[u8]) -> Result<Value, Problem> {
    serde_json::from_slice::<UniqueFields>(bytes).map(|body| body.0).map_err(|error| {
        if error.is_data() {
            return problem(ProblemCode::InvalidField).with_detail(error.to_string());
        }
        problem(ProblemCode::MalformedJson).with_detail(if bytes.is_empty() {
            "the request body is empty".to_owned()
        } else {
            error.to_string()
        })
    })
}

/// A JSON value in which no object has a field twice; `serde_json::Value` takes the last one.
struct UniqueFields(Value);

impl<'de> Deserialize<'de> for UniqueFields {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(UniqueFieldsVisitor).map(Self)
    }
}

struct UniqueFieldsVisitor;

impl<'de> Visitor<'de> for UniqueFieldsVisitor {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON value")
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_bool<E>(self, value: bool) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_u64<E>(self, value: u64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_i64<E>(self, value: i64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_f64<E>(self, value: f64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_str<E>(self, value: &str) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_string<E>(self, value: String) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Value, A::Error> {
        let mut list = Vec::new();
        while let Some(UniqueFields(item)) = items.next_element()? {
            list.push(item);
        }
        Ok(Value::Array(list))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut fields: A) -> Result<Value, A::Error> {
        let mut object = Map::new();
        while let Some(name) = fields.next_key::<String>()? {
            let UniqueFields(value) = fields.next_value()?;
            if object.contains_key(&name) {
                return Err(de::Error::custom(format!("duplicate field {name}")));
            }
            object.insert(name, value);
        }
        Ok(Value::Object(object))
    }
}

/// Reads a JSON value into `T`.
///
/// # Errors
/// `unknown_field`, `missing_field` or `invalid_field`.
pub(crate) fn from_value<T: DeserializeOwned>(value: &Value) -> Result<T, Problem> {
    T::deserialize(Strict(value)).map_err(ReadError::into_problem)
}

/// `current` with the fields of `patch`; a `null` puts a field back to what it is in `defaults`.
///
/// # Errors
/// As [`from_value`], with the field of the patch that is wrong.
pub(crate) fn merge<T: Serialize + DeserializeOwned>(
    current: &T,
    defaults: &Value,
    patch: Map<String, Value>,
) -> Result<T, Problem> {
    let mut merged = serde_json::to_value(current).map_err(|_| problem(ProblemCode::Internal))?;
    let fields = merged.as_object_mut().ok_or_else(|| problem(ProblemCode::Internal))?;
    for (name, value) in patch {
        let default = defaults.get(&name).filter(|_| value.is_null()).cloned();
        fields.insert(name, default.unwrap_or(value));
    }
    from_value(&merged)
}

/// A mistake in a body, with the path of the field that has it.
#[derive(Debug)]
struct ReadError {
    /// Names of the fields around it, innermost first.
    path: Vec<String>,
    kind: Kind,
}

#[derive(Debug)]
enum Kind {
    Unknown { name: String, known: &'static [&'static str] },
    Missing { name: &'static str },
    Wrong { message: String },
}

impl ReadError {
    fn wrong(message: String) -> Self {
        Self { path: Vec::new(), kind: Kind::Wrong { message } }
    }

    fn below(mut self, segment: impl Into<String>) -> Self {
        self.path.push(segment.into());
        self
    }

    fn field_path(&self, name: &str) -> String {
        let outer = self.path.iter().rev().map(String::as_str);
        let parts: Vec<&str> = outer.chain(Some(name).filter(|name| !name.is_empty())).collect();
        parts.join(".")
    }

    fn into_problem(self) -> Problem {
        match &self.kind {
            Kind::Unknown { name, known } => unknown_field(&self.field_path(name), name, known),
            Kind::Missing { name } => {
                let field = self.field_path(name);
                problem(ProblemCode::MissingField)
                    .with_detail(format!("{field} is missing"))
                    .with_field(field, "is required")
            }
            Kind::Wrong { message } => {
                let field = self.field_path("");
                let field = if field.is_empty() { "the body".to_owned() } else { field };
                problem(ProblemCode::InvalidField)
                    .with_detail(format!("{field}: {message}"))
                    .with_field(field, message.clone())
            }
        }
    }
}

fn unknown_field(field: &str, name: &str, known: &[&'static str]) -> Problem {
    let nearest = nearest(name, known);
    let hint = match nearest.as_slice() {
        [] => format!("known fields: {}", known.join(", ")),
        names => format!("did you mean {}?", names.join(", ")),
    };
    problem(ProblemCode::UnknownField)
        .with_detail(format!("unknown field {field}"))
        .with_field(field, "unknown field")
        .with_hint(hint)
}

/// Names of `known` that `name` may have meant, best first.
pub(crate) fn nearest<'k>(name: &str, known: &[&'k str]) -> Vec<&'k str> {
    let lower = name.to_ascii_lowercase();
    let mut scored: Vec<(f64, &str)> = known
        .iter()
        .map(|candidate| {
            let shared = candidate.contains(&lower) && lower.len() > 2;
            let score = strsim::jaro_winkler(&lower, candidate);
            (if shared { score.max(ALIKE) } else { score }, *candidate)
        })
        .filter(|(score, _)| *score >= ALIKE)
        .collect();
    scored.sort_by(|a, b| b.0.total_cmp(&a.0));
    scored.into_iter().take(NEAREST).map(|(_, candidate)| candidate).collect()
}

impl fmt::Display for ReadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", self.kind)
    }
}

impl std::error::Error for ReadError {}

impl de::Error for ReadError {
    fn custom<T: fmt::Display>(message: T) -> Self {
        Self::wrong(message.to_string())
    }

    fn unknown_field(field: &str, expected: &'static [&'static str]) -> Self {
        let kind = Kind::Unknown { name: field.to_owned(), known: expected };
        Self { path: Vec::new(), kind }
    }

    fn missing_field(field: &'static str) -> Self {
        Self { path: Vec::new(), kind: Kind::Missing { name: field } }
    }

    fn invalid_type(unexpected: Unexpected<'_>, expected: &dyn de::Expected) -> Self {
        Self::wrong(format!("expected {expected}, found {}", kind_of(&unexpected)))
    }

    fn invalid_value(_: Unexpected<'_>, expected: &dyn de::Expected) -> Self {
        Self::wrong(format!("expected {expected}"))
    }

    fn unknown_variant(_: &str, expected: &'static [&'static str]) -> Self {
        Self::wrong(format!("expected one of {}", expected.join(", ")))
    }
}

fn kind_of(unexpected: &Unexpected<'_>) -> &'static str {
    match unexpected {
        Unexpected::Bool(_) => "a boolean",
        Unexpected::Unsigned(_) | Unexpected::Signed(_) => "an integer",
        Unexpected::Float(_) => "a fractional number",
        Unexpected::Str(_) | Unexpected::Char(_) => "a string",
        Unexpected::Unit | Unexpected::Option => "null",
        Unexpected::Seq => "a list",
        Unexpected::Map => "an object",
        _ => "something else",
    }
}

#[derive(Clone, Copy)]
struct Strict<'de>(&'de Value);

impl<'de> Deserializer<'de> for Strict<'de> {
    type Error = ReadError;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, ReadError> {
        match self.0 {
            Value::Null => visitor.visit_unit(),
            Value::Bool(value) => visitor.visit_bool(*value),
            Value::Number(number) => match (number.as_u64(), number.as_i64(), number.as_f64()) {
                (Some(value), _, _) => visitor.visit_u64(value),
                (_, Some(value), _) => visitor.visit_i64(value),
                (_, _, Some(value)) => visitor.visit_f64(value),
                _ => Err(ReadError::wrong("the number is out of range".to_owned())),
            },
            Value::String(text) => visitor.visit_borrowed_str(text),
            Value::Array(items) => visitor.visit_seq(Items { items: items.iter().enumerate() }),
            Value::Object(map) => visitor.visit_map(Fields { fields: map.iter(), value: None }),
        }
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, ReadError> {
        match self.0 {
            Value::Null => visitor.visit_none(),
            _ => visitor.visit_some(self),
        }
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        visitor: V,
    ) -> Result<V::Value, ReadError> {
        visitor.visit_newtype_struct(self)
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        _: &'static str,
        variants: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, ReadError> {
        match self.0 {
            Value::String(word) => {
                let word: StrDeserializer<'_, ReadError> = word.as_str().into_deserializer();
                visitor.visit_enum(word)
            }
            _ => Err(de::Error::unknown_variant("", variants)),
        }
    }

    forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf unit
        unit_struct seq tuple tuple_struct map struct identifier ignored_any
    }
}

struct Items<'de> {
    items: std::iter::Enumerate<std::slice::Iter<'de, Value>>,
}

impl<'de> SeqAccess<'de> for Items<'de> {
    type Error = ReadError;

    fn next_element_seed<T: DeserializeSeed<'de>>(
        &mut self,
        seed: T,
    ) -> Result<Option<T::Value>, ReadError> {
        let Some((index, item)) = self.items.next() else {
            return Ok(None);
        };
        seed.deserialize(Strict(item)).map(Some).map_err(|fault| fault.below(index.to_string()))
    }
}

struct Fields<'de> {
    fields: serde_json::map::Iter<'de>,
    value: Option<(&'de str, &'de Value)>,
}

impl<'de> MapAccess<'de> for Fields<'de> {
    type Error = ReadError;

    fn next_key_seed<K: DeserializeSeed<'de>>(
        &mut self,
        seed: K,
    ) -> Result<Option<K::Value>, ReadError> {
        let Some((name, value)) = self.fields.next() else {
            return Ok(None);
        };
        self.value = Some((name, value));
        let name: StrDeserializer<'_, ReadError> = name.as_str().into_deserializer();
        seed.deserialize(name).map(Some)
    }

    fn next_value_seed<V: DeserializeSeed<'de>>(&mut self, seed: V) -> Result<V::Value, ReadError> {
        let (name, value) = self
            .value
            .take()
            .ok_or_else(|| ReadError::wrong("a value without a name".to_owned()))?;
        seed.deserialize(Strict(value)).map_err(|fault| fault.below(name))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use gpuaas_types::api::{ProfileCreate, SiteCreate};

    fn refuse<T: DeserializeOwned>(body: &str) -> Problem {
        from_slice::<T>(body.as_bytes()).err().unwrap()
    }

    #[test]
    fn an_unknown_field_is_named_with_its_neighbours() {
        let body = r#"{"name":"h200","spec":{"strict_pxe":true}}"#;
        insta::assert_snapshot!(refuse::<ProfileCreate>(body), @r"
        unknown_field: Unknown field in the request: unknown field spec.strict_pxe
          spec.strict_pxe: unknown field
        hint: did you mean strict_pxe_preflight?
        ");
        let body = r#"{"name":"h200","spec":{"zzz":true}}"#;
        let problem = refuse::<ProfileCreate>(body);
        assert!(problem.hint.starts_with("known fields: site_bootstrap_bundle_ref"));
    }

    #[test]
    fn a_wrong_type_has_a_path_and_no_value() {
        let body = r#"{"spec":{"name":"a","url":"b"},"api_key":12345}"#;
        insta::assert_snapshot!(refuse::<SiteCreate>(body), @r"
        invalid_field: Invalid field in the request: api_key: expected a string, found an integer
          api_key: expected a string, found an integer
        hint: correct the field that `errors` names; the message says what the field accepts
        ");
        let body = r#"{"name":"a","spec":{"max_deploy_retry_attempts":-1}}"#;
        assert_eq!(refuse::<ProfileCreate>(body).errors[0].field, "spec.max_deploy_retry_attempts");
    }

    #[test]
    fn missing_malformed_and_doubled() {
        let problem = refuse::<SiteCreate>(r#"{"spec":{"name":"a"}}"#);
        assert_eq!(
            (problem.code.as_str(), problem.errors[0].field.as_str()),
            ("missing_field", "spec.url")
        );
        let problem = refuse::<SiteCreate>("{\n  \"spec\": {,}\n}");
        assert_eq!(problem.code, "malformed_json");
        assert!(problem.detail.contains("line 2 column 12"), "{}", problem.detail);
        assert_eq!(refuse::<SiteCreate>("").detail, "the request body is empty");
        let problem = refuse::<ProfileCreate>(r#"{"name":"a","name":"b"}"#);
        assert_eq!(problem.code, "invalid_field");
        assert!(problem.detail.contains("duplicate field name"));
    }
}
