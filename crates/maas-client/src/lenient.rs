//! Tolerant reading of MAAS's JSON: `null` and absent keys become defaults, since older versions
//! lack keys and most fields are nullable somewhere (docs/maas.md#machine-object,
//! docs/maas.md#versions).

use std::fmt;
use std::marker::PhantomData;

use base64::Engine as _;
use serde::Deserialize;
use serde::de::{self, Deserializer, IgnoredAny, SeqAccess, Visitor};

/// Deserializes `null` as the type's default.
///
/// # Errors
/// Where the value is there and has another shape.
pub(crate) fn null_as_default<'de, D: Deserializer<'de>, T: Default + Deserialize<'de>>(
    from: D,
) -> Result<T, D::Error> {
    Ok(Option::deserialize(from)?.unwrap_or_default())
}

/// Deserializes a list as its length; items are skipped unread, `null` is 0.
///
/// # Errors
/// Where the value is no list.
pub(crate) fn list_length<'de, D: Deserializer<'de>>(from: D) -> Result<usize, D::Error> {
    let items: Option<Vec<IgnoredAny>> = Option::deserialize(from)?;
    Ok(items.map_or(0, |items| items.len()))
}

/// Deserializes text, or a number or bool as text; anything else is `None`.
///
/// # Errors
/// Where the text is not JSON.
pub(crate) fn scalar_as_text<'de, D: Deserializer<'de>>(
    from: D,
) -> Result<Option<String>, D::Error> {
    from.deserialize_any(ScalarVisitor(PhantomData::<String>))
}

/// Deserializes seconds since 1970; `""` and `null` are `None` (docs/maas.md#times).
///
/// # Errors
/// Where the text is not JSON.
pub(crate) fn epoch_seconds<'de, D: Deserializer<'de>>(from: D) -> Result<Option<f64>, D::Error> {
    let text = from.deserialize_any(ScalarVisitor(PhantomData::<String>))?;
    Ok(text.and_then(|text| text.parse().ok()))
}

/// Deserializes base64 as text, invalid UTF-8 replaced. What is not base64 stays as it is.
///
/// # Errors
/// Where the value is neither text nor `null`.
pub(crate) fn base64_as_text<'de, D: Deserializer<'de>>(
    from: D,
) -> Result<Option<String>, D::Error> {
    let text: Option<String> = Option::deserialize(from)?;
    Ok(text.map(|text| {
        let joined: String = text.split_ascii_whitespace().collect();
        match base64::engine::general_purpose::STANDARD.decode(joined) {
            Ok(bytes) => String::from_utf8_lossy(&bytes).into_owned(),
            Err(_) => text,
        }
    }))
}

/// Deserializes an object as the value of its `name`; `null` is empty text.
///
/// # Errors
/// Where the value is no object, or `name` no text.
pub(crate) fn name_of_object<'de, D: Deserializer<'de>>(from: D) -> Result<String, D::Error> {
    #[derive(Default, Deserialize)]
    struct Named {
        #[serde(default)]
        name: String,
    }
    let named: Option<Named> = Option::deserialize(from)?;
    Ok(named.unwrap_or_default().name)
}

/// Deserializes an object as the value of its `id`; `null` is `None`.
///
/// # Errors
/// Where the value is no object, or has no `id`.
pub(crate) fn id_of_object<'de, D: Deserializer<'de>>(from: D) -> Result<Option<u64>, D::Error> {
    #[derive(Deserialize)]
    struct Identified {
        id: u64,
    }
    let object: Option<Identified> = Option::deserialize(from)?;
    Ok(object.map(|object| object.id))
}

/// Visits any JSON value and keeps scalars.
struct ScalarVisitor<T>(PhantomData<T>);

impl<'de> Visitor<'de> for ScalarVisitor<String> {
    type Value = Option<String>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("any JSON value")
    }

    fn visit_str<E: de::Error>(self, value: &str) -> Result<Self::Value, E> {
        Ok(Some(value.to_owned()))
    }

    fn visit_string<E: de::Error>(self, value: String) -> Result<Self::Value, E> {
        Ok(Some(value))
    }

    fn visit_i64<E: de::Error>(self, value: i64) -> Result<Self::Value, E> {
        Ok(Some(value.to_string()))
    }

    fn visit_u64<E: de::Error>(self, value: u64) -> Result<Self::Value, E> {
        Ok(Some(value.to_string()))
    }

    fn visit_f64<E: de::Error>(self, value: f64) -> Result<Self::Value, E> {
        Ok(Some(value.to_string()))
    }

    fn visit_bool<E: de::Error>(self, value: bool) -> Result<Self::Value, E> {
        Ok(Some(value.to_string()))
    }

    fn visit_unit<E: de::Error>(self) -> Result<Self::Value, E> {
        Ok(None)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Self::Value, A::Error> {
        while seq.next_element::<IgnoredAny>()?.is_some() {}
        Ok(None)
    }

    fn visit_map<A: de::MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        while map.next_entry::<IgnoredAny, IgnoredAny>()?.is_some() {}
        Ok(None)
    }
}
