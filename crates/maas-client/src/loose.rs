//! Tolerant reading of MAAS's JSON: `null` and absent keys become defaults, since older versions
//! lack keys and most fields are nullable somewhere (docs/maas.md#machine-object,
//! docs/maas.md#versions).

use std::fmt;
use std::marker::PhantomData;

use base64::Engine as _;
use serde::de::{self, Deserialize, Deserializer, IgnoredAny, SeqAccess, Visitor};

/// `null` as the default.
pub(crate) fn null<'de, D: Deserializer<'de>, T: Default + Deserialize<'de>>(
    from: D,
) -> Result<T, D::Error> {
    Ok(Option::deserialize(from)?.unwrap_or_default())
}

/// The length of a list, its items skipped unread.
pub(crate) fn count<'de, D: Deserializer<'de>>(from: D) -> Result<usize, D::Error> {
    let items: Option<Vec<IgnoredAny>> = Option::deserialize(from)?;
    Ok(items.map_or(0, |items| items.len()))
}

/// Text, or a number or bool as text; anything else is `None`.
pub(crate) fn text<'de, D: Deserializer<'de>>(from: D) -> Result<Option<String>, D::Error> {
    from.deserialize_any(Loose(PhantomData::<String>))
}

/// A number of seconds, or `None` for `""` and `null` (script results).
pub(crate) fn seconds<'de, D: Deserializer<'de>>(from: D) -> Result<Option<f64>, D::Error> {
    let text = from.deserialize_any(Loose(PhantomData::<String>))?;
    Ok(text.and_then(|text| text.parse().ok()))
}

/// Base64 text decoded to lossy UTF-8; text that is not base64 stays as it is.
pub(crate) fn base64_text<'de, D: Deserializer<'de>>(from: D) -> Result<Option<String>, D::Error> {
    let text: Option<String> = Option::deserialize(from)?;
    Ok(text.map(|text| {
        let joined: String = text.split_ascii_whitespace().collect();
        match base64::engine::general_purpose::STANDARD.decode(joined) {
            Ok(bytes) => String::from_utf8_lossy(&bytes).into_owned(),
            Err(_) => text,
        }
    }))
}

struct Loose<T>(PhantomData<T>);

impl<'de> Visitor<'de> for Loose<String> {
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
