//! Identifiers of which somebody typed the begin.

use std::str::FromStr;

use gpuaas_store::IdKind;
use gpuaas_types::codes::ProblemCode;
use uuid::Uuid;

use crate::ctx::Ctx;
use crate::http::problem::{ApiResult, problem};

/// Digits without which nothing counts as the begin of an identifier: shorter ones are words.
const LEAST: usize = 4;
const DIGITS: usize = 32;
/// Candidates that an answer names.
const SHOWN: u32 = 5;

/// The identifier that begins with `text`; none where nothing does, or the text is no begin of one.
///
/// # Errors
/// `id_ambiguous` with the candidates; the database's.
pub(crate) async fn find(ctx: &Ctx, kind: IdKind, text: &str) -> ApiResult<Option<Uuid>> {
    let Some((first, last)) = bounds(text) else { return Ok(None) };
    let found = ctx.store.ids_between(kind, first, last, SHOWN + 1).await?;
    match found.as_slice() {
        [] => Ok(None),
        [(id, _)] => Ok(Some(*id)),
        several => {
            let named = several.iter().take(SHOWN as usize);
            let named: Vec<String> =
                named.map(|(id, hostname)| format!("{id} ({hostname})")).collect();
            let more = if several.len() > SHOWN as usize { " and more" } else { "" };
            let detail = format!("{text:?} is a prefix of {}{more}", named.join(", "));
            Err(problem(ProblemCode::IdAmbiguous).with_detail(detail).into())
        }
    }
}

/// The identifier that `text` is, or that begins with it and no other does. `missing` is the code where
/// there is none, and `noun` what it would be of, such as `a task`.
///
/// # Errors
/// `missing`, `id_ambiguous`; the database's.
pub(crate) async fn resolve<T: FromStr>(
    ctx: &Ctx,
    text: &str,
    (kind, wrap): (IdKind, fn(Uuid) -> T),
    (missing, noun): (ProblemCode, &str),
) -> ApiResult<T> {
    if let Ok(id) = text.parse() {
        return Ok(id);
    }
    find(ctx, kind, text).await?.map(wrap).ok_or_else(|| {
        let detail = format!("{text:?} is not the ID or an ID prefix of {noun}");
        problem(missing).with_detail(detail).into()
    })
}

/// The first and the last identifier that begin so.
fn bounds(text: &str) -> Option<(Uuid, Uuid)> {
    let text = text.trim();
    let digits: String = text.chars().filter(|c| *c != '-').collect();
    let is_begin = (LEAST..DIGITS).contains(&digits.len())
        && !text.starts_with('-')
        && digits.bytes().all(|byte| byte.is_ascii_hexdigit());
    let filled = |with: &str| {
        let rest = with.repeat(DIGITS - digits.len());
        u128::from_str_radix(&format!("{digits}{rest}"), 16).ok().map(Uuid::from_u128)
    };
    if is_begin { filled("0").zip(filled("f")) } else { None }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_begin_has_digits_and_its_bounds_hold_what_begins_so() {
        let id: Uuid = "01a1f9af-a400-7202-8202-020202020202".parse().unwrap();
        for text in ["01a1", "01A1F9AF", "01a1f9af-a400-7", "01a1f9afa4007", " 01a1f9af- "] {
            let (first, last) = bounds(text).unwrap();
            assert!(first <= id && id <= last, "{text}");
        }
        let (first, last) = bounds("01a2").unwrap();
        assert!(id < first && first < last);
        for text in ["", "01a", "j22u11", "-01a1", "01a1f9afa40072028202020202020202", "dead beef"]
        {
            assert_eq!(bounds(text), None, "{text}");
        }
    }
}
