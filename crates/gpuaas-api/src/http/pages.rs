//! Lists in pages: which part of a list a request asks for, and where the next part begins.
//!
//! A request names the last item that it has seen (`after`), never a number of items to leave out:
//! what is added or goes away meanwhile neither repeats nor hides an item.

use std::str::FromStr;

use gpuaas_store::Page;
use gpuaas_types::api::List;
use gpuaas_types::coded_error::CodedError as _;
use gpuaas_types::codes::ProblemCode;
use gpuaas_types::filter::{FilterList, ListFilter, parse_filter};
use gpuaas_types::problem::Problem;

use crate::http::problem::problem;

/// Items of a page where the request names no limit.
const ITEMS_PER_PAGE: u32 = 100;
/// Most items of a page.
const MOST_ITEMS_PER_PAGE: u32 = 1000;

/// The part of a list that a request asks for.
#[derive(Debug)]
pub(crate) struct PageRequest<K> {
    after: Option<K>,
    limit: u32,
}

impl<K: FromStr + Clone> PageRequest<K> {
    /// The parameters `after` and `limit` of a query. A limit beyond the largest page is the
    /// largest page.
    ///
    /// # Errors
    /// `invalid_query` for a limit of 0, or where `after` names no item.
    pub(crate) fn parse(after: Option<&str>, limit: Option<u32>) -> Result<Self, Problem> {
        let refuse = |detail: String, hint: &str| {
            problem(ProblemCode::InvalidQuery).with_detail(detail).with_hint(hint)
        };
        let limit = limit.unwrap_or(ITEMS_PER_PAGE).min(MOST_ITEMS_PER_PAGE);
        if limit == 0 {
            return Err(refuse(
                "limit is 0".to_owned(),
                "leave limit out, or ask for 1 to 1000 items",
            ));
        }
        let after = after.map(|text| {
            let named = Some(text).filter(|text| !text.is_empty()).and_then(|t| t.parse().ok());
            named.ok_or_else(|| {
                let hint =
                    "set after to the value of next in the previous response, or leave it out";
                refuse(format!("invalid after {text:?}: expected an item ID"), hint)
            })
        });
        Ok(Self { after: after.transpose()?, limit })
    }

    /// What to read: one item more than the page has, which tells whether there is a next one.
    pub(crate) fn query(&self) -> Page<K> {
        Page { after: self.after.clone(), limit: self.limit + 1 }
    }

    /// Takes away what is beyond the page. Answers the key of the page's last item where there is
    /// a next page.
    pub(crate) fn cut<T>(&self, read: &mut Vec<T>, key: impl Fn(&T) -> String) -> Option<String> {
        let limit = usize::try_from(self.limit).unwrap_or(usize::MAX);
        let more = read.len() > limit;
        read.truncate(limit);
        read.last().filter(|_| more).map(key)
    }

    /// The page of a list that was read with [`Self::query`].
    pub(crate) fn list<T, V>(
        &self,
        mut read: Vec<T>,
        key: impl Fn(&T) -> String,
        view: impl Fn(T) -> V,
    ) -> List<V> {
        let next = self.cut(&mut read, key);
        List { items: read.into_iter().map(view).collect(), next }
    }

    /// The page of a list that is here in full, in the order of its keys.
    pub(crate) fn of_whole<T>(&self, all: Vec<T>, key: impl Fn(&T) -> K) -> List<T>
    where
        K: Ord + ToString,
    {
        let rest =
            all.into_iter().filter(|item| self.after.as_ref().is_none_or(|a| key(item) > *a));
        let mut items: Vec<T> = rest.collect();
        let next = self.cut(&mut items, |item| key(item).to_string());
        List { items, next }
    }
}

/// The filter of a list that a request asks for; none: it asks for all.
///
/// # Errors
/// `invalid_filter`, with the character at which the text stops being a filter.
pub(crate) fn list_filter(
    list: FilterList,
    text: Option<&str>,
) -> Result<Option<ListFilter>, Problem> {
    let read = text.map(|text| parse_filter(list, text)).transpose();
    read.map_err(|error| {
        problem(ProblemCode::InvalidFilter)
            .with_detail(error.to_string())
            .with_hint(error.hint().to_owned())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_item_is_on_one_page() {
        let mut seen = Vec::new();
        let mut after: Option<String> = None;
        loop {
            let request = PageRequest::<u32>::parse(after.as_deref(), Some(3)).unwrap();
            let page = request.of_whole((0..9).collect(), |n| *n);
            assert!(page.items.len() <= 3);
            seen.extend(page.items);
            match page.next {
                Some(next) => after = Some(next),
                None => break,
            }
        }
        assert_eq!(seen, (0..9).collect::<Vec<u32>>());
        // What was the last item may be gone by now.
        let gone = PageRequest::<u32>::parse(Some("4"), None).unwrap();
        assert_eq!(gone.of_whole(vec![3, 5, 6], |n| *n), List::whole(vec![5, 6]));
    }

    #[test]
    fn limits_are_held() {
        let limit = |asked| PageRequest::<u32>::parse(None, asked).unwrap().query().limit;
        assert_eq!((limit(None), limit(Some(7)), limit(Some(5000))), (101, 8, 1001));
        assert!(PageRequest::<String>::parse(Some("x"), None).is_ok());
        assert!(PageRequest::<String>::parse(Some(""), None).is_err());
        for (after, limit) in [(None, Some(0)), (Some("x"), None), (Some(""), None)] {
            let refused = PageRequest::<u32>::parse(after, limit).unwrap_err();
            assert_eq!(refused.code, ProblemCode::InvalidQuery.as_str());
            assert!(!refused.hint.is_empty());
        }
    }
}
