//! The language in which lists are filtered.

use gpuaas_types::filter::{FilterLimits, FilterList, parse_filter};

/// A text as a filter of every list.
///
/// What is a filter is written, and reads back as the same one; what is none names a character of the
/// text and a next step.
pub fn filter(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    let characters = text.chars().count();
    for list in FilterList::ALL {
        match parse_filter(*list, text) {
            Ok(filter) => {
                let sent = filter.compact();
                assert!(sent.chars().count() <= characters, "{sent}");
                assert_eq!(parse_filter(*list, &sent).as_ref(), Ok(&filter), "{sent}");
                // A space between conditions may be one more than somebody wrote.
                let written = filter.to_string();
                if written.chars().count() <= FilterLimits::ALLOWED.characters {
                    assert_eq!(parse_filter(*list, &written).as_ref(), Ok(&filter), "{written}");
                }
            }
            Err(error) => {
                assert!((1..=characters + 1).contains(&error.position), "{error}");
                assert!(!error.hint.is_empty() && !error.fault.is_empty(), "{error}");
                assert!(error.to_string().chars().all(|c| !c.is_control()), "{error:?}");
            }
        }
    }
}
